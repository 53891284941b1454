"""Who sits at this machine."""

from __future__ import annotations

import getpass
import os


def who() -> str:
    """The user's name; a user id without a name is one too."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
