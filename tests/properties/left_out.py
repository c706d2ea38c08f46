"""A recorded message in JSON in, the same message without some of its members out; and what a message says."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from applier.changefeed.event import Bootstrap, Event, Image, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.ddl.parser import parse
from applier.decode.decoder import Decoder
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, SchemaChangeRefused
from tests.fuzz.corpus import Feed, Message

Path: TypeAlias = tuple[Any, ...]
"""Names of members and places in lists, from the outside in."""

_COLUMN = re.compile(r"^((?:payload\.)?(?:data|old|u|p|d|before|after|mysqlType|sqlType)(?:\.#)?)\.(.+)$")


def parts(feed: Feed, message: Message) -> Iterator[tuple[str, Any, Callable[[Any], Message]]]:
    """Each JSON document of a message: `key` or `value`, the document, and how to put another in its place."""
    for number, where in enumerate(("key", "value")):
        data = message[number] or b""
        head, body = _framed(data, number) if feed.protocol == "open" else (b"", data)
        if body[:1] == b"{":
            yield where, json.loads(body), _put_back(message, number, head, is_framed=feed.protocol == "open")


def _framed(data: bytes, number: int) -> tuple[bytes, bytes]:
    """The head of Open's key or value, and its only event; b"" if it holds several."""
    start = 0 if number else 8
    (length,) = struct.unpack_from(">Q", data, start)
    return data[:start], data[start + 8 :] if len(data) == start + 8 + length else b""


def _put_back(message: Message, number: int, head: bytes, *, is_framed: bool) -> Callable[[Any], Message]:
    def put(document: Any) -> Message:
        body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        data = head + (struct.pack(">Q", len(body)) if is_framed else b"") + body
        return (data, message[1]) if number == 0 else (message[0], data)

    return put


def members(document: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all members of all objects."""
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, member in pairs:
        if isinstance(document, dict):
            yield (*path, name)
        yield from members(member, (*path, name))


def without(document: Any, paths: Sequence[Path]) -> Any:
    """The document without some members."""
    copy = deepcopy(document)
    for path in paths:
        holder = copy
        for name in path[:-1]:
            holder = holder.get(name) if isinstance(holder, dict) else holder[name] if holder else None
            if holder is None:
                break
        if isinstance(holder, dict):
            holder.pop(path[-1], None)
    return copy


def named(path: Path) -> str:
    """A path in words: places in lists are `#`, names of columns `*`."""
    text = ".".join("#" if isinstance(name, int) else name for name in path)
    return _COLUMN.sub(r"\1.*", text)


def said(feed: Feed, decoder: Decoder, message: Message) -> list[Any]:
    """What a message says, in a form that compares; columns have the types that DDL gave their table.

    Raises:
        DecodeError: It is refused, or one of its values is.
    """
    versions = {(version.name, version.version): version for version in feed.versions}
    found = []
    for event in decoder.decode(*message):
        if isinstance(event, Bootstrap):
            versions[event.version.name, event.version.version] = event.version
            found += [] if feed.protocol != "simple" else [event.version]
        else:
            found.append(_told(feed, decoder, versions, event))
    return found


def _told(feed: Feed, decoder: Decoder, versions: dict[tuple[TableName, int], TableVersion], event: Event) -> Any:
    if isinstance(event, RowChange):
        version = versions.get((event.name, event.version))
        typed = feed.typed.get(event.name)
        if version is None:
            return "it waits for its schema"
        version = version if typed is None else version.refined(typed)
        images = [_values(version, decoder, image) for image in (event.before, event.after)]
        return event.name, event.commit_ts, event.op.name, *images, version.key
    if isinstance(event, SchemaChange):
        try:
            actions = parse(event.sql, event.database)
        except SchemaChangeRefused:
            return "its statement is refused"
        return event.commit_ts, actions, event.after
    return event


def _values(version: TableVersion, decoder: Decoder, image: Image | None) -> dict[str, str] | None:
    if image is None:
        return None
    columns = [column for column in version.columns if column.name in image]
    return {
        column.name: repr(to_array([image[column.name]], column, decoder.wire, TypeRules(), column.name)[0].to_pylist())
        for column in columns
    }


def _decoder(feed: Feed) -> Decoder:
    decoder = feed.renew()
    for version in [*feed.versions, *feed.typed.values()]:
        decoder.learn(version)
    return decoder


def samples(feed: Feed) -> Iterator[tuple[Message, list[Any]]]:
    """A message of each kind, and of each table a row of each kind, with what it says."""
    seen = set()
    for message in feed.messages:
        try:
            found = said(feed, _decoder(feed), message)
        except DecodeError:
            continue
        kind = re.sub(rb"[0-9]+|`[^`]*`", b"", (message[1] or b"")[:90]), str(found)[:30]
        if kind not in seen:
            seen.add(kind)
            yield message, found


def differs(feed: Feed, message: Message, found: list[Any]) -> bool:
    """Whether a message says something else, and neither is refused nor waits."""
    try:
        without_it = said(feed, _decoder(feed), message)
    except DecodeError:
        return False
    return without_it != found and not any(isinstance(item, str) for item in without_it)


def reason(feed: Feed, where: str, path: Path, known: Mapping[tuple[str, str], str]) -> str | None:
    """Why a message may differ without a member of its JSON; None where it may not."""
    return reason_of(feed.protocol, f"{where} {named(path)}", known)


def reason_of(protocol: str, name: str, known: Mapping[tuple[str, str], str]) -> str | None:
    """Why a message of a protocol may differ without what is named; None where it may not."""
    return next((why for (of, rule), why in known.items() if of == protocol and re.fullmatch(rule, name)), None)
