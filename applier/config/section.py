"""What all sections of the configuration have in common: which keys they take, and which key a misspelt one means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias, get_origin
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict

_MACHINE = frozenset(("local", "localtime", "system"))
"""Names that stand for the setting of a machine, which may be another than TiCDC's."""


def _zone(name: str) -> str:
    try:
        if name.lower() not in _MACHINE:
            ZoneInfo(name)
            return name
    except (ValueError, OSError, LookupError):
        pass
    known = {zone.lower(): zone for zone in available_timezones()}
    cities = {zone.rpartition("/")[2].lower(): zone for zone in known.values()}
    near = known.get(name.lower()) or cities.get(name.lower().replace(" ", "_"))
    hint = f"did you mean {near}?" if near else "write one as Asia/Shanghai or UTC"
    msg = f"{name} is no IANA time zone, {hint}"
    raise ValueError(msg)


Zone: TypeAlias = Annotated[str, AfterValidator(_zone)]
"""An IANA name of a time zone, such as `Asia/Shanghai`."""


class Section(BaseModel):
    """A table of the file; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def unknown(cls, key: str, value: Any) -> tuple[str | None, str] | None:
        """The key that one which the section does not know probably means, and what a sentence about it says where
        nothing is near; None for a key that it knows, or passes on.
        """
        if key in cls.model_fields:
            return None
        # A key whose value would not fit is not meant: it would only be refused in its turn.
        fitting = [name for name in cls.model_fields if cls._takes_table(name) == isinstance(value, dict)]
        return nearest(key, fitting), f"known keys are {', '.join(cls.model_fields)}"

    @classmethod
    def _takes_table(cls, key: str) -> bool:
        return cls.section_of(key) is not None or get_origin(cls.model_fields[key].annotation) is dict

    @classmethod
    def section_of(cls, key: str) -> type[Section] | None:
        """The section that a key holds; None for a plain value."""
        field = cls.model_fields.get(key)
        options = getattr(field.annotation, "__args__", (field.annotation,)) if field else ()
        return next((each for each in options if isinstance(each, type) and issubclass(each, Section)), None)


class WrongKeysError(ValueError):
    """Values that do not fit; one sentence without a full stop for each key, whose name is relative to the section."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = problems


def refuse(problems: Mapping[str, str]) -> None:
    """Raise WrongKeysError if there are problems: a sentence for each key."""
    if problems:
        raise WrongKeysError(problems)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is most like; None where it is like none."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return close[0] if close else None
