"""Sums over neighbors one way and the other as one (`autodiff.sweep.neighbors`): the same gradient, each costly value once."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.ir import Apply, Define, Reduce
from tensorexpr.traversal import walk

RNG = np.random.default_rng(20261122)


def smooth(x, low, high, outside, weight):
    """A mean of neighbors from -low to high, weighted by how alike they are."""
    axes = len(x.shape)

    def near(at, to):
        return x.read(*(i + d - low for i, d in zip(at, to, strict=True)), outside=outside)

    def total(*at):
        return te.sum(lambda *to: weight(near(at, to) - x[at]) * near(at, to), (low + high + 1,) * axes)

    return te.compute(x.shape, *((lambda i: total(i),) if axes == 1 else (lambda i, j: total(i, j),)), name="y")


def sums_of(gradient):
    """The sums of the last definition, each with the exponentials in it."""
    definition = gradient.reverse.workspace.definitions[-1]
    assert isinstance(definition, Define)
    sums = [node for node in walk(definition.value) if isinstance(node, Reduce)]
    return [{node for node in walk(one) if isinstance(node, Apply) and node.op.name == "exp"} for one in sums]


def gradient_of(shape, low, high, outside, weight, lowering=None):
    x, head = te.placeholder(shape, "float64", name="x"), te.placeholder(shape, "float64", name="head")
    (found,) = gradient = te.gradient(smooth(x, low, high, outside, weight), x, head, lowering=lowering)
    return gradient, te.build(found, [x, head])


EVEN = {
    "gauss": lambda d: te.exp(-0.5 * d * d),
    "even factors": lambda d: te.exp(-d * d) * (1.0 + d * d),
}


WINDOWS = [((11,), weight, outside) for weight in EVEN for outside in ("clamp", 0.5, "reflect")]
WINDOWS += [((7, 6), "gauss", "clamp"), ((7, 6), "even factors", "reflect"), ((7, 6), "gauss", 0.5)]


@pytest.mark.parametrize("shape, weight, outside", WINDOWS)
def test_a_symmetric_window_has_one_sum_and_the_gradient_of_the_scatter_form(shape, weight, outside):
    gradient, f = gradient_of(shape, 2, 2, outside, EVEN[weight])
    _, scattered = gradient_of(shape, 2, 2, outside, EVEN[weight], lowering="atomics")
    x, head = RNG.standard_normal((2, *shape))
    np.testing.assert_allclose(f(x, head), scattered(x, head), rtol=1e-11, atol=1e-12)
    if outside == "clamp":
        # The same pairs: under the condition alone the subscripts are written in two ways.
        assert len(sums_of(gradient)) == 1, "borders are definitions of their own"


@pytest.mark.parametrize("outside", ["clamp", 0.5])
def test_a_window_to_one_side_keeps_two_sums(outside):
    gradient, f = gradient_of((12,), 1, 3, outside, EVEN["gauss"])
    _, scattered = gradient_of((12,), 1, 3, outside, EVEN["gauss"], lowering="atomics")
    x, head = RNG.standard_normal((2, 12))
    np.testing.assert_allclose(f(x, head), scattered(x, head), rtol=1e-11, atol=1e-12)
    assert len(sums_of(gradient)) > 1


def test_what_is_not_the_same_for_both_points_stays_apart():
    gradient, f = gradient_of((12,), 2, 2, "clamp", te.exp)
    _, scattered = gradient_of((12,), 2, 2, "clamp", te.exp, lowering="atomics")
    x, head = RNG.standard_normal((2, 12))
    np.testing.assert_allclose(f(x, head), scattered(x, head), rtol=1e-11, atol=1e-12)
    assert len(sums_of(gradient)) > 1


def test_the_joint_sum_as_text():
    x, head = te.placeholder((10,), name="x"), te.placeholder((10,), name="head")
    gradient = te.gradient(smooth(x, 1, 1, "clamp", EVEN["gauss"]), x, head)
    assert """
        + where(
            i + i0 >= 1 and i + i0 < 11,
            exp((x[i + i0 - 1] - x[i]) * -0.5 * (x[i + i0 - 1] - x[i]))
            * (head[i + i0 - 1] + head[i + i0 - 1] * x[i] * (x[i + i0 - 1] - x[i])),
            0.0
        )
        for i0 in range(3)
    )
""" in str(gradient)
