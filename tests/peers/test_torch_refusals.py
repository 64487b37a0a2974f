"""What torch has and ops do not take is refused by name; modules are traced with their parameters. Skipped by name without PyTorch."""

from __future__ import annotations

import io

import pytest

import tensorexpr as te

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.interop.torch import as_torch  # noqa: E402


@te.op
def scaled(x, w):
    return te.compute(x.shape, lambda i, j: te.sin(x[i, j]) * w[j])


function = as_torch(scaled)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(3.0))
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return function(self.linear(x), self.w)


def test_a_module_with_parameters_is_traced_with_its_gradient():
    model, x, y = Model(), torch.randn(2, 3), torch.randn(5, 3)
    with pytest.warns(DeprecationWarning):
        traced = torch.jit.trace(model, (x,))  # which traces twice and compares
    assert "tensorexpr::scaled" in str(traced.graph)
    saved = io.BytesIO()
    torch.jit.save(traced, saved)
    saved.seek(0)
    wanted = torch.autograd.grad(model(y).sum(), list(model.parameters()))
    for run in (traced, torch.jit.load(saved)):
        assert torch.equal(run(y), model(y))
        for found, expected in zip(torch.autograd.grad(run(y).sum(), list(run.parameters())), wanted, strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=["jagged", "strided"])
@pytest.mark.parametrize("gradient", [False, True], ids=["", "gradient"])
def test_nested_tensors(layout, gradient):
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)], layout=layout, requires_grad=gradient)
    function(torch.randn(2, 3), torch.ones(3))
    with pytest.raises(te.ArgumentError, match="scaled: argument x: expected a tensor of one shape, got a nested one"):
        function(nested, torch.ones(3))


def test_distributed_tensors(tmp_path):
    distributed = torch.distributed
    if not distributed.is_available():
        return
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        x = distributed.tensor.distribute_tensor(torch.randn(4, 3), mesh, [distributed.tensor.Shard(0)])
        w = distributed.tensor.distribute_tensor(torch.ones(3), mesh)
        with pytest.raises(
            te.ArgumentError, match=r"scaled: argument .: expected a DTensor, as others are, got a tensor that lies here alone"
        ):
            function(x, torch.ones(3))
        other = distributed.tensor.distribute_tensor(torch.ones(3), distributed.device_mesh.init_device_mesh("cpu", (1, 1)))
        with pytest.raises(te.ArgumentError, match=r"scaled: argument .: expected a DTensor on the mesh .*, as others are, got one on "):
            function(x, other)
        torch.testing.assert_close(function(x.detach().requires_grad_(), w).full_tensor(), function(x.to_local(), w.to_local()))
    finally:
        distributed.destroy_process_group()


def test_traced_functions_of_their_arguments_alone():
    def python(x, w):
        return scaled(x, w)

    variable = te.Variable([1.0, 2.0, 3.0], name="w")
    x, w = torch.randn(2, 3, requires_grad=True), torch.ones(3)
    ours = as_torch(te.function(python))
    assert torch.equal(ours(x, w), function(x, w))
    (found,), (expected,) = (torch.autograd.grad(f(x, w).sum(), x) for f in (ours, function))
    assert torch.equal(found, expected)
    for body in (lambda x: scaled(x, variable), lambda x: variable.assign(variable + 1)):
        with pytest.raises(
            te.DefinitionError, match="as_torch: expected a function of its arguments alone, got <lambda>, which has variables"
        ):
            as_torch(te.function(body))(x)
