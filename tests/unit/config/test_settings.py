"""The configuration is checked as a whole, and every problem is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.commands.backfill.command import from_archive
from applier.config.changefeed import ChangefeedSection
from applier.config.reading.problems import Problems
from applier.config.settings import Config, load, parse
from applier.errors import ConfigError


def minimal(**sections: Any) -> dict[str, Any]:
    """The smallest configuration, with sections replaced."""
    return {
        "changefeed": {"name": "shop", "protocol": "simple"},
        "source": {"archive": "topic"},
        "catalog": {"name": "lake", "type": "jdbc", "uri": "jdbc:sqlite:lake.db", "warehouse": "lake"},
    } | sections


def problems(raw: dict[str, Any]) -> list[str]:
    """What is wrong with a configuration."""
    with pytest.raises(ConfigError) as raised:
        parse(raw)
    return raised.value.problems


def test_minimal_configuration_has_defaults() -> None:
    """Changefeed, source and catalog are enough."""
    config = parse(minimal())

    assert config.changefeed.order == "resolved"
    assert config.catalog.properties == {"type": "jdbc", "uri": "jdbc:sqlite:lake.db", "warehouse": "lake"}


def test_all_problems_are_reported_at_once() -> None:
    """Nobody wants to mend a file one error at a time."""
    raw = minimal(changefeed={"name": "a b", "protcol": "simple"}, catalog={"name": "lake"}, extra=1)

    assert problems(raw) == [
        "changefeed.protcol: unknown key, did you mean protocol?",
        f"extra: unknown key; known keys are {', '.join(Config.model_fields)}.",
        "changefeed.name: must consist of letters, digits, _ and -.",
        "catalog.type: missing.",
    ]


@pytest.mark.parametrize(
    ("section", "key", "nearest"),
    [
        ("changefeed", "timezon", "timezone"),
        ("source", "archiv", "archive"),
        ("tables", "includes", "include"),
        ("sink", "thread", "threads"),
        ("run", "interval", "interval_seconds"),
    ],
)
def test_unknown_keys_name_the_nearest_known_one(section: str, key: str, nearest: str) -> None:
    """A typing error is told apart from a wish."""
    raw = minimal()
    raw[section] = {**raw.get(section, {}), key: "x"}

    assert f"{section}.{key}: unknown key, did you mean {nearest}?" in problems(raw)


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${NAME}` stands for the environment variable, wherever a text stands."""
    monkeypatch.setenv("LAKE_TOKEN", "s3cret")
    raw = minimal(catalog={"name": "lake", "type": "rest", "uri": "http://c", "token": "${LAKE_TOKEN}"})

    assert parse(raw).catalog.properties["token"] == "s3cret"


def test_missing_environment_variable_is_named() -> None:
    """The key and the variable are both in the sentence."""
    raw = minimal(catalog={"name": "lake", "type": "rest", "uri": "http://c", "token": "${NO_SUCH_TOKEN}"})

    assert problems(raw) == ["catalog.token: the environment variable NO_SUCH_TOKEN is not set."]


def test_secrets_come_from_files(tmp_path: Path) -> None:
    """`${file:PATH}` stands for what the file holds, beside other text and in the place of a number."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/password").write_bytes("Ge heim=ü\r\n\n".encode())
    (tmp_path / "secrets/step").write_text("7\n")
    raw = minimal(
        catalog={"name": "lake", "type": "rest", "uri": "http://c", "credential": "shop:${file:secrets/password}"}
    )
    raw["source"] |= {"messages_per_step": f"${{file:{tmp_path}/secrets/step}}"}

    config = parse(raw, Problems(str(tmp_path / "applier.toml")))

    assert config.catalog.properties["credential"] == "shop:Ge heim=ü"
    assert config.source.messages_per_step == 7


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("", None, "${file:} names no file: write ${file:/run/secrets/NAME}."),
        ("none", None, "the file FOLDER/none cannot be read (No such file or directory): check its path, MOUNT."),
        (".", None, "the file FOLDER cannot be read (Is a directory): check its path, MOUNT."),
        ("a\0b", None, "the file FOLDER/a\0b cannot be read (no such path is possible): check its path, MOUNT."),
        ("void", b"\n", "the file FOLDER/void is empty: write the value into it."),
        ("latin", b"\xfc", "the file FOLDER/latin is not UTF-8 text."),
    ],
)
def test_a_file_that_holds_no_value_is_named(tmp_path: Path, name: str, content: bytes | None, problem: str) -> None:
    """The line, the key and the file are in the sentence, and nothing of what other files hold."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    raw = minimal(catalog={"name": "lake", "type": "rest", "uri": "http://c", "token": f"${{file:{name}}}"})

    with pytest.raises(ConfigError) as raised:
        parse(raw, Problems(str(tmp_path / "applier.toml"), {"catalog.token": 9}))

    sentence = problem.replace("FOLDER", str(tmp_path)).replace("MOUNT", "its mount and its rights")
    assert raised.value.problems == [f"{tmp_path}/applier.toml:9: catalog.token: {sentence}"]


def test_kafka_keys_may_be_quoted_or_not() -> None:
    """TOML nests unquoted dotted keys; both spellings mean the same."""
    quoted = {"topics": ["t"], "kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SSL"}
    nested = {"topics": ["t"], "kafka": {"bootstrap": {"servers": "b:1"}, "security": {"protocol": "SSL"}}}

    options = [parse(minimal(source={"kafka": source})).source.kafka for source in (quoted, nested)]

    assert options[0] is not None
    assert options[1] is not None
    expected = {"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SSL"}
    assert options[0].options == options[1].options == expected


ONE_SOURCE = "exactly one of archive, [source.kafka] and [source.storage] is needed"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, [f"source.kafka: missing: {ONE_SOURCE}."]),
        (
            {"storage": {"uri": "s3://b/p"}, "archive": "x"},
            [f"source.archive: excludes [source.storage]: {ONE_SOURCE}."],
        ),
        (
            {"kafka": {"topic": "x"}},
            [
                "source.kafka.topic: unknown key, did you mean topics?",
                "source.kafka.topics: must be a list: [ … ].",
                "source.kafka.kafka.bootstrap.servers: missing.",
            ],
        ),
    ],
)
def test_source_is_exactly_one(source: dict[str, Any], expected: list[str]) -> None:
    """An archive or Kafka, and Kafka needs topics and an address."""
    assert problems(minimal(source=source)) == expected


def test_the_example_of_the_storage_sink_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be copied; and `backfill --archive`, which reads messages of a topic, is refused with it."""
    monkeypatch.chdir(tmp_path)
    config = load(Path(__file__).parents[3] / "examples/storage/applier.toml")
    assert config.source.storage is not None
    assert config.source.storage.uri == "s3://feeds/shop"
    assert from_archive(config, None) is config
    with pytest.raises(ConfigError, match="--archive holds messages of a topic, and the feed is one of files"):
        from_archive(config, "topic")


def test_what_does_not_go_with_files_of_the_storage_sink_is_refused() -> None:
    """Another protocol, an order by offset, a number of partitions; and an address that has the sink's parameters."""
    feed = {"name": "shop", "protocol": "simple", "order": "offset", "partitions": 3}
    assert sorted(problems(minimal(source={"storage": {"uri": "s3://b/p?protocol=csv"}}, changefeed=feed))) == [
        "changefeed.order: must be resolved with [source.storage]: the files of tables have no common order.",
        "changefeed.partitions: remove it: folders of [source.storage] are no partitions of a topic.",
        "changefeed.protocol: must be canal-json or csv with [source.storage].",
        "source.storage.uri: has parameters: leave out `?` and all that follows.",
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.security.protocoll", "kafka.security.protocol"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("kafka.ssl.trustore.location", "kafka.ssl.truststore.location"),
    ],
)
def test_a_misspelt_option_of_kafka_is_refused(key: str, meant: str) -> None:
    """Kafka's clients pass over names that they do not know, so a log-in or a certificate would be left out."""
    source = {"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:1", key: "x"}}

    assert f"source.kafka.{key}: unknown key, did you mean {meant}?" in problems(minimal(source=source))


_SECURED = {"kafka.security.protocol": "SASL_SSL"}
_LOGIN = 'org.apache.kafka.common.security.{} required username="u" password="p";'
_SCRAMS = "SCRAM-SHA-256 or SCRAM-SHA-512"
_SCRAM, _PLAIN = _LOGIN.format("scram.ScramLoginModule"), _LOGIN.format("plain.PlainLoginModule")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {**_SECURED, "kafka.sasl.jaas.config": _SCRAM, "kafka.sasl.mechanism": "SCRAM-SHA-513"},
            f"sasl.mechanism: must be {_SCRAMS} with the ScramLoginModule of kafka.sasl.jaas.config.",
        ),
        (
            {**_SECURED, "kafka.sasl.jaas.config": _PLAIN, "kafka.sasl.mechanism": "SCRAM-SHA-512"},
            "sasl.mechanism: must be PLAIN with the PlainLoginModule of kafka.sasl.jaas.config.",
        ),
        (
            {**_SECURED, "kafka.sasl.jaas.config": _PLAIN},
            "sasl.mechanism: must be PLAIN with the PlainLoginModule of kafka.sasl.jaas.config.",
        ),
        (
            {"kafka.sasl.jaas.config": _PLAIN, "kafka.sasl.mechanism": "PLAIN"},
            "sasl.jaas.config: has no effect with kafka.security.protocol PLAINTEXT: write SASL_SSL there.",
        ),
    ],
)
def test_a_login_that_cannot_come_about(options: dict[str, str], problem: str) -> None:
    """Kafka's clients would ask again and again, as if the broker were down."""
    source = {"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:1", **options}}

    assert problems(minimal(source=source)) == [f"source.kafka.kafka.{problem}"]


@pytest.mark.parametrize(
    ("module", "mechanism"),
    [
        ("software.amazon.msk.auth.iam.IAMLoginModule", "AWS_MSK_IAM"),
        ("com.sun.security.auth.module.Krb5LoginModule", ""),
    ],
)
def test_a_login_of_a_plug_in_and_the_usual_mechanism(module: str, mechanism: str) -> None:
    """A mechanism may come with a jar; Kerberos is what Kafka's clients take by themselves."""
    named = {"kafka.sasl.mechanism": mechanism} if mechanism else {}
    login = {**_SECURED, "kafka.sasl.jaas.config": f"{module} required;", **named}

    found = parse(minimal(source={"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:1", **login}})).source.kafka
    assert found is not None
    assert found.options == {"kafka.bootstrap.servers": "b:1", **login}


def test_an_option_of_a_plug_in_reaches_kafka() -> None:
    """Login modules and interceptors read names of their own, which are like none of Kafka's."""
    source = {"kafka": {"topics": ["t"], "kafka.bootstrap.servers": "b:1", "kafka.oauth.token.endpoint.uri": "x"}}

    assert parse(minimal(source=source)).source.kafka is not None


@pytest.mark.parametrize("route", ["table", "{database}", "{db}.{table}"])
def test_route_must_place_every_table(route: str) -> None:
    """A route without the table's name would write all tables into one."""
    assert problems(minimal(tables={"route": route}))[0].startswith("tables.route: ")


def test_a_beat_must_come_well_within_the_lease() -> None:
    """A holder that beats as rarely as its lease ends would look dead while it works."""
    raw = minimal(run={"heartbeat_seconds": 40, "lease_seconds": 60})

    assert problems(raw) == [
        (
            "run.heartbeat_seconds: 40 must be half of lease_seconds 60 or less: "
            "a healthy holder would lose the changefeed."
        )
    ]


def test_avro_needs_a_registry() -> None:
    """Avro messages hold no schema."""
    raw = minimal(changefeed={"name": "shop", "protocol": "avro"})

    assert problems(raw) == ["registry: is needed for protocol avro: add [registry] with url."]


def test_patience_with_the_registry_has_bounds() -> None:
    """A wait that never ends, or no attempt at all, cannot be meant."""
    avro = {"name": "shop", "protocol": "avro"}
    url = "http://registry:8081"
    wrong = minimal(changefeed=avro, registry={"url": url, "timeout_seconds": 0, "attempts": 0})
    right = parse(minimal(changefeed=avro, registry={"url": url, "timeout_seconds": 2.5, "attempts": 9})).registry
    plain = parse(minimal(changefeed=avro, registry={"url": url})).registry

    assert problems(wrong) == [
        "registry.timeout_seconds: must be greater than 0.",
        "registry.attempts: must be greater than or equal to 1.",
    ]
    assert right is not None
    assert plain is not None
    assert (right.timeout_seconds, right.attempts) == (2.5, 9)
    assert (plain.timeout_seconds, plain.attempts) == (10.0, 5)


def test_unreadable_file_and_bad_toml(tmp_path: Path) -> None:
    """The path is in the sentence."""
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match="none.toml: No such file"):
        load(missing)
    bad = tmp_path / "bad.toml"
    bad.write_text("[changefeed\n")
    with pytest.raises(ConfigError, match="bad.toml:1: not valid TOML: Expected"):
        load(bad)


def test_spark_keys_may_lack_their_prefix() -> None:
    """`[spark] master` is `spark.master`."""
    config: Config = parse(minimal(spark={"spark.master": "local[2]", "driver": {"memory": "3g"}, "ui.enabled": False}))

    assert config.spark == {"spark.master": "local[2]", "spark.driver.memory": "3g", "spark.ui.enabled": "false"}


@pytest.mark.parametrize(
    ("section", "zone"),
    [
        ({"protocol": "simple", "timezone": "Asia/Shanghai"}, "UTC"),
        ({"protocol": "open"}, "UTC"),
        ({"protocol": "open", "timezone": "Asia/Shanghai"}, None),
        ({"protocol": "open", "timezone": "Asia/Shanghai", "session_timezone": "UTC"}, "UTC"),
        ({"protocol": "debezium", "session_timezone": "Asia/Shanghai"}, "Asia/Shanghai"),
    ],
)
def test_the_zone_of_timestamp_defaults_is_configured_or_unknown(section: dict[str, str], zone: str | None) -> None:
    """Simple carries them in UTC; the zone of the TiCDC server is not that of the sessions that run DDL."""
    assert ChangefeedSection.model_validate({"name": "f", **section}).session_zone == zone


def test_keys_of_tables_are_for_rows_that_may_not_name_them() -> None:
    """Elsewhere the setting would change nothing."""
    keys = {"keys": {"shop.orders": ["id"], "shop.log": []}}
    feed = {"name": "shop", "protocol": "debezium"}

    assert parse(minimal(changefeed=feed, tables=keys)).tables.keys == {"shop.orders": ("id",), "shop.log": ()}
    assert problems(minimal(tables=keys)) == ["tables.keys: is for protocol debezium; rows of simple name their key."]


def test_every_key_of_the_watching_sections_can_be_given() -> None:
    """As TOML gives them: texts, numbers and lists."""
    loaded = parse(
        minimal(
            http={
                "port": 9180,
                "address": "0.0.0.0",  # noqa: S104 - a container
                "token": "secret",
                "certificate": "page.pem",
                "key": "page.key",
                "max_lag_seconds": 60,
                "stuck_seconds": 600,
            },
            webhook={
                "url": "https://chat.example/hook",
                "events": ["verdict", "table-parked"],
                "headers": {"Authorization": "Bearer x"},
                "timeout_seconds": 5,
            },
            traces={"endpoint": "http://collector:4318/v1/traces", "headers": {"X-Key": "x"}, "sample": 0.5},
        )
    )

    assert (loaded.http.certificate, loaded.http.max_lag_seconds) == ("page.pem", 60)
    assert loaded.webhook.events == ("verdict", "table-parked")
    assert loaded.traces.sample == 0.5
    known = {"http": loaded.http, "webhook": loaded.webhook, "traces": loaded.traces}
    assert {name: section.model_fields_set for name, section in known.items()} == {
        name: set(type(section).model_fields) for name, section in known.items()
    }


@pytest.mark.parametrize(
    ("route", "left_out"),
    [
        ("{database}.{table}", ["applier_feed", "APPLIER_FEED__load", "applier_feed__RESUME"]),
        ("applier_{database}.{table}", ["feed", "feed__load", "Feed__resume"]),
        ("lake.{database}.{table}", []),
        ("lake_{database}.{table}", []),
    ],
)
def test_databases_that_lie_among_the_tables_of_the_changefeed_are_left_out(route: str, left_out: list[str]) -> None:
    """In any letters, whatever `include` says; those beside them are not."""
    raw = minimal(changefeed={"name": "feed", "protocol": "simple"}, tables={"route": route, "include": ["*.*"]})
    admits = TableFilter(parse(raw).tables.include).admits

    names = [
        "applier_feed",
        "APPLIER_FEED__load",
        "applier_feed__RESUME",
        "feed",
        "feed__load",
        "Feed__resume",
        "feed_2",
    ]
    assert [name for name in names if not admits(TableName(name, "t"))] == left_out


def test_csv_is_for_files_of_the_storage_sink_alone() -> None:
    """And its section is for CSV."""
    feed, storage = {"name": "shop", "protocol": "csv"}, {"uri": "s3://b/p", "csv": {"delimiter": "|@|", "quote": "'"}}
    assert parse(minimal(source={"storage": storage}, changefeed=feed)).files_end == "csv"
    why = "changefeed.protocol: is csv, which only [source.storage] has: it is not in topics or archives."
    assert problems(minimal(source={"archive": "x"}, changefeed=feed)) == [why]
    why = "source.storage.csv: is for protocol csv, and changefeed.protocol is canal-json: remove it."
    assert problems(minimal(source={"storage": storage}, changefeed={**feed, "protocol": "canal-json"})) == [why]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"quote": ""}, "source.storage.csv.quote: must be one ASCII character"),
        ({"quote": "x"}, "source.storage.csv.quote: must be one ASCII character"),
        ({"quote": "."}, "source.storage.csv.quote: must be one ASCII character"),
        ({"delimiter": ""}, "source.storage.csv.delimiter: "),
        ({"delimiter": "||||"}, "source.storage.csv.delimiter: String should have at most 3"),
        ({"delimiter": "-"}, "source.storage.csv.delimiter: holds a letter"),
        ({"delimiter": '|"'}, "source.storage.csv.quote: is a part of the delimiter: TiCDC refuses that as well."),
        ({"null": "a,b"}, "source.storage.csv.null: holds the quote, the delimiter or an end of a line"),
        ({"null": "0"}, "source.storage.csv.null: may be a number, which has no quotes either"),
        ({"binary_encoding_method": "raw"}, "source.storage.csv.binary_encoding_method: must be 'base64' or 'hex'"),
    ],
)
def test_a_form_of_csv_that_reads_in_two_ways_is_refused(keys: dict[str, str], reason: str) -> None:
    """By its key, before anything is read."""
    source = {"storage": {"uri": "s3://b/p", "csv": keys}}
    (found,) = problems(minimal(source=source, changefeed={"name": "shop", "protocol": "csv"}))
    assert found.startswith(reason)
