"""How TiDB partitions a table, as its DDL says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a partitioned table.

    Attributes:
        name: Partition name; "" where TiDB chooses it (ADD PARTITION PARTITIONS n).
        bound: RANGE: texts of `VALUES LESS THAN`, `MAXVALUE` kept as word. LIST: () here.
        values: LIST: the rows of `VALUES IN`, each a tuple of texts, None for NULL, `DEFAULT` kept as word.

    Texts are SQL: numbers and expressions as they stand, strings in single quotes with quote and backslash doubled.
    """

    name: str
    bound: tuple[str, ...] = ()
    values: tuple[tuple[str | None, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is partitioned.

    Attributes:
        method: `range`, `range columns`, `list`, `list columns`, `hash`, `key`.
        expression: The partitioning expression or column list, as SQL without the parentheses.
        partitions: In order; for hash and key their names alone, since the place of a partition is its remainder.
    """

    method: str
    expression: str
    partitions: tuple[Partition, ...] = ()
