"""Errors of PyMySQL in, one sentence of ours out."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pymysql
import pytest

from applier.config.login import Login
from applier.decode.tidb.session import MomentAhead, MomentGone, meaning, session
from applier.errors import ApplierError, ConfigError, OutsideRefused, TransientError, Unreachable

LOGIN = Login("db", 4000, "reader", "secret")


def _error(number: int, text: str, cause: Exception | None = None) -> Any:
    error: Any = pymysql.OperationalError(number, text)
    error.original_exception = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            _error(1045, "Access denied for user"),
            OutsideRefused,
            "db:4000 cannot be read: it refuses user or password.",
        ),
        (
            _error(1142, "SELECT command denied"),
            OutsideRefused,
            "db:4000 cannot be read: the user may not read a table.",
        ),
        (
            _error(2003, "", OSError(-2, "Name or service not known")),
            Unreachable,
            "reached: Name or service not known.",
        ),
        (_error(2003, "", ssl.SSLError(1, "x")), OutsideRefused, "is not one that upstream.ca signed for this host."),
        (_error(1040, "Too many connections"), TransientError, "TiDB db:4000 was lost (error 1040)."),
        (_error(1305, "FUNCTION does not exist"), OutsideRefused, "it is no TiDB, or an old one."),
        (_error(2013, "Lost connection"), TransientError, "The connection to TiDB db:4000 was lost (error 2013)."),
        (_error(9002, "TiKV server timeout"), TransientError, "TiDB db:4000 answers with error 9002."),
        (pymysql.InterfaceError(0, ""), TransientError, "The connection to TiDB db:4000 was lost."),
        (ConnectionResetError(104, "x"), TransientError, "The connection to TiDB db:4000 was lost."),
        (
            _error(8055, "snapshot is older than GC safe point 2026-01-02 22:04:05 +0000 UTC"),
            MomentGone,
            "no longer holds that moment: garbage collection has come to 2026-01-02 22:04:05 UTC.",
        ),
        (
            _error(1105, "cannot set read timestamp to a future time, readTS: 1"),
            MomentAhead,
            "give an earlier --at, or another url.",
        ),
        (_error(1064, "syntax error near 'value of a row'"), OutsideRefused, "refuses to be read with error 1064."),
    ],
)
def test_an_error_is_one_sentence(error: Exception, kind: type[ApplierError], said: str) -> None:
    """Its class says whether another try can help; text of the server that may hold values is left out."""
    with pytest.raises(kind) as raised, meaning(LOGIN):
        raise error

    assert type(raised.value) is kind
    assert raised.value.what.endswith(said)
    assert "value of a row" not in str(raised.value)
    assert getattr(raised.value, "system", "other") == "other"


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file or directory"), ("x", "it holds no such PEM text")])
def test_a_pem_file_that_cannot_be_read_is_named(text: str | None, reason: str, tmp_path: Path) -> None:
    """Before anything is asked."""
    if text is not None:
        (tmp_path / "ca.pem").write_text(text)

    with pytest.raises(ConfigError) as raised, session(Login("127.0.0.1", 1, "reader", "", f"{tmp_path}/ca.pem")):
        pass

    assert str(raised.value) == f"The file of upstream.ca cannot be read: {reason}."
