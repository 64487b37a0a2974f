"""Reductions: `te.sum` and its kin (`te.reduce`, with a combiner of the user's own, is in `combiners`).

A reduction is an expression: it stands anywhere, nests, and its body may use the indices around it. `body` takes one index
per extent; an extent is an integer, or an integer expression that may use outer indices, or a function of the indices
before it (``te.sum(lambda i, j: A[i, j], (n, lambda i: i + 1))``). `where` takes the same indices and says which points count.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tensorexpr import dtypes
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked, described
from tensorexpr.ir import Access, Apply, Combiner, Reduce
from tensorexpr.language.core import habits, promotions
from tensorexpr.language.core.printing import describe
from tensorexpr.language.core.scalar import Scalar, converted, merged, strong
from tensorexpr.language.core.tensor import Tensor
from tensorexpr.language.core.tracing import parameters
from tensorexpr.language.definitions.functions import as_bool, condition
from tensorexpr.language.definitions.loops import Loops, loops_over
from tensorexpr.traversal import free_names, walk


def _refuse_body(name: str, *arguments: Any) -> None:
    """Refuses a tensor or a value in the place of the function that is reduced."""
    if not arguments or callable(arguments[0]):
        return
    body, short = arguments[0], name.removeprefix("te.")
    if isinstance(body, Tensor):
        hint, got = habits.of_tensor(body, short), f"the tensor {body.name}"
    elif short in ("max", "min"):
        hint, got = f"te.{short}imum(a, b) takes two values, te.{short}(lambda k: A[k], n) those of a tensor", described(body)
    else:
        hint, got = f"te.{short}(lambda k: A[k], n) takes a function of one index for each extent", described(body)
    raise DefinitionError(f"{name}: expected a function of indices to reduce, got {got}", location=user_location(), hint=hint)


_AXES = {
    word: "a reduction has an extent for each index of its body: te.compute((n,), lambda i: te.sum(lambda k: A[i, k], m))"
    for word in ("axis", "dim", "keepdims", "keepdim")
}


@checked(_refuse_body, _AXES)
def sum(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """The sum of `body` over all points, 0 over nothing.

    Integers narrower than 64 bits and bools are summed in 64 bits, as NumPy does; float16 and bfloat16 are carried in float32
    and rounded once. Products of integers of 8 or 16 bits keep their dtype, as NumPy's do, and wrap around before they are summed: a
    `PromotionWarning` says so once.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.sum(lambda j: A[i, j], 3), name="row"))
    row[i]: f32[2] = sum(A[i, j] for j in range(3))
    >>> print(te.compute((2,), lambda i: te.sum(lambda j: A[i, j], i + 1), name="triangle"))
    triangle[i]: f32[2] = sum(A[i, j] for j in range(i + 1))
    """
    return _builtin("sum", body, extents, where, _summed)


@checked(_refuse_body, _AXES)
def prod(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """The product of `body` over all points, 1 over nothing; dtypes as for `sum`.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.prod(lambda j: A[i, j], 3), name="p"))
    p[i]: f32[2] = prod(A[i, j] for j in range(3))
    """
    return _builtin("prod", body, extents, where, _widened)


@checked(_refuse_body, _AXES)
def max(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """The greatest value of `body`; NaN if one is NaN.

    Over nothing it is the dtype's least value (minus infinity); where that is provable it is refused with a `DefinitionError`.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.max(lambda j: A[i, j], 3), name="top"))
    top[i]: f32[2] = max(A[i, j] for j in range(3))
    """
    return _builtin("max", body, extents, where, _kept)


@checked(_refuse_body, _AXES)
def min(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """The least value of `body`; NaN if one is NaN. Over nothing it is the dtype's greatest value; see `max`.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.min(lambda j: A[i, j], 3), name="least"))
    least[i]: f32[2] = min(A[i, j] for j in range(3))
    """
    return _builtin("min", body, extents, where, _kept)


@checked(_refuse_body, _AXES)
def all(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """Whether `body` is true (not 0) at every point; True over nothing.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.all(lambda j: A[i, j] > 0, 3), name="positive"))
    positive[i]: bool[2] = all(A[i, j] > 0.0 for j in range(3))
    """
    return _builtin("all", body, extents, where, as_bool)


@checked(_refuse_body, _AXES)
def any(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """Whether `body` is true (not 0) at some point; False over nothing.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.any(lambda j: te.isnan(A[i, j]), 3), name="bad"))
    bad[i]: bool[2] = any(isnan(A[i, j]) for j in range(3))
    """
    return _builtin("any", body, extents, where, as_bool)


@checked(_refuse_body, _AXES)
def argmax(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """The position of the greatest value, int64: over several extents the flat row-major index. The first of equals wins, a
    NaN wins over numbers.

    Several extents must not depend on each other. Over nothing it is 0; where that is provable it is refused.

    >>> A = te.placeholder((2, 3), name="A")
    >>> best = te.compute((2,), lambda i: te.argmax(lambda j: A[i, j], 3), name="best")
    >>> te.evaluate(best, {A: np.array([[1, 5, 2], [4, 4, 0]], np.float32)})
    array([1, 0])
    """
    return _builtin("argmax", body, extents, where, _kept)


@checked(_refuse_body, _AXES)
def argmin(body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None = None) -> Scalar:
    """The position of the least value; see `argmax`.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2,), lambda i: te.argmin(lambda j: A[i, j], 3), name="worst"))
    worst[i]: i64[2] = argmin(A[i, j] for j in range(3))
    """
    return _builtin("argmin", body, extents, where, _kept)


def _kept(value: Any) -> Scalar:
    return strong(value)


def _summed(value: Any) -> Scalar:
    found = strong(value)
    expr = found.expr
    if isinstance(expr, Apply) and expr.op.name == "mul" and expr.dtype.is_integer and expr.dtype.bits <= 16:
        if builtins.all(builtins.any(isinstance(node, Access) for node in walk(factor)) for factor in expr.args):
            _warn_of_wrapping(found)
    return _widened(found)


def _warn_of_wrapping(product: Scalar) -> None:
    name, text = product.dtype.name, repr(product)
    promotions.warn(
        f"te.sum: products of {name} wrap around in {name} before they are summed: {text}. "
        f'Cast the factors first, te.cast(a, "int32") * te.cast(b, "int32"), or the product, te.cast(a * b, "int64"), where that is meant'
    )


def _widened(value: Any) -> Scalar:
    found = strong(value)
    dtype = found.dtype
    if dtype.is_bool or (dtype.is_integer and dtype.bits < 64):
        return converted(found, dtypes.int64 if dtype.is_bool or dtype.is_signed else dtypes.uint64)
    return found


def _builtin(
    name: str, body: Callable[..., Any], extents: Any, where: Callable[..., Any] | None, prepare: Callable[[Any], Scalar]
) -> Scalar:
    what = f"te.{name}"
    _refuse_body(what, body)
    loops = loops_over(what, body, extents)
    if name in ("argmax", "argmin"):
        own = {axis.index for axis in loops.axes}
        for axis in loops.axes:
            if not own.isdisjoint(free_names(axis.stop)):
                raise DefinitionError(
                    f"{what}: expected extents that do not depend on each other, got {describe(axis.stop, loops.sources)}",
                    location=user_location(),
                    hint="the flat position needs a rectangle; use te.where or where= to leave points out",
                )
    value = prepare(_one(loops.run(body), what))
    holds = None if where is None else guard(what, loops, where)
    sources = merged((value, Scalar(value.expr, loops.sources), *(() if holds is None else (holds,))))
    return Scalar(Reduce(Combiner(name), (value.expr,), loops.axes, None if holds is None else holds.expr), sources)


def _one(value: Any, what: str) -> Any:
    if isinstance(value, tuple | list):
        raise DefinitionError(
            f"{what}: expected the body to return one value, got a tuple of {len(value)}",
            location=user_location(),
            hint="te.reduce combines tuples",
        )
    return value


def guard(what: str, loops: Loops, where: Callable[..., Any]) -> Scalar:
    """The condition `where` on the indices of the loops. Raises `DefinitionError` where it is no bool."""
    parameters(where, len(loops.indices), f"{what}, where")
    return condition(loops.run(where), f"{what}, where")
