"""`applier check` against a scripted registry: subjects, levels, decoders, and what a coming schema or DDL does."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from applier.commands.check.command import check
from applier.commands.check.report import RegistryAnswer
from tests import recordings
from tests.fake_registry import Answer, FakeRegistry
from tests.unit.commands.check.world import World, column, entry, hold, judge, nullable, record

VALUE, KEY = "shop_orders-value", "shop_orders-key"
ID = column("id", "long", "BIGINT")
NAME = nullable("name", "string", "TEXT")
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
ORDERS = [entry(KEY, 1, record(ID, extension=False), 1), entry(VALUE, 1, record(ID, NAME), 2)]


@pytest.fixture
def orders(world: World, server: FakeRegistry) -> World:
    """Table `shop.orders` on both sides, at level BACKWARD."""
    hold(server, ORDERS)
    world.create(("shop", "orders"), COLUMNS, rows=2)
    return world.with_registry(server.url)


def answer_to(world: World, ddl: str) -> RegistryAnswer:
    """The registry's answer for the rows of the table."""
    (change,) = check(world.config, ddl=ddl).changes
    return next(answer for answer in change.registry if answer.subject.endswith("-value"))


def test_what_fits_exits_zero(orders: World) -> None:
    """Readable schemas, a table that has the columns: every part says so."""
    report = check(orders.config)

    assert (report.verdict, report.exit_code, report.problems) == ("fits", 0, ())
    assert [(subject.subject, subject.role, subject.level) for subject in report.subjects] == [
        (KEY, "key", "BACKWARD"),
        (VALUE, "value", "BACKWARD"),
    ]
    (table,) = report.tables
    assert [(item.name, item.upstream, item.iceberg, item.fits) for item in table.columns] == [
        ("id", "bigint", "long", True),
        ("name", "text", "string", True),
    ]


def test_a_level_says_which_ddl_stops_ticdc(orders: World, server: FakeRegistry) -> None:
    """BACKWARD names the missing DEFAULT, FORWARD the dropped column, FULL both, NONE nothing."""
    found = {}
    for level in ("BACKWARD", "FORWARD", "FULL", "NONE", "BACKWARD_TRANSITIVE"):
        server.on(f"/config/{VALUE}", Answer(200, {"compatibilityLevel": level}))
        found[level] = check(orders.config, subject=VALUE).subjects[1].breaks

    assert "ADD COLUMN … NOT NULL without DEFAULT" in found["BACKWARD"]
    assert "DROP of a NOT NULL column without DEFAULT, or of a DECIMAL NOT NULL" in found["FORWARD"]
    assert set(found["FULL"]) == {*found["BACKWARD"], *found["FORWARD"]}
    assert found["NONE"] == ()
    assert set(found["BACKWARD"]) < set(found["BACKWARD_TRANSITIVE"])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{broken", "is not a valid Avro schema"),
        ('{"type": "string"}', "is not one that TiCDC generates for protocol avro"),
        (record(ID, {"name": "x", "type": "string"}), "its field 'x' is neither a column nor one of the extension"),
        (record(column("id", "long", "GEOMETRY")), "is not one that TiCDC generates for protocol avro"),
    ],
)
def test_a_version_that_cannot_be_read_is_named(orders: World, server: FakeRegistry, schema: str, reason: str) -> None:
    """One bad version among good ones does not fit, with its number and the decoder's own reason."""
    hold(server, [*ORDERS, entry(VALUE, 2, schema, 3)])

    report = check(orders.config)

    (subject,) = [found for found in report.subjects if found.subject == VALUE]
    assert report.exit_code == 1
    assert [version.is_readable for version in subject.versions] == [True, False]
    assert "Version 2 cannot be read" in subject.reasons[0]
    assert reason in subject.reasons[0]


def test_subjects_of_others_are_left_alone(orders: World, server: FakeRegistry) -> None:
    """A registry that is shared with other producers, and tables that are left out, are not judged."""
    others = [entry("metrics-value", 1, '{"type": "string"}', 9), entry("x-value", 1, record(ID, table="tmp"), 10)]
    hold(server, [*ORDERS, *others])
    orders.raw["tables"] = {"include": ["shop.*", "!shop.tmp"]}

    assert {subject.subject for subject in check(orders.config).subjects} == {KEY, VALUE}


def test_only_subjects_of_the_topics_are_asked(orders: World, server: FakeRegistry) -> None:
    """With topics configured, their subjects count, dots replaced as TiCDC does, even if they cannot be read."""
    hold(server, [*ORDERS, entry("shop_b-value", 1, '{"type": "string"}', 9)])
    orders.raw["source"] = {"kafka": {"topics": ["shop.b"], "kafka.bootstrap.servers": "nowhere:1"}}

    (subject,) = check(orders.config).subjects

    assert (subject.subject, subject.verdict) == ("shop_b-value", "does not fit")


def test_one_subject_can_be_asked_for(orders: World, server: FakeRegistry) -> None:
    """`--subject` reports it with its partner, and asks the registry for nothing else."""
    hold(server, [*ORDERS, entry("shop_b-value", 1, record(ID, table="b"), 9)])

    report = check(orders.config, subject=VALUE)

    assert [found.subject for found in report.subjects] == [KEY, VALUE]
    assert not any("shop_b" in request.path for request in server.requests)


def test_a_subject_that_is_not_there_cannot_be_told(orders: World) -> None:
    """A misspelt subject is an answer of its own, not a silent fit."""
    report = check(orders.config, subject="shop_order-value")

    assert (report.exit_code, report.problems) == (2, ("Subject shop_order-value is not registered.",))


def test_a_read_only_subject_does_not_fit(orders: World, server: FakeRegistry) -> None:
    """TiCDC cannot register anything there, whatever the level is."""
    server.on(f"/mode/{VALUE}", Answer(200, {"mode": "READONLY"}))

    report = check(orders.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT")

    assert report.exit_code == 1
    assert "it takes no new version" in report.changes[0].registry[0].rules[0]


# ---- DDL


def test_not_null_without_default_is_refused_with_level_rule_and_ways_out(orders: World, server: FakeRegistry) -> None:
    """The classic: the answer names the level, the rule in words of the column, and two ways out."""
    judge(server, VALUE, {1: False}, "READER_FIELD_MISSING_DEFAULT_VALUE")

    report = check(orders.config, ddl="ALTER TABLE shop.orders ADD COLUMN qty INT NOT NULL")

    (change,) = report.changes
    answer = change.registry[0]
    assert (report.exit_code, change.verdict, change.kinds) == (1, "does not fit", ("add-column",))
    assert (answer.level, answer.outcome, answer.compared_with) == ("BACKWARD", "refused", (1,))
    assert answer.rules == (
        "Field qty is new and has no default, so readers of the new schema find nothing for it in older rows.",
    )
    assert answer.messages == ("READER_FIELD_MISSING_DEFAULT_VALUE",)
    assert answer.ways_out[0] == "Give qty a DEFAULT, or let it be NULL."
    assert "Set the level of subject shop_orders-value to NONE" in answer.ways_out[1]
    assert change.tables[0].outcome == "rewritten"


def test_the_registry_is_asked_with_the_schema_that_ticdc_would_register(orders: World, server: FakeRegistry) -> None:
    """Kept columns go out as registered, the new one as TiCDC writes it, before the extension."""
    judge(server, VALUE, {1: True})

    answer = answer_to(orders, "ALTER TABLE shop.orders ADD COLUMN qty INT UNSIGNED DEFAULT 7 AFTER id")

    qty = {"default": 7, "name": "qty", "type": [column("qty", "long", "INT UNSIGNED")["type"], "null"]}
    assert answer.outcome == "accepted"
    assert json.loads(answer.avro) == json.loads(record(ID, qty, NAME))
    posts = [request for request in server.requests if request.method == "POST"]
    assert [request.body for request in posts] == [{"schema": answer.avro}]
    assert all(request.path.startswith("/compatibility/") for request in posts)


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE shop.orders MODIFY COLUMN name VARCHAR(100)",
        "ALTER TABLE shop.orders ADD INDEX i (name)",
        "ALTER TABLE shop.orders COMMENT = 'x'",
    ],
)
def test_a_ddl_that_changes_no_schema_asks_nothing(orders: World, server: FakeRegistry, ddl: str) -> None:
    """Lengths, indexes and comments are not in the schema, so TiCDC registers nothing new."""
    report = check(orders.config, ddl=ddl)

    assert report.exit_code == 0
    assert {answer.outcome for answer in report.changes[0].registry} <= {"unchanged"}
    assert not any(request.method == "POST" for request in server.requests)


def test_a_key_that_grows_is_asked_of_the_subject_of_keys(orders: World, server: FakeRegistry) -> None:
    """A new primary key changes the key's schema and makes its columns NOT NULL in the value's."""
    judge(server, KEY, {1: False})
    judge(server, VALUE, {1: False})

    report = check(orders.config, ddl="ALTER TABLE shop.orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, name)")

    value, key = report.changes[0].registry
    assert [field["name"] for field in json.loads(key.avro)["fields"]] == ["id", "name"]
    assert key.rules[0].startswith("Field name is new and has no default")
    assert value.rules[0].startswith("Field name changes from null or string to string")
    assert value.ways_out[0] == "Leave name as it is, NULL or NOT NULL."


def test_a_transitive_level_is_asked_for_every_version(orders: World, server: FakeRegistry) -> None:
    """An older version may refuse what the newest allows, and is named."""
    hold(server, [*ORDERS, entry(VALUE, 2, record(ID, NAME, column("qty") | {"default": 1}), 3)], "BACKWARD_TRANSITIVE")
    judge(server, VALUE, {1: False, 2: True})

    answer = answer_to(orders, "ALTER TABLE shop.orders ALTER COLUMN qty DROP DEFAULT")

    assert (answer.outcome, answer.compared_with) == ("refused", (1, 2))
    assert answer.rules[0].endswith("(compared with version 1)")


def test_a_new_table_gets_the_subject_that_others_suggest(orders: World) -> None:
    """From `shop_orders-value` follows the topic rule, and a new subject accepts whatever comes first."""
    answer = answer_to(orders, "CREATE TABLE shop.items (id INT PRIMARY KEY, v INT NOT NULL)")

    assert (answer.subject, answer.outcome) == ("shop_items-value", "new subject")


def test_a_rename_on_a_fixed_topic_is_refused(world: World, server: FakeRegistry) -> None:
    """Both names meet in one subject, and records of two names never match."""
    hold(server, [entry("all-key", 1, record(ID, extension=False), 1), entry("all-value", 1, record(ID, NAME), 2)])
    judge(server, "all-value", {1: False})
    judge(server, "all-key", {1: False})
    world.with_registry(server.url)

    answer = answer_to(world, "RENAME TABLE shop.orders TO shop.old_orders")

    assert (answer.subject, answer.outcome) == ("all-value", "refused")
    assert "default.shop.old_orders, and default.shop.orders in the subject" in answer.rules[0]
    assert "a topic of its own" in answer.ways_out[0]


def test_names_are_written_as_avro_has_them(orders: World, server: FakeRegistry) -> None:
    """A DDL speaks of `my-col`; the schema has `my_col`."""
    judge(server, VALUE, {1: True})

    answer = answer_to(orders, "ALTER TABLE `shop`.`orders` ADD COLUMN `my-col` INT AFTER `id`")

    assert [field["name"] for field in json.loads(answer.avro)["fields"]] == ["id", "my_col", "name", "_tidb_op"]


def test_columns_that_share_an_avro_name_are_refused_without_asking(orders: World) -> None:
    """TiCDC cannot even make the schema."""
    answer = answer_to(orders, "ALTER TABLE shop.orders ADD COLUMN `a-b` INT, ADD COLUMN `a.b` INT")

    assert (answer.outcome, answer.avro) == ("refused", "")
    assert answer.rules[0].startswith("Column a.b becomes a_b in Avro, as another column does already")


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("ALTER TABLE shop.orders DROP COLUMN nme", "Table shop.orders has no column nme."),
        ("ALTER TABLE shop.orders ADD COLUMN NAME INT", "Table shop.orders has a column NAME already."),
        ("SELECT 1", "Cannot read a DDL"),
        ("ALTER TABLE items ADD COLUMN c INT", "Table items is in no database that is known."),
    ],
)
def test_a_ddl_that_upstream_would_refuse_cannot_be_told(orders: World, ddl: str, reason: str) -> None:
    """A typing error is not an answer: exit 2, and the sentence says what is wrong with the statement."""
    report = check(orders.config, ddl=ddl)

    assert report.exit_code == 2
    assert reason in report.changes[0].reasons[0]


def test_a_name_without_a_database_is_found(orders: World, server: FakeRegistry) -> None:
    """Where one database alone has the table, the statement needs no database."""
    judge(server, VALUE, {1: True})

    assert answer_to(orders, "ALTER TABLE orders ADD COLUMN c INT").outcome == "accepted"


def test_without_extension_a_truncate_is_not_seen(orders: World, server: FakeRegistry) -> None:
    """No extension, no DDL messages: rows would differ in silence, so it does not fit, and a warning says so."""
    hold(server, [ORDERS[0], entry(VALUE, 1, record(ID, NAME, extension=False), 2)])

    report = check(orders.config, ddl="TRUNCATE TABLE shop.orders")

    assert report.exit_code == 1
    assert "does not learn of this" in report.changes[0].tables[0].reasons[0]
    assert any("enable-tidb-extension is off" in warning for warning in report.warnings)


def test_a_column_placed_under_row_checksums_is_warned_of(orders: World, server: FakeRegistry) -> None:
    """A defect of TiCDC stops such changefeeds; the last place is safe."""
    checksum = {"default": "", "name": "_tidb_row_level_checksum", "type": "string"}
    schema = json.loads(record(ID, NAME))
    # TiCDC writes checksums with the whole extension only.
    schema["fields"] += [{"default": 0, "name": "_tidb_commit_ts", "type": "long"}, checksum]
    hold(server, [ORDERS[0], entry(VALUE, 1, json.dumps(schema), 2)])
    judge(server, VALUE, {1: True})

    placed = check(orders.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT FIRST").changes[0].notes
    last = check(orders.config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT").changes[0].notes

    assert ("row checksums" in placed[0], last) == (True, ())


# ---- schema


def test_a_coming_schema_is_judged_by_registry_and_table(orders: World, server: FakeRegistry, tmp_path: Path) -> None:
    """The subject is found by the record's name; the table follows like after the DDL."""
    judge(server, VALUE, {1: True})
    file = tmp_path / "next.avsc"
    file.write_text(record(ID, NAME, nullable("qty")))

    (change,) = check(orders.config, schema=file).changes

    assert (change.verdict, change.registry[0].outcome) == ("fits", "accepted")
    assert change.tables[0].steps == ("add qty int, NULL in existing rows",)


def test_a_coming_schema_that_renames_in_silence_is_refused_by_the_table(
    orders: World, server: FakeRegistry, tmp_path: Path
) -> None:
    """The registry takes one column gone and one new; whether it is a rename nobody can tell from a schema."""
    judge(server, VALUE, {1: True})
    file = tmp_path / "next.avsc"
    file.write_text(record(ID, nullable("title", "string", "TEXT")))

    (change,) = check(orders.config, schema=file).changes

    assert (change.verdict, change.registry[0].outcome, change.tables[0].outcome) == (
        "does not fit",
        "accepted",
        "refused",
    )
    assert "no statement shows whether they were renamed" in change.tables[0].reasons[0]


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ('{"type": "recor"}', 1, "is no Avro schema"),
        ("not json", 1, "is no Avro schema"),
        (record(ID, {"name": "x", "type": "string"}), 1, "is not one that TiCDC generates"),
        (None, 2, "cannot be read (No such file or directory)"),
        (record(ID, table="nowhere"), 2, "name the subject with --subject"),
    ],
)
def test_a_file_that_is_no_coming_schema_is_named(
    orders: World, tmp_path: Path, text: str | None, code: int, reason: str
) -> None:
    """What the decoder or Avro refuses does not fit; what cannot be read or placed cannot be told."""
    file = tmp_path / "next.avsc"
    if text is not None:
        file.write_text(text)

    report = check(orders.config, schema=file)

    assert report.exit_code == code
    assert reason in report.changes[0].reasons[0]


def test_a_schema_for_a_new_subject_makes_its_table(orders: World, tmp_path: Path) -> None:
    """With the subject named, the first version of a new table is accepted."""
    file = tmp_path / "next.avsc"
    file.write_text(record(ID, table="items"))

    (change,) = check(orders.config, subject="shop_items-value", schema=file).changes

    assert (change.registry[0].outcome, change.tables[0].outcome) == ("new subject", "created")


# ---- recordings


@pytest.mark.parametrize("scenario", ["ddl", "types"])
@pytest.mark.parametrize("variant", ["avro-plain", "avro-string-checksum", "avro-before-value", "debezium-avro"])
def test_recorded_registries_are_readable_to_the_last_version(
    world: World, server: FakeRegistry, scenario: str, variant: str
) -> None:
    """Whatever TiCDC registered, the decoder of the protocol reads, and new tables can be made of it."""
    hold(server, recordings.registry(scenario, variant))
    world.with_registry(server.url, "debezium-avro" if variant == "debezium-avro" else "avro")

    report = check(world.config)

    assert report.exit_code == 0
    assert all(version.is_readable for subject in report.subjects for version in subject.versions)
    assert len(report.subjects) > 3
    assert {table.verdict for table in report.tables} == {"fits"}
