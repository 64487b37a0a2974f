"""`as_torch` in torch's graphs: opcheck, torch.compile, torch.export, traces. Skipped by name where PyTorch is not installed."""

from __future__ import annotations

import functools
import io
import re

import pytest

import tensorexpr as te
from tests.peers.torch_cases import CASES, as_torch, mixed, moments, torch

assert_close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


@pytest.mark.parametrize("name", CASES)
def test_opcheck_of_the_operator_and_of_its_gradient(name):
    case = CASES[name]
    function = functools.partial(as_torch(case.op), **dict(case.static))
    tensors = case.tensors(requires_grad=True)
    overload = as_torch(case.op).overload(*tensors, **dict(case.static))
    assert torch.library.opcheck(*overload) == dict.fromkeys(
        ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"), "SUCCESS"
    )
    results = function(*tensors)
    heads = [torch.ones_like(r) for r in (results if isinstance(results, tuple) else (results,)) if r.is_floating_point()]
    wanted = tuple(tensor.is_floating_point() for tensor in tensors)
    given = tuple(r.is_floating_point() for r in (results if isinstance(results, tuple) else (results,)))
    operator = as_torch(case.op).operator(*tensors, **dict(case.static)).vjp(wanted, given)
    torch.library.opcheck(*operator.overload((*tensors, *heads)))


def test_opcheck_with_other_strides():
    x, w = CASES["mixed"].tensors()
    strided = w.t().contiguous().t()
    assert not strided.is_contiguous()
    torch.library.opcheck(*as_torch(mixed).overload(x, strided))


def test_operators_have_names_and_schemas():
    @te.op
    def plus(a, b):
        return te.compute(a.shape, lambda i: a[i] + b[i]), te.compute(a.shape, lambda i: a[i] - b[i])

    x = torch.ones(3)
    overload, arguments = as_torch(plus).overload(x, x)
    assert str(overload._schema) == "tensorexpr::plus(Tensor[] tensors, str definition) -> Tensor[]"
    assert overload is torch.ops.tensorexpr.plus.default
    again = as_torch(te.op(plus.__wrapped__)).overload(x, x)
    assert again[0] is overload and again[1][1] == arguments[1]


@pytest.mark.parametrize("name", ["lambda", "name", "called", "_"])
def test_names_that_a_graph_or_the_namespace_has_itself(name):
    """A graph is written as Python: `torch.ops.tensorexpr.lambda` ended torch.export in a SyntaxError."""
    function = as_torch(te.op(lambda x: te.compute(x.shape, lambda i: x[i] * 2.0)) if name == "lambda" else te.op(_called(name)))

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.ones(3)
    torch.testing.assert_close(torch.export.export(Model(), (x,)).module()(x), 2 * x)
    assert torch.ops.tensorexpr.name == "tensorexpr"


def _called(name):
    def double(x):
        return te.compute(x.shape, lambda i: x[i] * 2.0)

    double.__name__ = name
    return double


def test_definitions_that_are_none_are_refused():
    x, w = CASES["mixed"].tensors()
    overload, (tensors, text) = as_torch(mixed).overload(x, w)
    none = "torch.ops.tensorexpr: expected the definition of an operator, got "
    changed = "mixed: expected the operation that the graph was made with, got one that has changed since"
    unknown = "expected the operation that a graph names, {0} in the module tests.peers.torch_cases, got none of that name"
    foreign = "mixed: static argument factor: expected a number, a text or a tuple of them in a graph from elsewhere, got a numpy.ndarray"
    for old, new, message in (
        (text, "no json", none),
        (text, "[]", none),
        (text, "[" * 100_000, none),
        ('"derived":[]', '"derived":[["__class__"]]', none),
        ('"derived":[]', '"derived":[["vjp",[1],[1]]]', none),
        ('"program":"', '"program":"0', changed),
        ('"name":"mixed"', '"name":"nowhere"', unknown.format("nowhere")),
        ('"name":"mixed"', '"name":"pytest.raises"', unknown.format("pytest.raises")),
        ('"static":{"factor":{"float":"0x1.0000000000000p+0"}}', '"static":{"factor":{"type":"numpy.ndarray"}}', foreign),
        ('"float64",[4]', '"float64",[4.5]', changed),
    ):
        assert old in text
        with pytest.raises(te.DefinitionError, match=re.escape(message)):
            overload(tensors, text.replace(old, new))


@pytest.mark.parametrize("name", CASES)
def test_compile_with_gradient(name):
    case = CASES[name]
    function = functools.partial(as_torch(case.op), **dict(case.static))

    def step(run, *tensors):
        results = run(*tensors)
        results = results if isinstance(results, tuple) else (results,)
        return sum((2 * r.sin()).sum() for r in results if r.is_floating_point())

    found = []
    for run in (compiled(functools.partial(step, function)), functools.partial(step, functools.partial(case.theirs, **dict(case.static)))):
        tensors = case.tensors(requires_grad=True)
        value = run(*tensors)
        value.backward()
        found.append([value.detach(), *(t.grad for t in tensors if t.is_floating_point())])
    assert_close(*found)


def test_compile_of_a_method_of_a_module_by_inductor():
    layer = as_torch(mixed)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3, 4, dtype=torch.float64))

        def forward(self, x):
            return layer(x, self.w, factor=0.5) + 1

    x = CASES["mixed"].tensors()[0]
    module = Layer()
    torch._dynamo.reset()
    assert_close(torch.compile(module, fullgraph=True)(x), module(x))


def test_compile_at_many_sizes_is_one_graph_and_one_kernel():
    @te.op
    def total(x, y):
        return te.compute((x.shape[0],), lambda i: te.sum(lambda j: te.cos(x[i, j]) * y[j], x.shape[1]))

    function = as_torch(total)
    graphs = []

    def backend(graph, example):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    run = torch.compile(lambda x, y: function(x, y) + 1, fullgraph=True, backend=backend, dynamic=True)
    for n, m in ((5, 7), (6, 7), (9, 4)):
        x, y = torch.randn(n, m), torch.randn(m)
        torch.testing.assert_close(run(x, y), x.cos() @ y + 1)
    assert len(graphs) == 1
    assert len(function.operator(x, y).functions) == 1


def test_graphs_with_open_extents_after_a_gradient_that_reads_a_part():
    @te.op
    def scaled(x, w):
        return te.compute(x.shape, lambda i: x[i] * w[i])

    function, x, w = as_torch(scaled), torch.rand(5, requires_grad=True), torch.rand(5)

    def gradient(x, w):
        return torch.autograd.grad(function(x, w).sum(), x)[0]

    assert_close(gradient(x, w), w)
    assert function.operator(x, w).spares
    graph = torch.fx.experimental.proxy_tensor.make_fx(gradient, tracing_mode="symbolic")(x, w)
    other = torch.rand(7)
    assert_close(graph(torch.rand(7, requires_grad=True), other), other)


def test_compile_with_numbers_that_change():
    function = as_torch(te.op(lambda x, s: te.compute(x.shape, lambda i: x[i] * s[()])))
    compiled = torch.compile(lambda x, s: function(x, s), backend="eager", fullgraph=True)
    for number in (2.5, 3.5, 4, 5):  # each second one of a type is a symbol
        found = compiled(torch.ones(2), number)
        assert found.tolist() == [number] * 2 and found.dtype == function(torch.ones(2), number).dtype


def test_static_arguments_that_change_are_fixed_in_the_graph():
    @te.op
    def affine(x, *, by=1, ends=(0, 0)):
        return te.compute(x.shape, lambda i: x[i] * by + ends[1])

    function = as_torch(affine)
    run = compiled(lambda x, k: function(x, by=k, ends=(k, k + 1)))
    for k in (1, 2, 3, 0.5, 1.5):  # each second one of a type is a symbol
        assert_close(run(torch.ones(2), k), torch.full((2,), 2.0 * k + 1))


def test_operations_without_a_tensor_are_nodes_too():
    steps = as_torch(te.op(lambda: te.compute((3,), lambda i: i * 2)))
    x = torch.ones(3, dtype=torch.int64)
    assert compiled(lambda x: steps() + x)(x).tolist() == [1, 3, 5]
    assert torch.fx.experimental.proxy_tensor.make_fx(lambda x: steps() + x)(x)(x).tolist() == [1, 3, 5]


def test_transforms_inside_of_compile():
    x, w = CASES["mixed"].tensors()
    function, other = as_torch(mixed), CASES["mixed"].theirs
    xs = torch.stack([x, 2 * x])

    def transformed(f):
        return lambda xs, w: torch.func.vmap(torch.func.grad(lambda x, w: f(x, w).sin().sum()), in_dims=(0, None))(xs, w)

    assert_close(compiled(transformed(function))(xs, w), transformed(other)(xs, w))


def test_export_with_open_extents_runs_at_other_sizes():
    @te.op
    def scores(x, w):
        return te.compute((x.shape[0], w.shape[0]), lambda b, i: te.sum(lambda k: x[b, k] * w[i, k], x.shape[1]))

    function = as_torch(scores)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(3, 4))

        def forward(self, x):
            return function(x, self.w).relu()

    model = Model()
    program = torch.export.export(model, (torch.randn(5, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    (node,) = [n for n in program.graph.nodes if n.op == "call_function" and n.target is torch.ops.tensorexpr.scores.default]
    assert isinstance(node.meta["val"][0].shape[0], torch.SymInt)
    saved = io.BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    loaded = torch.export.load(saved).module()
    for batch in (2, 3, 8):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(loaded(x), (x @ model.w.t()).relu())
    assert len(function.operator(x, model.w).functions) == 1


def test_export_where_two_open_extents_are_one():
    x, w = CASES["mixed"].tensors()
    function = as_torch(mixed)

    class Model(torch.nn.Module):
        def forward(self, x, w):
            return function(x, w)

    inner = torch.export.Dim("inner")
    exported = torch.export.export(Model(), (x, w), dynamic_shapes=({0: inner}, {1: inner})).module()
    x, w = torch.randn(7, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    assert_close(exported(x, w), CASES["mixed"].theirs(x, w))


def test_an_op_that_needs_numbers_fixes_them_in_the_graph():
    @te.op
    def halves(x):
        half = int(x.shape[0]) // 2
        return te.compute((half,), lambda i: x[i] + x[i + half])

    function = as_torch(halves)
    run = compiled(function, dynamic=True)
    for n in (4, 8):
        x = torch.arange(float(n))
        assert_close(run(x), x[: n // 2] + x[n // 2 :])


def test_traces_and_the_profiler_see_the_operator():
    x, w = CASES["mixed"].tensors()
    function = as_torch(mixed)
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x, w: function(x, w) * 2)(x, w)
    assert torch.ops.tensorexpr.mixed.default in {node.target for node in traced.graph.nodes}
    assert_close(traced(2 * x, w), function(2 * x, w) * 2)
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.trace(lambda x, w: function(x, w) * 2, (x, w))
    assert "tensorexpr::mixed" in str(scripted.graph)
    with torch.profiler.profile() as profile:
        function(x, w)
    assert "tensorexpr::mixed" in {event.name for event in profile.events()}


def test_operations_are_counted_exactly():
    """By torch's counter: those of a product and of its gradient as torch counts its own."""

    @te.op
    def product(a, b):
        return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], a.shape[1]))

    function = as_torch(product)
    a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5), (5, 7)))
    totals = []
    for run in (function, torch.matmul):
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            run(a, b).sum().backward()
        totals.append(counter.get_total_flops())
    assert totals == [3 * 2 * 3 * 5 * 7] * 2


def test_shapes_without_data():
    with torch._subclasses.FakeTensorMode():
        mean, spread, winner = as_torch(moments)(torch.empty(6, dtype=torch.float32))
    assert (mean.shape, spread.dtype, winner.dtype) == ((), torch.float32, torch.int64)
    x, w = (tensor.to("meta") for tensor in CASES["mixed"].tensors())
    result = as_torch(mixed)(x, w)
    assert result.is_meta and result.shape == (3,)
