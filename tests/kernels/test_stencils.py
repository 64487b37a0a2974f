"""Stencils: what they refuse, conservation, sizes known only at run time."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((4, 5), name="x")
V = te.placeholder((3,), name="v")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernels.laplacian(X, mode="mirror"),
            "laplacian: mode: expected one of 'constant', 'edge', 'reflect', 'symmetric', 'wrap', got 'mirror'",
        ),
        (
            lambda: kernels.laplacian(X, spacing=(1.0,)),
            "laplacian: spacing: expected a number above 0, or 2 of them, one per axis, got (1.0,)",
        ),
        (lambda: kernels.laplacian(X, spacing=0.0), "laplacian: spacing: expected a number above 0, or 2 of them, one per axis, got 0.0"),
        (
            lambda: kernels.spatial_gradient(te.placeholder((4, 1), name="x"), mode="one-sided"),
            "spatial_gradient: expected at least 2 elements along axis 1, got 1",
        ),
        (lambda: kernels.divergence((X,)), "divergence: expected 2 fields of 2 axes, one per axis, got 1"),
        (lambda: kernels.heat_step(X, V), "heat_step: rate: expected a tensor without axes, or one of the 2 axes of x, got 1"),
        (lambda: kernels.wave_step(X, X, V), "wave_step: courant: expected a tensor without axes, or one of the 2 axes of x, got 1"),
        (lambda: kernels.heat_steps(X, X, steps=0), "heat_steps: steps: expected an integer of at least 1, got 0"),
        (lambda: kernels.stencil(X, V, axes=(0, 1)), "stencil: expected 2 axes of weights, of known extents, got v: f32[3]"),
        (lambda: kernels.sobel(X, axis=0, axes=(1,)), "sobel: expected an axis among (1,), got 0"),
        (lambda: kernels.box_blur(X, size=2), "box_blur: size: expected an odd number, got 2"),
        (lambda: kernels.gaussian_blur(X, sigma=1, size=4), "gaussian_blur: size: expected an odd number, got 4"),
        (lambda: kernels.gaussian_blur(X, sigma=0), "gaussian_blur: sigma: expected a number above 0, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


def test_heat_is_conserved_without_flux_over_the_border():
    u = np.random.default_rng(0).standard_normal((6, 7))
    later = kernels.heat_steps(u, np.array(0.2), steps=100)
    np.testing.assert_allclose(later.sum(), u.sum(), rtol=1e-12)
    assert later.std() < 0.2 * u.std()


def test_the_divergence_is_minus_the_transpose_of_the_gradient_on_a_periodic_grid():
    rng = np.random.default_rng(1)
    u, a, b = (rng.standard_normal((4, 5)) for _ in range(3))
    slopes = kernels.spatial_gradient(u, mode="wrap")
    np.testing.assert_allclose(np.vdot(slopes[0], a) + np.vdot(slopes[1], b), -np.vdot(u, kernels.divergence((a, b), mode="wrap")))


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap"])
def test_sizes_of_run_time(mode):
    n, m = te.dim("n"), te.dim("m")
    u = te.placeholder((n, m), "float64", name="u")
    y = kernels.laplacian(u, mode=mode)
    head = te.placeholder((n, m), "float64", name="head")
    gradient = te.gradient(y, [u], head)
    assert {row.lowering for row in gradient.report().rows}.isdisjoint({"segments", "atomics"})
    both = te.build([y, gradient[0]], [u, head])
    rng = np.random.default_rng(2)
    for shape in ((3, 4), (5, 2), (1, 1)):
        array, other = rng.standard_normal(shape), rng.standard_normal(shape)
        value, bar = both(array, other)
        np.testing.assert_allclose(value, kernels.laplacian(array, mode=mode), rtol=1e-12, atol=1e-14)
        # The operator is symmetric in all of these modes.
        np.testing.assert_allclose(bar, kernels.laplacian(other, mode=mode), rtol=1e-12, atol=1e-14)
