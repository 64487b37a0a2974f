"""Independent oracles for the integer rooms: isl on the same text, brute force on small boxes, and random systems.

Systems come from a seeded generator, so that a failure names a seed and can be run again alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from tensorexpr.integers import Affine, Constraint, Domain, FloorDiv, Union

NAMES = ("i", "j", "k", "l", "p", "q", "r", "s")
SIZES = ("n", "m")


def isl_expr(expr: Affine) -> str:
    """An expression in isl's notation."""
    parts = [str(expr.constant)]
    for atom, factor in expr.terms:
        text = f"floor(({isl_expr(atom.numerator)})/{atom.denominator})" if isinstance(atom, FloorDiv) else atom.replace("'", "_")
        parts.append(f"{factor}*{text}")
    return "(" + " + ".join(parts) + ")"


def isl_text(domain: Domain) -> str:
    """A domain in isl's notation."""
    conditions = [f"{isl_expr(one.expr)} {'=' if one.is_equality else '>='} 0" for one in domain.constraints]
    return f"[{', '.join(domain.sizes)}] -> {{ [{', '.join(domain.dims)}] : {' and '.join(conditions) or '1 = 1'} }}"


def isl_set(isl, value: Domain | Union, sizes: Sequence[str] | None = None):
    """A domain or a union as an isl set; `sizes` fixes the parameters."""
    sizes = value.sizes if sizes is None else sizes
    pieces = value.pieces if isinstance(value, Union) else (value,)
    result = isl.Set(f"[{', '.join(sizes)}] -> {{ [{', '.join(value.dims)}] : 1 = 0 }}")
    for piece in pieces:
        result = result.union(isl.Set(isl_text(Domain(piece.dims, piece.constraints, sizes))))
    return result


def box_points(names: Sequence[str], low: int, high: int) -> Iterator[dict[str, int]]:
    """All points of the cube ``low .. high``."""
    for values in itertools.product(range(low, high + 1), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def random_affine(rng: random.Random, names: Sequence[str], largest: int, divisions: bool = False, density: float = 0.6) -> Affine:
    """A random expression with coefficients up to `largest` in size."""
    expr = Affine.of(rng.randint(-2 * largest, 2 * largest))
    for name in names:
        if rng.random() < density:
            expr = expr + Affine.of(name) * rng.randint(-largest, largest)
    if divisions and rng.random() < 0.4:
        inner = random_affine(rng, names, min(largest, 9))
        expr = expr + (inner // rng.randint(2, 9)) * rng.randint(-largest, largest)
    return expr


def random_domain(
    rng: random.Random,
    dims: int,
    sizes: int = 0,
    constraints: int = 4,
    largest: int = 5,
    box: int | None = None,
    equalities: float = 0.15,
    divisions: bool = False,
    nonempty: bool = False,
) -> Domain:
    """A random system; with `box`, every dim and size is bounded by it around zero, and `nonempty` plants a point in it."""
    names, params = NAMES[:dims], SIZES[:sizes]
    planted = {name: rng.randint(-3, 3) for name in (*names, *params)}
    made = []
    if box is not None:
        for name in (*names, *params):
            low, high = -rng.randint(0, box), rng.randint(0, box)
            if nonempty:
                low, high = min(low, planted[name]), max(high, planted[name])
            made += [Constraint(Affine.of(name) - low, ">="), Constraint(high - Affine.of(name), ">=")]
    for _ in range(constraints):
        kind = "==" if rng.random() < equalities else ">="
        expr = random_affine(rng, (*names, *params), largest, divisions)
        if nonempty:
            value = expr.evaluate(planted)
            expr = expr - value if kind == "==" else expr if value >= 0 else expr - value + rng.randint(0, largest)
        made.append(Constraint(expr, kind))
    return Domain(names, made, params)
