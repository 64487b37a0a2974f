"""`as_torch` under everything that torch differentiates and batches with. Skipped by name where PyTorch is not installed."""

from __future__ import annotations

import functools
import itertools

import pytest

import tensorexpr as te
from tests.peers.torch_cases import CASES, Case, as_torch, mixed, moments, torch

assert_close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
HONEST = [name for name in CASES if name != "ruled"]


def ours(case: Case):
    return functools.partial(as_torch(case.op), **dict(case.static))


def theirs(case: Case):
    return functools.partial(case.theirs, **dict(case.static))


def floating(results):
    """The floating results as one vector: a function that every transform takes."""
    results = results if isinstance(results, tuple) else (results,)
    return torch.cat([result.reshape(-1) for result in results if result.is_floating_point()])


def on_floats(function, case: Case):
    """The function of the floating arguments alone, with one vector as result."""
    rest = case.tensors()[len(case.shapes) :]
    return lambda *floats: floating(function(*floats, *rest))


def both(case: Case):
    return on_floats(ours(case), case), on_floats(theirs(case), case), case.tensors()[: len(case.shapes)]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_values(case):
    assert_close(ours(case)(*case.tensors()), theirs(case)(*case.tensors()))


@pytest.mark.parametrize("name", HONEST)
def test_gradcheck_in_both_modes_and_with_many_heads(name):
    case = CASES[name]
    function = on_floats(ours(case), case)
    inputs = case.tensors(requires_grad=True)[: len(case.shapes)]
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)


@pytest.mark.parametrize("name", HONEST)
def test_gradgradcheck(name):
    case = CASES[name]
    assert torch.autograd.gradgradcheck(on_floats(ours(case), case), case.tensors(requires_grad=True)[: len(case.shapes)])


@pytest.mark.parametrize("name", ["mixed", "looked_up", "ruled"])
def test_third_order(name):
    case = CASES[name]

    def third(function):
        inputs = case.tensors(requires_grad=True)[: len(case.shapes)]
        found = function(*inputs).sin().sum()
        for _ in range(3):
            grads = torch.autograd.grad(found, inputs, create_graph=True)
            found = sum((grad**2).sum() for grad in grads)
        return found

    one, other, _ = both(case)
    assert_close(third(one), third(other))


def test_reverse_mode_through_backward_accumulates(case):
    results = []
    for function in (on_floats(ours(case), case), on_floats(theirs(case), case)):
        inputs = case.tensors(requires_grad=True)[: len(case.shapes)]
        for _ in range(2):
            function(*inputs).square().sum().backward()
        results.append([tensor.grad for tensor in inputs])
    assert_close(*results)


@pytest.mark.parametrize("transform", ["grad", "jacrev", "jacfwd", "hessian"])
def test_transforms_of_torch_func(case, transform):
    one, other, floats = both(case)
    if transform in ("grad", "hessian"):
        one, other = (lambda *a, f=f: f(*a).square().sum() for f in (one, other))
    positions = tuple(range(len(floats)))
    made = [getattr(torch.func, transform)(f, argnums=positions)(*floats) for f in (one, other)]
    assert_close(*made)


def test_forward_mode(case):
    one, other, floats = both(case)
    tangents = [torch.cos(tensor) for tensor in floats]
    assert_close(torch.func.jvp(one, tuple(floats), tuple(tangents)), torch.func.jvp(other, tuple(floats), tuple(tangents)))
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(tensor, tangent) for tensor, tangent in zip(floats, tangents)]
        found = [torch.autograd.forward_ad.unpack_dual(f(*duals)) for f in (one, other)]
    assert_close(found[0].tangent, found[1].tangent)
    assert_close(found[0].primal, found[1].primal)


def test_forward_mode_of_some_arguments():
    case = CASES["mixed"]
    one, other, (x, w) = both(case)
    made = [torch.func.jvp(lambda x, f=f: f(x, w), (x,), (x,)) for f in (one, other)]
    assert_close(*made)


def wide(tensors, dims, extent):
    """Tensors of many samples: those with a place have an axis of this extent there."""
    samples = range(1, extent + 1)

    def sample(tensor, scale):
        return tensor * scale if tensor.is_floating_point() else (tensor + scale) % 3

    return [t if d is None else torch.stack([sample(t, s) for s in samples], d) for t, d in zip(tensors, dims)]


def test_vmap_over_any_axes(case):
    tensors = case.tensors()
    for dims in itertools.product(*([None, *range(tensor.ndim + 1)] for tensor in tensors)):
        if any(d is not None for d in dims):
            many = wide(tensors, dims, 3)
            expected = [theirs(case)(*(t if d is None else t.select(d, b) for t, d in zip(many, dims))) for b in range(3)]
            expected = [torch.stack(parts) for parts in zip(*(r if isinstance(r, tuple) else (r,) for r in expected))]
            found = torch.func.vmap(ours(case), in_dims=tuple(dims))(*many)
            assert_close(list(found) if isinstance(found, tuple) else [found], expected)


def test_vmaps_nest_and_mix_with_gradients():
    one, other, (x, w) = both(CASES["mixed"])
    xs, ws = wide([x, w], (0, 1), 3)
    pairs = [
        lambda f: torch.func.vmap(torch.func.vmap(f, in_dims=(0, None)), in_dims=(None, 1))(xs, ws),
        lambda f: torch.func.vmap(torch.func.vmap(f, in_dims=(None, 1)), in_dims=(0, None))(xs, ws),
        lambda f: torch.func.vmap(torch.func.grad(lambda x, w: f(x, w).sin().sum(), argnums=(0, 1)), in_dims=(0, None))(xs, w),
        lambda f: torch.func.grad(lambda x: torch.func.vmap(f, in_dims=(0, None))(x, w).sin().sum())(xs),
        lambda f: torch.func.vmap(torch.func.hessian(lambda x: f(x, w).sin().sum()))(xs),
        lambda f: torch.func.jacfwd(torch.func.vmap(f, in_dims=(None, 1)))(x, ws),
    ]
    for made in pairs:
        assert_close(made(one), made(other))


def test_a_gradient_rule_is_kept_by_every_transform():
    one, other, (x,) = both(CASES["ruled"])
    xs = torch.stack([x, 2 * x])
    for made in (
        lambda f: torch.func.grad(lambda x: f(x).sum())(x),
        lambda f: torch.func.grad(lambda x: torch.func.vmap(f)(x).sum())(xs),
        lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(xs),
    ):
        assert_close(made(one), made(other))
    assert_close(torch.func.jvp(one, (x,), (x,))[1], 2 * x * x.exp())


def test_no_work_for_gradients_that_nobody_wants():
    x, w = CASES["mixed"].tensors()
    function = as_torch(te.op(mixed.__wrapped__))
    operator = function.operator(x, w)
    function(x, w.requires_grad_()).sum().backward()
    assert x.grad is None and w.grad is not None
    assert [derived.names for derived in operator.derived] == [("x", "w", "head")]
    assert [derived.operator.name for derived in operator.derived] == ["mixed_vjp_w"]


def test_outputs_that_lead_nowhere_receive_nothing():
    (x,) = CASES["moments"].tensors(requires_grad=True)
    function = as_torch(te.op(moments.__wrapped__))
    mean, spread, winner = function(x)
    assert mean.requires_grad and spread.requires_grad and not winner.requires_grad and winner.dtype == torch.int64
    spread.backward()
    assert_close(x.grad, (2 * (x - x.mean())).detach())
    assert [derived.names for derived in function.operator(x).derived] == [("x", "head")]


def test_nothing_is_recorded_without_need():
    x, w = CASES["mixed"].tensors(requires_grad=True)
    with torch.no_grad():
        assert as_torch(mixed)(x, w).grad_fn is None
    with torch.inference_mode():
        assert as_torch(mixed)(x, w).is_inference()
    assert as_torch(mixed)(x.detach(), w.detach()).grad_fn is None


def test_ops_and_their_transforms_take_torch_tensors():
    x, w = CASES["mixed"].tensors(requires_grad=True)
    expected = CASES["mixed"].theirs(x, w, factor=2.0)
    found = mixed(x, w, factor=2.0)
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found.sum(), (x, w)), torch.autograd.grad(expected.sum(), (x, w)))
    head = torch.ones(3, dtype=torch.float64)
    assert_close(te.vjp(mixed)(x, w, head), torch.autograd.grad(CASES["mixed"].theirs(x, w).sum(), (x, w)))

    @te.op
    def energy(x):
        return te.compute((), lambda: te.sum(lambda i: x[i] ** 3, x.shape[0]))

    assert_close(te.grad(energy)(x), 3 * x**2)
    value, gradient = te.value_and_grad(energy)(x)
    assert_close(value, (x**3).sum())
    assert_close(torch.autograd.grad(gradient.sum(), x)[0], 6 * x)
    assert_close(te.jvp(energy)(x, x), 3 * (x**3).sum())


def test_only_what_the_gradient_reads_is_kept():
    @te.op
    def product(x, w, b):
        return te.compute(x.shape, lambda i: x[i] * w[i] + b[i])

    function = as_torch(product)
    x, w, b = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def kept(*tensors):
        saved = function(*tensors).grad_fn.saved_tensors
        return [next(name for name, t in zip("xwb", tensors) if t.data_ptr() == s.data_ptr()) for s in saved]

    assert kept(x, w, b) == ["x", "w", "b"]
    for _ in range(2):
        found = torch.autograd.grad(function(x, w, b).square().sum(), (x, w, b), create_graph=True)
        expected = torch.autograd.grad((x * w + b).square().sum(), (x, w, b), create_graph=True)
        assert_close(found, expected)
        assert_close(*(torch.autograd.grad(sum(g.sin().sum() for g in grads), (x, w)) for grads in (found, expected)))
        assert kept(x, w, b) == ["x", "w"]
    function(x, w.detach(), b).sum().backward()
    assert kept(x, w.detach(), b) == ["w"]
    # What is not kept may be changed.
    changed = b.detach().clone().requires_grad_()
    y = function(x, w, changed)
    changed.data.add_(1)
    assert_close(torch.autograd.grad(y.sum(), (x, w, changed)), (w, x, torch.ones_like(b)))
    assert torch.autograd.gradcheck(function, (x, w, b)) and torch.autograd.gradgradcheck(function, (x, w, b))
