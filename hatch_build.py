"""Builds the commit into wheels and source archives, as the file `applier/commit`; without one, none is claimed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file, but not to an editable install, which asks its checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Take the commit from `APPLIER_COMMIT`, as the image gives it, or from the checkout."""
        if version == "editable" or (Path(self.root) / "applier" / "commit").exists():
            return
        if commit := os.environ.get("APPLIER_COMMIT") or _described(Path(self.root)):
            self._folder = tempfile.TemporaryDirectory()
            file = Path(self._folder.name) / "commit"
            file.write_text(f"{commit}\n", encoding="ascii")
            build_data["force_include"][str(file)] = "applier/commit"


def _described(root: Path) -> str:
    # As `applier.runtime.versions.commit` does, which a build cannot import.
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
