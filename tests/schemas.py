"""Generates the files of `schemas/`, and parts of `docs/`, from the models that define them.

`python -m tests.schemas` writes them; with `--check` it names those that are stale and exits with 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from applier.changefeed.table import ColumnType
from applier.changefeed.types import TypeRules, arrow_type
from applier.config.protocols import PROTOCOLS
from applier.config.settings import Config
from applier.ddl.actions import Action, kind
from applier.decode.simple import avro_form
from applier.sink.format.types import iceberg_type
from applier.watch.metrics import METRICS
from tests import readers

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

CAPABILITIES = {name: traits.carries for name, traits in PROTOCOLS.items()}
"""What each protocol carries, by its name in the configuration."""

TYPES: Mapping[str, ColumnType] = {
    "tinyint, smallint, mediumint, int": ColumnType("int"),
    "tinyint, smallint, mediumint, unsigned": ColumnType("mediumint", unsigned=True),
    "tinyint(1)": ColumnType("tinyint", length=1),
    "int unsigned": ColumnType("int", unsigned=True),
    "bigint": ColumnType("bigint"),
    "bigint unsigned": ColumnType("bigint", unsigned=True),
    "year": ColumnType("year"),
    "float": ColumnType("float"),
    "double": ColumnType("double"),
    "decimal(10,2)": ColumnType("decimal", length=10, scale=2),
    "decimal(38,30)": ColumnType("decimal", length=38, scale=30),
    "decimal(39,0) to decimal(65,30)": ColumnType("decimal", length=39, scale=0),
    "date": ColumnType("date"),
    "datetime(0) to datetime(6)": ColumnType("datetime", scale=6),
    "timestamp(0) to timestamp(6)": ColumnType("timestamp", scale=6),
    "time(0) to time(6)": ColumnType("time", scale=6),
    "char, varchar, tinytext, text, mediumtext, longtext": ColumnType("varchar", length=20),
    "binary, varbinary, tinyblob, blob, mediumblob, longblob": ColumnType("varbinary", length=20),
    "enum": ColumnType("enum", elements=("a", "b")),
    "set": ColumnType("set", elements=("a", "b")),
    "bit(1) to bit(63)": ColumnType("bit", length=8),
    "bit(64)": ColumnType("bit", length=64),
    "json": ColumnType("json"),
    "vector": ColumnType("vector"),
}
"""One column type for each row of the type table; the rows together name every type that TiDB has."""

_VARIANTS: Mapping[str, TypeRules] = {
    'tinyint1 = "boolean"': TypeRules(tinyint1="boolean"),
    'zero_dates = "string"': TypeRules(zero_dates="string"),
}


def generated(root: Path = ROOT) -> dict[Path, bytes]:
    """Every generated file with its contents as they must be; `root` has those that are generated in part."""
    documents = {
        "docs/protocols.md": {"capabilities": capability_table(), "losses": losses()},
        "docs/types.md": {"types": type_table()},
        "docs/watching.md": {"metrics": metric_table()},
        "docs/reading.md": {"readers": _table(("name", "version", "format 3", "format 2"), readers.matrix())},
        "README.md": {"readers": _table(("engine, tried in version", "format 3", "format 2"), readers.summary())},
    }
    files = {
        "schemas/config.schema.json": config_schema(),
        "schemas/simple/message.avsc": Path(avro_form.__file__).with_name("message.avsc").read_bytes(),
        "docs/configuration.md": configuration().encode(),
    }
    for name, parts in documents.items():
        files[name] = _filled((root / name).read_text(encoding="utf-8"), parts).encode()
    return {root / name: content for name, content in files.items()}


def stale(root: Path = ROOT) -> list[Path]:
    """Files that are not as they would be generated now."""
    return [path for path, content in generated(root).items() if not path.is_file() or path.read_bytes() != content]


def config_schema() -> bytes:
    """JSON Schema of the configuration file, once it is read from TOML."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
    # A description is as many lines long as its docstring.
    return (json.dumps(schema, indent=2, ensure_ascii=False).replace("\\n", " ") + "\n").encode()


def configuration() -> str:
    """`docs/configuration.md`: every key with its type, default and meaning."""
    schema = Config.model_json_schema()
    return "\n".join([_CONFIGURATION_HEAD, *_sections(schema, schema, "")])


def capability_table() -> str:
    """The protocols with all that they can carry."""
    rows = [
        (
            f"`{name}`",
            _option(has.resolved_ts),
            _option(has.commit_ts),
            _option(has.ddl),
            _option(has.old_values),
            has.schema,
            "exact" if has.exact_decimals else "pass through a double",
        )
        for name, has in CAPABILITIES.items()
    ]
    titles = ("resolved ts", "commit ts of rows", "DDL", "old values", "columns come from", "decimals")
    return _table(("protocol", *titles), rows)


def losses() -> str:
    """What each protocol cannot tell."""
    lines = []
    for name, has in CAPABILITIES.items():
        lines += [f"### `{name}`", "", *(f"- {loss}" for loss in has.losses or ("None.",)), ""]
    return "\n".join(lines[:-1])


def type_table() -> str:
    """TiDB's types, and what becomes of each."""
    rows = [(name, f"`{_iceberg(column, TypeRules())}`", _otherwise(column)) for name, column in TYPES.items()]
    return _table(("TiDB", "Iceberg", "otherwise"), rows)


def metric_table() -> str:
    """The metrics that a running process serves."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        absent = f"; absent {metric.absent}" if metric.absent else ""
        rows.append((f"`{metric.full_name}`", metric.kind, labels, metric.meaning.rstrip(".") + absent))
    return _table(("metric", "kind", "labels", "meaning"), rows)


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with `--check` compare them; returns the exit code."""
    if "--check" not in arguments:
        for path, content in generated().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return 0
    names = [str(path.relative_to(ROOT)) for path in stale()]
    for name in names:
        sys.stderr.write(f"{name} is stale: run `make schemas`.\n")
    return 1 if names else 0


_CONFIGURATION_HEAD = """\
# Configuration

One TOML file.
This page is generated from `applier/config/settings.py` by `make schemas`.
`schemas/config.schema.json` says the same to editors.

`applier init` writes a first one, from a look at your topics; this is a small one:

```toml
[changefeed]
name = "shop"
protocol = "simple"

[source.kafka]
topics = ["shop"]
"kafka.bootstrap.servers" = "broker:9092"

[catalog]
name = "lake"
type = "jdbc"
uri = "jdbc:sqlite:./lake/catalog.db"
warehouse = "./lake/warehouse"
```

Every problem of the file is reported at once (exit 2), each with its line:

```
applier.toml:3: changefeed.protcol: unknown key, did you mean protocol?
applier.toml:8: source.messages_per_step: must be a whole number, without quotes.
```

A number is written without quotes, and a text with them.
`${NAME}` in any text stands for the environment variable of that name; one that is not set is a problem.
`${file:PATH}` in any text stands for what that file holds, without the newlines at its end:
`password = "${file:/run/secrets/registry}"`. A file that cannot be read, is not UTF-8, or is empty is a problem.
Files are read once, when a command starts;
`applier reload` lets a running `run` [read them again](operations.md#change-the-configuration).
Where all of a value is one variable or file, it may hold a number as well: `messages_per_step = "${STEP}"`.
Relative paths begin in the folder of this file, from wherever a command is started.
Only paths in arguments of a command begin in the working directory.
A path within a longer text, such as an option of Java (`-D…`) or a `keyTab`, must be absolute.
If a relative path leads to a SQLite or Hadoop catalog from the working directory, but to none from that folder,
no command makes a second catalog.
It stops and names both places (exit 2): move the file of SQLite, or write the absolute paths.
Commands find the file by `-c FILE`, or by the environment variable `APPLIER_CONFIG`.
"""


def _sections(schema: Mapping[str, Any], model: Mapping[str, Any], path: str) -> Iterator[str]:
    """One chapter for a table of the file and each table inside it."""
    needed = model.get("required", ())
    rows, inner = [], []
    for key, given in model["properties"].items():
        known = _resolved(schema, given)
        if "properties" in known:
            inner.append((f"{path}.{key}".lstrip("."), known, given))
        elif path:
            rows.append((f"`{key}`", _type(known), _default(given, needed=key in needed), _prose(_meaning(given))))
        else:
            inner.append((key, known, given))
    if isinstance(more := model.get("additionalProperties"), Mapping) and "$ref" in more:
        inner.append((f'{path}."shop.orders"', _resolved(schema, more), more))
    if rows:
        if model.get("additionalProperties") is True:
            rows.append(("any other key", "text", "", "passed on as it is"))
        yield _table(("key", "type", "default", "meaning"), rows) + "\n"
    for name, known, given in inner:
        about = [_prose(_meaning(known) or _meaning(given)), *_notes(name)]
        yield f"## [{name}]\n\n" + "\n".join(about) + "\n"
        if "properties" in known:
            yield from _sections(schema, known, name)


_KAFKA = """\
Other keys must begin with `kafka.`, and `kafka.bootstrap.servers` is needed.

A broker with TLS, mutual TLS and a log-in takes these; leave out what yours does not ask for:

```toml
[source.kafka]
topics = ["shop"]
"kafka.bootstrap.servers" = "broker:9093"
"kafka.security.protocol" = "SASL_SSL"             # SSL without a log-in
"kafka.ssl.truststore.type" = "PEM"                # an authority of your own, here as PEM
"kafka.ssl.truststore.location" = "tls/ca.pem"
"kafka.ssl.keystore.type" = "PEM"                  # mutual TLS: key and certificate in one file
"kafka.ssl.keystore.location" = "tls/client.pem"
"kafka.sasl.mechanism" = "SCRAM-SHA-512"           # or PLAIN
"kafka.sasl.jaas.config" = "${KAFKA_LOGIN}"        # see below
```

`KAFKA_LOGIN` is one line:
`org.apache.kafka.common.security.scram.ScramLoginModule required username="USER" password="PASSWORD";`, and for
`PLAIN` the same with `plain.PlainLoginModule`.
A store of the type `PKCS12` or `JKS` also needs `kafka.ssl.truststore.password` or `kafka.ssl.keystore.password`.
An encrypted key in a file of PEM needs `kafka.ssl.key.password`. Kafka's client does not take PBES2, which is what
OpenSSL writes: the refusal has the command that makes a `PKCS12` of it.
The certificate of the broker must name each host of its `advertised.listeners`.

`run`, `check` and `backfill` need one right of Kafka's ACLs: `Read` on each topic, which includes `Describe`.
They need none on the cluster or a consumer group, and never write to Kafka.
`topic_pattern` finds the topics alone that the user may describe; where it finds none, a start is refused."""


def _notes(section: str) -> list[str]:
    """What holds for a section as a whole and stands on no key."""
    match section:
        case "source.kafka":
            return [_KAFKA]
        case "registry":
            return ["Needed for the protocols `avro` and `debezium-avro`."]
        case "ddl":
            # A kind is the name of a class, so an instance without values will do.
            kinds = ", ".join(f"`{kind(action.__new__(action))}`" for action in get_args(Action))
            return ["Policies: `apply`, `ignore`, `stop`; `apply` where nothing is said.", f"Kinds: {kinds}."]
    return []


def _resolved(schema: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property without its reference, and without the null that only says that it may be absent."""
    options = [option for option in given.get("anyOf", [given]) if option.get("type") != "null"]
    found = options[0] if len(options) == 1 else given
    return schema["$defs"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


_WORDS = {"array": "list of texts", "object": "table", "string": "text", "integer": "whole number"}


def _type(known: Mapping[str, Any]) -> str:
    if "enum" in known:
        return ", ".join(f"`{_toml(value)}`" for value in known["enum"])
    return _WORDS.get(known["type"], str(known["type"]))


def _default(given: Mapping[str, Any], *, needed: bool) -> str:
    if needed:
        return "needed"
    value = given.get("default")
    return "" if value in (None, {}, []) else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _meaning(given: Mapping[str, Any]) -> str:
    return " ".join(str(given.get("description", "")).split())


def _option(told: str) -> str:
    """What a capability says: a plain word, or the option of TiCDC that turns it on."""
    return re.sub(r"(\[[a-z.]+\]|(?:open\.)?[a-z]+(?:-[a-z]+)+)", r"`\1`", told)


def _iceberg(column: ColumnType, rules: TypeRules) -> str:
    found = iceberg_type(arrow_type(column, rules))
    return found if isinstance(found, str) else f"list<{found['element']}>"


def _otherwise(column: ColumnType) -> str:
    plain = _iceberg(column, TypeRules())
    other = {name: _iceberg(column, rules) for name, rules in _VARIANTS.items()}
    return "; ".join(f"`{found}` with `{name}`" for name, found in other.items() if found != plain)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _prose(text: str) -> str:
    """Text whose `*`, `<` and `|` are no Markdown; what stands in backticks is left alone."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([*<|_])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """A document with its generated parts between `<!-- name -->` and `<!-- end of name -->` made anew."""
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not pattern.search(text):
            msg = f"a document has no place for its generated part {name!r}"
            raise LookupError(msg)
        text = pattern.sub(lambda match: f"{match[1]}\n{part}\n\n{match[2]}", text)  # noqa: B023 - called before the loop goes on
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
