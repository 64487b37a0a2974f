"""Fits the polynomials of `codegen/llvm/math/tables.py` (with mpmath): `python scripts/fit_polynomials.py` prints that file.

Each row says what is approximated, where, by which weight the error counts, and how many coefficients each width has.
The fit is Remez' exchange in 60 digits; coefficients are rounded to the width one by one, from the constant on, and the
rest is fitted again after each rounding. Errors are printed as powers of two of the weighted (relative) error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp

mp.mp.dps = 60
_POINTS = 500


class Row(NamedTuple):
    """`function` on [low, high] as a polynomial; `weight` turns its error into the relative error of the result."""

    name: str
    function: Callable[[Any], Any]
    weight: Callable[[Any], Any]
    low: float
    high: float
    floats: int  # coefficients for float32, 0 for none
    doubles: int


def _ratio(series: Callable[[Any], Any], direct: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A quotient with a removable singularity at 0: the limit by `series` near it."""
    return lambda t: series(t) if abs(t) < mp.mpf(10) ** -12 else direct(t)


def _odd(function: Callable[[Any], Any], third: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """(f(x) - x) / x^3 as a function of z = x^2, and its weight x^3 / f(x)."""
    return (
        _ratio(lambda z: third, lambda z: (function(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3),
        _ratio(lambda z: z, lambda z: mp.sqrt(z) ** 3 / function(mp.sqrt(z))),
    )


_HALF_LN2 = 0.34658
_QUARTER_PI = 0.78541
_LOG2E = 1 / mp.log(2)

ROWS = (
    # exp(r) = 1 + r + r^2 P(r); with it expm1 and the hyperbolic functions
    Row(
        "exp",
        _ratio(lambda r: mp.mpf(1) / 2 + r / 6, lambda r: (mp.expm1(r) - r) / r**2),
        lambda r: r**2 / mp.exp(r),
        -_HALF_LN2,
        _HALF_LN2,
        5,
        10,
    ),
    # 2^r = 1 + r P(r)
    Row(
        "exp2",
        _ratio(lambda r: mp.log(2) + r * mp.log(2) ** 2 / 2, lambda r: mp.expm1(r * mp.log(2)) / r),
        lambda r: abs(r) / 2**r,
        -0.5001,
        0.5001,
        6,
        12,
    ),
    # log(1 + f) = f - f^2 / 2 + f^3 P(f)
    Row(
        "log",
        _ratio(lambda f: mp.mpf(1) / 3 - f / 4, lambda f: (mp.log1p(f) - f + f * f / 2) / f**3),
        lambda f: abs(f**3 / mp.log1p(f)),
        -0.33334,
        0.33334,
        9,
        0,
    ),
    # log2(1 + f) = f log2(e) + f^2 P(f)
    Row(
        "log2",
        _ratio(lambda f: (-mp.mpf(1) / 2 + f / 3) * _LOG2E, lambda f: (mp.log1p(f) - f) * _LOG2E / f**2),
        lambda f: abs(f**2 / mp.log1p(f)),
        -0.33334,
        0.33334,
        10,
        0,
    ),
    # the same to 36 bits, in double, for pow in float32
    Row(
        "pow_log2",
        _ratio(lambda f: _LOG2E * (1 - f / 2), lambda f: mp.log1p(f) * _LOG2E / f),
        lambda f: abs(f / mp.log1p(f)),
        -0.33334,
        0.33334,
        0,
        15,
    ),
    Row(
        "pow_exp2",
        _ratio(lambda r: mp.log(2) + r * mp.log(2) ** 2 / 2, lambda r: mp.expm1(r * mp.log(2)) / r),
        lambda r: abs(r) / 2**r,
        -0.5001,
        0.5001,
        0,
        7,
    ),
    # 2 atanh(s) = 2 s + s z P(z) with z = s^2, for logarithms in double: s = f / (2 + f)
    Row(
        "atanh",
        _ratio(lambda z: mp.mpf(2) / 3 + 2 * z / 5, lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z),
        lambda z: z,
        0,
        0.0401,
        0,
        8,
    ),
    # the same less 2 s z / 3, which pow in double has to more bits
    Row(
        "pow_atanh",
        _ratio(lambda z: mp.mpf(2) / 5 + 2 * z / 7, lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2 - 2 * z / 3) / z**2),
        lambda z: z**2,
        0,
        0.0401,
        0,
        8,
    ),
    # sin(r) = r + r^3 P(r^2), cos(r) = 1 - r^2 / 2 + r^4 P(r^2)
    Row("sin", *_odd(mp.sin, -mp.mpf(1) / 6), 0, _QUARTER_PI**2, 3, 6),
    Row(
        "cos",
        _ratio(lambda z: mp.mpf(1) / 24, lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2),
        lambda z: z**2 / mp.cos(mp.sqrt(z)),
        0,
        _QUARTER_PI**2,
        3,
        6,
    ),
    # tanh(x) = x + x^3 P(x^2) below 0.55
    Row("tanh", *_odd(mp.tanh, -mp.mpf(1) / 3), 0, 0.5501**2, 5, 0),
    # sinh(x) = x + x^3 P(x^2) below 1
    Row("sinh", *_odd(mp.sinh, mp.mpf(1) / 6), 0, 1.0001, 4, 8),
    # atan(x) = x + x^3 P(x^2) below 1
    Row("atan", *_odd(mp.atan, -mp.mpf(1) / 3), 0, 1.0001, 9, 20),
    # asin(x) = x + x^3 P(x^2) below 0.5
    Row("asin", *_odd(mp.asin, mp.mpf(1) / 6), 0, 0.25001, 5, 12),
    # erf(x) = x + x P(x^2) below 0.92
    Row(
        "erf_low",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1 if z else 2 / mp.sqrt(mp.pi) - 1,
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)) if z else mp.mpf(1),
        0,
        0.9201**2,
        7,
        12,
    ),
    # and 1 - exp(-x P(x)) from there to where it rounds to 1
    Row("erf_high", lambda x: -mp.log(mp.erfc(x)) / x, lambda x: x * mp.erfc(x) / mp.erf(x), 0.9199, 4.0, 8, 0),
    Row("erf_high", lambda x: -mp.log(mp.erfc(x)) / x, lambda x: x * mp.erfc(x) / mp.erf(x), 0.9199, 5.95, 0, 19),
)


# Constants in parts, each the nearest number to what is left.
CONSTANTS: tuple[tuple[str, Callable[[], Any], int], ...] = (
    ("ln2", lambda: mp.log(2), 2),
    ("log2e", lambda: _LOG2E, 2),
    ("pi", lambda: mp.pi, 2),
    ("half_pi", lambda: mp.pi / 2, 3),
    ("two_over_pi", lambda: 2 / mp.pi, 1),
    ("two_thirds", lambda: mp.mpf(2) / 3, 2),
)


def two_over_pi(words: int) -> list[int]:
    """64 zero bits and the first bits of 2/pi, as words."""
    with mp.workprec(64 * words + 64):
        bits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** (64 * (words - 1))))
    return [bits >> 64 * (words - 1 - k) & (1 << 64) - 1 for k in range(words)]


def _round(value: Any, width: int) -> Any:
    return mp.mpf(struct.unpack("<f", struct.pack("<f", float(value)))[0]) if width == 32 else mp.mpf(float(value))


def remez(row: Row, count: int, fixed: list[Any]) -> tuple[list[Any], Any]:
    """The best polynomial with `count` coefficients whose first ones are `fixed`, and its largest weighted error."""
    low, high = mp.mpf(row.low), mp.mpf(row.high)
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 3) / _POINTS) for k in range(_POINTS)]
    weights = [row.weight(t) for t in grid]
    goals = [row.function(t) - sum(c * t**k for k, c in enumerate(fixed)) for t in grid]
    free = range(len(fixed), count)
    size = len(free)
    if size == 0:
        return fixed, max(abs(w * g) for w, g in zip(weights, goals, strict=True))
    points = sorted({min(_POINTS - 1, int(_POINTS * (1 - mp.cos(mp.pi * k / size)) / 2)) for k in range(size + 1)})
    best: tuple[Any, list[Any]] | None = None
    for _ in range(12):
        matrix = mp.matrix(size + 1, size + 1)
        right = mp.matrix(size + 1, 1)
        for row_number, point in enumerate(points):
            for column, power in enumerate(free):
                matrix[row_number, column] = grid[point] ** power
            matrix[row_number, size] = (-1) ** row_number / weights[point]
            right[row_number] = goals[point]
        solution = mp.lu_solve(matrix, right)
        errors = [w * (sum(solution[c] * t**p for c, p in enumerate(free)) - g) for t, w, g in zip(grid, weights, goals, strict=True)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[0]:
            best = worst, list(solution)[:size]
        if worst <= abs(solution[size]) * mp.mpf("1.01"):
            break
        points = _exchange(errors, size + 1)
    assert best is not None
    return [*fixed, *best[1]], best[0]


def _exchange(errors: list[Any], count: int) -> list[int]:
    """Points where the error is extreme and alternates in sign, `count` of them, the largest kept."""
    extremes: list[int] = []
    for k, e in enumerate(errors):
        if extremes and (errors[extremes[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[extremes[-1]]):
                extremes[-1] = k
        else:
            extremes.append(k)
    while len(extremes) > count:
        extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
    spare = [k for k in range(len(errors)) if k not in extremes]
    while len(extremes) < count:
        extremes.append(spare.pop(len(spare) // 2))
    return sorted(extremes)


def fit(row: Row, count: int, width: int) -> tuple[list[float], Any]:
    """Coefficients of a row, rounded to the width, and the error that is left."""
    fixed: list[Any] = []
    while len(fixed) < count:
        found, _ = remez(row, count, fixed)
        fixed.append(_round(found[len(fixed)], width))
    return [float(c) for c in fixed], remez(row, count, fixed)[1]


def main() -> None:
    """Prints the tables."""
    print(
        '"""Coefficients of polynomials, lowest power first; made by `scripts/fit_polynomials.py`, which says what each approximates."""\n'
    )
    print("from __future__ import annotations\n")
    print("_hex = float.fromhex\n")
    for width, name in ((32, "FLOAT"), (64, "DOUBLE")):
        print(f"{name}: dict[str, tuple[float, ...]] = {{")
        for row in ROWS:
            count = row.floats if width == 32 else row.doubles
            if count:
                coefficients, error = fit(row, count, width)
                print(f"    # error 2^{float(mp.log(error, 2)):.1f}")
                print(f'    "{row.name}": (')
                for c in coefficients:
                    print(f'        _hex("{c.hex()}"),')
                print("    ),")
        for constant, value, parts in CONSTANTS:
            left, texts = value(), []
            for _ in range(parts):
                part = _round(left, width)
                texts.append(f'_hex("{float(part).hex()}")')
                left -= part
            print(f'    "{constant}": ({", ".join(texts)},),')
        print("}\n")
    print("# 64 zeros, then the bits of 2/pi: enough for the greatest double.")
    print("TWO_OVER_PI = (")
    for word in two_over_pi(20):
        print(f"    0x{word:016X},")
    print(")")


if __name__ == "__main__":
    main()
