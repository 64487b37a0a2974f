"""Errors: whose fault it is, what was expected, what came, where, and what to do.

Every error of the package is a `TensorExprError`. The user's side has one class per stage of the way through
(definition, differentiation, schedule, target, argument); `InternalError` is ours and asks for a report. A message has
at most four lines: ``expected X, got Y``, then ``in:`` (the term and the user's file and line), ``at:`` and ``hint:``.
"""

from __future__ import annotations

import opcode
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

from tensorexpr.records import record

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent
# In a checkout the rooms lie beside this folder; installed plainly they lie in it, and what is beside belongs to others.
_BESIDE = () if (_PACKAGE_ROOT / "tensorexpr" / "codegen").is_dir() else ("autodiff", "codegen", "kernels", "graph", "interop")
_OWN_FOLDERS = tuple(str(_PACKAGE_ROOT / folder) + "/" for folder in ("tensorexpr", *_BESIDE))

_GENERATED = ("<string>", "<frozen ")
"""Code without a source; what is typed at a prompt or in a notebook has one (`<stdin>`, `<ipython-input-3>`)."""

_BETWEEN = ("numpy", "contextlib", "functools", "jax", "torch")
"""Modules that may stand between the user's line and this package: `np.sum(A)`, a context manager, a transform of JAX."""


@record
class Location:
    """A line of the user's source: `file` as Python reports it, `line` counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_frame() -> FrameType | None:
    """The innermost caller outside this package (None when everything is ours)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    return frame


def user_location() -> Location | None:
    """The line of the innermost caller outside this package: what the user wrote (None when everything is ours)."""
    frame = user_frame()
    return None if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


def is_users(frame: FrameType) -> bool:
    """Whether a frame is one of the user's code."""
    file = frame.f_code.co_filename
    module = frame.f_globals.get("__name__", "").partition(".")[0]
    return not file.startswith(_OWN_FOLDERS) and not file.startswith(_GENERATED) and module not in _BETWEEN


def failure_location(error: BaseException, room: str | None = None) -> Location | None:
    """The user's line at which Python itself failed: a tuple unpacked to another length, a division by zero.

    None where a `raise` statement made the error (that is its author's own word), or where the line is not the user's. Where it failed
    in a file of the folder `room`, one of ours, it is the user's line that led there.
    """
    traceback = error.__traceback__
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    raised = opcode.opname[frame.f_code.co_code[traceback.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    if not raised and room is not None and os.path.dirname(frame.f_code.co_filename) == room and not is_users(frame):
        return user_location()
    return None if raised or not is_users(frame) else Location(frame.f_code.co_filename, traceback.tb_lineno)


def raised_by_user(error: BaseException) -> bool:
    """Whether an error comes from code that is neither ours nor a library's: innermost, but for libraries that it called."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    for file in reversed(frames):
        if file.startswith((*_OWN_FOLDERS, *_GENERATED)):
            return False
        if not file.startswith(_LIBRARIES):
            return True
    return False


_LIBRARIES = tuple({str(Path(sysconfig.get_path(name))) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})

_LONGEST = 1000
"""Characters of a message that is shown whole. A longer one has a value of the caller's in it: a large array, a long list."""


def _brief(message: str) -> str:
    """A message as it is, or where it is too long to be read its beginning and end on one line."""
    if len(message) <= _LONGEST:
        return message
    flat = " ".join(message.split())
    return flat if len(flat) <= _LONGEST else f"{flat[:300]} ... {flat[-100:]}"


class TensorExprError(Exception):
    """Base of every error of the package.

    `message` is one sentence, "expected X, got Y"; `term` the offending term as text, `location` the user's line,
    `at` a place inside the term (an axis, an argument), `hint` one remedy. `str()` joins those that are given.
    """

    def __init__(
        self,
        message: str,
        *,
        term: object = None,
        location: Location | None = None,
        at: object = None,
        hint: str | None = None,
    ) -> None:
        message = self.message = _brief(message)
        self.term = None if term is None else str(term)
        self.location = location
        self.at = None if at is None else str(at)
        self.hint = hint
        lines = [message]
        if self.term is not None or location is not None:
            where = f"({location})" if location is not None else ""
            lines.append(f"  in:   {' '.join(part for part in (self.term, where) if part)}")
        if self.at is not None:
            lines.append(f"  at:   {self.at}")
        if hint is not None:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))


class DefinitionError(TensorExprError):
    """A definition that has no meaning: a wrong rank, an access out of bounds, a dtype without the operation."""


class InvalidNameError(DefinitionError, ValueError):
    """A name that is no Python identifier; also a `ValueError`."""


class DifferentiationError(TensorExprError):
    """A gradient that was asked for and does not exist: of an integer, without a head, of an unknown tensor."""


class GradientCheckError(DifferentiationError):
    """A derivative that disagrees with finite differences; the message gives both numbers."""


class ScheduleError(TensorExprError):
    """A schedule primitive that would change the result or has no loop to act on; its location is that of the call."""

    def __init__(self, message: str, **details: Any) -> None:
        details.setdefault("location", user_location())
        super().__init__(message, **details)


class TargetError(TensorExprError):
    """A target that is unknown or not available on this machine; the message says what is missing."""


class ArgumentError(TensorExprError, ValueError):
    """An argument that does not fit (rank, extent, dtype, overlap, a choice); also a `ValueError`."""


class CallError(ArgumentError, TypeError):
    """A call that the parameters of a public function do not fit: an unknown keyword, an argument missing; also a `TypeError`."""


class UnknownNameError(TensorExprError, AttributeError):
    """An attribute that the package, a tensor, a scalar or a schedule does not have; also an `AttributeError`."""


class OutOfBoundsError(ArgumentError, IndexError):
    """A data-dependent index that left its tensor while a kernel ran, or an axis that a shape does not have; also an `IndexError`."""


class FailedCheckError(TensorExprError):
    """A `te.check` that did not hold when a function ran; the message is the user's."""


class ReplacementError(TensorExprError):
    """A replacement of a composite whose results differ from those of the body: in number, shape, dtype, or (checked) in value."""


class InternalError(TensorExprError):
    """A defect of the compiler. The message asks for a report and says what to send."""

    def __init__(self, message: str, **details: Any) -> None:
        details.setdefault("hint", "this is a defect of tensorexpr: please report it with the program that led here")
        super().__init__(message, **details)


class CacheWarning(UserWarning):
    """Compiled code is not kept, or not read: the folder cannot be used, or another user can write to it. Given once for each place; all
    works without, and is compiled again by each process."""


class FallbackWarning(UserWarning):
    """An optimisation failed, a defect of ours, and a simpler form was taken: results are right, it may be much slower. The message
    names the operation and a file with what a report needs. `TENSOREXPR_STRICT=1` makes it the error that it was."""


class PromotionWarning(UserWarning):
    """A dtype that follows from NumPy's rules is hardly the one that is meant: products of integers of 8 or 16 bits wrap around before
    they are summed; data of 32 or 16 bits becomes float64 because of a NumPy number, or of a float times an index. Given once for each
    line, with the cast to write."""
