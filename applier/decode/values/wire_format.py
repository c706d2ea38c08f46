"""How a protocol writes values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class WireForm:
    """How a protocol writes the values whose text alone does not show; read by `decode/values.py`.

    Attributes:
        binary: Strings in columns of binary and blob types hold `base64`, `latin1` (one character a byte), are
            `escaped` as Go writes them, or come as `bytes` objects alone.
        members: Enum and set values are the `index` (enum: 1-based, set: bit mask) or the `label`.
        zone: IANA name of the zone of TIMESTAMP text that carries none itself.
    """

    binary: Literal["base64", "latin1", "escaped", "bytes"]
    members: Literal["index", "label"]
    zone: str = "UTC"
