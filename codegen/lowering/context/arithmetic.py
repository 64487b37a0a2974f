"""Index arithmetic while lowering: building int64 expressions folded, and putting them in normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd

from tensorexpr import dtypes
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Param, apply, const
from tensorexpr.regions import Opaque, affine_of, expression_of
from tensorexpr.traversal import map_children, size_names, walk

ZERO, ONE = const(0), const(1)
_SMALL = 1 << 40


def constant(expr: Expr) -> int | None:
    """The value of an integer literal."""
    return int(expr.value) if isinstance(expr, Const) and expr.dtype is dtypes.int64 else None


def multiple_of(expr: Expr) -> int:
    """A number that divides an integer whatever its indices and sizes are, as its form says; 0 for 0."""
    if isinstance(expr, Apply) and expr.op.name == "mul":
        return multiple_of(expr.args[0]) * multiple_of(expr.args[1])
    form = affine_of(expr)
    return 1 if form is None else gcd(form.constant, *(count for _, count in form.terms))


def add(a: Expr, b: Expr) -> Expr:
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return const(x + y)
    if isinstance(b, Apply) and b.op.name == "sub" and b.args[1] == a:
        return b.args[0]
    return b if x == 0 else a if y == 0 else normal(apply("add", a, b))


def sub(a: Expr, b: Expr) -> Expr:
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return const(x - y)
    return a if y == 0 else normal(apply("sub", a, b))


def mul(a: Expr, b: Expr) -> Expr:
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return const(x * y)
    if x == 0 or y == 0:
        return ZERO
    return b if x == 1 else a if y == 1 else normal(apply("mul", a, b))


def floordiv(a: Expr, b: int) -> Expr:
    x = constant(a)
    return const(x // b) if x is not None else a if b == 1 else normal(apply("floordiv", a, const(b)))


def minimum(a: Expr, b: Expr) -> Expr:
    return _extremum("minimum", min, a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    return _extremum("maximum", max, a, b)


def _extremum(op: str, choose: Callable[[int, int], int], a: Expr, b: Expr) -> Expr:
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return const(choose(x, y))
    apart = constant(sub(a, b)) if x is None and y is None else None
    if apart is not None:
        return a if (apart <= 0) == (choose is min) else b
    return apply(op, a, b)


@lru_cache(maxsize=8192)
def normal(expr: Expr) -> Expr:
    """An int64 expression as a sum of terms, each once; what is not affine stays as it is inside.

    Expressions over data stay as they are: their values may wrap around, indices never do.
    """
    if reads_data(expr):
        return expr
    opaque = Opaque()
    form = affine_of(expr, opaque)
    if form is None or any(abs(c) > _SMALL for c in (form.constant, *(c for _, c in form.terms))):
        return expr
    return expression_of(form, size_names(expr), opaque)


_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip


class _Substituted:
    """What replaces indices, parameters and accesses, and what was found so far."""

    __slots__ = ("done", "index", "parameter", "read")

    def __init__(self, index: Callable[[str], Expr], parameter: Callable[[Param], Expr], read: Callable[[Access], Expr]) -> None:
        self.index, self.parameter, self.read = index, parameter, read
        self.done: dict[Expr, Expr] = {}

    def whole(self, node: Expr) -> Expr:
        """An expression that stands in no other arithmetic of integers: in normal form."""
        found = self.part(node)
        return _folded(found) if isinstance(found, Apply) else found

    def part(self, node: Expr) -> Expr:
        """One that does: it is brought to normal form with what it stands in."""
        found = self.done.get(node)
        if found is None:
            found = self.done[node] = self._rebuilt(node)
        return found

    def _rebuilt(self, node: Expr) -> Expr:
        match node:
            case Index():
                return self.index(node.name)
            case Param():
                return self.parameter(node)
            case Access():
                found = map_children(node, self.whole)
                assert isinstance(found, Access)
                return self.read(found)
            case Apply() if node.dtype is dtypes.int64 and node.op.name in _ARITHMETIC:
                return map_children(node, self.part)
        return map_children(node, self.whole)


def substituted(expr: Expr, index: Callable[[str], Expr], parameter: Callable[[Param], Expr], read: Callable[[Access], Expr]) -> Expr:
    """The expression with indices, parameters and (after their own indices) accesses replaced, int64 parts in normal form."""
    return _Substituted(index, parameter, read).whole(expr)


_ARITHMETIC = ("add", "sub", "mul", "neg", "floordiv", "mod")


def _folded(node: Apply) -> Expr:
    if node.dtype is dtypes.int64 and node.op.name in _ARITHMETIC:
        return normal(node)
    if node.dtype is dtypes.int64 and node.op.name in ("minimum", "maximum"):
        return (minimum if node.op.name == "minimum" else maximum)(*node.args)
    if node.op.name in _COMPARISONS:
        x, y = (constant(a) for a in node.args)
        if x is not None and y is not None:
            return Const(_COMPARISONS[node.op.name](x, y), dtypes.bool_)
    if node.op.name == "where" and isinstance(node.args[0], Const):
        return node.args[1] if node.args[0].value else node.args[2]
    if node.op.name == "and" and node.dtype.is_bool:
        for a, b in (node.args, node.args[::-1]):
            if isinstance(a, Const):
                return b if a.value else a
    return node


def reads_data(expr: Expr) -> bool:
    """Whether the value depends on elements of tensors or results of reductions."""
    return any(isinstance(n, Access | Param) for n in walk(expr))
