"""The text of a first configuration: what is known as keys, what is not as comments that say what to fill in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange
from applier.commands.init.look import Findings, Sight
from applier.config.protocols import IN_TOPICS, PROTOCOLS
from applier.runtime.figures import counted

_NAMED = 12
"""Tables that a sentence names."""

MEANINGS = {
    "type": "jdbc, rest, hive, glue, hadoop, nessie or bigquery",
    "uri": "address of the catalog, such as jdbc:postgresql://host/lake or https://host",
    "warehouse": "where tables are stored, such as s3://bucket/lake; or its name",
}
"""The first keys of `[catalog]`, and what they hold."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the user says, with the keys of `[source.kafka]` and `[catalog]`; None where it is not known."""

    kafka: Mapping[str, Any]
    name: str | None = None
    protocol: str | None = None
    registry: str | None = None
    catalog: Mapping[str, str] = field(default_factory=dict)


def protocol_of(answers: Answers, findings: Findings) -> str | None:
    """The protocol that the user names, or that the messages show; None where neither is certain."""
    found = findings.protocols
    return answers.protocol or (found[0] if len(found) == 1 else None)


def text(answers: Answers, sight: Sight) -> str:
    """The configuration as TOML."""
    findings = sight.findings
    protocol = protocol_of(answers, findings)
    sections = [
        ["[changefeed]", *_changefeed(answers, findings, protocol)],
        ["[source.kafka]", *_source(answers, sight.bounds)],
        _registry(answers, protocol),
        ["[catalog]", *_catalog(answers.catalog)],
        ["[upstream]", *_upstream(findings)],
        ["[tables]", *_tables(findings)],
    ]
    head = "# Written by `applier init`. Every key: docs/configuration.md. Check it with `applier check -c FILE`.\n\n"
    return head + "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _changefeed(answers: Answers, findings: Findings, protocol: str | None) -> Iterator[str]:
    yield _line("name", answers.name, "names the changefeed and its control tables: letters, digits, _ and -")
    if protocol is None:
        known = ", ".join(findings.protocols or IN_TOPICS)
        yield _line("protocol", None, f"{_unclear(findings)}: TiCDC's `protocol` of the sink, one of {known}")
        return
    yield _line("protocol", protocol, "")
    traits = PROTOCOLS[protocol].carries
    if findings.messages and findings.has_watermark is False:
        yield f"# None of the {findings.messages} messages looked at has a resolved ts: `applier run` would wait."
        yield f"# TiCDC's option: {traits.resolved_ts}. Where it cannot be turned on, rows can be"
        yield "# applied in the order of their offsets, so that a transaction may be seen in part:"
        yield '# order = "offset"'
    if findings.nameless:
        yield "# TiCDC does not name the time zone of TIMESTAMP values: fill in that of its server."
        yield '# timezone = "UTC"'
    elif traits.schema != "messages" and any("changefeed.timezone" in loss for loss in traits.losses):
        yield '# timezone = "UTC"   # fill in the time zone of the TiCDC server, unless it is UTC'
    if findings.has_claim_checks:
        yield '# claim_check = "s3://…"   # fill in TiCDC\'s claim-check-storage-uri: large rows lie there'


def _unclear(findings: Findings) -> str:
    if not findings.messages:
        return "the topics hold no message yet"
    return "the messages fit several protocols" if findings.protocols else "the messages fit no protocol"


def _source(answers: Answers, bounds: Mapping[TopicPartition, OffsetRange]) -> Iterator[str]:
    for key, value in answers.kafka.items():
        yield _line(key, value, "")
    for topic in sorted({place.topic for place in bounds}):
        spans = {place.partition: span for place, span in bounds.items() if place.topic == topic}
        offsets = counted(sum(it.end - it.start for it in spans.values()), "offset")
        yield f"# Topic {topic}: {counted(len(spans), 'partition')}, {offsets}."
        if cut := [number for number, span in spans.items() if span.start]:
            yield (
                f"# Its first messages are gone from partitions {_listed(cut)}: tables that are older need an export "
                "first (docs/initial-load.md)."
            )
        empty = [number for number, span in spans.items() if span.end == span.start]
        if empty and len(empty) < len(spans):
            yield (
                f"# Partitions {_listed(empty)} hold no message. If TiCDC does not use them, fill in how many it uses: "
                "changefeed.partitions."
            )


def _registry(answers: Answers, protocol: str | None) -> list[str]:
    if answers.registry:
        return ["[registry]", _line("url", answers.registry, "")]
    if protocol and PROTOCOLS[protocol].carries.schema == "registry":
        what = f"address of the schema registry, which {protocol} needs; for AWS's write type, region and registry_name"
        return ["[registry]", _line("url", None, what)]
    return []


def _catalog(known: Mapping[str, str]) -> Iterator[str]:
    yield _line("name", known.get("name", "lake"), "")
    for key in (*MEANINGS, *(other for other in known if other not in (*MEANINGS, "name"))):
        if key != "uri" or known.get("uri") or known.get("type") != "glue":
            yield _line(key, known.get(key), MEANINGS.get(key, ""))


def _upstream(findings: Findings) -> Iterator[str]:
    if older := unmade(findings):
        yield f"# Without a CREATE TABLE among the messages looked at: {named(older)}."
    yield '# dump = "/exports"   # an export of Dumpling, for rows older than the changefeed (docs/initial-load.md)'


def _tables(findings: Findings) -> Iterator[str]:
    if findings.tables:
        yield f"# Seen in the messages looked at: {named(findings.tables)}."
    yield '# include = ["shop.*", "!shop.tmp_*"]   # the tables that are followed; all of them without this line'


def unmade(findings: Findings) -> list[TableName]:
    """Tables of which there are rows among the messages looked at, and no CREATE TABLE."""
    return [name for name in findings.tables if name not in findings.made]


def named(tables: Sequence[TableName]) -> str:
    """Some tables in a sentence: all, or the first and how many more."""
    shown = ", ".join(map(str, tables[:_NAMED]))
    return f"{shown} and {len(tables) - _NAMED} more" if len(tables) > _NAMED else shown


def _line(key: str, value: Any, meaning: str) -> str:
    name = json.dumps(key) if "." in key else key
    if value is None:
        return f'# {name} = "…"   # fill in: {meaning}'
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
