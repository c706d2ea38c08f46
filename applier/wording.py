"""The words of every state and of what became of a request: for the log, commands and the page.

Nothing else words them, and nothing decides by a text of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from applier.changefeed.checkpoint import Done, RequestOutcome
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.filter import option
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.ts import wall_clock

_NAMED = 3
"""Most names that a sentence lists."""

CLAUSES: Mapping[Why, str] = {
    Why.WHOLE: "it holds every row",
    Why.ADOPTED: "adopted: {}",
    Why.LOADED_BEFORE: "it was loaded before",
    Why.REPAIRED: "a repair read the range {}",
    Why.NO_CREATE: "the feed does not hold its CREATE TABLE, so earlier rows may be missing",
    Why.UNMET: "its CREATE TABLE was supplied, and no row of it has come, so earlier rows may be missing",
    Why.UNRECORDED: "nothing records what it may lack",
    Why.NOT_FOUND: "the feed changes rows that the table does not hold",
    Why.NOT_READ: "its CREATE TABLE is not read yet",
    Why.NOT_RENAMED: "a RENAME TABLE that gave it its name is ignored, and its Iceberg table has the former name still",
    Why.SKIPPED: "a DDL was skipped (commit ts {})",
    Why.LETTERS: "a message that may hold a row of it was set aside as a dead letter",
    Why.LETTERS_LOST: "a message that may hold a row of it was set aside, and table dead_letters was lost since",
    Why.LATE: "rows that lie before its DDL of commit ts {} came behind it, from a partition that lags",
    Why.EXCHANGED: "it exchanged rows with table {}, which is incomplete",
    Why.CAME_BACK: "it came back from a drop, and what it lacked before is not known",
    Why.MADE_WHILE_PARKED: "it got its name while that was parked, and rows that came with the DDL may be missing",
    Why.LEFT_OUT: "left out by tables.include",
    Why.LEFT_OUT_BEFORE: "tables.include left it out until now",
    Why.BY_HAND: "a user parked it",
    Why.DDL: "a DDL of it cannot be applied",
    Why.ROW: "a row of it cannot be applied",
    Why.TABLE: "others changed its Iceberg table",
    Why.LOST: "it lacks rows that it should hold",
    Why.REBUILT: "a command has it built anew from its CREATE TABLE",
    Why.LOADING: "its rows are still to be loaded",
    Why.CATCHING_UP: "its rows are loaded, and what the feed has changed since is applied",
}
"""Clauses that follow a colon; `{}` is the detail of a reason."""


def clause(reason: Reason) -> str:
    """Why a table is what it is, as a clause that follows a colon."""
    words = CLAUSES[reason.why]
    return words.format(reason.detail) if "{}" in words or not reason.detail else reason.detail


def sentence(name: TableName, known: Completeness) -> str:
    """What is known of the completeness of a table."""
    return f"Table {name} {_is(known)}"


def sentence_of_all(names: Sequence[TableName], known: Completeness) -> str:
    """What is known of tables of which the same is known."""
    if len(names) == 1:
        return sentence(names[0], known)
    return f"Tables {several([*map(str, names)])} {_is(known, 'are')}"


def _is(known: Completeness, verb: str = "is") -> str:
    since = f" since resolved ts {known.since}" if known.is_parked and known.since else ""
    resumes = f" and resume{'s' if verb == 'is' else ''}" if known.is_due and known.shown == "parked" else ""
    return f"{verb} {known.shown}{since}{resumes}: {clause(known.reason)}."


def alike(tables: Iterable[tuple[TableName, Completeness]]) -> list[tuple[list[TableName], Completeness]]:
    """Tables in groups of which the same is known, and which have one way out."""
    groups: dict[tuple[object, ...], tuple[list[TableName], Completeness]] = {}
    for name, known in tables:
        key = known.reason, known.since, known.is_due, known.position is None, known.partners
        groups.setdefault(key, ([], known))[0].append(name)
    return list(groups.values())


def of_this_changefeed(hint: str, config: str) -> str:
    """The hint of an error with the configuration file in its commands."""
    return hint.replace("-c FILE", f"-c {config}")


def way_past_ddl(commit_ts: int, config: str) -> str:
    """How a changefeed goes on that stopped at a refused DDL."""
    skip = f"applier ddl skip {commit_ts} -c {config} --why TEXT"
    return f"run `{skip}` to pass it without its effect, or mend what the reason names; then {start(config)}"


def way_past_letters(config: str) -> str:
    """What shows messages that were set aside, and applies them."""
    again = f"`applier backfill -c {config} --dead-letters`"
    seen = f"see them with `applier dead-letters list -c {config}`"
    return f"{seen}; once their cause is gone, stop the running applier and apply them with {again}."


def start(config: str) -> str:
    """What starts a changefeed."""
    return f"start `applier run -c {config}`."


def begin(config: str) -> str:
    """What begins a changefeed that has no checkpoint yet."""
    load = f"`applier load -c {config} --from DIR`"
    return f"start `applier run -c {config}`; where the database had rows before the changefeed, first run {load}."


def new_lake(changefeed: str, place: str, warehouse: str) -> str:
    """That a lake holds nothing of a changefeed, as one sentence; the warehouse is "" where the catalog knows it."""
    where = f"{place}, in {warehouse}" if warehouse else place
    return (
        f"This lake has no record of changefeed {changefeed}: no tables and no checkpoint. It begins anew at {where}."
    )


WAY_TO_THE_LAKE = (
    "if you expect an existing lake, do not start: move its folder back, or set catalog.uri, catalog.warehouse and "
    "changefeed.name to those of it."
)
"""What to do where another lake begins than the one that a user means."""


def lost_catalog(changefeed: str, place: str, folder: str) -> str:
    """That a catalog names nothing, though its warehouse holds files of the changefeed, as one sentence."""
    return (
        f"The catalog at {place} has no tables, but {folder} holds files of changefeed {changefeed}: their catalog is "
        "another one, or it is lost."
    )


WAY_FROM_OTHER_FORM = (
    "begin a changefeed beside it: set changefeed.name to a new name, and tables.route to a namespace without tables; "
    "then start `applier run -c FILE`; where the topics do not hold every change since the database was empty, first "
    "run `applier load -c FILE --from DIR`."
)
"""What to do where another build of applier wrote the control tables: nothing of that changefeed is touched."""

WAY_FROM_NEWER_FORM = (
    "start that release again, or a newer one: nothing was written, and it goes on from this checkpoint. "
    "A table's property applier.version names the release."
)
"""What to do after a downgrade to a release that cannot read the checkpoint."""

WAY_FROM_DAMAGE = (
    "drop the control table checkpoints in namespace applier_<changefeed.name>, and start `applier run -c FILE`: it "
    "reads the topics from their first messages, and passes over what the tables have."
)
"""What to do where the newest checkpoint cannot be read."""

WAY_FROM_SET_BACK = (
    "set it to its newest snapshot again (system.set_current_snapshot), or drop it, and start `applier run -c FILE`: "
    "what was in it counts as lost then, and tables that may lack rows say so."
)
"""What to do where a control table lacks rows that it had."""

WAY_TO_THE_CATALOG = (
    "set catalog.uri to the catalog of this warehouse, or put a backup of it there; to begin anew, set "
    "catalog.warehouse to a folder without such files."
)
"""What to do where the files of a lake are there and its catalog is not."""

WAY_TO_MOVED_FILES = (
    "if this catalog is a copy, or older than its files, set catalog.uri to the one that is in use, and change "
    "nothing; if the warehouse was moved, move it back, or link it to its former path, where nothing is now; if the "
    "file is lost, restore catalog and files from one backup."
)
"""What to do where a catalog names a file that is not there."""


def register(catalog: str, table: str) -> str:
    """How the catalog gets a table back that it lost, as a clause; the names are as Spark SQL takes them."""
    quoted = table.replace("'", "\\'")
    return (
        "register it again, in Spark SQL with "
        f"`CALL {catalog}.system.register_table(table => '{quoted}', metadata_file => 'FILE')`, where FILE is the "
        "newest *.metadata.json in its folder metadata, which a DROP without PURGE leaves in storage"
    )


def register_again(name: TableName, catalog: str, table: str, config: str) -> str:
    """What brings a table back that the catalog has no longer; catalog and table are as in `register`."""
    return (
        f"{register(catalog, table)}, and start "
        f"`applier run -c {config}`; if that parks it, `applier resume -c {config} --tables {option([name])}` builds "
        "it anew from its CREATE TABLE."
    )


def set_again(name: TableName, call: str, bound: str, config: str) -> str:
    """What makes a table whole that was rolled back: a call in SQL that sets it to its newest snapshot, "" where that
    has expired, or a repair that begins at a bound.
    """
    repair = f"`applier backfill -c {config} --from {bound} --repair --tables {option([name])}`"
    if not call:
        return f"stop the running applier, and run {repair}, which applies what it lacks."
    again = f"set it to that snapshot again, in Spark SQL with `{call}`"
    return f"{again}; or stop the running applier, and apply what it lacks with {repair}."


WAY_TO_WATERMARKS = (
    "turn the watermark on in the sink-uri of TiCDC: `enable-tidb-extension=true`, and for Avro "
    '`avro-enable-watermark=true`, too; or set changefeed.order = "offset". Simple and Open always carry one, once '
    "TiCDC writes to this topic."
)
"""How a feed comes to carry a watermark."""

WAY_TO_SCHEMAS = (
    "TiCDC sends a BOOTSTRAP message every 120 seconds or 10000 rows of a table (`send-bootstrap-interval-in-sec`); "
    "run again when it has, nothing is lost."
)
"""What ends that rows wait for their schema."""

WAY_TO_FAR_WATERMARKS = "raise source.messages_per_step and source.bytes_per_step: a step may read 64 times as much."
"""What lets a step read as far as the next watermark."""


WAY_TO_A_LIVING_FEED = (
    "look at the state of the changefeed in TiCDC with `cdc cli changefeed list --server http://CDC:8300`: one that is "
    "`stopped` or `failed` goes on with `cdc cli changefeed resume`; one that is `normal` does not reach Kafka, or "
    "writes to other topics."
)
"""What to look at where a feed stands still."""


def stands_still(resolved_ts: int) -> str:
    """That no newer watermark comes, as one sentence, for the log, `status`, the page and `/readyz`."""
    since = f"{wall_clock(resolved_ts):%F %T} UTC"
    return f"The feed stands still since {since}: the source answers, but no watermark above {resolved_ts} has come."


def maintenance_behind(tables: int) -> str:
    """That tables get more commits than they are maintained for, as one sentence."""
    of = "1 table" if tables == 1 else f"{tables} tables"
    what = f"The maintenance of {of} is behind by more than a fifth of a limit"
    return f"{what}: raise run.freshness_seconds, or maintain with other tools (docs/maintenance.md)."


def catching_up(behind: str, left: str) -> str:
    """How far a changefeed is that catches up, as one sentence.

    Its tables lag `behind`, "" before the first watermark is applied; what is `left` to read is "" where unknown.
    """
    to_read = f", with {left} to read" if left else ""
    return f"The tables are {behind} behind and catch up{to_read}." if behind else "The first messages are being read."


def nothing_runs(at: str, config: str) -> str:
    """That nothing runs since a run came to its ends at a time, as two sentences."""
    ended = f"No applier runs now: `run --once` ended at {at}, at the ends that the source had when it began."
    return f"{ended} `applier run -c {config}` applies what came later."


def lost_decisions(upto: int) -> str:
    """What is not known where the decisions on DDL up to a commit ts are lost, as one sentence."""
    return (
        f"Control table schema_changes was lost: tables that tables.include left out since before commit ts {upto} are "
        "not listed before a row or a DDL of them comes."
    )


def read_to_its_end(archive: str) -> str:
    """That there is no more in an archive, as one sentence."""
    return f"The archive {archive} is read to its end."


WAY_FROM_AN_ARCHIVE = (
    "end this run with Ctrl-C or SIGTERM: files that come later are read by the next start; one with --once ends here."
)
"""What to do once a run has read an archive, whose files it looks for at its start alone."""


def silent(places: Sequence[TopicPartition]) -> str:
    """That partitions never sent a watermark, as one sentence."""
    return f"No watermark has ever come from {several([*map(str, places)])}, so no table advances."


def way_past_silent(config: str) -> str:
    """What ends that partitions never send a watermark while others do."""
    return (
        "if TiCDC does not use so many partitions (`partition-num`), set changefeed.partitions to the number that it "
        f"uses, and {start(config).rstrip('.')} again; if it is to use them all, pause and resume the changefeed in "
        "TiCDC."
    )


_ENDED: Mapping[Done, str] = {"resumes": "resumed", "catching up": "loaded"}


def outcome(found: RequestOutcome, *, is_ended: bool = False) -> str:
    """What became of a request, in words; `is_ended` where the tables that come back have done so."""
    notes = " ".join(found.notes)
    if found.done in {"refused", "withdrawn", "reloaded"}:
        return " ".join([f"{found.done}:", notes]) if notes else found.done
    word = _ENDED.get(found.done, found.done) if is_ended else found.done
    done = f"{word}: {', '.join(map(str, found.tables))}." if found.tables else "nothing to park."
    if not notes:
        return done
    begin = {"parked": "Left as they were: ", "resumes": "refused: "}.get(found.done, "")
    return f"{done} {begin}{notes}"


def several(names: Sequence[str]) -> str:
    """Some names as people list them: `a`, `a and b`, `a, b and c`, `a, b and 3 others`."""
    if len(names) == 1:
        return names[0]
    first, last = (names[:2], f"{len(names) - 2} others") if len(names) > _NAMED else (names[:-1], names[-1])
    return f"{', '.join(first)} and {last}"
