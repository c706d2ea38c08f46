"""Generated files: fresh, complete, and true of what they are generated from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from applier.changefeed import types
from applier.changefeed.types import arrow_type
from applier.config.protocols import PROTOCOLS, ProtocolName
from applier.decode.protocols import MAKERS
from tests import schemas


def test_generated_files_are_fresh() -> None:
    """The repository holds what would be generated now."""
    assert schemas.stale() == []


def test_a_stale_file_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` exits with 1 and says what to do."""
    monkeypatch.setattr(schemas, "stale", lambda: [schemas.ROOT / "docs" / "types.md"])

    assert schemas.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/types.md is stale: run `make schemas`.\n"


def test_a_document_without_a_place_is_an_error(tmp_path: Path) -> None:
    """A marker that somebody removed does not leave the part out in silence."""
    (tmp_path / "docs").mkdir()
    for name in ("docs/protocols.md", "docs/types.md", "docs/watching.md"):
        (tmp_path / name).write_text("nothing\n", encoding="utf-8")

    with pytest.raises(LookupError, match="no place for its generated part 'capabilities'"):
        schemas.generated(tmp_path)


def test_every_protocol_is_in_the_tables() -> None:
    """A decoder that is added appears without anybody remembering to."""
    assert MAKERS.keys() == PROTOCOLS.keys() == set(get_args(ProtocolName))
    assert all(f"| `{name}` |" in schemas.capability_table() for name in MAKERS)
    assert all(f"### `{name}`" in schemas.losses() for name in MAKERS)


def test_every_type_is_in_the_table() -> None:
    """The rows name each type that TiDB has, and each type has a row."""
    # `instant` is the type of a column of applier's own, beside those of TiDB.
    known = {*types._FIXED, "decimal", "bit"} - {"instant"}
    named = {word.partition("(")[0] for label in schemas.TYPES for word in label.replace(",", " ").split()}

    assert known - named == set()
    assert all(arrow_type(column) is not None for column in schemas.TYPES.values())


def test_the_schema_of_the_configuration_has_the_sections() -> None:
    """Editors are told of each section, and that unknown keys are wrong."""
    schema = json.loads(schemas.config_schema())

    assert {"changefeed", "source", "catalog", "tables", "ddl", "sink", "run", "spark"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
