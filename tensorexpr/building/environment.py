"""Numbers that the environment says."""

from __future__ import annotations

import os

from tensorexpr.errors import ArgumentError, user_location


def number_of(variable: str, what: str, least: int = 0, hint: str | None = None) -> int | None:
    """The whole number that an environment variable holds, None where it is not set or empty.

    Raises `ArgumentError` where it holds anything else, or less than `least`; `what` says what it should be.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise ArgumentError(f"{variable}: expected {what}, got {text!r}", location=user_location(), hint=hint)
    return int(text)
