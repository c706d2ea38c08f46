"""Pinned jars: the locks are whole, and what is cached is compared with them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from applier.errors import ConfigError, TransientError
from applier.runtime.jvm import jars

_SERVICES = Path(__file__).parents[3] / "services"
_NO_NETWORK = """\
<ivysettings>
  <settings defaultResolver="none"/>
  <resolvers><filesystem name="none"><artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem></resolvers>
</ivysettings>
"""


def _lock(folder: Path, content: bytes) -> Path:
    """A lock with one jar, `thing-1.0.jar`, of this content."""
    folder.mkdir()
    (folder / "jars.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  own/thing-1.0.jar\n")
    (folder / "jars.xml").write_text(
        '<ivy-module version="2.0"><info organisation="applier" module="test"/>'
        '<configurations><conf name="own"/></configurations><dependencies defaultconfmapping="*->default">'
        '<dependency conf="own" org="made.up" name="thing" rev="1.0"/></dependencies></ivy-module>'
    )
    return folder


@pytest.mark.parametrize("lock", [jars.OWN, _SERVICES], ids=["applier", "services"])
def test_every_coordinate_has_one_checksum(lock: Path) -> None:
    """jars.xml and jars.sha256 name the same files of the same groups."""
    text = (lock / "jars.xml").read_text(encoding="utf-8")
    pinned = re.findall(r'<dependency conf="(\w+)" org="[^"]+" name="([^"]+)" rev="([^"]+)"', text)
    coordinates = sorted((group, f"{name}-{revision}") for group, name, revision in pinned)

    checked = sorted(
        (group, name.removesuffix(".jar").removesuffix("-all.tar.gz"))
        for group in {group for group, _ in coordinates}
        for name in jars.names(group, lock)
    )
    assert coordinates
    assert checked == coordinates


def test_cached_jars_are_returned_without_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that have their SHA-256 are taken as they are, from the folder that APPLIER_JARS names."""
    lock = _lock(tmp_path / "lock", b"content")
    jar = tmp_path / "baked" / "own" / "thing-1.0.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"content")
    monkeypatch.setenv("APPLIER_JARS", str(tmp_path / "baked"))

    assert jars.fetch("own", lock) == [jar]


def test_the_cache_is_named_after_its_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two locks never share a folder of the user's cache."""
    monkeypatch.delenv("APPLIER_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert jars.home().parent == tmp_path / "applier"
    assert jars.home() != jars.home(_SERVICES)


@pytest.mark.slow
def test_a_fetch_says_how_many_megabytes_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a line before it begins, and in the bar; what `.part` files hold counts."""
    (tmp_path / "thing-1.0.jar").write_bytes(b"content")
    (tmp_path / "other-1.0.jar.part").write_bytes(b"x" * 2_500_000)
    monkeypatch.setenv("APPLIER_IVY_SETTINGS", str(_settings(tmp_path)))
    monkeypatch.setitem(jars._MEGABYTES, "own", 3)
    # A command of another test may have set from which level on the process logs.
    structlog.reset_defaults()
    with capture_logs() as lines:
        jars.fetch("own", _lock(tmp_path / "lock", b"content"), tmp_path / "into")

    assert [(line["event"], line["files"], line["megabytes"]) for line in lines] == [("fetching jars, once", 1, 3)]
    assert jars._megabytes(tmp_path) == 2


def test_the_megabytes_of_our_groups_are_those_of_their_files() -> None:
    """Each group has a figure, and it is right where the files are here."""
    assert set(jars._MEGABYTES) == {"spark", "s3", "postgresql"}
    for group, megabytes in jars._MEGABYTES.items():
        if not jars.missing(group):
            assert (
                round(sum((jars.home() / group / name).stat().st_size for name in jars.names(group)) / 1e6) == megabytes
            )


def test_a_catalog_has_the_jars_that_it_needs() -> None:
    """The driver of PostgreSQL comes along; other databases' are put into spark.jars."""
    s3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
    assert jars.groups({"uri": "jdbc:sqlite:x"}) == jars.groups({"uri": "jdbc:mysql://x"}) == ["spark"]
    assert jars.groups({"uri": "jdbc:postgresql://x/lake", **s3}) == ["spark", "s3", "postgresql"]


def test_an_unknown_group_is_refused() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(ConfigError, match="no group of jars 'spork'; there are postgresql, s3, spark"):
        jars.fetch("spork")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A baked-in folder without the jars says so, instead of an error of the operating system."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="Cannot write the jars to .*file/s3: Not a directory; point APPLIER_JARS"):
        jars.fetch("s3", into=tmp_path / "file")


@pytest.mark.slow
def test_a_jar_with_another_checksum_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ivy fetched is compared before it appears under its name."""
    (tmp_path / "thing-1.0.jar").write_bytes(b"something else")
    monkeypatch.setenv("APPLIER_IVY_SETTINGS", str(_settings(tmp_path)))

    with pytest.raises(ConfigError, match="thing-1.0.jar as fetched has not the SHA-256"):
        jars.fetch("own", _lock(tmp_path / "lock", b"content"), tmp_path / "into")
    assert list((tmp_path / "into" / "own").iterdir()) == []


@pytest.mark.slow
def test_a_broken_cache_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar that was cut short is replaced by a whole one."""
    (tmp_path / "thing-1.0.jar").write_bytes(b"content")
    monkeypatch.setenv("APPLIER_IVY_SETTINGS", str(_settings(tmp_path)))
    lock = _lock(tmp_path / "lock", b"content")
    (jar,) = jars.fetch("own", lock, tmp_path / "into")
    jar.write_bytes(b"cont")

    jars.fetch("own", lock, tmp_path / "into")

    assert jar.read_bytes() == b"content"


@pytest.mark.slow
def test_an_unreachable_repository_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file the error says which group, why, and how to bring it from elsewhere."""
    monkeypatch.setenv("APPLIER_IVY_SETTINGS", str(_settings(tmp_path)))

    with pytest.raises(TransientError, match="Cannot fetch the own jars .*made.up#thing;1.0.* Hint: run"):
        jars.fetch("own", _lock(tmp_path / "lock", b"content"), tmp_path / "into")


def _settings(folder: Path) -> Path:
    """Settings of Ivy that look only into this folder."""
    path = folder / "ivysettings.xml"
    path.write_text(_NO_NETWORK.format(folder=folder))
    return path
