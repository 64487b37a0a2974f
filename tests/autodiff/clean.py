"""What a printed formula should not have, found by trying all points: an oracle that shares nothing with the simplifier.

`smells` lists conditions that are always true or never, bounds and remainders that say nothing, loops of one iteration,
literals that could be one, double signs and the like, each with the term it is about.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorexpr.bounds.enumeration import NotEnumerable, evaluate_on
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Definition, Expr, Program, Reduce, Scan, Scatter, conjuncts
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, negate, walk

Points = dict[str, np.ndarray]
MOST_POINTS = 1 << 16


def smells(program: Program, but: frozenset[str] = frozenset()) -> list[str]:
    """What is not clean in the definitions of a program, those called `but` left out; sizes must be numbers."""
    return [f"{d.results[0][0]}: {smell}" for d in program.definitions if d.results[0][0] not in but for smell in _of(d, {}, 1)]


def _of(definition: Definition, points: Points, count: int) -> Iterator[str]:
    match definition:
        case Define():
            yield from _inside(definition.axes, None, (definition.value,), points, count, bound=False)
        case Scatter():
            yield from _inside(definition.axes, definition.where, (*definition.indices, definition.value), points, count)
        case Scan():
            steps = np.arange(int(evaluate_on(definition.length, {})))
            for inner in definition.body:
                yield from _of(inner, {definition.step: steps}, len(steps))


def _inside(
    axes: tuple[Axis, ...], where: Expr | None, values: tuple[Expr, ...], points: Points, count: int, bound: bool = True
) -> Iterator[str]:
    """Smells of axes, the condition on them and what stands in them.

    Loops that are empty at some elements, each by itself, cannot all be outermost: what is in vain among them is none.
    """
    around: list[str] = []  # the loops that are there at every element
    for level, axis in enumerate(axes):
        if bound:
            for bound_ in (axis.start, axis.stop):
                yield from _expr(bound_, points, count)
        try:
            start, stop = (np.broadcast_to(evaluate_on(e, points), (count,)) for e in (axis.start, axis.stop))
        except NotEnumerable:
            return  # a loop that data bounds
        lengths = np.maximum(stop - start, 0)
        if bound and count and (lengths == 1).all():
            yield f"one iteration of {axis.index} from {print_expr(axis.start)} to {print_expr(axis.stop)}"
        if bound and count and not lengths.any():
            yield f"no iteration of {axis.index} from {print_expr(axis.start)} to {print_expr(axis.stop)}"
        vain = int((lengths == 0).sum())
        ordered = around or {a.index for a in axes[:level]} & {n for e in (axis.start, axis.stop) for n in free_names(e)}
        if vain == 0:
            around.append(axis.index)
        if bound and level and ordered and 2 * vain > count:
            yield f"in vain {vain} times of {count} around {axis.index} from {print_expr(axis.start)} to {print_expr(axis.stop)}"
        if lengths.sum() > MOST_POINTS:
            return
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        points = {name: np.repeat(array, lengths) for name, array in points.items()}
        points[axis.index] = np.arange(lengths.sum()) - first + np.repeat(start, lengths)
        count = int(lengths.sum())
    if where is not None:
        yield from _condition(where, points, count)
        points, count = _kept(where, points, count)
    for value in values:
        yield from _expr(value, points, count)


def _kept(condition: Expr, points: Points, count: int) -> tuple[Points, int]:
    for part in conjuncts(condition):
        try:
            holds = np.broadcast_to(evaluate_on(part, points), (count,))
        except NotEnumerable:
            continue
        points, count = {name: array[holds] for name, array in points.items()}, int(holds.sum())
    return points, count


def _condition(condition: Expr, points: Points, count: int) -> Iterator[str]:
    yield from _expr(condition, points, count)
    parts = list(conjuncts(condition))
    for part in parts:
        try:
            others = points, count
            for other in parts:
                if other is not part:
                    others = _kept(other, *others)
            holds = np.broadcast_to(evaluate_on(part, others[0]), (others[1],))
        except NotEnumerable:
            continue
        if others[1] and holds.all():
            yield f"always true: {print_expr(part)} in {print_expr(condition)}"
        if others[1] and not holds.any():
            yield f"never true: {print_expr(part)} in {print_expr(condition)}"


def _expr(expr: Expr, points: Points, count: int) -> Iterator[str]:
    if isinstance(expr, Reduce):
        yield from _inside(expr.axes, expr.where, expr.values, points, count)
        if expr.combiner.name == "sum" and isinstance(expr.values[0], Apply) and expr.values[0].op.name == "neg":
            yield f"sign inside: {print_expr(expr)}"
        return
    if isinstance(expr, Apply) and expr.op.name == "where":
        condition, taken, otherwise = expr.args
        yield from _condition(condition, points, count)
        if isinstance(otherwise, Const) and otherwise.value == 0:
            yield from _around_nothing(condition, taken, points, count)
        yield from _expr(taken, *_kept(condition, points, count))
        yield from _expr(otherwise, *_kept(negate(condition), points, count))
        if taken == otherwise:
            yield f"the same in both branches: {print_expr(expr)}"
        if isinstance(taken, Apply) and taken.op.name == "where" and taken.args[2] == otherwise and not _reads(taken.args[0]):
            yield f"nested selections: {print_expr(expr)}"
        if isinstance(otherwise, Apply) and otherwise.op.name == "where" and otherwise.args[1] == taken and not _reads(otherwise.args[0]):
            yield f"one selection twice: {print_expr(expr)}"
        return
    if isinstance(expr, Apply) and expr.op.name == "add":
        yield from _pieces(expr, points, count)
    for child in _children(expr):
        yield from _expr(child, points, count)
    if isinstance(expr, Cast) and isinstance(expr.arg, Const):
        yield f"literal cast: {print_expr(expr)}"
    if isinstance(expr, Apply):
        yield from _operation(expr)
        if count and expr.args[0].dtype.is_integer:
            yield from _integers(expr, points, count)


def _around_nothing(condition: Expr, taken: Expr, points: Points, count: int) -> Iterator[str]:
    """Conditions around a sum whose outermost loop is empty where they do not hold."""
    while isinstance(taken, Apply) and (taken.op.name == "neg" or (taken.op.name in ("mul", "div") and isinstance(taken.args[1], Const))):
        taken = taken.args[0]
    if not isinstance(taken, Reduce) or taken.combiner.name != "sum":
        return
    parts = list(conjuncts(condition))
    for part in parts:
        others = points, count
        for other in parts:
            if other is not part:
                others = _kept(other, *others)
        try:
            evaluate_on(part, others[0])
            outside, left = _kept(negate(part), *others)
            start, stop = (np.broadcast_to(evaluate_on(e, outside), (left,)) for e in (taken.axes[0].start, taken.axes[0].stop))
        except NotEnumerable:
            continue
        if (stop <= start).all():
            yield f"around nothing: {print_expr(part)} around {print_expr(taken)}"


def _pieces(expr: Apply, points: Points, count: int) -> Iterator[str]:
    """Terms of a sum that are equal under conditions which exclude each other."""
    terms, stack = [], list(expr.args)
    while stack:
        term = stack.pop()
        if isinstance(term, Apply) and term.op.name == "add":
            stack += term.args
        elif isinstance(term, Apply) and term.op.name == "where" and isinstance(term.args[2], Const) and not _reads(term.args[0]):
            terms.append(term)
    for at, one in enumerate(terms):
        for other in terms[:at]:
            if one.args[1:] == other.args[1:]:
                kept = _kept(one.args[0], *_kept(other.args[0], points, count))
                if not kept[1]:
                    yield f"pieces that could be one: {print_expr(expr)}"


def _reads(expr: Expr) -> bool:
    return any(isinstance(node, Access) for node in walk(expr))


def _children(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Apply) else (expr.arg,) if isinstance(expr, Cast) else getattr(expr, "indices", ())


def _operation(expr: Apply) -> Iterator[str]:
    name, args = expr.op.name, expr.args
    last = args[-1]
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1, "floordiv": 1}
    if all(isinstance(a, Const) for a in args):
        yield f"only literals: {print_expr(expr)}"
    elif name in neutral and isinstance(last, Const) and last.value == neutral[name]:
        yield f"neutral: {print_expr(expr)}"
    if name == "mul" and isinstance(args[0], Const):
        yield f"literal first: {print_expr(expr)}"
    if name == "mul" and isinstance(last, Const) and isinstance(args[0], Apply) and args[0].op.name == "mul":
        if isinstance(args[0].args[1], Const):
            yield f"two literals: {print_expr(expr)}"
    if name == "neg" and isinstance(args[0], Apply) and args[0].op.name in ("neg", "sub"):
        yield f"sign: {print_expr(expr)}"
    if name in ("add", "sub") and isinstance(last, Apply) and last.op.name == "neg":
        yield f"sign: {print_expr(expr)}"
    if name == "add" and isinstance(args[0], Apply) and args[0].op.name == "neg":
        yield f"sign: {print_expr(expr)}"
    if name == "add" and args[0] == args[1]:
        yield f"twice the same: {print_expr(expr)}"
    if name == "and" and isinstance(last, Apply) and last.op.name == "and":
        yield f"nested conjunction: {print_expr(expr)}"


def _integers(expr: Apply, points: Points, count: int) -> Iterator[str]:
    try:
        values = [np.broadcast_to(evaluate_on(a, points), (count,)) for a in expr.args]
    except NotEnumerable:
        return
    name = expr.op.name
    if name in ("minimum", "maximum") and ((values[0] <= values[1]).all() or (values[0] >= values[1]).all()):
        yield f"decided: {print_expr(expr)}"
    if name in ("floordiv", "mod") and (values[1] > 0).all():
        quotient = values[0] // values[1]
        if (quotient == quotient[0]).all():
            yield f"no division: {print_expr(expr)}"
