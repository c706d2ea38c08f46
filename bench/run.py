"""The command `python -m bench.run`: runs scenarios on this machine and prints what they cost.

python -m bench.run [SCENARIO ...] [--quick] [--peers[=merge,flink]] [--events N] [--tables N] [--save NAME] …
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from bench.field import Playground
from bench.idle import idle
from bench.load.compared import WAYS, compared
from bench.machine import describe
from bench.peers import PEERS
from bench.report import render
from bench.say import tell
from bench.scenario import resized, scenarios
from bench.storage import ENDPOINT, slow_s3
from bench.watching import watched
from tests.services.kafka import Broker, broker
from tests.services.registry import Registry, registry_server

_RESULTS = Path(__file__).parent / "results"
_ROOT = Path(__file__).parent.parent

_ORDINARY = (
    "catch-up",
    "catch-up-canal",
    "protocols",
    "updates",
    "batches",
    "hot",
    "tables",
    "freshness",
    "load",
    "watching",
    "idle",
)
_QUICK = ("catch-up", "tables", "load")

_LOAD, _WATCHING, _IDLE = _OTHERS = "load", "watching", "idle"
"""One reads files and no topic, the others look into the job or at its rest: none is a `Scenario`."""


def main() -> None:
    """Run what the arguments name; exit 1 if a contender failed or its table is wrong."""
    arguments = _arguments()
    sys.exit(_again_on_s3() if arguments.storage == "s3" and not ENDPOINT else _run(arguments))


def _again_on_s3() -> int:
    """Run the same beside an S3 server whose address each process finds in its environment; the exit code."""
    with slow_s3() as endpoint:
        command = [sys.executable, "-m", "bench.run", *sys.argv[1:]]
        return subprocess.run(command, env=os.environ | {"BENCH_S3": endpoint}, check=False).returncode


def _run(arguments: argparse.Namespace) -> int:
    known = scenarios(quick=arguments.quick, tables=arguments.tables)
    chosen = arguments.scenario or (_QUICK if arguments.quick else _ORDINARY)
    if unknown := [name for name in chosen if name not in {*known, *_OTHERS}]:
        names = ", ".join([*known, *_OTHERS])
        sys.exit(f"There is no scenario {', '.join(unknown)}; there are {names}.")
    peers = [name for name in arguments.peers.split(",") if name]
    if unknown := [name for name in peers if name not in PEERS]:
        sys.exit(f"There is no peer {', '.join(unknown)}; there are {', '.join(PEERS)}.")
    arguments.work.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.work.absolute()))
    (work / "kafka").mkdir()
    parts = [describe(), ""]
    print(parts[0], flush=True)
    well = True
    with ExitStack() as stack:

        @cache
        def kafka() -> Broker:
            return stack.enter_context(broker(work / "kafka", heap="1g"))

        @cache
        def registry() -> Registry:
            (work / "registry").mkdir()
            return stack.enter_context(registry_server(work / "registry"))

        others = {
            _LOAD: lambda: _load(work / _LOAD, arguments),
            _WATCHING: lambda: watched(work / _WATCHING, kafka()),
            _IDLE: lambda: (idle(work / _IDLE, kafka()), True),
        }
        for name in chosen:
            if name in others:
                text, is_right = others[name]()
            else:
                playground = Playground(work, kafka(), registry, arguments.repeat, peers)
                tables = playground.measure(resized(known[name], arguments.events))
                is_right = all(entry.verdict in {"", "exact"} for table in tables for entry in table.entries)
                text = render(f"{name}: {known[name].title}", tables)
            well &= is_right
            parts.append(text)
            print("\n" + parts[-1], flush=True)
            if not arguments.keep:
                shutil.rmtree(work / name, ignore_errors=True)
    if not arguments.keep:
        shutil.rmtree(work, ignore_errors=True)
    if arguments.save:
        _save(arguments.save, "\n".join(parts))
    return 0 if well else 1


def _load(folder: Path, arguments: argparse.Namespace) -> tuple[str, bool]:
    sizes = arguments.rows or [arguments.events or (100_000 if arguments.quick else 3_000_000)]
    return compared(folder, sizes, arguments.ways, arguments.repeat, arguments.exports)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.run", description="Measure applier, and what it is compared with.")
    parser.add_argument("scenario", nargs="*", help="scenarios to run; without any, the ordinary ones")
    parser.add_argument("--events", type=int, help="row events of every topic, instead of the scenarios' own numbers")
    parser.add_argument("--tables", type=int, help="tables of the scenario `tables`, with a hundred events each")
    rows = "rows of each export of `load`"
    parser.add_argument("--rows", type=int, nargs="+", help=rows)
    ways = "how `load` brings them in"
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help=ways)
    exports = "folder that keeps the exports of `load` for later runs"
    parser.add_argument("--exports", type=Path, metavar="DIR", help=exports)
    parser.add_argument("--quick", action="store_true", help="little data, few scenarios: does everything still work")
    others = "run other ways to apply the topic as well; alone, merge-on-read and Flink SQL"
    parser.add_argument("--peers", nargs="?", const="merge,flink", default="", metavar="NAME,NAME", help=others)
    parser.add_argument("--repeat", type=int, default=1, help="runs of each contender, in turns; the median is shown")
    parser.add_argument("--save", metavar="NAME", help="keep the result as bench/results/NAME.txt")
    storage = "where the lakes are: folders, or an S3 server with ordinary latency, whose requests are counted"
    parser.add_argument("--storage", choices=("local", "s3"), default="local", help=storage)
    parser.add_argument("--work", type=Path, default=_ROOT / "bench-work", help="folder for data")
    parser.add_argument("--keep", action="store_true", help="leave data and logs in it")
    return parser.parse_args()


def _save(name: str, text: str) -> None:
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / f"{name}.txt").write_text(text, encoding="utf-8")
    tell(f"kept in {_RESULTS / f'{name}.txt'}")


if __name__ == "__main__":
    main()
