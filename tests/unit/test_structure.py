"""The rules for the shape of the package hold, and the script that checks them finds what breaks them."""

from __future__ import annotations

from pathlib import Path

from tests.structure import CLASS_LINES, FILE_LINES, offenders


def test_the_package_keeps_its_shape() -> None:
    """No file or class is too long, no two classes have one name, and no two files import each other."""
    assert offenders() == []


def test_every_rule_finds_its_offender(tmp_path: Path) -> None:
    """A long file, a long class, a name that comes twice and a circle of imports are each named."""
    root = tmp_path / "package"
    folder = root / "room"
    folder.mkdir(parents=True)
    (folder / "file0.py").write_text("class Twice:\n" + "    x = 1\n" * CLASS_LINES)
    (folder / "file1.py").write_text("class Twice:\n    pass\n" + "y = 1\n" * FILE_LINES)
    (folder / "one.py").write_text("def f() -> None:\n    from package.room import other\n")
    (folder / "other.py").write_text("if TYPE_CHECKING:\n    from package.room.one import f\n")

    assert offenders(root) == [
        f"Class Twice in package/room/file0.py has {CLASS_LINES + 1} lines, at most {CLASS_LINES} are allowed.",
        f"package/room/file1.py has {FILE_LINES + 2} lines, at most {FILE_LINES} are allowed.",
        "2 classes have the name Twice: package/room/file0.py, package/room/file1.py.",
        "Modules import each other: package.room.one ← package.room.other ← package.room.one.",
    ]
