"""The JSON form of checkpoints, as `schemas/checkpoint/v2.json` describes it.

The classes are the form: a member that one of them gets is written and read without a word here, save for those of the
checkpoint itself, which have an order.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from applier.changefeed.checkpoint import Checkpoint, RequestOutcome, Tracked
from applier.changefeed.completeness import Completeness, Reason
from applier.changefeed.message import Count, TopicPartition
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import Partition, TableName
from applier.errors import TerminalError
from applier.sink.control.tables import newer_form, other_form
from applier.wording import WAY_FROM_DAMAGE

_Object: TypeAlias = dict[str, Any]

FORMAT = 2
"""Version of the JSON form. It rises with the first new member after a release, and with any other change: an older
reader would drop members that it does not know, and what it writes next would lack them."""

_SHORT = (Tracked, Completeness, Reason, FeedPosition, RequestOutcome, Partition)
"""Objects whose empty members are not written: there may be one for each table."""

_KEPT = ("name", "version", "place")
"""Their members that are written also where they are empty; others are left out then."""

_OWN = ("snapshots", "passed")
"""Members of a checkpoint that are written like no others."""

_GROUPS = ("lease", "feed", "cut")
"""Members of a checkpoint that the form does not have: it has theirs."""

_NAMES = {"heads": "snapshots", "at": "cut_at"}
"""Members of these that have another name in the form."""

_NEW: Mapping[int, _Object] = {1: {"cut_at": 0}, FORMAT: {}}
"""By format that is read: members that it lacks, with what they are where they are not known."""

_ORDER = (
    *("epoch", "step", "resolved_ts", "written_at", "holder", "released", "unfenced", "fenced", "partitions", "tables"),
    *("ddl", "topic_ids", "counts", "protocol", "resuming", "handled", "moving", "stopped", "is_lost", "control_rows"),
    *("homes", *_OWN, "cut_at"),
)
"""The members of a checkpoint as they are written."""

_Identifier = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


def to_json(checkpoint: Checkpoint) -> str:
    """The text form of a checkpoint."""
    return msgspec.json.encode(_written(checkpoint)).decode()


def from_json(text: str | bytes) -> Checkpoint:
    """Read what `to_json` wrote.

    Raises:
        TableMismatch: It is a checkpoint of another form.
        TerminalError: It is damaged.
    """
    try:
        return msgspec.convert(_read(msgspec.json.decode(text, type=_Object)), Checkpoint)
    except KeyError as error:
        raise _damaged(f"Object missing required field `{error.args[0]}`") from error
    except (msgspec.MsgspecError, AttributeError, IndexError, TypeError) as error:
        raise _damaged(str(error)) from error


def _damaged(why: str) -> TerminalError:
    return TerminalError(f"The newest checkpoint is damaged: {why}.", WAY_FROM_DAMAGE)


def _written(checkpoint: Checkpoint) -> _Object:
    places: list[_Object] = []
    return {
        "format": FORMAT,
        **{
            name: plain(kind, attrgetter(path)(checkpoint), places)
            for name, (path, kind) in _flat().items()
            if name not in _OWN
        },
        "snapshots": [{"table": table, "snapshot_id": head} for table, head in sorted(checkpoint.cut.heads.items())],
        "passed": _written_passed(checkpoint.feed.passed),
        "places": places,
    }


def _read(written: _Object) -> _Object:
    """The members of a checkpoint, as `msgspec.convert` takes them: names and partitions are tuples, and keys."""
    number = msgspec.convert(written["format"], int)
    if number > FORMAT:
        raise newer_form(number, FORMAT)
    if number not in _NEW:
        raise other_form(f"the newest checkpoint has format {number}")
    members, new = _flat(), _NEW[number]
    if new.keys() & written.keys():
        raise other_form("the newest checkpoint has other members")
    written = {**written, **new}
    if written.keys() != {"format", "places", *members}:
        raise other_form("the newest checkpoint has other members")
    snapshots, places = _objects(written["snapshots"]), _objects(written["places"])
    found = {
        **{name: built(kind, written[name], places) for name, (_, kind) in members.items() if name not in _OWN},
        "snapshots": {msgspec.convert(item["table"], _Identifier): item["snapshot_id"] for item in snapshots},
        "passed": _read_passed(written["passed"]),
    }
    kinds = _members(Checkpoint)
    theirs = {group: {name: found[_NAMES.get(name, name)] for name in _members(kinds[group])} for group in _GROUPS}
    return found | theirs


@cache
def _flat() -> dict[str, tuple[str, Any]]:
    """The members of the form of a checkpoint in their order: where a checkpoint has each, and its type."""
    kinds = _members(Checkpoint)
    own = {name: (name, kind) for name, kind in kinds.items() if name not in _GROUPS}
    inner = ((group, name, of) for group in _GROUPS for name, of in _members(kinds[group]).items())
    theirs = {_NAMES.get(name, name): (f"{group}.{name}", of) for group, name, of in inner}
    return dict(sorted((own | theirs).items(), key=lambda item: _ORDER.index(item[0])))


@cache
def _members(kind: Any) -> dict[str, Any]:
    """The members of an object and their types, by their names; {} for what is no object."""
    if kind is TableName:
        return {"database": str, "table": str}
    return get_type_hints(kind, include_extras=True) if is_dataclass(kind) or hasattr(kind, "_fields") else {}


@cache
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...], str]:
    """What a type is beside None, the types in it, and for a mapping the name of its values in lists of objects."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _shape(args[0])
    if origin is not collections.abc.Mapping or args[0] is str or _members(args[1]):
        return origin or kind, args, ""
    names = {TableName: "commit_ts" if get_origin(args[1]) is Annotated else "topics", TopicPartition: "offset"}
    return origin, args, names.get(args[0], "")


def plain(kind: Any, value: Any, places: list[_Object]) -> Any:
    """A value of some type as JSON has it."""
    if value is None or isinstance(value, str | int):
        return value
    kind, inner, member = _shape(kind)
    if isinstance(value, Checkpoint):
        return _written(value)
    if isinstance(value, Mapping):
        found = {key: plain(inner[1], item, places) for key, item in value.items()}
        names = _members(inner[0])
        if not names:
            return found
        entries = [(dict(zip(names, key, strict=True)), found[key]) for key in sorted(found)]
        return [entry | ({member: item} if member else item) for entry, item in entries]
    if kind is tuple:
        return [plain(inner[0], item, places) for item in value]
    written = {name: plain(of, getattr(value, name), places) for name, of in _members(kind).items()}
    if isinstance(value, FeedPosition):
        written["place"] = _put({"partitions": written.pop("readings"), "ddl": written.pop("ddl")}, places)
    if not isinstance(value, _SHORT):
        return written
    return {name: item for name, item in written.items() if item or (name in _KEPT and item is not None)}


def _put(place: _Object, places: list[_Object]) -> int | None:
    """The number of a place, which tables share that left there; None for an empty one."""
    if not any(place.values()):
        return None
    if place not in places:
        places.append(place)
    return places.index(place)


def built(kind: Any, written: Any, places: list[_Object]) -> Any:
    """What `plain` has written, as `msgspec.convert` takes it."""
    if written is None or isinstance(written, int):
        return written
    kind, inner, member = _shape(kind)
    if kind is Checkpoint:
        return _read(written)
    if kind is collections.abc.Mapping:
        if not (names := _members(inner[0])):
            return {key: built(inner[1], item, places) for key, item in written.items()}
        entries = [(_named(inner[0], [item[name] for name in names]), item) for item in _objects(written)]
        return {key: built(inner[1], item[member] if member else item, places) for key, item in entries}
    if kind is tuple:
        return [built(inner[0], item, places) for item in written]
    return _object(kind, written, places) if _members(kind) else written


def _object(kind: Any, written: Any, places: list[_Object]) -> Any:
    """The members of an object; of a tuple and a name all of them in their order."""
    if kind is FeedPosition:
        at = written.get("place")
        place = {} if at is None else places[msgspec.convert(at, Count)]
        written = {"ts": 0, **written, "readings": place.get("partitions", ()), "ddl": place.get("ddl", ())}
    found = {name: built(of, written[name], places) for name, of in _members(kind).items() if name in written}
    if is_dataclass(kind):
        return found
    return _named(kind, [found[name] if name in found else kind._field_defaults[name] for name in _members(kind)])


def _named(kind: Any, values: list[Any]) -> Any:
    return TableName(*values) if kind is TableName else tuple(values)


def _objects(written: Any) -> list[_Object]:
    return msgspec.convert(written, list[_Object])


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
        places = found.setdefault(TableName(item["database"], item["table"]), {})
        numbers = msgspec.convert(item["partitions"], list[int])
        places |= {(item["topic"], partition): item["commit_ts"] for partition in numbers}
    return found
