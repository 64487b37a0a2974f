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
from tensorexpr.codegen.nest import LANES, Alloc, Block, Check, For, If, Kernel, Stmt, Store
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
        case If():
            return (replace(statement, then=_block(statement.then, around), otherwise=_block(statement.otherwise, around)),)
        case Alloc():
            return (replace(statement, body=_block(statement.body, around)),)
    return (statement,)


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
    """Start and stop of the iterations between those at which lanes differ; None where there are none or too few such."""
    if loop.index not in inner or inner[loop.index][1] - inner[loop.index][0] + 1 < FEWEST:
        return None
    start, stop = inner[loop.index][0], inner[loop.index][1] + 1
    nodes = 0
    forms: dict[Affine, dict[str, Range]] = {}
    for expr, ranges, lanes in _expressions(loop.body, inner, frozenset()):
        for node in walk(expr):
            nodes += 1
            for form in _decisions(node, ranges):
                if loop.index in form.names() and lanes & set(form.names()):
                    forms.setdefault(form, ranges)
        if nodes > LARGEST_BODY:
            return None
    low, high = start, stop
    for form, ranges in forms.items():
        undecided = _undecided(form, loop.index, ranges)
        for cut in () if undecided is None else undecided:
            if start < cut <= (start + stop) // 2:
                low = max(low, cut)
            elif (start + stop) // 2 < cut < stop:
                high = min(high, cut)
    return None if 2 * (high - low) < stop - start or (low, high) == (start, stop) else (low, high)


def _expressions(block: Block, ranges: dict[str, Range], lanes: frozenset[str]) -> Iterator[tuple[Expr, dict[str, Range], frozenset[str]]]:
    """Every expression, with the ranges of the indices around it and those that run in lanes."""
    for statement in block:
        match statement:
            case For():
                inner = lanes | {statement.index} if statement.kind in LANES else lanes
                yield from _expressions(statement.body, _with(ranges, statement), inner)
            case If():
                yield statement.condition, ranges, lanes
                yield from _expressions((*statement.then, *statement.otherwise), ranges, lanes)
            case Alloc():
                yield from _expressions(statement.body, ranges, lanes)
            case Store():
                for expr in (*statement.indices, statement.value):
                    yield expr, ranges, lanes
            case Check():
                yield statement.index, ranges, lanes


def _decisions(node: Expr, ranges: Mapping[str, Range]) -> Iterator[Affine]:
    """Forms that are not negative where a comparison holds, where one operand of a minimum or maximum is the other's bound, or from where
    on an index that is divided has gone around a border."""
    if not isinstance(node, Apply) or len(node.args) != 2 or node.args[0].dtype is not dtypes.int64:
        return
    name, (first, second) = node.op.name, node.args
    if name in ("mod", "floordiv") and isinstance(second, Const) and int(second.value) > 0:
        by = int(second.value)
        for form in _leaves(first):
            low, high = form.interval(ranges)
            if low is not None and high is not None and high // by - low // by <= TURNS:
                yield from (form - by * turn for turn in range(low // by + 1, high // by + 1))
    if name not in _COMPARED and name not in _EXTREMES:
        return
    for left in _leaves(first):
        for right in _leaves(second):
            yield left - right - int(name == "gt") if name in ("gt", "ge", "maximum") else right - left - int(name == "lt")


def _leaves(expr: Expr) -> Iterator[Affine]:
    """The form of an index, or of those among which it is the least or greatest, what is added to all of them included."""
    if isinstance(expr, Apply) and expr.op.name in _EXTREMES:
        for operand in expr.args:
            yield from _leaves(operand)
        return
    form = affine_of(expr)
    if form is not None:
        if not form.has_division():
            yield form
    elif isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        for left in _leaves(expr.args[0]):
            for right in _leaves(expr.args[1]):
                yield left + right if expr.op.name == "add" else left - right


def _undecided(form: Affine, index: str, ranges: Mapping[str, Range]) -> tuple[int, int] | None:
    """The values of an index from the first to behind the last at which the sign of a form depends on other indices."""
    least = greatest = form.constant
    for name in form.names():
        if name == index:
            continue
        if name not in ranges:
            return None
        ends = [form.coefficient(name) * value for value in ranges[name]]
        least, greatest = least + min(ends), greatest + max(ends)
    step = form.coefficient(index)
    if step > 0:
        return -(greatest // step), -(least // step)
    return least // -step + 1, greatest // -step + 1
