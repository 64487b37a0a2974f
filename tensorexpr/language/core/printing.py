"""How expressions of the language read in messages: tensors by their pretty names, indices without their serial numbers.

While a definition is being written an index is called `i#12`: unique in the process, so an index that escapes from its
definition is noticed and never captured. The definition settles on `i` when it is complete (see `tracing`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Expr
from tensorexpr.text import print_expr
from tensorexpr.traversal import walk

if TYPE_CHECKING:
    from tensorexpr.language.core.tensor import Tensor

_SERIAL = re.compile(r"#\d+")
LONGEST = 160


def describe(expr: Expr, sources: Mapping[str, Tensor], dtype: DType | None = None) -> str:
    """The expression as text with the names the user gave; a long one is shortened in the middle."""
    names = {node.tensor: sources[node.tensor].name for node in walk(expr) if isinstance(node, Access) and node.tensor in sources}
    return shortened(renamed_text(print_expr(expr, dtype), names))


def renamed_text(text: str, names: Mapping[str, str]) -> str:
    """The text with keys of tensors replaced by names, and serial numbers of indices dropped."""
    if names:
        text = re.sub(r"\b(" + "|".join(map(re.escape, names)) + r")\b", lambda match: names[match.group()], text)
    return _SERIAL.sub("", text)


def shortened(text: str) -> str:
    """At most `LONGEST` characters, the middle left out."""
    half = LONGEST // 2 - 3
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"
