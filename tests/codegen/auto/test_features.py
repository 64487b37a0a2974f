"""What is counted of a nest is what the interpreter, or an enumeration, counts."""

import itertools
import math
import random

import numpy as np
import pytest

from tensorexpr.codegen.auto.features import LINE, Plan, memory
from tensorexpr.codegen.auto.operations import ARITHMETIC, DIVIDE
from tensorexpr.codegen.auto.points import DATA_EXTENT
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.summary import AUTO, LOAD, PARALLEL_AUTO, STORE, VECTORIZE
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.interpret import Machine
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.target import Target
from tensorexpr.errors import TensorExprError
from tensorexpr.simplify import simplify
from tests.random_programs import Options, random_sample
from tests.random_programs.sample import arrays_for
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

WORDS = ("split", "reorder", "fuse", "parallel", "unroll", "inline", "compute_at", "rfactor")
"""Primitives of loops that no lanes are in."""


def nest_of(body: str, *buffers: str):
    """A nest of one kernel from its statements and `name: shape` of float32 buffers, the first of which is written."""
    names = [b.split(":")[0] for b in buffers]
    head = f"main({', '.join(names)})\n" + "".join(
        f"{b.split(':')[0]}: parameter(f32[{b.split(':')[1]}]{', written' if n == 0 else ''})\n" for n, b in enumerate(buffers)
    )
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return parse_nest(f"{head}\ndef kernel_0() -> {names[0]}:\n{lines}\n")


def plan_of(nest, **sizes) -> Plan:
    return Plan(summary_of(nest, sizes), 64, 32)


def executed(plan: Plan, *kinds: str) -> float:
    counts = plan.repeated(plan.extents())
    return float(sum(counts[n, 0] for n, work in enumerate(plan.work) if work.kind in kinds))


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_loops_run_as_often_as_the_interpreter_says(seed):
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=20, open_sizes=0.3, most=2))
    try:
        traced = sample.traced()
        state = shuffled(Planned(schedule(simplify(traced.program), Target("cpu")).state), rng, 6, WORDS)
        nest = lower(state)
        sizes = {name: sample.sizes.get(name, 4) for name in nest.sizes}
        machine = Machine(nest, arrays_for(traced.program, traced.below, sizes, seed), sizes)
        with np.errstate(all="ignore"):
            for kernel in nest.kernels:
                machine.block(kernel.body, {})
    except TensorExprError:
        return
    summary = summary_of(nest, sizes)
    lanes = {n for n, loop in enumerate(summary.loops) if loop.kind in (VECTORIZE, AUTO, PARALLEL_AUTO)}
    text = str(nest)
    counted: dict[str, float] = {}
    for loop, path in zip(summary.loops, summary.parts):
        if len(path) > 1 and not lanes & set(path[:-1]):
            times = loop.share * np.prod([summary.loops[x].extent for x in path])
            counted[loop.name] = counted.get(loop.name, 0.0) + float(times)
    if "if " in text and any(
        f"{b.name}[" in line for line in text.split("\n") if "if " in line or " in range" in line for b in nest.parameters
    ):
        return  # data decides
    inside_lanes = {summary.loops[path[-1]].name for path in summary.parts if lanes & set(path[:-1])}
    for name, visits in machine.visits.items():
        if name not in inside_lanes:
            assert counted[name] == pytest.approx(visits, rel=0.05), f"{name} in\n{nest}"


@pytest.mark.parametrize(
    "loops, count",
    [
        ("for i in range(0, 10):\n    for j in range(0, i + 1):", 55),
        ("for i in range(0, 10):\n    for j in range(i, 20):\n        if j < 12:", 75),
        ("for i in range(0, 4):\n    for j in range(0, 5):\n        if i * 5 + j < 17:", 17),
        ("for i in range(0, 7):\n    for j in unroll(range(0, 3)):", 21),
    ],
)
def test_work_of_ragged_and_guarded_loops(loops, count):
    depth = "    " * (loops.count("\n") + 1)
    plan = plan_of(nest_of(f"{loops}\n{depth}Y[2 * j, 2 * i] = sqrt(A[j, i]) + 1.0", "Y: 40, 40", "A: 20, 20"))
    assert executed(plan, DIVIDE) == pytest.approx(count)
    assert executed(plan, STORE) == pytest.approx(count)


def test_work_in_lanes_is_counted_in_registers():
    body = "for i in range(0, 6):\n    for j in vectorize(range(0, {lanes})):\n        Y[i, j] = A[i, j] * A[i, j] + B[i]"
    for lanes, registers in ((16, 1), (64, 4), (24, 2), (31, 5), (3, 2)):
        plan = plan_of(nest_of(body.format(lanes=lanes), f"Y: 6, {lanes}", f"A: 6, {lanes}", "B: 6"))
        assert executed(plan, ARITHMETIC) == pytest.approx(6 * registers), lanes  # one instruction: the product is added
        assert executed(plan, STORE) == pytest.approx(6 * registers)
        assert executed(plan, LOAD) == pytest.approx(6 * registers + 6)  # B is loaded once for all lanes


def test_what_does_not_change_is_computed_outside_and_once_for_copies():
    body = """
for i in parallel(range(0, 10)):
    for k in range(0, 20):
        for c in unroll(range(0, 4)):
            for j in vectorize(range(0, 16)):
                Y[i, c, j] = Y[i, c, j] + sqrt(A[i]) * B[k, j]
"""
    plan = plan_of(nest_of(body, "Y: 10, 4, 16", "A: 10", "B: 20, 16"))
    assert executed(plan, DIVIDE) == pytest.approx(10)
    assert executed(plan, LOAD) == pytest.approx(10 + 10 * 20 + 10 * 4)  # A; B for each k; Y for each copy, kept over k
    assert executed(plan, ARITHMETIC) == pytest.approx(10 * 20 * 4)


def test_open_sizes_and_bounds_that_are_data():
    text = """main(n, Y, A, T)
n: size
Y: parameter(f32[n], written)
A: parameter(f32[n, 100])
T: parameter(i64[n])

def kernel_0() -> Y:
    for i in range(0, n):
        acc: local(f32[()])
        acc[()] = 0.0
        for k in range(0, T[i]):
            acc[()] = acc[()] + exp(A[i, k])
        Y[i] = acc[()]
"""
    nest = parse_nest(text)
    assert [round(loop.extent) for loop in summary_of(nest).loops] == [1, 10485, DATA_EXTENT]
    assert [round(loop.extent) for loop in summary_of(nest, {"n": 12}).loops] == [1, 12, DATA_EXTENT]


def enumerated(indices: list[str], extents: dict[str, int], moving: list[str]) -> int:
    """Elements that an access touches while some loops run, the others at 0."""
    fixed = {name: 0 for name in extents if name not in moving}
    found = set()
    for values in itertools.product(*(range(extents[name]) for name in moving)):
        env = {**fixed, **dict(zip(moving, values))}
        found.add(tuple(eval(index, {}, env) for index in indices))
    return len(found)


ACCESSES = [
    ["i * 8 + j", "k"], ["i + k", "j"], ["i * 2 + k", "j"], ["k", "i * 24 + j"], ["i", "j * 3"], ["i + j + k", "i"],
    ["2 * i", "4 * j + 2 * k"], ["k", "k"], ["(i * 8 + j) // 4", "(i * 8 + j) % 4"], ["5 * i + j", "3 * k"],
]  # fmt: skip


@pytest.mark.parametrize("indices", ACCESSES, ids=str)
def test_footprints_are_the_elements_that_are_touched(indices, monkeypatch):
    monkeypatch.setattr(memory, "LINE", 4)  # lines of one element
    for extents in ({"i": 4, "j": 8, "k": 3}, {"i": 1, "j": 8, "k": 7}, {"i": 3, "j": 8, "k": 1}):
        loops = "".join(f"{'    ' * n}for {name} in range(0, {extent}):\n" for n, (name, extent) in enumerate(extents.items()))
        nest = nest_of(f"{loops}{'    ' * 3}Y[i, j, k] = A[{', '.join(indices)}]", "Y: 64, 64, 64", "A: 128, 128")
        plan = plan_of(nest)
        read = next(n for n, touch in enumerate(plan.summary.touches) if not touch.store)
        prints = plan.footprints(plan.extents())
        names = [plan.summary.loops[x].name for x in plan.paths[read][1:]]
        for depth in range(len(names) + 1):
            wanted = enumerated(indices, extents, names[depth:])
            got = prints[depth + 1][0][read, 0]
            shared = sum(any(name in index for name in names[depth:]) for index in indices) != len(
                {name for name in names[depth:] if any(name in index for index in indices)}
            )
            if any(sum(name in index for index in indices) > 1 for name in names[depth:]):
                # One loop moves two axes: no more than the box around a diagonal, nor than there are iterations.
                often = math.prod(extents[name] for name in names[depth:] if any(name in index for index in indices))
                assert wanted - 1e-6 <= got <= often + 1e-6, (names[depth:], shared)
            else:
                assert got == pytest.approx(wanted), names[depth:]


def test_rows_less_than_a_line_apart_are_one_run_of_lines():
    for columns, first, left in ((6, 2, 2), (24, 0, 12), (40, 4, 16)):
        body = f"for i in range(0, 4000):\n    for j in range(0, {columns - left}):\n        Y[i, j] = A[i, j + {first}]"
        plan = plan_of(nest_of(body, f"Y: 4000, {columns - left}", f"A: 4000, {columns}"))
        read = next(n for n, touch in enumerate(plan.summary.touches) if not touch.store)
        lines, runs, *_ = plan.footprints(plan.extents())[0]
        near = left * 4 < LINE
        assert (runs[read, 0] == 1) == near
        if near:
            assert lines[read, 0] == pytest.approx(4000 * columns * 4 / LINE, rel=0.01)


def test_overlapping_reads_count_once(monkeypatch):
    monkeypatch.setattr(memory, "LINE", 4)
    around = "A[i, j + 1] + A[i + 2, j + 1] + A[i + 1, j] + A[i + 1, j + 2]"
    body = f"for i in range(0, 30):\n    for j in range(0, 40):\n        Y[i, j] = {around}"
    plan = plan_of(nest_of(body, "Y: 30, 40", "A: 32, 42"))
    prints = plan.footprints(plan.extents())
    read = next(n for n, touch in enumerate(plan.summary.touches) if not touch.store)
    assert prints[0][0][read, 0] == 32 * 42  # the corners, which nobody reads, among them
    assert prints[2][0][read, 0] == pytest.approx(3 * 42)  # of one i: three rows
    body = "for i in range(0, 30):\n    Y[i] = A[i] + A[i + 500]"
    plan = plan_of(nest_of(body, "Y: 30", "A: 1000"))
    lines = plan.footprints(plan.extents())[0][0]
    assert lines[next(n for n, t in enumerate(plan.summary.touches) if not t.store), 0] == 60


def test_traffic_falls_with_the_cache_and_reuse_is_seen():
    body = """
for i in range(0, 256):
    for j in range(0, 256):
        for k in range(0, 256):
            Y[i, j] = Y[i, j] + A[i, k] * B[k, j]
"""
    plan = plan_of(nest_of(body, "Y: 256, 256", "A: 256, 256", "B: 256, 256"))
    capacities = [1 << bits for bits in range(9, 24)]
    lines, runs, _ = plan.traffic(plan.extents(), capacities)
    total = lines.sum(axis=(1, 2))
    assert (np.diff(total) <= 1e-6).all() and total[-1] == 0  # 768 KiB stay in 8 MiB between calls
    assert (runs <= lines + 1e-6).all()
    once = 3 * 256 * 256 * 4 / 64
    assert total[0] > 100 * once and total[capacities.index(1 << 19)] < 20 * once


def test_what_has_more_axes_changes_nothing_of_what_has_fewer():
    product = """
for k_o in range(0, 64):
    for y in range(0, 14):
        for c in range(0, 1024):
            for k_i in unroll(range(0, 8)):
                for z in vectorize(range(0, 14)):
                    Y[k_i + k_o * 8, y, z] = Y[k_i + k_o * 8, y, z] + A[k_i + k_o * 8, c] * X[c, y, z]
"""
    small = "for i in range(0, 2):\n    Z[i, 0, 0, 0, 0] = 1.0\n"
    buffers = ("Y: 512, 14, 14", "A: 512, 1024", "X: 1024, 14, 14", "Z: 2, 2, 2, 2, 2")
    without, beside = plan_of(nest_of(product, *buffers)), plan_of(nest_of(product + small, *buffers))
    capacities = (32768, 1 << 20)
    for alone, both in zip(without.traffic(without.extents(), capacities), beside.traffic(beside.extents(), capacities), strict=True):
        count = len(without.summary.touches)
        np.testing.assert_allclose(both[..., :count, :], alone, rtol=1e-3)


def test_gathers_touch_as_many_lines_as_chance_has_it():
    text = """main(Y, A, I)
Y: parameter(f32[1000], written)
A: parameter(f32[{rows}, 16])
I: parameter(i64[1000])

def kernel_0() -> Y:
    for i in range(0, 1000):
        Y[i] = A[I[i], 3]
"""
    for rows, lines in ((1_000_000, 1000), (1000, 632), (10, 10)):
        plan = plan_of(parse_nest(text.format(rows=rows)))
        touch = next(n for n, t in enumerate(plan.summary.touches) if t.random)
        assert plan.footprints(plan.extents())[0][0][touch, 0] == pytest.approx(lines, rel=0.01)


@pytest.mark.parametrize(("rows", "stays"), [(4, True), (12, False)])
def test_rows_a_page_apart_of_several_buffers_have_places_of_their_own(rows, stays):
    """Each step asks again for rows of three buffers: of one, 12 lines come to a place that holds 8; of all, places lie as it happens."""
    body = """
for t in range(0, 100):
    for j in range(0, 16):
        for i in unroll(range(0, {rows})):
            Y[i, j] = Y[i, j] + A[i, j] * B[i, j]
"""
    shape = f"{rows}, 1024"
    plan = plan_of(nest_of(body.format(rows=rows), f"Y: {shape}", f"A: {shape}", f"B: {shape}"))
    again = float(plan.traffic(plan.extents(), (32 << 10, 1 << 20, 1 << 25))[0][0].sum())
    assert (again <= 3 * rows) == stays


def test_loops_that_mostly_do_not_run():
    body = """
for i in range(0, 40):
    for j in range(0, maximum(i - 38, 0)):
        for k in range(0, j):
            Y[i, k] = A[i + k, j]
"""
    plan = plan_of(nest_of(body, "Y: 40, 40", "A: 80, 40"))
    assert executed(plan, STORE) == 0
    plan = plan_of(nest_of(body.replace("i - 38", "i - 37"), "Y: 40, 40", "A: 80, 40"))
    assert executed(plan, STORE) == pytest.approx(1)
    assert all((lines >= 0).all() and (runs >= 0).all() for lines, runs, *_ in plan.footprints(plan.extents()))


STEPS = """
main(S)
S: parameter(f32[2, 64, 32], written)

def kernel_0() -> S:
    for t in range(1, 10):
        for i in range(1, 63):
            for j in range(1, 31):
                S[t % 2, i, j] = {value}
"""


@pytest.mark.parametrize(
    ("value", "waiting"),
    [
        ("S[(t - 1) % 2, i, j] * 0.5", "t"),
        ("S[(t - 1) % 2, i - 1, j] * 0.5", "t"),
        ("S[t % 2, i - 1, j] * 0.5", "i"),
        ("S[t % 2, i - 1, j + 1] * 0.5", "i"),
        ("S[t % 2, i, j - 1] * 0.5", "j"),
    ],
)
def test_the_outermost_loop_that_carries_an_element_on_waits_for_it(value, waiting):
    """Of a neighbor in the step before, too: all that is inside of the loop over steps waits for nothing."""
    summary = summary_of(parse_nest(STEPS.format(value=value)))
    (chain,) = summary.chains
    assert [summary.loops[x].name for x in chain.path[1:] if x not in chain.free] == [waiting]
