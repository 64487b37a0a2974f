"""Measures the functions of `codegen/llvm/math/`: `python scripts/accuracy.py [--every N] [FUNCTION ...]` prints a row for each.

float32 functions of one argument run on every float32 there is (or every N-th), against the float64 function of the same name (which
the suite compares with references of 64 bits and more); float64 functions, and those of two arguments, on up to 2^25 numbers: random bit
patterns, and the ranges where something happens. Half a minute to two minutes a function; docs/accuracy.md keeps what was found.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import mpmath
import numpy as np

import tensorexpr as te
from tensorexpr.ops import ACCURACY, OPS

_BLOCK = 1 << 16
_SAMPLES = 1 << 25
_SYMMETRIC = {"sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "atan", "erf"}
Error = tuple[float, tuple[float, ...]]  # the largest in ULP, and where


def compiled(name: str, dtype: str) -> Callable[..., np.ndarray]:
    """The function over blocks, as kernels see it."""
    inputs = [te.placeholder((_BLOCK,), dtype, name=f"x{k}") for k in range(OPS[name].arity)]
    function = (lambda x, y: x**y) if name == "pow" else getattr(te, name)
    return te.build(te.compute((_BLOCK,), lambda i: function(*(x[i] for x in inputs))), inputs)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distances from exact results in units in the last place of the narrower format; infinite where special values differ."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        if want.dtype == np.float64:
            # The power of two below is what is left without the fraction.
            power = (want.view(np.uint64) & np.uint64(0x7FF << 52)).view(np.float64)
        else:
            power = np.ldexp(np.ones((), want.dtype), np.frexp(want)[1] - 1)
        unit = np.clip(power, want.dtype.type(info.tiny), want.dtype.type(2) ** (info.maxexp - 1)) * want.dtype.type(info.eps)
        distance = np.abs(got.astype(want.dtype) - want) / unit
        if not np.all(np.isfinite(distance)):
            same = (got == want.astype(got.dtype)) & ~np.isfinite(got)
            distance = np.where(same | (np.isnan(got) & np.isnan(want)), 0, distance)
            distance = np.where(np.isnan(distance), np.inf, distance)
    return distance.astype(np.float64, copy=False)


def every_float(name: str, step: int) -> Iterator[tuple[np.ndarray, ...]]:
    """All bit patterns of numbers, or every so many; of functions that are odd or even only those without a sign."""
    numbers = (0x7F800000 // _BLOCK + 1) * _BLOCK
    for sign in (0,) if name in _SYMMETRIC else (0, 1 << 31):
        for start in range(sign, sign + numbers, _BLOCK * step):
            last = min(start + _BLOCK * step, sign + numbers)
            bits = np.full(_BLOCK, start, np.uint32)
            bits[: -(-(last - start) // step)] = np.arange(start, last, step, dtype=np.uint32)
            yield (bits.view(np.float32),)


def samples(dtype: str, arity: int, count: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Random bit patterns, and numbers of every size up to 2^10 around 0 and 1."""
    rng = np.random.default_rng(0)
    bits = np.dtype(dtype).itemsize * 8
    for _ in range(count // _BLOCK):
        block = []
        for _ in range(arity):
            quarter = _BLOCK // 4
            pattern = rng.integers(0, 1 << bits, quarter, dtype=f"u{bits // 8}", endpoint=False).view(dtype)
            sizes = rng.choice([-1.0, 1.0], quarter) * np.exp2(rng.uniform(-20, 10, quarter))
            near = 1 + rng.standard_normal(quarter) * np.exp2(rng.uniform(-20, 0, quarter))
            values = np.concatenate([pattern, sizes, near, rng.uniform(-30, 30, quarter)]).astype(dtype)
            rng.shuffle(values)
            block.append(values)
        yield tuple(block)


def _wide(name: str) -> Callable[..., np.ndarray]:
    """NumPy's function of 80-bit numbers."""
    named = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "pow": np.power}

    def sigmoid(x: np.ndarray) -> np.ndarray:
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1, small) / (1 + small)

    def erf(x: np.ndarray) -> np.ndarray:
        """mpmath's, where it is not 1."""
        large = ~(np.abs(x) < 6)
        exact = [mpmath.erf(float(v)) for v in np.where(large, 0, x)]
        small = np.array([np.longdouble(float(v)) + np.longdouble(float(v - float(v))) for v in exact])
        return np.where(large, np.sign(x), small)

    named |= {"sigmoid": sigmoid, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": erf}
    return named.get(name) or getattr(np, name)


def largest(
    function: Callable[..., np.ndarray], exact: Callable[..., np.ndarray], wide: type, blocks: Iterator[tuple[np.ndarray, ...]]
) -> Error:
    """The largest error over blocks of arguments."""
    worst: Error = (0.0, ())
    for block in blocks:
        with np.errstate(all="ignore"):
            found = ulps(function(*block), exact(*(x.astype(wide) for x in block)))
        at = int(np.argmax(found))
        if found[at] > worst[0]:
            worst = float(found[at]), tuple(float(x[at]) for x in block)
    return worst


def measured(name: str, step: int) -> tuple[Error, Error]:
    """The largest errors of a function in float32 and in float64."""
    arity = OPS[name].arity
    single, double = compiled(name, "float32"), compiled(name, "float64")
    blocks = every_float(name, step) if arity == 1 else samples("float32", arity, _SAMPLES // step)
    first = largest(single, double, np.float64, blocks)
    count = _SAMPLES // (256 if name == "erf" else 8 * step)
    return first, largest(double, _wide(name), np.longdouble, samples("float64", arity, count))


def main() -> None:
    """Prints a row per function, as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every so many floats")
    parser.add_argument("functions", nargs="*", default=list(ACCURACY), help="names of functions")
    arguments = parser.parse_args()
    for name in arguments.functions:
        (single, where), (double, there) = measured(name, arguments.every)
        bounds = ACCURACY[name]
        at = ", ".join(f"{v:.9g}" for v in where)
        beyond = ", ".join(f"{v:.17g}" for v in there)
        print(f"| `{name}` | {bounds[0]} | {single:.3f} | {at} | {bounds[1]} | {double:.3f} | {beyond} |", flush=True)


if __name__ == "__main__":
    main()
