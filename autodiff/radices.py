"""Reshapes with symbolic extents turned around: digits of an index in mixed radix, whose radices are products of sizes.

Where extents are numbers, `inversion` solves these as lattices. Here an index is recognized by its form: one index of the
tensor that counts several axes (`(i*h + j)*w + k`), or several that are the digits of one axis (`f // (h*w)`, `f // w % h`,
`f % w`). Beside them axes may stand for themselves. The inverse is the opposite form, without a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorexpr.ir import Apply, Axis, Const, Expr, Index, Size, apply, const
from tensorexpr.nonlinear import Poly, named, number, plus, times
from tensorexpr.traversal import free_names, walk

ONE = number(1)


@dataclass(frozen=True, slots=True)
class Inverse:
    """Each axis that the indices determine as an expression of the element, and conditions on the element."""

    values: dict[str, Expr]
    outer: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Digit:
    """`axis // stride % radix`, with all of the rest where `radix` is None."""

    axis: str
    stride: Expr
    radix: Expr | None


def invert_radices(indices: Sequence[Expr], axes: Sequence[Axis], target: Sequence[Axis]) -> Inverse | None:
    """The inverse of a read at `indices`, None where they have another form."""
    own = {axis.index: axis for axis in axes if axis.start == const(0) and not free_names(axis.stop)}
    values: dict[str, Expr] = {}
    outer: list[Expr] = []
    digits: dict[str, list[tuple[_Digit, Axis]]] = {}
    for index, axis in zip(indices, target, strict=True):
        digit = _digit(index)
        if digit is not None:
            digits.setdefault(digit.axis, []).append((digit, axis))
            continue
        places = _places(index, own)
        if places is None or any(name in values for name, _ in places):
            return None
        _count_off(places, own, axis, values, outer)
    for name, group in digits.items():
        if name in values or name not in own or not _join(own[name], group, values, outer):
            return None
    return Inverse(values, tuple(outer))


def _poly(expr: Expr) -> Poly | None:
    """A polynomial in indices and sizes."""
    match expr:
        case Const():
            return number(int(expr.value)) if expr.value else {}
        case Index() | Size():
            return named(expr.name)
        case Apply() if expr.op.name in ("add", "sub", "mul"):
            left, right = (_poly(arg) for arg in expr.args)
            if left is None or right is None:
                return None
            return times(left, right) if expr.op.name == "mul" else plus(left, right, 1 if expr.op.name == "add" else -1)
    return None


def _same(a: Expr, b: Expr) -> bool:
    return a == b or (_poly(a) is not None and _poly(a) == _poly(b))


def _product(a: Expr, b: Expr) -> Expr:
    return b if a == const(1) else a if b == const(1) else apply("mul", a, b)


def _digit(expr: Expr) -> _Digit | None:
    if isinstance(expr, Index):
        return _Digit(expr.name, const(1), None)
    if not isinstance(expr, Apply) or expr.op.name not in ("floordiv", "mod"):
        return None
    inner, divisor = _digit(expr.args[0]), expr.args[1]
    if inner is None or inner.radix is not None or any(isinstance(node, Index) for node in walk(divisor)) or _poly(divisor) is None:
        return None
    if expr.op.name == "mod":
        return _Digit(inner.axis, inner.stride, divisor)
    return _Digit(inner.axis, _product(inner.stride, divisor), None)


def _join(axis: Axis, group: list[tuple[_Digit, Axis]], values: dict[str, Expr], outer: list[Expr]) -> bool:
    """Puts an axis together from its digits; False where they are not all of it, each once."""
    left, stride = list(group), const(1)
    value: Expr | None = None
    while left:
        last = len(left) == 1
        at = next((k for k, (d, _) in enumerate(left) if _same(d.stride, stride) and (d.radix is None) == last), None)
        if at is None:
            return False
        digit, place = left.pop(at)
        part = _product(Index(place.index), stride)
        value = part if value is None else apply("add", part, value)
        if digit.radix is None:
            if not _same(axis.stop, _product(place.stop, stride)):
                outer.append(apply("lt", value, axis.stop))
        else:
            if not _same(digit.radix, place.stop):
                outer.append(apply("lt", Index(place.index), digit.radix))
            stride = _product(digit.radix, stride)  # type: ignore[assignment]
    assert value is not None
    values[axis.index] = value
    return True


def _places(expr: Expr, own: dict[str, Axis]) -> list[tuple[str, Expr]] | None:
    """The axes that an index counts, from the fastest to the slowest, each with its stride."""
    form = _poly(expr)
    if form is None:
        return None
    strides: dict[str, Poly] = {}
    for monomial, coefficient in form.items():
        names = [name for name in monomial if name in own]
        if len(names) != 1:
            return None
        rest = tuple(name for name in monomial if name != names[0])
        strides.setdefault(names[0], {})[rest] = coefficient
    found: list[tuple[str, Expr]] = []
    wanted, stride = ONE, const(1)
    while strides:
        name = next((name for name, factor in strides.items() if factor == wanted), None)
        if name is None:
            return None
        strides.pop(name)
        found.append((name, stride))
        stride = _product(own[name].stop, stride)  # type: ignore[assignment]
        grown = _poly(stride)
        if grown is None:
            return None
        wanted = grown
    return found or None


def _count_off(places: list[tuple[str, Expr]], own: dict[str, Axis], target: Axis, values: dict[str, Expr], outer: list[Expr]) -> None:
    """The axes that an index of the tensor counts, as its digits."""
    element = Index(target.index)
    for name, stride in places:
        digit: Expr = element if stride == const(1) else apply("floordiv", element, stride)
        values[name] = digit if name == places[-1][0] else apply("mod", digit, own[name].stop)
    whole = _product(own[places[-1][0]].stop, places[-1][1])
    if not _same(whole, target.stop):
        outer.append(apply("lt", element, whole))
