"""The name of the user, for the audit."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The user's name; the number where the system has no name for it, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
