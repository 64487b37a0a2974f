"""The model of cost: the same for many candidates at once, for splits in the summary and in the nest, and in the order that is certain."""

import os

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto import gpus, measure
from tensorexpr.codegen.auto.cost import Model, cost_of, predict, spell
from tensorexpr.codegen.auto.features import one_by_one
from tensorexpr.codegen.auto.machine import AVX2, NEON, SAPPHIRE_RAPIDS, ZEN_4, of_gpu, shipped
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.operations import conversion, instructions
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.auto.summary import LOAD
from tensorexpr.codegen.llvm.emitter.module import emit
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200, Target
from tensorexpr.dtypes import bfloat16, float32, float64
from tensorexpr.records import fields, replace
from tensorexpr.simplify import simplify
from tests.codegen.auto.test_features import nest_of
from tests.random_programs import random_program
from tests.seeds import share_of

FACTS = SAPPHIRE_RAPIDS
X86 = Machine("x86_64-unknown-linux-gnu", "sapphirerapids", "+avx512f,+avx512vl,+fma", 512)
PRODUCT = """main(Y, A, B)
Y: parameter(f32[{n}, {m}], written)
A: parameter(f32[{n}, {k}])
B: parameter(f32[{k}, {m}])

def kernel_0() -> Y:
"""


def product(body: str, n: int = 96, m: int = 128, k: int = 64):
    return parse_nest(PRODUCT.format(n=n, m=m, k=k) + "".join(f"    {line}\n" for line in body.strip("\n").split("\n")))


TILED = """
for i_o in parallel(range(0, 24)):
    for j_o in range(0, 4):
        for k in range(0, 64):
            for i_i in unroll(range(0, 4)):
                for j_i in vectorize(range(0, 32)):
                    Y[i_i + i_o * 4, j_i + j_o * 32] = Y[i_i + i_o * 4, j_i + j_o * 32] + A[i_i + i_o * 4, k] * B[k, j_i + j_o * 32]
"""


def test_candidates_at_once_are_candidates_one_by_one():
    summary = summary_of(product(TILED), machine=X86)
    rows, columns = (next(k for k, loop in enumerate(summary.loops) if loop.name == name) for name in ("i_i", "j_i"))
    model, rng = Model(summary, FACTS), np.random.default_rng(0)
    sizes = {rows: rng.integers(1, 12, 40), columns: 16 * rng.integers(1, 5, 40)}
    for threads in (1, 3):
        batch = model.times(sizes, threads)
        single = [model.times({loop: [values[n]] for loop, values in sizes.items()}, threads)[0] for n in range(40)]
        np.testing.assert_allclose(batch, single, rtol=1e-9)
    assert len(set(np.round(batch, 3))) > 10


@pytest.mark.parametrize("seed", share_of(range(30)))
def test_laws_over_random_programs(seed):
    program = simplify(random_program(seed))
    nest = lower(schedule(program, Target("cpu")))
    sizes = dict.fromkeys(nest.sizes, 5)
    summary = summary_of(nest, sizes, X86)
    model = Model(summary, FACTS)
    one = model.explained()
    assert np.isfinite(one.total).all() and one.total[0] >= model.busy({})[0] >= FACTS.call
    assert Model(summary, replace(FACTS, caches=tuple(2 * c for c in FACTS.caches))).explained().levels.sum() <= one.levels.sum() * (
        1 + 1e-9
    )
    stores = FACTS.store / FACTS.load  # across lines they cost as much more than loads as side by side
    slower = replace(
        FACTS, arithmetic=1.0, load=1.0, store=stores, lines=(5.0, 9.0, 20.0), jumps=(5.0, 9.0, 20.0), writes=(9.0, 20.0, 50.0)
    )
    assert Model(summary, slower).times()[0] >= one.total[0]
    times = [model.times(None, threads)[0] for threads in (1, 2, 4)]
    assert times[0] >= times[1] * (1 - 1e-9) and times[1] >= times[2] * (1 - 1e-9)
    loops = (x._replace(extent=2 * x.extent) if n >= len(summary.kernels) else x for n, x in enumerate(summary.loops))
    longer = replace(summary, loops=tuple(loops))
    assert Model(longer, FACTS).times()[0] >= one.total[0] * (1 - 1e-9)


def test_orders_that_are_certain():
    def times(tensor):
        program = simplify(te.program_of([tensor]))
        return [
            Model(summary_of(lower(s), machine=X86), FACTS).times()[0] for s in (autoschedule(program, AVX512), schedule(program, AVX512))
        ]

    AVX512 = Target("cpu", 512, 32, 1, 48 << 10, 2 << 20, 16 << 20)
    A, B = te.placeholder((200, 300), name="A"), te.placeholder((300, 256), name="B")
    default, plain = times(te.compute((200, 256), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j], 300)))
    assert plain > 20 * default
    default, plain = times(te.compute((200,), lambda i: te.sum(lambda k: A[i, k], 300)))
    assert plain > 3 * default


def test_a_sum_waits_for_its_additions():
    body = """
for i in range(0, 96):
    acc: local(f32[()])
    acc[()] = 0.0
    for k in range(0, 640):
        acc[()] = acc[()] + A[i, k]
    Y[i, 0] = acc[()]
"""
    times = Model(summary_of(product(body, k=640), machine=X86), FACTS).explained()
    assert times.total[0] == pytest.approx(96 * 640 * FACTS.add_latency, rel=0.1)
    fast = Model(summary_of(product(body.replace("640", "8"), k=8), machine=X86), FACTS).explained().total[0]
    assert fast < 96 * 8 * FACTS.add_latency  # short sums of several rows are under way at once


def test_rows_a_page_apart_crowd_each_other_out():
    body = (
        "for k in range(0, 64):\n    for j in range(0, 8):\n        for i in range(0, 96):\n            Y[i, j * 4] = Y[i, j * 4] + A[i, k]"
    )
    apart = [Model(summary_of(product(body, m=m), machine=X86), FACTS).explained().levels[0].sum() for m in (1008, 1024)]
    assert apart[1] > 5 * apart[0]


@pytest.mark.parametrize("body", ["Y[i, k] = A[k, i]", "Y[k, i] = A[i, k]"])
def test_a_line_waits_for_the_place_that_it_shares(body):
    loops = "for k in range(0, 512):\n    for i in range(0, 512):\n        "
    times = [Model(summary_of(product(loops + body, 512, m, m), machine=X86), FACTS).explained().levels for m in (544, 512, 1024)]
    own, half, all_ = (float(levels.sum()) for levels in times)
    swap = FACTS.swaps[body.startswith("Y[i")]
    assert own < half < all_ and all_ == pytest.approx(512 * 512 * swap, rel=0.3) and half == pytest.approx(all_ / 2, rel=0.3)


def test_statements_that_fill_what_lanes_leave_out_store_whole_vectors():
    def stores(body):
        loop = "for k in range(0, 96):\n    for j in vectorize(range(0, 16)):\n"
        work = summary_of(product(loop + body, m=32), machine=X86).work
        return {w.stride for w in work if w.kind == "store"}

    assert stores("        Y[k, j * 2] = A[k, j]\n        Y[k, j * 2 + 1] = A[k, j]") == {1.0}
    assert stores("        Y[k, j * 2] = A[k, j]\n        Y[k, j * 2 + 3] = A[k, j]") == {2.0}
    assert stores("        if A[k, j] > 0.0:\n            Y[k, j * 2] = A[k, j]\n            Y[k, j * 2 + 1] = A[k, j]") == {2.0}


@pytest.mark.parametrize(
    "index", ["i, 2", "i, r", "i, (r + 1) % 3", "i + r, 1", "i + r // 2, 1", "i, (i + r) % 3", "i * 2, 1", "i * 9 % 40, r"]
)
@pytest.mark.parametrize("loop", ["range(0, 3)", "unroll(range(0, 3))"])
def test_lanes_gather_where_the_emitter_does(loop, index):
    nest = nest_of(f"for r in {loop}:\n    for i in vectorize(range(0, 16)):\n        Y[r, i] = X[{index}]", "Y: 3, 16", "X: 40, 3")
    loads = [w for w in summary_of(nest, machine=X86).work if w.kind == LOAD]
    assert any(map(one_by_one, loads)) == ("gather" in emit(nest, X86))


def test_instructions_are_those_of_the_emitter():
    assert instructions("add", float32, X86) == (("arithmetic", 1.0),)
    assert instructions("div", float64, X86) == (("divide", 1.0),)
    assert dict(instructions("floordiv", te.int64, X86))["integer divide"] >= 1
    assert 15 < dict(instructions("exp", float32, X86))["arithmetic"] < 30
    assert dict(instructions("sin", float32, X86))["arithmetic"] < 70  # without the way for large arguments
    assert conversion(float32, float64, X86) == (("arithmetic", 1.0),)
    assert sum(n for _, n in conversion(float32, bfloat16, X86)) > 1


def test_shipped_facts():
    for facts in (SAPPHIRE_RAPIDS, ZEN_4, AVX2, NEON, *map(of_gpu, gpus.SHIPPED)):
        assert len(facts.lines) == len(facts.jumps) == len(facts.writes) == len(facts.caches) == 3
        assert sorted(facts.lines) == list(facts.lines) and all(j >= line for j, line in zip(facts.jumps, facts.lines))
        assert facts.latency >= facts.arithmetic and facts.across >= facts.load and facts.source
    wide, narrow = Target("cpu", 512, 32, 4, l3_bytes=64 << 20), Target("cpu", 128, 32)
    assert shipped(wide).name == SAPPHIRE_RAPIDS.name and shipped(replace(wide, multiplies=1)).name == ZEN_4.name
    assert shipped(Target("cpu", 256)).name == AVX2.name and shipped(narrow).name == NEON.name
    assert shipped(wide).cores == 4 and shipped(wide).caches[2] == wide.last_level
    assert shipped(H200).name == "H200" and shipped(replace(H200, arch="sm_80")).name == "A100" and shipped(H200).cores == H200.cores


def test_facts_are_measured_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TENSOREXPR_MEASURE", raising=False)
    asked = []

    def measured(nearest, machine):
        asked.append(machine)
        return replace(nearest, source="measured", load=0.5)

    monkeypatch.setattr(measure, "measured", measured)
    monkeypatch.setattr(measure.os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    first = facts_here.__wrapped__()
    assert facts_here.__wrapped__() == first and len(asked) == 1 and first.load == 0.5
    monkeypatch.setenv("TENSOREXPR_MEASURE", "0")
    assert facts_here.__wrapped__().source != "measured"


def test_what_a_busy_machine_says_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TENSOREXPR_MEASURE", raising=False)
    found = [{"load": 50.0}, {"lines": (0.9, 2.1, 0.7)}, {"load": 0.5}]
    load = [1000.0 * (os.cpu_count() or 1), 0.0, 0.0, 0.0]
    monkeypatch.setattr(measure, "measured", lambda nearest, machine: replace(nearest, source="measured", **found.pop(0)))
    monkeypatch.setattr(measure.os, "getloadavg", lambda: (load.pop(0), 0.0, 0.0), raising=False)
    for left in (3, 2, 1):  # busy, an instruction that takes too long, memory nearer than a cache
        assert facts_here.__wrapped__().source != "measured" and len(found) == left
    assert facts_here.__wrapped__().load == 0.5 and facts_here.__wrapped__().load == 0.5 and not found


def test_facts_of_this_core_are_in_keeping():
    found = dict(measure._Bench(host()).core())
    assert set(found) <= {field.name for field in fields(FACTS)} and all(value > 0 for value in found.values())
    assert found["latency"] >= found["arithmetic"] and found["divide"] > found["arithmetic"]
    assert [measure._rounded(x) for x in (0.04449, 12.34, 1876.0, 0.0)] == [0.044, 12.0, 1900.0, 0.0]


def test_a_cost_says_why():
    text = str(cost_of(product(TILED)))
    assert "on one thread" in text and "i_o j_o k" in text and "arithmetic" in text and "6,144" in text
    A = te.placeholder((te.dim("n"), 64), name="A")
    s = te.schedule(te.compute(A.shape, lambda i, j: te.exp(A[i, j]), name="E"))
    s["E"].parallel("i")
    cost = s.cost
    assert repr(cost) == f"<cost of main: {spell(cost.nanoseconds)}>"
    assert cost.at(n=2000).nanoseconds == pytest.approx(2 * cost.at(n=1000).nanoseconds, rel=0.3)
    assert cost.at(n=100_000, threads=2).nanoseconds < cost.at(n=100_000).nanoseconds
    assert "n = 2000" in str(cost.at(n=2000)) and "2 threads" in str(cost.at(n=2000, threads=2))
    assert cost.at(n=1000).first_touch == pytest.approx(1000 * 64 * 4 / 4096 * cost.facts.page)
    nest = s.nest
    assert predict(nest, {"n": 2000}) == cost.at(n=2000).nanoseconds
    assert [spell(x) for x in (12.0, 1234.0, 5.6e6, 2e9)] == ["12 ns", "1.23 us", "5.6 ms", "2 s"]


def test_a_gpu_is_a_machine_of_many_warps():
    A, B = te.placeholder((1 << 22,), name="A"), te.placeholder((1 << 22,), name="B")
    program = simplify(te.program_of([te.compute((1 << 22,), lambda i: A[i] * 2.0 + B[i])]))
    cost = cost_of(lowered(autoschedule(program, H200)), target=H200)
    moved = 3 * 4 * 2**22
    assert moved / 4800 < cost.nanoseconds < moved / 1000  # between twice the bandwidth of memory and half of it
    assert "132 multiprocessors" in str(cost)


def test_nothing_to_do_costs_a_call():
    for extent in ("0", "n"):
        body = f"def kernel_0() -> Y:\n    for i in range(0, {extent}):\n        Y[i] = 1.0\n"
        text = f"main(n, Y)\nn: size\nY: parameter(f32[{extent}], written)\n\n{body}"
        cost = cost_of(parse_nest(text), {"n": 0})
        assert cost.nanoseconds == pytest.approx(FACTS.call) and "20 ns on one thread" in str(cost)
    assert cost_of(parse_nest("main(Y)\nY: parameter(f32[0], written)\n")).nanoseconds == pytest.approx(FACTS.call)


def test_pieces_of_rows_a_page_apart_wait_for_lines_from_further_away_besides() -> None:
    """A vector times a matrix of 4 MiB: pieces of 64 lanes took 0.148 ms where rows are 4,096 bytes apart and 0.059 where they are 4,000;
    whole rows 0.052 and 0.058 (measured, Zen 4)."""

    def pieces(columns: int, lanes: int) -> float:
        x, a = te.placeholder((1024,), name="x"), te.placeholder((1024, columns), name="a")
        y = te.compute((columns,), lambda j: te.sum(lambda k: x[k] * a[k, j], 1024), name="y")
        s = te.schedule(y)
        s[y].split("j", lanes)
        if lanes > 64:
            s[y].split("j_i", 64)
            s[y].reorder("j_o", "k", "j_i_o", "j_i_i")
            s[y].vectorize("j_i_i")
        else:
            s[y].reorder("j_o", "k", "j_i")
            s[y].vectorize("j_i")
        return predict(s.nest)

    assert 1.6 * pieces(1024, 1024) < pieces(1024, 64) and pieces(1000, 64) < 0.8 * pieces(1024, 64)
    assert pieces(1024, 1024) < pieces(1024, 256) < pieces(1024, 128) < pieces(1024, 64)
