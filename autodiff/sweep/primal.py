"""The program that is differentiated: what only says which elements stand where is read at its source, and sums have the points that count.

    w[i, j, p] = x[i, j + p];  y[i, j] = sum(w[i, j, p] * k[p] for p)        -->   y[i, j] = sum(x[i, j + p] * k[p] for p)
    t[k, i] = sum(x[i, k, p] for p);  y[i] = sum(t[k, i] for k)              -->   y[i] = sum(x[i, k, p] for k for p)
    c[i, j] = sum(where(k <= j, x[i, k], 0.0) for k)                         -->   c[i, j] = sum(x[i, k] for k in range(j + 1))
    m[i] = max(x[i] + y[j] for j)                                            -->   m[i] = x[i] + max(y[j] for j)

Programs that differ in such things alone are one program, so they have one derivative: windows and reshapes with a name have no adjoint
that is stored and read again. What multiplies or takes a function keeps its name, so that its adjoint is computed once for all it reads.
"""

from __future__ import annotations

from collections.abc import Collection

from tensorexpr.ir import Apply, Cast, Define, Definition, Program, Reduce
from tensorexpr.records import replace
from tensorexpr.simplify import Options, narrow_domains, take_extrema_apart
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.inline import inline_cheap
from tensorexpr.simplify.passes.inline.worth import is_element, renames_only
from tensorexpr.traversal import expressions, walk

ROUNDS = 4
"""Reads at the source may leave fewer points, and these more that only rearranges; longer chains have what is left swept as it stands."""
OPTIONS = Options(narrow=True, factor=True, differentiable=True)


def with_plain_reads(program: Program, kept: Collection[str]) -> Program:
    """The program to differentiate, with the same values; `kept` are the tensors that keep their names.

    Requires: nothing. Ensures: every value and every derivative is kept, up to the order of sums; no definition has a new name.
    """
    found = replace(program, outputs=tuple(name for name in dict.fromkeys(kept) if name in program.types))
    written = frozenset(map(id, program.definitions))
    for _ in range(ROUNDS):
        before = found
        simple = narrow_domains(take_extrema_apart(found, found.outputs), OPTIONS).definitions
        pairs = zip(found.definitions, simple, strict=True)
        found = with_definitions(found, (_as_it_was(was, now, id(was) in written) for was, now in pairs))
        found = inline_cheap(found, among=_moves_only)
        if found is before:
            break
    return replace(found, outputs=program.outputs)


def _as_it_was(was: Definition, now: Definition, written: bool) -> Definition:
    """A simplified definition, or as it was `written` where all sums have the points that they had: how a subscript is written says how a
    read is best turned around."""
    return was if was is now or (written and _loops(was) == _loops(now)) else now


def _loops(definition: Definition) -> list[object]:
    """The points of reductions, and the extremes that are computed at them."""
    found: list[object] = []
    for node in (n for e in expressions(definition) for n in walk(e)):
        if isinstance(node, Reduce):
            found.append((len(node.axes), *((a.start, a.stop) for a in node.axes), node.where))
        elif isinstance(node, Apply) and node.op.name in ("maximum", "minimum") and node.dtype.is_float:
            found.append(node.op.name)
    return found


def _moves_only(definition: Define) -> bool:
    """Whether a definition is elements that stand elsewhere, or sums that its reader may take in."""
    value = definition.value
    while isinstance(value, Cast):
        value = value.arg
    return is_element(value) or renames_only(definition) or any(isinstance(n, Reduce) for n in walk(value))
