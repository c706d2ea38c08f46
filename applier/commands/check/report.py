"""What `applier check` found: nouns, their JSON, and the exit code that follows from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from applier.config.protocols import Capabilities

Verdict: TypeAlias = Literal["fits", "does not fit", "cannot tell"]
"""`fits`: nothing stops. `does not fit`: TiCDC or the applier stops. `cannot tell`: something did not answer."""

RegistryOutcome: TypeAlias = Literal["accepted", "refused", "unchanged", "new subject", "cannot tell"]
"""What the registry does with a coming schema; `unchanged`: it is registered already, so nothing is asked."""

TableOutcome: TypeAlias = Literal[
    "in place", "rewritten", "refused", "ignored", "nothing to do", "created", "dropped", "cannot tell"
]
"""What becomes of an Iceberg table; `in place` changes metadata or rows named by it, `rewritten` all data files."""

_EXIT: dict[Verdict, int] = {"fits": 0, "cannot tell": 2, "does not fit": 1}


@dataclass(frozen=True, slots=True)
class VersionReport:
    """One registered version of a subject.

    Attributes:
        version: Its number within the subject.
        schema_id: Id of its schema.
        table: The table it describes; "" where it cannot be read.
        is_readable: The decoder of the protocol reads messages that are written with it.
        reason: Why not.
    """

    version: int
    schema_id: int
    table: str
    is_readable: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SubjectReport:
    """One subject of the registry.

    Attributes:
        subject: Its name.
        role: `key` or `value`.
        level: Compatibility level that counts for it.
        mode: `READWRITE`, `READONLY`, ….
        breaks: Upstream changes that the registry refuses at this level: TiCDC stops at them.
        versions: All registered versions.
        verdict: Whether everything is readable and writable.
        reasons: Why not.
    """

    subject: str
    role: str
    level: str
    mode: str
    breaks: tuple[str, ...]
    versions: tuple[VersionReport, ...]
    verdict: Verdict
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """One column upstream and in Iceberg.

    Attributes:
        name: Its name.
        upstream: Type as the feed shows it; "" for a column that only the Iceberg table has.
        iceberg: Type of the Iceberg column; "" where it is missing.
        fits: Whether its values can be written.
        reason: Why not, or what is special.
    """

    name: str
    upstream: str
    iceberg: str
    fits: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableReport:
    """One upstream table and its Iceberg table.

    Attributes:
        table: Upstream name.
        iceberg: Identifier of the Iceberg table.
        exists: Whether it is there.
        known_from: Where the upstream columns come from: `registry` or `control table`.
        columns: All columns.
        verdict: Whether the newest upstream schema can be written.
        reasons: Why not, or how the applier will get there.
        ways_out: What to do about it.
    """

    table: str
    iceberg: str
    exists: bool
    known_from: str
    columns: tuple[ColumnReport, ...]
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """What the registry does with the schema that a change leads to.

    Attributes:
        subject: The subject.
        level: Its compatibility level.
        outcome: What happens.
        compared_with: Versions that the registry compared with.
        rules: Rules of the level that are broken, one sentence each.
        messages: The registry's own words.
        ways_out: What to do about it.
        avro: The coming schema.
    """

    subject: str
    level: str
    outcome: RegistryOutcome
    compared_with: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()
    avro: str = ""


@dataclass(frozen=True, slots=True)
class TableAnswer:
    """What becomes of one Iceberg table.

    Attributes:
        table: Upstream name.
        iceberg: Identifier of the Iceberg table.
        outcome: What happens.
        known_from: Where the present columns come from: `control table`, `registry` or `iceberg`; "" for none.
        steps: What is done, in order.
        reasons: Why it is refused, or under which conditions.
        ways_out: What to do about it.
    """

    table: str
    iceberg: str
    outcome: TableOutcome
    known_from: str = ""
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """Answer to one coming change.

    Attributes:
        asked: `ddl` or `schema`.
        text: The statement, or the name of the file.
        kinds: Kinds of the statement's actions, as policies under `[ddl]` name them.
        registry: What the registry does, by subject.
        tables: What the applier does, by table.
        notes: What else to know.
        verdict: Whether replication goes on.
        reasons: Why it could not be determined.
    """

    asked: Literal["ddl", "schema"]
    text: str
    kinds: tuple[str, ...] = ()
    registry: tuple[RegistryAnswer, ...] = ()
    tables: tuple[TableAnswer, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: Verdict = "fits"
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `applier check` found.

    Attributes:
        changefeed: Name of the changefeed.
        protocol: Its protocol.
        capabilities: What the protocol carries.
        warnings: What the tables will lack because of the protocol or its options.
        subjects: Subjects of the registry; () without one.
        tables: Tables whose upstream columns are known.
        changes: Answers to `--schema` and `--ddl`.
        problems: What did not answer, one sentence each.
    """

    changefeed: str
    protocol: str
    capabilities: Capabilities
    warnings: tuple[str, ...] = ()
    subjects: tuple[SubjectReport, ...] = ()
    tables: tuple[TableReport, ...] = ()
    changes: tuple[ChangeReport, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all verdicts: what certainly does not fit outweighs what could not be determined."""
        return worst(self._verdicts())

    @property
    def exit_code(self) -> int:
        """0 fits, 1 does not fit, 2 cannot tell."""
        return _EXIT[self.verdict]

    def to_json(self) -> str:
        """The report as one JSON object; `docs/check.md` lists its keys, which stay."""
        return json.dumps(asdict(self) | {"verdict": self.verdict, "exit_code": self.exit_code}, indent=2)

    def _verdicts(self) -> Iterator[Verdict]:
        yield from (subject.verdict for subject in self.subjects)
        yield from (table.verdict for table in self.tables)
        yield from (change.verdict for change in self.changes)
        if self.problems:
            yield "cannot tell"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides: `does not fit`, then `cannot tell`, then `fits`."""
    found = set(verdicts)
    order: tuple[Verdict, ...] = ("does not fit", "cannot tell", "fits")
    return next((verdict for verdict in order if verdict in found), "fits")
