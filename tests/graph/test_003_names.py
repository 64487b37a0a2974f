"""Checklist 003, names of modules, scopes and variables. The number in a test's name is its line of the list."""

import numpy as np
import pytest

import tensorexpr as te
from tests.graph.models import Linear


class MyModule(te.Module):
    pass


def test_003_01_the_default_name_is_the_class_name_in_snake_case():
    assert MyModule().name == "my_module"
    assert MyModule(name="other").name == "other"


@pytest.mark.parametrize("name", ["a/b", "$Foo", "1x", ""])
def test_003_02_a_name_that_is_no_identifier_is_a_value_error_that_quotes_it(name):
    with pytest.raises(ValueError, match="expected a name that is a Python identifier, got ") as caught:
        MyModule(name=name)
    assert repr(name) in str(caught.value)


def test_003_03_name_and_scope_of_a_module_made_inside_a_scope():
    with te.name_scope("foo"):
        bar = MyModule(name="bar")
    assert (bar.name, bar.name_scope.name) == ("bar", "foo/bar/")


def test_003_04_the_scope_is_fixed_at_construction():
    with te.name_scope("foo"):
        bar = MyModule(name="bar")
    with te.name_scope("elsewhere"), bar.name_scope as prefix:
        assert prefix == bar.name_scope.name == "foo/bar/"
    assert (bar.name, bar.name_scope.name) == ("bar", "foo/bar/")
    made = Making(name="m")
    with te.name_scope("elsewhere"):
        assert (made.inside(), made.outside()) == ("m/v", "elsewhere/v")
    assert (made.name, made.name_scope.name) == ("m", "m/")


def test_003_05_a_variable_has_the_scope_in_force_when_it_was_made():
    with te.name_scope("foo"):
        bar = MyModule(name="bar")
        with bar.name_scope:
            v = te.Variable(np.zeros(2), name="v")
    assert v.name == "foo/bar/v"
    with te.name_scope("elsewhere"):
        assert v.name == "foo/bar/v"


class Making(te.Module):
    @te.Module.with_name_scope
    def inside(self):
        return te.Variable(np.zeros(2), name="v").name

    def outside(self):
        return te.Variable(np.zeros(2), name="v").name

    @te.Module.with_name_scope
    def failing(self):
        raise ZeroDivisionError

    def nested(self):
        with self.name_scope, self.name_scope:
            first = te.Variable(np.zeros(2), name="v").name
            with self.name_scope:
                second = self.inside()
        with self.name_scope:
            return first, second, te.Variable(np.zeros(2), name="v").name


def test_003_06_only_a_marked_method_enters_the_scope():
    module = Making(name="m")
    assert (module.inside(), module.outside()) == ("m/v", "v")
    assert Making.inside.__name__ == "inside"


def test_003_07_entering_a_scope_again_gives_the_same_prefix():
    assert Making(name="m").nested() == ("m/v", "m/v", "m/v")


def test_003_08_an_exception_leaves_no_scope_open():
    class Failing(te.Module):
        def __init__(self):
            super().__init__()
            with self.name_scope:
                raise ZeroDivisionError

    for call in (Making().failing, Failing):
        with pytest.raises(ZeroDivisionError):
            call()
        assert te.Variable(np.zeros(2), name="v").name == "v"


def test_003_10_two_instances_have_the_same_name_without_numbers():
    first, second = Linear(), Linear()
    assert first.name == second.name == "linear"
    assert [v.name for v in first.variables] == [v.name for v in second.variables] == ["linear/b", "linear/w"]
