"""Arguments against a signature, without any code: what is taken as it is, what is copied, what is refused and how."""

from __future__ import annotations

import logging

import ml_dtypes
import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.compiled.arguments import Arguments, Parameter, Signature, address, overlap
from tensorexpr.errors import ArgumentError, DefinitionError
from tensorexpr.ir import Size, apply, const

N, K, M = Size("n"), Size("k"), Size("m")
F32 = dtypes.float32


def parameter(name, *shape, dtype=F32):
    return Parameter(name, dtype, tuple(const(e) if isinstance(e, int) else e for e in shape))


def arguments(inputs, outputs=(), sizes=(), single=True, name="f"):
    return Arguments(Signature(name, tuple(inputs), tuple(outputs), tuple(sizes), single))


MATMUL = arguments([parameter("A", N, K), parameter("B", K, M)], [parameter("C", N, M)], ("n", "k", "m"), name="matmul")
FIXED = arguments([parameter("x", 2, 3), parameter("s")], [parameter("y", 2, 3)])
X = np.zeros((2, 3), np.float32)


def refused(function, *call):
    with pytest.raises(ArgumentError) as info:
        function(*call)
    return str(info.value)


def test_the_signature_reads_as_python():
    assert str(MATMUL.signature) == "matmul(A: float32[n, k], B: float32[k, m]) -> C: float32[n, m]"
    assert str(arguments([], [parameter("y", 2)], single=False).signature) == "f() -> (y: float32[2])"


def test_sizes_and_results_follow_from_shapes_once():
    layout = MATMUL.layout(((3, 4), (4, 5)))
    assert layout.sizes == (3, 4, 5) and layout.outputs == (((3, 5), np.dtype("float32")),)
    assert MATMUL.layout(((3, 4), (4, 5))) is layout


def test_a_size_is_read_from_an_affine_extent_and_checked_everywhere():
    doubled = arguments([parameter("x", apply("mul", const(2), N)), parameter("y", apply("add", N, const(1)))], [parameter("z", N)], ("n",))
    assert doubled.layout(((6,), (4,))).outputs[0][0] == (3,)
    assert "argument y: expected extent 4 (n + 1 with n = 3 from axis 0 of x), got 5" in refused(doubled.layout, ((6,), (5,)))
    only = arguments([parameter("x", apply("mul", const(2), N))], [parameter("z", N)], ("n",))
    assert "argument x: expected a multiple of 2 (2 * n), got 5" in refused(only.layout, ((5,),))
    shrunk = arguments([parameter("x", apply("add", N, const(3)))], [parameter("z", N)], ("n",))
    odd = arguments([parameter("x", apply("add", apply("mul", const(2), N), const(1)))], [parameter("z", N)], ("n",))
    assert "expected an extent of the form 2 * n + 1, got 4" in refused(odd.layout, ((4,),))
    assert "expected an extent of at least 3 (n + 3), got 2" in refused(shrunk.layout, ((2,),))


def test_an_extent_that_no_memory_has_is_refused():
    """An array without elements may have it; machine code takes sizes for small enough that sums of positions do not wrap around."""
    empty = arguments([parameter("x", N, M)], [parameter("z", N)], ("n", "m"))
    assert empty.layout(((0, 1 << 47),)).sizes == (0, 1 << 47)
    assert "argument x: expected an extent of at most 2^47, got 140737488355329" in refused(empty.layout, ((0, (1 << 47) + 1),))


def test_two_sizes_in_one_extent_are_solved_one_after_the_other():
    joined = arguments([parameter("x", apply("add", N, M)), parameter("y", M)], [parameter("z", N)], ("n", "m"))
    assert joined.layout(((7,), (3,))).sizes == (4, 3)


def test_a_result_with_a_negative_extent_is_refused():
    valid = arguments([parameter("x", N)], [parameter("y", apply("sub", N, const(2)))], ("n",))
    assert valid.layout(((2,),)).outputs[0][0] == (0,)
    assert "expected extents of at least 0, got [-1] for the result y" in refused(valid.layout, ((1,),))


def test_a_size_that_no_input_tells_is_refused_when_the_function_is_made():
    with pytest.raises(DefinitionError, match="expected the size n to be told by an extent of an input"):
        arguments([parameter("x", apply("mul", N, M)), parameter("y", M)][:1], [parameter("z", N)], ("n", "m"))


def test_contiguous_arrays_are_taken_as_they_are_and_others_copied_with_a_note(caplog):
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    with caplog.at_level(logging.DEBUG, "tensorexpr.runtime"):
        assert FIXED.prepare([X, np.float32(1)])[0] is X
        assert not caplog.records
        for view in (wide[::2, ::2], wide[1::-1, :3], wide.T[:2, :3], np.broadcast_to(wide[0, :3], (2, 3)), wide[:2, :3].astype(">f4")):
            taken = FIXED.prepare([view, np.float32(1)])[0]
            assert taken.flags.c_contiguous and taken.dtype == np.float32 and taken.dtype.isnative
            np.testing.assert_array_equal(taken, view)
    assert len(caplog.records) == 5
    assert "f: argument x copied to contiguous memory (shape (2, 3), strides (48, 8), dtype <f4)" in caplog.text


def test_unaligned_arrays_are_copied():
    buffer = np.zeros(25, np.uint8)
    unaligned = buffer[1:].view(np.float32).reshape(2, 3)
    assert FIXED.prepare([unaligned, np.float32(1)])[0].flags.aligned


def test_read_only_arrays_and_subclasses_are_taken():
    frozen = X.copy()
    frozen.flags.writeable = False
    assert FIXED.prepare([frozen, np.float32(1)])[0] is frozen
    assert type(FIXED.prepare([X.view(np.recarray), np.float32(1)])[0]) is np.ndarray


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 2), ("float32", 2.5), ("int8", 127), ("bool", True), ("float32", np.float32(3)), ("bfloat16", ml_dtypes.bfloat16(1.5))],
)
def test_scalars_are_0d_arguments(dtype, value):
    taken = arguments([parameter("s", dtype=dtypes.dtype(dtype))]).prepare([value])[0]
    assert taken.shape == () and taken == value


@pytest.mark.parametrize(("dtype", "value"), [("int8", 128), ("uint8", -1), ("int64", 1.0), ("float32", True), ("bool", 1)])
def test_scalars_that_would_change_are_refused(dtype, value):
    text = refused(arguments([parameter("s", dtype=dtypes.dtype(dtype))]).prepare, [value])
    assert f"argument s: expected a {dtype} scalar, got {value!r}" in text


def test_the_wrong_number_of_arguments():
    assert "matmul: expected 2 arguments (A, B), got 1" in refused(MATMUL.prepare, [X])
    assert "f: expected 0 arguments (none), got 1" in refused(arguments([]).prepare, [X])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (X.astype(np.float64), "argument x: expected dtype float32, got float64"),
        (X.astype(ml_dtypes.bfloat16), "argument x: expected dtype float32, got bfloat16"),
        (X.astype(np.complex64), "argument x: expected dtype float32, got complex64"),
        (np.array([None]), "argument x: expected dtype float32, got object"),
        (X[0], "argument x: expected 2 axes, got 1 (shape [3])"),
        (np.float32(0), "argument x: expected 2 axes, got 0 (shape [])"),
        ([[1.0]], "argument x: expected a NumPy array, got a list"),
        (1.0, "argument x: expected a NumPy array, got a float"),
        (None, "argument x: expected a NumPy array, got None"),
        (np.ma.masked_array(X), "argument x: expected a NumPy array, got a masked array"),
    ],
)
def test_arguments_that_do_not_fit(value, message):
    assert message in refused(FIXED.prepare, [value, np.float32(1)])


def test_hints_say_what_to_write():
    assert "hint: nothing is cast silently: x.astype('float32')" in refused(FIXED.prepare, [X.astype(int), np.float32(1)])
    assert "hint: np.asarray(..., 'float32') makes one" in refused(FIXED.prepare, [X.tolist(), np.float32(1)])


def test_extents_that_do_not_fit():
    assert "argument x: expected extent 3, got 4\n" in refused(FIXED.layout, ((2, 4), ()))
    text = refused(MATMUL.layout, ((3, 4), (6, 5)))
    assert "argument B: expected extent 4 (k = 4 from axis 1 of A), got 6" in text and "at:   axis 0 of B" in text


# ------------------------------------------------------------------------------------------------ out


LAYOUT = FIXED.layout(((2, 3), ()))


def refused_out(out, given=()):
    return refused(FIXED.results, [out], LAYOUT, [*given, *[np.float32(1)] * (2 - len(given))])


def frozen_array():
    array = X.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (X.tolist(), "out: expected a NumPy array, got a list"),
        (X.astype(np.float64), "out: expected dtype float32, got float64"),
        (X.T.copy(), "out: expected shape [2, 3], got [3, 2]"),
        (frozen_array(), "out: expected a writeable array, got a read-only one"),
        (np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (2, 3), (0, 4)), "out: expected every element to have its own memory"),
        (
            np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 3), (4, 4)),
            "out: expected every element to have its own memory, got an array whose elements overlap",
        ),
        (np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 3), (12, 2)), "got an array whose elements overlap"),
    ],
)
def test_an_out_that_does_not_fit(out, message):
    assert message in refused_out(out)


def test_an_out_that_overlaps_an_input():
    memory = np.zeros(20, np.float32)
    x, out = memory[:6].reshape(2, 3), memory[4:10].reshape(2, 3)
    text = refused_out(out, [x])
    assert "out: expected memory of its own, got an array that overlaps argument x" in text and "hint: pass x.copy()" in text
    interleaved = memory[:12:2].reshape(2, 3), memory[1:13:2].reshape(2, 3)
    assert FIXED.results([interleaved[0]], LAYOUT, [interleaved[1], np.float32(1)])[1][0] is interleaved[0]


@pytest.mark.parametrize("strides", [(8, 28), (12, 8), (-12, 4), (20, -8)])
def test_an_out_whose_elements_lie_apart_in_any_order(strides):
    """The second has rows that are interleaved with others: no axis steps over all that the other one reaches, yet nothing is met twice."""
    memory = np.zeros(40, np.float32)
    out = np.lib.stride_tricks.as_strided(memory[10:], (2, 3), strides)
    assert FIXED.results([out], LAYOUT, [X, np.float32(1)])[1][0] is out


def test_several_outs():
    pair = arguments([], [parameter("y", 2), parameter("z", 2)], single=False)
    layout, memory = pair.layout(()), np.zeros(3, np.float32)
    assert "out: expected a tuple of 2 arrays, got 1" in refused(pair.targets, (memory[:2],))
    assert "out: expected a tuple of 2 arrays, got a ndarray" in refused(pair.targets, memory)
    text = refused(pair.results, (memory[:2], memory[1:]), layout, [])
    assert "out z: expected memory of its own, got an array that overlaps out y" in text


def test_an_out_with_strides_is_computed_beside():
    out = np.zeros((4, 3), np.float32)[::2]
    direct, returned = FIXED.results([out], LAYOUT, [X, np.float32(1)])
    assert returned[0] is out and direct[0] is not out and direct[0].flags.c_contiguous


def test_overlap_is_exact_and_gives_up_on_the_safe_side():
    memory = np.zeros(1000, np.uint8)
    assert not overlap(memory[::2], memory[1::2])
    assert overlap(memory[::2], memory[::3])


def test_the_address_is_that_of_the_first_element():
    grid = np.zeros((5, 7), np.float64)
    for view in (grid, grid[2:, 3:], grid[::-1], grid.T, np.zeros(0)):
        assert address(view) == view.ctypes.data
