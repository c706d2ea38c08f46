"""The ways out of a table that lacks rows or was dropped upstream: log, `status`, page, webhook, errors print these."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from applier.changefeed.completeness import Completeness, Why
from applier.changefeed.filter import exactly, option
from applier.changefeed.table import TableName
from applier.errors import ANY_TABLE, BY_HAND, EXPORT, RELOAD

_BY_FILES = "`applier load -c FILE --from DIR --tables TABLE`"
_BY_LOAD = {
    Why.NO_CREATE,
    Why.UNMET,
    Why.NOT_FOUND,
    Why.LATE,
    Why.EXCHANGED,
    Why.CAME_BACK,
    Why.MADE_WHILE_PARKED,
    Why.NOT_RENAMED,
    Why.LOST,
}
"""What the feed lacks as often as it is read: only upstream has the rows."""


def export(names: Sequence[TableName]) -> str:
    """The command that exports exactly these tables; HOST, PORT and USER are those of the TiDB, DIR is a new folder."""
    return EXPORT.replace(ANY_TABLE, " ".join(f"--filter {_quoted(name)}" for name in names))


def _quoted(name: TableName) -> str:
    plain = option([name])
    return plain if plain.startswith("'") else shlex.quote(exactly([name])[0])


@dataclass(frozen=True, slots=True)
class WaysOut:
    """Words the ways out of a changefeed.

    Attributes:
        config: Path of the configuration file, for commands.
        has_url: `upstream.url` names a TiDB, from which `applier load` reads rows without an export.
    """

    config: str = "applier.toml"
    has_url: bool = False

    def load(self, names: Sequence[TableName]) -> str:
        """What brings rows in from upstream, as a clause."""
        if self.has_url:
            return f"run `applier load -c {self.config} --tables {option(names)}`"
        load = f"`applier load -c {self.config} --from DIR --tables {option(names)}`"
        return f"export {_them(names)} with `{export(names)}` and run {load}"

    def of_error(self, hint: str, name: TableName) -> str:
        """The hint of an error that concerns a table, with commands for this table of this changefeed."""
        load = self.load([name])
        reload = f"{load[:1].upper()}{load[1:]}; or leave it out in tables.include."
        hint = hint.replace(RELOAD, reload).replace(BY_HAND, f"{load}.")
        if self.has_url:
            hint = hint.replace(_BY_FILES, _BY_FILES.replace(" --from DIR", ""))
        hint = hint.replace("-c FILE", f"-c {self.config}").replace(ANY_TABLE, f"--filter {_quoted(name)}")
        return hint.replace("--tables TABLE", f"--tables {option([name])}")

    def of(self, names: Sequence[TableName], known: Completeness) -> str:
        """What makes tables live again of which the same is known, as a sentence."""
        found = self._of(names, known)
        if not known.is_due:
            return f"{found}."
        may_fail = known.why in (Why.DDL, Why.ROW, Why.TABLE)
        again = f"; if {'they are' if len(names) > 1 else 'it is'} parked again: {found}" if may_fail else ""
        return f"`applier run -c {self.config}` brings {_them(names)} back{again}."

    @staticmethod
    def of_dropped(catalog: str, namespace: str, table: str) -> str:
        """What becomes of a kept table that was dropped upstream, as a sentence; the parts of its name are quoted."""
        place = f"{catalog}.{namespace}.{table}"
        back = "RECOVER TABLE or FLASHBACK TABLE upstream brings it back"
        # Spark takes the new name for one within the same catalog, which it may not name.
        rename = f"to keep it for good, give it another name in Spark: `ALTER TABLE {place} RENAME TO {namespace}.NAME`"
        remove = f"to remove it with its files, run this in Spark: `DROP TABLE {place} PURGE`"
        return f"Leave it as it is, and {back}; {rename}; {remove}."

    def _of(self, names: Sequence[TableName], known: Completeness) -> str:
        config, tables, them = self.config, option(names), _them(names)
        load = self.load(names)
        resume = f"run `applier resume -c {config} --tables {option([*names, *known.partners])}`"
        anew = f"{resume} if the feed still holds {'their' if len(names) > 1 else 'its'} CREATE TABLE; or {load}"
        match known.why:
            case Why.LOADING | Why.CATCHING_UP:
                return self._load_again(tables)
            case Why.LEFT_OUT:
                forget = f"`applier forget -c {config} --tables {tables}`"
                back = load if known.position is None else f"`applier run -c {config}` resumes {them}"
                return f"admit {them} in tables.include again, and {back}; or run {forget}"
            case _ if known.is_parked and known.position is None:
                return f"{load}; or leave {them} out in tables.include"
            case Why.LETTERS:
                letters = f"`applier backfill -c {config} --dead-letters`"
                discard = f"`applier dead-letters discard -c {config} --all --why TEXT`"
                return f"stop the running applier, and run {letters} or {discard}"
            case Why.SKIPPED:
                adopt = f"`applier adopt -c {config} --tables {tables} --why TEXT`"
                by_hand = f"bring the Iceberg table{_s(names)} to what upstream has, and run {adopt}"
                return f"{load}; or stop the running applier, {by_hand}"
            case Why.TABLE:
                return f"restore {them} and start `applier run -c {config}` again; or {anew}"
            case Why.DDL | Why.ROW:
                return self._past(known, load, resume)
            case _ if known.why in _BY_LOAD:
                return load
            case _ if known.is_parked:
                return resume
        return anew

    def _load_again(self, tables: str) -> str:
        if self.has_url:
            return f"run `applier load -c {self.config} --tables {tables}` again, which goes on"
        same = f"`applier load -c {self.config} --from DIR --tables {tables}`"
        return f"run {same} again, with the export that it had, which goes on"

    def _past(self, known: Completeness, load: str, resume: str) -> str:
        """How tables get past what could not be applied: what keeps them equal to their upstream comes first."""
        # A partner may be all that is in its way.
        found = [f"{resume}; if it is parked again, {load}"] if known.partners else [load]
        if known.reason.mend:
            # A load meets the same row.
            place = len(found) if known.why is Why.DDL else 0
            found.insert(place, f"{resume} once you have done this: {known.reason.mend.rstrip('.')}")
        if known.reason.ddl:
            skip = f"applier ddl skip {known.reason.ddl} -c {self.config} --why TEXT"
            found.append(
                f"stop the running applier, run `{skip}`, which passes the DDL without its effect, then {resume}"
            )
        return "; or ".join(found)


def _s(names: Sequence[TableName]) -> str:
    return "s" if len(names) > 1 else ""


def _them(names: Sequence[TableName]) -> str:
    return "them" if len(names) > 1 else "it"
