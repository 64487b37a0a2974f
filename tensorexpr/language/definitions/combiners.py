"""`te.reduce`: a reduction with an associative function of the user's own, over one value or a tuple."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Apply, Cast, Combiner, Const, Expr, Param, Reduce
from tensorexpr.language.core.scalar import Scalar, Weak, common_dtype, converted, default_dtype, is_strong, literal, merged, operand
from tensorexpr.language.core.tracing import parameters
from tensorexpr.language.definitions.loops import loops_over
from tensorexpr.language.definitions.reductions import guard
from tensorexpr.ops import cast_value
from tensorexpr.traversal import walk

_WHAT = "te.reduce"


@checked()
def reduce(
    combine: Callable[[Any, Any], Any], identity: Any, body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None
) -> Any:
    """The values of `body` combined by an associative function of the user's.

    `combine(a, b)` takes two values, or two tuples where `identity` is one, and returns such a value or tuple; `identity` is
    its neutral element, made of numbers. The result is a scalar, or a tuple of scalars that can be unpacked. The order of
    combination is that of the points, its grouping is free. Each value keeps one dtype throughout, that of `body` and
    `identity` together; floats that `combine` returns in a wider type are rounded to it.

    Raises `DefinitionError` where tuples differ in length, `combine` uses anything but its arguments and numbers, or returns
    another kind of dtype.

    >>> A = te.placeholder((2, 3), name="A")
    >>> log_add = te.compute((2,), lambda i: te.reduce(
    ...     lambda a, b: te.maximum(a, b) + te.log1p(te.exp(-te.abs(a - b))), -1e30, lambda j: A[i, j], 3), name="s")
    >>> bool(np.allclose(te.evaluate(log_add, {A: np.zeros((2, 3), np.float32)}), np.log(3.0)))
    True
    """
    if callable(identity) and not isinstance(identity, Scalar):
        raise DefinitionError(
            f"{_WHAT}: expected an identity made of numbers, got a function",
            location=user_location(),
            hint="te.reduce(combine, identity, body, extents)",
        )
    single = not isinstance(identity, tuple | list)
    count = None if single else len(identity)
    neutral = [operand(i) for i in _tuple(identity, count, "the identity to be")]
    for number in neutral:
        if isinstance(number, Scalar) and not isinstance(number.expr, Const):
            raise DefinitionError(f"{_WHAT}: expected an identity made of numbers, got {number!r}", location=user_location())
    loops = loops_over(_WHAT, body, extents)
    values = [operand(v) for v in _tuple(loops.run(body), count, "the body to return")]
    holds = None if where is None else guard(_WHAT, loops, where)
    state = _state_dtypes(values, neutral)

    stems = parameters(combine, 2, f"{_WHAT}, combine", "two values", "x, y")
    left, right = ([Param(stem if single else f"{stem}{n}", dtype) for n, dtype in enumerate(state)] for stem in _distinct(stems))
    arguments = ([Scalar(p) for p in side] for side in (left, right))
    combined = combine(*(side[0] if single else tuple(side) for side in arguments))
    results = [
        _rounded(value, dtype, (*left, *right)) for value, dtype in zip(_tuple(combined, count, "combine to return"), state, strict=True)
    ]
    identities = [_constant(number, dtype) for number, dtype in zip(neutral, state, strict=True)]
    combiner = Combiner("reduce", tuple(left), tuple(right), tuple(results), tuple(identities))

    final = [converted(value, dtype) for value, dtype in zip(values, state, strict=True)]
    sources = merged((*final, Scalar(final[0].expr, loops.sources), *(() if holds is None else (holds,))))
    exprs, where_expr = tuple(v.expr for v in final), None if holds is None else holds.expr
    components = tuple(Scalar(Reduce(combiner, exprs, loops.axes, where_expr, n), sources) for n in range(len(state)))
    return components[0] if single else components


def _tuple(value: Any, count: int | None, what: str) -> list[Any]:
    """The values of a tuple of `count`, or of a single value where `count` is None."""
    got = f"a tuple of {len(value)}" if isinstance(value, tuple | list) else "one value"
    if isinstance(value, tuple | list) and count is not None and len(value) == count > 0:
        return list(value)
    if count is None and not isinstance(value, tuple | list):
        return [value]
    wanted = "one value" if count is None else f"a tuple of {count}" if count else "at least one value"
    raise DefinitionError(
        f"{_WHAT}: expected {what} {wanted}, got {got}",
        location=user_location(),
        hint="identity, body and combine agree in their number of values",
    )


def _distinct(stems: list[str]) -> list[str]:
    """Stems that stay different when a number is appended: `a`, `b`; but `x`, `x1` become `x_`, `x1_`."""
    a, b = stems
    clash = re.fullmatch(r"\d*", a.removeprefix(b)) or re.fullmatch(r"\d*", b.removeprefix(a))
    return [f"{a}_", f"{b}_"] if clash and len(a) != len(b) else [a, b]


def _state_dtypes(values: list[Scalar | Weak], neutral: list[Scalar | Weak]) -> list[DType]:
    """One dtype per value. Where all is Python numbers a float follows the other floats: (x, 1.0) with x float32 is two float32."""
    pairs = list(zip(values, neutral, strict=True))
    known = [common_dtype(pair) if any(map(is_strong, pair)) else None for pair in pairs]
    floats = [d for d in known if d is not None and d.is_float]
    shared = floats[0] if floats else dtypes.float64
    for other in floats[1:]:
        shared = dtypes.promote(shared, other)
    result = []
    for pair, found in zip(pairs, known, strict=True):
        if found is None:
            found = dtypes.promote(default_dtype(pair[0]), default_dtype(pair[1]))
            found = shared if found.is_float else found
        result.append(found)
    return result


def _constant(value: Scalar | Weak, dtype: DType) -> Const:
    if isinstance(value, Scalar):
        assert isinstance(value.expr, Const)
        return Const(cast_value(value.dtype.numpy.type(value.expr.value), dtype), dtype)
    expr = literal(value, dtype).expr
    assert isinstance(expr, Const)
    return expr


def _rounded(value: Any, dtype: DType, own: tuple[Param, ...]) -> Expr:
    """A result of `combine` in the dtype of its value, a wider float rounded."""
    found = operand(value)
    if not isinstance(found, Scalar):
        if dtypes.promote_weak(dtype, found) is not dtype:
            raise DefinitionError(f"{_WHAT}: expected combine to return {dtype.name}, got {found!r}", location=user_location())
        return literal(found, dtype).expr
    for node in walk(found.expr):
        if not isinstance(node, Apply | Cast | Const) and node not in own:
            raise DefinitionError(
                f"{_WHAT}: expected combine to use its arguments and numbers alone, got {Scalar(node, found.sources)!r}",
                term=repr(found),
                location=user_location(),
                hint="make it a part of the value that the body returns",
            )
    if found.dtype is not dtype and not (found.dtype.is_float and dtype.is_float):
        raise DefinitionError(
            f"{_WHAT}: expected combine to return {dtype.name} like its arguments, got {found.dtype.name}",
            term=repr(found),
            location=user_location(),
            hint="te.cast the result, or give the body and the identity the wider dtype",
        )
    return converted(found, dtype).expr
