"""Another user, for tests: what is given away is no longer this user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STRANGER = 65534


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place belongs to another user: really where this is root, else by this user's number, which is another one from here on."""
    if os.getuid() == 0:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: STRANGER)
