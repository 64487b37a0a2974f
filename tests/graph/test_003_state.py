"""Checklist 003, state by path, files, summary. The number in a test's name is its line of the list."""

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

import tensorexpr as te
from tensorexpr.graph.modules.tensor_files import write_tensors
from tests.graph.models import holding

ROOT = Path(__file__).resolve().parents[2]


def variable(*shape, start=0, dtype="float32", **options):
    return te.Variable(np.arange(start, start + int(np.prod(shape))).reshape(shape).astype(dtype), name="v", **options)


def layered():
    """A model of two layers with different values."""
    return holding(layers=[holding(w=variable(2, 3, start=10 * k), b=variable(3, start=5 + 10 * k)) for k in range(2)])


def values(module):
    return {path: array.copy() for path, array in te.state_dict(module).items()}


def same(a, b):
    return list(a) == list(b) and all(a[key].dtype == b[key].dtype and a[key].tobytes() == b[key].tobytes() for key in a)


def test_003_45_state_by_path():
    model = layered()
    state = te.state_dict(model)
    assert list(state) == ["layers.0.b", "layers.0.w", "layers.1.b", "layers.1.w"]
    assert np.array_equal(state["layers.1.w"], model.layers[1].w.value)
    other = layered()
    te.load_state_dict(other, {path: -array for path, array in state.items()})
    assert same(values(other), {path: -array for path, array in state.items()})


def test_003_45_strict_loading_lists_what_is_wrong_and_changes_nothing():
    model = layered()
    before, state = values(model), te.state_dict(model)
    del state["layers.0.w"]
    state |= {"layers.2.w": np.zeros(3), "layers.1.b": np.zeros(4, "float32"), "layers.1.w": np.zeros((2, 3), "float64")}
    state["layers.0.b"] = np.full(3, 7, "float32")
    with pytest.raises(te.ArgumentError) as caught:
        te.load_state_dict(model, state)
    assert str(caught.value).split("\n")[0] == (
        "empty: expected an entry that fits each of its variables, got missing: layers.0.w; unexpected: layers.2.w; "
        "of another type: layers.1.b (expected float32[3], got float32[4]), layers.1.w (expected float32[2, 3], got float64[2, 3])"
    )
    assert "strict=False keeps what is missing, and lets what is unexpected wait for variables made later" in str(caught.value)
    assert same(values(model), before)


def test_loading_without_strict_keeps_what_is_missing_and_still_refuses_wrong_shapes():
    model = layered()
    before = values(model)
    loaded = te.load_state_dict(model, {"layers.0.b": np.full(3, 7, "float32")}, strict=False)
    assert loaded.missing == ("layers.0.w", "layers.1.b", "layers.1.w") and loaded.waiting == ()
    assert same(values(model), before | {"layers.0.b": np.full(3, 7, "float32")})
    with pytest.raises(te.ArgumentError, match=r"got of another type: layers\.0\.b \(expected float32\[3\], got float32\[2\]\)"):
        te.load_state_dict(model, {"layers.0.b": np.zeros(2, "float32"), "layers.0.w": np.zeros((2, 3), "float32")}, strict=False)
    assert same(values(model), before | {"layers.0.b": np.full(3, 7, "float32")})


KINDS = {"float16": "float16", "bfloat16": ml_dtypes.bfloat16, "float32": "float32", "float64": "float64", "bool": "bool"}
KINDS |= {name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}


def every_kind(fill):
    rng = np.random.default_rng(fill)
    shapes = {"scalar": (), "empty": (3, 0), "matrix": (3, 5)}
    return holding(
        kinds={
            kind: {
                shape: te.Variable(np.asarray(100 * rng.random(extents)).astype("int64").astype(type_) * (fill > 0), dtype=kind)
                for shape, extents in shapes.items()
            }
            for kind, type_ in KINDS.items()
        }
    )


def test_003_46_files_keep_every_bit_in_a_new_process(tmp_path):
    file = tmp_path / "model.safetensors"
    model = every_kind(1)
    te.save_state(model, file, metadata={"step": "3"})
    program = (
        "import sys, tensorexpr as te\n"
        "from tests.graph.test_003_state import every_kind\n"
        "model = every_kind(0)\n"
        "print(te.load_state(model, sys.argv[1]).metadata)\n"
        "te.save_state(model, sys.argv[2], metadata={'step': '3'})"
    )
    other = tmp_path / "again.safetensors"
    ran = subprocess.run([sys.executable, "-c", program, file, other], cwd=ROOT, check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "{'step': '3'}"
    assert file.read_bytes() == other.read_bytes()
    assert all(v.value.any() for v in model.variables if v.value.size > 1)


def test_003_47_views_are_saved_right(tmp_path):
    base = np.arange(24, dtype="float32").reshape(4, 6)
    views = {"transposed": base.T, "sliced": base[::2, 1::3], "reversed": base[::-1]}
    model = holding(v={name: te.Variable(np.zeros(view.shape, "float32")) for name, view in views.items()})
    for name, view in views.items():
        model.v[name].put(view)
    te.save_state(model, tmp_path / "views.safetensors")
    with safe_open(tmp_path / "views.safetensors", framework="np") as opened:
        assert all(np.array_equal(opened.get_tensor(f"v.{name}"), view) for name, view in views.items())


def tied(again):
    shared = variable(2, 3)
    return holding(encoder=holding(w=shared), decoder=[holding(w=shared if again else variable(2, 3))], own=variable(2))


def test_003_48_a_tied_variable_is_written_once_and_tied_again(tmp_path):
    file = tmp_path / "tied.safetensors"
    model = tied(True)
    model.encoder.w.assign(np.full((2, 3), 7))
    te.save_state(model, file)
    with safe_open(file, framework="np") as opened:
        assert sorted(opened.keys()) == ["decoder.0.w", "own"]
        assert json.loads(opened.metadata()["tensorexpr.tied"]) == {"encoder.w": "decoder.0.w"}
    for again in (True, False):
        other = tied(again)
        te.load_state(other, file)
        assert other.encoder.w is other.decoder[0].w and np.array_equal(other.encoder.w.value, np.full((2, 3), 7))
        assert len(other.variables) == 2


def test_tied_again_only_where_something_can_be_set(tmp_path):
    shared = variable(3)
    te.save_state(holding(a=shared, b=(shared,)), tmp_path / "tied.safetensors")
    other = holding(a=variable(3, start=5), b=(variable(3, start=5),))
    with pytest.raises(
        te.ArgumentError, match=r"b\.0: expected an attribute, or an item of a list or dict, to tie again, got an item of a tuple"
    ):
        te.load_state(other, tmp_path / "tied.safetensors")
    assert other.a.value[0] == 5


def test_a_tie_whose_variables_are_not_there_yet_waits_by_value(tmp_path):
    shared = variable(3, start=1)
    te.save_state(holding(w=shared, inner=holding(w=shared), v=shared), tmp_path / "tied.safetensors")
    model = Lazy(Lazy())
    model.v = variable(3)
    loaded = te.load_state(model, tmp_path / "tied.safetensors", strict=False)
    assert loaded.waiting == ("w", "inner.w") and np.array_equal(model.v.value, shared.value)
    model()
    assert np.array_equal(model.w.value, shared.value) and np.array_equal(model.inner.w.value, shared.value)


def test_two_different_entries_for_one_variable_are_refused():
    model = tied(True)
    state = te.state_dict(model)
    state["encoder.w"] = state["encoder.w"] + 1
    with pytest.raises(te.ArgumentError, match=r"got different though one variable: decoder\.0\.w and encoder\.w"):
        te.load_state_dict(model, state)


@pytest.mark.parametrize("keys", [{"a.b": 0, "a": {"b": 0}}, {1: 0, "1": 0}])
def test_paths_that_are_the_same_text_are_refused(keys, tmp_path):
    made = {key: {"b": variable(2)} if isinstance(value, dict) else variable(2) for key, value in keys.items()}
    model = holding(d=made)
    path = "d.a.b" if "a" in keys else "d.1"
    method = te.function(lambda self, x: x).__get__(model)
    file = tmp_path / "none.safetensors"
    for use in (
        lambda: te.state_dict(model),
        lambda: te.load_state_dict(model, {}),
        lambda: te.save_state(model, file),
        lambda: te.compile_method(method, np.zeros(2, np.float32)),
    ):
        with pytest.raises(te.ArgumentError, match=rf"empty: expected one variable at the path {path}, got two"):
            use()
    assert not file.exists()


def test_what_is_no_module_and_no_path_is_refused():
    with pytest.raises(te.ArgumentError, match="expected a module, for its variables by path, got a list"):
        te.state_dict([variable(2)])
    model = layered()
    with pytest.raises(te.ArgumentError, match=r"te\.load_state_dict: expected values by path, got one by 5"):
        te.load_state_dict(model, te.state_dict(model) | {5: np.zeros(2)})


def test_a_deleted_variable_is_not_loaded_and_neither_is_another():
    model = holding(a=variable(2), b=variable(2))
    state = {path: value + 1 for path, value in te.state_dict(model).items()}
    before = model.a.value
    model.b.delete()
    with pytest.raises(te.ArgumentError, match="expected a variable that exists, got v, which was deleted"):
        te.load_state_dict(model, state)
    assert np.array_equal(model.a.value, before) and model.b.storage is None


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"b": ["a"]}', "[" * 100_000])
def test_a_text_of_tied_variables_that_is_none_is_refused(text, tmp_path):
    module = te.Module(name="model")
    module.a = te.Variable(np.zeros(2), name="a")
    write_tensors(tmp_path / "m.safetensors", {"a": np.ones(2)}, {"tensorexpr.tied": text})
    message = "m.safetensors: expected the paths of tied variables by path in tensorexpr.tied, got another text"
    with pytest.raises(te.ArgumentError, match=message):
        te.load_state(module, tmp_path / "m.safetensors")
    np.testing.assert_array_equal(module.a.value, np.zeros(2))


@pytest.mark.parametrize("metadata", [{"step": 3}, {3: "step"}, {"tensorexpr.tied": "{}"}])
def test_metadata_is_texts_by_name(metadata, tmp_path):
    ((key, text),) = metadata.items()
    with pytest.raises(te.ArgumentError, match=f"metadata: expected texts by name, got {text!r} for {key!r}"):
        te.save_state(layered(), tmp_path / "none.safetensors", metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_003_49_loading_keeps_identity():
    model = layered()
    before = model.variables
    te.load_state_dict(model, {path: -array for path, array in te.state_dict(model).items()})
    assert all(a is b for a, b in zip(before, model.variables, strict=True))


def test_003_50_summary_has_a_row_a_submodule_and_the_total_of_distinct_variables():
    shared = variable(4, 4)
    model = holding(first=holding(w=shared, b=variable(4, trainable=False)), second=holding(w=shared), scale=variable(2, dtype="float64"))
    table = te.summary(model)
    assert [(row.path, row.kind, row.variables, row.bytes, row.trainable) for row in table.rows] == [
        ("", "Empty", ("scale: f64[2]",), 16, 2),
        ("first", "Empty", ("b: f32[4]", "w: f32[4, 4]"), 80, 16),
        ("second", "Empty", ("w = first.w",), 0, 0),
    ]
    assert (table.variables, table.elements, table.bytes, table.trainable) == (3, 22, 96, 18)
    assert table.bytes == sum(v.value.nbytes for v in model.variables)
    assert str(table) == (
        "path    class  variables                bytes  trainable\n"
        "(self)  Empty  scale: f64[2]               16          2\n"
        "first   Empty  b: f32[4], w: f32[4, 4]     80         16\n"
        "second  Empty  w = first.w                  0          0\n"
        "3 variables, 22 elements (18 trainable), 96 bytes"
    )


class Lazy(te.Module):
    """Makes its variables in the first call."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner
        self.layers = []

    def __call__(self):
        if not hasattr(self, "w"):
            self.w = variable(3)
            self.deep = holding(pair=(variable(2),))
        if self.inner is not None:
            self.inner()

    def grow(self):
        self.layers.append(variable(2))


def test_003_53_state_waits_for_variables_made_later():
    state = {
        "w": np.full(3, 1, "f4"),
        "deep.pair.0": np.full(2, 2, "f4"),
        "inner.w": np.full(3, 3, "f4"),
        "inner.deep.pair.0": np.full(2, 4, "f4"),
    }
    model = Lazy(Lazy())
    with pytest.raises(te.ArgumentError, match=r"got unexpected: w, deep\.pair\.0, inner\.w, inner\.deep\.pair\.0"):
        te.load_state_dict(model, state)
    loaded = te.load_state_dict(model, state | {"layers.0": np.full(2, 5, "f4"), "typo.w": np.zeros(1)}, strict=False)
    assert loaded.waiting == ("w", "deep.pair.0", "layers.0", "typo.w", "inner.w", "inner.deep.pair.0")
    model()
    assert same({path: te.state_dict(model)[path] for path in state}, state)
    model.grow()
    with pytest.raises(te.ArgumentError, match=r"lazy: expected a variable for every entry, got none for typo\.w"):
        loaded.finish()
    assert np.array_equal(model.layers[0].value, [5, 5])
    assert loaded.waiting == ("typo.w",)


def test_003_53_a_waiting_entry_of_another_shape_is_refused_by_path():
    model = Lazy()
    te.load_state_dict(model, {"w": np.zeros(4, "float32")}, strict=False)
    with pytest.raises(
        te.ArgumentError,
        match=r"w: expected the variable that an entry was waiting for, got one of another type \(expected float32\[3\], got f",
    ):
        model()


def test_what_waited_and_was_given_is_forgotten():
    model = Lazy()
    loaded = te.load_state_dict(model, {"w": np.full(3, 1, "float32")}, strict=False)
    model()
    loaded.finish()
    assert loaded.waiting == () and "_waiting" not in vars(model)
    model.w = variable(3)
    assert model.w.value[0] == 0
