"""Loops cut where the tests inside begin and cease to hold at all points of the vectors and tiles inside: between, they run without tests.

    for d in range(0, i_o*8 + 8):                       for d in range(0, i_o*8 + 1):
        for i_i in unroll(8):                     -->       for i_i in unroll(8): acc[i_i] += w[i_i + i_o*8, d] * v[d]
            if d < i_i + i_o*8 + 1:                     for d in range(i_o*8 + 1, i_o*8 + 8): ... as it was
                acc[i_i] += w[i_i + i_o*8, d] * v[d]

A triangle runs so, but for a border as wide as the tile. What comes behind a border, where a test holds at no point, runs without
what it guards, or not at all. Only for loops that are long beside their border: a cut copies what is inside.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import constant, maximum, minimum, normal, reads_data
from tensorexpr.codegen.lowering.kernels.unswitch import Ranges, assumed, conditions_in, is_innermost, positive_part, refuted
from tensorexpr.codegen.nest import Block, For
from tensorexpr.codegen.nest.walks import iterations, map_statements
from tensorexpr.integers import Affine
from tensorexpr.ir import Expr, conjuncts
from tensorexpr.records import record, replace
from tensorexpr.regions import Opaque, expression_of
from tensorexpr.traversal import free_names, size_names

LONG = 16
"""Iterations from which on a loop is cut, where their number is known."""
SHARE = 4
"""A border is at most one of so many parts of a loop, where its length is known, and no longer than LONG times that."""


def cut_along(block: Block) -> Block:
    """The statements with innermost serial loops cut where tests that change along them begin and cease to hold."""
    return map_statements(block, lambda s: _loop(s) if isinstance(s, For) and s.kind == "serial" and is_innermost(s.body) else None)


@record
class Border:
    """Where a test that changes along a loop holds everywhere inside from (`rising`) or up to, and from or up to where anywhere."""

    rising: bool
    everywhere: Expr
    anywhere: Expr
    width: int


def _loop(s: For) -> Block:
    borders: dict[Expr, Border] = {}
    for condition, inner, _ in conditions_in(s.body, {}):
        for part in conjuncts(condition):
            if part not in borders and s.index in free_names(part) and not reads_data(part):
                found = _border(part, s.index, inner)
                if found is not None:
                    borders[part] = found
    first, last = constant(s.start), constant(s.stop)
    length = None if first is None or last is None else last - first
    width = max((b.width for b in borders.values()), default=0)
    if not borders or (length is not None and length < max(LONG, SHARE * width)) or width > LONG * SHARE:
        return (s,)
    rising = [b for b in borders.values() if b.rising]
    falling = [b for b in borders.values() if not b.rising]
    begin, end = s.start, s.stop
    for border in rising:
        begin = maximum(begin, border.everywhere)
    begin = minimum(begin, s.stop) if rising else begin
    for border in falling:
        end = minimum(end, border.everywhere)
    end = maximum(end, begin) if falling else end
    made = [replace(s, stop=begin)] if rising else []
    made.append(replace(s, start=begin, stop=end, body=assumed(s.body, frozenset(borders))))
    if falling:
        made += [replace(s, start=end)] if len(borders) > 1 else _behind(s, end, *borders.items())
    return tuple(part for part in made if iterations(part) != 0)


def _behind(s: For, end: Expr, only: tuple[Expr, Border]) -> list[For]:
    """What is left of a loop behind its only test: the border, and what it does where the test holds nowhere."""
    part, border = only
    reach = maximum(minimum(s.stop, border.anywhere), end)
    rest = refuted(s.body, frozenset((part,)))
    return [replace(s, start=end, stop=reach), *([replace(s, start=reach, body=rest)] if rest else [])]


def _border(part: Expr, index: str, inner: Ranges) -> Border | None:
    """Where a comparison begins or ceases to hold along an index, with those inside at their worst, and at their best."""
    found = positive_part(part)
    if found is None:
        return None
    form, opaque, strict = found
    factor = form.coefficient(index)
    rest = form - Affine.of(index) * factor
    hidden = {n for atom, _ in rest.terms if not isinstance(atom, str) for n in atom.numerator.names()}
    if factor == 0 or index in hidden or set(inner) & hidden or not _is_free(opaque, {index, *inner}):
        return None
    worst = best = rest - (1 if strict else 0)
    for name, (first, last) in inner.items():
        slope = rest.coefficient(name)
        worst = worst + (slope * (first if slope > 0 else last)) - Affine.of(name) * slope
        best = best + (slope * (last if slope > 0 else first)) - Affine.of(name) * slope

    def place(form: Affine) -> Expr:
        reach = form // -factor + 1 if factor < 0 else -(form // factor)
        return normal(expression_of(reach, size_names(part), opaque))

    return Border(factor > 0, place(worst), place(best), (best - worst).constant // abs(factor) + 1)


def _is_free(opaque: Opaque, names: set[str]) -> bool:
    """Whether what opaque names stand for mentions none of some indices."""
    return not any(names & set(free_names(e)) for e in opaque.names)
