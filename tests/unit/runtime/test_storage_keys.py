"""Who renews the keys of a storage and the token of a catalog, and when a table is to be loaded anew."""

from __future__ import annotations

import time

import pytest

from applier.errors import OutsideRefused
from applier.runtime.permanent_errors import CATALOG, OPENING, Cause, refusal
from applier.runtime.storage_keys import KEYS, StorageKeys, TableAccess

OWN = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
VENDED = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
LOGIN = {"credential": "id:secret", "oauth2-server-uri": "https://login"}
REFUSED = [Cause("NotAuthorizedException", "", "Not authorized: the token has expired")]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> StorageKeys:
    """Those of this process, as they were before at the end."""
    for name in StorageKeys.__slots__:
        monkeypatch.setattr(KEYS, name, getattr(KEYS, name))
    return KEYS


@pytest.mark.parametrize(
    ("catalog", "given", "is_renewed"),
    [
        ({"type": "rest", **OWN}, True, False),
        ({"type": "rest", **VENDED}, False, True),
        ({"type": "rest", **OWN, **VENDED}, False, True),
        ({"type": "jdbc", **OWN, **VENDED}, True, False),
    ],
)
def test_keys_that_a_catalog_gives_are_no_keys_of_the_configuration(
    catalog: dict[str, str], given: bool, is_renewed: bool
) -> None:
    """A person renews those of the configuration, where they are used."""
    KEYS.take(catalog)
    access = TableAccess()

    for cause in (Cause("S3Exception", "AWS ExpiredToken", "expired"), Cause("S3Exception", "AWS 403", "")):
        found = refusal("Cannot read", [cause], CATALOG)

        assert (found is None) == is_renewed
    assert bool(KEYS.given) == given
    assert access.is_stale == is_renewed
    assert not TableAccess().is_stale


@pytest.mark.parametrize(
    ("catalog", "hint"),
    [
        ({"type": "rest", **LOGIN}, ""),
        ({"type": "rest", "token": "a"}, "write a new token to [catalog], as nothing renews it; or, in its place, "),
        ({"type": "rest", "token": "a", **LOGIN}, "write a new token to [catalog]"),
        ({"type": "rest"}, "check the log-in and the rights"),
    ],
)
def test_a_token_that_a_catalog_refuses(catalog: dict[str, str], hint: str) -> None:
    """A new one is fetched where the configuration says how, and a log-in that is refused itself ends the run."""
    KEYS.take(catalog)
    access = TableAccess()

    found = refusal("Cannot load", REFUSED, CATALOG)

    assert (found is None) == access.is_stale == (not hint)
    assert found is None or found.hint.startswith(hint)
    assert isinstance(refusal("Cannot open", REFUSED, OPENING), OutsideRefused)


@pytest.mark.parametrize(
    ("life", "passed", "is_stale"),
    [(3600, 3200, False), (3600, 3350, True), (60, 20, False), (60, 40, True), (-5, 0, True), (None, 10**6, False)],
)
def test_keys_are_renewed_before_they_expire(
    life: int | None, passed: int, is_stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five minutes before, or after half of a short life; those of unknown life once they are refused."""
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    storage = {} if life is None else {"s3.session-token-expires-at-ms": str(int((1_000_000 + life) * 1000))}
    access = TableAccess().with_keys(storage)

    monkeypatch.setattr(time, "time", lambda: 1_000_000.0 + passed)

    assert access.is_stale == is_stale
