"""How many messages a window may hold, by count and by bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from applier.changefeed.table import TableName
from applier.changefeed.window import Window
from applier.consume.tasks.plan import TASK_BYTES, TASK_MESSAGES

LONGEST = 64
"""How many times the usual size a window may have."""

NO_LIMIT = 2**62

_UNKNOWN_BYTES = 4096.0
"""Bytes of a message before any was read."""

_SHARE = 0.75
"""The part of the bytes that a window is planned for: messages differ, and one that has more is read again."""


class WindowTooLargeError(Exception):
    """A window has more bytes than a step may read. Nothing was applied, and a shorter window can be read."""

    def __init__(self, size: int, messages: int) -> None:
        super().__init__(size, messages)
        self.size = size
        self.messages = messages

    def __str__(self) -> str:
        return f"{self.messages} messages have {self.size} bytes"


@dataclass(frozen=True, slots=True)
class Limits:
    """What each process that decodes may take of a window, and how it cuts its rows.

    Attributes:
        most_bytes: Bytes of messages at which it ends: the window is too large.
        at_once: Messages that a task of several should read at the most.
        here: Messages of a window that this process takes where tasks have no memory for them.
        unsplit: Topics each of whose partitions one task must read from its first message to its last.
        splits: Where ranges of the keys of large tables begin: rows of one are staged together.
        piece_rows: As of `pieces.cut`; 0 for the usual number.
    """

    most_bytes: int = NO_LIMIT
    at_once: int = TASK_MESSAGES
    here: int = NO_LIMIT
    unsplit: frozenset[str] = frozenset()
    splits: Mapping[TableName, Sequence[int]] = field(default_factory=dict)
    piece_rows: int = 0


@dataclass(slots=True)
class WindowSize:
    """The size of the next window: what `source.messages_per_step` and `source.bytes_per_step` allow, several times.

    Attributes:
        shares: What the configuration allows counts so many times, as several processes decode at once.
        stretch: Shares are stretched so many times, because the watermark stood still in a full window.
        is_by_share: What one process can take of it limits the window, however many there are.
    """

    messages_per_step: int
    bytes_per_step: int
    shares: int = 1
    stretch: int = 1
    is_by_share: bool = False
    _message_bytes: float | None = field(default=None, init=False)

    @property
    def times(self) -> int:
        """How many times the window is what one process takes of it unstretched."""
        return max(self.stretch, min(self.stretch * self.shares, LONGEST))

    @property
    def messages(self) -> int:
        """Messages to plan the next window for."""
        return self._usual * self.times

    @property
    def share(self) -> int:
        """Messages of it that one process may have to take: those of a partition that is read whole."""
        return self._usual * self.stretch

    @property
    def _usual(self) -> int:
        limit = self.messages_per_step
        if self._message_bytes:
            limit = min(limit, int(self.bytes_per_step * _SHARE / self._message_bytes))
        return max(1, limit)

    def limits(self, most_bytes: int) -> Limits:
        """Those of a window; a `most_bytes` of `NO_LIMIT` stands for one that cannot be shorter."""
        at_once = min(TASK_MESSAGES, int(TASK_BYTES / (self._message_bytes or _UNKNOWN_BYTES)))
        return Limits(most_bytes, max(1, at_once), NO_LIMIT if most_bytes == NO_LIMIT else self.share)

    @property
    def most_bytes(self) -> int:
        """Bytes at which the reading of a window ends."""
        return self.bytes_per_step * self.stretch

    def bytes_of(self, window: Window) -> float:
        """Bytes that the messages of a window likely have, as those had that were read."""
        return window.messages * (self._message_bytes or _UNKNOWN_BYTES)

    def learn(self, size: int, messages: int) -> None:
        """Expect messages like those that were read."""
        if messages:
            self._message_bytes = size / messages

    def is_longest(self, longest: int) -> bool:
        """Whether a window has `longest` times its usual size."""
        return (self.stretch if self.is_by_share else self.times) >= longest

    def adapt(self, longest: int, *, is_enough: bool) -> None:
        """Go back to the usual size, or allow twice as much if that was not enough; see `is_longest`."""
        if is_enough:
            self.stretch = 1
        elif not self.is_longest(longest):
            self.stretch = min(self.stretch * 2, longest)
