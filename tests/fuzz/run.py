"""Messages made of recorded ones, damaged in every way, through the decoders of all protocols.

    python -m tests.fuzz.run --messages 1000000 --seed 1
    python -m tests.fuzz.run --seed 1 --only 4711        # that message alone, as a failure names it

Each is decoded or refused by name; no other exception, no message that takes seconds, no memory that grows.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fuzz.corpus import Feed, Message, feeds
from tests.fuzz.judge import Fault, Judge
from tests.fuzz.mutants import Mutants

SCENARIOS = ("types", "pk", "ddl", "partition")
BATCH = 50
"""Messages of one feed that go through a row pass together."""

GROWTH_MIB = 32
"""Memory that the process may gain in the second half of a run; in the first, a hundred decoders fill their caches."""

LONG_ENOUGH = 200_000
"""Messages of a run whose second half is judged: each decoder has been renewed by then (`judge.LIVES`)."""

_HANG_SECONDS = 120
"""Seconds without a finished round after which the process prints where it is and ends."""


@dataclass(slots=True)
class Outcome:
    """What became of a run.

    Attributes:
        counts: See `Judge`; and `messages`.
        slowest: CPU seconds of the slowest message.
        memory: MiB of this process at the start, after a quarter, half, three quarters, and at the end.
        seconds: CPU seconds of the run.
    """

    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    memory: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        memory = " → ".join(map(str, self.memory))
        return f"{parts}; slowest {self.slowest:.3f} CPU s; {self.seconds:.0f} CPU s; memory {memory} MiB"


def fuzz(sources: Sequence[Feed], messages: int, seed: int, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Judge so many mutants.

    Raises:
        Fault: One of them is neither decoded nor refused by name.
        MemoryError: The process gained more than `GROWTH_MIB` in the second half of a run that is `LONG_ENOUGH`.
    """
    mutants, outcome, started = Mutants(sources, seed), Outcome(), time.process_time()
    judges = {feed.name: Judge(feed) for feed in sources}
    waiting: dict[str, list[tuple[int, Message]]] = {feed.name: [] for feed in sources}
    outcome.memory.append(resident())
    quarter = max(messages // 4, 1)
    for number in range(messages):
        feed, message = mutants.make(number)
        queue = waiting[feed.name]
        queue.append((number, message))
        if len(queue) == BATCH:
            judges[feed.name].take(queue, [mutants.whole(other) for other, _ in queue])
            queue.clear()
        if (number + 1) % quarter == 0:
            faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
            outcome.memory.append(resident())
            tell(f"{number + 1:,} messages, {outcome.memory[-1]} MiB")
        elif number % 1000 == 0:
            faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
    for name, queue in waiting.items():
        judges[name].take(queue, [mutants.whole(number) for number, _ in queue])
    faulthandler.cancel_dump_traceback_later()
    for judge in judges.values():
        outcome.counts += judge.counts
    outcome.slowest = max(judge.slowest for judge in judges.values())
    outcome.seconds = time.process_time() - started
    if messages >= LONG_ENOUGH and outcome.memory[-1] - outcome.memory[2] > GROWTH_MIB:
        msg = f"the process grew: {outcome}"
        raise MemoryError(msg)
    return outcome


def resident() -> int:
    """MiB of memory that this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 >> 20


def main() -> int:
    """Run as a command: 0 if all is well, 1 with the message that is not."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", type=int, help="number of a single message of that seed")
    chosen = options.parse_args()
    sources = feeds(SCENARIOS)
    kinds = sum(len(feed.messages) for feed in sources)
    protocols = len({feed.protocol for feed in sources})
    print(f"{kinds:,} recorded messages of {len(sources)} changefeeds, {protocols} protocols; seed {chosen.seed}")
    try:
        if chosen.only is not None:
            feed, message = Mutants(sources, chosen.seed).make(chosen.only)
            judge = Judge(feed)
            judge.take([(chosen.only, message)], [Mutants(sources, chosen.seed).whole(chosen.only)])
            print(f"{feed.protocol} ({feed.name}): {dict(judge.counts)}")
        else:
            print(fuzz(sources, chosen.messages, chosen.seed, partial(print, flush=True)))
    except Fault as fault:
        print(f"seed {chosen.seed}, {fault}", file=sys.stderr)
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
