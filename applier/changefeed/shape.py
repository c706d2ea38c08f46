"""What a user wants the rows of an Iceberg table to be where that is not what upstream has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

SHAPE = "applier-shape"
"""Table property: the shape that the rows of a table have, as `Shape.record`. It outlives the changefeed, whose own
properties begin with `applier.`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the rows of one table; the default leaves them as they are upstream.

    Names of columns are those of upstream, as the configuration writes them; TiDB takes them for one in any letters.

    Attributes:
        pattern: The pattern under [tables] that it stands in, for messages.
        history: A table of changes is kept beside it.
    """

    pattern: str = field(default="", compare=False)
    history: bool = field(default=False, compare=False)

    @property
    def record(self) -> str:
        """What a table keeps of the shape of its rows: "" for that of upstream. No secret is in it."""
        plain = Shape()
        own = [each.name for each in fields(self) if each.compare]
        kept = {name: getattr(self, name) for name in own if getattr(self, name) != getattr(plain, name)}
        return json.dumps(kept, sort_keys=True, default=_plain) if kept else ""


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else sorted(value) if isinstance(value, frozenset) else str(value)
