"""Finding Java: order of places, releases that fit, and the sentence when none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from applier.errors import ConfigError
from applier.runtime.jvm import java_home

_WAY_OUT = (
    "install openjdk-17-jre-headless or openjdk-21-jre-headless (apt), java-21-openjdk-headless (dnf) or openjdk@21 "
    "(brew), or set JAVA_HOME to the folder of one."
)


def _install(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch(mode=0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\n')
    return folder


def test_java_home_comes_first(tmp_path: Path) -> None:
    """JAVA_HOME wins over the PATH and the system's folder."""
    chosen = _install(tmp_path / "chosen", "21.0.2")
    _install(tmp_path / "jvm" / "system", "17.0.15")
    on_path = _install(tmp_path / "path", "17.0.15") / "bin"

    found = java_home.find({"JAVA_HOME": str(chosen), "PATH": str(on_path)}, tmp_path / "jvm")

    assert found == chosen


def test_an_unfit_java_home_is_passed_over(tmp_path: Path) -> None:
    """A Java of another release does not keep a fitting one on the PATH from being found."""
    newer = _install(tmp_path / "newer", "25.0.3")
    on_path = _install(tmp_path / "path", "17.0.15")

    assert java_home.find({"JAVA_HOME": str(newer), "PATH": str(on_path / "bin")}, tmp_path / "none") == on_path


def test_the_folder_of_the_system_is_searched(tmp_path: Path) -> None:
    """Without JAVA_HOME and without java on the PATH, a system's Java of a fitting release is found."""
    _install(tmp_path / "jvm" / "a-11", "11.0.2")
    fitting = _install(tmp_path / "jvm" / "b-17", "17.0.1")

    assert java_home.find({"PATH": ""}, tmp_path / "jvm") == fitting


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    """No Java at all is one sentence with the places that were searched and the way out."""
    with pytest.raises(ConfigError) as caught:
        java_home.find({"PATH": ""}, tmp_path / "none")

    assert str(caught.value) == (
        f"Spark needs Java 17 or 21, but JAVA_HOME, PATH and {tmp_path}/none have none; {_WAY_OUT}"
    )


def test_only_unfit_javas_are_named(tmp_path: Path) -> None:
    """A Java that cannot be used is named with its release, once however many ways lead to it."""
    old = _install(tmp_path / "jvm" / "old", "11.0.2")

    with pytest.raises(ConfigError) as caught:
        java_home.find({"JAVA_HOME": str(old), "PATH": str(old / "bin")}, tmp_path / "jvm")

    assert f"JAVA_HOME, PATH and {tmp_path}/jvm have only {old} (Java 11); install " in str(caught.value)


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    """A wrong path is what a user can mend, so it is not passed over in silence."""
    with pytest.raises(ConfigError) as caught:
        java_home.find({"JAVA_HOME": f"{tmp_path}/jdk", "PATH": ""}, tmp_path / "none")

    assert f"have only {tmp_path}/jdk (no bin/java); install " in str(caught.value)
