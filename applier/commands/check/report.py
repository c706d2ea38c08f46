"""What `applier check` found: nouns, their JSON, and the exit code that follows from them."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
_WORST = tuple(_EXIT)
"""Each verdict outweighs those before it."""


@dataclass(frozen=True, slots=True)
class SystemAnswer:
    """What one system says, in one sentence, or that it says nothing; `way_out` is "" where nothing is to be done."""

    checked: str
    verdict: Verdict
    result: str
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class VersionReport:
    """One registered version of a subject, with its table; "" where it cannot be read.

    It is readable if the decoder of the protocol reads messages that are written with it; `reason` says why not.
    """

    version: int
    schema_id: int | str
    table: str
    is_readable: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SubjectReport:
    """One subject of the registry, `key` or `value`, with all its registered versions.

    At its compatibility level the registry refuses the upstream changes `breaks`: TiCDC stops at them. The verdict is
    whether everything is readable and, by its mode, writable; the reasons say why not.
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
    """One column upstream and in Iceberg: whether its values can be written, and why not, or what is special.

    A type is "" where that side has no such column.
    """

    name: str
    upstream: str
    iceberg: str
    fits: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableReport:
    """One upstream table and its Iceberg table, which need not exist.

    The upstream columns are known from the `registry` or the `control table`. The verdict is whether rows of the newest
    schema can be written, with the reasons why not, or how the applier will get there.
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
    """What the registry does with the schema that a change leads to, `avro`, at the compatibility level of its subject.

    Of the versions that it was compared with some break rules of the level; the messages are the registry's own words.
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
    """What becomes of one Iceberg table: the steps in order, and why it is refused, or under which conditions.

    The present columns are known from `control table`, `registry` or `iceberg`; "" for none. Values of the columns
    `converted` may park the table.
    """

    table: str
    iceberg: str
    outcome: TableOutcome
    known_from: str = ""
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()
    converted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What the registry and the applier do with one coming change, by the text of a statement or the name of a file.

    Its kinds are those of the statement's actions, as policies under `[ddl]` name them. The verdict is whether
    replication goes on; the reasons say why that cannot be told, or why the schema is unusable.
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
    """Everything that `applier check` found; what was not asked, or is not there, is ().

    Warnings name what the tables will lack because of the protocol or its options, and problems what did not answer.
    """

    changefeed: str
    protocol: str
    capabilities: Capabilities
    systems: tuple[SystemAnswer, ...] = ()
    warnings: tuple[str, ...] = ()
    subjects: tuple[SubjectReport, ...] = ()
    tables: tuple[TableReport, ...] = ()
    changes: tuple[ChangeReport, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all verdicts: what certainly does not fit outweighs what could not be determined."""
        parts: tuple[SystemAnswer | SubjectReport | TableReport | ChangeReport, ...]
        parts = (*self.systems, *self.subjects, *self.tables, *self.changes)
        return worst([*(part.verdict for part in parts), "cannot tell" if self.problems else "fits"])

    @property
    def exit_code(self) -> int:
        """0 fits, 1 does not fit, 2 cannot tell."""
        return _EXIT[self.verdict]

    def to_json(self) -> str:
        """The report as one JSON object; `docs/check.md` lists its keys, which stay."""
        return json.dumps(asdict(self) | {"verdict": self.verdict, "exit_code": self.exit_code}, indent=2)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides: `does not fit`, then `cannot tell`, then `fits`."""
    return max(verdicts, key=_WORST.index, default="fits")
