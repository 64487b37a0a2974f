"""What is known where an expression stands: ranges of indices and sizes, guards passed, and questions about them.

A `Context` grows inward by axes and conditions and never changes. It answers from intervals first and asks the integer
sets of `tensorexpr.integers` only where intervals do not decide; a set that is too complex counts as "not known".

**Arithmetic**: index arithmetic (int64 over indices, sizes and literals) is whole numbers: definitions write what could
overflow as arithmetic of uint64 (`tensorexpr.bounds.wrapping`). Integers read from tensors may be anything of their dtype, so sums
and products of them take part only where their range shows that they cannot wrap around (`exact`); else they are opaque.
A subscript that is a sum may wrap: it is rearranged as it is modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from tensorexpr import dtypes
from tensorexpr.bounds.wrapping import LIMIT, MOST_SIZE
from tensorexpr.integers import Affine, Constraint, Domain, DomainTooComplex, Interval, eq, ge, gt, le, lt
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, Reduce, Size, apply, conjuncts, const
from tensorexpr.records import field, record
from tensorexpr.regions import Opaque, affine_of, bound_constraints
from tensorexpr.text import print_expr
from tensorexpr.traversal import negate, walk

COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq}
CHAIN = ("add", "sub", "mul", "neg", "floordiv", "mod", "minimum", "maximum", "abs")
_BOUNDED = ("where", "sign", "and", "shift_right")
"""Other operations of index arithmetic that lead no further."""


@record(frozen=False)
class NamedOpaque(Opaque):
    """Opaque expressions named by their text, so that the order of terms does not depend on who was seen first."""

    _by_name: dict[str, Expr] = field(default_factory=dict)

    def name_of(self, expr: Expr) -> str:
        found = self.names.get(expr)
        if found is None:
            found = "?" + print_expr(expr)
            while found in self._by_name:
                found += "'"
            self.names[expr] = found
            self._by_name[found] = expr
        return found

    def expression(self, name: str) -> Expr | None:
        """The expression behind an opaque name, None for the name of an index or a size."""
        return self._by_name.get(name)


class Arithmetic:
    """Forms and ranges of integer expressions, shared by all contexts of one simplification."""

    def __init__(self, sizes: Iterable[str], shapes: Mapping[str, tuple[Expr, ...]] | None = None) -> None:
        self.opaque = NamedOpaque()
        self.sizes = tuple(sizes)
        self.shapes = shapes or {}
        self._spans: dict[Expr, tuple[int, int] | None] = {}
        self._pure: dict[Expr, bool] = {}
        self._forms: dict[Expr, Affine] = {}
        self.reaches: dict[Expr, tuple[int, int] | None] = {}
        """Ranges of expressions anywhere, None of those that may wrap around (`simplify.facts.overflow`)."""

    def form(self, expr: Expr) -> Affine:
        """The quasi-affine form of an integer expression, with opaque names for what has none."""
        found = self._forms.get(expr)
        if found is None:
            found = affine_of(expr, self.opaque)
            assert found is not None
            self._forms[expr] = found
        return found

    def pure(self, expr: Expr) -> bool:
        """Whether an expression is index arithmetic alone: indices, sizes, literals and operations on them."""
        found = self._pure.get(expr)
        if found is None:
            match expr:
                case Index() | Size() | Const():
                    found = True
                case Apply():
                    found = all(self.pure(a) for a in expr.args)
                case Cast():
                    found = expr.dtype is dtypes.int64 and self.pure(expr.arg)
                case _:
                    found = False
            self._pure[expr] = found
        return found

    def exact(self, expr: Expr) -> bool:
        """Whether an integer expression cannot wrap around, so that its value is that of its form."""
        return self.span(expr) is not None

    def keeps(self, expr: Apply) -> bool:
        """Whether an operation of `CHAIN` gives the whole number, of integers of any width."""
        if expr.dtype is dtypes.int64:
            return self.exact(expr)
        low, high = combined(expr.op.name, [(int(a.dtype.least), int(a.dtype.greatest)) for a in expr.args])
        return expr.op.name == "mod" or (low >= expr.dtype.least and high <= expr.dtype.greatest)

    def span(self, expr: Expr) -> tuple[int, int] | None:
        """A range that contains the values of an integer expression, None where a part of its form may wrap around."""
        if expr in self._spans:
            return self._spans[expr]
        found = self._span(expr)
        self._spans[expr] = found
        return found

    def _span(self, expr: Expr) -> tuple[int, int] | None:
        whole = (int(expr.dtype.least), int(expr.dtype.greatest))
        if isinstance(expr, Const):
            return (int(expr.value), int(expr.value))
        if isinstance(expr, Reduce) and expr.combiner.name in ("argmax", "argmin"):
            return (0, MOST_SIZE)
        if expr.dtype is not dtypes.int64:
            return whole
        if self.pure(expr):
            return self._pure_span(expr)
        if isinstance(expr, Cast) and (expr.arg.dtype.is_integer or expr.arg.dtype.is_bool) and expr.arg.dtype is not dtypes.uint64:
            return self.span(expr.arg) if expr.arg.dtype.is_integer else (0, 1)
        if not isinstance(expr, Apply) or expr.op.name not in CHAIN:
            return whole
        parts = [self.span(a) for a in expr.args]
        if any(p is None for p in parts):
            return None
        low, high = combined(expr.op.name, [p for p in parts if p is not None])
        return (low, high) if whole[0] <= low and high <= whole[1] else None

    def _pure_span(self, expr: Expr) -> tuple[int, int]:
        """The span of index arithmetic, of which definitions see to it that it stays within `LIMIT` (`tensorexpr.bounds.wrapping`)."""
        if isinstance(expr, Const):
            return (int(expr.value), int(expr.value))
        if not isinstance(expr, Apply):
            return (0 if isinstance(expr, Size) else -MOST_SIZE, MOST_SIZE)
        if expr.op.name in CHAIN:
            low, high = combined(expr.op.name, [self._pure_span(a) for a in expr.args])
            return (low, high) if low >= -LIMIT and high <= LIMIT else (-LIMIT, LIMIT)
        if expr.op.name in _BOUNDED or (expr.op.name == "shift_left" and isinstance(expr.args[1], Const)):
            return (-LIMIT, LIMIT)
        return (int(dtypes.int64.least), int(dtypes.int64.greatest))

    def constraints(self, condition: Expr) -> tuple[Constraint, ...] | None:
        """What one comparison of integers says, None where it says nothing that an integer set can hold."""
        if not isinstance(condition, Apply) or condition.op.name not in COMPARISONS:
            return None
        left, right = condition.args
        if not left.dtype.is_integer or not (self.exact(left) and self.exact(right)):
            return None
        return (COMPARISONS[condition.op.name](self.form(left), self.form(right)),)

    def facts(self, name: str) -> Iterator[Constraint]:
        """What holds for an opaque name anywhere: a minimum is at most its operands, a cast keeps within its source's range."""
        expr = self.opaque.expression(name)
        if not isinstance(expr, Apply | Cast | Access | Reduce):
            return
        span = self.span(expr)
        if span is not None and not self.pure(expr):
            low, high = span
            if low > expr.dtype.least:
                yield ge(name, low)
            if high < expr.dtype.greatest:
                yield le(name, high)
        if not isinstance(expr, Apply) or expr.op.name not in ("minimum", "maximum", "abs") or not self.keeps(expr):
            return
        for arg in expr.args:
            if not self.exact(arg):
                continue
            match expr.op.name:
                case "minimum":
                    yield le(name, self.form(arg))
                case "maximum":
                    yield ge(name, self.form(arg))
                case "abs":
                    yield ge(name, self.form(arg))
                    yield ge(name, -self.form(arg))
                    yield ge(name, 0)


def combined(name: str, parts: list[tuple[int, int]]) -> tuple[int, int]:
    """The values of an operation of `CHAIN` on numbers in some ranges, as whole numbers."""
    low, high = parts[0]
    if name == "neg":
        return -high, -low
    if name == "abs":
        return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    other_low, other_high = parts[1]
    match name:
        case "add":
            return low + other_low, high + other_high
        case "sub":
            return low - other_high, high - other_low
        case "mul":
            corners = [a * b for a in parts[0] for b in parts[1]]
            return min(corners), max(corners)
        case "minimum":
            return min(low, other_low), min(high, other_high)
        case "maximum":
            return max(low, other_low), max(high, other_high)
        case "mod":
            return min(0, other_low), max(0, other_high)
    return -max(abs(low), abs(high)), max(abs(low), abs(high))


class Context:
    """Axes entered and conditions known, outermost first, with answers to questions about integers.

    `depths` orders indices from the outside in, `truths` holds conditions that are known to be true or false as they
    stand, `fixed` the indices whose axes have one point, `values` the numbers that others have by a condition.
    """

    __slots__ = (
        "_answers", "_box", "_domains", "_inner", "_ranges", "_rectangular",
        "arithmetic", "constraints", "depths", "fixed", "memo", "truths", "values",
    )  # fmt: skip

    def __init__(
        self,
        arithmetic: Arithmetic,
        constraints: tuple[Constraint, ...],
        depths: dict[str, int],
        truths: dict[Expr, bool],
        fixed: dict[str, Expr],
        values: dict[str, Expr],
    ) -> None:
        self.arithmetic = arithmetic
        self.constraints = constraints
        self.depths = depths
        self.truths = truths
        self.fixed = fixed
        self.values = values
        self.memo: dict[tuple[Expr, bool, bool], Expr] = {}
        self._box: dict[str, Interval] = {}
        self._rectangular: dict[str, bool] = {}
        for one in constraints:
            self._enter(one)
        self._domains: Domain | None = None
        self._ranges: dict[Affine, Interval] = {}
        self._answers: dict[Constraint, bool] = {}
        self._inner: dict[object, Context | None] = {}

    @classmethod
    def outermost(cls, arithmetic: Arithmetic) -> Context:
        """The context in which nothing is known but that sizes are not negative."""
        return cls(arithmetic, tuple(ge(size, 0) for size in arithmetic.sizes), {}, {}, {}, {})

    def _enter(self, one: Constraint) -> None:
        terms = one.expr.terms
        name, factor = terms[0] if len(terms) == 1 else ("", 0)
        if isinstance(name, str) and abs(factor) == 1:
            bound = -one.expr.constant * factor
            low, high = self._box.get(name, (None, None))
            if factor > 0 or one.is_equality:
                low = bound if low is None else max(low, bound)
            if factor < 0 or one.is_equality:
                high = bound if high is None else min(high, bound)
            self._box[name] = (low, high)
        else:
            for other in one.names():
                self._rectangular[other] = False

    # -- growing -----------------------------------------------------------------------------------------------------

    def inside(self, axis: Axis) -> Context:
        """The context within an axis, whose bounds are simplified already; the same one each time."""
        known = self._inner.get(axis)
        if known is None:
            known = self._inner[axis] = self._inside(axis)
        return known

    def _inside(self, axis: Axis) -> Context:
        found, _ = bound_constraints(axis.index, axis, self.arithmetic.opaque)
        fixed = self.fixed
        if self.arithmetic.pure(axis.start) and self.arithmetic.form(axis.stop) - self.arithmetic.form(axis.start) == Affine.of(1):
            fixed = {**fixed, axis.index: axis.start}
        depths = {**self.depths, axis.index: len(self.depths)}
        return Context(self.arithmetic, (*self.constraints, *found), depths, self.truths, fixed, self.values)

    def assuming(self, conditions: Iterable[Expr]) -> Context:
        """The context where all of the conditions hold, too; the same one each time."""
        conditions = tuple(conditions)
        if conditions in self._inner:
            return self._inner[conditions] or self
        found = self._assuming(conditions)
        self._inner[conditions] = None if found is self else found  # what holds itself waits for the collector of cycles
        return found

    def _assuming(self, conditions: tuple[Expr, ...]) -> Context:
        added: list[Constraint] = []
        truths = dict(self.truths)
        for condition in conditions:
            for part in conjuncts(condition):
                truths[part] = True
                truths[negate(part)] = False
                added.extend(self.arithmetic.constraints(part) or self._beside(part))
        if len(truths) == len(self.truths):
            return self
        values = {**self.values, **{name: value for one in added for name, value in self._value_of(one)}}
        return Context(self.arithmetic, (*self.constraints, *added), self.depths, truths, self.fixed, values)

    def _value_of(self, one: Constraint) -> Iterator[tuple[str, Expr]]:
        """The index that a condition says to be a number."""
        if one.is_equality and len(one.expr.terms) == 1:
            ((name, factor),) = one.expr.terms
            if isinstance(name, str) and name in self.depths and abs(factor) == 1:
                yield name, const(-one.expr.constant * factor)

    def _beside(self, condition: Expr) -> tuple[Constraint, ...]:
        """i != c says i > c where i >= c is known already, and i < c where i <= c is."""
        if not isinstance(condition, Apply) or condition.op.name != "ne":
            return ()
        found = self.arithmetic.constraints(apply("eq", *condition.args))
        if not found:
            return ()
        form = found[0].expr
        if self.implies(ge(form, 0)):
            return (ge(form, 1),)
        return (le(form, -1),) if self.implies(le(form, 0)) else ()

    # -- asking ------------------------------------------------------------------------------------------------------

    def domain(self, names: Iterable[str] = ()) -> Domain:
        """The integer set of everything known, over all names that occur in it and those asked for."""
        present = self._domains
        wanted = [n for n in names if present is None or n not in present.sizes]
        if present is not None and not wanted:
            return present
        found = dict.fromkeys(present.sizes if present is not None else (n for c in self.constraints for n in c.names()))
        constraints = list(present.constraints if present is not None else self.constraints)
        open_names = [*([] if present is not None else found), *wanted]
        while open_names:
            name = open_names.pop()
            found.setdefault(name)
            if name.startswith("?"):
                for fact in (*self.arithmetic.facts(name), *self._local_facts(name)):
                    constraints.append(fact)
                    open_names.extend(n for n in fact.names() if n not in found)
        self._domains = Domain((), constraints, tuple(found))
        return self._domains

    def _local_facts(self, name: str) -> Iterator[Constraint]:
        """What holds for an opaque quotient, remainder or product by what is known here about its operands."""
        expr = self.arithmetic.opaque.expression(name)
        if not isinstance(expr, Apply) or expr.op.name not in ("mod", "floordiv", "mul") or not self.arithmetic.keeps(expr):
            return
        left, right = (self.arithmetic.form(a) for a in expr.args)
        if name in left.names() or name in right.names():
            return
        if expr.op.name == "mod":
            if self.quick_low(right) >= 0:
                yield ge(name, 0)
            if self.quick_low(right) >= 1:
                yield lt(name, right)
        elif self.quick_low(left) >= 0 and self.quick_low(right) >= 0:
            yield ge(name, 0)
            if expr.op.name == "floordiv":
                yield le(name, left)
            elif self.quick_low(left) >= 1:
                yield ge(name, right)
            if expr.op.name == "mul" and self.quick_low(right) >= 1:
                yield ge(name, left)

    def harmless(self, expr: Expr) -> bool:
        """Whether an expression can be evaluated here: every element that it reads is known to exist."""
        for node in walk(expr):
            if not isinstance(node, Access):
                continue
            shape = self.arithmetic.shapes.get(node.tensor)
            if shape is None:
                return False
            for index, extent in zip(node.indices, shape, strict=True):
                if not self.arithmetic.pure(index):
                    return False
                form = self.arithmetic.form(index)
                if not self.implies(ge(form, 0)) or not self.implies(lt(form, self.arithmetic.form(extent))):
                    return False
        return True

    def quick_low(self, form: Affine) -> float:
        """A lower bound by intervals alone, minus infinity where there is none."""
        low = form.interval(self._box)[0]
        return float("-inf") if low is None else low

    def is_empty(self) -> bool:
        """Whether nothing satisfies what is known: the place is never reached."""
        if any(c.is_false for c in self.constraints):
            return True
        if not self._rectangular:
            return any(low is not None and high is not None and low > high for low, high in self._box.values())
        try:
            return self.domain().is_empty()
        except DomainTooComplex:
            return False

    def implies(self, constraint: Constraint) -> bool:
        """Whether a constraint holds wherever this place is reached."""
        if constraint.is_true or constraint.is_false:
            return constraint.is_true or self.is_empty()
        found = self._answers.get(constraint)
        if found is None:
            found = self._answers[constraint] = self._implies(constraint)
        return found

    def _implies(self, constraint: Constraint) -> bool:
        low, high = constraint.expr.interval(self._box)
        if constraint.is_equality:
            if low is not None and low == 0 == high:
                return True
            if (low is not None and low > 0) or (high is not None and high < 0):
                return self.is_empty()
        else:
            if low is not None and low >= 0:
                return True
            if high is not None and high < 0:
                return self.is_empty()
        if self._independent(constraint.expr):
            return self.is_empty()
        try:
            return self.domain(constraint.names()).implies(constraint)
        except DomainTooComplex:
            return False

    def excludes(self, constraint: Constraint) -> bool:
        """Whether a constraint fails wherever this place is reached."""
        if not constraint.is_equality:
            return self.implies(constraint.negate()[0])
        low, high = constraint.expr.interval(self._box)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return True
        try:
            return self.domain(constraint.names()).constrain(constraint).is_empty()
        except DomainTooComplex:
            return False

    def range(self, form: Affine) -> Interval:
        """The least and greatest value of a form here, None for a side that is not bounded or not known."""
        found = self._ranges.get(form)
        if found is None:
            found = form.interval(self._box)
            if not self._independent(form):
                with suppress(DomainTooComplex):
                    found = self.domain(form.names()).range(form)
            self._ranges[form] = found
        return found

    def quotient_range(self, form: Affine, divisor: int) -> Interval:
        """The least and greatest value of ``form // divisor`` here: a coarser question than that for the range, settled sooner."""
        if form in self._ranges or self._independent(form):
            low, high = self.range(form)
            return None if low is None else low // divisor, None if high is None else high // divisor
        return self.range(form // divisor)

    def quick_range(self, form: Affine) -> Interval:
        """A range by intervals alone: never too narrow, perhaps too wide."""
        return form.interval(self._box)

    def _independent(self, form: Affine) -> bool:
        """Whether interval arithmetic gives the exact range: names once each, bounded by numbers alone."""
        return all(isinstance(a, str) and not a.startswith("?") and self._rectangular.get(a, True) for a, _ in form.terms)
