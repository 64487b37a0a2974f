"""The default schedule of scatters: owners, lanes, and the same bits as in order."""

import textwrap

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, loops

ROWS = """
p: i64[41] = input()
cols: i64[200] = input()
h: f32[40, {depth}] = input()
v: f32[200] = input()
X: f32[30, {depth}] = scatter(
    {{(cols[p[i] + k], d): h[i, d] * v[p[i] + k] for i in range(40) for d in range({depth}) for k in range(p[i + 1] - p[i])}}
)
return X
"""
SUMS = """
ids: i64[3000] = input()
a: f32[3000, 40] = input()
b: f32[30, 40] = input()
X: f32[30] = scatter({ids[t]: sum(a[t, d] * b[ids[t], d] for d in range(40)) for t in range(3000)})
return X
"""


def sparse_rows(depth: int, dtype: str = "f32") -> Program:
    return parse_program(ROWS.format(depth=depth).replace("f32", dtype))


def row_data(rng: np.random.Generator, depth: int) -> dict[str, np.ndarray]:
    starts = np.concatenate([[0], np.sort(rng.integers(0, 201, 39)), [200]])
    return {
        "p": starts,
        "cols": rng.integers(0, 30, 200),
        "h": rng.standard_normal((40, depth)).astype("f4"),
        "v": rng.standard_normal(200).astype("f4"),
    }


def test_lanes_stand_inside_of_what_collides_and_owners_outside():
    s = autoschedule(sparse_rows(64), WIDE)
    found = loops(lower(s))
    assert found[-4:] == [("d_o", "parallel"), ("i", "serial"), ("k", "serial"), ("d_i", "vectorize")]
    one_core = autoschedule(sparse_rows(64), Target("test", vector_bits=512, registers=32, cores=1))
    assert [index for index, _ in loops(lower(one_core))[-4:]] == ["i", "d_o", "k", "d_i"]


def test_a_batch_is_the_owner_where_there_is_one():
    text = """
    ids: i64[8, 120] = input()
    h: f32[8, 120, 32] = input()
    X: f32[8, 30, 32] = scatter({(b, ids[b, t], d): h[b, t, d] for t in range(120) for b in range(8) for d in range(32)})
    return X
    """
    s = autoschedule(parse_program(textwrap.dedent(text)), WIDE)
    assert loops(lower(s))[-4:-1] == [("b", "parallel"), ("d_o", "serial"), ("t", "serial")]
    rng = np.random.default_rng(2)
    given = {"ids": rng.integers(0, 30, (8, 120)), "h": rng.standard_normal((8, 120, 32)).astype("f4")}
    assert_means(s, inputs=given)


def test_a_sum_in_the_value_of_a_scatter_has_lanes():
    s = autoschedule(parse_program(SUMS), WIDE)
    assert ("d_i", "vectorize") in loops(lower(s)) and ("t", "parallel") not in loops(lower(s))
    rng = np.random.default_rng(1)
    given = {"ids": rng.integers(0, 30, 3000), "a": rng.integers(-4, 5, (3000, 40)), "b": rng.integers(-4, 5, (30, 40))}
    assert_means(s, inputs={"ids": given["ids"], "a": given["a"].astype("f4"), "b": given["b"].astype("f4")})


@pytest.mark.parametrize("cores", [1, 2, 7])
@pytest.mark.parametrize("depth", [1, 3, 16, 24, 40])
def test_every_element_gets_the_same_bits_as_in_order(cores, depth):
    """The value is a product, exact in float64; sums of such products are not, so their order shows."""
    rng = np.random.default_rng(depth)
    program = sparse_rows(depth, "f64")
    given = {name: array.astype("f8") if array.dtype.kind == "f" else array for name, array in row_data(rng, depth).items()}
    s = autoschedule(program, Target("test", vector_bits=512, registers=32, cores=cores))
    assert_means(s, inputs=given)


@pytest.mark.parametrize("n", [0, 1, 7, 40, 4200])
@pytest.mark.parametrize("extent", ["n", "known"])
@pytest.mark.parametrize("guard", ["", " if w[i, q] > 0.5"])
def test_short_loops_inside_are_copies(n: int, extent: str, guard: str) -> None:
    """Four places around one share what is computed of it; what collides keeps its order."""
    size = "n" if extent == "n" else str(n)
    text = (
        f"{'sizes(n)' * (extent == 'n')}\ni0: i32[{size}] = input()\nw: f64[{size}, 2] = input()\n"
        f"X: f64[30] = scatter({{maximum(minimum(i64(i0[i]) + p * 3 + q, 29), 0): w[i, p] * w[i, q] for i in range({size})"
        f" for p in range(2) for q in range(2){guard}}})\nreturn X\n"
    )
    program = parse_program(text)
    s = autoschedule(program, WIDE)
    kinds = dict(loops(lower(s)))
    assert n == 0 or (kinds["p"], kinds["q"]) == ("unroll", "unroll")
    rng = np.random.default_rng(n)
    given = {"i0": rng.integers(-3, 33, n).astype("i4"), "w": rng.random((n, 2))}
    assert_means(s, inputs=given, exact=False, **({"n": n} if extent == "n" else {}))


@pytest.mark.parametrize("value", ["h[i]", "h[i] * v[minimum(maximum(p[i] + k, 0), 3999)]"])
def test_rows_of_compressed_data_that_are_clipped_are_as_long_as_the_data(value: str) -> None:
    """Few points need no results of their own for parts of them: nobody adds up sixteen tensors where each element is met once."""
    text = (
        "p: i64[301] = input()\nh: f32[300] = input()\nv: f32[4000] = input()\n"
        f"X: f32[4000] = scatter({{minimum(maximum(p[i] + k, 0), 3999): {value} "
        "for i in range(300) for k in range(p[i + 1] - p[i])})\nreturn X\n"
    )
    s = autoschedule(parse_program(text), WIDE)
    assert "rfactor" not in s.as_python()
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.sort(rng.integers(0, 4001, 299)), [4000]])
    assert_means(s, inputs={"p": starts, "h": rng.random(300, np.float32), "v": rng.random(4000, np.float32)}, exact=False)
