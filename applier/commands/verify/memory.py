"""Keeps what one `verify` found of each side of a table, so that the next one reads what changed alone.

What it keeps holds whether the sides were equal or not: the hashes of the rows of a piece of TiDB with a checksum, and
of a row group of a data file with its dead rows.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, Self

from applier.commands.verify.against import TIDB
from applier.config.settings import Config
from applier.decode.tidb.piece_reader import MOST_PIECES, Piece, PieceChecksum
from applier.decode.tidb.table_ranges import Bound
from applier.errors import ConfigError, reason_of

_COUNTERS = re.compile(r" AUTO_INCREMENT=\d+| /\*T!\[auto_(?:rand_base|id_cache)\] AUTO_\w+=\d+ \*/")


class Total(NamedTuple):
    """Rows, and the sum of their hashes modulo 2^64."""

    rows: int = 0
    sum: int = 0

    def plus(self, other: Total) -> Total:
        """Those of both."""
        return Total(self.rows + other.rows, (self.sum + other.sum) & 0xFFFFFFFFFFFFFFFF)


class KnownPiece(NamedTuple):
    """A piece of TiDB's table from a bound on, up to the next piece; without a checksum it is read again."""

    low: Bound | None
    checksum: PieceChecksum | None
    total: Total


class KnownGroup(NamedTuple):
    """A row group of a data file.

    Attributes:
        rows: Its rows, dead ones included.
        dead: A digest of the positions of those that are dead.
        total: Its living rows.
    """

    rows: int
    dead: str
    total: Total


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known of both sides of a table.

    Attributes:
        path: The file that keeps it.
        meaning: A digest of what decides how rows are read and hashed; knowledge of another meaning is none.
        seed: That of all hashes of rows, and of TiDB's checksums.
        pieces: All of TiDB's table; () for nothing.
        groups: Those of data files, in order, by `totals.key_of` them.
    """

    path: Path
    meaning: str
    seed: int = field(default_factory=lambda: secrets.randbits(63))
    pieces: Sequence[KnownPiece] = ()
    groups: Mapping[str, Sequence[KnownGroup]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, table: str, meant: Sequence[Any]) -> Self:
        """What a folder has of a table, if it has the same meaning and is undamaged."""
        path, meaning = folder / f"{_digest(table)}.json", _digest(repr(meant))
        try:
            text, _, digest = path.read_text("ascii").rpartition("\n")
            found = json.loads(text) if digest == _digest(text) else {}
        except (OSError, ValueError):
            found = {}
        if found.get("meaning") != meaning:
            return cls(path, meaning)
        pieces = [
            KnownPiece(
                None if low is None else tuple(low), None if sums is None else PieceChecksum(*sums), Total(*total)
            )
            for low, sums, total in found["pieces"]
        ]
        groups = {
            name: [KnownGroup(rows, dead, Total(*total)) for rows, dead, total in own]
            for name, own in found["groups"].items()
        }
        return cls(path, meaning, found["seed"], pieces, groups)

    def save(self) -> None:
        """Write it in place of what the file had.

        Raises:
            ConfigError: The folder cannot be written.
        """
        plain = {"meaning": self.meaning, "seed": self.seed}
        text = json.dumps({**plain, "pieces": _merged(self.pieces), "groups": self.groups})
        # Process ids are no names: in containers that share the folder they are the same.
        part = self.path.with_suffix(f".{secrets.token_hex(8)}.part")
        try:
            part.write_text(f"{text}\n{_digest(text)}", "ascii")
            part.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise ConfigError([f"--memory {self.path.parent}: it cannot be written ({reason_of(error)})."]) from None

    def forget(self) -> None:
        """Remove it: what it says of the two sides does not fit together."""
        with suppress(OSError):
            self.path.unlink()

    def known(self) -> list[tuple[Piece, KnownPiece]]:
        """Each piece, between its bounds."""
        ends = [*(piece.low for piece in self.pieces[1:]), None][: len(self.pieces)]
        return [(Piece(piece.low, end), piece) for piece, end in zip(self.pieces, ends, strict=True)]


def refuse_unremembered(config: Config, against: str, folder: Path) -> None:
    """Refuse, by ConfigError, a folder that cannot be written, and a comparison with what has no checksums."""
    if config.upstream.login is None or against not in ("", TIDB):
        problem = "--memory keeps checksums of TiDB: set upstream.url, and compare with it (--against tidb)."
        raise ConfigError([problem])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError([f"--memory {folder}: it cannot be written ({reason_of(error)})."]) from None


def without_counters(text: str) -> str:
    """The SHOW CREATE TABLE of TiDB without the numbers that rise with each row."""
    return _COUNTERS.sub("", text)


def _merged(pieces: Sequence[KnownPiece]) -> Sequence[KnownPiece]:
    """The same in fewer pieces, as sums of neighbours are those of both."""
    while len(pieces) > 2 * MOST_PIECES:
        pairs = [pieces[at : at + 2] for at in range(0, len(pieces), 2)]
        pieces = [_both(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return pieces


def _both(one: KnownPiece, other: KnownPiece) -> KnownPiece:
    sums = None
    if one.checksum is not None and other.checksum is not None:
        sums = PieceChecksum(one.checksum.rows + other.checksum.rows, one.checksum.sum + other.checksum.sum)
    return KnownPiece(one.low, sums, one.total.plus(other.total))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
