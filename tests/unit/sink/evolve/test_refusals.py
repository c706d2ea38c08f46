"""How a refused evolution names its table."""

from __future__ import annotations

from unittest import mock

import pytest

from applier.changefeed.table import TableName
from applier.errors import SchemaChangeRefused
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.apply import apply_evolution
from applier.sink.evolve.plan import Evolution
from applier.sink.evolve.steps import Refusal


def test_a_reason_names_the_table_of_the_user() -> None:
    """A resume applies statements to a copy, whose name in the catalog no user knows."""
    copy = mock.MagicMock(__str__=lambda _: "applier_shop__resume.shop__customers__2e35d97e")

    with pytest.raises(SchemaChangeRefused) as raised:
        apply_evolution(copy, Evolution(refused=Refusal("no.")), Stamp("shop", 1, 7), TableName("shop", "customers"))

    assert raised.value.what == "Table shop.customers cannot follow its upstream: no."
