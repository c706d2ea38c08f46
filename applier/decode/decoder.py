"""The contract of a decoder, and what each protocol carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from applier.changefeed.event import Event
from applier.changefeed.table import TableName, TableVersion
from applier.errors import DecodeError, SchemaUnknown

if TYPE_CHECKING:
    from applier.decode.avro.namesakes import Shown
    from applier.decode.columnar.groups import Bulk
    from applier.decode.large_messages import LargeMessages


@dataclass(frozen=True, slots=True)
class WireForm:
    """How a protocol writes values whose text alone does not show it; read by `decode/values/convert.py`.

    Attributes:
        binary: Strings in columns of binary and blob types hold `base64`, `latin1` (one character a byte), are
            `escaped` as Go writes them, or come as `bytes` objects alone.
        members: Enum and set values are the `index` (enum: 1-based, set: bit mask) or the `label`.
        zone: IANA name of the zone of TIMESTAMP text that carries none itself; "" where nothing shows it.
        moved_years: The years 0 to 99 of dates come as 1970 to 2069, and zero dates as 1970-01-01.
        double_decimals: Decimals pass through a double.
    """

    binary: Literal["base64", "latin1", "escaped", "bytes"]
    members: Literal["index", "label"]
    zone: str = "UTC"
    moved_years: bool = False
    double_decimals: bool = False


@runtime_checkable
class NamedByDdl(Protocol):
    """A decoder of a protocol whose rows do not hold the names of tables and columns as they are upstream."""

    def owners(self, topic: str, value: bytes | None) -> frozenset[TableName]:
        """Tables whose rows the topic can hold by its registry; none if nothing shows them. Raises TransientError."""

    def describe(
        self,
        shown: Shown,
        typed: Mapping[TableName, Sequence[TableVersion | None]],
        cuts: Mapping[TableName, Sequence[int]],
    ) -> None:
        """Take, for one pass, what DDL show: who the tables are, and the columns of each in every segment."""

    def at(self, topic: str) -> None:
        """Say which topic the next messages are of."""


@runtime_checkable
class ClaimReader(Protocol):
    """A decoder of a protocol whose messages may stand for larger ones that lie in a claim-check storage."""

    large: LargeMessages


def owners(decoder: Decoder, topic: str, value: bytes | None, error: DecodeError) -> frozenset[TableName]:
    """Tables that a refused message may concern; none where nothing shows them.

    A schema that the registry does not know yet may be the first of another table.

    Raises:
        TransientError: The registry could not be reached.
    """
    if isinstance(error, SchemaUnknown) or not isinstance(decoder, NamedByDdl):
        return frozenset()
    return decoder.owners(topic, value)


class Decoder(Protocol):
    """Turns messages of one protocol into events.

    One instance belongs to one thread. The result must not depend on which messages it saw before,
    save that `Bootstrap` events of self-describing protocols come once per version between two calls of `restart`.
    """

    wire: WireForm

    @property
    def bulk(self) -> Bulk | None:
        """Reads rows many at a time, once the decoder has met their like; None where the protocol has no quick way."""

    def restart(self) -> None:
        """Begin a pass: no version is known or announced. What a schema or a shape of bytes means stays known."""

    def learn(self, version: TableVersion) -> None:
        """Make a table version known, so that no `Bootstrap` for it is needed. May be called again with the same."""

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Decode one message; () for one that says nothing, such as a tombstone after a delete.

        Raises:
            DecodeError: The message is not of this protocol, is broken, or does not hold the row, whose table and
                commit ts it has as soon as they were read. Nothing else is raised, whatever the bytes are.
            TransientError: A claim-check file or a registry could not be reached.
        """
