"""Behind a check that fails nothing goes where what it left unwritten says, in the lanes of a block as elsewhere: that may be any place."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest import Alloc, Buffer, Check, CheckSite, If
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.ir import Index, apply, const
from tensorexpr.traversal import negate
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.codegen.llvm.nests import buffer, loop, nest, read, write

N = 64
SITES = (CheckSite("t[ids[x]]", "t", 0, "y", None),)
IDS, T = (buffer(name, dtypes.int64, N) for name in ("ids", "t"))
A, Y = (buffer(name, dtypes.float32, N) for name in ("A", "y"))
X, K = Index("x"), Index("k")
LAST = apply("sub", const(N - 1), X)
ONE = const(1.0, dtypes.float32)


def held(name, memory="local", *shape):
    """Whole numbers below N."""
    return Buffer(name, dtypes.int64, tuple(map(const, shape)), memory, (0, const(N - 1)))


def staged(into, *at):
    """What a lane writes where its index passes."""
    index = read(IDS, X)
    return Check(index, const(N), 0), write(into, at, apply("mod", read(T, index), const(N)))


def summed(start, stop, body):
    """A lane's sum in a loop."""
    s = buffer("s", dtypes.float32, memory="local")
    return Alloc(
        s, (write(s, (), ONE), loop("k", stop, body(write(s, (), apply("add", read(s), read(A, K)))), start=start), write(Y, (X,), read(s)))
    )


def uses(e):
    """What another lane makes of an element: a place that is read, one that is written, an end of a loop, the condition of a read or of
    a choice; what the lane itself makes of it; and the index that others have checked."""
    other = read(e, LAST)
    return {
        "read": write(Y, (X,), read(A, other)),
        "place": write(Y, (other,), read(A, X)),
        "stop": summed(0, apply("sub", const(N), other), lambda s: s),
        "start": summed(other, N, lambda s: s),
        "condition": summed(-1, N, lambda s: If(apply("ge", K, other), (s,))),
        "choice": write(Y, (X,), apply("where", apply("lt", other, const(1)), read(A, apply("mul", other, other)), ONE)),
        "own": write(Y, (X,), read(A, read(e, X))),
        "again": write(Y, (X,), read(A, read(IDS, LAST))),
    }


def nests(kind):
    """A use each in lanes of a kind, by name: of what a lane keeps in registers or in the block's memory, and in a workspace; of what
    is moved on first; and, in one lane, of what stands in a loop that it has left."""
    made = {}
    e, w, f, h = held("e", "local", N), held("w", "workspace", N), held("f", "local", N), held("h")
    for home in (e, w):
        first = loop("x", N, *staged(home, X), kind=kind)
        bodies = {name: (first, loop("x", N, use, kind=kind)) for name, use in uses(home).items()}
        moved = loop("x", N, write(f, (X,), read(home, LAST)), kind=kind)
        bodies["moved"] = (first, Alloc(f, (moved, loop("x", N, write(Y, (X,), read(A, read(f, X))), kind=kind))))
        made.update({f"{name}_{home.name}": (Alloc(e, body),) if home is e else body for name, body in bodies.items()})
    inner = loop("k", 2, *staged(h))
    made["inner"] = (loop("x", N, Alloc(h, (inner, write(Y, (X,), read(A, read(h))))), kind=kind),)
    if kind == "thread.x":
        z = buffer("z", dtypes.float32, 2, memory="local")
        idle = loop("j", 2, write(z, (Index("j"),), ONE), kind="thread.y")
        made["idle"] = (Alloc(z, (idle, *made["read_e"])),)
    around = "parallel" if kind == "vectorize" else "block.x"
    short = kind.replace(".", "")
    return {
        f"{name}_{short}": nest(
            [IDS, T, A, Y], [Y], (loop("i", 1, *body, kind=around),), workspace=(w,) if name.endswith("_w") else (), checks=SITES
        )
        for name, body in made.items()
    }


def chained():
    """Numbers that a thread hands on, in an order that needs as many rounds as there are, of what a kernel before has looked up."""
    w = held("w", "workspace", N)
    names = [held(name) for name in "abcd"]
    moves = [write(to, (), read(one)) for one, to in zip(reversed(names[:-1]), reversed(names[1:]), strict=True)]
    body = (
        *(write(one, (), const(0)) for one in names),
        loop("k", 5, *moves, write(names[0], (), read(w, LAST))),
        write(Y, (X,), read(A, read(names[-1]))),
    )
    for one in names:
        body = (Alloc(one, body),)
    kernels = (loop("x", N, *staged(w, X), kind="parallel"),), (loop("x", N, *body, kind="parallel"),)
    return nest([IDS, T, A, Y], [Y], *kernels, workspace=(w,), checks=SITES)


@pytest.fixture(scope="module")
def programs():
    made = {name: one for kind in ("vectorize", "thread.x", "warp") for name, one in nests(kind).items()}
    made["chained"] = chained()
    return {name: Program(verify_nest(one), f"{name}_", on_cpu=True) for name, one in made.items()}


@needs_compiler
def test_nothing_goes_where_an_unwritten_element_says(programs):
    compiled_together(list(programs.values()))
    rng = np.random.default_rng(0)
    ids, t = rng.permutation(N), rng.permutation(N)
    given = {"ids": ids, "t": t, "A": rng.integers(-4, 5, N).astype(np.float32)}
    for name, run in programs.items():
        want = run(given)["y"]
        np.testing.assert_array_equal(run(given, order=5)["y"], want, err_msg=name)
        for order, place, wrong in ((0, 17, N), (1, 63, -1), (7, 0, 1 << 40)):
            bad = ids.copy()
            bad[place] = wrong
            with pytest.raises(IndexError) as caught:
                run({**given, "ids": bad}, order=order)
            assert caught.value.args[0] == (0, wrong, N), name


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_leaving_is_text_that_nvrtc_takes(programs):
    chosen = [programs[name].source.text for name in ("read_e_vectorize", "idle_threadx", "inner_warp")]
    made = nvrtc.compile_text("\n".join(chosen), "sm_80")
    assert made.resources


def test_threads_ask_behind_loops_that_check_alone(programs):
    for name, run in programs.items():
        votes = run.source.text.count("__any_sync" if name.endswith("warp") else "__syncthreads_or")
        assert votes == (name != "chained"), name


def test_a_place_that_a_thread_has_checked_itself_needs_no_other():
    """Of what others wrote, in the way of a choice that the check was made for, and read where data say that no check is about."""
    index, chosen = read(IDS, X), apply("lt", read(T, X), const(3))
    passes = Check(index, const(N), 0)
    ways = {
        "plain": (passes, write(Y, (X,), read(A, index))),
        "taken": (If(chosen, (passes,)), write(Y, (X,), apply("where", chosen, read(A, index), ONE))),
        "otherwise": (If(negate(chosen), (passes,)), write(Y, (X,), apply("where", chosen, ONE, read(A, index)))),
        "other_branch": (If(chosen, (), (passes, write(Y, (X,), read(A, index)))),),
        "read_to_find_it": (Check(read(IDS, read(T, X)), const(N), 0), write(Y, (X,), read(A, read(IDS, read(T, X))))),
    }
    others = {
        "before": (passes, write(Y, (X,), read(A, read(IDS, LAST)))),
        "not_in_this_way": (If(chosen, (passes,)), write(Y, (X,), apply("where", chosen, ONE, read(A, index)))),
    }
    for name, body in {**ways, **others}.items():
        lanes = loop("i", 1, loop("x", N, *body, kind="vectorize"), kind="parallel")
        text = Program(verify_nest(nest([IDS, T, A, Y], [Y], (lanes,), checks=SITES)), on_cpu=True).source.text
        assert "te_fail" in text and ("te_left" in text) == (name in others), name
