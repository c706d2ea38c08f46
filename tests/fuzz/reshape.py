"""A message that holds JSON in, another that is JSON still out: members moved, values exchanged, numbers swollen."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from tests.fuzz.corpus import Message
from tests.fuzz.respell import STATEMENTS, respell

_DEEP, _HUGE, _SPLIT = "\x01deep", "\x01huge", "\x01split"
_RAW = {
    json.dumps(_DEEP).encode(): b"[" * 5000 + b"]" * 5000,
    json.dumps(_HUGE).encode(): b"1e999",
    json.dumps(_SPLIT).encode(): b'"\xff\xfe\x80"',
}
"""What `json` does not write, by the text that stands for it."""

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    -0.0,
    1.5,
    1e308,
    (1 << 31) - 1,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63) - 1,
    (1 << 64) - 1,
    1 << 64,
    10**400,
    -(10**400),
    "",
    "0",
    "-0",
    "1e9",
    "9" * 4400,
    "0." + "9" * 100,
    "NaN",
    "Infinity",
    "0000-00-00",
    "2020-13-45 99:99:99",
    "9999-12-31 23:59:59.9999999",
    "-838:59:59",
    "\x00",
    "\ud800",
    "\U0001f600" * 3,
    "`a`.\"b\" 'c'",
    "AAAA====",
    "\\x80\\u",
    "[1,2,null]",
    "decimal(65,30)",
    "decimal(99999,99999)",
    "enum('a','b'",
    "bit(64)",
    "vector",
    "unspecified",
    [],
    {},
    [[]],
    {"": ""},
    _DEEP,
    _HUGE,
    _SPLIT,
)

Place: TypeAlias = tuple[Any, Any]
"""A container and the index or name of one of its members."""


def reshape(message: Message, protocol: str, donors: Sequence[Message], dice: random.Random) -> Message:
    """Change the JSON in a key or a value; what holds none comes back as it was."""
    key, value = message
    donor = dice.choice(donors)
    if protocol == "open":
        number = dice.randrange(2)
        changed = _in_frames(message[number], number, donor[number], dice)
        return (changed, value) if number == 0 else (key, changed)
    if key and key[:1] == b"{" and dice.randrange(5) == 0:
        return _reshaped(key, donor[0], dice), value
    if value and value[:2] == b"\x01{":
        return key, b"\x01" + (_reshaped(value[1:], donor[1], dice) or b"")
    return key, _reshaped(value, donor[1], dice)


def _in_frames(data: bytes | None, number: int, donor: bytes | None, dice: random.Random) -> bytes | None:
    """One of the frames of Open's key or value, with the lengths made right again, or nearly."""
    start = 8 if number == 0 else 0
    frames = list(_frames(data or b"", start))
    if not frames:
        return data
    others = list(_frames(donor or b"", start))
    at = dice.randrange(len(frames))
    match dice.randrange(8):
        case 0:
            frames.insert(at, dice.choice(others or frames))
        case 1:
            del frames[at]
        case 2:
            frames = frames * dice.choice((2, 100))
        case _:
            frames[at] = _reshaped(frames[at], dice.choice(others or frames), dice) or b""
    wrong = dice.choice((0,) * 12 + (1, -1, 1 << 40))
    return (data or b"")[:start] + b"".join(
        struct.pack(">Q", max(len(frame) + (wrong if place == at else 0), 0)) + frame
        for place, frame in enumerate(frames)
    )


def _frames(data: bytes, start: int) -> Iterator[bytes]:
    while start + 8 <= len(data):
        end = start + 8 + int(struct.unpack_from(">Q", data, start)[0])
        if end > len(data):
            return
        yield data[start + 8 : end]
        start = end


def _reshaped(data: bytes | None, donor: bytes | None, dice: random.Random) -> bytes | None:
    try:
        tree = json.loads(data or b"")
    except (ValueError, RecursionError):
        return data
    places = list(_places(tree))
    if not places:
        return data
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(_CHANGES)(places, donor, dice)
    return _written(tree)


def _written(tree: Any) -> bytes:
    text = json.dumps(tree, separators=(",", ":")).encode()
    for stand_in, raw in _RAW.items():
        text = text.replace(stand_in, raw)
    return text


def _places(tree: Any) -> Iterator[Place]:
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, member in members:
        yield tree, name
        yield from _places(member)


def _holds(place: Place) -> bool:
    """Whether it is still there after the changes before."""
    container, name = place
    return name in container if isinstance(container, dict) else name < len(container)


def _exchange_value(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    container, name = place = dice.choice(places)
    if _holds(place):
        container[name] = _copy(dice.choice(VALUES))


def _delete(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    container, name = place = dice.choice(places)
    if _holds(place):
        del container[name]


def _leave_out(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    """Some members of one object, or all."""
    container, _ = dice.choice(places)
    if isinstance(container, dict) and container:
        for name in dice.sample(sorted(container), dice.randrange(1, len(container) + 1)):
            del container[name]


def _respell(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    """The text of a DDL, in other letters and quotes."""
    for container, name in places:
        if name in STATEMENTS and isinstance(container, dict) and isinstance(container.get(name), str):
            container[name] = respell(container[name], dice)


def _swap(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    one, other = dice.choice(places), dice.choice(places)
    # A copy, or a container would come to hold itself.
    if _holds(one) and _holds(other):
        one[0][one[1]], other[0][other[1]] = _copy(other[0][other[1]]), _copy(one[0][one[1]])


def _rename(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    container, name = place = dice.choice(places)
    if isinstance(container, dict) and _holds(place):
        names = [other for _, other in places if isinstance(other, str)]
        container[dice.choice([*names, "", "\x00", "\ud800", name + " ", name.upper()])] = container.pop(name)


def _repeat(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    container, name = place = dice.choice(places)
    if _holds(place):
        member = container[name]
        container[name] = member * 200 if isinstance(member, str | list) and len(member) < 200 else [_copy(member)] * 3


def _digits(places: list[Place], _donor: bytes | None, dice: random.Random) -> None:
    """A number one off, or of the other sign, or as text."""
    numbers = [p for p in places if _holds(p) and type(p[0][p[1]]) in (int, float)]
    if numbers:
        container, name = dice.choice(numbers)
        number = container[name]
        container[name] = dice.choice((number + 1, number - 1, -number, number * 1000, str(number), [number]))


def _from_donor(places: list[Place], donor: bytes | None, dice: random.Random) -> None:
    """A member of another message."""
    try:
        tree = json.loads(donor or b"")
    except (ValueError, RecursionError):
        return
    others = list(_places(tree))
    if others:
        (container, name), (source, part) = place, _ = dice.choice(places), dice.choice(others)
        if _holds(place):
            container[name] = _copy(source[part])


def _copy(tree: Any) -> Any:
    return json.loads(json.dumps(tree)) if isinstance(tree, dict | list) else tree


_Change = Callable[[list[Place], "bytes | None", random.Random], None]
_CHANGES: tuple[_Change, ...] = (
    _exchange_value,
    _exchange_value,
    _exchange_value,
    _delete,
    _leave_out,
    _respell,
    _swap,
    _rename,
    _repeat,
    _digits,
    _from_donor,
)
