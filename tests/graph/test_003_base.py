"""Checklist 003, what the base class must not do. The number in a test's name is its line of the list."""

import abc
import inspect

import numpy as np
import pytest

import tensorexpr as te
from tests.graph.models import Linear, holding


def test_003_35_a_module_without_call():
    module = te.Module()
    assert not callable(module)
    assert not hasattr(module, "build") and not hasattr(module, "built")


def test_003_36_several_forward_methods():
    class Coder(te.Module):
        def __init__(self):
            super().__init__()
            self.w = te.Variable(np.array([2.0, 4.0]))

        def encode(self, x):
            return x * self.w.value

        def decode(self, y):
            return y / self.w.value

    coder = Coder()
    assert np.array_equal(coder.decode(coder.encode(np.array([1.0, 3.0]))), [1.0, 3.0])


def test_003_38_arguments_are_passed_as_they_are():
    class Keeping(te.Module):
        @te.Module.with_name_scope
        def __call__(self, *arguments, **keywords):
            return arguments, keywords

    given = (1, "text", [2.0], None, object())
    arguments, keywords = Keeping()(*given, option=given)
    assert all(a is b for a, b in zip(arguments, given, strict=True)) and keywords["option"] is given


def test_003_39_reuse_is_by_object():
    first, second = Linear(), Linear()
    second.w = first.w
    assert holding(a=first, b=second).variables == (first.b, first.w, second.b)
    assert not hasattr(te, "get_variable") and not hasattr(te, "variable_scope")


def test_003_40_submodules_that_are_handed_in():
    class Model(te.Module):
        def __init__(self, encoder):
            super().__init__()
            self.encoder = encoder

    dense = Linear(name="dense")
    model = Model(encoder=dense)
    assert dense.name == "dense" and dense.w.name == "dense/w"
    assert list(te.state_dict(model)) == ["encoder.b", "encoder.w"]


def test_003_41_a_metric_lists_its_own_state():
    class Mean(te.Module):
        def __init__(self):
            super().__init__()
            self.total = te.Variable(0.0, trainable=False)
            self.count = te.Variable(np.int64(0), trainable=False)

        def update(self, value):
            self.total.assign_add(value)
            self.count.assign_add(1)

    mean = Mean()
    mean.update(3.0)
    mean.update(5.0)
    assert mean.variables == (mean.count, mean.total) and mean.trainable_variables == ()
    assert mean.total.value / mean.count.value == 4.0


def test_003_42_the_public_surface_and_size_of_the_base_class():
    public = {name for name in vars(te.Module) if not name.startswith("_")}
    assert public == {"name", "name_scope", "variables", "trainable_variables", "submodules", "with_name_scope", "flatten"}
    assert len(inspect.getsource(inspect.getmodule(te.Module)).splitlines()) <= 250
    assert type(te.Module) is type


def test_003_43_an_abstract_base_class_over_module():
    class Layer(te.Module, abc.ABC):
        @abc.abstractmethod
        def __call__(self, x): ...

    class Identity(Layer):
        def __call__(self, x):
            return x

    with pytest.raises(TypeError, match="abstract"):
        Layer()
    assert Identity()(3) == 3 and Identity().name == "identity"


class Forgetful(te.Module):
    def __init__(self):
        self.w = te.Variable(np.zeros(2))

    @te.Module.with_name_scope
    def __call__(self):
        return self.w


@pytest.mark.parametrize(
    "use", [lambda m: m.name, lambda m: m.variables, lambda m: m(), lambda m: holding(m=m).variables, lambda m: te.summary(m)]
)
def test_003_44_forgetting_super_init_is_an_error_at_first_use(use):
    module = Forgetful()
    with pytest.raises(
        te.DefinitionError,
        match=r"Forgetful: expected a module that was initialized, got one whose __init__ did not call super\(\).__init__\(\)",
    ):
        use(module)
