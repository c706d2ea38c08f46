"""Location named by a message in, the large message that TiCDC left in the claim-check storage out."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NamedTuple

import fsspec
import msgspec

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.decode.compression import LIMIT_HINT
from applier.errors import DecodeError, TransientError

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


class ClaimCheck:
    """The configured claim-check storage. Keeps a connection; belongs to one thread.

    Args:
        location: Folder or fsspec address, as `claim-check-storage-uri` is seen from here.
        max_bytes: Size of a message beyond which it is refused.
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
        return DecodeError(
            f"The message in the claim-check file {name} is too large: source.max_message_bytes is "
            f"{self._max_bytes:,}.",
            LIMIT_HINT,
        )

    def _open_storage(self) -> tuple[Any, str]:
        if self._storage is None:
            try:
                self._storage = fsspec.core.url_to_fs(self._location)
            except (ImportError, ValueError) as error:
                what = f"Python cannot read the claim-check storage: {type(error).__name__}."
                raise DecodeError(what, _install_hint(self._location)) from error
            except Exception as error:  # As above.
                raise _unreachable("open", error) from error
        return self._storage


def _install_hint(location: str) -> str:
    extra = _EXTRAS.get(location.partition("://")[0])
    if extra is None:
        return "Install the fsspec package for this kind of address."
    return f"Run `pip install 'applier[{extra}]'`."


def _unreachable(verb: str, error: Exception) -> TransientError:
    # The error's own text may hold the address with its credentials.
    hint = "Check that changefeed.claim_check can be reached and read."
    return TransientError(f"Cannot {verb} the claim-check storage: {type(error).__name__}.", hint)


def _unwrap(content: bytes, name: str) -> ClaimedMessage:
    if not _WRAPPED.match(content):
        return ClaimedMessage(None, content)
    try:
        wrapper = msgspec.json.decode(content, type=_Wrapper)
        key = None if wrapper.key is None else base64.b64decode(wrapper.key, validate=True)
        return ClaimedMessage(key, base64.b64decode(wrapper.value, validate=True))
    except (msgspec.MsgspecError, UnicodeError, binascii.Error, ValueError, RecursionError) as error:
        raise DecodeError(f"The claim-check file {name} is broken.") from error


def optional(location: str | None, max_bytes: int = MAX_MESSAGE_BYTES) -> ClaimCheck | None:
    """The storage at a location, or None where none is configured."""
    return None if location is None else ClaimCheck(location, max_bytes)
