"""The keys of a storage and the token of a REST catalog: who renews them, and how often those at hand were refused."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        given: Those of `GIVEN` that the configuration has, and that are used.
        refusals: Answers of the storage that made the clients at hand worthless.
        are_vended: A REST catalog gives new ones with each table that it loads.
        is_token_renewed: A REST catalog gives a new token for a `credential`.
        is_token_given: The configuration has the only token.
        refused_tokens: Answers of a REST catalog that made its client worthless.
    """

    given: tuple[str, ...] = ()
    refusals: int = 0
    are_vended: bool = False
    is_token_renewed: bool = False
    is_token_given: bool = False
    refused_tokens: int = 0

    def take(self, catalog: Mapping[str, str]) -> None:
        """Take note of the properties of a catalog."""
        is_rest = catalog.get("type") == "rest"
        self.are_vended = is_rest and "vended-credentials" in catalog.get("header.X-Iceberg-Access-Delegation", "")
        self.given = () if self.are_vended else tuple(key for key in GIVEN if key in catalog)
        # Iceberg's client takes `token` where both are there.
        self.is_token_given = is_rest and "token" in catalog
        self.is_token_renewed = is_rest and "credential" in catalog and not self.is_token_given

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

_MARGIN_SECONDS = 300.0
"""Vended keys are renewed so long before they expire, and those with a shorter life after half of it."""


@dataclass(frozen=True, slots=True)
class TableAccess:
    """What a table was loaded with.

    Attributes:
        renewed_at: Unix seconds from which on its keys are to be renewed.
    """

    renewed_at: float = math.inf
    _refusals: int = field(default_factory=lambda: KEYS.refusals)
    _refused_tokens: int = field(default_factory=lambda: KEYS.refused_tokens)

    def with_keys(self, storage: Mapping[str, str]) -> TableAccess:
        """The same with the properties of the table's storage."""
        expires = storage.get("s3.session-token-expires-at-ms", "")
        if not expires.isdecimal():
            return self
        end, now = int(expires) / 1000, time.time()
        return TableAccess(end - min(_MARGIN_SECONDS, (end - now) / 2), self._refusals, self._refused_tokens)

    @property
    def is_stale(self) -> bool:
        """Whether keys or token were refused since, or the keys expire soon, so that the table is to be loaded anew."""
        is_refused = KEYS.are_vended and self._refusals != KEYS.refusals
        return is_refused or self._refused_tokens != KEYS.refused_tokens or time.time() >= self.renewed_at
