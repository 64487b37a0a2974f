"""Reads beyond the border against `numpy.pad`, at any distance and for every extent."""

import numpy as np
import pytest

from tensorexpr import language as te
from tests.language.messages import refused
from tests.language.test_bounds import proved

MODES = {"clamp": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("symbolic", (False, True))
def test_modes_are_numpys(mode, symbolic):
    for extent in range(1, 6):
        data = np.arange(1, extent + 1, dtype=np.float32)
        for distance in (0, 1, extent - 1, extent, 2 * extent + 1):
            t = te.placeholder((te.dim("n") if symbolic else extent,), name="t")
            padded = te.compute((t.shape[0] + 2 * distance,), lambda i, t=t, d=distance: t.read(i - d, outside=mode))
            if not symbolic:
                assert proved(padded)
            np.testing.assert_array_equal(
                te.evaluate(padded, {t: data}), np.pad(data, distance, MODES[mode]), err_msg=f"{extent} {distance}"
            )


def test_values_and_several_axes():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = te.placeholder((2, 3), name="t")
    padded = te.compute((4, 7), lambda i, j: t.read(i - 1, j - 2, outside=-np.inf))
    np.testing.assert_array_equal(te.evaluate(padded, {t: data}), np.pad(data, ((1, 1), (2, 2)), constant_values=-np.inf))
    reflected = te.compute((4, 7), lambda i, j: t.read((i - 1, j - 2), outside="reflect"))
    np.testing.assert_array_equal(te.evaluate(reflected, {t: data}), np.pad(data, ((1, 1), (2, 2)), "reflect"))


def test_only_conditions_that_are_needed():
    t = te.placeholder((10,), name="t")
    assert repr(te.compute(10, lambda i: t.read(i, outside=0.0), name="y")) == "y[i]: f32[10] = t[i]"
    assert repr(te.compute(10, lambda i: t.read(i + 1, outside=0.0), name="y")) == "y[i]: f32[10] = where(i + 1 < 10, t[i + 1], 0.0)"
    assert repr(te.compute(10, lambda i: t.read(i - 1, outside=0), name="y")) == "y[i]: f32[10] = where(i - 1 >= 0, t[i - 1], 0.0)"
    assert repr(te.compute(10, lambda i: t.read(i - 1, outside="clamp"), name="y")) == "y[i]: f32[10] = t[maximum(i - 1, 0)]"
    assert repr(te.compute(10, lambda i: t.read(i - 1, outside="reflect"), name="y")) == "y[i]: f32[10] = t[abs(i - 1)]"
    assert repr(te.compute(10, lambda i: t.read(i, outside="wrap"), name="y")) == "y[i]: f32[10] = t[i]"
    blurred = te.compute(10, lambda i: te.sum(lambda k: t.read(i + k - 1, outside=0.0), 3), name="y")
    assert repr(blurred) == "y[i]: f32[10] = sum(where(i + k - 1 >= 0 and i + k - 1 < 10, t[i + k - 1], 0.0) for k in range(3))"


def test_the_value_outside():
    ints = te.placeholder((4,), "int8", name="ints")
    ids = te.placeholder((3,), "int32", name="ids")
    assert te.compute(4, lambda i: ints.read(i - 1, outside=-1)).dtype.name == "int8"
    found = te.evaluate(
        te.compute(3, lambda t: ints.read(ids[t], outside=9)), {ints: np.arange(4, dtype=np.int8), ids: np.array([-1, 2, 4], np.int32)}
    )
    assert found.tolist() == [9, 2, 9]
    computed = te.compute(4, lambda i: ints.read(i - 1, outside=ints[3]))
    assert te.evaluate(computed, {ints: np.arange(4, dtype=np.int8)}).tolist() == [3, 0, 1, 2]
    text = refused(lambda: te.compute(4, lambda i: ints.read(i - 1, outside=0.5)))
    assert "ints.read: expected outside to be of the tensor's dtype int8, got 0.5" in text
    text = refused(lambda: te.compute(4, lambda i: ints.read(i - 1, outside="mirror")))
    assert "ints.read: expected outside to be a value or one of 'clamp', 'reflect', 'symmetric', 'wrap', got 'mirror'" in text
    assert "ints: expected 1 index, one per axis, got 2" in refused(lambda: te.compute(4, lambda i: ints.read(i, i, outside=0)))
