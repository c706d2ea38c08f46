"""The type of keys that name a time zone."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator

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
