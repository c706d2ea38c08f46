"""Lakes that releases left in the middle of a feed: this tree continues each, and ends as upstream.

Their files are in buckets, as a bucket has the same address on every machine, and Iceberg keeps whole addresses.
`LAKE=write pytest tests/recorded/test_releases.py` leaves the lake of the version of this tree: once, before its tag.
"""

from __future__ import annotations

import io
import os
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.runtime.jvm.spark_session import _catalog_settings
from tests import recordings
from tests.recorded.test_protocols import advance
from tests.replay import Replay, differences, ends_at, plain, replay
from tests.services.s3 import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.s3]

_LAKES = recordings.GOLDEN / "lakes"
_SCENARIO, _VARIANT = "txns", "simple-json"
_CATALOG = "released"
"""Its name is in the rows of the catalog's database."""

_IS_WRITING = os.environ.get("LAKE") == "write"
_RELEASES = [version("applier")] if _IS_WRITING else sorted(file.name for file in _LAKES.iterdir())


class _InBucket(Replay):
    """A replay whose tables are in a bucket."""

    def _at(self, location: str) -> list[dict[str, Any]] | None:
        table = StaticTable.from_metadata(location, {key: self.lake[key] for key in self.lake if "." in key})
        return None if "applier.dropped-at" in table.properties else plain(table.scan().to_arrow())


def _feed(spark: SparkSession, s3: ObjectStore, bucket: str, folder: Path) -> Replay:
    """The changefeed, with its database in a folder and its files in a bucket."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"s3://{bucket}"}
    lake |= s3.catalog_properties
    for key, value in _catalog_settings(_CATALOG, lake).items():
        spark.conf.set(key, value)
    made = replay(_SCENARIO, _VARIANT, lake, folder, "simple", name="shop")
    raw = made.raw | {"catalog": {"name": _CATALOG, **lake}, "maintenance": {"tasks": []}}
    return _InBucket(_SCENARIO, _VARIANT, made.prefix, lake, raw)


def _write(spark: SparkSession, s3: ObjectStore, bucket: str, folder: Path) -> bytes:
    """The first half of the feed, in two steps: the database and all objects, as an archive."""
    found = _feed(spark, s3, bucket, folder)
    states = list(ends_at(_SCENARIO, _VARIANT, build("simple", DecoderOptions())))
    with found.running(spark) as pipeline:
        for state, ends in (states[len(states) // 4], states[len(states) // 2]):
            advance(pipeline, ends)
            assert differences(found, state) == []
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        archive.add(folder / "catalog.db", "catalog.db")
        for key in s3.keys(bucket):
            body = s3.client().get_object(Bucket=bucket, Key=key)["Body"].read()
            item = tarfile.TarInfo(f"objects/{key}")
            item.size = len(body)
            archive.addfile(item, io.BytesIO(body))
    return packed.getvalue()


def _unpack(file: Path, s3: ObjectStore, bucket: str, folder: Path) -> None:
    with tarfile.open(file) as archive:
        for item in archive:
            content = archive.extractfile(item)
            assert content is not None
            if item.name == "catalog.db":
                (folder / "catalog.db").write_bytes(content.read())
            else:
                s3.client().put_object(Bucket=bucket, Key=item.name.removeprefix("objects/"), Body=content.read())


@pytest.mark.parametrize("release", _RELEASES)
def test_the_lake_of_a_release_is_continued(
    release: str, spark: SparkSession, s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its checkpoint, not from the first message; in the end each cell is that of upstream."""
    bucket = f"release-{release.replace('.', '-')}"
    s3.create_bucket(bucket)
    file = _LAKES / release / "lake.tar.xz"
    if _IS_WRITING:
        monkeypatch.setattr("socket.gethostname", lambda: "release")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_write(spark, s3, bucket, tmp_path))
        return
    _unpack(file, s3, bucket, tmp_path)
    found = _feed(spark, s3, bucket, tmp_path)
    states = recordings.expected(_SCENARIO)

    assert differences(found, states[len(states) // 2]) == []
    with found.running(spark) as pipeline:
        begun = pipeline.state.resolved_ts
        assert begun == states[len(states) // 2]["resolved_ts"]
        assert advance(pipeline, pipeline.ends()).error is None
        assert pipeline.state.parked == frozenset()

    assert differences(found, states[-1]) == []
