"""Loops of every kind, conditions, masks, local buffers, workspace, constants, checks: hand-made nests against NumPy."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest, emit, entry_name, host, nest_assembly, workspace_size
from tensorexpr.codegen.nest import Alloc, Check, CheckSite, If, Kernel, LoopNest
from tensorexpr.ir import Cast, Const, Constant, Expr, Index, Size, apply, const
from tensorexpr.ops import OPS
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write
from tests.seeds import share_of

F = dtypes.float32
ZERO = Const(0.0, F)
i, j, k, n = Index("i"), Index("j"), Index("k"), Size("n")


def arange(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 10, 16, 31, 48, 64, 100, 200])
def test_vectorized_extent_of_any_size(width: int) -> None:
    x, y = buffer("X", F, width), buffer("Y", F, width)
    body = loop("i", width, write(y, [i], apply("add", read(x, i), Cast(F, i))), kind="vectorize")
    got = run(nest([x, y], [y], (body,)), {"X": arange(width)})["Y"]
    assert np.array_equal(got, 2 * arange(width))


@pytest.mark.parametrize("kind", ["serial", "unroll", "vectorize", "parallel"])
@pytest.mark.parametrize("extent", [const(1), const(3), const(12), const(100), n], ids=str)
def test_loop_with_nothing_in_it(kind: str, extent: Expr) -> None:
    """It takes no time and stores nothing, alone or inside of others."""
    y = buffer("Y", F, n)
    nothing = loop("j", extent, kind=kind)
    body = (nothing, loop("i", n, write(y, [i], ZERO), nothing, loop("k", 4, nothing, kind="unroll")))
    got = run(nest([y], [y], body, sizes=["n"]), {}, {"n": 5})["Y"]
    assert np.array_equal(got, np.zeros(5, np.float32))


@pytest.mark.parametrize("stride", [-2, -1, 0, 1, 2, 3, 7])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.bool_, dtypes.float16, dtypes.float64], ids=str)
def test_strides_of_a_vectorized_read(stride: int, dtype: dtypes.DType) -> None:
    """The last element read is the last of the buffer, and the first the first: pages around are protected."""
    extent = abs(stride) * 15 + 1
    data = (np.arange(extent) % 2).astype(dtype.numpy)
    x, y = buffer("X", dtype, extent), buffer("Y", dtype, 16)
    index = apply("mul", i, const(stride))
    place = apply("add", index, const(extent - 1)) if stride < 0 else index
    made = nest([x, y], [y], (loop("i", 16, write(y, [i], read(x, place)), kind="vectorize"),))
    for before in (False, True):
        got = run(made, {"X": data}, before=before)["Y"]
        assert np.array_equal(got, data[(extent - 1 if stride < 0 else 0) + stride * np.arange(16)])


@pytest.mark.parametrize("stride", [-1, 1, 2, 5])
def test_strides_of_a_vectorized_write(stride: int) -> None:
    extent = abs(stride) * 15 + 1
    x, y = buffer("X", F, 16), buffer("Y", F, extent)
    place = apply("sub", const(15), i) if stride < 0 else apply("mul", i, const(stride))
    got = run(nest([x, y], [y], (loop("i", 16, write(y, [place], read(x, i)), kind="vectorize"),)), {"X": arange(16)})["Y"]
    want = np.zeros(extent, np.float32)
    want[:: abs(stride)] = arange(16)[::-1] if stride < 0 else arange(16)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("kind", ["serial", "vectorize", "unroll", "parallel"])
def test_where_reads_only_the_branch_taken(kind: str) -> None:
    """X[i - 4] exists for i >= 4 only; the reads of the other lanes would hit the protected page."""
    x, y = buffer("X", F, 12), buffer("Y", F, 16)
    value = apply("where", apply("ge", i, const(4)), read(x, apply("sub", i, const(4))), Const(-1.0, F))
    made = nest([x, y], [y], (loop("i", 16, write(y, [i], value), kind=kind),))
    got = run(made, {"X": arange(12)}, before=True)["Y"]
    assert np.array_equal(got, np.concatenate([np.full(4, -1, np.float32), arange(12)]))


def test_where_under_where_and_a_uniform_condition() -> None:
    x, y = buffer("X", F, 16), buffer("Y", F, 4, 16)
    inner = apply("where", apply("lt", j, const(9)), read(x, apply("add", j, const(7))), read(x, 0))
    value = apply("where", apply("gt", i, const(1)), inner, apply("neg", read(x, j)))
    body = loop("i", 4, loop("j", 16, write(y, [i, j], value), kind="vectorize"))
    got = run(nest([x, y], [y], (body,)), {"X": arange(16)})["Y"]
    high = np.where(np.arange(16) < 9, np.roll(arange(16), -7), 0)
    assert np.array_equal(got, np.stack([-arange(16), -arange(16), high, high]))


def test_triangular_loops_in_lanes() -> None:
    """Y[i] = sum of X[i, k] for k <= i: in a vectorized loop over i the bound differs between lanes."""
    x, y, t = buffer("X", F, 16, 16), buffer("Y", F, 16), buffer("t", F, memory="local")
    body = Alloc(
        t,
        (
            write(t, [], ZERO),
            loop("k", apply("add", i, const(1)), write(t, [], apply("add", read(t), read(x, i, k)))),
            write(y, [i], read(t)),
        ),
    )
    got = run(nest([x, y], [y], (loop("i", 16, body, kind="vectorize"),)), {"X": arange(16, 16)})["Y"]
    assert np.array_equal(got, np.tril(arange(16, 16)).sum(1))


@pytest.mark.parametrize("limit", [0, 5, 15])
def test_loops_between_data_run_for_the_lanes_that_are_on(limit: int) -> None:
    """Y[i] = sum of X[k] for A[i] <= k < B[i] where i < limit: between what stands in the other lanes lie 2^33 steps."""
    a, b, x = (buffer(name, dtypes.int64, 16) for name in "ABX")
    y, t, on = buffer("Y", dtypes.int64, 3, 16), buffer("t", dtypes.int64, memory="local"), buffer("on", dtypes.int64)
    bounds = ((read(a, i), read(b, i)), (read(a, i), const(9)), (const(0), read(b, i)))
    mine = [
        Alloc(
            t,
            (
                write(t, [], const(0)),
                loop("k", stop, write(t, [], apply("add", read(t), read(x, k))), start=start),
                write(y, [at, i], read(t)),
            ),
        )
        for at, (start, stop) in enumerate(bounds)
    ]
    made = nest([a, b, x, on, y], [y], (loop("i", 16, If(apply("lt", i, read(on)), tuple(mine)), kind="vectorize"),))
    first, last = np.arange(16) // 4, np.arange(16) // 2 + 3
    first[limit:], last[limit:] = -(1 << 33), 1 << 33
    data = np.arange(16) ** 2
    spent = time.process_time()
    found = run(made, {"A": first, "B": last, "X": data, "on": np.array(limit)})["Y"]
    assert time.process_time() - spent < 3
    for lane in range(16):
        want = [data[first[lane] : last[lane]].sum(), data[first[lane] : 9].sum(), data[: last[lane]].sum()]
        assert np.array_equal(found[:, lane], want if lane < limit else [0, 0, 0])


def test_if_in_lanes_with_otherwise() -> None:
    x, y = buffer("X", F, 16), buffer("Y", F, 16)
    odd = apply("eq", apply("mod", i, const(2)), const(1))
    body = If(odd, (write(y, [i], read(x, i)),), (write(y, [i], apply("neg", read(x, apply("add", i, const(1))))),))
    got = run(nest([x, y], [y], (loop("i", 16, body, kind="vectorize"),)), {"X": arange(16)})["Y"]
    assert np.array_equal(got, np.where(np.arange(16) % 2 == 1, arange(16), -arange(16) - 1))


def test_a_reduction_that_nobody_split_is_not_vectorized() -> None:
    x, y = buffer("X", F, 100), buffer("Y", F)
    body = (write(y, [], ZERO), loop("i", 100, write(y, [], apply("add", read(y), read(x, i))), kind="vectorize"))
    assert run(nest([x, y], [y], body), {"X": arange(100)})["Y"] == 4950


def test_fused_indices_need_no_division_in_lanes() -> None:
    """A reshape: (16 o + l) // 32 and % 32 are uniform and a ramp, so loads stay vectors."""
    x, y = buffer("X", F, 8, 32), buffer("Y", F, 256)
    flat = apply("add", apply("mul", Index("o"), const(16)), Index("l"))
    store = write(y, [flat], read(x, apply("floordiv", flat, const(32)), apply("mod", flat, const(32))))
    made = nest([x, y], [y], (loop("o", 16, loop("l", 16, store, kind="vectorize")),))
    assert "gather" not in emit(made, host())
    assert np.array_equal(run(made, {"X": arange(8, 32)})["Y"], np.arange(256))


def test_accumulators_stay_in_registers() -> None:
    """A 4 x 32 tile of a matrix product: no stack access is left in the inner loop."""
    a, b, c = buffer("A", F, 4, n), buffer("B", F, n, 32), buffer("C", F, 4, 32)
    t = buffer("t", F, 4, 32, memory="local")
    product = apply("add", read(t, i, j), apply("mul", read(a, i, k), read(b, k, j)))
    tile = Alloc(
        t,
        (
            loop("i", 4, loop("j", 32, write(t, [i, j], ZERO), kind="vectorize"), kind="unroll"),
            loop("k", n, loop("i", 4, loop("j", 32, write(t, [i, j], product), kind="vectorize"), kind="unroll")),
            loop("i", 4, loop("j", 32, write(c, [i, j], read(t, i, j)), kind="vectorize"), kind="unroll"),
        ),
    )
    tiled = nest([a, b, c], [c], (tile,), sizes=("n",))
    assert "(%rsp" not in nest_assembly(tiled).split("kernel0")[2] or host().architecture != "x86_64"
    x, y = arange(4, 9), arange(9, 32)
    assert np.array_equal(run(tiled, {"A": x, "B": y}, {"n": 9})["C"], x @ y)


@pytest.mark.parametrize("rows", [5, 8, 16])
def test_iterations_that_begin_with_a_test_stay_a_loop(rows: int) -> None:
    """Rows of a tile at a border: copies of a copy would be as many branches and as much code."""
    x, y = buffer("X", F, 2, rows, 16), buffer("Y", F, 2, rows, 16)
    there, none = (loop("j", 16, write(y, [k, i, j], value), kind="vectorize") for value in (read(x, k, i, j), ZERO))
    test = If(apply("lt", apply("add", i, apply("mul", k, const(rows))), const(rows)), (there,), (none,))
    made = nest([x, y], [y], (loop("k", 2, loop("i", rows, test, kind="unroll")),))
    assert emit(made, host()).count("load <16 x float>") == (1 if rows >= 8 else rows)
    given = arange(2, rows, 16)
    want = np.where(np.arange(2 * rows)[:, None] < rows, given.reshape(2 * rows, 16), 0).reshape(given.shape)
    np.testing.assert_array_equal(run(made, {"X": given})["Y"], want)


def test_iterations_without_vectors_stay_a_loop() -> None:
    """What lanes store may be one element, so they run one after the other, and so do the rows."""
    x, y = buffer("X", F, 16, 16), buffer("Y", F, 16, 8)
    store = write(y, [i, apply("floordiv", j, const(2))], read(x, i, j))
    made = nest([x, y], [y], (loop("i", 16, loop("j", 16, store, kind="vectorize"), kind="unroll"),))
    assert emit(made, host()).count("= load float") == 1
    np.testing.assert_array_equal(run(made, {"X": arange(16, 16)})["Y"], arange(16, 16)[:, 1::2])


def test_workspace_constants_and_several_kernels() -> None:
    """K0: W = X + c; K1: V = 2 W; K2: Y = V - X, with symbolic and constant shapes, the last two of which share bytes."""
    x, y, w = buffer("X", F, n), buffer("Y", F, n), buffer("W", F, n, memory="workspace")
    v, u = buffer("V", F, 100, memory="workspace"), buffer("U", F, 100, memory="workspace")
    c = Constant("c", np.array([10.0, 20.0], np.float32))
    table = buffer("c", F, 2, memory="constant")
    first = loop("i", n, write(w, [i], apply("add", read(x, i), read(table, apply("mod", i, const(2))))), kind="parallel")
    second = loop("i", n, write(v, [i], apply("add", read(w, i), read(w, i))))
    third = loop("i", n, write(u, [i], read(w, i)))
    fourth = loop("i", n, write(y, [i], apply("sub", read(u, i), read(x, i))))
    fifth = (loop("i", n, write(y, [i], apply("sub", read(v, i), read(x, i)))),)
    made = nest([x, y], [y], (first,), (second,), fifth, (third,), (fourth,), sizes=("n",), workspace=(w, v, u), constants=(c,))
    assert workspace_size(made, {"n": 7}) == 448 + 64
    assert workspace_size(made, {"n": 0}) == 448
    for size in (0, 1, 7, 100):
        got = run(made, {"X": arange(size)}, {"n": size})["Y"]
        assert np.array_equal(got, np.where(np.arange(size) % 2, 20, 10))


def test_a_parallel_loop_inside_a_serial_one() -> None:
    """Five steps of Y[i] = Y[i] + t X[i] + S[t], where S is a local buffer outside of the parallel loop."""
    x, y, s = buffer("X", F, n), buffer("Y", F, n), buffer("s", F, 5, memory="local")
    t = Index("t")
    step = apply("add", read(y, i), apply("add", apply("mul", Cast(F, t), read(x, i)), read(s, t)))
    body = Alloc(
        s,
        (
            loop("t", 5, write(s, [t], Cast(F, apply("mul", t, t)))),
            loop("i", n, write(y, [i], ZERO), kind="parallel"),
            loop("t", 5, loop("i", n, write(y, [i], step), kind="parallel")),
        ),
    )
    got = run(nest([x, y], [y], (body,), sizes=("n",)), {"X": arange(50_000)}, {"n": 50_000})["Y"]
    assert np.array_equal(got, 10 * arange(50_000) + 30)


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("sign", [1, -1])
def test_masks_of_tails(name: str, sign: int) -> None:
    """Ramps against scalars on either side, far away and near."""
    y = buffer("Y", dtypes.bool_, 2, 60, 16)
    ramp = apply("add", apply("mul", i, const(3)), j if sign > 0 else apply("neg", j))
    stores = (write(y, [0, i, j], apply(name, ramp, n)), write(y, [1, i, j], apply(name, n, ramp)))
    made = nest([y], [y], (loop("i", 60, loop("j", 16, *stores, kind="vectorize")),), sizes=("n",))
    compiled = compile_nest(made)
    values = np.arange(60)[:, None] * 3 + sign * np.arange(16)
    for size in (0, 1, 5, 16, 77, 200, 2**40):
        want = np.stack([OPS[name].evaluate(values, size), OPS[name].evaluate(size, values)])
        assert np.array_equal(run(made, {}, {"n": size}, compiled=compiled)["Y"], want)


def test_buffers_that_live_apart_share_their_bytes() -> None:
    """A chain of twenty stages of one kilobyte each needs two of them."""
    x, y = buffer("X", F, 256), buffer("Y", F, 256)
    stages = [x, *(buffer(f"W{k}", F, 256, memory="workspace") for k in range(19)), y]
    kernels = [(loop("i", 256, write(b, [i], apply("add", read(a, i), Const(1.0, F)))),) for a, b in itertools.pairwise(stages)]
    made = nest([x, y], [y], *kernels, workspace=tuple(stages[1:-1]))
    assert workspace_size(made, {}) == 2048
    assert np.array_equal(run(made, {"X": arange(256)})["Y"], arange(256) + 20)


def test_zero_extents_touch_nothing() -> None:
    x, y = buffer("X", F, n, 16), buffer("Y", F, n, 16)
    body = loop("i", n, loop("j", 16, write(y, [i, j], read(x, i, j)), kind="vectorize"), kind="parallel")
    made = compile_nest(nest([x, y], [y], (body,), sizes=("n",)))
    assert made([0, 0], [0]) is None


def _gather(kind: str, rows: int = 1) -> LoopNest:
    ids, x, y = buffer("ids", dtypes.int64, rows, 16), buffer("X", F, 10), buffer("Y", F, rows, 16)
    index = read(ids, k, i)
    inner = loop("i", 16, Check(index, const(10), 0), write(y, [k, i], read(x, index)), kind=kind)
    site = CheckSite("X[ids[i]]", "X", 0, "Y", None)
    return nest([ids, x, y], [y], (loop("k", rows, inner, kind="parallel"),), checks=(site,))


@pytest.mark.parametrize("kind", ["serial", "vectorize", "unroll"])
@pytest.mark.parametrize("bad", [-1, 10, 2**62, -(2**63)])
def test_checks_stop_the_kernel_and_say_where(kind: str, bad: int) -> None:
    ids = np.arange(16).reshape(1, 16) % 10
    made = _gather(kind)
    assert np.array_equal(run(made, {"ids": ids, "X": arange(10)})["Y"], ids.astype(np.float32))
    ids[0, 11] = bad
    with pytest.raises(IndexError) as caught:
        run(made, {"ids": ids, "X": arange(10)})
    assert caught.value.args[0] == (0, bad, 10)


def test_a_check_in_many_threads_reports_one_failure() -> None:
    ids = np.zeros((5000, 16), np.int64)
    ids[1234, 3], ids[4321, 5] = 77, 99
    with pytest.raises(IndexError) as caught:
        run(_gather("vectorize", 5000), {"ids": ids, "X": arange(10)})
    assert caught.value.args[0] in ((0, 77, 10), (0, 99, 10))


def test_later_kernels_do_not_run_after_a_failure() -> None:
    x, y, z = buffer("X", dtypes.int64), buffer("Y", F, 4), buffer("Z", F)
    first = (Check(read(x), const(4), 0), write(y, [read(x)], Const(1.0, F)))
    second = (write(z, [], Const(5.0, F)),)
    made = compile_nest(nest([x, y, z], [y, z], first, second, checks=(CheckSite("Y[X]", "Y", 0, "Y", None),)))
    arrays = [np.array(9), np.zeros(4, np.float32), np.zeros((), np.float32)]
    assert made([a.ctypes.data for a in arrays]) == (0, 9, 4)
    assert arrays[2] == 0


def test_offsets_are_64_bits_wide() -> None:
    """An element beyond 2^31 of a sparse buffer."""
    size = (1 << 31) + 64
    x, y = buffer("X", dtypes.int8, n), buffer("Y", dtypes.int8, 16)
    place = apply("add", apply("sub", n, const(16)), i)
    made = compile_nest(nest([x, y], [y], (loop("i", 16, write(y, [i], read(x, place)), kind="vectorize"),), sizes=("n",)))
    big = np.zeros(size, np.int8)
    big[-16:] = np.arange(16)
    out = np.zeros(16, np.int8)
    assert made([big.ctypes.data, out.ctypes.data], [size]) is None
    assert np.array_equal(out, np.arange(16))


def test_local_buffers_of_a_lane_with_dynamic_indices() -> None:
    """A little histogram per lane: the local buffer is indexed by data, and every lane has its own."""
    x, y = buffer("X", dtypes.int64, 16, 5), buffer("Y", dtypes.int64, 16, 3)
    h = buffer("h", dtypes.int64, 3, memory="local")
    cell = read(x, i, k)
    body = Alloc(
        h,
        (
            loop("j", 3, write(h, [j], const(0)), kind="unroll"),
            loop("k", 5, write(h, [cell], apply("add", read(h, cell), const(1)))),
            loop("j", 3, write(y, [i, j], read(h, j))),
        ),
    )
    data = np.random.default_rng(0).integers(0, 3, (16, 5))
    want = np.stack([np.bincount(row, minlength=3) for row in data])
    for kind in ("vectorize", "serial", "parallel"):
        assert np.array_equal(run(nest([x, y], [y], (loop("i", 16, body, kind=kind),)), {"X": data})["Y"], want)


def test_names_that_are_not_identifiers() -> None:
    x, y = buffer("the input (α)", F, 4), buffer("x.1", F, 4)
    made = nest([x, y], [y], (loop("ω", 4, write(y, [Index("ω")], read(x, Index("ω")))),))
    made = LoopNest(
        "my op!", *[getattr(made, f) for f in ("parameters", "constants", "workspace")], (Kernel("k α", made.kernels[0].body),), made.writes
    )
    assert entry_name(made) == "te_my_op_"
    assert np.array_equal(run(made, {"the input (α)": arange(4)})["x.1"], arange(4))


_PROGRAM = """
from tests.codegen.llvm.random_nests import random_nest
from tensorexpr.codegen.llvm import emit
from tensorexpr.codegen.llvm.text.machine import Machine
import hashlib
machine = Machine("x86_64-unknown-linux-gnu", "x86-64-v4", "", 512)
text = "".join(emit(random_nest(seed), machine) for seed in range(40))
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_text_does_not_depend_on_hashing() -> None:
    found = set()
    for seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120)
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize(("seeds", "machine"), [(range(100), []), (range(100, 140), ["x86-64-v3", "256"])], ids=["host", "avx2"])
def test_random_nests_agree_with_the_naive_interpreter(seeds: range, machine: list[str]) -> None:
    """In a process of its own: LLVM would end this one where it is given something that it did not expect."""
    if machine and not (host().architecture == "x86_64" and host().vector_bits >= 256):
        return
    drawn = share_of(seeds)
    command = [sys.executable, "-m", "tests.codegen.llvm.random_nests", *map(str, (drawn.start, drawn.stop, drawn.step)), *machine]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert done.stdout.endswith("passed\n")


HALF = apply("floordiv", n, const(2))


@pytest.mark.parametrize("rows", [0, 1, 7, 33, 300])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize(
    "limits",
    [(6,), (0, 40), (9, 5, 33), (3, HALF), (HALF, apply("add", n, const(2)))],
    ids=["6", "0, 40", "9, 5, 33", "3, half", "half, all"],
)
def test_loops_that_tell_their_first_iterations_apart_are_two(limits: tuple[int | Expr, ...], kind: str, rows: int) -> None:
    y = buffer("Y", F, n)
    ends = [const(end) if isinstance(end, int) else end for end in limits]
    body = write(y, [i], Cast(F, apply("add", i, const(1000 * len(ends)))))
    for piece, end in reversed(list(enumerate(ends))):
        body = If(apply("lt", i, end), (write(y, [i], Cast(F, apply("add", i, const(1000 * piece)))),), (body,))
    made = nest([y], [y], (loop("i", n, body, kind=kind),), sizes=["n"])
    assert len(re.findall(r"^i\.loop\S*:", emit(made, host()), re.M)) == len(ends) + 1
    numbers = np.arange(rows)
    stops = [end if isinstance(end, int) else rows // 2 if end is HALF else rows + 2 for end in limits]
    pieces = np.select([numbers < stop for stop in stops], range(len(stops)), len(stops))
    assert np.array_equal(run(made, {}, {"n": rows})["Y"], numbers + 1000 * pieces)


def test_a_loop_whose_test_has_its_index_on_both_sides_is_one() -> None:
    y = buffer("Y", F, n)
    test = If(apply("lt", i, apply("mod", apply("mul", i, const(3)), const(7))), (write(y, [i], Const(1.0, F)),), (write(y, [i], ZERO),))
    made = nest([y], [y], (loop("i", n, test),), sizes=["n"])
    assert len(re.findall(r"^i\.loop\S*:", emit(made, host()), re.M)) == 1
    numbers = np.arange(50)
    assert np.array_equal(run(made, {}, {"n": 50})["Y"], numbers < numbers * 3 % 7)
