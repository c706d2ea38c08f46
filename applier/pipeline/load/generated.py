"""Computes stored generated columns, which Dumpling leaves out, where their exact values are certain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from applier.changefeed.table import TableVersion
from applier.changefeed.types import ColumnPath, TypeRules, is_reshaped
from applier.decode.dump.file_columns import missing
from applier.decode.dump.typed_rows import WIRE
from applier.decode.values.convert import to_array
from applier.sink.format.types import repeated
from applier.sink.tidb_partitions.expression import Call, Inexact, Name, Node, columns_of, parse

pc: Any = pyarrow.compute

_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXTS = frozenset({"varchar", "tinytext", "text", "mediumtext", "longtext"})
"""Not CHAR: it loses spaces at its end."""

_STORED = re.compile(r"^\s*`(?P<name>(?:[^`]|``)+)` .* GENERATED ALWAYS AS \((?P<text>.*)\) STORED\b", re.MULTILINE)
"""A column as SHOW CREATE TABLE writes it: on a line of its own."""


def expressions(text: str) -> dict[str, str]:
    """The expressions of the stored generated columns of a SHOW CREATE TABLE text, by column."""
    return {match["name"].replace("``", "`"): match["text"] for match in _STORED.finditer(text)}


@dataclass(frozen=True, slots=True)
class Generated:
    """The stored generated columns of a table, which a file may lack; `text` is its CREATE TABLE."""

    version: TableVersion
    rules: TypeRules
    text: str

    def added(self, rows: pa.Table) -> pa.Table:
        """Rows with those of the columns that they lack.

        Raises:
            Inexact: The exact values of one are not certain.
            ValueRefused: A value does not fit its column.
        """
        for name in missing(self.version, rows.column_names, self.rules):
            column = self.version.column(name)
            assert column is not None  # noqa: S101 - it is one of the table
            values = _texts(self.expression(name), rows).combine_chunks()
            array, _ = to_array(values, column, WIRE, self.rules, ColumnPath(self.version.name, name))
            rows = rows.append_column(name, array)
        return rows

    def expression(self, name: str) -> Node:
        """The expression of a column.

        Raises:
            Inexact: Its exact values are not certain, as of a function or a type that is not known so well.
        """
        text = expressions(self.text).get(name, "")
        if not text or "\\" in text:
            raise Inexact(f"the expression of column {name} has a form that is not known")
        node = parse(text)
        for own in (name, *columns_of(node)):
            column = self.version.column(own)
            if column is None or (own != name and column.generated) or column.type.name not in _NUMBERS | _TEXTS:
                raise Inexact(f"column {name} is made of column {own}, which is neither a whole number nor text")
            if own != name and not self.rules.takes(self.version.name, column):
                raise Inexact(f"column {name} is made of column {own}, which is excluded")
            if own != name and is_reshaped(self.version.name, column, self.rules):
                raise Inexact(f"column {name} is made of column {own}, which is cast or masked")
        return node


def _texts(node: Node, rows: pa.Table) -> Any:
    """Values of an expression, as TiDB prints them."""
    match node:
        case Name(name):
            return rows[name].cast(pa.string())
        case Call("CONCAT", arguments):
            parts = (_texts(argument, rows) for argument in arguments)
            return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
        case Call(function):
            raise Inexact(f"the exact values of the function {function} are not known")
    return repeated(pa.scalar(str(node), pa.string()), rows.num_rows)
