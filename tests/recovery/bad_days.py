"""A seed in, an `applier run` on a storage with bad days out: its feed goes on, and it is killed now and then."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from applier.commands.catalog_reader import catalog_properties, open_lake
from applier.commands.control_reader import ControlView
from applier.commands.status.command import status
from applier.config import settings
from bench.storage import BUCKET, KEYS, client
from tests.integration.faulty_storage import FaultyStorage, drawn
from tests.lab import bag, own_rows
from tests.properties.histories import History
from tests.recovery.process import Applier, Ended
from tests.services.kafka import Broker, send
from tests.ticdc import TOPIC, Changefeed, Habits
from tests.upstream import Name

PARTITIONS = 2

_FEW_RETRIES = {"s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "1", "s3.retry.max-wait-ms": "5"}

_CALM_SECONDS = 200.0
"""Longest that an applier may take to catch up once all is well: a pause between two tries, and the work."""

_MOST_OPEN, _MOST_THREADS = 1000, 300
"""Descriptors and threads of an applier and its JVM. While all is well they have 700, of jars mostly, and 140."""


@dataclass(slots=True)
class BadDays:
    """One changefeed.

    Args:
        seed: Decides what happens, but for the time that it takes.
        storage: What stands before the server.
        broker: Has the feed.
        folder: Where the files go.

    Attributes:
        story: What happened.
        applier: The process, while it runs.
        config: Its configuration.
    """

    seed: int
    storage: FaultyStorage
    broker: Broker
    folder: Path
    story: list[str] = field(default_factory=list)
    applier: Applier = field(init=False)
    config: dict[str, Any] = field(init=False)
    _random: random.Random = field(init=False)
    _history: History = field(init=False)
    _feed: Changefeed = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"bad days of {self.seed}")
        self._history = History(random.Random(f"history of {self.seed}"), ddl=0.05)
        self._history.begin(3)
        self._feed = Changefeed(self._history.database, Habits(PARTITIONS, twice=0.05), self.seed)
        self.broker.create_topic(f"{self.name}-{TOPIC}", PARTITIONS)
        kafka = {"topics": [f"{self.name}-{TOPIC}"], "kafka.bootstrap.servers": self.broker.bootstrap}
        lake = {"name": "lake", "type": "jdbc", "uri": f"jdbc:sqlite:{self.folder}/catalog.db"}
        lake |= {"warehouse": f"s3://{BUCKET}/{self.name}", "s3.endpoint": self.storage.address, **KEYS, **_FEW_RETRIES}
        self.config = {
            "changefeed": {"name": self.name, "protocol": "simple"},
            "source": {"messages_per_step": 200, "kafka": kafka},
            "catalog": lake,
            "tables": {"route": f"{self.name}__{{database}}.{{table}}"},
            "maintenance": {"small_files": 2, "snapshots": 5, "share": 1.0},
        }

    @property
    def name(self) -> str:
        """Name of the changefeed."""
        return f"days_{self.seed}"

    def start(self, *options: str, kill_at: str = "") -> None:
        """Start an applier, with options of `run` and a kill point."""
        self.applier = Applier(self.config, self.folder, *options, kill_at=kill_at)

    def go_on(self, events: int) -> None:
        """Let something happen upstream, and send it."""
        self._history.go_on(events)
        self._history.database.tick()
        send(self.broker.bootstrap, self._feed.send(), f"{self.name}-")

    def round(self, seconds: float, share: float) -> None:
        """Bad days for some seconds, then calm until all has arrived."""
        end = time.monotonic() + seconds
        killed_at = self._random.choice([0.0, self._random.uniform(0.1, 0.9)]) * seconds
        self.storage.fault = drawn(self._random, share)
        while (left := end - time.monotonic()) > 0:
            assert self.applier.is_running, self.applier.wait().everything[-3000:]
            self.go_on(self._random.randint(1, 8))
            time.sleep(self._random.uniform(0.2, 1.5))
            if killed_at and left < seconds - killed_at:
                self.story.append("kill -9")
                self.applier.end(signal.SIGKILL)
                self.start()
                killed_at = 0.0
        self.storage.fault = lambda _method, _path: ""
        self.story.append(f"all there after {self.catch_up():.0f} s of calm")

    def catch_up(self) -> float:
        """Wait until all has arrived; the seconds that it took."""
        begin, wanted = time.monotonic(), self._history.database.ts
        config = settings.parse(self.config)
        while True:
            assert self.applier.is_running, self.applier.wait().everything[-3000:]
            seconds = time.monotonic() - begin
            with open_lake(config.catalog) as lake:
                checkpoint = ControlView(lake, config.changefeed.name).checkpoint()
            if checkpoint is not None and checkpoint.resolved_ts >= wanted:
                return seconds
            assert seconds < _CALM_SECONDS, f"the tables are not at {wanted}, but at {checkpoint}"
            time.sleep(1)

    def problems(self) -> list[str]:
        """What is wrong while all is calm; [] if nothing is."""
        found = list(self._differences())
        report = status(settings.parse(self.config), now_ms=int(time.time() * 1000))
        found += [
            f"{table.table} is {table.state}: {table.because}"
            for table in report.tables
            if table.state not in ("in step", "empty", "dropped")
        ]
        open_files, threads = _held(self.applier.pid)
        self.story.append(f"{open_files} descriptors, {threads} threads")
        if open_files > _MOST_OPEN or threads > _MOST_THREADS:
            found.append(self.story[-1])
        return found

    def stop(self) -> Ended:
        """End the applier as a service manager does, and let another one look for orphans."""
        ended = self.applier.end()
        swept = Applier(self.config, self.folder, "--once", module="tests.recovery.searching").wait()
        removed = sum(event.get("orphans", 0) for event in swept.events)
        self.story.append(f"{removed} orphans removed")
        assert (swept.code, swept.said) == (0, ""), swept.everything[-3000:]
        return ended

    def left_over(self) -> list[str]:
        """What the storage holds that nothing refers to: files, and uploads that were begun.

        A search leaves out control tables, and tables whose upstream was dropped.
        """
        s3 = client(f"http://{self.storage.behind}")
        uploads = s3.list_multipart_uploads(Bucket=BUCKET, Prefix=self.name).get("Uploads", [])
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{self.name}/")
        items = [item for page in pages for item in page.get("Contents", [])]
        files = {f"s3://{BUCKET}/{item['Key']}": item["LastModified"] for item in items}
        catalog = self._catalog()
        known, aside = set[str](), [f"s3://{BUCKET}/{self.name}/applier_{self.name}/"]
        for namespace in catalog.list_namespaces():
            for identifier in catalog.list_tables(namespace):
                table = catalog.load_table(identifier)
                known |= set(_referred(table))
                aside += [f"{table.location()}/"] if "applier.dropped-at" in table.properties else []
        assert known <= files.keys(), f"missing: {sorted(known - files.keys())[:5]}"
        left = sorted(
            f"{files[file]:%H:%M:%S} {file}" for file in files.keys() - known if not file.startswith(tuple(aside))
        )
        return [*(f"upload {item['Key']}" for item in uploads), *left]

    def _differences(self) -> Iterator[str]:
        wanted = self._history.database.at(self._history.database.ts)
        catalog, here = self._catalog(), set[Name]()
        for namespace in catalog.list_namespaces():
            prefix, mark, database = namespace[0].partition("__")
            if prefix == self.name and mark and len(namespace) == 1:
                here |= {Name(database, identifier[-1]) for identifier in catalog.list_tables(namespace)}
        for name in sorted(here | wanted.keys()):
            rows = self._rows(catalog, name)
            if (rows is None) != (name not in wanted):
                yield f"{name} should {'' if name in wanted else 'not '}be there"
            elif rows is not None and rows != bag(wanted[name][1]):
                extra, lost = (
                    sorted(set(rows) - set(bag(wanted[name][1]))),
                    sorted(set(bag(wanted[name][1])) - set(rows)),
                )
                yield f"{name}: {len(rows)} rows for {len(wanted[name][1])}\n  has   {extra[:3]}\n  wants {lost[:3]}"

    def _rows(self, catalog: Catalog, name: Name) -> list[str] | None:
        """The rows of a table, None without one. Maintenance may remove a file between two requests."""
        identifier = f"{self.name}__{name.database}", name.table
        for _ in range(5):
            with suppress(FileNotFoundError):
                try:
                    table = catalog.load_table(identifier)
                except NoSuchTableError:
                    return None
                return None if "applier.dropped-at" in table.properties else bag(own_rows(table))
        raise AssertionError(f"{name} refers to files that are gone")

    def _catalog(self) -> Catalog:
        lake = self.config["catalog"]
        if lake["type"] == "rest":
            return load_catalog(**catalog_properties(settings.parse(self.config).catalog))
        own = {key: value for key, value in lake.items() if key.startswith(("s3.", "client."))}
        uri = f"sqlite:///{self.folder}/catalog.db"
        return load_catalog("lake", type="sql", uri=uri, warehouse=lake["warehouse"], **own)


def _referred(table: Table) -> Iterator[str]:
    """All files that any snapshot of a table refers to, and those of its metadata."""
    metadata, seen = table.metadata, set[str]()
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (file.statistics_path for file in metadata.statistics)
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


def _held(pid: int) -> tuple[int, int]:
    """Open descriptors and threads of a process and those that it started."""
    open_files = threads = 0
    for process in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            open_files += len(list(Path(f"/proc/{process}/fd").iterdir()))
            threads += len(list(Path(f"/proc/{process}/task").iterdir()))
    return open_files, threads


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="utf-8").split():
                yield from _tree(int(child))
