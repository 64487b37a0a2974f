"""The primitive `bind`: loops as blocks and threads of a GPU, and what it refuses."""

from dataclasses import replace

import pytest

from tensorexpr.codegen.nest import For, Kernel, LoopNest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import InternalError, ScheduleError
from tensorexpr.ir import const
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, SOFTMAX, WIDE, assert_means, loops, plain, tile
from tests.codegen.schedule.test_primitives import SCAN, SCATTER, SIZES

GPU = replace(WIDE, name="gpu", kind="cuda")


def on_gpu(text: str) -> Planned:
    return schedule(parse_program(text), GPU)


def test_blocks_and_threads():
    s = on_gpu(MATMUL)
    tile(s["C"], "i", "j", (5, 16), "guard")
    for loop, axis in (("i_o", "block.y"), ("j_o", "block.x"), ("i_i", "thread.y"), ("j_i", "thread.x")):
        s["C"].bind(loop, axis)
    nest = assert_means(s)
    assert loops(nest)[:4] == [("i_o", "block.y"), ("j_o", "block.x"), ("i_i", "thread.y"), ("j_i", "thread.x")]
    assert "for j_o in block.x(range(0, 3)):" in str(nest)


def test_a_rest_is_a_grid_of_its_own():
    s = on_gpu(MATMUL)
    s["C"].split("i", 5)
    s["C"].bind("i_o", "block.x")
    s["C"].bind("i_i", "thread.x")
    assert [loops(LoopNest("", (), (), (), (k,), ()))[0] for k in assert_means(s).kernels] == [("i_o", "block.x"), ("i_i", "thread.x")]


def test_a_grid_of_a_size_that_is_known_only_at_run_time():
    s = on_gpu(SIZES)
    s["Y"].split("i", 4, "guard")
    s["Y"].bind("i_o", "block.x")
    s["Y"].bind("j", "thread.x")
    for n in (0, 3, 4, 9):
        assert_means(s, n=n)


def test_what_is_computed_in_a_block_has_its_threads():
    s = on_gpu(SOFTMAX)
    for name in ("s", "e", "m"):
        s[name].compute_at("Y", "i")
    s["Y"].bind("i", "block.x")
    s["Y"].bind("j", "thread.x")
    s["e"].bind("j", "thread.x")
    assert loops(assert_means(s, exact=False)).count(("j", "thread.x")) == 2


def test_lanes_of_a_warp_share_a_reduction_beside_those_that_take_its_points():
    s = on_gpu(SOFTMAX)
    for name in ("s", "e", "m"):
        s[name].compute_at("Y", "i")
    s["Y"].bind("i", "thread.y")
    for name, axis in (("m", "k"), ("e", "j"), ("s", "k"), ("Y", "j")):
        s[name].bind(s[name].split(axis, 32)[-1], "warp")
    found = loops(assert_means(s, exact=False))
    assert found[0] == ("i", "thread.y") and {kind for _, kind in found[1:]} == {"warp"}


def test_python_rebuilds_it():
    s = on_gpu(MATMUL)
    s["C"].bind("i", "block.x")
    again = on_gpu(MATMUL)
    exec(s.as_python(), {"s": again})
    assert again == s and again["C"]._stage.kind("i") == "block.x"


def test_blocks_stand_outermost_in_a_nest():
    inner = For("j", const(0), const(4), (), "block.x")
    nest = LoopNest("n", (), (), (), (Kernel("k", (For("i", const(0), const(4), (inner,)),)),), ())
    with pytest.raises(InternalError, match="expected the blocks of a grid outermost in their kernel"):
        verify_nest(nest)


WARPS = "x: f32[64, 32] = input()\ny[i, j]: f32[64, 32] = x[i, j] + 1.0\nreturn y"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (MATMUL, "s['C'].bind('j', 'warp')", "expected at most 32 iterations to bind to warp, got 40"),
        (SIZES, "s['Y'].bind('i', 'warp')", "expected at most 32 iterations to bind to warp, got an extent known only when it runs"),
        (MATMUL, "s['C'].bind('i', 'thread.x'); s['C'].bind('k', 'warp')",
         "expected no loop bound to thread.x beside one bound to warp, got i and k"),
        (MATMUL, "s['C'].bind('i', 'warp'); _, j = s['C'].split('j', 8); s['C'].bind(j, 'thread.y')",
         "expected the warps of a block outside of their lanes, got j_i inside i"),
        (MATMUL, "s['C'].bind('i', 'warp'); s['C'].bind('k', 'warp')", "expected one loop of a nest bound to warp, got i and k"),
        (MATMUL, "_, i = s['C'].split('i', 5, 'shift'); s['C'].bind(i, 'warp')",
         "expected iterations that touch different elements to bind to warp, got blocks that overlap"),
        (MATMUL, "o, i = s['C'].split('k', 4); s['C'].bind(o, 'warp')",
         "expected the innermost loop of the reduction to bind to warp, got k_o outside of k_i"),
        (SCATTER, "_, t = s['Y'].split('t', 4); s['Y'].bind(t, 'warp')",
         "expected iterations that touch different elements to bind to warp, got t_i: two may touch one"),
        (MATMUL, "s['C'].bind('k', 'thread.x')", "expected a data loop to bind to thread.x, got k of a reduction"),
        (SCAN, "s['g'].bind('i', 'thread.x')",
         "expected a definition outside of scans to bind to thread.x: the steps of a scan are serial"),
        (MATMUL, "s['C'].bind('i', 'thread.x'); s['C'].bind('j', 'thread.x')", "expected one loop for thread.x, got i and j"),
        (MATMUL, "s['C'].reorder('k', 'i', 'j'); s['C'].bind('i', 'block.x')",
         "expected a loop outside of the reduction over k to bind to block.x, got i inside"),
        (MATMUL, "o, _ = s['C'].split('i', 5, 'shift'); s['C'].bind(o, 'block.x')",
         "expected iterations that touch different elements to bind to block.x, got blocks that overlap"),
        (MATMUL, "o, _ = s['C'].split('i', 5, 'shift'); s['C'].parallel(o)",
         "expected iterations that touch different elements to run in parallel on a GPU, got blocks that overlap"),
        (SIZES, "o, _ = s['Y'].split('i', 3, 'shift'); s['Y'].parallel(o)",
         "expected iterations that touch different elements to run in parallel on a GPU, got blocks that overlap"),
        (MATMUL, "_, i = s['C'].split('i', 5, 'shift'); s['C'].vectorize(i)",
         "expected iterations that touch different elements to vectorize on a GPU, got blocks that overlap"),
        (SCATTER, "s['Y'].bind('t', 'block.x')",
         "expected iterations that touch different elements to bind to block.x, got t: two may touch one"),
        (SOFTMAX, "s['s'].compute_at('Y', 'i'); s['e'].compute_at('Y', 'i'); s['e'].bind('j', 'block.x')",
         "expected a definition with loops of its own to bind to block.x, got one inside Y"),
        (MATMUL, "s['C'].bind('j', 'block.x')", "expected blocks outside of all other loops, got j inside i"),
        (SIZES, "s['Y'].bind('i', 'block.y')", "expected at most 65535 blocks along block.y, got an extent known only when it runs"),
        (SIZES, "s['Y'].bind('i', 'thread.x')",
         "expected a constant number of threads along thread.x, got an extent known only when it runs"),
        ("x: f32[64, 32] = input()\ny[i, j]: f32[64, 32] = x[i, j] + 1.0\nreturn y",
         "s['y'].bind('i', 'thread.y'); s['y'].bind('j', 'thread.x')", "expected at most 1024 threads in a block, got 2048"),
        *((WARPS, code, "expected at most 1024 threads in a block, got 2048") for code in (
            "s['y'].bind('i', 'thread.y'); s['y'].bind('j', 'warp')", "s['y'].bind('j', 'warp'); s['y'].bind('i', 'thread.z')")),
        ("x: f32[65, 2] = input()\ny[i, j]: f32[65, 2] = x[i, j] + 1.0\nreturn y", "s['y'].bind('i', 'thread.z')",
         "expected at most 64 threads along thread.z, got 65"),
    ],
)  # fmt: skip
def test_what_is_refused(text, code, message):
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": on_gpu(text)})
    assert message in str(caught.value)


def test_a_cpu_has_no_blocks():
    with pytest.raises(ScheduleError, match=r"expected a GPU as the target to bind i to block\.x, got test"):
        plain(MATMUL)["C"].bind("i", "block.x")
