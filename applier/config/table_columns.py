"""What the columns of the tables of a pattern become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pydantic import Field, model_validator

from applier.changefeed.cast import CAST_TYPES, UNSIGNED, check_pair, target
from applier.changefeed.mask import Mask
from applier.changefeed.table import fold
from applier.config.section import Section, nearest, refuse


class ColumnsSection(Section):
    """What columns of these tables become."""

    exclude: tuple[str, ...] = ()
    """Columns that the tables do not get: their values are read from the feed and forgotten (docs/shapes.md). Existing
    tables lose them at the next start."""
    cast: dict[str, str] = Field(default={})
    """Types of single columns, as Iceberg names them, e.g. `{ price = "string", state = "int" }`; docs/shapes.md says
    which each type of TiDB can be cast to. It counts before `types`. A column that only one of the tables has is cast
    there."""

    mask: dict[str, Mask] = Field(default={})
    """How the values of columns are hidden, e.g. `{ email = "hash", card = "last4", note = "redact" }`: `hash` is the
    HMAC-SHA-256 of the value with `tables.mask_key`, in hex; `last4` leaves the last four characters; `redact` leaves
    `***`. The columns are text, NULL stays NULL. A column of the key takes `hash` alone (docs/shapes.md)."""

    rename: dict[str, str] = Field(default={})
    """Names of columns in Iceberg, by those of upstream, e.g. `{ v = "value" }`; all other keys name columns as
    upstream does (docs/shapes.md). Existing tables get them at the next start, by a change of their metadata."""

    @model_validator(mode="after")
    def _check(self) -> ColumnsSection:
        problems = {"exclude": "has an empty name of a column"} if "" in self.exclude else {}
        gone = set(map(fold, self.exclude))
        for key, named in (("cast", self.cast), ("mask", self.mask), ("rename", self.rename)):
            problems |= {
                f"{key}.{each}": "is excluded as well: leave one of them" for each in named if fold(each) in gone
            }
        names = Counter(map(fold, self.cast))
        for column, text in self.cast.items():
            try:
                target(text)
            except ValueError as error:
                problems[f"cast.{column}"] = str(error)
            if names[fold(column)] > 1:
                problems[f"cast.{column}"] = "TiDB takes it for one column with another key: leave one of them"
        masks = Counter(map(fold, self.mask))
        for column in self.mask:
            if fold(column) in names:
                problems[f"mask.{column}"] = "is cast as well, and a masked column is text: leave one of them"
            elif masks[fold(column)] > 1:
                problems[f"mask.{column}"] = "TiDB takes it for one column with another key: leave one of them"
        refuse(problems | self._unfit_names())
        return self

    def _unfit_names(self) -> dict[str, str]:
        """What is wrong with names in Iceberg. They never are those of other columns upstream, swaps included: a name
        shows which column it is.
        """
        known, names = Counter(map(fold, self.rename)), Counter(map(fold, self.rename.values()))
        problems = {}
        for column, name in self.rename.items():
            if not name or not column:
                problems[f"rename.{column}"] = "has an empty name of a column"
            elif known[fold(column)] > 1:
                problems[f"rename.{column}"] = "TiDB takes it for one column with another key: leave one of them"
            elif names[fold(name)] > 1:
                problems[f"rename.{column}"] = f"is {name}, and so is another one: two columns cannot have one name"
            elif fold(name) in known and fold(name) != fold(column):
                problems[f"rename.{column}"] = f"is {name}, which is a column upstream: choose a name that none has"
        return problems

    @property
    def renames(self) -> Mapping[str, str]:
        """`rename` by names in small letters."""
        return {fold(column): name for column, name in self.rename.items()}

    @property
    def masks(self) -> Mapping[str, Mask]:
        """`mask` by names in small letters."""
        return {fold(column): mask for column, mask in self.mask.items()}

    @property
    def casts(self) -> Mapping[str, str]:
        """`cast` by names in small letters."""
        return {fold(column): text for column, text in self.cast.items()}


def misfits(types: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with casts of all columns of some TiDB types, by type."""
    found = {}
    for name, text in types.items():
        bare = name.removesuffix(" unsigned")
        if bare not in CAST_TYPES or (bare != name and bare not in UNSIGNED):
            near = nearest(name, CAST_TYPES)
            hint = f"did you mean {near}?" if near else f"types that can be cast are {', '.join(CAST_TYPES)}"
            found[name] = f"is no type of TiDB that can be cast, {hint}"
            continue
        try:
            check_pair(bare, text)
        except ValueError as error:
            found[name] = str(error)
    return found
