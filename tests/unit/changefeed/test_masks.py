"""Masks of columns: what is left of values of each type, and what a table keeps of the key."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.filter import TablePattern
from applier.changefeed.mask import Mask, fingerprint_of
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.changefeed.types import ColumnPath, TypeRules, check_key, column_arrow_type
from applier.ddl import actions as ddl
from applier.decode.decoder import WireForm
from applier.decode.values.convert import to_array
from applier.errors import SchemaChangeRefused
from applier.sink.evolve.plan import plan
from applier.sink.evolve.steps import AddField
from tests.unit.sink.evolve.test_plan import ID, NAME, table

T = ColumnType
SECRET = b"sixteen letters!"
WIRE = WireForm("base64", "label", "UTC")


def rules(pattern: str = "shop.*", **masks: Mask) -> TypeRules:
    """Masks of columns of the tables of a pattern."""
    shape = Shape(pattern, masks=masks, mask_key=fingerprint_of(SECRET), secret=SECRET)
    return TypeRules(tinyint1="boolean", shapes=[(TablePattern(pattern), shape)])


def mask(values: list[Any], kind: ColumnType, how: Mask) -> list[Any]:
    """What wire values become."""
    given = rules(c=how)
    array, _ = to_array(values, Column("C", kind), WIRE, given, ColumnPath(NAME, "C"))
    assert array.type == pa.string() == column_arrow_type(NAME, Column("C", kind), given)
    return array.to_pylist()


def _hmac(content: bytes) -> str:
    return hmac.new(SECRET, content, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("value", "kind", "content"),
    [
        ("a@b.c", T("varchar"), b"a@b.c"),
        ("", T("text"), b""),
        ("ä", T("char"), "ä".encode()),
        ("18446744073709551615", T("bigint", unsigned=True), b"18446744073709551615"),
        ("0.0000001", T("decimal", length=9, scale=7), b"0.0000001"),
        ("/w==", T("blob"), b"\xff"),
        ("2024-01-31", T("date"), b"2024-01-31"),
        ("2024-01-31 01:02:03", T("timestamp", scale=0), b"2024-01-31 01:02:03"),
        ("1", T("tinyint", length=1), b"1"),
        ("paid", T("enum", elements=("new", "paid")), b"paid"),
        ("[1,2.5]", T("vector"), b"[1.0, 2.5]"),
    ],
)
def test_a_hash_is_the_hmac_of_the_text_of_a_value(value: str, kind: ColumnType, content: bytes) -> None:
    """Of each type; NULL stays NULL."""
    assert mask([value, None, value], kind, "hash") == [_hmac(content), None, _hmac(content)]


def test_last4_leaves_four_characters_of_more() -> None:
    """No more than four characters are all hidden, in any script."""
    values = ["4111111111111111", "12345", "1234", "1", "", None, "äöüßéà"]
    wanted = ["*" * 12 + "1111", "*2345", "****", "*", "", None, "**üßéà"]
    assert mask(values, T("varchar"), "last4") == wanted
    assert mask(["1234567"], T("bigint"), "last4") == ["***4567"]


def test_redacted_values_are_all_alike() -> None:
    """Whatever their type, an empty text among them; but NULL."""
    assert mask(["x", "", None], T("text"), "redact") == ["***", "***", None]
    assert mask(["2024-01-31", None], T("date"), "redact") == ["***", None]


def test_the_record_of_a_table_shows_masks_and_another_key_and_no_secret() -> None:
    """Nor does what the rules print."""
    one = rules(c="hash").shape_of(NAME)
    other = Shape(masks={"c": "hash"}, mask_key=fingerprint_of(b"another key that is long"))
    assert one.record != other.record
    assert len(one.mask_key) == 16
    assert "hash" in one.record
    for text in (one.record, repr(one), repr(rules(c="hash"))):
        assert SECRET.decode() not in text
    assert (rules(c="hash").hides, TypeRules().hides) == (True, False)


def test_a_key_column_takes_a_hash_alone() -> None:
    """Other masks would make its rows one."""
    version = TableVersion(NAME, 1, (ID,), (Index("p", ("id",), unique=True, primary=True),))
    check_key(version, rules(id="hash"))
    for how in ("redact", "last4"):
        with pytest.raises(
            SchemaChangeRefused, match=f"Column id is of the key of table shop.orders, and the mask {how}"
        ):
            check_key(version, rules(id=how))


EMAIL = Column("email", T("varchar", length=20))


@pytest.mark.parametrize(("masks", "why"), [({"email": "hash"}, "hash, none"), ({"mail": "redact"}, "none, redact")])
def test_a_rename_out_of_a_mask_or_into_one_is_refused(masks: dict[str, Mask], why: str) -> None:
    """Also where the type stays text; before a row of the new name is written."""
    renamed = Column("mail", EMAIL.type)
    for action in (ddl.RenameColumn(NAME, "email", "mail"), ddl.ModifyColumn(NAME, "email", renamed)):
        found = plan(table(ID, EMAIL), table(ID, renamed), [action], rules(**masks))
        assert found.refused is not None
        reason = f"Column email becomes mail, and their masks are not the same: {why}."
        assert found.refused.reason == reason
        assert "`mask` of its pattern under [tables]" in found.refused.hint
    found = plan(
        table(ID, EMAIL),
        table(ID, renamed),
        [ddl.RenameColumn(NAME, "email", "mail")],
        rules(email="redact", mail="redact"),
    )
    assert found.refused is None


def test_a_new_key_with_another_mask_is_refused() -> None:
    """As where the table is made."""
    index = Index("primary", ("email",), unique=True, primary=True)
    after = TableVersion(NAME, 2, (ID, EMAIL), (index,))
    found = plan(table(ID, EMAIL, indexes=()), after, (), rules(email="last4"))
    assert found.refused is not None
    assert "Column email is of the key of table shop.orders" in found.refused.reason


def test_a_new_column_has_its_default_masked() -> None:
    """Rows that were there hold it."""
    new = Column("c", T("varchar", length=9), nullable=False, default="secret")
    found = plan(table(ID), table(ID, new), [ddl.AddColumn(NAME, new)], rules(c="redact"))
    (step,) = found.steps
    assert isinstance(step, AddField)
    assert step.default.as_py() == "***"


def test_a_change_of_the_values_of_a_masked_column_is_refused() -> None:
    """Their text is another one, and what it was is not here."""
    pairs = [(T("decimal", length=5, scale=2), T("decimal", length=6, scale=3))]
    pairs += [(T("varchar", length=99), T("varchar", length=9)), (T("varchar", length=9), T("enum", elements=("a",)))]
    for old, new in pairs:
        after = table(ID, Column("c", new))
        actions = [ddl.ModifyColumn(NAME, "c", Column("c", new))]
        found = plan(table(ID, Column("c", old)), after, actions, rules(c="hash"))
        assert [doubt.column for doubt in found.only_empty] == ["c"]


def test_a_table_of_another_name_has_other_masks() -> None:
    """A pattern masks the columns of its tables alone."""
    given = rules(c="hash")
    assert given.mask_of(ColumnPath(TableName("other", "t"), "c")) is None
