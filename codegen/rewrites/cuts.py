"""Where along a loop the tests inside begin and cease to hold, as points at which it may be cut.

A test is a comparison of integers: of a condition, a choice, a check, of the two operands of a minimum or maximum, of an absolute
value with 0, or of what is divided with the few multiples of the divisor that it goes beyond. It holds where an affine form is not
negative. The indices of loops inside are replaced by their bounds, at which the form is least, and greatest:

    for i: for s in range(0, 3): if i + s - 1 >= 0: ...        least: i - 1, greatest: i + 1
                                                               from i = 1 on it holds at every s, from i = -1 on at some

What is left is a form of the loop's own index and those around: two points along the loop, or a condition in front of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Set
from math import inf, isfinite

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_in, expressions_of, inside, iterations
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.integers import Affine
from tensorexpr.integers.forms.affine import period_of
from tensorexpr.ir import Access, Apply, Const, Expr, apply, conjuncts, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import negate, walk

TURNS = 2
"""Multiples of a divisor beyond which an index that is divided is not cut at them: a border that is gone around has one or two."""
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


@record
class Cut:
    """A point along a loop where a test changes: from there on (`rises`), or up to there, it holds everywhere inside (`whole`), or
    somewhere. A minimum or maximum is decided as well by a cut at `other`, where its operands are equal for the last time, and beyond
    where it holds somewhere, `whole_at` being the point where it does everywhere."""

    point: Expr
    rises: bool
    whole: bool
    other: Expr | None = None
    whole_at: Expr | None = None


def cuts_of(s: For, facts: Facts, only: frozenset[Expr] | None = None) -> tuple[tuple[Cut, ...], tuple[Expr, ...]]:
    """The cuts along a loop that stands where `facts` hold, in order of the tests, and the conditions in front of it that decide tests
    inside. `only` restricts them to some tests."""
    found: dict[Cut, None] = {}
    fronts: dict[Expr, None] = {}
    depth, in_front = len(facts.loops), facts
    for test, is_choice, inner in tests_in(s.body, facts.loop(s.index, s.start, s.stop)):
        if only is not None and test not in only:
            continue
        if inner.holds(test) is not None:
            continue
        for form in forms_of(test, inner, {index for index, *_ in inner.loops[depth:]}):
            least, greatest = (extreme(form, inner, depth + 1, up) for up in (False, True))
            whole_at: Expr | None = None
            for end, whole in ((least, True), (greatest, False)):
                factor = 0 if end is None else end.coefficient(s.index)
                if end is None or not _is_known_in_front(rest := end - Affine.of(s.index) * factor, s, inner, depth):
                    continue
                if factor:
                    places = [-(f // factor) if factor > 0 else f // -factor + 1 for f in (rest, rest - 1)]
                    point, other = map(inner.expression, places)
                    found.setdefault(Cut(point, factor > 0, whole, other if is_choice else None, None if whole else whole_at))
                    whole_at = point
                elif whole and rest.terms and is_choice is not None and are_counted(inner, depth + 1, form.names()):
                    if is_choice and not facts.is_common(rest):
                        rest = -rest - 1  # of two operands either is a choice that is made: that of most iterations
                    front = apply("ge", inner.expression(rest), const(0))
                    if front not in fronts and in_front.holds(front) is None and not _is_small(rest, facts):
                        fronts[front] = None
                        in_front = in_front.under(front)  # what does not hold with those before is asked of other iterations
    return tuple(found), tuple(fronts)


def _is_small(form: Affine, facts: Facts) -> bool:
    """Whether a form can be natural at a few small sizes alone: it is no test to have a loop twice for."""
    return facts.interval(form)[1] <= 0


def _is_known_in_front(form: Affine, s: For, inner: Facts, depth: int) -> bool:
    """Whether a form may be asked for in front of a loop: it depends on nothing inside, and reads nothing but what its bounds read."""
    if not inner.indices_in(form).isdisjoint(index for index, *_ in inner.loops[depth:]):
        return False
    read = {n for e in (s.start, s.stop) for n in walk(e) if isinstance(n, Access)}
    return all(access in read for access in inner.elements_in(form))


def tests_in(block: Block, facts: Facts) -> Iterator[tuple[Expr, bool | None, Facts]]:
    """The comparisons in a block, whether each is that of a minimum or maximum (None: of what is divided, for which alone it is not worth
    to have a loop twice), and what holds where it stands."""
    for s in block:
        for test, is_choice in _tests_of(s, facts):
            yield test, is_choice, facts
        match s:
            case For():
                yield from tests_in(s.body, facts.loop(s.index, s.start, s.stop))
            case If():
                yield from tests_in(s.then, facts.under(s.condition))
                yield from tests_in(s.otherwise, facts.under(negate(s.condition)))
            case Alloc():
                yield from tests_in(s.body, facts)


def _tests_of(s: Stmt, facts: Facts) -> Iterator[tuple[Expr, bool | None]]:
    if isinstance(s, Check):
        yield apply("ge", s.index, const(0)), False
        yield apply("lt", s.index, s.extent), False
    for expr in expressions_of(s) if isinstance(s, For | If | Store | Check) else ():
        for node in walk(expr):
            if not isinstance(node, Apply) or node.args[0].dtype is not dtypes.int64:
                continue
            if node.op.name in _COMPARED:
                yield node, False
            elif node.op.name in ("minimum", "maximum"):
                yield apply("le", *node.args), True
            elif node.op.name == "abs":
                yield apply("ge", *node.args, const(0)), True
            elif node.op.name == "mod" and (place := facts.wrapped(node)) is not None:
                yield apply("ge", place, node.args[1]), None
            elif node.op.name in ("mod", "floordiv") and isinstance(node.args[1], Const) and int(node.args[1].value) > 0:
                divided, by = node.args[0], int(node.args[1].value)
                low, high = _ends(divided, facts)
                if isfinite(low) and isfinite(high) and high // by - low // by <= TURNS:
                    for multiple in range(int(low // by) + 1, int(high // by) + 1):
                        yield apply("ge", divided, const(multiple * by)), None


def _ends(index: Expr, facts: Facts) -> tuple[float, float]:
    """The least and the greatest that an index can be, a block that is moved back included."""
    low = max((min(facts.interval(form)[0] for form in bound) for bound in facts.bounds(index, False)), default=-inf)
    return low, min((max(facts.interval(form)[1] for form in bound) for bound in facts.bounds(index, True)), default=inf)


def forms_of(test: Expr, facts: Facts, inside: Set[str] | None = None) -> list[Affine]:
    """Forms that are not negative where a comparison holds; of an equation those of both halves. What depends on no index of `inside` is a
    name in them, be it a minimum."""
    if not isinstance(test, Apply) or test.op.name not in _COMPARED:
        return []
    left, right = test.args if test.op.name in ("lt", "le", "eq", "ne") else test.args[::-1]
    strict = int(test.op.name in ("lt", "gt"))
    pairs = [(left, right, strict)]
    if test.op.name in ("eq", "ne"):
        pairs = [(left, right, 0), (right, left, 0)]
    found: dict[Affine, None] = {}
    for small, large, by in pairs:
        for low in facts.bounds(small, True, inside):
            for high in facts.bounds(large, False, inside):
                for a in low:
                    for b in high:
                        found.setdefault(b - a - by)
    return list(found)


def extreme(form: Affine, facts: Facts, depth: int, greatest: bool) -> Affine | None:
    """The least or greatest that a form is over all iterations of the loops from a depth on, as a form of what is around them; None where
    that is not known as one."""
    for at in reversed(range(depth, len(facts.loops))):
        index, below, above = facts.loops[at]
        if index not in form.names():
            continue
        factor = form.coefficient(index)
        rest = form - Affine.of(index) * factor
        ends = [bound[0] for bound in (above if (factor > 0) == greatest else below) if len(bound) == 1]
        if index in rest.names() or not ends:
            return None
        form = rest + ends[0] * factor
    return form


def hull(bound: Expr, index: str, facts: Facts, greatest: bool) -> Expr | None:
    """The least or greatest that a bound is over the iterations of a loop around, as an expression of the others; None where that is not
    known."""
    found: list[Expr] = []
    for parts in facts.bounds(bound, greatest):
        ends = [_end(form, index, facts, greatest) for form in parts]
        each = [facts.expression(e) for e in ends if e is not None]
        if len(each) == len(ends):
            total = each[0]
            for more in each[1:]:
                total = apply("maximum" if greatest else "minimum", total, more)
            found.append(total)
    for more in found[1:]:
        found[0] = apply("minimum" if greatest else "maximum", found[0], more)
    return found[0] if found else None


def _end(form: Affine, index: str, facts: Facts, greatest: bool) -> Affine | None:
    """The least or greatest that a form is over a loop around: at one of its ends, or by the ranges of all that is in it."""
    if index not in facts.indices_in(form):
        return form
    factor = form.coefficient(index)
    rest = form - Affine.of(index) * factor
    if index not in facts.indices_in(rest):
        below, above = next((below, above) for name, below, above in reversed(facts.loops) if name == index)
        ends = [bound[0] for bound in (above if (factor > 0) == greatest else below) if len(bound) == 1]
        if ends:
            return rest + ends[0] * factor
    end = facts.interval(form)[greatest]
    return Affine.of(int(end)) if isfinite(end) else None


def are_counted(facts: Facts, depth: int, names: Container[str]) -> bool:
    """Whether the loops inside of a depth with these indices run between numbers: a test of them in front is then about what is around."""
    return all(
        all(len(bound) == 1 and bound[0].is_constant for bound in (*below[:1], *above[:1]))
        for index, below, above in facts.loops[depth:]
        if index in names
    )


def statements_of(block: Block) -> int:
    """How many statements a block is, with those of loops that are copied out for each of their iterations."""
    total = 0
    for s in block:
        copies = iterations(s) if isinstance(s, For) and s.kind == "unroll" else None
        total += (not isinstance(s, Alloc)) + (1 if copies is None else copies) * statements_of(inside(s))
    return total


def parts_of(condition: Expr) -> frozenset[Expr]:
    """The comparisons of a condition."""
    return frozenset(conjuncts(condition))


def moduli_of(s: For) -> tuple[int, ...]:
    """The numbers m such that along every m-th iteration of a loop some index or condition inside is no longer divided, in ascending
    order: what residue classes are worth. `p % 3`, `p // 3` and `(2*p + 1) // 6` say 3.

    Where quotients are divided again, it takes the product.
    """
    found: set[int] = set()
    for expr in expressions_in(s.body):
        for node in walk(expr):
            form = affine_of(node) if isinstance(node, Apply) and node.op.name in ("floordiv", "mod") else None
            found.update(period_of(atom, s.index) for atom in ([] if form is None else form.atoms()))
    return tuple(sorted(found - {1}))
