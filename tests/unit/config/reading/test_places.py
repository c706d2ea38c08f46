"""Each problem of a configuration file stands behind the line of its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from applier.config.reading.problems import line_of, lines_of
from applier.config.settings import load
from applier.errors import ConfigError

GOLDEN = Path(__file__).parent / "wrong.toml"

WELL = """\
[changefeed]
name = "shop"
protocol = "simple"
[source]
archive = "topic"
[catalog]
name = "lake"
type = "jdbc"
uri = "jdbc:sqlite:lake.db"
warehouse = "lake"
"""


def problems(folder: Path, text: str) -> list[str]:
    """What is wrong with a file of this text, behind the name of the file."""
    file = folder / "applier.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(file)
    return [problem.removeprefix(f"{folder}/") for problem in raised.value.problems]


def with_line(line: str, after: str) -> str:
    """A correct file with one more line behind another."""
    assert after in WELL
    return WELL.replace(after, f"{after}{line}\n")


def test_lines_are_those_of_keys_wherever_toml_lets_them_stand() -> None:
    """Quoted and dotted keys, texts and lists of many lines, comments, inline tables."""
    text = '''# a = 1
top = """
inside = 1
"""
[ a . "b.c" ]  # [not.one]
list = [
  "x = 1", # y = 2
  [ "[z]" ],
]
k.l = { m = 1 }
'single' = 'it''s'
[[many]]
x = "\\\\"
'''.replace("it''s", "its")

    lines = lines_of(text)

    assert lines == {
        "top": 2,
        "a": 5,
        "a.b": 5,
        "a.b.c": 5,
        "a.b.c.list": 6,
        "a.b.c.k.l": 10,
        "a.b.c.single": 11,
        "many": 12,
        "many.x": 13,
    }
    assert line_of(lines, "a.b.c.k.l.m") == 10
    assert line_of(lines, "nothing") is None


def test_a_file_with_many_errors_names_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected sentences are in the file itself, behind the lines that cause them; the last lack a line."""
    monkeypatch.delenv("NO_SUCH_NAME", raising=False)
    expected = [
        f"{GOLDEN}:{number}: {sentence}"
        for number, line in enumerate(GOLDEN.read_text(encoding="utf-8").splitlines(), 1)
        for sentence in line.partition(" #: ")[2].split(" #: ")
        if sentence
    ]

    with pytest.raises(ConfigError) as raised:
        load(GOLDEN)

    assert raised.value.problems == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            with_line('messages_per_step = "400"', 'archive = "topic"\n'),
            "applier.toml:6: source.messages_per_step: must be a whole number, without quotes.",
            id="text where a number belongs",
        ),
        pytest.param(
            WELL.replace("jdbc:sqlite:lake.db", "sqlite:lake.db"),
            "applier.toml:9: catalog.uri: must begin with `jdbc:sqlite:`, not `sqlite:`.",
            id="address of another library",
        ),
        pytest.param(
            WELL.replace('warehouse = "lake"\n', ""),
            (
                "applier.toml:6: catalog.warehouse: missing: the place of the tables, such as "
                'warehouse = "s3://bucket/lake" or "/data/lake".'
            ),
            id="no warehouse",
        ),
        pytest.param(
            WELL.replace('uri = "jdbc:sqlite:lake.db"\n', ""),
            (
                "applier.toml:6: catalog.uri: missing: the address of the catalog, such as "
                'uri = "jdbc:sqlite:/data/catalog.db" or "http://catalog:8181".'
            ),
            id="no address",
        ),
        pytest.param(
            WELL.replace("warehouse =", "warehous ="),
            "applier.toml:10: catalog.warehous: unknown key, did you mean warehouse?",
            id="misspelt warehouse",
        ),
        pytest.param(
            WELL.replace("uri =", "url ="),
            "applier.toml:9: catalog.url: unknown key, did you mean uri?",
            id="address under another name",
        ),
        pytest.param(
            WELL.replace('"jdbc"', '"hive"').replace("uri =", "url ="),
            "applier.toml:9: catalog.url: unknown key, did you mean uri?",
            id="misspelt key that a catalog does not always need",
        ),
        pytest.param(
            WELL.replace('"jdbc"', '"jbdc"'),
            "applier.toml:8: catalog.type: unknown type jbdc, did you mean jdbc?",
            id="misspelt catalog",
        ),
        pytest.param(
            WELL.replace('"jdbc"', '"oracle"'),
            (
                "applier.toml:8: catalog.type: unknown type oracle, known types are "
                "jdbc, rest, hive, glue, hadoop, nessie, bigquery."
            ),
            id="unknown catalog",
        ),
        pytest.param(
            WELL.replace(
                'archive = "topic"', '[source.kafka]\ntopic_pattern = "shop_("\n"kafka.bootstrap.servers" = "b"'
            ),
            "applier.toml:6: source.kafka.topic_pattern: is no regular expression: a parenthesis is not closed.",
            id="broken pattern",
        ),
        pytest.param(
            WELL.replace(
                'archive = "topic"',
                '[source.kafka]\ntopics = ["t"]\nkafka.bootstrap.servers = "b"\nkafka.security.protocol = "SASL_SSL"',
            ),
            (
                "applier.toml:5: source.kafka.kafka.sasl.jaas.config: missing: kafka.security.protocol asks for a "
                'log-in. For user and password: "kafka.sasl.jaas.config" = '
                "'org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="${KAFKA_USER}" password="${KAFKA_PASSWORD}";\'.'
            ),
            id="no log-in",
        ),
        pytest.param(
            "[changefeed\n",
            "applier.toml:1: not valid TOML: Expected ']' at the end of a table declaration (column 12).",
            id="no TOML",
        ),
        pytest.param(
            WELL + "[sink]\nthreads = 2\n[sink]\n",
            "applier.toml:13: not valid TOML: Cannot declare ('sink',) twice (column 6).",
            id="section twice",
        ),
    ],
)
def test_a_problem_is_one_sentence(text: str, expected: str, tmp_path: Path) -> None:
    """With file, line, key, and what to write instead."""
    assert problems(tmp_path, text) == [expected]


def test_what_looks_broken_but_may_be_right_is_left_to_java(tmp_path: Path) -> None:
    """The two kinds of regular expressions differ."""
    file = tmp_path / "applier.toml"
    for pattern in (r"shop_\p{Alpha}+", r"\Qshop_(\E.*", "(?<name>shop)_.*", "[a-z&&[^b]]+"):
        kafka = f"[source.kafka]\ntopic_pattern = '{pattern}'\nkafka.bootstrap.servers = 'b'"
        file.write_text(WELL.replace('archive = "topic"', kafka), encoding="utf-8")

        assert load(file).source.kafka is not None


def test_a_catalog_of_a_java_class_may_have_any_type(tmp_path: Path) -> None:
    """Iceberg knows no name for it."""
    file = tmp_path / "applier.toml"
    file.write_text(WELL.replace('"jdbc"', '"own"\ncatalog-impl = "org.example.Catalog"'), encoding="utf-8")

    assert load(file).catalog.properties["catalog-impl"] == "org.example.Catalog"


@pytest.mark.parametrize("kind", ["hive", "nessie", "bigquery"])
def test_keys_that_files_of_another_system_may_hold_are_not_asked_for(tmp_path: Path, kind: str) -> None:
    """Hive's address and AWS's settings need not be here, and keys that are like no known one go to the catalog."""
    file = tmp_path / "applier.toml"
    section = f'[catalog]\nname = "lake"\ntype = "{kind}"\n"client.region" = "eu-west-1"\n'
    file.write_text(WELL[: WELL.index("[catalog]")] + section)

    assert load(file).catalog.properties == {"type": kind, "client.region": "eu-west-1"}


_GLUE = WELL[: WELL.index('type = "jdbc"')] + 'type = "glue"\nwarehouse = "s3://bucket/lake"\n'


def test_glue_takes_the_files_of_s3_unless_others_are_named(tmp_path: Path) -> None:
    """Its region may come from the environment, its warehouse from nowhere else."""
    file = tmp_path / "applier.toml"
    file.write_text(_GLUE, encoding="utf-8")
    found = load(file).catalog.properties

    assert found.pop("io-impl") == "org.apache.iceberg.aws.s3.S3FileIO"
    assert found == {"type": "glue", "warehouse": "s3://bucket/lake"}
    file.write_text(_GLUE + 'io-impl = "org.example.Files"\n', encoding="utf-8")
    assert load(file).catalog.properties["io-impl"] == "org.example.Files"
    assert problems(tmp_path, _GLUE.replace('warehouse = "s3://bucket/lake"\n', "")) == [
        (
            "applier.toml:6: catalog.warehouse: missing: the place of the tables, such as "
            'warehouse = "s3://bucket/lake" or "/data/lake".'
        )
    ]


def test_names_that_glue_never_takes_are_refused_at_once(tmp_path: Path) -> None:
    """A name of two levels, and one of the control tables; where Glue's client checks no names, the second may do."""
    route = '[tables]\nroute = "lake.{database}.{table}"\n'
    assert problems(tmp_path, _GLUE.replace('"shop"', '"My-Shop"') + route) == [
        "applier.toml:2: changefeed.name: Glue takes lower-case letters, digits and underscores alone.",
        "applier.toml:11: tables.route: Glue has one level of namespaces: give it one dot, as in {database}.{table}.",
    ]
    file = tmp_path / "applier.toml"
    file.write_text(_GLUE.replace('"shop"', '"my-shop"') + '"glue.skip-name-validation" = true\n', encoding="utf-8")
    assert load(file).changefeed.name == "my-shop"


def test_a_login_that_java_has_is_not_asked_for(tmp_path: Path) -> None:
    """A file of log-ins serves all clients of a JVM."""
    kafka = '[source.kafka]\ntopics = ["t"]\nkafka.bootstrap.servers = "b"\nkafka.security.protocol = "SASL_SSL"'
    option = '[spark]\ndriver.extraJavaOptions = "-Djava.security.auth.login.config=/etc/kafka.jaas"\n'
    file = tmp_path / "applier.toml"
    file.write_text(WELL.replace('archive = "topic"', kafka) + option, encoding="utf-8")

    assert load(file).source.kafka is not None


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    file = tmp_path / "applier.toml"
    file.write_text(WELL, encoding="utf-8-sig")

    assert load(file).changefeed.name == "shop"


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """With the way out."""
    file = tmp_path / "applier.toml"
    file.write_text(WELL, encoding="utf-16")

    with pytest.raises(ConfigError, match=r"applier\.toml: byte 0 is not UTF-8\. Save it as UTF-8\.$"):
        load(file)


def test_a_number_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is text, as TOML has no other way; what is no number there is refused."""
    text = with_line('messages_per_step = "${STEP}"', 'archive = "topic"\n')
    monkeypatch.setenv("STEP", "many")
    assert problems(tmp_path, text) == ["applier.toml:6: source.messages_per_step: must be a whole number."]

    monkeypatch.setenv("STEP", "400")
    assert load(tmp_path / "applier.toml").source.messages_per_step == 400
