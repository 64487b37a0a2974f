"""What is computed in a loop is the box that the iteration reads: blocks with their borders, in chains, moved back into the tensor."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.legal.placement import _parts_of, parts_of
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import assert_means, plain, tile
from tests.seeds import share_of

BLUR = """
X: f32[20, 12] = input()
B[i, j]: f32[20, 10] = X[i, j] + X[i, j + 1] + X[i, j + 2]
Y[i, j]: f32[18, 10] = B[i, j] + B[i + 1, j] + B[i + 2, j]
return Y
"""


def buffers(s: Planned) -> list[str]:
    """The buffers of what is computed in loops, as they are printed."""
    return [line.strip() for line in str(s).splitlines() if ": local(" in line or ": workspace(" in line]


def test_a_blur_by_tiles() -> None:
    s = plain(BLUR)
    tile(s["Y"], "i", "j", (4, 5))
    s["B"].compute_at("Y", "j_o")
    assert buffers(s) == ["B_1: local(f32[6, 5])", "B_2: local(f32[6, 5])"]
    assert "for i in range(minimum(i_o * 4, 14), minimum(i_o * 4, 14) + 6):" in str(s)
    assert "for i in range(14, 20):" in str(s)  # the rest of two rows: a whole window, moved back into the tensor
    s["B"].vectorize("j")
    s["Y"].parallel("i_o")
    assert_means(s)


def test_a_line_at_a_time() -> None:
    s = plain(BLUR)
    s["B"].compute_at("Y", "i")
    assert buffers(s) == ["B_1: local(f32[3, 10])"]
    s["B"].unroll("i")
    assert_means(s)


CHAINS = {
    # name: (program, splits, what is computed where, buffers)
    "the border grows": (
        """
X: f32[40] = input()
A[i]: f32[40] = X[i] * 2.0
B[i]: f32[38] = A[i] + A[i + 1] + A[i + 2]
Y[i]: f32[36] = B[i] + B[i + 2]
return Y
""",
        8, ("A", "B"), ["A_1: local(f32[12])", "B_1: local(f32[10])"],
    ),
    "a window under a border condition": (
        """
X: f32[40] = input()
A[i]: f32[40] = X[i] * 2.0
Y[i]: f32[40] = where(i > 0, A[i - 1], 0.0) + where(i < 39, A[i + 1], 1.0)
return Y
""",
        8, ("A",), ["A_1: local(f32[10])"],
    ),
    "a reduction reads a window": (
        """
X: f32[90] = input()
A[i]: f32[84] = X[i] * 2.0
Y[i]: f32[40] = sum(A[2 * i + k] for k in range(6))
return Y
""",
        5, ("A",), ["A_1: local(f32[14])"],
    ),
    "backwards": (
        """
X: f32[40] = input()
A[i]: f32[40] = X[i] * 2.0
Y[i]: f32[39] = A[39 - i] - A[38 - i]
return Y
""",
        13, ("A",), ["A_1: local(f32[14])"],
    ),
    "clamped to the tensor, and to less than that": (
        """
X: f32[40] = input()
A[i]: f32[40] = X[i] * 2.0
B[i]: f32[40] = X[i] * 3.0
Y[i]: f32[40] = sum(A[minimum(maximum(i + k - 2, 0), 39)] + B[minimum(maximum(i + k - 2, 0), 30)] for k in range(5))
return Y
""",
        8, ("A", "B"), ["A_1: local(f32[12])", "B_1: local(f32[40])"],
    ),
    "each element twice": (
        """
X: f32[40] = input()
A[i]: f32[11] = X[3 * i] * 2.0
Y[i]: f32[20] = A[i // 2] + A[(i + 1) // 2]
return Y
""",
        6, ("A",), ["A_1: local(f32[4])"],
    ),
    "nearest and whole": (
        """
X: f32[40] = input()
A[i]: f32[40] = X[i] * 2.0
Y[i]: f32[40] = A[i] + A[39 - i]
return Y
""",
        8, ("A",), ["A_1: local(f32[40])"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("tail", ["peel", "shift", "guard"])
@pytest.mark.parametrize("name", CHAINS)
def test_windows_of_chains(name: str, tail: str) -> None:
    text, factor, placed, wanted = CHAINS[name]
    s = plain(text)
    s["Y"].split("i", factor, tail)
    for definition in reversed(placed):
        s[definition].compute_at("Y", "i_o")
    assert buffers(s)[: len(wanted)] == wanted
    assert_means(s)


def test_blocks_that_no_iteration_computes_stay_in_the_tensor() -> None:
    """A split of blocks that are fewer than its factor, by guard, its outer loop inside: some iterations stand behind the end."""
    s = plain("""
X: f32[27] = input()
B[i]: f32[27] = X[i] + 1.0
Y[i]: f32[27] = B[i] + 1.0
return Y
""")
    s["Y"].split("i", 9, "guard")
    s["Y"].split("i_o", 6, "guard")
    s["Y"].reorder("i_o_i", "i_o_o", "i_i")
    s["B"].compute_at("Y", "i_o_i")
    assert_means(s)


def test_an_index_that_is_a_reduction_is_no_point() -> None:
    s = plain("""
X: f32[6] = input()
A[i, j]: f32[6, 3] = X[i] + f32(j)
Y[i]: f32[6] = A[i, argmax(f32(-1.0) for j in range(3))]
return Y
""")
    s["A"].compute_at("Y", "i")
    assert_means(s)
    te.build(s)


def test_other_readers_ask_for_the_whole() -> None:
    s = plain(BLUR.replace("return Y", "return B, Y"))
    with pytest.raises(ScheduleError, match="expected iterations that make each element of B once, since it is kept whole"):
        s["B"].compute_at("Y", "i")


def test_what_is_made_once_outside_of_all_loops_is_read_by_all() -> None:
    """The rest of both splits alone: no loop is open where P is computed, the rows behind it run on all cores."""
    s = plain("""
V: f32[20000] = input()
X: f32[30, 30] = input()
P[k]: f32[20000] = V[k] + 1.0
Y[i, j]: f32[30, 30] = sum(P[k] * X[i, j] for k in range(i + j, i + j + 2))
return Y
""")
    tile(s["Y"], "i", "j", (32, 32))
    s["Y"].parallel("i_o")
    s["P"].compute_at("Y", "j_o")
    v, x = np.arange(20000, dtype=np.float32), np.ones((30, 30), np.float32)
    i, j = np.indices((30, 30))
    np.testing.assert_array_equal(te.build(s)(v, x)[0], 2 * (i + j) + 3)
    assert_means(s, inputs={"V": v, "X": x})


def _chain(rng: random.Random) -> str:
    """Definitions over one or two axes, each of which reads the one before at a few places."""
    two = rng.random() < 0.5
    extent, wide = rng.randint(30, 50), rng.randint(12, 20)
    lines = [f"X: f32[{extent}{f', {wide}' if two else ''}] = input()"]
    before = "X"
    for name in ("A", "B", "Y")[rng.randint(0, 1) :]:
        step, back = rng.choice((1, 1, 1, 2)), rng.random() < 0.2
        taps = sorted(rng.sample(range(4), rng.randint(1, 3)))
        made, across = (extent - 4) // step, wide - 3
        half = rng.random() < 0.2
        reads = []
        for tap in taps:
            at = f"{step} * i + {tap}" if not half else f"(i + {tap}) // 2"
            at = f"{extent - 1} - ({at})" if back else at
            reads.append(f"{before}[{at}{f', j + {rng.randint(0, 3)}' if two else ''}]")
        value = " + ".join(reads)
        if rng.random() < 0.3:
            at = f"{step} * i + k" if not half else "(i + k) // 2"
            value = f"sum({before}[{at}{', j + k' if two else ''}] for k in range({rng.choice(('0', 'i % 2'))}, {rng.randint(2, 4)}))"
        lines.append(f"{name}[i{', j' if two else ''}]: f32[{made}{f', {across}' if two else ''}] = {value}")
        before, extent, wide = name, made, across
    return "\n".join(["", *lines, "return Y", ""])


def attempt(s: Planned, name: str, word: str, *arguments: object) -> bool:
    """A primitive where it is legal."""
    try:
        getattr(s[name], word)(*arguments)
    except ScheduleError:
        return False
    return True


def test_random_chains() -> None:
    """Any loop of the last definition may have those before it in it, in any form of its loops; what of them is computed there is
    remembered from state to state."""
    for seed in share_of(range(120)):
        rng = random.Random(seed)
        s = plain(_chain(rng))
        for _ in range(rng.randint(0, 3)):
            attempt(s, "Y", "split", rng.choice(s["Y"].loops), rng.randint(2, 9), rng.choice(("peel", "shift", "guard", "stride")))
        attempt(s, "Y", "reorder", *rng.sample(s["Y"].loops, len(s["Y"].loops)))
        for name in [n for n in s.stages[::-1] if n != "Y"]:
            any(attempt(s, name, "compute_at", "Y", rng.choice(s["Y"].loops)) for _ in range(6))
            attempt(s, "Y", "split", rng.choice(s["Y"].loops), rng.randint(2, 9))
            attempt(s, "Y", "reorder", *rng.sample(s["Y"].loops, len(s["Y"].loops)))
            assert parts_of(s.state, "Y") == _parts_of(s.state, "Y")
        for _ in range(5):
            name = rng.choice(s.stages)
            word = rng.choice(("vectorize", "unroll", "parallel"))
            attempt(s, name, word, rng.choice(s[name].loops))
        assert_means(s, seed)


def test_loops_in_which_something_is_computed_stay_loops() -> None:
    s = plain(BLUR.replace("Y[i, j]: f32[18, 10] = B", "C[i, j]: f32[20, 10] = B[i, j] + 1.0\nY[i, j]: f32[18, 10] = C"))
    s["C"].compute_at("Y", "j")
    s["B"].compute_at("Y", "i")
    with pytest.raises(ScheduleError, match="expected a data loop of Y, got j, in which C is computed"):
        s["Y"].split("j", 4)
    assert_means(s)


def test_a_tile_that_is_refused_changes_nothing() -> None:
    s = plain(BLUR)
    before = s.copy()
    with pytest.raises(ScheduleError, match="expected a positive int as the factor, got 0"):
        s["Y"].split("i", 0)
    assert s == before
