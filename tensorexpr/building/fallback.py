"""Where an optimisation fails the plain form is taken: a defect of ours costs speed, never a result.

What can be made in several forms is made by `first_sound`: forms in order, the one that is wanted first, each simpler than the one before.
A form that cannot be made by a fault of this package (an `InternalError`, a verifier that refuses, an error of Python's, text that LLVM
does not take) is passed over. One `FallbackWarning` says so and names a file, with all that a report needs, in the folder for
temporary files. What is the user's to mend (every other `TensorExprError`) is raised as it is. Where no form can be made, that is an
`InternalError` with the same file.

TENSOREXPR_STRICT=1 raises the first failure in place of the warning: our tests run so.
"""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple, TypeVar

from tensorexpr.errors import FallbackWarning, InternalError, Location, TensorExprError, raised_by_user, user_location

_STRICT = "TENSOREXPR_STRICT"
_LONGEST = 200  # characters of a failure that a warning quotes

Made = TypeVar("Made")


class Failure(NamedTuple):
    """Why a form could not be made, and the file for a report (None where none could be written)."""

    form: str
    reason: str
    file: str | None


def strict() -> bool:
    """Whether a form that cannot be made is an error."""
    return os.environ.get(_STRICT, "").strip() not in ("", "0")


def first_sound(what: str, forms: Sequence[tuple[str, Callable[[], Made]]], text: Callable[[], str]) -> tuple[Made, Failure | None]:
    """What the first of the forms that can be made gives, and why those before it could not be.

    `what` names the operation for people, `text` gives what a report shows of it. Raises what is the user's to mend, the first failure in
    strict mode, and `InternalError` where no form can be made.
    """
    failure: Failure | None = None
    for place, (name, make) in enumerate(forms, 1):
        try:
            made = make()
        except Exception as error:
            if _is_users(error) or strict():
                raise
            failure = failure or _reported(what, name, error, text)
            if place < len(forms):
                continue
            raise InternalError(
                f"{what}: expected code in some form, got {failure.reason} for {failure.form}, and {reason(error)} for {name}",
                location=user_location(),
                hint=_request(failure.file),
            ) from error
        if failure is not None:
            warn(what, failure, name)
        return made, failure
    raise AssertionError("there is at least one form")


def _is_users(error: Exception) -> bool:
    """Whether an error is the user's to mend: said so, or raised by code of the user's that we called (a rule of a gradient)."""
    if isinstance(error, TensorExprError):
        return not isinstance(error, InternalError)
    return raised_by_user(error)


def reason(error: BaseException) -> str:
    """An error in one line."""
    found = error.message if isinstance(error, TensorExprError) else " ".join(str(error).split())
    if not isinstance(error, TensorExprError):
        found = f"{type(error).__name__}: {found}" if found else type(error).__name__
    return found if len(found) <= _LONGEST else f"{found[: _LONGEST - 4]} ..."


def warn(what: str, failure: Failure, taken: str) -> None:
    """Says once per operation and process, at the user's line, that another form was taken."""
    with _lock:
        if (what, failure.reason) in _said:
            return
        _said.add((what, failure.reason))
    message = (
        f"{what}: {failure.form} could not be made ({failure.reason}). {taken[:1].upper()}{taken[1:]} runs instead: its results are right, "
        f"it may be much slower. {_request(failure.file).capitalize()}."
    )
    at = user_location() or Location("tensorexpr", 1)
    warnings.warn_explicit(message, FallbackWarning, at.file, at.line)


_said: set[tuple[str, str]] = set()
_lock = threading.Lock()


def _request(file: str | None) -> str:
    with_file = "" if file is None else f" with {file}"
    return f"this is a defect of tensorexpr: please report it{with_file}"


def _reported(what: str, form: str, error: Exception, text: Callable[[], str]) -> Failure:
    """The failure, written to a file of its own, which nobody else can read or put in place."""
    try:
        shown = text()
    except Exception as second:
        shown = f"(the program cannot be printed: {second!r})"
    parts = (
        f"tensorexpr {version('tensorexpr')}, llvmlite {version('llvmlite')}, numpy {version('numpy')}, "
        f"Python {platform.python_version()}, {platform.platform()}",
        f"{what}: {form} could not be made",
        "".join(traceback.format_exception(error)),
        shown,
    )
    try:
        handle, path = tempfile.mkstemp(prefix="tensorexpr-report-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write("\n\n".join(parts) + "\n")
    except OSError:
        return Failure(form, reason(error), None)
    return Failure(form, reason(error), path)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
