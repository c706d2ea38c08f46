"""Bytes of a message in, the same bytes with something done to them out; they know nothing of any protocol."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import cramjam
import lz4.frame

INTERESTING = bytes([0, 1, 2, 3, 0x16, 0x22, 0x2C, 0x3A, 0x5B, 0x5C, 0x5D, 0x7B, 0x7D, 0x7F, 0x80, 0x81, 0xFE, 0xFF])
PIECES = (
    b"\xff" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80" * 40,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"[" * 2000 + b"]" * 2000,
    b"(" * 2000,
    b"9" * 5000,
    b"-1e999",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"null",
    b'"":"",',
    b"\0" * 16,
    b"\x16\x06\x06\x02",
    b"\x04\x22\x4d\x18",
)
"""What is put between the bytes: long lengths, deep nesting, huge numbers, text that is not UTF-8."""

LENGTHS = (0, 1, 2, 7, 0x7F, 0x80, 0xFFFF, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)

Damage = Callable[[bytes, random.Random], bytes]
"""Takes bytes, of which there is at least one."""


def flip(data: bytes, dice: random.Random) -> bytes:
    """A few bits are the other ones."""
    broken = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
    return bytes(broken)


def overwrite(data: bytes, dice: random.Random) -> bytes:
    """A byte is one that means something."""
    at = dice.randrange(len(data))
    return data[:at] + bytes([dice.choice(INTERESTING)]) + data[at + 1 :]


def truncate(data: bytes, dice: random.Random) -> bytes:
    """The end is missing."""
    return data[: dice.randrange(len(data))]


def remove(data: bytes, dice: random.Random) -> bytes:
    """A few bytes are missing."""
    at = dice.randrange(len(data))
    return data[:at] + data[at + dice.randrange(1, 17) :]


def insert(data: bytes, dice: random.Random) -> bytes:
    """Something stands between the bytes."""
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice(PIECES) + data[at:]


def repeat(data: bytes, dice: random.Random) -> bytes:
    """A part stands there twice, or many times."""
    at = dice.randrange(len(data))
    part = data[at : at + dice.randrange(1, 200)]
    return data[:at] + part * dice.choice((2, 2, 3, 50)) + data[at:]


def relength(data: bytes, dice: random.Random) -> bytes:
    """Eight or four bytes are a length that does not fit, in the byte order of either protocol's."""
    order = dice.choice(("<Q", ">Q", ">Q", ">I"))
    size = struct.calcsize(order)
    # The first bytes of a message hold lengths and ids more often than others do.
    at = dice.choice((0, 1, 8, dice.randrange(len(data))))
    # Small numbers are ids of schemas, too.
    number = dice.choice((*LENGTHS, len(data), len(data) - at - size, dice.getrandbits(16), dice.getrandbits(6)))
    return data[:at] + struct.pack(order, number & ((1 << 8 * size) - 1)) + data[at + size :]


def noise(_data: bytes, dice: random.Random) -> bytes:
    """Nothing is left of it."""
    return dice.choice((b"", b'{"', b"\0\0\0\0\1", b"\1", b"\2", b"\3")) + dice.randbytes(dice.randrange(60))


def squeeze(data: bytes, dice: random.Random) -> bytes:
    """It is compressed, as large-message-handle-compression does, and then damaged or not."""
    small = lz4.frame.compress(data) if dice.randrange(2) else bytes(cramjam.snappy.compress_raw(data))
    return dice.choice((flip, overwrite, truncate, remove, relength))(small, dice) if dice.randrange(3) else small


PLAIN: tuple[Damage, ...] = (
    flip,
    flip,
    flip,
    overwrite,
    overwrite,
    truncate,
    remove,
    remove,
    insert,
    insert,
    repeat,
    relength,
    relength,
    noise,
    squeeze,
)
"""Each as often as it is listed."""
