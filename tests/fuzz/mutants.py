"""Number of a message in, that mutant out: the same one for the same seed, whatever came before it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.fuzz.corpus import Feed, Message
from tests.fuzz.damage import PLAIN
from tests.fuzz.reshape import reshape


@dataclass(frozen=True, slots=True)
class Mutants:
    """An endless row of mutants.

    Args:
        feeds: What they are made of.
        seed: Names the row.
    """

    feeds: Sequence[Feed]
    seed: int

    def make(self, number: int) -> tuple[Feed, Message]:
        """The feed whose decoder gets the mutant, and the mutant."""
        dice, feed, message = self._drawn(number)
        kind = dice.randrange(20)
        if kind == 0:
            return feed, self._foreign(feed, message, dice)
        if kind == 1:
            return feed, _exchanged(feed, message, dice)
        if kind < 11:
            message = reshape(message, feed.protocol, feed.messages, dice)
            if dice.randrange(4):
                return feed, message
        for _ in range(dice.choice((1, 1, 1, 3))):
            message = self._damaged(feed, message, dice)
        return feed, message

    def whole(self, number: int) -> Message:
        """The message that a mutant is made of, as it was recorded."""
        return self._drawn(number)[2]

    def _drawn(self, number: int) -> tuple[random.Random, Feed, Message]:
        dice = random.Random(f"{self.seed} {number}")
        feed = dice.choice(self.feeds)
        return dice, feed, dice.choice(feed.messages)

    def _damaged(self, feed: Feed, message: Message, dice: random.Random) -> Message:
        key, value = message
        if dice.randrange(4) == 0:
            return self._broken(feed, key, 0, dice), value
        return key, self._broken(feed, value, 1, dice)

    def _broken(self, feed: Feed, data: bytes | None, part: int, dice: random.Random) -> bytes | None:
        if not data:
            return dice.choice((None, b"", b"\0", b"{}"))
        if dice.randrange(10) == 0:
            # Spliced: it goes on as another one of the same feed does.
            other = dice.choice(feed.messages)[part] or b""
            at = dice.randrange(len(data))
            return data[:at] + other[min(at, len(other)) if dice.randrange(2) else dice.randrange(len(other) + 1) :]
        return dice.choice(PLAIN)(data, dice)

    def _foreign(self, feed: Feed, message: Message, dice: random.Random) -> Message:
        """Whole or in part a message of another feed, mostly of another protocol."""
        other = dice.choice(dice.choice(self.feeds).messages)
        head, tail = message[1] or b"", other[1] or b""
        cut = dice.randrange(len(head) + 1)
        spliced = message[0], head[:cut] + tail[min(cut, len(tail)) :]
        return dice.choice((other, (message[0], other[1]), (other[0], message[1]), spliced))


def _exchanged(feed: Feed, message: Message, dice: random.Random) -> Message:
    """Key and value changed round, or those of two messages, or one of them missing."""
    key, value = message
    other = dice.choice(feed.messages)
    return dice.choice(((value, key), (other[0], value), (key, None), (None, value), (key, b""), (b"", value)))
