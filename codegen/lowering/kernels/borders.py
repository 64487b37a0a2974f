"""Loops over blocks of lanes, cut where conditions begin or cease to hold: in the middle no lane tests anything.

    for j_o in range(0, 128):                                    for j_o in range(0, 1): as before
        for j_i in vectorize(range(0, 16)):                      for j_o in range(1, 127):
            y[16*j_o + j_i] = where(16*j_o + j_i >= 1, a, b) -->     ... of which all lanes know that the condition holds
                                                                 for j_o in range(127, 128): as before

Comparisons of lanes, and minima and maxima of them (indices held inside a tensor), are masks and gathers where lanes differ, and so are
remainders of them (indices that go around its borders).
Near the borders of an image they do, and in between they do not: there the emitter sees from the bounds of the loop that
they are decided, and reads side by side. The iterations and their order stay the same. A parallel loop stays one loop, with a
condition inside that sends the middle to a copy of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from tensorexpr import dtypes
from tensorexpr.codegen.nest import LANES, Block, For, If, Kernel, Stmt
from tensorexpr.codegen.nest.walks import expressions_of, inside, with_blocks
from tensorexpr.integers import Affine
from tensorexpr.ir import Apply, Const, Expr, Index, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk

LARGEST_BODY = 8000
"""Nodes of a loop's body up to which it is copied: compile time is worth more beyond."""
FEWEST = 4
"""Iterations from which on a loop is cut."""

TURNS = 2
"""Multiples of a divisor beyond which an index that is divided is not cut at them: a border that is gone around has one or two."""

Range = tuple[int, int]  # least and greatest value of an index
Extreme = Affine | tuple[str, tuple["Extreme", ...]]  # a form, or the least or greatest of several
_COMPARED = ("lt", "le", "gt", "ge")
_EXTREMES = ("minimum", "maximum")


def cut_borders(kernel: Kernel) -> Kernel:
    """The kernel with loops cut. Ensures: the same iterations in the same order."""
    return replace(kernel, body=_block(kernel.body, {}))


def _block(block: Block, around: Mapping[str, Range]) -> Block:
    return tuple(made for statement in block for made in _statement(statement, around))


def _statement(statement: Stmt, around: Mapping[str, Range]) -> Block:
    match statement:
        case For():
            inner = _with(around, statement)
            middle = _middle(statement, inner) if statement.kind in ("serial", "parallel") else None
            if middle is None:
                return (replace(statement, body=_block(statement.body, inner)),)
            start, stop = inner[statement.index][0], inner[statement.index][1] + 1
            if statement.kind == "serial":
                places = sorted({start, *middle, stop})
                return tuple(replace(statement, start=const(first), stop=const(last)) for first, last in pairwise(places))
            index = Index(statement.index)
            bounds = [apply("ge", index, const(middle[0])), apply("lt", index, const(middle[1]))]
            clear = _block(statement.body, {**inner, statement.index: (middle[0], middle[1] - 1)})
            return (replace(statement, body=(If(conjunction(bounds), clear, statement.body),)),)
    return (with_blocks(statement, lambda block: _block(block, around)),)


def _bounds(loop: For) -> Range | None:
    """Start and stop, where they are constant."""
    if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
        return int(loop.start.value), int(loop.stop.value)
    return None


def _with(around: Mapping[str, Range], loop: For) -> dict[str, Range]:
    """The ranges inside of a loop; none of an index whose bounds are not constant."""
    found = _bounds(loop)
    rest = {name: range_ for name, range_ in around.items() if name != loop.index}
    return rest if found is None or found[1] <= found[0] else {**rest, loop.index: (found[0], found[1] - 1)}


def _middle(loop: For, inner: dict[str, Range]) -> tuple[int, int] | None:
    """Start and stop of the iterations between those at which lanes differ; None where there are too few, or they
    decide nothing."""
    if loop.index not in inner or inner[loop.index][1] - inner[loop.index][0] + 1 < FEWEST:
        return None
    start, stop = inner[loop.index][0], inner[loop.index][1] + 1
    nodes = 0
    found: dict[Extreme, dict[str, Range]] = {}
    low, high = start, stop
    for expr, ranges, lanes in _expressions(loop.body, inner, frozenset()):
        for node in walk(expr):
            nodes += 1
            for extreme in _decisions(node, ranges):
                forms = [form for form in _forms(extreme) if loop.index in form.names() and lanes & set(form.names())]
                if forms and extreme not in found:
                    found[extreme] = ranges
                    for cut in (cut for form in forms for cut in _undecided(form, loop.index, ranges)):
                        if start < cut <= (start + stop) // 2:
                            low = max(low, cut)
                        elif (start + stop) // 2 < cut < stop:
                            high = min(high, cut)
        if nodes > LARGEST_BODY:
            return None
    if 2 * (high - low) < stop - start or (low, high) == (start, stop):
        return None
    clear = (low, high - 1)
    if all(_sign(extreme, ranges) == _sign(extreme, {**ranges, loop.index: clear}) for extreme, ranges in found.items()):
        return None
    return low, high


def _expressions(block: Block, ranges: dict[str, Range], lanes: frozenset[str]) -> Iterator[tuple[Expr, dict[str, Range], frozenset[str]]]:
    """Every condition, value, index of a store or check, with the ranges of the indices around it and those that run in lanes."""
    for s in block:
        if isinstance(s, For):
            yield from _expressions(s.body, _with(ranges, s), lanes | {s.index} if s.kind in LANES else lanes)
        else:
            yield from ((expr, ranges, lanes) for expr in expressions_of(s))
            yield from _expressions(inside(s), ranges, lanes)


def _decisions(node: Expr, ranges: Mapping[str, Range]) -> Iterator[Extreme]:
    """What is not negative where a comparison holds, where one operand of a minimum or maximum is the other's bound, or from where
    on an index that is divided has gone around a border."""
    if not isinstance(node, Apply) or len(node.args) != 2 or node.args[0].dtype is not dtypes.int64:
        return
    name, (first, second) = node.op.name, node.args
    if name in ("mod", "floordiv") and isinstance(second, Const) and int(second.value) > 0:
        by, index = int(second.value), _extreme(first)
        for form in _forms(index):
            low, high = form.interval(ranges)
            if low is not None and high is not None and high // by - low // by <= TURNS:
                yield from (_sum(index, Affine((), -by * turn)) for turn in range(low // by + 1, high // by + 1))
    if name in _COMPARED or name in _EXTREMES:
        larger, smaller = (first, second) if name in ("gt", "ge", "maximum") else (second, first)
        yield _sum(_sum(_extreme(larger), _extreme(smaller), -1), Affine((), -int(name in ("gt", "lt"))))


def _extreme(expr: Expr) -> Extreme:
    """An index as the least or greatest of forms, what is added to all of them included; the least of none where it is neither."""
    if isinstance(expr, Apply) and expr.op.name in _EXTREMES:
        return expr.op.name, tuple(map(_extreme, expr.args))
    form = affine_of(expr)
    if form is not None and not form.has_division():
        return form
    if form is None and isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        first, second = map(_extreme, expr.args)
        return _sum(first, second, 1 if expr.op.name == "add" else -1)
    return "minimum", ()


def _sum(first: Extreme, second: Extreme, sign: int = 1) -> Extreme:
    """``first + sign * second``, with what is least or greatest outermost."""
    if isinstance(first, tuple):
        return first[0], tuple(_sum(part, second, sign) for part in first[1])
    if isinstance(second, tuple):
        name = second[0] if sign > 0 else next(other for other in _EXTREMES if other != second[0])
        return name, tuple(_sum(first, part, sign) for part in second[1])
    return first + second * sign


def _forms(extreme: Extreme) -> Iterator[Affine]:
    if isinstance(extreme, Affine):
        yield extreme
    else:
        for part in extreme[1]:
            yield from _forms(part)


def _sign(extreme: Extreme, ranges: Mapping[str, Range]) -> bool | None:
    """Whether it is not negative, where that is the same for all indices in these ranges."""
    if isinstance(extreme, Affine):
        low, high = extreme.interval(ranges)
        return True if low is not None and low >= 0 else False if high is not None and high < 0 else None
    deciding = extreme[0] == "maximum"
    signs = {_sign(part, ranges) for part in extreme[1]}
    return deciding if deciding in signs else signs.pop() if len(signs) == 1 else None


def _undecided(form: Affine, index: str, ranges: Mapping[str, Range]) -> tuple[int, ...]:
    """The values of an index from the first to behind the last at which the sign of a form depends on other indices."""
    least = greatest = form.constant
    for name in form.names():
        if name == index:
            continue
        if name not in ranges:
            return ()
        ends = [form.coefficient(name) * value for value in ranges[name]]
        least, greatest = least + min(ends), greatest + max(ends)
    step = form.coefficient(index)
    if step > 0:
        return -(greatest // step), -(least // step)
    return least // -step + 1, greatest // -step + 1
