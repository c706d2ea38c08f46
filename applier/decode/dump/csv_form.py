"""How the CSV files of an export are written. Nothing of it is guessed: options say it, or it is Dumpling's default."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

BinaryForm: TypeAlias = Literal["raw", "hex", "base64"]
"""How values of binary columns are written: as they are, or as Dumpling's `--csv-output-dialect` has them."""

ESCAPES = b"0nr\\"
"""What may follow a backslash that escapes, beside the first byte of the delimiter or, without one, the separator."""

_KEYS = {
    "separator": "separator",
    "delimiter": "delimiter",
    "null_value": "null",
    "header": "has_header",
    "backslash_escapes": "escapes",
}


@dataclass(frozen=True, slots=True)
class CsvForm:
    """Options of Dumpling that say how its CSV files are written; the defaults are Dumpling's.

    Both ends of lines, CR LF and LF, are understood.

    Attributes:
        separator: Stands between two values (`--csv-separator`).
        delimiter: Stands around each text and around nothing else (`--csv-delimiter`); empty for none.
        null: Stands for NULL, never within delimiters (`--csv-null-value`).
        has_header: The first row of each file has the names of the columns (not with `--no-header`).
        escapes: A backslash escapes (`--escape-backslash`); else a delimiter within text is written twice.
        binary: See `BinaryForm`. None where nothing shows it: values that can be read in two ways are refused then.
        zone: IANA zone of TIMESTAMP values.
        follow: What may follow a backslash that escapes, beside the first byte of what `escapes` is about.
        bare: Bytes that stand nowhere without a backslash, where it escapes.
    """

    separator: bytes = b","
    delimiter: bytes = b'"'
    null: bytes = b"\\N"
    has_header: bool = True
    escapes: bool = True
    binary: BinaryForm | None = "raw"
    zone: str = "UTC"
    follow: bytes = ESCAPES
    bare: bytes = b""

    @property
    def escaped(self) -> list[bytes]:
        """What may follow a backslash that escapes; itself first."""
        own = b"\\" + self.follow + (self.delimiter or self.separator)[:1]
        return [bytes([byte]) for byte in dict.fromkeys(own)]

    @property
    def tells_null(self) -> bool:
        """Whether no text is written as NULL is."""
        return bool(self.delimiter) or (self.escapes and self.null.startswith(b"\\"))

    def shown(self, other: CsvForm | None = None) -> str:
        """Its keys of `[upstream.csv]`, as the configuration writes them; only those that differ from another form."""
        keys = []
        for key, own in _KEYS.items():
            value = getattr(self, own)
            if other is None or getattr(other, own) != value:
                keys.append(f"{key} = {json.dumps(value.decode() if isinstance(value, bytes) else value)}")
        return ", ".join(keys)

    def problem(self) -> str | None:
        """Why files of this form can be read in two ways, as a clause; None where they cannot."""
        separator, delimiter, null = (part.decode() for part in (self.separator, self.delimiter, self.null))
        if not separator or not set(separator) - set(".+-"):
            return "separator is empty, or may be a part of a number"
        if found := next((part for part in separator + delimiter if _is_content(part)), None):
            return f"separator or delimiter holds {found!r}, which values hold without any escape"
        if set(separator) & set(delimiter):
            return "separator and delimiter share a character"
        if separator in null or (delimiter and delimiter in null) or {"\r", "\n"} & set(null) or _is_number(null):
            return "null_value holds the separator, the delimiter or an end of a line, or is a number"
        if self.escapes and ("\\" in null[1:] or (null[:1] == "\\" and self.null[1:2] in (b"", *self.escaped))):
            return "null_value holds a backslash that may escape"
        if not delimiter and not self.escapes:
            return "without delimiter and backslash_escapes nothing shows where a text ends"
        borders = any(delimiter[:size] == delimiter[-size:] for size in range(1, len(delimiter)))
        if borders and not self.escapes:
            return "delimiter ends as it begins, and nothing escapes a part of it within text"
        return None


def _is_content(part: str) -> bool:
    return (part.isascii() and part.isalnum()) or part in "\\\r\n\0"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_LOOKS = (
    re.compile(rb"([0-9a-fA-F]{2})*"),
    re.compile(rb"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
)


def look_encoded(values: Collection[bytes]) -> bool:
    """Whether bytes look like hex or base64, all of them; False without any."""
    return bool(values) and all(any(look.fullmatch(value) for look in _LOOKS) for value in values)
