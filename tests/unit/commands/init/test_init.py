"""`applier init` writes a file that `applier check` passes, and leaves open what it does not know."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange
from applier.cli import app
from applier.commands.check.command import check
from applier.commands.init import command
from applier.commands.init.command import init, options
from applier.commands.init.look import Findings, Sight
from applier.commands.init.write import Answers, text
from applier.config.protocols import IN_TOPICS, PROTOCOLS
from applier.config.settings import CATALOGS, load
from applier.errors import ConfigError, TransientError

KAFKA = {"topics": ["shop"], "kafka.bootstrap.servers": "broker:9092"}
SPANS = {TopicPartition("shop", 0): OffsetRange(7, 300), TopicPartition("shop", 1): OffsetRange(0, 0)}


def sight(protocol: str, *, has_watermark: bool = True) -> Sight:
    """What a topic of one protocol shows."""
    return Sight(SPANS, Findings(200, (protocol,), has_watermark))


def answers(folder: Path) -> Answers:
    """All that can be said beforehand."""
    uri, lake = f"jdbc:sqlite:{folder}/catalog.db", f"{folder}/lake"
    return Answers(KAFKA, name="shop", catalog={"type": "jdbc", "uri": uri, "warehouse": lake})


def written(
    folder: Path, given: Answers, seen: Sight | Exception, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, list[str]]:
    """The file's text, and the lines that the user sees."""

    def look(*_: object) -> Sight:
        if isinstance(seen, Exception):
            raise seen
        return seen

    monkeypatch.setattr(command, "look", look)
    said: list[str] = []
    file = folder / "applier.toml"
    init(file, given, say=said.append)
    return file.read_text(encoding="utf-8"), said


@pytest.mark.parametrize("protocol", [name for name in IN_TOPICS if PROTOCOLS[name].carries.schema != "registry"])
def test_what_is_written_passes_the_check(protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to fill in where topics and answers say all."""
    _, said = written(tmp_path, answers(tmp_path), sight(protocol), monkeypatch)

    config = load(tmp_path / "applier.toml")
    assert (config.changefeed.protocol, config.source.kafka is not None) == (protocol, True)
    assert check(config).exit_code == 0
    assert said[1:3] == [
        f"200 messages looked at: protocol {protocol}, with a resolved ts.",
        f"Wrote {tmp_path}/applier.toml.",
    ]


def test_rows_without_a_create_table_lead_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started without its older rows, each of these tables would be incomplete."""
    orders, notes, more = TableName("shop", "orders"), TableName("my-db", "notes"), TableName("shop", "more")
    found = Findings(200, ("simple",), True, tables=(notes, more, orders), made=frozenset({more}))

    content, said = written(tmp_path, answers(tmp_path), Sight(SPANS, found), monkeypatch)

    assert "# Without a CREATE TABLE among the messages looked at: my-db.notes, shop.orders." in content
    assert "# Seen in the messages looked at: my-db.notes, shop.more, shop.orders." in content
    path = f"{tmp_path}/applier.toml"
    assert said[2:] == [
        "3 tables seen: my-db.notes, shop.more, shop.orders.",
        f"Wrote {path}.",
        "The messages looked at hold rows of my-db.notes, shop.orders, but not their CREATE TABLE.",
        "If the database had rows before the changefeed, export them and load them. Next:",
        (
            "  tiup dumpling -h HOST -P 4000 -u USER --filetype csv "
            "--params 'time_zone=+00:00' -F 256MiB --filter '`my-db`.*' --filter 'shop.*' -o /exports"
        ),
        f"  applier check -c {path}",
        f"  applier load -c {path} --from /exports",
        f"  applier run -c {path}",
        "Without an export, `applier load` without --from reads the rows of a TiDB that upstream.url names.",
    ]


def test_topics_without_a_message_are_said_to_be_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table of theirs is known, so nothing is said of a load."""
    _, said = written(tmp_path, replace(answers(tmp_path), protocol="simple"), Sight({}, Findings()), monkeypatch)

    assert said[1] == "The topics hold no message yet: what TiCDC sends will show its protocol and its tables."
    assert said[-1] == f"Next: applier check -c {tmp_path}/applier.toml, then applier run -c {tmp_path}/applier.toml."


def test_the_help_names_every_protocol_and_catalog() -> None:
    """They are written out there, as the help imports nothing that knows them."""
    help_text = " ".join(CliRunner().invoke(app, ["init", "-h"]).output.split())

    assert [name for name in (*IN_TOPICS, *CATALOGS) if not re.search(rf"\b{name}\b", help_text)] == []


def test_what_is_not_known_is_a_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to fill in, and so does the last word."""
    seen = Sight(SPANS, Findings(20, ("avro", "debezium-avro")))

    content, said = written(tmp_path, Answers(KAFKA), seen, monkeypatch)

    for line in (
        '# name = "…"   # fill in: names the changefeed and its control tables: letters, digits, _ and -',
        (
            '# protocol = "…"   # fill in: the messages fit several protocols: TiCDC\'s `protocol` of the sink, '
            "one of avro, debezium-avro"
        ),
        '# type = "…"   # fill in: jdbc, rest, hive, glue, hadoop, nessie or bigquery',
        "# Topic shop: 2 partitions, 293 offsets.",
        (
            "# Its first messages are gone from partitions 0: tables that are older need an export first "
            "(docs/initial-load.md)."
        ),
        "# Partitions 1 hold no message. If TiCDC does not use them, fill in how many it uses: changefeed.partitions.",
    ):
        assert line in content.splitlines()
    assert "Before it can be used, fill in its commented lines, and mend:" in said
    assert f"  {tmp_path}/applier.toml:3: changefeed.protocol: missing." in said


def test_a_feed_without_a_watermark_names_the_option(tmp_path: Path) -> None:
    """Order by offset is offered, and not chosen."""
    content = text(answers(tmp_path), sight("canal-json", has_watermark=False))

    assert (
        "# None of the 200 messages looked at has a resolved ts: `applier run` would wait.\n"
        "# TiCDC's option: enable-tidb-extension. Where it cannot be turned on, rows can be\n"
        "# applied in the order of their offsets, so that a transaction may be seen in part:\n"
        '# order = "offset"\n'
        '# timezone = "UTC"   # fill in the time zone of the TiCDC server, unless it is UTC\n'
    ) in content


@pytest.mark.parametrize(
    ("found", "hint"),
    [
        (("simple",), "They look like simple: leave out --protocol, or"),
        ((), "They fit no other protocol either, or"),
    ],
)
def test_a_named_protocol_of_which_no_message_is_is_refused(
    found: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written."""
    seen = Sight(SPANS, Findings(449, found))
    with pytest.raises(ConfigError) as refused:
        written(tmp_path, replace(answers(tmp_path), protocol="open"), seen, monkeypatch)

    assert refused.value.problems[0].startswith(f"None of the 449 messages looked at is of protocol open. {hint}")
    assert not (tmp_path / "applier.toml").exists()


def test_a_file_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the only one."""
    (tmp_path / "applier.toml").write_text("mine")

    with pytest.raises(ConfigError, match=r"is there already\. Choose another name, or replace it with --force\.$"):
        written(tmp_path, answers(tmp_path), sight("simple"), monkeypatch)
    assert (tmp_path / "applier.toml").read_text() == "mine"

    init(tmp_path / "applier.toml", answers(tmp_path), say=print, force=True)
    assert load(tmp_path / "applier.toml").changefeed.name == "shop"


def test_topics_that_cannot_be_reached_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user names the protocol."""
    silent = TransientError("Kafka at broker:9092 does not answer: no.", "check the address.")

    with pytest.raises(TransientError, match=r"check the address\. To write .* name TiCDC's protocol: --protocol"):
        written(tmp_path, answers(tmp_path), silent, monkeypatch)
    assert not (tmp_path / "applier.toml").exists()

    _, said = written(tmp_path, replace(answers(tmp_path), protocol="open"), silent, monkeypatch)
    assert said[1] == "Nothing could be looked at: Kafka at broker:9092 does not answer: no."
    assert load(tmp_path / "applier.toml").changefeed.protocol == "open"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Answers({}), "applier init needs --servers HOST:PORT and --topics NAME,NAME."),
        (Answers(KAFKA, protocol="opn"), "--protocol opn is not known, did you mean open?"),
        (Answers(KAFKA, catalog={"type": "jbdc"}), "--catalog jbdc is not known, did you mean jdbc?"),
        (
            Answers(KAFKA, catalog={"type": "rest", "warehouse": "lake"}),
            (
                "--catalog rest needs --uri as well: address of the catalog, such as jdbc:postgresql://host/lake or "
                "https://host."
            ),
        ),
        (
            Answers(KAFKA, catalog={"type": "hadoop"}),
            (
                "--catalog hadoop needs --warehouse as well: where tables are stored, such as s3://bucket/lake; or its "
                "name."
            ),
        ),
        (
            Answers(KAFKA, catalog={"type": "hadoop", "warehous": "lake"}),
            "--catalog-option warehous: unknown key, did you mean --warehouse?",
        ),
        (
            Answers(KAFKA, registry="https://me:secret@registry"),
            "--registry holds a password. Put it into an environment variable, and write ${NAME} in its place.",
        ),
    ],
)
def test_a_wrong_answer_is_one_sentence(given: Answers, sentence: str, tmp_path: Path) -> None:
    """Before anything is looked at."""
    with pytest.raises(ConfigError) as refused:
        init(tmp_path / "applier.toml", given, say=print)

    assert refused.value.problems == [sentence]


def test_secrets_stay_out_of_the_file(tmp_path: Path) -> None:
    """A variable stands for each."""
    key = "kafka.sasl.jaas.config"
    with pytest.raises(ConfigError) as refused:
        options([f'{key}=x required password="abc";'], "--kafka")
    assert refused.value.problems == [
        (
            f"--kafka {key} would put a secret into the file. Put it into an environment variable, "
            f"and write '{key}=${{NAME}}' in quotes."
        )
    ]
    with pytest.raises(ConfigError, match=r"--kafka 'x' is not of the form KEY=VALUE\.$"):
        options(["x"], "--kafka")

    kafka = KAFKA | options([f'{key}=x required password="${{SECRET}}";'], "--kafka")
    assert f'"{key}" = "x required password=\\"${{SECRET}}\\";"' in text(Answers(kafka), Sight({}, Findings()))
    assert str(tmp_path) not in text(Answers(kafka), Sight({}, Findings()))


def test_a_name_of_the_catalog_is_written_once() -> None:
    """TOML refuses a key that is there twice."""
    given = Answers(KAFKA, name="shop", protocol="open", catalog={"type": "rest", **options(["name=mine"], "--o")})

    assert tomllib.loads(text(given, Sight({}, Findings())))["catalog"] == {"name": "mine", "type": "rest"}


def test_paths_of_the_command_line_begin_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the file they would begin beside it, so that a file elsewhere holds them whole."""
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    kafka = KAFKA | {"kafka.ssl.truststore.location": "trust.jks", "kafka.ssl.keystore.location": "${STORE}"}
    lake = {"type": "jdbc", "uri": "jdbc:sqlite:lake.db", "warehouse": "tables"}
    given = Answers(kafka, name="shop", catalog=lake)

    there, _ = written(tmp_path / "conf", given, sight("simple"), monkeypatch)
    here, _ = written(tmp_path, given, sight("simple"), monkeypatch)

    for line in (f'uri = "jdbc:sqlite:{tmp_path}/lake.db"', f'warehouse = "{tmp_path}/tables"'):
        assert line in there.splitlines()
    assert f'"kafka.ssl.truststore.location" = "{tmp_path}/trust.jks"' in there
    assert '"kafka.ssl.keystore.location" = "${STORE}"' in there
    assert 'uri = "jdbc:sqlite:lake.db"' in here.splitlines()


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("source.kafka.kafka.bootstrap.servers", "--servers"),
        ("source.kafka.topics", "--topics"),
        ("source.kafka.topic_pattern", "--topic-pattern"),
        ("the kafka.* options under [source.kafka]", "the options given by --kafka"),
        ("source.kafka.kafka.acks", "--kafka kafka.acks"),
    ],
)
def test_a_hint_names_what_the_user_typed(
    key: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no file yet with the keys that other commands name."""
    for error in (TransientError("Away.", f"check {key}."), ConfigError([f"check {key}."])):
        with pytest.raises(type(error)) as raised:
            written(tmp_path, answers(tmp_path), error, monkeypatch)
        assert f"check {option}." in str(raised.value)
        assert "source.kafka" not in str(raised.value)
