"""Reads the configuration file into one frozen `Config`, or reports every problem at once."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from applier.changefeed.filter import TableFilter, TablePattern
from applier.changefeed.table import TableName
from applier.config.changefeed import ChangefeedSection
from applier.config.http import HttpSection
from applier.config.layout import LayoutSection, layout_of
from applier.config.registry import RegistrySection
from applier.config.source import SourceSection
from applier.config.table_layout import TableLayout
from applier.config.upstream import UpstreamSection
from applier.ddl.actions import KINDS
from applier.errors import ConfigError

ZeroDates = Literal["null", "stop", "string"]
Policy = Literal["apply", "ignore", "stop"]


class Section(BaseModel):
    """A table of the file; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class CatalogSection(BaseModel):
    """The Iceberg catalog; keys beyond these go to it as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the catalog in Spark."""
    type: str
    """`jdbc`, `rest`, `hive`, `glue`, …."""

    @property
    def properties(self) -> dict[str, str]:
        """All keys but the name, as text."""
        extra = self.__pydantic_extra__ or {}
        return {"type": self.type} | {key: _text(value) for key, value in extra.items()}


class TablesSection(Section):
    """Which tables, where they go, and how their types map."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, LayoutSection] = Field(init=False)

    include: tuple[str, ...] = ("*.*",)
    """TiCDC's filter rules, e.g. `shop.*`, `!shop.tmp_*`; the last that fits wins."""
    route: str = "{database}.{table}"
    """Iceberg namespace and table of an upstream table."""
    incomplete: Literal["allow", "refuse"] = "allow"
    """What becomes of a table whose CREATE TABLE the feed does not hold, as it may lack earlier rows: it is made,
    marked as incomplete and kept out of the cut; or the run is refused."""
    on_drop: Literal["keep", "drop"] = "keep"
    """What DROP TABLE does to the Iceberg table; kept ones are stamped."""
    format_version: Literal[2, 3] = 3
    """Iceberg format of new tables."""
    properties: dict[str, str] = {}
    """Iceberg properties of new tables."""
    tinyint1: Literal["int", "boolean"] = "int"
    """Type of tinyint(1)."""
    zero_dates: ZeroDates = "null"
    """What zero and partial dates become: NULL (counted), a stop, or text columns."""
    zero_dates_of: dict[str, ZeroDates] = {}
    """The same for single columns, by `database.table.column`."""
    virtual_columns: Literal["omit", "null"] = "omit"
    """Virtual generated columns, whose values no message carries, are left out of new tables and columns, or are there
    and hold NULL."""
    unknown_default: Literal["stop", "null"] = "stop"
    """A new column whose default is not known in rows before the DDL."""
    keys: dict[str, tuple[str, ...]] = {}
    """Debezium of TiCDC v8.0 to v8.4, whose messages have no key: key columns by `database.table`, `[]` for a table
    without any key."""

    @model_validator(mode="after")
    def _check(self) -> TablesSection:
        TableFilter(self.include)
        for pattern in self._layouts:
            TablePattern(pattern)
        if "{table}" not in self.route or "." not in self.route:
            msg = "route needs a namespace and {table}, such as {database}.{table}"
            raise ValueError(msg)
        unknown = set(re.findall(r"\{(.*?)\}", self.route)) - {"database", "table"}
        if unknown:
            msg = f"route knows {{database}} and {{table}}, not {sorted(unknown)}"
            raise ValueError(msg)
        return self

    @property
    def _layouts(self) -> dict[str, LayoutSection]:
        return self.__pydantic_extra__ or {}

    def layout_of(self, name: TableName) -> TableLayout | None:
        """How a table should lie; None if no pattern names it."""
        return layout_of(self._layouts, name)


class SinkSection(Section):
    """How commits are made."""

    engine: Literal["auto", "arrow", "spark"] = "auto"
    """Arrow in the driver for ordinary steps, Spark for large ones; `auto` chooses by size."""
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Tables that are committed at the same time."""


class MaintenanceSection(Section):
    """Upkeep of the tables, between steps."""

    tasks: tuple[Literal["compact", "manifests", "expire", "orphans"], ...] = (
        "compact",
        "manifests",
        "expire",
        "orphans",
    )
    """What is done: small files and dead rows are compacted, manifests brought together, old snapshots expired, orphan
    files removed. An empty list leaves all of it to you."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of wall time that it may take."""
    pause_seconds: Annotated[float, Field(gt=0)] = 0.5
    """Work that the next step waits for, in seconds: after so many no other unit begins before it."""
    small_files: Annotated[int, Field(ge=2)] = 50
    """Small data files in one partition from which on they are compacted."""
    deleted_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of dead rows from which on files are rewritten without them."""
    snapshots: Annotated[int, Field(ge=1)] = 500
    """Snapshots of a table to keep; the older ones expire."""
    snapshot_hours: Annotated[float, Field(ge=0)] = 24.0
    """Age at which the other snapshots expire. Those that the checkpoint names stay."""
    orphan_hours: Annotated[float, Field(ge=1)] = 72.0
    """Age from which on a file that no snapshot knows is removed; once a day."""


class RunSection(Section):
    """The loop."""

    interval_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Pause when nothing is new."""
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
            msg = (
                f"heartbeat_seconds {self.heartbeat_seconds:g} must be half of lease_seconds {self.lease_seconds:g} or "
                "less: a healthy holder would lose the changefeed"
            )
            raise ValueError(msg)
        return self


class Config(Section):
    """The whole file."""

    changefeed: ChangefeedSection
    source: SourceSection
    upstream: UpstreamSection = UpstreamSection()
    registry: RegistrySection | None = None
    catalog: CatalogSection
    tables: TablesSection = TablesSection()
    ddl: dict[str, Policy] = {}
    """Policy per kind of DDL, as `docs/ddl.md` names them."""
    sink: SinkSection = SinkSection()
    maintenance: MaintenanceSection = MaintenanceSection()
    run: RunSection = RunSection()
    http: HttpSection = HttpSection()
    spark: dict[str, str] = {}
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

    @model_validator(mode="after")
    def _check(self) -> Config:
        unknown = sorted(self.ddl.keys() - KINDS)
        if unknown:
            close = difflib.get_close_matches(unknown[0], KINDS, n=1)
            msg = f"[ddl] knows no kind {unknown[0]!r}" + (f", did you mean {close[0]!r}?" if close else "")
            raise ValueError(msg)
        if self.tables.keys and self.changefeed.traits.keys_in_rows:
            msg = f"[tables.keys] is for protocol debezium; rows of {self.changefeed.protocol} name their key"
            raise ValueError(msg)
        if self.upstream.schemas is not None and self.changefeed.traits.carries.schema == "messages":
            msg = "[upstream] schemas is not for protocol simple, whose messages describe each table"
            raise ValueError(msg)
        if self.upstream.schemas is not None and self.upstream.dump is not None:
            msg = (
                "[upstream] has both schemas and dump: the export has the CREATE TABLE texts already, so remove schemas"
            )
            raise ValueError(msg)
        if self.changefeed.traits.carries.schema == "registry" and self.registry is None:
            msg = f"[registry] is needed for protocol {self.changefeed.protocol}"
            raise ValueError(msg)
        return self


def load(path: str | Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: With every problem found: unreadable file, bad TOML, unknown or missing keys, wrong values,
            environment variables that are not set.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"Cannot read the configuration {path}: {_reason(error)}."]) from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path} is not valid TOML: {error}."]) from error
    return parse(raw).of_file(shlex.quote(str(path)))


def parse(raw: dict[str, Any]) -> Config:
    """Check a configuration that is already a dictionary. Raises ConfigError with every problem found."""
    problems: list[str] = []
    expanded = _expand(raw, (), problems)
    try:
        config = Config.model_validate(_flatten(_without_unknown(expanded, problems)))
    except ValidationError as error:
        problems.extend(_sentence(detail) for detail in error.errors())
    if problems:
        raise ConfigError(problems)
    return config


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expand(value: Any, path: tuple[str, ...], problems: list[str]) -> Any:
    """Replace ${NAME} in every string by the environment variable."""
    if isinstance(value, dict):
        return {key: _expand(item, (*path, key), problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, path, problems) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            problems.append(f"{'.'.join(path)}: the environment variable {match[1]} is not set.")
        return os.environ.get(match[1], "")

    return re.sub(r"\$\{(\w+)\}", variable, value)


def _flatten(raw: dict[str, Any]) -> dict[str, Any]:
    """Undo TOML's nesting of unquoted dotted keys where keys are passed on: `kafka.bootstrap.servers = …`."""
    flat = dict(raw)
    for section in ("catalog", "spark"):
        if isinstance(flat.get(section), dict):
            flat[section] = _dotted(flat[section])
    source = flat.get("source")
    if isinstance(source, dict) and isinstance(source.get("kafka"), dict):
        flat["source"] = source | {"kafka": _dotted(source["kafka"])}
    if isinstance(flat.get("spark"), dict):
        prefixed = {key if key.startswith("spark.") else f"spark.{key}": value for key, value in flat["spark"].items()}
        flat["spark"] = {key: _text(value) for key, value in prefixed.items()}
    return flat


def _without_unknown(raw: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """The file without the keys of `[tables]` that are neither known nor the pattern of a layout, which has a dot."""
    tables = raw.get("tables")
    if not isinstance(tables, dict):
        return raw
    unknown = [key for key in tables if key not in TablesSection.model_fields and "." not in key]
    for key in unknown:
        quotes = f'; a pattern needs quotes: [tables."{key}.…"]' if isinstance(tables[key], dict) else ""
        problems.append(f"tables.{key}: unknown key{_nearest(('tables', key))}{quotes}.")
    return raw | {"tables": {key: value for key, value in tables.items() if key not in unknown}}


def _dotted(nested: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in _dotted(value).items()})
        else:
            flat[key] = value
    return flat


def _sentence(detail: Any) -> str:
    path = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{path}: unknown key{_nearest(detail['loc'])}."
    if detail["type"] == "missing":
        return f"{path}: missing."
    if detail["type"] == "model_type":
        return f"{path}: must be a table."
    message = detail["msg"].removeprefix("Value error, ")
    return f"{path or 'the file'}: {message}."


def _nearest(location: tuple[int | str, ...]) -> str:
    model: Any = Config
    for part in location[:-1]:
        if model is TablesSection and part not in model.model_fields:
            model = LayoutSection
            continue
        annotation = model.model_fields[part].annotation
        options = getattr(annotation, "__args__", (annotation,))
        model = next(
            (option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), Config
        )
    close = difflib.get_close_matches(str(location[-1]), model.model_fields, n=1, cutoff=0.6)
    return f", did you mean {close[0]}?" if close else f"; known keys are {', '.join(model.model_fields)}"
