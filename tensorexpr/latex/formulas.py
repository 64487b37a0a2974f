r"""Programs as LaTeX: definitions in one `aligned` block, as one would write them on paper.

    \begin{aligned}
    & x \in \mathbb{R}^{8 \times 32},\quad w \in \mathbb{R}^{5} \\
    y_{n, o} &= \sum_{i = 0}^{4} x_{n, 2 o + i} \, w_{i}
    \end{aligned}

The text needs amsmath and amssymb, and is understood by MathJax and KaTeX. It is for reading: rounding, the order of a sum, casts
that keep the value and the rule that the branch not taken is never evaluated are left out. A selection against zero inside an
expression is written with the indicator $\mathbf{1}[c]$.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Expr, Program
from tensorexpr.language import Tensor, program_of
from tensorexpr.latex.writer import WIDTH, Writer, shown
from tensorexpr.markup import more
from tensorexpr.text import is_readable
from tensorexpr.traversal import is_within

_DISPLAYED = 24
"""Types that a notebook shows, and rows before the last definition."""
_EXTENT = (40, 12)
"""Nodes of an extent that is displayed, in all and inside each other."""


@checked()
def latex(value: Program | Tensor | Sequence[Tensor]) -> str:
    r"""What defines tensors, as LaTeX: an `aligned` environment, to stand inside `\[ ... \]` or `$$ ... $$`.

    `value` is a program, a tensor, or several (a gradient too): first the types of all tensors, then one line for each
    definition. Needs amsmath and amssymb. Raises `DefinitionError` for anything else.

    >>> A = te.placeholder((2, 3), name="A")
    >>> row = te.compute((2,), lambda i: te.sum(lambda j: A[i, j], 3), name="row")
    >>> te.latex(te.program_of([row])).count("sum")
    1
    """
    if isinstance(value, Program):
        return latex_program(value)
    tensors = [value] if isinstance(value, Tensor) else list(value) if isinstance(value, Sequence) else []
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise DefinitionError(
            f"te.latex: expected a program, a tensor or a list of tensors, got {type(value).__name__}", location=user_location()
        )
    return latex_program(program_of(tensors))


def latex_program(program: Program) -> str:
    """A program as an `aligned` environment: the types of its tensors, then its definitions, then its combiners."""
    writer = Writer()
    types = [(name, type_) for name, type_ in program.types.items()]
    rows = _rows([writer.belongs(name, type_) for name, type_ in types])
    for definition in program.definitions:
        rows += writer.definition(definition)
    rows += writer.combiner_rows()
    return _aligned(rows)


def displayed(program: Program) -> str:
    """A program as notebooks show it: as `latex_program`, between `$$`, with as much of it as people read; the rest is counted."""
    writer = Writer()
    types = [(name, type_) for name, type_ in program.types.items() if all(is_within(e, *_EXTENT) for e in type_.shape)]
    rows = _rows([writer.belongs(name, type_) for name, type_ in types[:_DISPLAYED]])
    left_out = 0
    for definition in program.definitions:
        if len(rows) < _DISPLAYED and is_readable(definition):
            rows += writer.definition(definition)
        else:
            left_out += 1
    rows += writer.combiner_rows()
    rest = [(len(program.types) - len(types[:_DISPLAYED]), "type"), (left_out, "definition")]
    rows += [rf"& \text{{{more(number, noun)}}}" for number, noun in rest if number]
    return f"$$\n{_aligned(rows)}\n$$"


def _aligned(rows: Sequence[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def latex_expr(expr: Expr) -> str:
    """One expression."""
    return Writer().expr(expr)[0]


def _rows(items: Iterable[str]) -> list[str]:
    """Items side by side, in as many rows as they need."""
    rows: list[list[str]] = []
    for item in items:
        if not rows or shown(rows[-1]) + shown([item]) > WIDTH:
            rows.append([])
        rows[-1].append(item)
    return ["& " + r",\quad ".join(row) for row in rows]
