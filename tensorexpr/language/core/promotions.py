"""Warnings where a dtype that follows from NumPy's rules is hardly the one that is meant: once for each line of the user's."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

from tensorexpr.errors import Location, PromotionWarning, user_frame, user_location

_LANGUAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_WRAPPER = os.path.join(os.path.dirname(os.path.dirname(_LANGUAGE)), "hints.py")

_warned: set[object] = set()


def is_written_by_user() -> bool:
    """Whether the language was called from a line of the user's, and not from one of the library or of a derivative."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_LANGUAGE, _WRAPPER)):
        frame = frame.f_back
    return frame is not None and frame is user_frame()


def warn(text: str) -> None:
    """A `PromotionWarning` at the user's line, the first time there."""
    place = user_location() or Location("tensorexpr", 1)
    if place not in _warned:
        _warned.add(place)
        warnings.warn_explicit(text, PromotionWarning, place.file, place.line)
