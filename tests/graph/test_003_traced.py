"""Checklist 003, modules and traced functions. The number in a test's name is its line of the list."""

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.graph.layers import LayerNorm, Linear
from tests.graph.models import holding


def rng():
    return np.random.default_rng(0)


class Deep(te.Module):
    """Layers of one kind after each other, so that every op occurs more than once."""

    def __init__(self, depth=3):
        super().__init__()
        with self.name_scope:
            self.layers = [Linear(4, 4, rng()) for _ in range(depth)]
            self.norms = [LayerNorm(4) for _ in range(depth)]

    @te.function
    def __call__(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = kernels.gelu(norm(layer(x)))
        return x


class Mean(te.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    @te.function
    def gradients(self, x):
        y = self.model(x)
        loss = te.compute((), lambda: te.sum(lambda i, j: te.square(y[i, j]) * (i + j), (5, 4)))
        return loss, te.gradients(loss, self.model.trainable_variables)


def test_gradients_through_a_call_whose_ops_occur_more_than_once():
    trained = Mean(Deep())
    x = rng().standard_normal((5, 4)).astype("float32")
    loss, gradients = trained.gradients(x)
    again, strict = trained.gradients.strict(x)
    np.testing.assert_allclose(loss, again, rtol=1e-5)
    for a, b in zip(gradients, strict, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_003_52_gradients_come_in_the_order_of_trainable_variables():
    model = holding(
        a=te.Variable(np.ones(2)), b=te.Variable(np.ones(3)), frozen=te.Variable(np.ones(4), trainable=False), c=te.Variable(2.0)
    )

    @te.function
    def gradients():
        a, c = model.a.read(), model.c.read()
        loss = te.compute((), lambda: te.sum(lambda i: a[i] * (i + 1), 2) + te.cast(c[()], "float64") * 5)
        return te.gradients(loss, model.trainable_variables)

    a, b, c = gradients()
    assert np.array_equal(a, [1, 2]) and np.array_equal(b, np.zeros(3)) and c == 5
    assert (a.dtype, b.dtype, c.dtype) == ("float64", "float64", "float32")


def test_003_51_freezing_for_one_gradient_by_path():
    model = holding(encoder=Linear(3, 3, rng()), decoder=Linear(3, 3, rng()))

    def chosen(part):
        paths = model.flatten(predicate=lambda value: isinstance(value, te.Variable), with_path=True)
        return [variable for path, variable in paths if part in path]

    @te.function
    def gradients(x):
        y = model.decoder(model.encoder(x))
        loss = te.compute((), lambda: te.sum(lambda i, j: y[i, j] * y[i, j], (2, 3)))
        return te.gradients(loss, chosen("decoder")), te.gradients(loss, [*chosen("encoder"), *chosen("decoder")])

    x = rng().standard_normal((2, 3)).astype("float32")
    some, every = gradients(x)
    assert [g.shape for g in some] == [(3,), (3, 3)] and len(every) == 4
    assert all(np.array_equal(a, b) for a, b in zip(some, every[2:], strict=True))
    assert all(v.trainable for v in model.variables)
