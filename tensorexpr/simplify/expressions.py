"""Expressions under their context: one walk from the outside in that knows axes, guards and ranges at every node.

Integers of index arithmetic go through `indices`, conditions through `conditions`, everything else through the rule lists
of its dtype. The branches of a `where` and the body of a reduction are simplified knowing their conditions.

A condition that reads a tensor is never simplified by what stands beside it in a conjunction: it is evaluated also where
the other conditions are false, and might then read out of bounds.

In derived formulas (`Options.derived`) only floats may change: what is inside a condition, a subscript or another integer decides
which element is read and which branch is taken. It is a copy from the forward pass and decides as the forward pass did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache, reduce

from tensorexpr import dtypes
from tensorexpr.ir import (
    FALSE,
    TRUE,
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Index,
    Param,
    Reduce,
    Size,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.records import replace
from tensorexpr.regions import alternatives
from tensorexpr.rewrite import MOST_STEPS, Rule, RuleSet, endless, trace
from tensorexpr.simplify.domains import narrowed, residue_classes, without_idle_guards
from tensorexpr.simplify.facts.conditions import (
    at_border,
    decided,
    disjuncts,
    joined,
    known_extremum,
    needed,
    normal_comparison,
    ordered,
    split_extremum,
    united,
)
from tensorexpr.simplify.facts.context import Arithmetic, Context
from tensorexpr.simplify.facts.indices import divide, multiply, normal_index
from tensorexpr.simplify.facts.overflow import stays_within
from tensorexpr.simplify.options import STRICT, Options
from tensorexpr.simplify.pieces import with_joint_pieces
from tensorexpr.simplify.reductions import factored
from tensorexpr.simplify.rules.common import COMMON_RULES, operands_of, reads_nothing
from tensorexpr.simplify.rules.floats import DERIVED_RULES, FLOAT_RULES, REASSOCIATION_RULES, ZERO_SIGN_RULES
from tensorexpr.simplify.rules.integers import INTEGER_RULES
from tensorexpr.simplify.rules.reduce import CAST_RULES, REDUCE_RULES, SIDE_RULES, identity
from tensorexpr.traversal import map_children, negate, size_names

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SUMS = ("add", "sub", "mul", "neg", "floordiv", "mod")


@cache
def _rules(kind: str, options: Options) -> RuleSet:
    match kind:
        case "float":
            extra: tuple[Rule, ...] = () if options.signed_zeros else ZERO_SIGN_RULES
            extra = DERIVED_RULES if options.derived else extra
            extra = REASSOCIATION_RULES if options.reassociate else extra
            return RuleSet((*COMMON_RULES, *FLOAT_RULES, *extra))
        case "integer":
            return RuleSet((*COMMON_RULES, *INTEGER_RULES, *CAST_RULES))
        case "reduce":
            return RuleSet(REDUCE_RULES if options.differentiable else (*REDUCE_RULES, *SIDE_RULES))
    return RuleSet(COMMON_RULES)


def _kind(expr: Expr) -> str:
    if isinstance(expr, Reduce):
        return "reduce"
    dtype = expr.args[-1].dtype if isinstance(expr, Apply) else expr.dtype
    return "float" if dtype.is_float else "integer" if dtype.is_integer else "bool"


def simplify_expr(
    expr: Expr,
    axes: Iterable[Axis] = (),
    guards: Iterable[Expr] = (),
    *,
    signed_zeros: bool = True,
    reassociate: bool = False,
    narrow: bool = False,
    factor: bool = False,
    derived: bool = False,
    subscript: bool = False,
) -> Expr:
    """`expr` in its simplest form inside `axes` (outermost first) and under `guards`; the same object when it has it already.

    The value is kept at every point of the axes at which all guards hold, NaN, infinities and (unless `signed_zeros` is
    False) the sign of zeros included; `reassociate` allows what holds in real arithmetic only, `narrow` makes the axes of
    reductions as short as their conditions allow (see `simplify.domains`), `factor` moves factors out of sums, and `derived` allows
    what holds for formulas that no user wrote (see `simplify.options`). `subscript` says that an integer expression
    stands in a subscript or a bound, where its arithmetic is assumed not to overflow.
    """
    axes, guards = tuple(axes), tuple(guards)
    parts = [expr, *guards, *(e for axis in axes for e in (axis.start, axis.stop))]
    simplifier = Simplifier(sorted({n for e in parts for n in size_names(e)}), Options(signed_zeros, reassociate, narrow, factor, derived))
    context = simplifier.enter(axes, simplifier.outermost)
    for guard in guards:
        context = simplifier.assume(guard, context)
    return simplifier.visit(expr, context, subscript)


class Simplifier:
    """One simplification: the contexts of one definition share its forms of integers."""

    def __init__(self, sizes: Iterable[str], options: Options = STRICT, shapes: Mapping[str, tuple[Expr, ...]] | None = None) -> None:
        self.options = options
        self.arithmetic = Arithmetic(sizes, shapes)
        self.outermost = Context.outermost(self.arithmetic)
        self._exact: Simplifier | None = None  # not itself: what holds itself waits for the collector of cycles
        if options.derived:
            self._exact = copy(self)
            self._exact.options = options.exact()

    @property
    def exact(self) -> Simplifier:
        """The same for what is not derived."""
        return self._exact or self

    def enter(self, axes: Iterable[Axis], context: Context) -> Context:
        """The context inside axes that are taken as they are."""
        for axis in axes:
            context = context.inside(axis)
        return context

    def assume(self, condition: Expr, context: Context) -> Context:
        """The context where a condition holds."""
        return context.assuming([self.visit(condition, context), condition])

    def visit(self, expr: Expr, context: Context, subscript: bool = False) -> Expr:
        """The simplest form of an expression in a context; `subscript` where its integers are assumed not to overflow."""
        match expr:
            case Index():
                return context.fixed.get(expr.name) or context.values.get(expr.name, expr)
            case Const() | Size() | Param():
                return expr
        if self.exact is not self and not expr.dtype.is_float:
            return self.exact.visit(expr, context, subscript)
        derived = self.options.derived
        known = context.memo.get((expr, subscript, derived))
        if known is not None:
            return expr if known == expr else known
        # Deep expressions cost two frames of the interpreter per level: this one and that of the step.
        step = _STEPS[type(expr)]
        before = result = expr
        for _ in range(MOST_STEPS):
            before = result
            result = step(self, before, context, subscript)
            if result == before or context.memo.get((result, subscript, derived)) is result:
                break
            trace("in context", before, result)
            if isinstance(result, Index | Const | Size | Param):
                break
            step = _STEPS[type(result)]
        else:
            raise endless(before, result)
        context.memo[(expr, subscript, derived)] = result
        context.memo.setdefault((result, subscript, derived), result)
        return expr if result == expr else result

    def _access(self, expr: Expr, context: Context, subscript: bool) -> Expr:
        assert isinstance(expr, Access)
        indices = []
        for index in expr.indices:
            indices.append(self.visit(index, context, True))
        node = expr if all(a is b for a, b in zip(indices, expr.indices, strict=True)) else replace(expr, indices=tuple(indices))
        return (decided(node, context) or node) if expr.dtype.is_bool else node

    def _cast(self, expr: Expr, context: Context, subscript: bool) -> Expr:
        assert isinstance(expr, Cast)
        arg = self.visit(expr.arg, context)
        return self._by_rules(expr if arg is expr.arg else Cast(expr.dtype, arg), context)

    def _by_rules(self, expr: Expr, context: Context) -> Expr:
        following = _rules(_kind(expr), self.options).step(expr)
        if following is not None:
            return following
        if expr.dtype.is_bool:
            known = decided(expr, context)
            return expr if known is None else known
        return expr

    # -- operations --------------------------------------------------------------------------------------------------

    def _apply(self, expr: Expr, context: Context, subscript: bool) -> Expr:
        assert isinstance(expr, Apply)
        name = expr.op.name
        if name == "where":
            return self._where(expr, context, subscript)
        if expr.dtype.is_bool and name in ("and", "or"):
            result = self._and(expr, context) if name == "and" else self._or(expr, context)
            return self._by_rules(result, context)
        integer = expr.dtype is dtypes.int64
        sure = integer and (subscript or self.arithmetic.exact(expr))
        if name in _SUMS and sure:
            return normal_index(self._chain(expr, context, subscript), context, subscript)
        # What a function is taken of is the user's: rounded otherwise, it would be another value than the forward's, computed once more.
        visitor = self.exact if expr.op.operands == "float" and name != "div" else self
        args = []
        for arg in expr.args:
            args.append(visitor.visit(arg, context, subscript and integer))
        node = expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else Apply(expr.op, tuple(args))
        if name in _COMPARISONS:
            return self._comparison(node, context)
        if name in ("minimum", "maximum", "abs") and sure:
            return self._abs(node, context) if name == "abs" else self._extremum(node, context)
        if name in ("add", "sub") and self.options.derived:
            joint = with_joint_pieces(node, context)
            if joint is not node:
                return joint
        if name in ("minimum", "maximum"):
            return known_extremum(node, context) or self._by_rules(node, context)
        return self._by_rules(node, context)

    def _chain(self, expr: Expr, context: Context, subscript: bool) -> Expr:
        """Sums, products and quotients of index arithmetic with their leaves simplified, and what is not affine made so."""
        if not isinstance(expr, Apply) or expr.dtype is not dtypes.int64 or expr.op.name not in _SUMS:
            return self.visit(expr, context, subscript)
        expr = map_children(expr, lambda arg: self._chain(arg, context, subscript))
        if not isinstance(expr, Apply) or expr.op.name not in ("mul", "floordiv", "mod"):
            return expr
        left, right = (normal_index(a, context, subscript) for a in expr.args)
        if expr.op.name == "mul":
            plain = isinstance(left, Const) or isinstance(right, Const)
            return apply("mul", left, right) if plain else multiply(left, right, context, subscript)
        if left == const(0):
            return left  # 0 // x = 0 % x = 0, also where x is 0
        if isinstance(right, Const):
            if right.value > 0:
                return Apply(expr.op, (left, right))
            if right.value == 0:
                return const(0)
            if right.value == dtypes.int64.least or not stays_within(apply("neg", left), context):
                return Apply(expr.op, (left, right))
            turned = apply(expr.op.name, apply("neg", left), const(-int(right.value)))  # x // -d = -x // d;  x % -d = -(-x % d)
            return turned if expr.op.name == "floordiv" else apply("neg", turned)
        found = divide(left, right, context, subscript)
        if found is None:
            return Apply(expr.op, (left, right))
        return found[0] if expr.op.name == "floordiv" else found[1]

    def _extremum(self, expr: Apply, context: Context) -> Expr:
        """minimum(a, b) -> a where a <= b is known here; operands of nested minima are compared with each other"""
        given = alternatives(expr, expr.op.name)
        operands = list(dict.fromkeys(given))
        kept: list[Expr] = []
        for at, one in enumerate(operands):
            others = kept + operands[at + 1 :]
            if not any(self._makes_superfluous(other, one, expr.op.name, context) for other in others):
                kept.append(one)
        if len(kept) == len(given):
            return self._by_rules(expr, context)
        result = kept[0]
        for one in kept[1:]:
            result = Apply(expr.op, (result, one))
        return result

    def _makes_superfluous(self, one: Expr, other: Expr, name: str, context: Context) -> bool:
        """Whether a minimum (maximum) of both is `one`."""
        inner = other.op.name if isinstance(other, Apply) else ""
        if inner in ("minimum", "maximum") and inner != name:  # minimum(maximum(a, b), c) -> c, where a >= c or b >= c
            assert isinstance(other, Apply)
            if any(self._makes_superfluous(one, arg, name, context) for arg in other.args):
                return True
        inner = one.op.name if isinstance(one, Apply) else ""
        if inner in ("minimum", "maximum") and inner != name:  # minimum(maximum(a, b), c) -> maximum(a, b), where a <= c and b <= c
            assert isinstance(one, Apply)
            if all(self._makes_superfluous(arg, other, name, context) for arg in one.args):
                return True
        found = self.arithmetic.constraints(apply("le" if name == "minimum" else "ge", one, other))
        return found is not None and all(context.implies(c) for c in found)

    def _abs(self, expr: Apply, context: Context) -> Expr:
        """abs(a) -> a where a >= 0 is known here;  abs(a) -> -a where a <= 0"""
        low, high = context.range(self.arithmetic.form(expr.args[0]))
        if low is not None and low >= 0:
            return expr.args[0]
        if high is not None and high <= 0:
            return apply("neg", expr.args[0])
        return self._by_rules(expr, context)

    # -- conditions --------------------------------------------------------------------------------------------------

    def _comparison(self, node: Apply, context: Context) -> Expr:
        split = split_extremum(node, context)
        if split is not None:
            return split
        known = decided(node, context)
        if known is not None:
            return known
        if all(a.dtype is dtypes.int64 and self.arithmetic.exact(a) for a in node.args):
            result = normal_comparison(node, context)
            if result in (TRUE, FALSE):
                return result
            result = at_border(result, context) or result
            return self._by_rules(result, context)
        return self._by_rules(node, context)

    def _and(self, expr: Apply, context: Context) -> Expr:
        parts: dict[Expr, None] = {}
        inner = context
        for part in conjuncts(expr):
            simple = self.visit(part, inner if reads_nothing(part) else context)
            if simple == FALSE:
                return FALSE
            parts.update(dict.fromkeys(conjuncts(simple)))
            inner = inner.assuming([simple])
        kept = needed(list(parts), context)
        return FALSE if kept is None else joined(ordered(kept, context), expr)

    def _or(self, expr: Apply, context: Context) -> Expr:
        parts: dict[Expr, None] = {}
        inner = context
        before = list(disjuncts(expr))
        for part in before:
            simple = self.visit(part, inner if reads_nothing(part) else context)
            if simple == TRUE:
                return TRUE
            if simple != FALSE:
                parts.update(dict.fromkeys(disjuncts(simple)))
            inner = inner.assuming([negate(simple)])
        found = united(list(parts), context)
        if found == before:
            return expr
        result: Expr | None = None
        for part in found:
            result = part if result is None else apply("or", result, part)
        return FALSE if result is None else result

    def _where(self, expr: Apply, context: Context, subscript: bool) -> Expr:
        condition = self.visit(expr.args[0], context)
        if condition in (TRUE, FALSE):
            return self.visit(expr.args[1 if condition == TRUE else 2], context, subscript)
        taken = self.visit(expr.args[1], context.assuming([condition]), subscript)
        otherwise = self.visit(expr.args[2], context.assuming([self._opposite(condition)]), subscript)
        args = (condition, taken, otherwise)
        node = expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else Apply(expr.op, args)
        bare = without_idle_guards(node, context, self.options.signed_zeros)
        if bare is not node:
            return bare
        inner = operands_of(taken, "where")
        if inner is not None and inner[2] == otherwise and context.harmless(inner[0]):
            return apply("where", apply("and", condition, inner[0]), inner[1], otherwise)  # as in `merge_selections`
        if otherwise == FALSE and context.harmless(taken):
            return apply("and", condition, taken)
        inner = operands_of(otherwise, "where")
        if inner is not None and inner[1] == taken and context.harmless(inner[0]):
            return apply("where", apply("or", condition, inner[0]), taken, inner[2])  # as in `merge_alternatives`
        return self._by_rules(node, context)

    @staticmethod
    def _opposite(condition: Expr) -> Expr:
        """The condition of the branch not taken; a disjunction turns into the conjunction of the opposites."""
        parts = list(disjuncts(condition))
        return negate(condition) if len(parts) == 1 else conjunction([negate(p) for p in parts])

    # -- reductions --------------------------------------------------------------------------------------------------

    def axes(self, axes: tuple[Axis, ...], context: Context) -> tuple[tuple[Axis, ...], Context]:
        """The axes with simplified bounds, the same object where nothing changed, and the context inside them."""
        found: list[Axis] = []
        for axis in axes:
            start, stop = self._bound(axis.start, "maximum", context), self._bound(axis.stop, "minimum", context)
            found.append(axis if start is axis.start and stop is axis.stop else Axis(axis.index, start, stop))
            context = context.inside(found[-1])
        return (axes if all(a is b for a, b in zip(axes, found, strict=True)) else tuple(found)), context

    def _reduce(self, expr: Expr, context: Context, subscript: bool) -> Expr:
        assert isinstance(expr, Reduce)
        axes, inner = self.axes(expr.axes, context)
        where = None if expr.where is None else self.visit(expr.where, inner)
        if where == FALSE or (expr.axes and inner.is_empty() and not context.is_empty()):
            return identity(expr)
        if where is not None:
            inner = inner.assuming([where])
        values = tuple(self.visit(v, inner) for v in expr.values)
        where = None if where == TRUE else where
        same = axes is expr.axes and where is expr.where and all(a is b for a, b in zip(values, expr.values, strict=True))
        reduction = expr if same else replace(expr, axes=axes, where=where, values=values)
        node = self._without_unit_axes(reduction, inner)
        if self.options.narrow and isinstance(node, Reduce):
            node = narrowed(node, context)
        if self.options.derived and isinstance(node, Reduce):
            parts = residue_classes(node, context)
            if parts is not None:
                return reduce(lambda a, b: apply("add", a, b), (self.visit(part, context) for part in parts))
        if self.options.factor and isinstance(node, Reduce):
            node = factored(node, context, self.options)
        return self._by_rules(node, context)

    def _bound(self, expr: Expr, op: str, context: Context) -> Expr:
        """A start or stop with sums moved into its maximum or minimum: ``minimum(n - 1, i) + 1`` is ``minimum(n, i + 1)``."""
        simple = self.visit(expr, context, True)
        moved = _inward(simple, op)
        return simple if moved is simple else self.visit(moved, context, True)

    def _without_unit_axes(self, expr: Reduce, context: Context) -> Expr:
        """sum(e for k in range(a, a + 1)) -> e with a for k; other axes stay, and so does the last one of a user's combiner"""
        kept = tuple(axis for axis in expr.axes if axis.index not in context.fixed)
        if len(kept) == len(expr.axes):
            return expr
        if kept:
            return replace(expr, axes=kept)
        if not expr.combiner.is_builtin:
            return expr if len(expr.axes) == 1 else replace(expr, axes=expr.axes[-1:])
        if expr.combiner.name in ("argmax", "argmin"):
            return const(0)
        value = expr.values[0]
        return value if expr.where is None else apply("where", expr.where, value, identity(expr))


_STEPS = {
    Access: Simplifier._access,
    Cast: Simplifier._cast,
    Apply: Simplifier._apply,
    Reduce: Simplifier._reduce,
}
"""One step at a node of each kind: its parts simplified, then the node itself."""


def _inward(expr: Expr, op: str) -> Expr:
    """minimum(a, b) + c -> minimum(a + c, b + c), likewise for minus and for maximum"""
    if not isinstance(expr, Apply) or expr.op.name not in ("add", "sub"):
        return expr
    left, right = expr.args
    left = _inward(left, op)
    if isinstance(left, Apply) and left.op.name == op:
        return Apply(left.op, tuple(_inward(Apply(expr.op, (a, right)), op) for a in left.args))
    right = _inward(right, op) if expr.op.name == "add" else right
    if expr.op.name == "add" and isinstance(right, Apply) and right.op.name == op:
        return Apply(right.op, tuple(_inward(Apply(expr.op, (left, a)), op) for a in right.args))
    return expr
