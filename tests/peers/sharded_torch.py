"""What one process of several does: `python -m tests.peers.sharded_torch RANK COUNT STORE CASE...`. Every case compares with one device."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.interop.sharding.plan import choices, choose, cost_of
from tensorexpr.interop.sharding.torch import traffic
from tensorexpr.interop.torch import as_torch
from tensorexpr.sharding import Sharding, Split

R, S0, S1, S2, S3 = Replicate(), Shard(0), Shard(1), Shard(2), Shard(3)


@te.op
def ring(x):
    n, m = x.shape
    return te.compute((n, m), lambda i, j: x[i, j] * (x.read(i - 2, j, outside="wrap") + x.read(i + 1, j, outside="wrap")))


@te.op
def around_often(x, w):
    (n,), (m,) = x.shape, w.shape
    return te.compute((n,), lambda i: x[i] * w[(3 * i + 1) % m])


@te.op
def scaled_mean(x, w):
    """A mean, so that a part has to know the extent of the whole, and a position in it."""
    n, m = x.shape
    return te.compute((m,), lambda j: te.sum(lambda i: x[i, j] * w[i] * i, n) / n)


@te.op
def two_means(x, w, z, v):
    """Two sums that may be cut along one dimension of a mesh each."""
    (n, m), (_, p) = x.shape, z.shape
    return te.compute((n,), lambda i: te.sum(lambda k: x[i, k] * w[k], m) / m + te.sum(lambda k: z[i, k] * v[k], p) / p)


def compare(operation, arguments, mesh, placements, expected=None, received=None, **static):
    """Results and gradients on shards, and on one device; placements and bytes of messages of the forward where they are given."""
    call = as_torch(operation)
    plain = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]
    want = call(*plain, **static)
    head = torch.randn_like(want)
    want.backward(head)
    shards = [distribute_tensor(a, mesh, p).requires_grad_(a.is_floating_point()) for a, p in zip(arguments, placements, strict=True)]
    with traffic() as counted:
        got = call(*shards, **static)
    assert expected is None or tuple(got.placements) == tuple(expected), got.placements
    if received is not None:
        total = torch.tensor(counted.received)
        dist.all_reduce(total)
        assert int(total) == received, (int(total), received)
    torch.testing.assert_close(got.full_tensor(), want)
    whole = [R] * mesh.ndim
    got.redistribute(mesh, whole).backward(distribute_tensor(head, mesh, whole))
    for mine, theirs in zip(shards, plain, strict=True):
        if theirs.requires_grad:
            assert isinstance(mine.grad, DTensor)
            torch.testing.assert_close(mine.grad.full_tensor(), theirs.grad)


def products(mesh):
    """Every way in which two matrices may lie, with what becomes of it."""
    draw = torch.randn
    for a, b, expected in ((S0, R, S0), (R, S1, S1), (S1, S0, Partial()), (S1, R, Partial()), (R, S0, Partial())):
        compare(kernels.matmul, [draw(7, 8), draw(8, 6)], mesh, [[a], [b]], [expected])
    compare(scaled_mean, [draw(9, 4), draw(9)], mesh, [[S0], [S0]], [Partial()])
    compare(kernels.linear, [draw(4, 6), draw(5, 6), draw(5)], mesh, [[S1], [S1], [R]], [Partial()])


def dispatched(mesh):
    """The operator in torch's dispatcher has the same rule, and refuses what does not fit by name."""
    call = as_torch(kernels.matmul)
    a, b = distribute_tensor(torch.randn(4, 6), mesh, [S1]), distribute_tensor(torch.randn(6, 2), mesh, [S0])
    overload, arguments = call.overload(a, b)
    (found,) = overload(*arguments)
    assert tuple(found.placements) == (Partial(),)
    torch.testing.assert_close(found.full_tensor(), a.full_tensor() @ b.full_tensor())
    for wrong, message in (
        (torch.ones(6, 2), "matmul: argument y: expected a DTensor, as others are, got a tensor that lies here alone"),
        (
            distribute_tensor(torch.ones(6, 2), init_device_mesh("cpu", (1, mesh.size())), [R, R]),
            "matmul: argument y: expected a DTensor on ",
        ),
    ):
        try:
            call(a, wrong)
        except te.ArgumentError as error:
            assert str(error).startswith(message), error
        else:
            raise AssertionError(message)


def halos(mesh):
    """Stencils and convolutions: what comes from neighbors is counted, and is what a part reads beyond its block."""
    draw, count = torch.randn, mesh.size()
    compare(kernels.laplacian, [draw(15, 9)], mesh, [[S0]], [S0], received=2 * (count - 1) * 9 * 4)
    compare(ring, [draw(12, 5)], mesh, [[S0]], [S0], received=3 * count * 5 * 4)
    image, weight, bias = draw(2, 3, 16, 8), draw(4, 3, 3, 3), draw(4)
    lies = [[S2], [R], [R]]
    compare(kernels.conv2d, [image, weight, bias], mesh, lies, [S2], received=2 * (count - 1) * 2 * 3 * 8 * 4, padding=1)
    compare(kernels.conv2d, [image, weight, bias], mesh, lies, [S2], received=(count - 1) * 2 * 3 * 8 * 4, padding=1, stride=2)


def around(mesh):
    """A part reads around the end of an axis that is not split, and several times around."""
    for lies in (R, S0, S1):
        compare(kernels.resize, [torch.randn(2, 3)], mesh, [[lies]], shape=(4, 2))
    for lies in (R, S0):
        compare(around_often, [torch.randn(4), torch.randn(2)], mesh, [[S0], [lies]])


def tables(mesh):
    """A sharded embedding: by rows, by columns, by tokens; the gradient of the table lies as the table does."""
    ids = torch.randint(0, 20, (7,))
    for lies, expected in (([R], [S0]), Partial()), (([R], [S1]), S1), (([S0], [R]), S0):
        compare(kernels.embedding, [ids, torch.randn(20, 5)], mesh, list(lies), [expected])
    table = distribute_tensor(torch.randn(20, 5), mesh, [S0]).requires_grad_()
    as_torch(kernels.embedding)(distribute_tensor(ids, mesh, [R]), table).full_tensor().sum().backward()
    assert tuple(table.grad.placements) == (S0,)


def tensor_parallel(mesh):
    """Megatron's way: columns, then rows; heads of attention. One reduction forward."""
    linear, gelu = as_torch(kernels.linear), as_torch(kernels.gelu)

    def layer(x, w, v, b, c):
        return linear(gelu(linear(x, w, b)), v, c)

    parameters = [torch.randn(4, 6), torch.randn(8, 6), torch.randn(6, 8), torch.randn(8), torch.randn(6)]
    plain = [p.clone().requires_grad_() for p in parameters]
    layer(*plain).square().sum().backward()
    shards = [distribute_tensor(p, mesh, [how]).requires_grad_() for p, how in zip(parameters, (R, S0, S1, S0, R), strict=True)]
    out = layer(*shards)
    assert tuple(out.placements) == (Partial(),)
    out.redistribute(mesh, [R]).square().sum().backward()
    for mine, theirs in zip(shards, plain, strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), theirs.grad)
    assert tuple(shards[1].grad.placements) == (S0,) and tuple(shards[2].grad.placements) == (S1,)
    draws = [torch.randn(2, 4, 6, 8) for _ in range(3)]
    compare(kernels.scaled_dot_product_attention, draws, mesh, [[S1]] * 3, [S1], is_causal=True)
    compare(kernels.scaled_dot_product_attention, draws, mesh, [[S2], [R], [R]], [S2], is_causal=True)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = torch.nn.Parameter(torch.randn(8, 6)), torch.nn.Parameter(torch.randn(6, 8))

    def forward(self, x):
        return as_torch(kernels.linear)(as_torch(kernels.gelu)(as_torch(kernels.linear)(x, self.w)), self.v)


def data_parallel(mesh):
    """DDP and FSDP2: ops see plain tensors, gradients are averaged by torch."""
    torch.manual_seed(1)
    plain, replicated, sharded = Model(), Model(), Model()
    for other in (replicated, sharded):
        other.load_state_dict(plain.state_dict())
    x = torch.randn(8, 6)
    mine = x.chunk(mesh.size())[mesh.get_local_rank()]
    plain(x).square().mean().backward()
    ddp = DistributedDataParallel(replicated)
    ddp(mine).square().mean().backward()
    torch.testing.assert_close(replicated.w.grad, plain.w.grad)
    fully_shard(sharded, mesh=mesh)
    sharded(mine).square().mean().backward()
    for name in ("w", "v"):
        torch.testing.assert_close(getattr(sharded, name).grad.full_tensor(), getattr(plain, name).grad)


def two_dimensions(mesh):
    """A mesh of two dimensions: rules along each, halos across both, blocks of blocks."""
    draw = torch.randn
    compare(kernels.matmul, [draw(7, 8), draw(8, 6)], mesh, [[S0, R], [R, S1]], [S0, S1])
    compare(kernels.matmul, [draw(7, 8), draw(8, 6)], mesh, [[S0, S1], [R, S0]], [S0, Partial()])
    compare(kernels.matmul, [draw(7, 8), draw(8, 6)], mesh, [[S1, S1], [S0, S0]], [Partial(), Partial()])
    lies = [[S1, R], [S0, R], [R, S1], [R, S0]]
    compare(two_means, [draw(4, 7), draw(7), draw(4, 5), draw(5)], mesh, lies, [Partial(), Partial()])
    compare(kernels.laplacian, [draw(16, 12)], mesh, [[S0, S1]], [S0, S1], received=(2 * 12 + 2 * 16 + 4) * 4)  # boxes have corners
    compare(kernels.laplacian, [draw(16, 12)], mesh, [[S0, S0]], [S0, S0], received=2 * 3 * 12 * 4)
    image, weight = draw(2, 3, 16, 8), draw(4, 3, 3, 3)
    compare(kernels.conv2d, [image, weight, draw(4)], mesh, [[S2, S3], [R, R], [R, R]], [S2, S3], padding=1)


def both_kinds(mesh):
    """FSDP2 along one dimension, tensor parallel along the other."""
    data, tensor = mesh["data"], mesh["tensor"]
    torch.manual_seed(1)
    plain, model = Model(), Model()
    model.load_state_dict(plain.state_dict())
    for name, how in (("w", S0), ("v", S1)):
        setattr(model, name, torch.nn.Parameter(distribute_tensor(getattr(model, name).detach(), tensor, [how])))
    fully_shard(model, mesh=data)
    x = torch.randn(8, 6)
    plain(x).square().mean().backward()
    mine = distribute_tensor(x.chunk(data.size())[data.get_local_rank()], tensor, [R])
    model(mine).redistribute(tensor, [R]).square().mean().backward()
    for name in ("w", "v"):
        torch.testing.assert_close(getattr(model, name).grad.full_tensor(), getattr(plain, name).grad)


def least(mesh):
    """What is chosen moves no more than any other choice, for every way in which arguments may lie."""
    sharding = Sharding(kernels.matmul.trace(((64, 32), "float32"), ((32, 48), "float32")))
    counts = tuple(mesh.shape)
    ways = [(None, None), (0, None), (None, 1), (1, 0), (0, 1), (1, 1), (0, 0)]
    for way in ways:
        layouts = [tuple(sharding.rules[0].inputs[1] if axis is None else Split(axis) for _ in counts) for axis in way]
        plan = choose(sharding, counts, layouts, known=frozenset({"sum"}))
        costs = [cost_of(sharding, counts, choice, layouts) for choice in choices(sharding, counts)]
        assert cost_of(sharding, counts, plan.choice, layouts) == min(costs)


CASES = {
    f.__name__: f for f in (products, dispatched, halos, around, tables, tensor_parallel, data_parallel, two_dimensions, both_kinds, least)
}


def main() -> None:
    rank, count, store, *names = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(count))
    for name in names:
        torch.manual_seed(0)
        square = name in ("two_dimensions", "both_kinds")
        CASES[name](init_device_mesh("cpu", (2, 2) if square else (int(count),), mesh_dim_names=("data", "tensor") if square else None))
        print(name, "done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
