"""Checklist 003, finding variables and modules. The number in a test's name is its line of the list."""

import collections
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tests.graph.models import Empty, Linear, holding

ROOT = Path(__file__).resolve().parents[2]


def variable(name="v", **options):
    return te.Variable(np.zeros(2, "float32"), name=name, **options)


def names(variables):
    return [v.name for v in variables]


def is_module(value):
    return isinstance(value, te.Module)


def test_003_12_own_attributes_in_order_of_their_names_then_those_of_submodules():
    dense = Linear()
    assert dense.variables == (dense.b, dense.w)
    model = holding(z=variable("z"), inner=dense, a=variable("a"))
    assert model.variables == (model.a, model.z, dense.b, dense.w)


def test_003_13_the_result_is_immutable_and_in_the_same_order_in_every_process():
    dense = Linear()
    assert isinstance(dense.variables, tuple) and len(dense.variables) == 2 and dense.b in dense.variables
    program = (
        "from tests.graph.models import Linear, holding\n"
        "m = holding(**{k: Linear(name=k) for k in 'qwertyuiop'}, d={k: Linear(name=k) for k in 'asdf'})\n"
        "print([v.name for v in m.variables], [s.name for s in m.submodules])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("0", "2")
    }
    assert len(texts) == 1 and "asdf"[0] in texts.pop()


def test_003_14_variables_in_nested_containers_are_found():
    Pair = collections.namedtuple("Pair", "left right")
    v = [variable(f"v{k}") for k in range(6)]
    model = holding(a=[v[0], (v[1],)], b=Pair(left=v[2], right={"x": v[3]}), c={"y": [{"z": (v[4],)}]}, d=v[5])
    assert model.variables == tuple(v)


def test_003_15_modules_in_a_list_are_found():
    model = holding(kernels=[holding(w=variable()) for _ in range(10)])
    assert (len(model.submodules), len(model.variables)) == (10, 10)


def test_003_16_other_attributes_are_not_looked_into():
    class Opaque:
        def __init__(self):
            self.hidden = variable()

        def __iter__(self):
            raise AssertionError("walked into")

    model = holding(opaque=Opaque(), text="abc", function=lambda: variable(), shown=variable(), group={variable("in a set")})
    assert model.variables == (model.shown,)


def test_003_17_a_variable_reached_twice_is_listed_once():
    shared, equal = variable(), variable()
    model = holding(a=shared, b=[shared, equal], c=holding(again=shared))
    assert len(model.variables) == 2 and model.variables[0] is shared and model.variables[1] is equal


def test_003_18_the_walk_is_made_anew_at_every_call():
    model = holding(a=variable("a"))
    assert names(model.variables) == ["a"]
    model.b = variable("b")
    assert names(model.variables) == ["a", "b"]
    model.a = variable("new")
    assert names(model.variables) == ["new", "b"]
    del model.b
    assert names(model.variables) == ["new"]


def test_003_19_trainable_variables_and_the_bit_that_does_not_change():
    model = holding(a=variable("a", trainable=False), b=variable("b"))
    assert names(model.trainable_variables) == ["b"] and len(model.variables) == 2
    with pytest.raises(AttributeError):
        model.a.trainable = True
    assert model.a.trainable is False


class Frozen(Linear):
    @property
    def trainable_variables(self):
        return ()


def test_003_20_an_override_of_trainable_variables_is_the_modules_own_answer():
    frozen = Frozen()
    assert frozen.trainable_variables == ()
    assert holding(inner=frozen).trainable_variables == (frozen.b, frozen.w)
    assert "a parent asks the variables, not the submodules" in sys.modules[te.Module.__module__].__doc__.replace("\n", " ")


def test_003_21_properties_are_not_evaluated_by_the_walk():
    class Raising(Linear):
        @property
        def fragile(self):
            raise AssertionError("evaluated")

    assert len(Raising().variables) == 2


def test_003_22_a_hundred_linear_layers_within_five_milliseconds():
    model = holding(layers=[Linear() for _ in range(100)])
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        found = model.variables
        best = min(best, time.perf_counter() - start)
    assert len(found) == 200
    assert best <= 5e-3


def test_003_24_submodules_without_the_module_itself():
    c = Empty()
    b = holding(c=c)
    a = holding(b=b)
    assert (a.submodules, b.submodules, c.submodules) == ((b, c), (c,), ())


def test_003_25_children_come_before_grandchildren():
    leaf, other = Empty(), Empty()
    first, second = holding(leaf=leaf), holding(leaf=other)
    assert holding(a=first, b=second).submodules == (first, second, leaf, other)


def test_003_26_a_module_has_no_pointer_to_its_parent():
    shared = Linear()
    before = dict(vars(shared))
    one, two = holding(inner=shared), holding(inner=[shared])
    assert vars(shared) == before
    assert one.variables == two.variables == shared.variables


def test_003_27_a_module_that_holds_itself():
    a = holding(v=variable())
    a.a = a
    assert (a.variables, a.submodules) == ((a.v,), ())
    nested = []
    nested.append(nested)
    a.nested = nested
    assert a.variables == (a.v,)


def test_003_28_what_a_module_itself_owns():
    model = holding(v=[variable("v")], inner=Linear())
    assert names(model.flatten(recursive=False, predicate=lambda value: isinstance(value, te.Variable))) == ["v"]
    assert list(model.flatten(recursive=False, predicate=is_module)) == [model.inner]


def test_003_29_flatten_takes_any_predicate():
    class Table:
        pass

    class Tracking(te.Module):
        @property
        def tables(self):
            return tuple(self.flatten(predicate=lambda value: isinstance(value, Table)))

    model = Tracking()
    model.one, model.rest, model.inner = Table(), {"two": Table()}, holding(three=Table())
    assert model.tables == (model.one, model.rest["two"], model.inner.three)


def test_003_30_paths_are_tuples_of_names_positions_and_keys():
    Pair = collections.namedtuple("Pair", "left right")
    model = holding(layers=[holding(w=variable())], d={"k": variable()}, pair=Pair(variable(), variable()))
    found = dict(model.flatten(predicate=lambda value: isinstance(value, te.Variable), with_path=True))
    assert list(found) == [("d", "k"), ("pair", "left"), ("pair", "right"), ("layers", 0, "w")]
    assert found[("layers", 0, "w")] is model.layers[0].w


def test_003_31_paths_are_not_merged():
    shared = holding(w=variable())
    model = holding(encoder=shared, decoder=shared)
    found = list(model.flatten(predicate=lambda value: isinstance(value, te.Variable), with_path=True))
    assert found == [(("decoder", "w"), shared.w), (("encoder", "w"), shared.w)]


def test_003_32_selecting_by_an_element_of_the_path():
    model = holding(model=holding(encoder=[holding(w=variable("e"))], decoder=holding(w=variable("d"))), encoder=variable("top"))
    found = model.flatten(predicate=lambda value: isinstance(value, te.Variable), with_path=True)
    assert [v.name for path, v in found if "encoder" in path] == ["top", "e"]


def test_003_33_paths_of_a_cycle_are_an_error_that_names_it():
    a, b = te.Module(name="a"), te.Module(name="b")
    a.b, b.items = b, [0, a]
    with pytest.raises(
        te.DefinitionError, match=r"a: expected modules that do not hold themselves, to give every path, got b\.items\.1, which is a again"
    ):
        list(a.flatten(with_path=True))


def test_003_34_the_traversal_key_changes_the_order():
    model = holding(a=variable("a"), b=variable("b"), c=variable("c"))
    found = model.flatten(predicate=lambda value: isinstance(value, te.Variable), attribute_traversal_key=lambda name: -ord(name))
    assert names(found) == ["c", "b", "a"]


def test_deeply_nested_modules_have_no_limit():
    model = bottom = Empty()
    for _ in range(3000):
        model = holding(inner=model)
    assert len(model.submodules) == 3000 and model.submodules[-1] is bottom
