"""Which programs share a record: the text of a simplified program, with numbers by class and without the values of constants.

Two programs with the same text do the same work in the same order of loops, on extents of about the same size; what was found
for one is a good start for the other, and cannot be wrong for it: choices are tried for legality wherever they are used.

The class of a number: itself up to 16 (windows, channels of pixels, strides: they decide what is copied out); beyond it the power of two
below, so 512 and 777 are alike; and whether it is a multiple of 16, where vectors have no rest.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from tensorexpr.ir import Program
from tensorexpr.text import print_program

EXACT = 16
"""Numbers up to this one have classes of their own."""
_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d*(?:e[+-]?\d+)?|e[+-]?\d+)")
_INTEGER = re.compile(r"(?<![\w.~])\d+(?![\w.])")
_CONSTANT = re.compile(r"= constant\(.*\)$", re.MULTILINE)


class Operation(NamedTuple):
    """The text that programs share, and its digest."""

    text: str
    digest: str


def shape_class(number: int) -> str:
    """The class of an extent: `12`, `~512` for 512 to 1023, `~512*` for those of them that are multiples of 16."""
    if number <= EXACT:
        return str(number)
    return f"~{1 << (number.bit_length() - 1)}{'' if number % EXACT else '*'}"


def operation_of(program: Program) -> Operation:
    """The operation that a simplified program is, up to the class of its extents."""
    text = _CONSTANT.sub("= constant()", print_program(program))
    text = _INTEGER.sub(lambda found: shape_class(int(found[0])), _FLOAT.sub("#", text))
    text = " ".join(text.split())
    return Operation(text, short_digest(text))


def short_digest(text: str) -> str:
    """Enough of a digest to tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]
