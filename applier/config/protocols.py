"""What each protocol of TiCDC carries; nothing outside `decode` asks for one by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

ProtocolName: TypeAlias = Literal["simple", "open", "canal-json", "avro", "debezium", "debezium-avro", "csv"]
"""TiCDC's names of the protocols, as `changefeed.protocol` of the configuration has them."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a protocol carries; printed in `docs/protocols.md` and reported by `applier check`.

    Attributes:
        resolved_ts: `always`, or the TiCDC option that turns it on.
        commit_ts: Likewise, for the commit ts of rows.
        ddl: Likewise, for DDL messages.
        old_values: Likewise, for the images before an update or delete.
        schema: Where columns come from: `messages` of their own, the `registry`, or the `rows` themselves.
        exact_decimals: False where decimals pass through a double on the wire.
        losses: What else of a row does not arrive, or not as it was; each one sentence.
    """

    resolved_ts: str = "always"
    commit_ts: str = "always"
    ddl: str = "always"
    old_values: str = "always"
    schema: Literal["messages", "registry", "rows"] = "rows"
    exact_decimals: bool = True
    losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtocolTraits:
    """How a protocol differs from the others, as far as that concerns more than its decoder.

    Attributes:
        carries: What it carries.
        utc_defaults: TIMESTAMP defaults come in UTC; else as the statement writes them, in the zone of its session.
        keys_in_rows: Rows name the columns of their key.
        registered: What schemas in the registry are of: `rows`, or `envelopes` that hold the images of a row.
        only_in_files: Only TiCDC's storage sink writes it, never a topic.
    """

    carries: Capabilities
    utc_defaults: bool = False
    keys_in_rows: bool = True
    registered: Literal["", "rows", "envelopes"] = ""
    only_in_files: bool = False


_SIMPLE = Capabilities(
    schema="messages",
    losses=(
        (
            "TiCDC v7.5.2 to v7.5.7 does not name the zone of TIMESTAMP (its location is Local), "
            "which changefeed.timezone must name."
        ),
    ),
)
_OPEN = Capabilities(
    old_values="open.output-old-value",
    losses=(
        "Rows do not name the members of enums and sets: they come from the CREATE TABLE.",
        "Rows do not show the precision of decimals: it comes from the CREATE TABLE.",
        "TIMESTAMP is in the zone of the TiCDC server, which changefeed.timezone must name.",
        "With output-old-value off, an UPDATE of a table without any key looks like an INSERT.",
    ),
)
_CANAL_JSON = Capabilities(
    resolved_ts="enable-tidb-extension",
    commit_ts="enable-tidb-extension",
    losses=(
        "Without content-compatible, rows do not name the members of enums and sets: they come from the CREATE TABLE.",
        "Without content-compatible, rows do not show the precision of decimals: it comes from the CREATE TABLE.",
        "Rows of a table without a primary key do not name its unique key: it comes from the CREATE TABLE.",
        "TIMESTAMP is in the zone of the TiCDC server, which changefeed.timezone must name.",
        "Bytes that are not UTF-8 in a text column arrive as U+FFFD.",
    ),
)
_AVRO = Capabilities(
    resolved_ts="enable-tidb-extension and avro-enable-watermark",
    commit_ts="enable-tidb-extension; of deletes also avro-enable-watermark, from TiCDC v8.5.7 and v26.3.4 on",
    ddl="enable-tidb-extension and avro-enable-watermark",
    old_values="avro-include-before-value",
    schema="registry",
    losses=(
        "Characters of names beyond letters, digits and _ become _, unless a DDL message shows the name.",
        "Virtual generated columns are present and NULL, unless a DDL message shows that they are virtual.",
        "A table whose only key is a NOT NULL unique index has no Kafka key; it needs avro-include-before-value.",
        "Integers up to INT, and the lengths of strings, are not distinguished.",
    ),
)
_DEBEZIUM = Capabilities(
    resolved_ts="enable-tidb-extension, since TiCDC v8.5.4 (new architecture) and v9.0",
    ddl="always, since TiCDC v8.5.4 (new architecture) and v9.0",
    old_values="output-old-value of [sink.debezium], on by default",
    exact_decimals=False,
    losses=(
        "Decimals pass through a double: beyond 15 digits they are not exact.",
        "NULL in a column with a DEFAULT arrives as the default (since TiCDC v8.5.1).",
        "Zero and partial dates arrive as NULL, in a TIMESTAMP or a NOT NULL column as 1970-01-01.",
        "Years below 100 arrive moved to 1970 to 2069 (since TiCDC v8.5.1).",
        "FLOAT(M,D) arrives as DOUBLE without `enable-tidb-extension`.",
        (
            "Unsigned numbers and binary strings come from the CREATE TABLE, unless rows mark them: "
            "enable-tidb-extension, since TiCDC v8.5.4 (new architecture) and v9.0."
        ),
        "Rows do not show the fractional digits of TIME: they come from the CREATE TABLE.",
        "With debezium-disable-schema, rows wait for the DDL message that describes their table.",
        "TiCDC v8.0 to v8.4 writes no Kafka key: tables.keys must name the key columns of each table.",
    ),
)
_DEBEZIUM_AVRO = Capabilities(
    resolved_ts="enable-tidb-extension and avro-enable-watermark",
    ddl="enable-tidb-extension and avro-enable-watermark",
    old_values="output-old-value of [sink.debezium], on by default",
    schema="registry",
    losses=(
        "NULL in a column with a DEFAULT arrives as the default.",
        "Zero and partial dates arrive as NULL, in a TIMESTAMP or a NOT NULL column as 1970-01-01.",
        "Years below 100 arrive moved to 1970 to 2069.",
        "NOT NULL is shown for key columns alone.",
        "Rows do not show the fractional digits of TIME: they come from the CREATE TABLE.",
        "TiCDC refuses tables with a virtual generated column, and tables without a key.",
    ),
)

_CSV = Capabilities(
    commit_ts="include-commit-ts of [sink.csv]",
    old_values="output-old-value of [sink.csv]",
    losses=(
        "Only the storage sink writes it: [source.storage].",
        "Rows of a table without a primary key do not name its unique key: it comes from the CREATE TABLE.",
        "TIMESTAMP is in the zone of the TiCDC server, which changefeed.timezone must name.",
        "Rows of a table with a virtual generated column are refused: they do not show which column they lack.",
        "Updates of a table without a primary key are refused without output-old-value.",
        (
            "TiCDC's new architecture writes decimals, dates, times, bits and JSON without quotes: such files are "
            "refused, and so is output-field-header."
        ),
    ),
)

PROTOCOLS: Mapping[str, ProtocolTraits] = {
    "simple": ProtocolTraits(_SIMPLE, utc_defaults=True),
    "open": ProtocolTraits(_OPEN),
    "canal-json": ProtocolTraits(_CANAL_JSON),
    "avro": ProtocolTraits(_AVRO, registered="rows"),
    "debezium": ProtocolTraits(_DEBEZIUM, keys_in_rows=False),
    "debezium-avro": ProtocolTraits(_DEBEZIUM_AVRO, registered="envelopes"),
    "csv": ProtocolTraits(_CSV, only_in_files=True),
}

IN_TOPICS = tuple(name for name, traits in PROTOCOLS.items() if not traits.only_in_files)
"""The protocols that topics can hold."""
