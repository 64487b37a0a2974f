"""What is made of the elements of a sum alone runs in its loops: the sum is not stored."""

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import Planned, autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.parse import parse_program
from tests.codegen.programs import assert_means

SMALL = Target("test", vector_bits=512, registers=32, cores=2, l2_bytes=64)

QUOTIENTS = """
x: f32[16, 80] = input()
h: f32[16, 40] = input()
T[i, j]: f32[16, 40] = sum(cosh(x[i, j + k]) for k in range(40))
Y[i, j]: f32[16, 40] = sum(cosh(x[i, j + k]) * x[i, j + k] for k in range(40)) / T[i, j]
B[i, j]: f32[16, 40] = h[i, j] / T[{at}]
Z[i, j]: f32[16, 40] = sum(B[k, j] * exp(x[k, i]) for k in range(16))
return {results}
"""


def quotients(at: str = "i, j", results: str = "Y, Z", target: Target = SMALL) -> Planned:
    return autoschedule(parse_program(QUOTIENTS.format(at=at, results=results)), target)


def test_the_sum_is_kept_as_one_element():
    nest = assert_means(quotients(), exact=False)
    assert nest.kernels[0].name == "T Y B"
    assert "T" not in [buffer.name for buffer in nest.workspace]


def test_what_others_need_of_the_sum_is_stored():
    assert "T" in [b.name for b in lower(quotients(at="i, 39 - j")).workspace]
    assert lower(quotients(results="T, Y, Z")).kernels[0].name == "T Y"


def test_small_sums_are_near_anyway():
    assert all("B" not in k.name.split() or "T" not in k.name.split() for k in lower(quotients(target=Target("test", cores=2))).kernels)
