"""Credentials of a storage that expire in a run: renewed ones go on without a restart, and given ones end the run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.storage import slow_s3
from tests.integration.faulty_storage import FaultyStorage, faulty
from tests.recovery.bad_days import BadDays
from tests.services.kafka import Broker

pytestmark = [pytest.mark.s3, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def storage() -> Iterator[FaultyStorage]:
    """What stands before a server of S3."""
    with slow_s3() as endpoint, faulty(endpoint) as proxy:
        yield proxy


@pytest.fixture
def days(storage: FaultyStorage, kafka: Broker, tmp_path: Path) -> BadDays:
    """A changefeed on that storage."""
    return BadDays(int(time.time()), storage, kafka, tmp_path)


@pytest.mark.parametrize("answer", ["expired", "unknown key"])
def test_renewed_credentials_of_the_environment_go_on(
    days: BadDays, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """The file of a profile, which another program renews: after a while too late, and then in time."""
    for name in (*filter(lambda name: name.startswith("AWS_"), os.environ),):
        monkeypatch.delenv(name)
    file = days.folder / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    _without_keys(days)
    _write(file, "FIRST")
    days.start()
    days.go_on(20)
    days.catch_up()

    storage.refused["FIRST"] = answer
    days.go_on(20)
    time.sleep(8)
    _write(file, "SECOND")
    days.catch_up()
    _write(file, "THIRD")
    storage.refused["SECOND"] = answer
    days.go_on(20)
    days.catch_up()

    assert days.problems() == []
    ended = days.applier.end()
    assert ended.code == 0, ended.everything[-3000:]


def test_expired_credentials_of_the_configuration_end_the_run(days: BadDays, storage: FaultyStorage) -> None:
    """Nothing renews them but a person, who has to know which ones they are."""
    days.start()
    days.go_on(20)
    days.catch_up()

    storage.refused["testing"] = "expired"
    days.go_on(20)
    begin = time.monotonic()
    ended = days.applier.wait()

    assert ended.code == 3
    assert time.monotonic() - begin < 60
    assert "s3.access-key-id" in ended.said, ended.said


def _write(file: Path, key: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n", encoding="utf-8")
    new.rename(file)


def _without_keys(days: BadDays) -> None:
    for key in ("s3.access-key-id", "s3.secret-access-key"):
        del days.config["catalog"][key]
