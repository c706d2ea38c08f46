"""Messages that do not hold their row as it is: compressed ones, those of the handle key alone, claim checks.

TiCDC compresses every message of a changefeed, watermarks too, and no message says how: lz4 is LZ4's frame format,
known by its magic number; snappy is the raw block format, known by nothing but its fit.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import cramjam
import fsspec
import lz4.frame
import msgspec

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.changefeed.table import TableName
from applier.decode.options import DecoderOptions
from applier.errors import ClaimCheckUnset, DecodeError, IncompleteRow, TransientError, reason_of

LIMIT_HINT = "Raise source.max_message_bytes, if the memory is there."

_Message = TypeVar("_Message")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_SNAPPY_RATIO = 64
"""More than snappy's format can reach; keeps a forged length from allocating memory."""
_HINT = "Check changefeed.compression and changefeed.protocol."
_WHOLE_ROWS = (
    "Set large-message-handle-option to claim-check in the changefeed and changefeed.claim_check here, "
    "or raise max-message-bytes, so that messages hold whole rows. "
    "Or name the TiDB in upstream.url, from which such rows are read."
)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
"""By the scheme of an address: what pyproject.toml calls the packages that read it."""

_WRAPPER_BYTES = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WRAPPED = re.compile(rb'\s*\{\s*"(?:key|value)"\s*:')


class ClaimedMessage(NamedTuple):
    """The large message: still compressed, if the changefeed compresses. No key where the file holds a bare value."""

    key: bytes | None
    value: bytes


class _Wrapper(msgspec.Struct):
    value: str
    key: str | None = None


class RowMark(NamedTuple):
    """What a message of a row and the large message that it stands for have in common.

    `kind` is the protocol's name for the kind of change, `location` the file of the large message; None where the
    message holds the row. `row` is the image that names the row, `old` that before an UPDATE: in a message that stands
    for another one they hold the handle key alone, written as the other one writes it.
    """

    database: str | None
    table: str | None
    kind: str | int
    commit_ts: int | None
    location: str | None
    row: Mapping[str, Any] | None = None
    old: Mapping[str, Any] | None = None

    @property
    def title(self) -> str:
        """The table, for errors."""
        return f"{self.database}.{self.table}"

    @property
    def name(self) -> TableName:
        """The table; its parts are empty where the message does not name it."""
        return TableName(self.database or "", self.table or "")

    def stands_for(self, large: RowMark) -> bool:
        """Whether a large message holds the very row of this one."""
        found, old = large.row or {}, large.old or {}
        return (
            large._replace(row=None, old=None) == self._replace(location=None, row=None, old=None)
            and all(name in found and found[name] == value for name, value in (self.row or {}).items())
            # An old image may lack columns that did not change.
            and all(old.get(name, value) == value for name, value in (self.old or {}).items())
        )


class LargeMessages:
    """Undoes what a changefeed does to messages.

    `is_plain` is true for bytes that begin as an uncompressed message of the protocol does. They are never
    decompressed, so that a changefeed may turn compression on half-way.

    Attributes:
        wants: Whether the row of a table and a commit ts, 0 for none, is worth a file of the claim-check storage.
    """

    def __init__(self, options: DecoderOptions, is_plain: Callable[[bytes], bool]) -> None:
        self._compression = options.compression
        self._max_bytes = options.max_bytes
        self._is_plain = is_plain
        self._asks_upstream = options.asks_upstream
        self._storage = None if options.claim_check is None else ClaimCheck(options.claim_check, options.max_bytes)
        self.wants: Callable[[TableName, int], bool] = lambda _name, _commit_ts: True

    def decompress(self, value: bytes) -> bytes:
        """Undo the compression of a message.

        Raises:
            DecodeError: The bytes are neither plain nor compressed as configured, or too many once decompressed.
        """
        if self._is_plain(value):
            return value
        if self._compression == "none":
            what = "The message does not begin as one of the protocol does, and changefeed.compression is none."
            raise DecodeError(what, _HINT)
        if self._compression == "lz4" or (self._compression is None and value.startswith(_LZ4_MAGIC)):
            return _lz4(value, self._max_bytes)
        return _snappy(value, self._max_bytes)

    def admit_reduced(self, mark: RowMark) -> None:
        """Let a row pass that holds its handle key alone.

        Raises:
            IncompleteRow: No TiDB is asked for its values, or the message does not show as of when.
        """
        if not self._asks_upstream or not mark.commit_ts:
            raise handle_key_only(mark.title)

    def claimed(
        self, mark: RowMark, location: str, read: Callable[[ClaimedMessage], tuple[RowMark | None, _Message]]
    ) -> _Message:
        """The large message in place of the one that stands for it and names its file.

        `read` gives the large message and what that says of its row; None where it cannot hold one row.

        Raises:
            DecodeError: There is no such message in the claim-check storage, or no storage.
            IncompleteRow: The row is not wanted.
            TransientError: The storage cannot be reached.
        """
        if not self.wants(mark.name, mark.commit_ts or 0):
            raise IncompleteRow(f"A row of {mark.title} lies in the claim-check storage, and nothing asks for it.")
        if self._storage is None:
            what = f"A row of {mark.title} lies in the claim-check storage, which is not configured."
            hint = "Set changefeed.claim_check to the changefeed's claim-check-storage-uri."
            raise ClaimCheckUnset(what, hint)
        found, message = read(self._storage.fetch(location))
        if found is None or not mark.stands_for(found):
            name = location.rsplit("/", 1)[-1]
            what = f"The claim-check file {name} does not hold the row of {mark.title} that names it."
            raise DecodeError(what, "Check that changefeed.claim_check is the storage of this very changefeed.")
        return message


def handle_key_only(title: str, asked: str = "", hint: str = _WHOLE_ROWS) -> IncompleteRow:
    """The refusal of a row of a table that holds its handle key alone; with what TiDB answered, if it was asked."""
    what = f"A row of {title} holds key columns only, because large-message-handle-option is handle-key-only."
    return IncompleteRow(f"{what} TiDB was asked: {asked}" if asked else what, hint)


class ClaimCheck:
    """The configured claim-check storage. Keeps a connection; belongs to one thread.

    Its location is a folder or fsspec address: `claim-check-storage-uri` as it is seen from here. A message of more
    than `max_bytes` is refused.
    """

    def __init__(self, location: str, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._location = location
        self._max_bytes = max_bytes
        # A file holds key and value in base64, which takes four characters for three bytes.
        self._max_file_bytes = (max_bytes + 2) // 3 * 4 + _WRAPPER_BYTES
        self._storage: tuple[Any, str] | None = None

    def fetch(self, location: str) -> ClaimedMessage:
        """Read the file that a message names; only its base name counts, as in TiCDC's own consumer.

        Raises:
            DecodeError: The file is missing, too large or no claim check, or the storage's kind is not known here.
            TransientError: The storage cannot be reached, or does not let us in.
        """
        name = location.rsplit("/", 1)[-1]
        if not _NAME.fullmatch(name):
            raise DecodeError("The message names a claim-check file whose name is not one that TiCDC gives.")
        claimed = _unwrap(self._read(name), name)
        if len(claimed.key or b"") + len(claimed.value) > self._max_bytes:
            raise self._too_large(name)
        return claimed

    def _read(self, name: str) -> bytes:
        files, folder = self._open_storage()
        try:
            with files.open(f"{folder.rstrip('/')}/{name}", "rb") as file:
                content: bytes = file.read(self._max_file_bytes + 1)
        except FileNotFoundError as error:
            raise DecodeError(
                f"The claim-check file {name} is not in the configured storage.",
                "Check changefeed.claim_check, and that nothing removes files before they are applied.",
            ) from error
        except Exception as error:  # Every fsspec backend raises errors of its own.
            raise _unreachable(f"read {name} from", error) from error
        if len(content) > self._max_file_bytes:
            raise self._too_large(name)
        return content

    def _too_large(self, name: str) -> DecodeError:
        limit = self._max_bytes
        what = f"The message in the claim-check file {name} is too large: source.max_message_bytes is {limit:,}."
        return DecodeError(what, LIMIT_HINT)

    def _open_storage(self) -> tuple[Any, str]:
        if self._storage is None:
            try:
                self._storage = fsspec.core.url_to_fs(self._location)
            except (ImportError, ValueError) as error:
                what = f"Python cannot read the claim-check storage: {type(error).__name__}."
                extra = _EXTRAS.get(self._location.partition("://")[0])
                package = f"Run `pip install 'applier[{extra}]'`."
                hint = package if extra else "Install the fsspec package for this kind of address."
                raise DecodeError(what, hint) from error
            except Exception as error:  # As above.
                raise _unreachable("open", error) from error
        return self._storage


def _unreachable(verb: str, error: Exception) -> TransientError:
    # The error's own text may hold the address with its credentials.
    hint = "Check that changefeed.claim_check can be reached and read."
    return TransientError(f"Cannot {verb} the claim-check storage: {reason_of(error)}.", hint)


def _unwrap(content: bytes, name: str) -> ClaimedMessage:
    if not _WRAPPED.match(content):
        return ClaimedMessage(None, content)
    try:
        wrapper = msgspec.json.decode(content, type=_Wrapper)
        key = None if wrapper.key is None else base64.b64decode(wrapper.key, validate=True)
        return ClaimedMessage(key, base64.b64decode(wrapper.value, validate=True))
    except (msgspec.MsgspecError, UnicodeError, binascii.Error, ValueError, RecursionError) as error:
        raise DecodeError(f"The claim-check file {name} is broken.") from error


def _lz4(value: bytes, max_bytes: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = decompressor.decompress(value, max_length=max_bytes + 1)
    except (RuntimeError, ValueError, EOFError, MemoryError) as error:
        raise DecodeError("The message is not a whole lz4 frame.", _HINT) from error
    if len(plain) > max_bytes:
        raise _too_large(max_bytes)
    if decompressor.eof:
        return plain
    raise DecodeError("The message is not a whole lz4 frame.", _HINT)


def _snappy(value: bytes, max_bytes: int) -> bytes:
    unknown = DecodeError("The message is neither plain nor compressed by lz4 or snappy.", _HINT)
    try:
        size = cramjam.snappy.decompress_raw_len(value)
        if size > len(value) * _SNAPPY_RATIO:
            raise unknown
        if size > max_bytes:
            raise _too_large(max_bytes, size)
        return bytes(cramjam.snappy.decompress_raw(value))
    except cramjam.DecompressionError as error:
        raise unknown from error


def _too_large(limit: int, size: int | None = None) -> DecodeError:
    found = f"more than {limit:,}" if size is None else f"{size:,}"
    return DecodeError(
        f"The message holds {found} bytes once it is decompressed; source.max_message_bytes is {limit:,}.", LIMIT_HINT
    )
