"""Numbers that know how far compiled code may be from them: a value in float64 and a bound on the absolute error.

`Near.error` is None where every correct computation gives exactly this value: integers, and floats as long as each rounding on
the way is exact. Otherwise it is an array: the running error analysis of the operation in its own dtype, in any order of sums, with
functions as accurate as `ACCURACY` states; infinite where an answer depends on a rounding (a comparison of what is nearly equal).
With `ideal` every float is a float64, so that what a program means can be compared beyond the accuracy of its dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorexpr.dtypes import DType, accumulator, float64
from tensorexpr.ops import ACCURACY, OPS, cast_value

Array = Any

_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_LEAST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
_GREATEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}
_GRAIN = 2.0**16
_SAFE = 2.0**20
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_ANYWHERE = {"sin", "cos", "abs", "neg"}


class Near(NamedTuple):
    """A value (floats as float64) and how far a correct result may be from it; None: not at all."""

    value: Array
    error: Array | None = None


def _reals(value: Array) -> Array:
    return np.asarray(value, np.float64)


def _total(error: Array | None) -> Array:
    return 0.0 if error is None else error


def _known(error: Array) -> Array | None:
    """None for an error that is zero everywhere."""
    return error if np.any(error) else None


class Arithmetic:
    """The operations of the language on `Near` values."""

    def __init__(self, ideal: bool = False, regrouped: bool = False) -> None:
        self.ideal = ideal
        self.regrouped = regrouped
        """Whether compiled code may do the steps in another order: what this one need not round, by chance, that one may."""

    def rounding(self, dtype: DType) -> float:
        """The largest relative error of one operation; of float64 twice that, as the values here are no more exact."""
        name = "float64" if self.ideal else dtype.name
        return 2.0 ** -_DIGITS[name] * (2 if name == "float64" else 1)

    def limits(self, dtype: DType) -> tuple[float, float]:
        """The least and the greatest positive number."""
        name = "float64" if self.ideal else dtype.name
        return _LEAST[name], _GREATEST[name]

    def wide(self, dtype: DType) -> bool:
        """Whether float64 itself is what the values are rounded to."""
        return self.ideal or dtype is float64

    def fits(self, value: Array, dtype: DType) -> Array:
        """Where a value is a number of this dtype, so that rounding leaves it (of float64, and in any order: small, of few digits)."""
        value = _reals(value)
        if self.wide(dtype):
            return self._short(value, _GRAIN, _SAFE)
        if self.regrouped:
            behind = _DIGITS[dtype.name] // 3
            return self._short(value, 2.0**behind, 2.0 ** (_DIGITS[dtype.name] - 1 - behind))
        rounded = value.astype(np.float32 if dtype.name == "float32" else dtype.numpy).astype(np.float64)
        return (rounded == value) | np.isnan(value)

    @staticmethod
    def _short(value: Array, grain: float, safe: float) -> Array:
        scaled = value * grain
        return ~(np.abs(value) >= safe) & ~(scaled != np.rint(scaled)) | ~np.isfinite(value)

    def rounded(self, value: Array, error: Array | None, dtype: DType, factor: float = 1.0, among: tuple[Array, ...] = ()) -> Near:
        """The result of an operation on exact or inexact operands, rounded to `dtype`; `among` are operands that must be short as well."""
        least, greatest = self.limits(dtype)
        value = _reals(value)
        size = np.abs(value)
        own = np.where(np.isfinite(value), size * (self.rounding(dtype) * factor) + least, 0.0)
        if factor == 1.0:
            exact = self.fits(value, dtype)
            if self.wide(dtype) or self.regrouped:
                for operand in among:
                    exact = exact & self.fits(operand, dtype)
            own = np.where(exact & (_total(error) == 0), 0.0, own)  # of what is not the value itself rounding is none of the exact ones
        if error is None and not np.any(own):
            return Near(value)
        whole = own + _total(error)
        whole = np.where(np.isnan(whole) | (whole > 0) & (~np.isfinite(value) | (size + whole > greatest)), np.inf, whole)
        return Near(value, _known(whole))

    # ------------------------------------------------------------------------------------------------ one operation

    def cast(self, x: Near, source: DType, target: DType) -> Near:
        """A value in another dtype."""
        if source is target:
            return x
        if target.is_float:
            value = _reals(x.value)
            if (target is float64 and source.is_float) or (self.ideal and source.is_float):
                return Near(value, x.error)
            return self.rounded(value, x.error, target, among=(value,))
        if source.is_float:
            value = cast_value(_reals(x.value), target)
            if x.error is None:
                return Near(value)
            low, high = (cast_value(_reals(x.value) + side * x.error, target) for side in (-1, 1))
            moves = (low != value) | (high != value) | ~np.isfinite(x.error)
            return Near(value, _known(np.where(moves & (x.error > 0), np.inf, 0.0)))
        return Near(cast_value(x.value, target), x.error)

    def apply(self, name: str, dtype: DType, operands: tuple[Near, ...]) -> Near:
        """An operation other than `where` on operands of one dtype."""
        if name in ("stop_gradient", "recompute"):
            return operands[0]
        if name in _COMPARISONS:
            return self.compare(name, dtype, *operands)
        if not dtype.is_float:
            value = OPS[name].evaluate(*(x.value for x in operands))
            errors = [x.error for x in operands if x.error is not None]
            return Near(value, _known(sum(np.where(e > 0, np.inf, 0.0) for e in errors) + np.zeros(np.shape(value))) if errors else None)
        found = getattr(self, f"_{name}", None)
        if found is not None:
            result: Near = found(dtype, *operands)
            return result
        return self.function(name, dtype, operands[0])

    def compare(self, name: str, dtype: DType, a: Near, b: Near) -> Near:
        """A comparison: uncertain where the difference is within the errors."""
        value = OPS[name].evaluate(a.value, b.value)
        if a.error is None and b.error is None:
            return Near(value)
        error = _total(a.error) + _total(b.error)
        if not dtype.is_float:
            return Near(value, _known(np.where(error > 0, np.inf, 0.0)))
        near = np.abs(_reals(a.value) - b.value) <= error
        return Near(value, _known(np.where((error > 0) & (near | ~np.isfinite(error)), np.inf, 0.0)))

    def where(self, condition: Near, a: Near, b: Near, is_float: bool) -> Near:
        """The branch taken; either one where the condition is uncertain."""
        value = np.where(condition.value, a.value, b.value)
        if condition.error is None and a.error is None and b.error is None:
            return Near(value)
        error = np.where(condition.value, _total(a.error), _total(b.error))
        if condition.error is not None:
            if is_float:
                both = np.abs(_reals(a.value) - b.value) + np.maximum(_total(a.error), _total(b.error))
                both = np.where((a.value == b.value), np.maximum(_total(a.error), _total(b.error)), both)
                both = np.where(np.isnan(both), np.inf, both)
            else:
                both = np.where(a.value == b.value, _total(a.error) + _total(b.error), np.inf)
            error = np.where(condition.error > 0, both, error)
        return Near(value, _known(error))

    def _isnan(self, dtype: DType, x: Near) -> Near:
        return self._kind(np.isnan, x)

    def _isinf(self, dtype: DType, x: Near) -> Near:
        return self._kind(np.isinf, x)

    def _isfinite(self, dtype: DType, x: Near) -> Near:
        return self._kind(np.isfinite, x)

    @staticmethod
    def _kind(test: Callable[[Array], Array], x: Near) -> Near:
        return Near(test(x.value), None if x.error is None else _known(np.where(np.isfinite(x.error), 0.0, np.inf)))

    def _add(self, dtype: DType, a: Near, b: Near) -> Near:
        return self.rounded(a.value + b.value, self._sum(a, b), dtype, among=(a.value, b.value))

    def _sub(self, dtype: DType, a: Near, b: Near) -> Near:
        return self.rounded(a.value - b.value, self._sum(a, b), dtype, among=(a.value, b.value))

    @staticmethod
    def _sum(a: Near, b: Near) -> Array | None:
        return None if a.error is None and b.error is None else _total(a.error) + _total(b.error)

    def _mul(self, dtype: DType, a: Near, b: Near) -> Near:
        error = None
        if a.error is not None or b.error is not None:
            ea, eb = _total(a.error), _total(b.error)
            error = _times(np.abs(a.value), eb) + _times(np.abs(b.value), ea) + _times(ea, eb)
            error = np.where(np.isinf(ea) | np.isinf(eb), np.inf, error)  # nothing times infinity is no number
        return self.rounded(a.value * b.value, error, dtype, among=(a.value, b.value))

    def _div(self, dtype: DType, a: Near, b: Near) -> Near:
        value, error = np.divide(a.value, b.value), None
        if a.error is not None or b.error is not None:
            ea, eb = _total(a.error), _total(b.error)
            room = np.abs(b.value) - eb
            error = np.where(room > 0, (ea + _times(np.abs(value), eb)) / np.where(room > 0, room, 1.0), np.inf)
            error = np.where((ea + eb) > 0, error, 0.0)
        return self.rounded(value, error, dtype, among=(a.value, b.value))

    def _neg(self, dtype: DType, x: Near) -> Near:
        return Near(-x.value, x.error)

    def _abs(self, dtype: DType, x: Near) -> Near:
        return Near(np.abs(x.value), x.error)

    def _minimum(self, dtype: DType, a: Near, b: Near) -> Near:
        return self._extreme(np.minimum, a, b)

    def _maximum(self, dtype: DType, a: Near, b: Near) -> Near:
        return self._extreme(np.maximum, a, b)

    @staticmethod
    def _extreme(pick: Callable[[Array, Array], Array], a: Near, b: Near) -> Near:
        value = pick(a.value, b.value)
        if a.error is None and b.error is None:
            return Near(value)
        error = np.maximum(_total(a.error), _total(b.error))
        # What is clearly the other one brings no error of its own.
        clear = np.abs(a.value - b.value) > _total(a.error) + _total(b.error)
        error = np.where(clear & (value == a.value), _total(a.error), np.where(clear & (value == b.value), _total(b.error), error))
        return Near(value, _known(np.broadcast_to(error, np.shape(value))))

    def _step(self, function: Callable[[Array], Array], x: Near) -> Near:
        value = function(x.value)
        if x.error is None:
            return Near(value)
        jumps = (function(x.value - x.error) != value) | (function(x.value + x.error) != value)
        return Near(value, _known(np.where((x.error > 0) & (jumps | ~np.isfinite(x.error)), np.inf, 0.0)))

    def _sign(self, dtype: DType, x: Near) -> Near:
        return self._step(np.sign, x)

    def _floor(self, dtype: DType, x: Near) -> Near:
        return self._step(np.floor, x)

    def _ceil(self, dtype: DType, x: Near) -> Near:
        return self._step(np.ceil, x)

    def _round(self, dtype: DType, x: Near) -> Near:
        return self._step(np.rint, x)

    def _trunc(self, dtype: DType, x: Near) -> Near:
        return self._step(np.trunc, x)

    def _floordiv(self, dtype: DType, a: Near, b: Near) -> Near:
        value = np.floor_divide(a.value, b.value)
        if a.error is None and b.error is None:
            return self.rounded(value, None, dtype, among=(value,))
        ratio = self._div(float64, a, b)
        return self._step(np.floor, Near(ratio.value, _total(ratio.error) + np.abs(ratio.value) * self.rounding(dtype)))

    def _mod(self, dtype: DType, a: Near, b: Near) -> Near:
        value = np.remainder(a.value, b.value)
        if a.error is None and b.error is None:
            return self.rounded(value, None, dtype, among=(value,))
        quotient = self._floordiv(dtype, a, b)
        error = _total(a.error) + _times(np.abs(quotient.value), _total(b.error)) + _times(_total(quotient.error), np.abs(b.value))
        return self.rounded(value, error, dtype)

    def _pow(self, dtype: DType, a: Near, b: Near) -> Near:
        value = np.power(a.value, b.value)
        if a.error is None and b.error is None:
            return self.rounded(value, None, dtype, 1.0 if np.all(b.value == 2.0) else 3.0, among=(a.value,))
        ea, eb = _total(a.error), _total(b.error)
        corners = [np.abs(np.power(a.value + s * ea, b.value + t * eb) - value) for s in (-1, 0, 1) for t in (-1, 0, 1)]
        error = np.where(np.abs(a.value) <= ea, np.where(b.value - eb < 0, np.inf, np.abs(value)), 0.0)
        for corner in corners:
            error = np.maximum(error, np.where(np.isnan(corner), np.inf, corner))
        return self.rounded(value, np.where(ea + eb > 0, error, 0.0), dtype, 3.0)

    def _atan2(self, dtype: DType, y: Near, x: Near) -> Near:
        value, ey, ex = np.arctan2(y.value, x.value), _total(y.error), _total(x.error)
        error = None
        if y.error is not None or x.error is not None:
            radius, reach = np.hypot(y.value, x.value), np.asarray(ey + ex)
            cut = (x.value - ex < 0) & (np.abs(y.value) <= ey)
            error = np.where(cut | (radius <= 2 * reach), 2 * np.pi, 2 * reach / np.where(radius > 0, radius, 1.0))
            error = np.where(reach > 0, error, 0.0)
        return self.rounded(value, error, dtype, 3.0)

    def function(self, name: str, dtype: DType, x: Near) -> Near:
        """A function of one number: its own error, and how far it moves within that of the operand."""
        evaluate = OPS[name].evaluate
        value, error = evaluate(_reals(x.value)), None
        if x.error is not None:
            if name in _ANYWHERE:
                error = np.minimum(x.error, 2.0)
            else:
                below, above = evaluate(_reals(x.value - x.error)), evaluate(_reals(x.value + x.error))
                error = np.maximum(np.abs(below - value), np.abs(above - value))
                if name == "tan":
                    error = np.where(x.error * (1 + value * value) < 0.1, 2 * error, np.inf)
                error = np.where(np.isnan(error), np.inf, error)
                error = np.where(x.error > 0, error, 0.0)
        accurate = 2 * max(ACCURACY.get(name, (1.0, 1.0))) + 1
        return self.rounded(value, error, dtype, accurate)

    # -------------------------------------------------------------------------------------------------- reductions

    def total(
        self, values: Array, errors: Array | None, count: Array, dtype: DType, over: Callable[[Array], Array], wide: bool = True
    ) -> Near:
        """The sum in any order, `over` adds up; `count` is how many terms there are at most; `wide` where 16 bits are added in 32."""
        carried = float64 if self.ideal else accumulator(dtype) if wide else dtype
        value, size = over(values), over(np.abs(values))
        _, greatest = self.limits(carried)
        error = np.zeros(np.shape(value)) if errors is None else over(errors)
        most = 2.0 ** (_DIGITS[carried.name] - 1)
        short = values[np.isfinite(values)] if values.ndim else values
        scaled = next((s for s in (1.0, 2.0**8) if np.array_equal(short * s, np.rint(short * s))), None)
        inexact = np.isfinite(size) if scaled is None else np.isfinite(size) & (size * scaled > most)
        error = error + np.where(inexact & (count > 1), (count + 1) * self.rounding(carried) * size, 0.0)
        error = np.where((error > 0) & ~np.isfinite(value) | (size > greatest) & np.isfinite(size) | np.isnan(error), np.inf, error)
        result = Near(value, _known(error))
        return result if carried is dtype else self.rounded(value, result.error, dtype)

    def product(self, values: Array, errors: Array | None, count: Array, dtype: DType, over: Callable[[Array], Array]) -> Near:
        """The product in any order."""
        carried = float64 if self.ideal else accumulator(dtype)
        value = over(values)
        least, greatest = self.limits(carried)
        grown, shrunk = over(np.maximum(np.abs(values), 1.0)), over(np.where(values == 0, 1.0, np.minimum(np.abs(values), 1.0)))
        errors = np.zeros(np.shape(values)) if errors is None else errors
        relative = over(1 + errors / np.where(values == 0, 1.0, np.abs(values))) - 1
        exact = (grown < 2.0 ** (_DIGITS[carried.name] - 1)) & bool(np.array_equal(values, np.rint(values)))
        error = np.where(exact, 0.0, np.abs(value) * (count + 1) * self.rounding(carried))
        zeros = over(np.where(values == 0, np.where(errors > 0, 2.0, 1.0), 1.0)) > 1
        error = error + np.where(relative > 0, np.abs(value) * relative + np.where(zeros, np.inf, 0.0), 0.0)
        extreme = (grown > greatest / 4) | (shrunk < least * 2.0**30)
        error = np.where(extreme & ~exact | (error > 0) & ~np.isfinite(value) | np.isnan(error), np.inf, error)
        result = Near(value, _known(error))
        return result if carried is dtype else self.rounded(value, result.error, dtype)


def _times(a: Array, b: Array) -> Array:
    """The product of sizes and errors, in which nothing times anything is nothing."""
    return np.where((np.asarray(a) == 0) | (np.asarray(b) == 0), 0.0, np.multiply(a, b))


def agrees(found: np.ndarray, near: Near, dtype: DType, slack: float = 4.0) -> np.ndarray:
    """Where what compiled code found is within the error, `slack` times, as formulas may be turned about before they are rounded."""
    if not dtype.is_float:
        same = found == near.value
        return same if near.error is None else same | (near.error > 0)
    found, value = found.astype(np.float64), np.broadcast_to(near.value, found.shape)
    same = (found == value) | np.isnan(found) & np.isnan(value)
    if near.error is None:
        return same
    with np.errstate(invalid="ignore"):
        close = np.abs(found - value) <= slack * near.error + _LEAST[dtype.name]
    return same | close & (near.error > 0) | np.isinf(near.error)
