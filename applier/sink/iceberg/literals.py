"""Makes types and values of Iceberg's Java library from those of Arrow."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from applier.sink.format.partition_spec import single_value
from applier.sink.format.types import schema_json

if TYPE_CHECKING:
    from applier.sink.iceberg.java import Java


def type_of(java: Java, kind: pa.DataType) -> Any:
    """Iceberg's type of an Arrow type."""
    return java.iceberg.SchemaParser.fromJson(schema_json(pa.schema([pa.field("c", kind)]))).findType("c")


def literal_of(java: Java, default: pa.Scalar[Any]) -> Any:
    """Iceberg's literal of a value that is not NULL."""
    value = default.as_py()
    if isinstance(value, bytes):
        value = java.jvm.java.nio.ByteBuffer.wrap(value)
    elif isinstance(value, Decimal):
        value = java.jvm.java.math.BigDecimal(f"{value:f}")
    elif isinstance(value, int) and not isinstance(value, bool):
        value = java.jvm.java.lang.Long.valueOf(value)
    elif not isinstance(value, str | bool | float):
        value = single_value(value, default.type)
    return java.iceberg.expressions.Expressions.lit(value)
