"""Reads the configuration file into one frozen `Config`, or reports every problem at once."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from applier.changefeed.filter import TableFilter, TablePattern
from applier.changefeed.route import Route
from applier.changefeed.types import TypeRules
from applier.config.changefeed import ChangefeedSection
from applier.config.login import Login
from applier.config.own_namespaces import without_own
from applier.config.reading.paths import of_file, sqlite_file
from applier.config.reading.problems import Problems, lines_of, note_unknown, validated, with_known_keys
from applier.config.reading.references import resolved
from applier.config.registry import RegistrySection
from applier.config.section import Section, nearest, refuse
from applier.config.source import SourceSection, dotted
from applier.config.tables import TablesSection
from applier.config.upstream import UpstreamSection
from applier.config.watch import HttpSection, TracesSection, WebhookSection
from applier.ddl.actions import KINDS
from applier.errors import ConfigError
from applier.ways_out import WaysOut

_LOGIN_MISSING = (
    'missing: kafka.security.protocol asks for a log-in. For user and password: "kafka.sasl.jaas.config" = '
    "'org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="${KAFKA_USER}" password="${KAFKA_PASSWORD}";\''
)

CATALOGS = ("jdbc", "rest", "hive", "glue", "hadoop", "nessie", "bigquery")
"""The types of catalogs that Iceberg has names for."""

_S3_FILES = "org.apache.iceberg.aws.s3.S3FileIO"
"""What a Glue catalog takes where `io-impl` is left out, in the jar that has its client."""

_NEEDED = {"jdbc": ("uri", "warehouse"), "hadoop": ("warehouse",), "rest": ("uri",), "glue": ("warehouse",)}
"""Keys without which a catalog never opens; those of the other types may come from files of Hive or Hadoop."""

_EXAMPLES = {
    "uri": 'the address of the catalog, such as uri = "jdbc:sqlite:/data/catalog.db" or "http://catalog:8181"',
    "warehouse": 'the place of the tables, such as warehouse = "s3://bucket/lake" or "/data/lake"',
}

Policy = Literal["apply", "ignore", "stop"]
UpkeepTask = Literal["changes", "compact", "manifests", "expire", "orphans"]


class CatalogSection(Section):
    """The Iceberg catalog; keys beyond these go to it as they are."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the catalog in Spark."""
    type: str
    """`jdbc`, `rest`, `hive`, `glue`, `hadoop`, `nessie` or `bigquery`. With the key `catalog-impl`, which names a Java
    class instead, any text. `jdbc` needs the keys `uri` and `warehouse` too, `rest` needs `uri`, `glue` and
    `hadoop` need `warehouse`; the other types may find theirs in files of Hive or Hadoop."""

    @classmethod
    def unknown(cls, key: str, value: Any) -> tuple[str | None, str] | None:
        """See `Section`."""
        return None if key else super().unknown(key, value)

    @model_validator(mode="after")
    def _check(self) -> CatalogSection:
        uri, problems = self.properties.get("uri", ""), {}
        if "catalog-impl" not in self.properties and self.type not in CATALOGS:
            near = nearest(self.type, CATALOGS)
            hint = f"did you mean {near}?" if near else f"known types are {', '.join(CATALOGS)}"
            problems["type"] = f"unknown type {self.type}, {hint}"
        if self.type == "jdbc" and uri and not uri.startswith("jdbc:"):
            kind = uri.partition(":")[0]
            problems["uri"] = (
                f"must begin with `jdbc:{kind}:`, not `{kind}:`" if ":" in uri else "must begin with `jdbc:`"
            )
        refuse(problems)
        return self

    @property
    def properties(self) -> dict[str, str]:
        """All keys but the name, as text."""
        extra = self.__pydantic_extra__ or {}
        files = {"io-impl": _S3_FILES} if self.type == "glue" else {}
        return {"type": self.type} | files | {key: _text(value) for key, value in extra.items()}

    @property
    def sqlite_file(self) -> Path | None:
        """The file of a catalog in SQLite; None for any other."""
        return sqlite_file(self.properties.get("uri", ""))


def lacking(catalog: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with `uri` and `warehouse` of a catalog, where one is not given: misspelt, or missing."""
    if "catalog-impl" in catalog:
        return {}
    found = {}
    for key in ("uri", "warehouse"):
        if key in catalog:
            continue
        near = nearest(key, catalog.keys() - {"uri", "warehouse"})
        if near or key in _NEEDED.get(catalog.get("type", ""), ()):
            found[near or key] = f"unknown key, did you mean {key}?" if near else f"missing: {_EXAMPLES[key]}"
    return found


class SinkSection(Section):
    """How commits are made."""

    threads: Annotated[int, Field(ge=1, le=64)] = 16
    """Tables that are committed at the same time."""


class MaintenanceSection(Section):
    """Upkeep of the tables, beside the steps."""

    tasks: tuple[UpkeepTask, ...] = get_args(UpkeepTask)
    """What is done: days of changes beyond `history_days` are removed, small files and dead rows compacted, manifests
    brought together, old snapshots expired, orphan files removed. An empty list leaves all of it to you."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of wall time that it may take; a table that is a tenth beyond a limit does not wait for it."""
    pause_seconds: Annotated[float, Field(gt=0)] = 0.5
    """Longest maintenance, in seconds, that may delay a step: most of it runs beside them."""
    small_files: Annotated[int, Field(ge=2)] = 50
    """Small data files in one partition from which on they are compacted."""
    deleted_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of dead rows from which on files are rewritten without them."""
    snapshots: Annotated[int, Field(ge=1)] = 500
    """Snapshots of a table to keep; the older ones expire."""
    snapshot_hours: Annotated[float, Field(ge=0)] = 24.0
    """Snapshots older than this expire too, except those the checkpoint names."""
    orphan_hours: Annotated[float, Field(ge=1)] = 72.0
    """Age from which on a file that no snapshot knows is removed; once a day."""


class RunSection(Section):
    """The loop."""

    freshness_seconds: Annotated[float, Field(ge=0)] = 1.0
    """Rows are gathered for so many seconds, from the begin of a step to that of the next: fewer commits cost less. A
    tenth less, so that a step meets a watermark that comes as often. A backlog is never waited for."""
    interval_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Longest time in seconds from one look at the source to the next where nothing is new: a shorter one shows changes
    sooner and asks the brokers more often. The first looks after a step come sooner."""
    watermark_seconds: Annotated[float, Field(ge=0)] = 10.0
    """Where watermarks come and no rows, a checkpoint that raises the resolved ts is written this often: each is a
    commit. Rows never wait for it."""
    heartbeat_seconds: Annotated[float, Field(gt=0)] = 20.0
    """The process renews its hold on the changefeed this often, also within a long step."""
    lease_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A holder silent for this long loses the lease to the next applier."""
    stop_seconds: Annotated[float, Field(gt=0)] = 60.0
    """After SIGTERM or Ctrl-C the step under way may go on for so long; then it is given up."""
    stall_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A watermark that stands still for this long is logged; without any, the run ends."""

    @model_validator(mode="after")
    def _check(self) -> RunSection:
        if self.heartbeat_seconds > self.lease_seconds / 2:
            what = (
                f"{self.heartbeat_seconds:g} must be half of lease_seconds {self.lease_seconds:g} or less: "
                "a healthy holder would lose the changefeed"
            )
            refuse({"heartbeat_seconds": what})
        return self


_NOT_MAINTAINED = 'is what the task "changes" goes by: add it to maintenance.tasks, or remove history_days'

_NO_WATERMARK = 'needs changefeed.order = "resolved": without watermarks, nothing shows which changes a table has'


class Config(Section):
    """The whole file."""

    changefeed: ChangefeedSection
    source: SourceSection
    upstream: UpstreamSection = UpstreamSection()
    registry: RegistrySection | None = None
    catalog: CatalogSection
    tables: TablesSection = TablesSection()
    ddl: dict[str, Policy] = Field(default={})
    """Policy per kind of DDL, as `docs/ddl.md` names them."""
    sink: SinkSection = SinkSection()
    maintenance: MaintenanceSection = MaintenanceSection()
    run: RunSection = RunSection()
    http: HttpSection = HttpSection()
    webhook: WebhookSection = WebhookSection()
    traces: TracesSection = TracesSection()
    spark: dict[str, str] = Field(default={})
    """Any Spark configuration; `spark.master` defaults to local[*]."""
    _path: str = PrivateAttr(default="applier.toml")

    def of_file(self, path: str) -> Config:
        """The same configuration, which messages call by its file."""
        self._path = path
        return self

    @property
    def path(self) -> str:
        """Path of the file, for commands in messages."""
        return self._path

    @property
    def ways_out(self) -> WaysOut:
        """The ways out that messages print."""
        return WaysOut(self._path, self.upstream.url is not None)

    @property
    def route(self) -> Route:
        """Where upstream tables go; what a job writes aside keeps to its own place."""
        is_own = "{both}" in self.tables.route
        layouts = {} if is_own else self.tables.layouts
        return Route(self.tables.route, [(TablePattern(text), each.route) for text, each in layouts.items()])

    @property
    def filter(self) -> TableFilter:
        """Which upstream tables are followed."""
        return TableFilter(self.tables.include)

    @property
    def asked(self) -> Login | None:
        """The TiDB that shows what no message says of a DDL; none in offset order, where rows do not lie by its ts."""
        return self.upstream.login if self.changefeed.order == "resolved" else None

    @property
    def type_rules(self) -> TypeRules:
        """What bends the mapping of types."""
        tables = self.tables
        return TypeRules(
            tables.tinyint1,
            tables.zero_dates,
            tables.zero_dates_of,
            self.changefeed.session_zone,
            tables.virtual_columns,
            tables.unknown_default,
            tables.distinct_keys,
            tables.shapes,
        )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_own(cls, given: Any) -> Any:
        return without_own(given)

    @property
    def _java_has_login(self) -> bool:
        given = [*self.spark.values(), *map(os.environ.get, ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))]
        return any("java.security.auth.login.config" in (options or "") for options in given)

    @property
    def _refused_by_glue(self) -> dict[str, str]:
        """Names that a Glue catalog would refuse at every start, with what it takes."""
        found: dict[str, str] = {}
        if self.catalog.type != "glue":
            return found
        for key, route in self.tables.routes.items():
            if route.count(".") > 1:
                found[f"tables.{key}"] = "Glue has one level of namespaces: give it one dot, as in {database}.{table}"
        is_checked = self.catalog.properties.get("glue.skip-name-validation") != "true"
        if is_checked and not re.fullmatch("[a-z0-9_]+", self.changefeed.name):
            found["changefeed.name"] = "Glue takes lower-case letters, digits and underscores alone"
        return found

    @property
    def _softly_without_images(self) -> dict[str, str]:
        """Patterns whose deletes are soft, where deletes hold no more than a key."""
        if self.changefeed.protocol != "avro":
            return {}
        soft = (pattern for pattern, layout in self.tables.layouts.items() if layout.deletes == "soft")
        why = "is soft, and deletes of the protocol avro hold the key alone: use another protocol, or hard"
        return {f"tables.{pattern}.deletes": why for pattern in soft}

    @property
    def _unfit_for_files(self) -> dict[str, str]:
        """Settings that do not go with files of the storage sink."""
        feed, found = self.changefeed, dict[str, str]()
        if self.source.storage is None:
            why = f"is {feed.protocol}, which only [source.storage] has: it is not in topics or archives"
            return {"changefeed.protocol": why} if feed.traits.only_in_files else {}
        if feed.protocol not in ("canal-json", "csv"):
            found["changefeed.protocol"] = "must be canal-json or csv with [source.storage]"
        if feed.protocol != "csv" and "csv" in self.source.storage.model_fields_set:
            found["source.storage.csv"] = f"is for protocol csv, and changefeed.protocol is {feed.protocol}: remove it"
        if feed.order != "resolved":
            what = "must be resolved with [source.storage]: the files of tables have no common order"
            found["changefeed.order"] = what
        if feed.partitions is not None:
            found["changefeed.partitions"] = "remove it: folders of [source.storage] are no partitions of a topic"
        return found

    @property
    def files_end(self) -> Literal["json", "csv"]:
        """How the names of files with rows end in a folder of the storage sink."""
        return "csv" if self.changefeed.protocol == "csv" else "json"

    @model_validator(mode="after")
    def _check(self) -> Config:
        feed, upstream = self.changefeed, self.upstream
        problems = {f"catalog.{key}": problem for key, problem in lacking(self.catalog.properties).items()}
        problems |= self._refused_by_glue
        if self.tables.keys and feed.traits.keys_in_rows:
            problems["tables.keys"] = f"is for protocol debezium; rows of {feed.protocol} name their key"
        if upstream.schemas is not None and feed.traits.carries.schema == "messages":
            problems["upstream.schemas"] = "is not for protocol simple, whose messages describe each table"
        elif upstream.schemas is not None and upstream.dump is not None:
            problems["upstream.schemas"] = "remove it: the export of upstream.dump has the CREATE TABLE texts already"
        if feed.traits.carries.schema == "registry" and self.registry is None:
            problems["registry"] = f"is needed for protocol {feed.protocol}: add [registry] with url"
        problems |= self._unfit_for_files | self._softly_without_images
        kafka = self.source.kafka
        if self.changefeed.order == "offset":
            kept = [key for key, section in self.tables.layouts.items() if section.history]
            problems |= dict.fromkeys([f"tables.{key}.history" for key in kept], _NO_WATERMARK)
        if "changes" not in self.maintenance.tasks:
            kept = [key for key, section in self.tables.layouts.items() if section.history_days is not None]
            problems |= dict.fromkeys([f"tables.{key}.history_days" for key in kept], _NOT_MAINTAINED)
        if kafka is not None and kafka.lacks_login and not self._java_has_login:
            problems["source.kafka.kafka.sasl.jaas.config"] = _LOGIN_MISSING
        refuse(problems)
        return self


def load(path: str | Path) -> Config:
    """Read and check a configuration file; a byte order mark at its begin is passed over.

    Raises:
        ConfigError: With every problem found: unreadable file, bad TOML, unknown or missing keys, wrong values,
            environment variables that are not set, files of `${file:PATH}` that hold no value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        way_out = " Write one with `applier init FILE`." if isinstance(error, FileNotFoundError) else ""
        raise ConfigError([f"Cannot read the configuration {path}: {error.strerror or error}.{way_out}"]) from error
    except UnicodeDecodeError as error:
        problem = f"Cannot read the configuration {path}: byte {error.start} is not UTF-8. Save it as UTF-8."
        raise ConfigError([problem]) from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_not_toml(str(path), text, str(error))]) from error
    except (RecursionError, ValueError) as error:
        raise ConfigError([f"{path} is no configuration: it holds a number or brackets beyond all measure."]) from error
    return parse(raw, Problems(str(path), lines_of(text))).of_file(shlex.quote(str(path)))


def parse(raw: dict[str, Any], problems: Problems | None = None) -> Config:
    """Check a configuration that is already a dictionary; its paths are as they are without a file.

    It raises ConfigError with every problem found.
    """
    problems = Problems() if problems is None else problems
    values = with_known_keys(_flatten(_expand(raw, (), problems), problems), Config, "", problems)
    if isinstance(ddl := values.get("ddl"), dict):
        values["ddl"] = _known_kinds(ddl, problems)
    if problems.file:
        values = of_file(values, problems)
    config = validated(Config, values, problems)
    if config is None or problems:
        raise ConfigError(problems.sentences())
    return config


def _not_toml(path: str, text: str, error: str) -> str:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", error)
    if match is None:
        return f"{path}: not valid TOML: {error}."
    line = match[2] or text.count("\n") + 1
    return f"{path}:{line}: not valid TOML: {match[1]}{f' (column {match[3]})' if match[3] else ''}."


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expand(value: Any, path: tuple[str, ...], problems: Problems) -> Any:
    """Replace `${NAME}` and `${file:PATH}` in every text by what they stand for, and lists by tuples."""
    if isinstance(value, dict):
        return {key: _expand(item, (*path, key), problems) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_expand(item, path, problems) for item in value)
    if not isinstance(value, str):
        return value
    key = ".".join(path)
    expanded, wrong = resolved(value, Path(problems.file).parent.resolve() if problems.file else Path())
    for what in wrong:
        problems.add(key, what)
    if expanded != value:
        problems.from_outside.add(key)
    return expanded


def _flatten(raw: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Undo TOML's nesting of unquoted dotted keys where keys are passed on: `kafka.bootstrap.servers = …`."""
    flat = dict(raw)
    for section in ("catalog", "spark"):
        if isinstance(flat.get(section), dict):
            flat[section] = dotted(flat[section])
            for key in [key for key, value in flat[section].items() if isinstance(value, tuple)]:
                problems.add(f"{section}.{key}", "must be one text; commas separate several values")
    source = flat.get("source")
    if isinstance(source, dict) and isinstance(source.get("kafka"), dict):
        flat["source"] = source | {"kafka": dotted(source["kafka"])}
    if isinstance(flat.get("spark"), dict):
        prefixed = {key if key.startswith("spark.") else f"spark.{key}": value for key, value in flat["spark"].items()}
        flat["spark"] = {key: _text(value) for key, value in prefixed.items()}
    return flat


def _known_kinds(ddl: dict[str, Any], problems: Problems) -> dict[str, Any]:
    kinds = ", ".join(sorted(KINDS))
    for kind in sorted(ddl.keys() - KINDS):
        note_unknown(problems, f"ddl.{kind}", nearest(kind, KINDS), f"kinds are {kinds}")
    return {kind: policy for kind, policy in ddl.items() if kind in KINDS}
