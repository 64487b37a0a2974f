"""Compiled functions: results and their form, `out`, strides, zero extents, sizes, errors of a running kernel, a look inside."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr.codegen.compile import executable_of
from tensorexpr.verify import verify

RNG = np.random.default_rng(2)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def matmul_graph(n=4, k=5, m=6):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k), name="C"), [a, b]


MATMUL = te.build(*matmul_graph())
OPEN = te.build(*matmul_graph(te.dim("n"), te.dim("k"), te.dim("m")))


def refused(error, function, *arguments, **keywords):
    with pytest.raises(error) as info:
        function(*arguments, **keywords)
    assert "test_function.py:" in str(info.value)
    return str(info.value)


def test_one_tensor_gives_an_array_and_a_list_a_tuple():
    c, inputs = matmul_graph()
    a, b = floats(4, 5), floats(5, 6)
    assert type(te.build(c, inputs)(a, b)) is np.ndarray
    (only,) = te.build([c], inputs)(a, b)
    np.testing.assert_allclose(only, a @ b, rtol=1e-5)
    double = te.compute(c.shape, lambda i, j: 2 * c[i, j], name="D")
    first, second = te.build((c, double), inputs)(a, b)
    np.testing.assert_allclose(second, 2 * first)


def test_out_matches_the_form_of_the_result():
    a, b, out = floats(4, 5), floats(5, 6), np.empty((4, 6), np.float32)
    assert MATMUL(a, b, out=out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    c, inputs = matmul_graph()
    assert te.build([c], inputs)(a, b, out=(out,))[0] is out
    wide = np.zeros((8, 12), np.float32)
    view = wide[::2, 1::2]
    assert MATMUL(a, b, out=view) is view
    np.testing.assert_allclose(wide[::2, 1::2], a @ b, rtol=1e-5)
    assert not wide[1::2].any() and not wide[:, ::2].any()
    swapped = np.empty((4, 6), ">f4")
    MATMUL(a, b, out=swapped)
    np.testing.assert_allclose(swapped, a @ b, rtol=1e-5)
    assert "out: expected memory of its own, got an array that overlaps argument A" in refused(
        te.ArgumentError, te.build(*matmul_graph(4, 4, 4)), square := floats(4, 4), floats(4, 4), out=square
    )


@pytest.mark.parametrize(
    "view",
    [lambda x: x[::-1], lambda x: x.T.copy().T, lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x.astype(">f4"), np.asfortranarray],
)
def test_any_strides(view):
    a, b = floats(4, 5), floats(5, 6)
    np.testing.assert_allclose(MATMUL(view(a), view(b)), view(a) @ view(b), rtol=1e-5, atol=1e-6)


def test_read_only_inputs_and_scalars():
    x, s = te.placeholder((3,), name="x"), te.placeholder((), "float64", name="s")
    scaled = te.build(te.compute((3,), lambda i: te.cast(s[()], "float32") * x[i]), [x, s])
    values = floats(3)
    values.flags.writeable = False
    for s in (2, 2.0, np.float64(2), np.array(2.0)):
        np.testing.assert_array_equal(scaled(values, s), 2 * values)


def test_0d_results_are_0d_arrays():
    x = te.placeholder((3,), name="x")
    total = te.build(te.compute((), lambda: te.sum(lambda i: x[i], 3)), [x])(np.ones(3, np.float32))
    assert type(total) is np.ndarray and total.shape == () and total == 3


@pytest.mark.parametrize("shape", [(0, 5, 6), (4, 0, 6), (4, 5, 0), (0, 0, 0)])
def test_zero_extents(shape):
    n, k, m = shape
    for function in (te.build(*matmul_graph(n, k, m)), OPEN):
        result = function(np.ones((n, k), np.float32), np.ones((k, m), np.float32))
        assert result.shape == (n, m) and not result.any()


def test_open_sizes_are_compiled_once():
    for n, k, m in ((1, 1, 1), (3, 2, 7), (17, 33, 65)):
        a, b = floats(n, k), floats(k, m)
        np.testing.assert_allclose(OPEN(a, b), a @ b, rtol=1e-4, atol=1e-5)
    assert OPEN.signature.sizes == ("n", "k", "m")
    text = refused(te.ArgumentError, OPEN, floats(2, 3), floats(4, 5))
    assert "argument B: expected extent 3 (k = 3 from axis 1 of A), got 4" in text


def test_wrong_arguments():
    a, b = floats(4, 5), floats(5, 6)
    assert "C: expected 2 arguments (A, B), got 1" in refused(te.ArgumentError, MATMUL, a)
    assert "argument B: expected extent 5, got 7" in refused(te.ArgumentError, MATMUL, a, floats(7, 6))
    assert "argument B: expected 2 axes, got 1 (shape [5])" in refused(te.ArgumentError, MATMUL, a, floats(5))
    assert "argument A: expected dtype float32, got float64" in refused(te.ArgumentError, MATMUL, a.astype(float), b)
    assert "argument A: expected a NumPy array, got a list" in refused(te.ArgumentError, MATMUL, a.tolist(), b)
    assert "in:   C(A: float32[4, 5], B: float32[5, 6]) -> C: float32[4, 6]" in refused(te.ArgumentError, MATMUL)


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "uint64", "float16", "bfloat16", "float32", "float64"])
def test_every_kind_of_element(name):
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    x = te.placeholder((2, 3), name, name="x")
    flip = te.build(te.compute((3, 2), lambda i, j: x[j, i]), [x])
    values = np.arange(6).reshape(2, 3).astype(dtype)
    result = flip(values)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(np.float64), values.T.astype(np.float64))


def test_inputs_that_are_returned_and_constants():
    x = te.placeholder((3,), name="x")
    table = te.constant(np.arange(3, dtype=np.float32), name="table")
    same, known, again = te.build([x, table, x], [x])(np.ones(3, np.float32))
    np.testing.assert_array_equal(same, again)
    np.testing.assert_array_equal(known, [0, 1, 2])


# ------------------------------------------------------------------------------------------------ data-dependent indices


def gather(n="float32"):
    table, ids = te.placeholder((te.dim("n"), 2), name="table"), te.placeholder((3,), "int64", name="ids")
    return te.build(te.compute((3, 2), lambda i, j: table[ids[i], j], name="rows"), [table, ids])


def test_an_index_outside_names_operation_access_index_and_extent():
    function = gather()
    table = floats(4, 2)
    np.testing.assert_array_equal(function(table, np.array([3, 0, 3])), table[[3, 0, 3]])
    for bad in (4, -1, 2**62, -(2**63)):
        text = refused(IndexError, function, table, np.array([0, bad, 1]))
        assert f"rows: expected an index of table from 0 to 3, got {bad}" in text
        assert "table[ids[i], j]" in text and "test_function.py:" in text and "at:   axis 0 of table" in text
    text = refused(te.ArgumentError, function, np.empty((0, 2), np.float32), np.array([0, 0, 0]))
    assert "rows: expected no access to table, which has no elements, got index 0" in text
    np.testing.assert_array_equal(function(table, np.array([3, 0, 3])), table[[3, 0, 3]])


def test_the_line_is_the_users_own_even_where_code_is_shared():
    table, ids = te.placeholder((4,), name="table"), te.placeholder((3,), "int64", name="ids")
    first = te.compute((3,), lambda i: table[ids[i]], name="y")
    second = te.compute((3,), lambda i: table[ids[i]], name="y")
    texts = [refused(IndexError, te.build(y, [table, ids]), floats(4), np.array([0, 9, 0])) for y in (first, second)]
    lines = [next(line for line in text.splitlines() if "test_function.py" in line) for text in texts]
    assert lines[0] != lines[1]


# ------------------------------------------------------------------------------------------------ building


def test_targets():
    c, inputs = matmul_graph()
    text = refused(te.TargetError, te.build, c, inputs, target="cuda")
    assert "expected a target that this machine has, got 'cuda': " in text
    assert "expected a target, one of cpu, cuda, got 'gpu'" in refused(te.TargetError, te.build, c, inputs, target="gpu")


def test_outputs_and_inputs_that_do_not_fit():
    c, inputs = matmul_graph()
    for outputs, given, message in (
        (None, inputs, "te.build: expected a te tensor or a list of them, got None"),
        ([1.0], inputs, "te.build: expected a te tensor or a list of them, got the float 1.0 in it"),
        ([], inputs, "te.build: expected at least one tensor to compute, got none"),
        (c, inputs[0], "te.build: expected a list of te tensors as inputs, got the tensor A"),
        (c, [*inputs, inputs[0]], "te.build: expected every input once, got A twice"),
    ):
        assert message in refused(te.DefinitionError, te.build, outputs, given)
    for outputs, given in ((c, {inputs[0]: 1}), ({"c": c}, inputs)):
        text = refused(te.DefinitionError, te.build, outputs, given)
        assert "hint: a list: arrays are given when the function is called, and results come as a tuple" in text
    assert "hint: a list of one: [A]" in refused(te.DefinitionError, te.build, c, inputs[0])
    refused(te.DefinitionError, te.build, c, inputs[:1])


def test_a_size_must_be_told_by_an_input():
    n = te.dim("n")
    x = te.placeholder((3,), name="x")
    text = refused(te.DefinitionError, te.build, te.compute((n,), lambda i: x[0] * i), [x])
    assert "expected the size n to be told by an extent of an input" in text


def test_stages():
    assert "for" in MATMUL.source("nest") and "define" in MATMUL.source("llvm") and "ret" in MATMUL.source("asm")
    assert MATMUL.source() == MATMUL.source("llvm") and str(MATMUL.nest) == MATMUL.source("nest")
    assert "sum(" in str(MATMUL.program) and str(MATMUL.schedule)
    assert repr(MATMUL) == "<compiled C(A: float32[4, 5], B: float32[5, 6]) -> C: float32[4, 6]>" and MATMUL.name == "C"
    assert "expected a stage of the cpu, one of nest, llvm, asm, got 'ptx'" in refused(te.TargetError, MATMUL.source, "ptx")
    assert "expected a stage, one of nest, llvm, asm, got 'wasm'" in refused(te.TargetError, MATMUL.source, "wasm")


def test_cost_counts_operations_and_bytes():
    assert MATMUL.cost == (2 * 4 * 5 * 6, 4 * (4 * 5 + 5 * 6 + 4 * 6))
    assert MATMUL.cost.operations == 240
    assert OPEN.cost.operations(n=4, k=5, m=6) == 240 and OPEN.cost.bytes(n=4, k=5, m=6) == 296
    assert repr(OPEN.cost.operations) == "<operations of n, k, m: call it with these sizes>"
    x = te.placeholder((10,), name="x")
    triangle = te.build(te.compute((10,), lambda i: te.sum(lambda k: x[k] * 2, i + 1)), [x])
    assert triangle.cost.operations == 2 * 10  # a running table, and not 55 sums and products
    first = te.build(te.compute((3,), lambda i: te.where(i > 0, x[i - 1] + 1, 0.0)), [x])
    assert first.cost == (2, 4 * (2 + 3))
    shifted = te.build(te.compute((3, 10), lambda i, j: x[j] - te.max(lambda k: x[k], 10)), [x])
    assert shifted.cost.operations == 30 + 10
    table, ids = te.placeholder((1000, 2), name="table"), te.placeholder((3,), "int64", name="ids")
    assert te.build(te.compute((3, 2), lambda i, j: table[ids[i], j]), [table, ids]).cost.bytes == 4 * 6 + 8 * 3 + 4 * 6


def test_equal_programs_share_their_code():
    one, two = te.build(*matmul_graph(7, 8, 9)), te.build(*matmul_graph(7, 8, 9))
    assert one is not two and one._executable is two._executable
    schedule = one.schedule
    assert te.build(schedule).__call__ and te.build(schedule)._executable is te.build(schedule)._executable
    assert executable_of(te.build(*matmul_graph(7, 8, 10)).program).executable is not one._executable


def test_a_schedule_can_be_built():
    c, inputs = matmul_graph()
    a, b = floats(4, 5), floats(5, 6)
    for make in (te.schedule, te.autoschedule):
        np.testing.assert_allclose(te.build(make(c, "cpu"))(a, b), a @ b, rtol=1e-5)
        swapped = te.build(make(c), inputs[::-1])
        assert str(swapped.signature) == "C(B: float32[5, 6], A: float32[4, 5]) -> C: float32[4, 6]"
        np.testing.assert_allclose(swapped(b, a), a @ b, rtol=1e-5)
    text = refused(te.DefinitionError, te.build, te.schedule(c), inputs[:1])
    assert "te.build: expected the inputs of the schedule (A, B), got A" in text
    assert "te.build: expected a schedule for 'cuda', got one for 'cpu'" in refused(te.TargetError, te.build, te.schedule(c), target="cuda")


def test_a_function_holds_no_tensor():
    c, inputs = matmul_graph(3, 3, 3)
    references = [weakref.ref(t) for t in (c, *inputs)]
    function = te.build(c, inputs)
    del c, inputs
    gc.collect()
    assert [r() for r in references] == [None] * 3
    assert function(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)).trace() == 3


def test_workspace_is_not_shared_between_calls():
    x = te.placeholder((te.dim("n"),), name="x")
    n = x.shape[0]
    running = te.scan(lambda t, s: te.compute((n,), lambda i: s[i] + x[i]), te.compute((n,), lambda i: x[i] * 0), 3)
    function = te.build(te.compute((n,), lambda i: running[2, i]), [x])
    for size in (5, 1000, 2, 0):
        values = floats(size)
        np.testing.assert_allclose(function(values), 3 * values, rtol=1e-5)


def test_a_tensor_finds_its_own_loops_whatever_its_name():
    x = te.placeholder((4, 4), name="x")
    first, second = (te.compute((4, 4), lambda i, j, c=c: x[i, j] ** c, name="y") for c in (3.0, 5.0))
    unnamed = te.compute((4, 4), lambda i, j: first[i, j] + te.exp(second[j, i]))
    s = te.schedule(unnamed)
    assert [s[t].name for t in (first, second, unnamed)] == list(s.stages) == ["y", "y_1", "t0"]
    s.copy()[second].split("i", 2)
    assert te.autoschedule(unnamed)[unnamed].name == "t0"
    assert "expected a definition of the program, got 'x'" in refused(te.ScheduleError, s.__getitem__, x)


def test_a_schedule_returns_what_its_tensors_would():
    c, inputs = matmul_graph()
    arrays = [np.ones(t.shape, "f4") for t in inputs]
    for make in (te.schedule, te.autoschedule):
        assert isinstance(te.build(make(c), inputs)(*arrays), np.ndarray)
        (only,) = te.build(make([c]), inputs)(*arrays)
        np.testing.assert_array_equal(only, te.build(make(c).copy(), inputs)(*arrays))


def test_an_entry_runs_on_memory_that_the_caller_holds():
    x, ids = te.placeholder((4,), name="x"), te.placeholder((te.dim("n"),), "int64", name="ids")
    function = te.build(te.compute((te.dim("n"),), lambda i: x[ids[i]] * 2, name="y"), [ids, x])
    given, places, out = np.arange(4, dtype=np.float32), np.array([3, 0, 2]), np.empty(3, np.float32)
    layout = function.layout((places.shape, given.shape))
    assert layout.outputs == (((3,), np.dtype(np.float32)),)
    for run in (function.entry(layout), lambda i, o: function.enter(i, o, layout)):
        out[:] = 0
        run([places.ctypes.data, given.ctypes.data], [out.ctypes.data])
        assert out.tolist() == [6, 0, 4]
        places[1] = 7
        with pytest.raises(te.OutOfBoundsError, match="y: expected an index of x from 0 to 3, got 7"):
            run([places.ctypes.data, given.ctypes.data], [out.ctypes.data])
        places[1] = 0


def test_an_unsigned_index_is_told_as_it_is(tmp_path):
    x, ids = te.placeholder((4,), name="x"), te.placeholder((3,), "uint64", name="ids")
    function = te.build(te.compute((3,), lambda i: x[ids[i]] * 2, name="y"), [ids, x])
    arrays = np.array([3, 2**64 - 1, 2], np.uint64), np.arange(4, dtype=np.float32)
    with pytest.raises(te.OutOfBoundsError, match=f"y: expected an index of x from 0 to 3, got {2**64 - 1}"):
        function(*arrays)
    bundle = tensorexpr_runtime.load(te.export(tmp_path / "bundle", f=te.compile(function.program)))
    with pytest.raises(tensorexpr_runtime.OutOfBoundsError, match=f"from 0 to 3, got {2**64 - 1}"):
        bundle.f(*arrays)


def test_a_size_that_only_the_shape_of_a_result_has_is_one_of_the_program():
    """A scatter visits no axis of its result: nothing but the shape says how long that is."""
    n, m = te.dim("n"), te.dim("m")
    x, place = te.placeholder((n,), name="x"), te.placeholder((n,), "int64", name="place")
    y = te.scatter((m,), lambda i: ((place[i],), x[i]), (n,), combine="max", name="y")
    assert set(te.program_of([y]).sizes) == {"n", "m"}
    verify(te.program_of([y]))
    with pytest.raises(te.DefinitionError, match="expected the size m to be told by an extent of an input, got no input with that extent"):
        te.build(y)
    arrays = np.ones(3, np.float32), np.array([1, 0, 1]), np.zeros(4, np.float32)
    found = te.build(y, [x, place, te.placeholder((m,), name="like")])(*arrays)
    np.testing.assert_array_equal(found, te.evaluate(y, {x: arrays[0], place: arrays[1]}, sizes={"m": 4}))
    again = te.placeholder((n,), name="again")
    first = te.gradient(y, [x], head=te.placeholder((m,), name="h"))[0]
    verify(te.program_of(list(te.gradient(first, [x], head=again))))


@pytest.mark.parametrize("divisor", [np.inf, -np.inf, np.nan, 2.5])
def test_numbers_that_no_integer_divides_by_are_no_rows(divisor: float) -> None:
    """Remainders and quotients of floats, of data and of an index, at a divisor that is no integer."""
    x = te.placeholder((8,), name="x")
    whole = te.compute((8,), lambda i: x[i] % divisor + te.cast(i, "float32") // divisor, name="whole")
    some = te.compute((), lambda: te.sum(lambda i: x[i], 8, where=lambda i: te.cast(i, "float64") % divisor > 1), name="some")
    values = np.array([np.inf, -np.inf, np.nan, 3e9, -3e9, 0, 2.75, -2.75], np.float32)
    for got, expected in zip(te.build([whole, some], [x])(values), te.evaluate([whole, some], {x: values}), strict=True):
        np.testing.assert_array_equal(got, expected)
