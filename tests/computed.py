"""SQL text of a type and a value in, what the applier computes for it out, beside what TiDB shows of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from applier.changefeed.table import Column, ColumnType
from applier.changefeed.types import TypeRules, arrow_type
from applier.ddl.actions import AddColumn
from applier.ddl.parser import parse
from applier.errors import SchemaChangeRefused
from applier.sink.evolve.casts.cast import CastRefused, cast, refusal
from applier.sink.evolve.defaults import DefaultUnknown, existing_value
from applier.sink.evolve.steps import ConvertField

ANSWERS = Path(__file__).parent / "unit" / "sink" / "evolve" / "tidb_answers.json"
"""What a TiDB stored: defaults (type, literal, text that it keeps, value) and casts (types, values, whether it did)."""


class Refused(str):
    """Why nothing is computed."""

    __slots__ = ()


def written(kind: str, default: str = "NULL") -> Column:
    """The column that ADD COLUMN writes.

    Raises:
        SchemaChangeRefused: The statement is not understood.
    """
    (action,) = parse(f"ALTER TABLE t ADD COLUMN c {kind} DEFAULT {default}", "d")
    assert isinstance(action, AddColumn)
    return action.column


def default_of(kind: str, default: str, zone: str = "UTC") -> Any:
    """What rows from before hold after ADD COLUMN in a session of a zone, or why that is not known."""
    try:
        return existing(written(kind, default), zone)
    except SchemaChangeRefused as error:
        return Refused(error)


def kept_default_of(kind: str, kept: str) -> Any:
    """The same where a message shows the text that TiDB keeps, as in Simple."""
    return existing(replace(written(kind), default=kept), "UTC")


def existing(column: Column, zone: str) -> Any:
    """The value of a new column in rows that were there before."""
    rules = TypeRules(session_zone=zone)
    try:
        return existing_value(column, arrow_type(column.type, rules), rules, "d.t.c").as_py()
    except DefaultUnknown as error:
        return Refused(error)


def reason(old: str, new: str) -> str | None:
    """Why no value of a type is cast to another."""
    return refusal(_step(old, new))


def cast_of(old: str, new: str, value: str) -> Any:
    """What MODIFY COLUMN makes of a value as TiDB shows it, or why that is not known."""
    step = _step(old, new)
    try:
        return cast(pa.array([value_of(value, step.old)], step.old_arrow), step)[0].as_py()
    except CastRefused as error:
        return Refused(error)


def _step(old: str, new: str) -> ConvertField:
    before, after = written(old).type, written(new).type
    return ConvertField("c", before, after, arrow_type(before), arrow_type(after))


def shown_as(kind: str, text: str) -> Any:
    """What a row holds whose column TiDB shows as a text (`tests.integration.tidb.stored.shown`)."""
    return value_of(text, written(kind).type)


def value_of(text: str, kind: ColumnType) -> Any:
    """The same for a parsed type; NULL for dates that no calendar has."""
    arrow = arrow_type(kind)
    if pa.types.is_binary(arrow):
        return bytes.fromhex(text)
    if pa.types.is_floating(arrow):
        return float(np.float32(text)) if pa.types.is_float32(arrow) else float(text)
    if pa.types.is_integer(arrow):
        return int(text)
    if pa.types.is_decimal(arrow):
        return Decimal(text)
    if not pa.types.is_temporal(arrow):
        return text
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC if kind.name == "timestamp" else None)
    except ValueError:
        return None
    return moment.date() if pa.types.is_date(arrow) else moment
