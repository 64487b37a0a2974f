"""Checklist 003, modules and traced functions. The number in a test's name is its line of the list."""

import gc
import weakref

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.graph.layers import LayerNorm, Linear
from tensorexpr.graph.optimizers import SGD
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


class Scaling(te.Module):
    @te.Module.with_name_scope
    @te.function
    def outer(self, x):
        return te.compute(x.shape, lambda i: x[i] * 2, name="twice")

    @te.function
    @te.Module.with_name_scope
    def inner(self, x):
        return te.compute(x.shape, lambda i: x[i] * 2, name="twice")


@pytest.mark.parametrize("method", ["outer", "inner"])
def test_003_09_a_method_both_traced_and_scoped_is_a_traced_function(method):
    module = Scaling(name="scaling")
    traced = getattr(module, method)
    x = np.arange(3.0)
    assert np.array_equal(traced(x), [0, 2, 4]) and np.array_equal(traced.strict(x), [0, 2, 4])
    assert type(traced) is type(te.function(lambda x: x)) and traced.__name__ == method
    assert "twice[i]: f64[3] = x0[i] * 2.0  # scaling/" in str(traced.graph(x))
    assert traced.compiled(x).kernels == 1


def test_003_10_operations_of_one_trace_have_unique_names():
    graph = Mean(Deep()).gradients.graph(np.zeros((5, 4), "float32"))
    ids = [node.id for node in graph.nodes]
    assert len(ids) == len(set(ids)) and len({name for node in graph.nodes for name in node.names}) == sum(
        len(node.names) for node in graph.nodes
    )


def test_003_11_operations_carry_the_scope_of_the_module_that_made_them():
    with te.name_scope("net"):
        model = Deep(2)
    text = str(model.__call__.graph(np.zeros((5, 4), "float32")))
    assert "# net/deep/linear/" in text and "# net/deep/layer_norm/" in text
    unmarked = [line for line in text.splitlines() if line.strip().startswith("gelu")]
    assert len(unmarked) == 2 and not any("#" in line for line in unmarked)


def test_003_23_inside_a_traced_function_the_walk_is_paid_at_tracing_only():
    walks = []

    class Counted(te.Module):
        def __init__(self):
            super().__init__()
            self.w = te.Variable(np.ones(3))

        @property
        def variables(self):
            walks.append(None)
            return super().variables

        @te.function
        def total(self, x):
            (w,) = (v.read() for v in self.variables)
            return te.compute((), lambda: te.sum(lambda i: w[i] * x[i], 3))

    model = Counted()
    for k in range(5):
        assert model.total(np.full(3, float(k))) == 3 * k
    assert len(walks) == 1


def test_003_37_a_variable_made_in_the_first_call_is_made_once_also_when_traced():
    class Lazy(te.Module):
        w = None

        @te.function
        def __call__(self, x):
            if self.w is None:
                self.w = te.Variable(np.full(3, 2.0), name="w")
            return self.w * x

        def eagerly(self, x):
            return self.__call__(x)

    model = Lazy()
    assert np.array_equal(model(np.arange(3.0)), [0, 2, 4])
    (first,) = model.variables
    assert np.array_equal(model(np.arange(3.0) + 1), [2, 4, 6])
    model(np.ones((2, 3)))  # traced again, for another shape
    assert model.variables == (first,)


def test_003_49_compiled_functions_see_loaded_values_without_compiling_again():
    model = Deep(1)
    x = rng().standard_normal((5, 4)).astype("float32")
    before = model(x)
    step = model.__call__.compiled(x)
    state = {path: 2 * value for path, value in te.state_dict(model).items()}
    te.load_state_dict(model, state)
    assert model.__call__.compiled(x) is step
    after = model(x)
    assert not np.allclose(before, after)
    other = Deep(1)
    te.load_state_dict(other, state)
    assert np.array_equal(other(x), after)


def test_003_53_state_waits_for_a_variable_that_is_made_while_tracing():
    class Lazy(te.Module):
        w = None

        @te.function
        def __call__(self, x):
            if self.w is None:
                self.w = te.Variable(np.zeros(3), name="w")
            return self.w * x

    model = Lazy()
    loaded = te.load_state_dict(model, {"w": np.full(3, 5.0)}, strict=False)
    assert np.array_equal(model(np.ones(3)), [5, 5, 5])
    loaded.finish()


def test_an_instance_does_not_live_longer_for_its_traced_methods():
    model = Deep(1)
    model(np.zeros((2, 4), "float32"))
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_a_step_that_fails_leaves_every_variable_as_it_was():
    table = te.Variable(np.ones((4, 2), "float32"))
    model = holding(table=table, optimizer=SGD([table], 0.1, momentum=0.9))

    @te.function
    def step(rows):
        y = kernels.embedding(rows, table)
        loss = te.compute((), lambda: te.sum(lambda i, j: y[i, j] * y[i, j], (3, 2)))
        model.optimizer.apply(te.gradients(loss, [table]))
        return loss

    step(np.array([0, 1, 1]))
    before = te.state_dict(model)
    with pytest.raises(IndexError, match="expected an index of variable0 from 0 to 3, got 4"):
        step(np.array([0, 1, 4]))
    after = te.state_dict(model)
    assert all(np.array_equal(before[path], after[path]) for path in before)
