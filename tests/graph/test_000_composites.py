"""Part 000 of the checklists: declaring composites, replacing them, saving them."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.inline import inline
from tensorexpr.graph.nodes.ir import Call, Compute, Native
from tensorexpr.graph.nodes.prune import prune
from tensorexpr.graph.run.composites import lower_everything
from tensorexpr.graph.run.replace import resolve

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
NAME = "org.nn.softmax"


def softmax_body(x):
    """Softmax over the last axis."""
    rows, columns = x.shape
    top = te.compute((rows,), lambda i: te.max(lambda j: x[i, j], columns))
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - top[i]))
    total = te.compute((rows,), lambda i: te.sum(lambda j: e[i, j], columns))
    return te.compute((rows, columns), lambda i, j: e[i, j] / total[i])


def softmax():
    return te.function(softmax_body, implements=NAME)


def reference(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def caller_of(function):
    return te.function(lambda x: function(x) * 2.0)


def marked(value):
    """A replacement whose results tell that it ran."""
    return lambda site: lambda x: np.full_like(x, value)


# --------------------------------------------------------------------------------------------------------- declaring


def test_000_01_an_annotated_function_gives_bit_for_bit_the_results_of_the_plain_one():
    assert np.array_equal(caller_of(softmax())(X), caller_of(te.function(softmax_body))(X))
    np.testing.assert_allclose(caller_of(softmax())(X), 2 * reference(X), rtol=1e-6)


def test_000_02_implements_is_an_argument_of_the_one_decorator():
    assert type(softmax()) is type(te.function(softmax_body))
    with pytest.raises(te.DefinitionError, match=r"te\.function: expected implements= and aliases= to be names such as org\.semantic\.op"):
        te.function(softmax_body, implements="softmax")


def test_000_03_the_call_is_one_node_whose_callee_has_the_name_and_its_body():
    graph = caller_of(softmax()).graph(X)
    (call,) = (n for n in graph.nodes if isinstance(n, Call))
    assert call.graph.composite.name == NAME
    assert sum(isinstance(n, Compute) for n in call.graph.nodes) == 4
    assert f"# implements {NAME}()" in str(graph)


def test_000_04_a_name_of_an_organisation_never_seen_is_accepted():
    f = te.function(lambda x: x + 1.0, implements="never.heard.of.it")
    assert f(X).tolist() == (X + 1).tolist()
    assert f.graph(X).composite.domain == "never.heard.of" and f.graph(X).composite.op == "it"


def test_000_05_two_functions_of_one_name_each_run_their_own_body():
    a = te.function(lambda x: x + 1.0, implements=NAME)
    b = te.function(lambda x: x * 3.0, implements=NAME)
    both = te.function(lambda x: (a(x), b(x)))
    assert [r.tolist() for r in both(X)] == [(X + 1).tolist(), (X * 3).tolist()]


def test_000_06_a_third_declaration_changes_nothing_elsewhere():
    f = caller_of(softmax())
    before = f(X)
    te.function(lambda x: x * 0.0, implements=NAME)(X)
    assert np.array_equal(f(X), before) and np.array_equal(caller_of(softmax())(X), before)


def test_000_07_the_same_program_compiles_for_cpu_and_gpu(monkeypatch):
    from tensorexpr.codegen.cuda.host import compiler  # noqa: PLC0415

    if compiler() is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    f = caller_of(softmax())
    with te.device("cuda"):
        on_gpu = f(X)
        assert type(f.compiled(X).functions[0]).__name__ == "GpuFunction"
    np.testing.assert_allclose(on_gpu, f(X), rtol=1e-6)


def test_000_08_attributes_are_read_by_name():
    f = te.function(lambda x: x, implements="org.nn.conv", attrs={"activation": "relu6", "groups": 2})
    (listed,) = te.list_composites(te.function(lambda x: f(x)).graph(X))
    assert listed.attrs == {"activation": "relu6", "groups": 2}


def test_000_09_calls_with_different_attributes_are_told_apart():
    @te.function(implements="org.nn.scale")
    def scale(x, *, by=1.0):
        return x * by

    program = te.function(lambda x: scale(x, by=2.0) + scale(x, by=3.0)).graph(X)
    assert [listed.attrs for listed in te.list_composites(program)] == [{"by": 2.0}, {"by": 3.0}]
    seen = []
    with te.register_replacement("org.nn.scale", "cpu", lambda site: seen.append(site.attrs["by"])):
        te.function(lambda x: scale(x, by=2.0) + scale(x, by=3.0))(X)
    assert seen == [2.0, 3.0]


def test_000_10_the_docstring_reaches_the_tool():
    seen = []
    with te.register_replacement(NAME, "cpu", lambda site: seen.append(site.doc)):
        caller_of(softmax())(X)
    assert seen == ["Softmax over the last axis."]


def test_000_11_an_old_name_kept_as_an_alias_finds_the_replacement():
    f = te.function(softmax_body, implements="org.nn.soft_max_v2", aliases=[NAME])
    with te.register_replacement(NAME, "cpu", marked(5.0)):
        assert (caller_of(f)(X) == 10.0).all()


# --------------------------------------------------------------------------------------------------------- replacing


def test_000_12_one_call_lists_every_composite_of_a_program():
    inner = softmax()
    outer = te.function(lambda x: inner(x) + inner(x[:0] if False else x), implements="org.nn.outer", attrs={"k": 1})
    program = te.function(lambda x: outer(x)).graph(X)
    listed = te.list_composites(program)
    assert [(one.name, one.caller) for one in listed] == [("org.nn.outer", program.name), (NAME, "<lambda>"), (NAME, "<lambda>")]
    assert str(listed[0].inputs[0].dtype) == "f32" and [e.value for e in listed[0].outputs[0].shape] == [3, 4]
    assert listed[0].attrs == {"k": 1} and listed[1].path == (program.name, "<lambda>")
    assert listed[1].location.file == __file__ and listed[1].body.composite.name == NAME


def test_000_13_a_replacement_is_used_on_its_target_only(monkeypatch):
    from tensorexpr.codegen.cuda.host import compiler  # noqa: PLC0415

    f = caller_of(softmax())
    with te.register_replacement(NAME, "cuda", marked(1.0)):
        np.testing.assert_allclose(f(X), 2 * reference(X), rtol=1e-6)
        if compiler() is None:
            pytest.skip("needs a C++ compiler")
        monkeypatch.setenv("TENSOREXPR_CUDA", "host")
        with te.device("cuda"):
            assert (f(X) == 2.0).all()


def test_000_14_without_the_replacement_the_body_is_back():
    f = caller_of(softmax())
    handle = te.register_replacement(NAME, "cpu", marked(1.0))
    assert (f(X) == 2.0).all()
    handle.remove()
    handle.remove()
    np.testing.assert_allclose(f(X), 2 * reference(X), rtol=1e-6)


def test_000_15_an_unknown_composite_runs_from_its_body_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        caller_of(softmax())(X)


def test_000_16_a_replacement_may_decline_by_attributes_shapes_and_types():
    def small_only(site):
        (given,) = site.inputs
        return (lambda x: x * 0) if given.shape[0].value == 3 and given.dtype == "float32" and not site.attrs else None

    f = caller_of(softmax())
    with te.register_replacement(NAME, "cpu", small_only):
        assert (f(X) == 0).all()
        np.testing.assert_allclose(f(X[:2]), 2 * reference(X[:2]), rtol=1e-6)
        np.testing.assert_allclose(f(X.astype(np.float64)), 2 * reference(X.astype(np.float64)), rtol=1e-12)


@pytest.mark.parametrize(
    "wrong, got",
    [(lambda x: (x, x), r"f32\[3, 4\], f32\[3, 4\]"), (lambda x: x[0], r"f32\[4\]"), (lambda x: x.astype(np.float64), r"f64\[3, 4\]")],
)
def test_000_17_results_that_differ_are_refused_when_compiled(wrong, got):
    f = caller_of(softmax())
    with (
        te.register_replacement(NAME, "cpu", lambda site: wrong),
        pytest.raises(te.ReplacementError, match=rf"org\.nn\.softmax: expected a replacement that gives f32\[3, 4\], got {got}"),
    ):
        f.compiled(X)
    traced = te.op(lambda x: te.compute((2,), lambda i: x[0, i]))
    with te.register_replacement(NAME, "cpu", lambda site: traced), pytest.raises(te.ReplacementError, match=r"got f32\[2\]"):
        f.compiled(X)
    with pytest.raises(te.ArgumentError, match=r"te\.register_replacement: expected a function of a site for org\.nn\.softmax, got none"):
        te.register_replacement(NAME, "cpu")


def test_000_18_a_checking_mode_reports_the_first_difference():
    def nearly(x):
        y = reference(x)
        y[1, 2] += 0.5
        return y

    f = caller_of(softmax())
    with te.register_replacement(NAME, "cpu", lambda site: reference, check=True):
        np.testing.assert_allclose(f(X), 2 * reference(X), rtol=1e-6)
    with (
        te.register_replacement(NAME, "cpu", lambda site: nearly, check=True),
        pytest.raises(te.ReplacementError, match=r"org\.nn\.softmax: expected output 0 at \(1, 2\) to be .* as the body gives, got"),
    ):
        f(X)


def test_000_19_rewriting_the_body_leaves_the_replacement_working():
    def other_body(x):
        e = te.compute(x.shape, lambda i, j: te.exp(x[i, j]))
        return te.compute(x.shape, lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], x.shape[1]))

    with te.register_replacement(NAME, "cpu", marked(4.0)):
        assert (caller_of(te.function(other_body, implements=NAME))(X) == 8.0).all()
        assert (caller_of(softmax())(X) == 8.0).all()


def test_000_20_a_program_saved_before_a_kernel_existed_uses_it_when_loaded_later(tmp_path):
    te.save_function(tmp_path / "f.safetensors", caller_of(softmax()), X)
    loaded = te.load_function(tmp_path / "f.safetensors")
    np.testing.assert_allclose(loaded(X), 2 * reference(X), rtol=1e-6)
    with te.register_replacement(NAME, "cpu", marked(3.0)):
        assert (loaded(X) == 6.0).all()
    np.testing.assert_allclose(loaded(X), 2 * reference(X), rtol=1e-6)


LOAD = """
import sys
import numpy as np
import tensorexpr as te
f = te.load_function(sys.argv[1])
(listed,) = te.list_composites(f.graph)
print(listed.name, listed.attrs, listed.doc, len(listed.body.nodes))
x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
y, (z,) = f(x)
print(y.tobytes().hex(), z.tolist(), f.variables["count"].value, f.strict(x)[0].tobytes().hex() != "")
"""


def test_000_21_saved_and_loaded_in_a_new_process_without_the_defining_module(tmp_path):
    count = te.Variable(np.float32(1), name="count")
    table = np.arange(4, dtype=np.float32)

    @te.function(implements=NAME, attrs={"axis": -1, "names": ("a", "b")})
    def annotated(x):
        """Softmax over the last axis."""
        return softmax_body(x)

    @te.function
    def program(x):
        count.assign_add(1.0)
        y = te.cond(te.compute((), lambda: x[0, 0] < 0), lambda: annotated(x) * table, lambda: x)
        _, z = te.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (np.int64(0), count.read()))
        return y, [z]

    path = tmp_path / "program.safetensors"
    te.save_function(path, program, X)
    done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"{NAME} {{'axis': -1, 'names': ('a', 'b')}} Softmax over the last axis. 4"
    y, (z,) = program(X)
    assert second == f"{y.tobytes().hex()} {z.tolist()} {count.value} True"


def test_saving_says_what_it_cannot_hold(tmp_path):
    path = tmp_path / "f.safetensors"
    with pytest.raises(te.ArgumentError, match=r"te\.save_function: expected text, numbers, None, tuples, lists and dicts, got <"):
        te.save_function(path, te.function(softmax_body, implements=NAME, attrs={"key": object()}), X)
    with pytest.raises(te.ArgumentError, match=r"te\.save_function: expected text"):
        te.save_function(path, te.function(lambda x: (x, te)), X)
    te.save_function(path, caller_of(softmax()), X)
    with pytest.raises(te.ArgumentError, match=r"<lambda>: expected arguments of f32\[3, 4\], got f32\[2, 4\]"):
        te.load_function(path)(X[:2])
    with pytest.raises(te.ArgumentError, match=r"te\.load_function: expected variables of , got f32\[3, 4\]"):
        te.load_function(path, [te.Variable(X)])
    from tensorexpr.graph.modules.tensor_files import write_tensors  # noqa: PLC0415

    write_tensors(path, {"a": X}, {})
    with pytest.raises(te.ArgumentError, match=r"te\.load_function: expected a file with a function, got f\.safetensors"):
        te.load_function(path)


def test_000_22_tracing_at_another_shape_keeps_name_and_attributes():
    f = te.function(softmax_body, implements=NAME, attrs={"axis": -1})
    caller = caller_of(f)
    for x in (X, X[:1], X.astype(np.float64)):
        (listed,) = te.list_composites(caller.graph(x))
        assert (listed.name, listed.attrs) == (NAME, {"axis": -1})
        assert [e.value for e in listed.outputs[0].shape] == list(x.shape)


def test_000_23_passes_keep_every_live_composite_whole_and_drop_dead_ones():
    f = softmax()
    plain = te.function(lambda x: f(x) + 1.0)

    @te.function
    def program(x):
        f(x * 3.0)
        y = plain(x)
        return y + f(te.compute(x.shape, lambda i, j: 2.0 * 0.5))

    graph = program.graph(X)
    assert len(te.list_composites(graph)) == 3
    keep = inline(prune(graph), keep=lambda call: "a composite" if call.graph.composite is not None else "")
    live = te.list_composites(prune(keep))
    assert [one.name for one in live] == [NAME, NAME]
    assert all(len(one.body.nodes) == 4 for one in live)
    taken = []
    with te.register_replacement(NAME, "cpu", lambda site: taken.append(1) or reference):
        resolved = resolve(prune(graph), "cpu")
        assert sum(isinstance(n, Native) for n in resolved.nodes) == len(taken) == 2


def test_000_24_the_outer_composite_is_offered_first():
    inner = softmax()
    outer = te.function(lambda x: inner(x) + 1.0, implements="org.nn.outer")
    caller = caller_of(outer)
    asked = []

    def decline(site):
        asked.append(site.name)

    with te.register_replacement(NAME, "cpu", decline), te.register_replacement("org.nn.outer", "cpu", decline):
        caller(X)
        assert asked == ["org.nn.outer", NAME]
        asked.clear()
        with te.register_replacement("org.nn.outer", "cpu", marked(0.5)):
            assert (caller(X) == 1.0).all()
        assert asked == []


def test_000_39_lower_everything_yields_primitive_operations_only():
    inner = softmax()
    outer = te.function(lambda x: inner(x) + 1.0, implements="org.nn.outer")
    caller = caller_of(outer)
    lowered = lower_everything(caller.graph(X))
    assert all(isinstance(n, Compute) for n in lowered.nodes) and te.list_composites(lowered) == []
    from tensorexpr.graph.run.compile import compile_graph  # noqa: PLC0415

    assert np.array_equal(compile_graph(lowered)([X])[0], caller(X))


def test_a_replacement_written_as_an_op_is_compiled_with_the_rest():
    quick = te.op(lambda x: te.compute(x.shape, lambda i, j: x[i, j] * 0.25))
    f = caller_of(softmax())
    with te.register_replacement(NAME, "cpu", lambda site: quick):
        step = f.compiled(X)
        assert len(step.functions) == 1 and step.kernels == 1
        assert np.array_equal(f(X), X * np.float32(0.5))
