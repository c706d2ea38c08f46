"""The commit of a build: what is known of it, and `unknown` for the rest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from applier.runtime.versions import commit


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in an empty folder."""
    folder = tmp_path / "applier"
    folder.mkdir()
    return folder


def _git(folder: Path, *arguments: str) -> str:
    own = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *own, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _checkout(root: Path) -> str:
    """A checkout of one commit, whose name is returned."""
    (root / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    _git(root, "init", "--quiet")
    _git(root, "add", "pyproject.toml")
    _git(root, "commit", "--quiet", "--message", "first")
    return _git(root, "rev-parse", "HEAD")


def test_a_build_says_what_was_built_in(package: Path) -> None:
    """Also in a checkout of something else."""
    _checkout(package.parent)
    (package / "commit").write_text("0123456789ab\n", encoding="ascii")

    assert commit(package) == "0123456789ab"


def test_a_checkout_says_where_it_is(package: Path) -> None:
    """A file that differs is not hidden."""
    name = _checkout(package.parent)
    assert commit(package) == name[:12]

    commit.cache_clear()
    (package.parent / "pyproject.toml").write_text("[tool]\n", encoding="utf-8")
    assert commit(package) == f"{name[:12]}-dirty"


def test_a_package_in_a_repository_of_its_user_does_not_take_its_commit(package: Path) -> None:
    """As `pip install --target .` leaves it."""
    _checkout(package.parent)
    (package.parent / "pyproject.toml").unlink()

    assert commit(package) == "unknown"


def test_a_copy_without_git_is_unknown(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit, or no git to ask."""
    assert commit(package) == "unknown"

    commit.cache_clear()
    _checkout(package.parent)
    monkeypatch.setenv("PATH", str(package))
    assert commit(package) == "unknown"
