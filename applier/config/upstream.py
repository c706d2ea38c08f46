"""What the configuration says of the upstream beside the feed: folders of CREATE TABLE texts or exports, or a TiDB."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from applier.changefeed.filter import TableFilter
from applier.config.login import Login
from applier.config.section import Section, Zone, refuse
from applier.ddl.schema_files import is_schema_file, read_schemas
from applier.ddl.schema_tracker import Tables
from applier.errors import ConfigError, SchemaChangeRefused


class CsvSection(Section):
    """Options that Dumpling had; what is left out is its default. Files that do not fit them are refused."""

    separator: str = ","
    """`--csv-separator`."""
    delimiter: str = '"'
    """`--csv-delimiter`. With an empty one, `null_value` is needed."""
    null_value: str = "\\N"
    """`--csv-null-value`."""
    header: bool = True
    """False with `--no-header`."""
    backslash_escapes: bool = True
    """False with `--escape-backslash=false`; of SQL files as well."""
    timezone: Zone = "UTC"
    """IANA zone of TIMESTAMP values in CSV and SQL files, which no file shows: that of the TiDB server,
    unless Dumpling had `--params 'time_zone=+00:00'`."""
    binary: Literal["raw", "hex", "base64"] | None = None
    """How binary columns are written: `hex` with `--csv-output-dialect` snowflake or redshift, `base64` with bigquery,
    otherwise `raw`, the default. Needed where all values look like hex or base64."""


_EXPORT = "Export the tables with `tiup dumpling --no-data -o DIR`, and name that folder as upstream.schemas."


class UpstreamSection(Section):
    """The upstream itself, for what no message says."""

    model_config = ConfigDict(hide_input_in_errors=True)

    schemas: str | None = None
    """Folder with CREATE TABLE texts as Dumpling writes them (`DATABASE.TABLE-schema.sql`), of the moment at which the
    changefeed starts. Tables whose CREATE TABLE the feed does not hold take from them what rows lack. Not for `simple`,
    whose messages lack nothing."""
    dump: str | None = None
    """Folder of an export of `tiup dumpling` at the moment at which the changefeed starts, or any address that fsspec
    knows. `applier load` reads its rows, and tables take what rows lack from its CREATE TABLE texts."""
    csv: CsvSection = CsvSection()
    """How its CSV files are written, where that is not Dumpling's default."""
    url: Annotated[str | None, Field(repr=False)] = None
    """The TiDB from which `applier load` and `applier verify` read rows by SQL, and which `run` asks for values that a
    DDL gave to rows where no message shows them, and for rows that messages hold by their key alone:
    `mysql://USER:${PASSWORD}@HOST:4000`; the password stands as it is, also where it holds `@` or `%`. Needs the
    package PyMySQL (`pip install 'applier[mysql]'`)."""
    ca: str | None = None
    """PEM file of the certificate authority of that TiDB: the connection is encrypted, and the certificate of the host
    is checked. Without it, no certificate is checked."""
    cert: str | None = None
    """PEM file of the client certificate, where TiDB asks for one."""
    key: str | None = None
    """PEM file of the key of `cert`."""

    @model_validator(mode="after")
    def _check(self) -> UpstreamSection:
        problems = {}
        if self.url is not None:
            try:
                Login.parse(self.url)
            except ValueError as error:
                problems["url"] = str(error)
            if self.dump is not None:
                problems["dump"] = "remove it or upstream.url: `applier load` reads one of them (or `--from DIR`)"
        for name in ("ca", "cert", "key"):
            if getattr(self, name) is not None and self.url is None:
                problems[name] = "is for upstream.url, which is not set"
        if self.url is not None and (self.cert or self.key) and not (self.ca and self.cert and self.key):
            problems["cert"] = "needs key and ca as well: a client certificate is sent over TLS alone"
        refuse(problems)
        return self

    @property
    def login(self) -> Login | None:
        """The TiDB that is asked; None without one."""
        return None if self.url is None else Login.parse(self.url, self.ca, self.cert, self.key)


def supplied_tables(section: UpstreamSection, include: Sequence[str]) -> Tables:
    """The tables that the folder of CREATE TABLE texts declares, of those that `tables.include` admits.

    Raises:
        ConfigError: The folder or a file of it cannot be read, or nothing in it declares a table.
    """
    if section.schemas is None:
        return Tables()
    texts = _texts(Path(section.schemas))
    if not any(is_schema_file(name) for name in texts):
        raise ConfigError([f"Folder {section.schemas} of upstream.schemas holds no schema file (*.sql). {_EXPORT}"])
    try:
        declared = read_schemas(texts)
    except SchemaChangeRefused as refusal:
        raise ConfigError([f"{refusal.what} {refusal.hint}"]) from None
    return admitted(declared, include)


def admitted(declared: Tables, include: Sequence[str]) -> Tables:
    """Those of some tables that `tables.include` admits."""
    admits, tables = TableFilter(include).admits, Tables()
    for name, version in declared.items():
        if admits(name):
            tables.put(version, declared.partitioning(name))
    return tables


def _texts(folder: Path) -> dict[str, str]:
    """The text of each schema file, by its name without `.gz`."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([f"Cannot read folder {folder} of upstream.schemas: {reason}. {_EXPORT}"]) from error
    views = {name for name in names if name.removesuffix(".gz").endswith("-schema-view.sql")}
    kept = [name for name in names if name in views or is_schema_file(name.removesuffix(".gz"))]
    return {name.removesuffix(".gz"): _text(folder / name) for name in kept}


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is no text in UTF-8"
        what = (
            f"Cannot read file {path.name} of upstream.schemas: {reason}. Export the table again, or remove the file."
        )
        raise ConfigError([what]) from error
