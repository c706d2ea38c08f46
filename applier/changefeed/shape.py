"""What a user wants the rows of an Iceberg table to be where that is not what upstream has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from applier.changefeed.mask import Mask

SHAPE = "applier-shape"
"""Table property: the shape that the rows of a table have, as `Shape.record`. It outlives the changefeed, whose own
properties begin with `applier.`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the rows of one table; the default leaves them as they are upstream.

    Names of columns are those of upstream, as the configuration writes them; TiDB takes them for one in any letters.

    Attributes:
        pattern: The pattern under [tables] that it stands in, for messages.
        casts: Types that columns are cast to, as Iceberg names them, by names in small letters. The columns of a table
            show them.
        types: The same of all columns of a TiDB type, which may end in ` unsigned`.
        tinyint1: As in `TypeRules`; None for what counts for all tables.
        zero_dates: The same.
        masks: How columns are masked, by names in small letters.
        mask_key: What shows that the key of `hash` is another one; "" without such a mask.
        secret: That key.
    """

    pattern: str = field(default="", compare=False)
    casts: Mapping[str, str] = field(default_factory=dict, compare=False)
    types: Mapping[str, str] = field(default_factory=dict, compare=False)
    tinyint1: Literal["int", "boolean"] | None = field(default=None, compare=False)
    zero_dates: Literal["null", "stop", "string"] | None = field(default=None, compare=False)
    masks: Mapping[str, Mask] = field(default_factory=dict)
    mask_key: str = ""
    secret: bytes = field(default=b"", compare=False, repr=False)

    @property
    def hides(self) -> bool:
        """Whether values of upstream must not be found here."""
        return bool(self.masks)

    @property
    def record(self) -> str:
        """What a table keeps of the shape of its rows: "" for that of upstream. No secret is in it."""
        plain = Shape()
        own = [each.name for each in fields(self) if each.compare]
        kept = {name: getattr(self, name) for name in own if getattr(self, name) != getattr(plain, name)}
        return json.dumps(kept, sort_keys=True, default=_plain) if kept else ""


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else sorted(value) if isinstance(value, frozenset) else str(value)
