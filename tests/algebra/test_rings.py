"""Sums that go around a ring read it laid out in a row; the values are the same, bit for bit."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_rows
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify


def _around(length: int, taps: int, count: int = 6, dtype: str = "float32", sign: int = -1) -> Program:
    a, b = te.placeholder((count, taps), dtype, name="a"), te.placeholder((count, length), dtype, name="b")
    y = te.compute((count, length), lambda n, i: te.sum(lambda k: a[n, k] * b.read(n, i + sign * k, outside="wrap"), taps), name="y")
    return simplify(program_of([y], [a, b]))


def _values(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = {
        i.name: rng.integers(-99, 99, [int(n.value) for n in program.types[i.name].shape]).astype(np.float64) / 7 for i in program.inputs
    }  # type: ignore[attr-defined]
    return evaluate_program(program, {n: v.astype(program.types[n].dtype.numpy) for n, v in inputs.items()})


def test_a_circular_sum_reads_a_row() -> None:
    text = print_program(with_rows(_around(101, 101)))
    assert "b_row[b_row_0, b_row_1]: f32[6, 201] = b[b_row_0, (b_row_1 + 1) % 101]" in text
    assert "sum(a[n, k] * b_row[n, i - k + 100] for k in range(101))" in text


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(("length", "taps", "sign"), [(16, 16, -1), (17, 33, -1), (31, 12, 1), (40, 64, 1), (40, 40, 3)])
def test_values_are_the_same_bit_for_bit(length: int, taps: int, sign: int, dtype: str) -> None:
    program = _around(length, taps, dtype=dtype, sign=sign)
    rowed = with_rows(program)
    assert rowed is not program and "%" not in print_program(rowed).split("y[")[1]
    verify(rowed)
    for name, value in _values(program).items():
        np.testing.assert_array_equal(_values(rowed)[name], value)
    assert with_rows(rowed) is rowed


def test_rings_of_two_axes() -> None:
    x, w = te.placeholder((12, 15), name="x"), te.placeholder((12, 15), name="w")
    y = te.compute((12, 15), lambda i, j: te.sum(lambda p, q: w[p, q] * x.read(i - p, j + q, outside="wrap"), (12, 15)), name="y")
    program = simplify(program_of([y], [w, x]))
    rowed = with_rows(program)
    assert print_program(rowed).count("_row") and "%" not in print_program(rowed).split("y[")[1]
    np.testing.assert_array_equal(_values(rowed)["y"], _values(program)["y"])


@pytest.mark.parametrize(("length", "taps"), [(101, 5), (1000, 100)])
def test_windows_at_a_border_stay(length: int, taps: int) -> None:
    program = _around(length, taps)
    assert with_rows(program) is program


@pytest.mark.parametrize(("count", "length"), [(3, 37), (70, 64), (40, 101)])
def test_circular_correlations_and_their_gradients(count: int, length: int) -> None:
    @te.op
    def circular(a, b):  # type: ignore[no-untyped-def]
        return te.compute(a.shape, lambda n, i: te.sum(lambda k: a[n, k] * b.read(n, i - k, outside="wrap"), length))

    rng = np.random.default_rng(length)
    a, b, head = (rng.standard_normal((count, length)).astype(np.float32) for _ in range(3))
    fa, fb, fh = (np.fft.rfft(x.astype(np.float64)) for x in (a, b, head))
    expected = np.fft.irfft(fa * fb, length), np.fft.irfft(fh * fb.conj(), length), np.fft.irfft(fh * fa.conj(), length)
    for found, value in zip((circular(a, b), *te.vjp(circular)(a, b, head)), expected, strict=True):
        assert np.abs(found - value).max() < 1e-5 * np.abs(value).max()
