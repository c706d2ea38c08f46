"""The keys of a storage: whether the configuration gives them, and how often the storage refused the ones at hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GIVEN = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
"""Properties of a catalog that hold keys. Nothing renews them; those of the environment are renewed."""

_REFUSED = re.compile(r"AWS Error (?:INVALID_ACCESS_KEY_ID|ACCESS_DENIED)\b|HTTP status 40[013]\b|ExpiredToken")
"""What Arrow quotes of a storage that may not take the keys. The answer to a HEAD has no code: it may mean rights."""

_CERTAIN = re.compile(r"AWS Error INVALID_ACCESS_KEY_ID\b|HTTP status 400\b|ExpiredToken")
"""The same where it is certain: to a HEAD with keys that have expired S3 answers 400."""


@dataclass(slots=True)
class StorageKeys:
    """The keys of this process.

    Attributes:
        given: Those of `GIVEN` that the configuration has.
        refusals: Answers that made the clients that Python has worthless.
    """

    given: tuple[str, ...] = ()
    refusals: int = 0

    def take(self, catalog: Mapping[str, str]) -> None:
        """Take note of the properties of a catalog."""
        self.given = tuple(key for key in GIVEN if key in catalog)

    @property
    def way_out(self) -> str:
        """What a person does about given keys that have expired; "" where they are renewed without one."""
        return f"renew {', '.join(self.given)} of [catalog]." if self.given else ""

    def note(self, error: BaseException) -> Literal["refused", "perhaps", ""]:
        """Take note of what a call of Arrow raised; whether the storage refuses the keys."""
        said = str(error)
        if not _REFUSED.search(said):
            return ""
        self.refusals += 1
        return "refused" if _CERTAIN.search(said) else "perhaps"


KEYS = StorageKeys()
"""Of this process."""
