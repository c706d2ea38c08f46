"""The JSON form of checkpoints, as `schemas/checkpoint/v6.json` describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, TypeAlias

import msgspec

from applier.changefeed.checkpoint import Checkpoint, Moving, RequestOutcome, Stop, Tracked
from applier.changefeed.completeness import Completeness
from applier.changefeed.message import Count, TopicPartition
from applier.changefeed.partitioning import Partitioning
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName
from applier.errors import TerminalError
from applier.sink.control import former_words

FORMAT = 6
"""Version of the JSON form. It rises with every new member: a reader drops members that it does not know, and what it
writes next would lack them. Format 1 does not hold the completeness of tables, format 2 not where parked tables left
the others, format 3 not which tables were loaded from an export, format 4 not which names a failed step has moved, and
format 5 says in words why tables are what they are, and not what ended the last run."""

_READ = (1, 2, 3, 4, 5, 6)
"""Formats that this version reads."""

_KEPT = ("database", "table", "name", "version", "place")
"""Members of a table and what belongs to it that are written also where they are empty; others are left out then."""

_Object: TypeAlias = dict[str, Any]
_Identifier = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


def to_json(checkpoint: Checkpoint) -> str:
    """The text form of a checkpoint."""
    return msgspec.json.encode(_written(checkpoint)).decode()


def from_json(text: str | bytes) -> Checkpoint:
    """Read what `to_json` wrote.

    Raises:
        TerminalError: It is no checkpoint, or one of a newer format.
    """
    try:
        return msgspec.convert(_read(msgspec.json.decode(text, type=_Object)), Checkpoint)
    except KeyError as error:
        raise _damaged(f"Object missing required field `{error.args[0]}`") from error
    except (msgspec.MsgspecError, AttributeError, IndexError, TypeError) as error:
        raise _damaged(str(error)) from error


def _damaged(why: str) -> TerminalError:
    what = f"The newest checkpoint is damaged: {why}."
    way_out = "Drop the control table checkpoints and replay: the tables know by their stamps what they have."
    return TerminalError(what, way_out)


def _written(checkpoint: Checkpoint) -> _Object:
    places: list[_Object] = []
    resuming = checkpoint.resuming
    return {
        "format": FORMAT,
        **{field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)},
        "partitions": _written_readings(checkpoint.partitions),
        "snapshots": [{"table": table, "snapshot_id": head} for table, head in sorted(checkpoint.snapshots.items())],
        "tables": [_written_table(name, checkpoint.tables[name], places) for name in sorted(checkpoint.tables)],
        "ddl": [ddl._asdict() for ddl in checkpoint.ddl],
        "passed": _written_passed(checkpoint.passed),
        "resuming": None if resuming is None else {"job": resuming.job, "progress": _written(resuming.progress)},
        "places": places,
        "handled": {key: _written_outcome(item) for key, item in checkpoint.handled.items()},
        "moving": None if checkpoint.moving is None else _written_moving(checkpoint.moving),
        "stopped": None if checkpoint.stopped is None else checkpoint.stopped._asdict(),
        "homes": [{**name.to_dict(), "topics": topics} for name, topics in sorted(checkpoint.homes.items())],
    }


def _read(written: _Object) -> _Object:
    """The members of a checkpoint, as `msgspec.convert` takes them: names and partitions are tuples, and keys."""
    version = msgspec.convert(written["format"], int)
    if version not in _READ:
        what = f"The checkpoint has format {version}, but this applier reads formats 1 to {FORMAT}."
        raise TerminalError(what, "Start the version of applier that wrote it, or a newer one.")
    places, resuming = _objects(written.get("places", ())), written.get("resuming")
    return {
        **written,
        "released": written["released"],
        "counts": written["counts"],
        "partitions": _read_readings(written["partitions"]),
        "snapshots": {
            msgspec.convert(item["table"], _Identifier): item["snapshot_id"] for item in _objects(written["snapshots"])
        },
        "tables": {_name(item): _read_table(item, places) for item in _objects(written.get("tables", ()))},
        "ddl": _read_ddl(written.get("ddl", ())),
        "passed": _read_passed(written.get("passed", ())),
        "resuming": None if resuming is None else (resuming["job"], _read(resuming["progress"])),
        "moving": None if written.get("moving") is None else _read_moving(written["moving"]),
        "stopped": None if (stop := written.get("stopped")) is None else [stop[name] for name in Stop._fields],
        "homes": {_name(item): item["topics"] for item in _objects(written.get("homes", ()))},
        "handled": {key: _read_outcome(item) for key, item in written.get("handled", {}).items()},
    }


def _written_moving(moving: Moving) -> _Object:
    return {
        "tables": [{**name.to_dict(), "commit_ts": ts} for name, ts in sorted(moving.tables.items())],
        "ends": [{**place._asdict(), "offset": end} for place, end in sorted(moving.ends.items())],
    }


def _read_moving(written: _Object) -> tuple[dict[TableName, int], dict[tuple[str, int], int]]:
    tables, ends = _objects(written["tables"]), _objects(written["ends"])
    return {_name(item): item["commit_ts"] for item in tables}, {_place(item): item["offset"] for item in ends}


def _short(members: _Object) -> _Object:
    return {name: value for name, value in members.items() if value or (name in _KEPT and value is not None)}


def _objects(written: Any) -> list[_Object]:
    return msgspec.convert(written, list[_Object])


def _name(written: _Object) -> TableName:
    return TableName(written["database"], written["table"])


def _place(written: _Object) -> tuple[str, int]:
    return written["topic"], written["partition"]


def _written_readings(readings: Mapping[TopicPartition, Reading]) -> list[_Object]:
    return [place._asdict() | reading._asdict() for place, reading in sorted(readings.items())]


def _read_readings(written: Any) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {_place(item): (item["next_offset"], item.get("resolved_ts")) for item in _objects(written)}


def _read_ddl(written: Any) -> list[tuple[Any, ...]]:
    return [(item["sql"], item["table"], item.get("commit_ts", 0)) for item in _objects(written)]


def _written_table(name: TableName, tracked: Tracked, places: list[_Object]) -> _Object:
    known = tracked.completeness
    form = _written_partitioning(tracked.partitioning)
    whole = None if known is None else _written_completeness(known, places)
    return _short({**name.to_dict(), **tracked._asdict(), "partitioning": form, "completeness": whole})


def _written_completeness(known: Completeness, places: list[_Object]) -> _Object:
    members = {field.name: getattr(known, field.name) for field in fields(known)}
    positions = {
        name: None if members[name] is None else _written_position(members[name], places)
        for name in ("position", "origin")
    }
    return _short({**members, **positions, "partners": [partner.to_dict() for partner in known.partners]})


def _written_position(position: FeedPosition, places: list[_Object]) -> _Object:
    at = None
    if position.readings or position.ddl:
        place = {"partitions": _written_readings(position.readings), "ddl": [ddl._asdict() for ddl in position.ddl]}
        if place not in places:
            places.append(place)
        at = places.index(place)
    return _short(
        {
            "name": position.name.to_dict(),
            "ts": position.ts,
            "place": at,
            "version": position.version,
            "partitioning": _written_partitioning(position.partitioning),
            "passed": [{**place._asdict(), "offset": ts} for place, ts in sorted(position.passed.items())],
            "is_loaded": position.is_loaded,
        }
    )


def _read_table(written: _Object, places: Sequence[_Object]) -> tuple[Any, ...]:
    known = written.get("completeness")
    whole = None if known is None else _read_completeness(written, known, places)
    return written["version"], written.get("topic", ""), written.get("partitioning"), whole, written.get("loaded", 0)


def _read_completeness(table: _Object, written: _Object, places: Sequence[_Object]) -> _Object:
    position, origin, words = written.get("position"), written.get("origin"), written.get("lacked")
    return {
        **written,
        "reason": former_words.reason(written) if "state" in written else written["reason"],
        "lacked": former_words.lacked(words) if words and isinstance(words, str) else words or None,
        "position": _former_position(table, written) if position is None else _read_position(position, places),
        "partners": [_name(item) for item in _objects(written.get("partners", ()))],
        "origin": None if origin is None else _read_position(origin, places),
    }


def _written_outcome(outcome: RequestOutcome) -> _Object:
    named = {name: [table.to_dict() for table in getattr(outcome, name)] for name in ("tables", "left")}
    return _short({"done": outcome.done, **named, "notes": outcome.notes})


def _read_outcome(written: Any) -> Any:
    if isinstance(written, str):
        return former_words.outcome(written)
    named = {name: [_name(item) for item in _objects(written.get(name, ()))] for name in ("tables", "left")}
    return {**written, **named}


def _read_position(written: _Object, places: Sequence[_Object]) -> _Object:
    at = written.get("place")
    place = {} if at is None else places[msgspec.convert(at, Count)]
    return {
        "ts": 0,
        **written,
        "name": _name(written["name"]),
        "ddl": _read_ddl(place.get("ddl", ())),
        "readings": _read_readings(place.get("partitions", ())),
        "passed": {_place(item): item["offset"] for item in _objects(written.get("passed", ()))},
    }


def _former_position(table: _Object, written: _Object) -> _Object | None:
    """Where a table of format 2 was parked; None if it missed a DDL, as its columns of that time are not known."""
    since, offsets = written.get("since", 0), _objects(written.get("offsets", ()))
    if written.get("state") != "parked" or written.get("cause") or written.get("missed_ddl") or not (since or offsets):
        return None
    return {
        "name": _name(table),
        "ts": since,
        "readings": {_place(item): (item["offset"],) for item in offsets},
        "version": table["version"],
        "partitioning": table.get("partitioning"),
    }


def _written_partitioning(partitioning: Partitioning | None) -> _Object | None:
    if partitioning is None:
        return None
    form: _Object = msgspec.to_builtins(partitioning)
    return {**form, "partitions": [_short(item) for item in form["partitions"]]}


def _written_passed(passed: Mapping[TableName, Mapping[TopicPartition, int]]) -> list[_Object]:
    """Most partitions of a table have the same DDL: one entry for them all."""
    found: dict[tuple[str, str, str, int], list[int]] = {}
    for name, places in sorted(passed.items()):
        for place, commit_ts in sorted(places.items()):
            found.setdefault((*name, place.topic, commit_ts), []).append(place.partition)
    members = ("database", "table", "topic", "commit_ts")
    return [{**dict(zip(members, key, strict=True)), "partitions": partitions} for key, partitions in found.items()]


def _read_passed(written: Any) -> dict[TableName, dict[tuple[str, int], int]]:
    found: dict[TableName, dict[tuple[str, int], int]] = {}
    for item in _objects(written):
        places, numbers = found.setdefault(_name(item), {}), msgspec.convert(item["partitions"], list[int])
        places |= {(item["topic"], partition): item["commit_ts"] for partition in numbers}
    return found
