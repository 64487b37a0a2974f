"""Methods compiled apart from their modules: placeholders by path, contexts, constants, updates; and what is refused."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.graph.layers import Linear
from tensorexpr.graph.optimizers import SGD
from tests.graph.models import holding


class Net(te.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.layers = [Linear(4, 6, rng), Linear(6, 3, rng)]

    @te.function
    def __call__(self, x):
        return self.layers[1](kernels.relu(self.layers[0](x)))

    def both(self, x):
        hidden = self.layers[0](x)
        return {"hidden": hidden, "out": self.layers[1](hidden)}

    def tables(self):
        w = self.layers[0].weight.read()
        return te.compute((6,), lambda i: te.sum(lambda k: w[i, k] * w[i, k], 4))


X = np.random.default_rng(1).standard_normal((5, 4)).astype("float32")
PATHS = ["layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight"]


def test_variables_are_placeholders_by_path():
    net = Net()
    compiled = te.compile_method(net.__call__, X)
    assert np.array_equal(compiled(X), net(X))
    inputs = [symbol.path for symbol in compiled.function.placeholders if symbol.kind == "input"]
    assert inputs[0] == "x" and sorted(inputs[1:]) == PATHS
    assert sorted(compiled.variables) == PATHS and compiled.updates == ()
    # Values are those of the moment of the call.
    net.layers[1].bias.assign(np.array([10.0, 20, 30], "float32"))
    assert np.array_equal(compiled(X), net(X)) and compiled(X).mean() > 10


def test_one_compiled_method_serves_several_sets_of_weights():
    one, other = Net(), Net()
    te.load_state_dict(other, {path: -value for path, value in te.state_dict(one).items()})
    compiled = te.compile_method(one.__call__, X)
    context = te.Context(te.state_dict(other))
    (y,) = compiled.function.run(context, x=X)
    assert np.array_equal(y, other(X))
    (y,) = compiled.function.run(compiled.context(), x=X)
    assert np.array_equal(y, one(X))


def test_a_plain_method_and_results_that_nest():
    net = Net()
    compiled = te.compile_method(net.both, te.placeholder((5, 4)))
    found = compiled(X)
    assert sorted(found) == ["hidden", "out"] and found["hidden"].shape == (5, 6)
    np.testing.assert_allclose(found["hidden"], X @ net.layers[0].weight.value.T + net.layers[0].bias.value, rtol=1e-5, atol=1e-6)


def test_freezing_makes_constants_of_some_or_all():
    net = Net()
    compiled = te.compile_method(net.__call__, X)
    before = net(X)
    some = compiled.freeze(lambda path, variable: path.startswith("layers.0"))
    with pytest.raises(te.ArgumentError, match=r"expected a function of path and variable, to freeze by, got 'layers.0'"):
        compiled.freeze("layers.0")
    every = some.freeze()
    assert some.frozen == ("layers.0.bias", "layers.0.weight") and sorted(some.variables) == ["layers.1.bias", "layers.1.weight"]
    assert every.variables == {} and sorted(every.frozen) == PATHS
    np.testing.assert_allclose(some(X), before, rtol=1e-6)
    for variable in net.variables:
        variable.assign(variable.value * 2)
    np.testing.assert_allclose(every(X), before, rtol=1e-6)  # what is frozen stays
    assert not np.allclose(some(X), before) and np.array_equal(compiled(X), net(X))


def test_what_depends_on_constants_alone_is_folded():
    net = Net()
    frozen = te.compile_method(net.tables).freeze()
    expected = (net.layers[0].weight.value ** 2).sum(1)
    np.testing.assert_allclose(frozen(), expected, rtol=1e-6)
    assert "sum(" not in str(frozen.function.program)


class Training(te.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.optimizer = SGD(self.net.trainable_variables, 0.1, momentum=0.9)

    @te.function
    def step(self, x, y):
        z = self.net(x)
        loss = te.compute((), lambda: te.sum(lambda i, j: te.square(z[i, j] - y[i, j]), (5, 3)))
        self.optimizer.apply(te.gradients(loss, self.net.trainable_variables))
        return loss


def test_a_step_updates_its_variables():
    one, other = Training(), Training()
    y = np.ones((5, 3), "float32")
    compiled = te.compile_method(one.step, X, y)
    assert {"optimizer.steps", "net.layers.0.weight", "optimizer.velocity.3"} <= set(compiled.updates)
    for _ in range(3):
        np.testing.assert_allclose(compiled(X, y), other.step(X, y), rtol=1e-6)
    ours, theirs = te.state_dict(one), te.state_dict(other)
    assert all(np.allclose(ours[path], theirs[path], rtol=1e-5, atol=1e-7) for path in ours) and one.optimizer.steps.value == 3
    context = compiled.context()
    compiled.function.run(context, x=X, y=y)
    assert context["optimizer.steps"] == 4 and one.optimizer.steps.value == 3  # a context of one's own leaves the module alone
    with pytest.raises(te.ArgumentError, match=r"step: expected a method that assigns to no variable, to freeze, got one that assigns to "):
        compiled.freeze()


def test_what_is_refused():
    net = Net()
    stranger = te.Variable(np.ones(4, "float32"), name="stranger")

    class Odd(te.Module):
        def foreign(self, x):
            return stranger * x

        def printing(self, x):
            te.print("{}", x)
            return 2 * x

    for wrong in (lambda x: x, te.function(lambda x: x), holding):
        with pytest.raises(te.ArgumentError, match=r"te\.compile_method: expected a method of a module, got "):
            te.compile_method(wrong, X)
    with pytest.raises(te.ArgumentError, match="foreign: expected variables of its module, got stranger, which the module does not hold"):
        te.compile_method(Odd().foreign, X[0])
    with pytest.raises(te.ArgumentError) as caught:
        te.compile_method(Odd().printing, X[0])
    assert str(caught.value).splitlines()[0] == (
        "printing: expected a method that computes, reads and assigns, to compile it apart from its module, got one that does more"
    )
    with pytest.raises(te.ArgumentError, match=r"__call__: expected 1 arrays \(x\), got 2"):
        te.compile_method(net.__call__, X)(X, X)
