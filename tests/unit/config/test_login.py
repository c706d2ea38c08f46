"""Addresses of a TiDB in, a login or a sentence without any part of the password out."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from applier.config.login import Login
from applier.config.settings import parse
from applier.errors import ConfigError


def _parsed(**upstream: Any) -> Any:
    return parse(
        {
            "changefeed": {"name": "shop", "protocol": "canal-json"},
            "source": {"archive": "feed"},
            "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
            "upstream": upstream,
        }
    )


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("mysql://root@db:4001", ("db", 4001, "root", "")),
        ("mysql://a.root:p@ss/w:rd%40@db.example/", ("db.example", 4000, "a.root", "p@ss/w:rd%40")),
        ("mysql://root:x@[::1]:4000", ("::1", 4000, "root", "x")),
    ],
)
def test_an_address_is_a_login(url: str, wanted: tuple[str, int, str, str]) -> None:
    """The password is everything up to the last @, as it is."""
    login = _parsed(url=url).upstream.login

    assert (login.host, login.port, login.user, login.password) == wanted


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("postgres://root:secret@db:4000", ", and its scheme is postgres"),
        ("jdbc:mysql://root:secret@db:4000", ", and its scheme is jdbc"),
        ("mysql://db:4000", ""),
        ("mysql://root:secret@db:4000/shop", ""),
        ("mysql://root:secret@db:99999", ""),
    ],
)
def test_another_address_is_refused(url: str, more: str) -> None:
    """The sentence says the form, and no part of what was given."""
    with pytest.raises(ConfigError) as refusal:
        _parsed(url=url)

    form = "must be mysql://USER:PASSWORD@HOST:4000, with no database or options behind it"
    assert str(refusal.value) == f"upstream.url: {form}{more}."


@pytest.mark.parametrize(
    ("upstream", "key"),
    [
        ({"url": "mysql://root@db", "dump": "export"}, "upstream.dump"),
        ({"ca": "ca.pem"}, "upstream.ca"),
        ({"url": "mysql://root@db", "cert": "c.pem", "key": "k.pem"}, "upstream.cert"),
        ({"url": "mysql://root@db", "ca": "ca.pem", "cert": "c.pem"}, "upstream.cert"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(upstream: dict[str, Any], key: str) -> None:
    """The sentence begins with the key to change."""
    with pytest.raises(ConfigError) as refusal:
        _parsed(**upstream)

    assert str(refusal.value).startswith(f"{key}: ")


def test_a_login_prints_nothing_secret() -> None:
    """Its text is the same for all, and a task takes it whole."""
    config = _parsed(url="mysql://root:secret@db:4000", ca="ca.pem", cert="c.pem", key="k.pem")

    login = config.upstream.login

    assert "secret" not in repr(config)
    assert repr(login) == "Login()"
    assert pickle.loads(pickle.dumps(login)) == Login("db", 4000, "root", "secret", "ca.pem", "c.pem", "k.pem")  # noqa: S301 - its own
