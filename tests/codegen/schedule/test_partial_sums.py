"""A reduction over any domain errs as one over a box of as many points: ragged extents, conditions, several axes, rows, open sizes.

Every value is a product of numbers of few bits, so that float32 holds it exactly: what differs from the sum in float64 over the same
points is the sum's own error. The reference walks a grid of all axes and leaves out the points beyond an extent or a condition.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cost import count_of
from tensorexpr.codegen.llvm import set_threads
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners.tiles import parts as auto_parts
from tensorexpr.ir import Define, Program, Reduce, Scan, conjuncts
from tensorexpr.traversal import walk
from tests.codegen.programs import by_planners
from tests.seeds import share_of

LEAST = {"sum": 2.0**-22, "reduce": 2.0**-21}
"""An error that no sum has to stay below: some units in the last place. Combiners of users keep the order of their points: what they
combine is sums of up to a thousand points, one after the other, and such sums in the same way."""
TIMES = 4
"""How many times the error of a box a domain may have."""
Bound = Callable[[object, tuple], object]
EXTENTS: tuple[Bound, ...] = (
    lambda n, before: n,
    lambda n, before: n - before[-1] % 3,
    lambda n, before: before[-1],
    lambda n, before: n - before[0],
    lambda n, before: before[-1] // 2 + 1,
    lambda n, before: (before[0] + before[-1]) % 7 + 1,
)
"""Extents that depend on the axes before, where these have up to n points; written alike for the language and for NumPy."""
CONDITIONS: tuple[Bound, ...] = (
    lambda n, at: at[0] < at[-1],
    lambda n, at: at[0] + at[-1] < n,
    lambda n, at: (at[0] + 2 * at[-1]) % 3 == 0,
    lambda n, at: 2 * at[-1] >= at[0],
)
COMBINERS = {"sum": (np.sum, 0), "max": (np.max, -1), "reduce": (np.sum, 0)}
"""How NumPy calls a combiner, and what changes nothing."""


@dataclass
class Domain:
    """Axes of at most so many points, what bounds each of them, a condition and how it is spelled (not at all, `where=`, inside), `rows`
    of results, of which each has a point less than the one before."""

    seed: int
    extents: tuple[int, ...]
    bounds: tuple[int, ...]
    condition: int
    spelled: str
    rows: int
    combiner: str

    def op(self, dtype, sizes: tuple | None = None):
        """The tensor of results, over placeholders for one factor of each axis; `sizes` may be open."""
        extents = sizes or self.extents
        factors = [te.placeholder((n,), dtype, name=f"x{k}") for k, n in enumerate(extents)]
        alike = len(set(extents)) == 1 and (sizes is not None or extents[0] >= 7) and (sizes is None or 5 not in self.bounds)

        def limit(axis: int, row) -> object:
            def of_before(*before):
                found = EXTENTS[self.bounds[axis]](extents[axis], before)
                return found if alike else te.minimum(found, extents[axis])

            return of_before if axis else extents[0] - row

        def value(*at):
            found = te.cast(factors[0][at[0]], te.float32)
            for factor, index in zip(factors[1:], at[1:], strict=True):
                found = found * factor[index]
            return te.where(self.holds(at, extents), found, COMBINERS[self.combiner][1]) if self.spelled == "inside" else found

        def one(row):
            limits = tuple(limit(axis, row) for axis in range(len(extents)))
            where = (lambda *at: self.holds(at, extents)) if self.spelled == "where" else None
            if self.combiner == "reduce":
                return te.reduce(lambda a, b: a + b, 0.0, value, limits, where=where)
            return getattr(te, self.combiner)(value, limits, where=where)

        return te.compute((self.rows,), one, name="y") if self.rows else te.compute((), lambda: one(0), name="y")

    def holds(self, at: tuple, extents: tuple) -> object:
        return CONDITIONS[self.condition](extents[0], at)

    def inputs(self, sizes: tuple[int, ...]) -> list[np.ndarray]:
        """Numbers of six bits: a product of four is exact."""
        rng = np.random.default_rng(self.seed)
        return [((32 + rng.integers(0, 32, n)) / 64).astype(np.float32) for n in sizes]

    def values(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The values at the points of every row, in float64 and in the order of the points."""
        sizes = tuple(len(x) for x in inputs)
        at = tuple(np.indices(sizes, sparse=True))
        inside = np.ones(sizes, bool)
        for axis in range(1, len(sizes)):
            inside &= at[axis] < EXTENTS[self.bounds[axis]](sizes[axis], at[:axis])
        if self.spelled:
            inside &= self.holds(at, sizes)
        whole = np.ones(sizes)
        for axis, x in enumerate(inputs):
            whole = whole * x.astype(np.float64).reshape([-1 if a == axis else 1 for a in range(len(sizes))])
        return [whole[inside & (at[0] < sizes[0] - row)] for row in range(max(1, self.rows))]

    def wanted(self, values: list[np.ndarray]) -> np.ndarray:
        total, none = COMBINERS[self.combiner]
        return np.array([total(v) if v.size else none for v in values])


def drawn(seed: int) -> Domain:
    rng = random.Random(seed)
    axes = rng.choice((1, 2, 2, 3, 3, 4))
    points = int(10 ** rng.choice((rng.uniform(2, 4), rng.uniform(5, 6), 6)))
    side = max(2, round(points ** (1 / axes)))
    extents = (side,) * axes
    if rng.random() < 0.4:  # uneven: one axis is long
        short = [rng.randint(2, 9) for _ in range(axes - 1)]
        extents = (*short, max(2, points // int(np.prod(short))))
        extents = tuple(rng.sample(extents, axes))
    bounds = tuple(rng.randrange(len(EXTENTS)) for _ in range(axes))
    spelled = rng.choice(("", "where", "inside"))
    rows = min(rng.choice((0, 0, 0, 1, 3)), extents[0])
    condition, combiner = rng.randrange(len(CONDITIONS)), rng.choice(("sum", "sum", "sum", "reduce", "max"))
    if combiner == "max":  # of what certainly has points: other maxima are refused
        bounds, condition = tuple({2: 4, 3: 0}.get(b, b) for b in bounds), 3
    return Domain(seed, extents, bounds, condition, spelled, rows, combiner)


@cache
def box(combiner: str):
    """All elements of a vector of open length."""
    n = te.dim("n")
    return te.build(Domain(0, (1,), (0,), 0, "", 0, combiner).op(te.float32, (n,)))


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return np.abs(got.astype(np.float64).reshape(-1) - want) / np.maximum(np.abs(want), 1)


def points_left(program: Program) -> int:
    """Points of the longest sum of one result, where sums over prefixes are read from running tables. Requires: known extents."""
    found = [0]
    for definition in program.definitions:
        for node in walk(definition.value) if isinstance(definition, Define) else ():
            if isinstance(node, Reduce):
                results = count_of(definition.axes, (), {})
                found.append(count_of((*definition.axes, *node.axes), tuple(conjuncts(node.where)), {}) // max(1, results))
    return max(found)


def check(domain: Domain, f, inputs: list[np.ndarray], alike: bool = True) -> None:
    """The same bits on one thread and two, and errors as small as a box's. Fewer points than are ever taken apart may be one accumulator,
    as may the longest of open extents that are not `alike`: it is not known which that is. A running table adds its terms in
    order, each the sum of one result of many, as docs/language.md says."""
    values = domain.values(inputs)
    program = f.schedule.program
    left = points_left(program) if not program.sizes else max(v.size for v in values)
    tables = max(domain.extents) if any(isinstance(d, Scan) for d in program.definitions) else 0
    want = domain.wanted(values)
    try:
        found = []
        for threads in (1, 2):
            set_threads(threads)
            found.append(np.asarray(f(*inputs)))
    finally:
        set_threads(None)
    assert found[0].tobytes() == found[1].tobytes(), domain
    for error, total, row in zip(errors(found[0], want), want, values, strict=True):
        if domain.combiner != "max":
            whole = errors(np.asarray(box(domain.combiner)(row.astype(np.float32))), np.array([row.sum()]))[0]
            points = min(row.size, left)
            serial = points < auto_parts.LEAST_SERIAL or not alike or tables > 0
            most = max(LEAST[domain.combiner], whole) * TIMES if not serial else (points + tables + 1) * 2.0**-24
            assert error <= most, (domain, row.size, total, error, whole)
        elif row.size:  # nothing has no greatest
            assert error == 0, (domain, row.size, total)


@pytest.mark.parametrize("block", range(3))
def test_a_domain_errs_as_a_box_of_as_many_points(block):
    for seed in share_of(range(block * 20, (block + 1) * 20)):
        domain = drawn(seed)
        s = by_planners(domain.op(te.float32))
        assert not [f for f in prove(lower(s)).findings if f.refuted], domain
        check(domain, te.build(s), domain.inputs(domain.extents))


def test_open_extents():
    for seed in share_of(range(1000, 1030)):
        domain = drawn(seed)
        alike = len(set(domain.extents)) == 1
        domain.rows = min(domain.rows, 1)
        dims = tuple(te.dim("n" if alike else f"n{k}") for k in range(len(domain.extents)))
        s = by_planners(domain.op(te.float32, (dims[:1] * len(dims)) if alike else dims))
        assert not [f for f in prove(lower(s)).findings if f.refuted], domain
        f = te.build(s)
        for sizes in (domain.extents, *((n,) * len(dims) for n in (0, 1, 2, 7, 13))):
            check(domain, f, domain.inputs(sizes), alike)


@pytest.mark.parametrize(("dtype", "kind"), [(te.float16, np.float16), (te.bfloat16, ml_dtypes.bfloat16)])
def test_short_floats_are_summed_in_float32(dtype, kind):
    for seed in share_of(range(2000, 2015)):
        domain = drawn(seed)
        check(domain, te.build(domain.op(dtype)), [x.astype(kind) for x in domain.inputs(domain.extents)])


def test_few_iterations_where_an_open_extent_is_short():
    n = te.dim("n")
    x = te.placeholder((n,), name="x")
    s = by_planners(te.compute((), lambda: te.reduce(lambda a, b: a + b, 0.0, lambda i: x[i], n), name="y"))
    text = str(lower(s))
    assert "for i_i in range(0, minimum(512, n)):" in text and "range(0, 512)" not in text
