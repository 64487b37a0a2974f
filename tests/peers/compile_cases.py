"""A call of every core operator of ATen, by overload, for the tests of `torch.compile(backend="tensorexpr")`.

Each case is a function of a `Given`, whose tensors are made anew per dtype: floats that want gradients, and integers, masks and places
that do not. Groups of cases are compiled as one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

A: Any = torch.ops.aten


class Given:
    """The tensors of a case: floats in one dtype, from one seed."""

    def __init__(self, kind: torch.dtype) -> None:
        made = torch.Generator().manual_seed(7)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=made, dtype=torch.float64).to(kind).requires_grad_()

        def uniform(*shape: int, low: float = 0.1, high: float = 0.9) -> torch.Tensor:
            return (torch.rand(shape, generator=made, dtype=torch.float64) * (high - low) + low).to(kind).requires_grad_()

        self.x, self.y, self.z = normal(3, 5), normal(3, 5), normal(1, 5)
        self.row, self.number = normal(5), normal()
        self.unit, self.above = uniform(3, 5), uniform(3, 5, low=1.2, high=3.0)
        self.a, self.b = normal(4, 6), normal(6, 3)
        self.p, self.q = normal(2, 4, 6), normal(2, 6, 3)
        self.line, self.image, self.volume = normal(2, 3, 9), normal(2, 4, 7, 8), normal(1, 2, 5, 6, 7)
        self.w1, self.w2, self.w3 = normal(4, 3, 3), normal(6, 2, 3, 3), normal(3, 2, 2, 3, 3)
        self.wt = normal(4, 3, 3, 2)
        self.four, self.six, self.eight = normal(4), normal(6), uniform(8, low=0.5, high=1.5)
        self.mean, self.var = normal(4).detach(), uniform(4, low=0.5, high=2.0).detach()
        self.table, self.rows = normal(7, 5), normal(6, 5)
        self.grid = uniform(2, 5, 6, 2, low=-0.9, high=0.9)
        self.columns = normal(2, 12, 12)
        self.points = uniform(1, 3, 2, 4, 3, low=-0.9, high=0.9)
        self.tokens = normal(2, 3, 6, 4)
        self.ids = torch.tensor([[1, 6, 3], [0, 1, 1]])
        self.places = torch.tensor([2, 0, 4])
        self.along = torch.tensor([[0, 2, 1, 1, 0], [2, 2, 0, 1, 2]])
        self.i, self.j = torch.tensor([[7, -3, 5], [2, 9, -8]]), torch.tensor([[2, 4, -3], [5, 3, 3]])
        self.mask = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
        self.odd = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0], dtype=kind)


Case = Callable[[Given], Any]


def _each(names: str, tensor: str) -> dict[str, Case]:
    """Functions of one tensor."""
    return {f"{name}.default": (lambda t, name=name: getattr(A, name).default(getattr(t, tensor))) for name in names.split()}


GROUPS: dict[str, dict[str, Case]] = {
    "real": {
        **_each("abs atan asinh ceil cos cosh erf exp expm1 floor neg relu round sigmoid sign sin sinh tan tanh trunc reciprocal", "x"),
        **_each("acos asin atanh log log10 log1p log2 rsqrt sqrt", "unit"),
        **_each("acosh", "above"),
        **_each("isinf isnan", "odd"),
        "atan2.default": lambda t: A.atan2.default(t.x, t.y),
        "elu.default": lambda t: A.elu.default(t.x, 0.7, 1.3, 0.9),
        "gelu.default": lambda t: (A.gelu.default(t.x), A.gelu.default(t.y, approximate="tanh")),
        "hardtanh.default": lambda t: A.hardtanh.default(t.x, -0.5, 0.7),
        "leaky_relu.default": lambda t: A.leaky_relu.default(t.x, 0.2),
    },
    "pairs": {
        "add.Tensor": lambda t: (A.add.Tensor(t.x, t.z, alpha=2), t.mask + t.mask, t.i + 1.5, t.x + t.i[0, 0]),
        "add.Scalar": lambda t: A.add.Scalar(t.x, 2, 3),
        "sub.Tensor": lambda t: A.sub.Tensor(t.x, t.number, alpha=0.5),
        "sub.Scalar": lambda t: A.sub.Scalar(t.x, 2),
        "mul.Tensor": lambda t: (A.mul.Tensor(t.x, t.row), t.mask * t.x, t.mask * t.mask),
        "mul.Scalar": lambda t: A.mul.Scalar(t.x, 3),
        "div.Tensor": lambda t: (A.div.Tensor(t.x, t.above), t.i / t.j),
        "div.Scalar": lambda t: A.div.Scalar(t.x, 3),
        "div.Tensor_mode": lambda t: [
            A.div.Tensor_mode(a, b, rounding_mode=mode) for a, b in ((t.i, t.j), (t.x, t.y)) for mode in ("trunc", "floor")
        ],
        "div.Scalar_mode": lambda t: (
            A.div.Scalar_mode(t.i, 3, rounding_mode="trunc"),
            A.div.Scalar_mode(t.x, 0.3, rounding_mode="floor"),
        ),
        "remainder.Tensor": lambda t: (A.remainder.Tensor(t.i, t.j), A.remainder.Tensor(t.x, t.above)),
        "remainder.Scalar": lambda t: (A.remainder.Scalar(t.x, 0.7), A.remainder.Scalar(t.i, -4)),
        "fmod.Tensor": lambda t: (A.fmod.Tensor(t.i, t.j), A.fmod.Tensor(t.x, t.above)),
        "fmod.Scalar": lambda t: A.fmod.Scalar(t.x, 0.7),
        "pow.Tensor_Tensor": lambda t: (A.pow.Tensor_Tensor(t.unit, t.y), A.pow.Tensor_Tensor(t.i, t.j.abs())),
        "pow.Tensor_Scalar": lambda t: [A.pow.Tensor_Scalar(t.above, p) for p in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7)],
        "pow.Scalar": lambda t: A.pow.Scalar(1.5, t.x),
        "maximum.default": lambda t: A.maximum.default(t.x, t.y),
        "minimum.default": lambda t: A.minimum.default(t.x, t.row),
        "clamp.default": lambda t: (A.clamp.default(t.x, -0.5, 0.5), A.clamp.default(t.i, 0)),
        "clamp.Tensor": lambda t: A.clamp.Tensor(t.x, t.row, None),
        "where.self": lambda t: (A.where.self(t.mask, t.x, t.y), torch.where(t.mask, t.x, 0.0), torch.where(t.i > 0, t.i, 0.5)),
        "copy.default": lambda t: A.copy.default(t.x.detach(), t.row.detach()),
        "fill.Scalar": lambda t: A.fill.Scalar(t.x, 2.5),
    },
    "integers": {
        **{
            f"{name}.Tensor": (lambda t, name=name: (getattr(A, name).Tensor(t.i, t.j), getattr(A, name).Tensor(t.x, t.y)))
            for name in ("eq", "ne", "lt", "le", "gt", "ge")
        },
        **{
            f"{name}.Scalar": (lambda t, name=name: (getattr(A, name).Scalar(t.i, 2), getattr(A, name).Scalar(t.x, 0.1)))
            for name in ("eq", "ne", "lt", "le", "gt", "ge")
        },
        **{
            f"bitwise_{name}.Tensor": (lambda t, name=name: getattr(A, f"bitwise_{name}").Tensor(t.i, t.j)) for name in ("and", "or", "xor")
        },
        **{f"bitwise_{name}.Scalar": (lambda t, name=name: getattr(A, f"bitwise_{name}").Scalar(t.i, 6)) for name in ("and", "or", "xor")},
        **{
            f"logical_{name}.default": (lambda t, name=name: getattr(A, f"logical_{name}").default(t.mask, t.x > 0))
            for name in ("and", "or", "xor")
        },
        "logical_not.default": lambda t: (A.logical_not.default(t.mask), A.logical_not.default(t.i)),
        "bitwise_not.default": lambda t: (A.bitwise_not.default(t.mask), A.bitwise_not.default(t.i)),
        "arange.start_step": lambda t: (A.arange.start_step(1, 9, 2), A.arange.start_step(0.5, 2.0, 0.25, dtype=torch.float64)),
        "full.default": lambda t: A.full.default([2, 3], 1.5, dtype=torch.float64),
        "full_like.default": lambda t: A.full_like.default(t.x, 3),
        "scalar_tensor.default": lambda t: A.scalar_tensor.default(2.5) + t.x.detach(),
        "empty.memory_format": lambda t: A.fill.Scalar(A.empty.memory_format([2, 3], dtype=torch.int64), 4),
        "empty_strided.default": lambda t: A.fill.Scalar(A.empty_strided.default([2, 3], [3, 1]), 4),
    },
    "reductions": {
        "sum.dim_IntList": lambda t: (A.sum.dim_IntList(t.image, [1, -1], True), A.sum.dim_IntList(t.x, []), A.sum.dim_IntList(t.i, [0])),
        "mean.default": lambda t: A.mean.default(t.x),
        "mean.dim": lambda t: A.mean.dim(t.image, [2, 3], True),
        "prod.default": lambda t: A.prod.default(t.above),
        "prod.dim_int": lambda t: A.prod.dim_int(t.above, 1),
        "var.dim": lambda t: A.var.dim(t.image, [0, 2]),
        "var.correction": lambda t: A.var.correction(t.x, [1], correction=0, keepdim=True),
        "amax.default": lambda t: A.amax.default(t.image, [1, 2]),
        "amin.default": lambda t: A.amin.default(t.x, [0], True),
        "any.default": lambda t: A.any.default(t.mask),
        "any.dim": lambda t: A.any.dim(t.mask, 1, True),
        "any.dims": lambda t: A.any.dims(t.mask, [0]),
        "argmax.default": lambda t: (A.argmax.default(t.x), A.argmax.default(t.x, 1, True)),
        "argmin.default": lambda t: A.argmin.default(t.x, 0),
        "max.dim": lambda t: A.max.dim(t.x, 1),
        "min.dim": lambda t: A.min.dim(t.x, 0, True),
        "_softmax.default": lambda t: A._softmax.default(t.image, 1, False),
        "_log_softmax.default": lambda t: A._log_softmax.default(t.x, -1, False),
        "cumsum.default": lambda t: (A.cumsum.default(t.x, 1), A.cumsum.default(t.i, 0)),
        "sort.default": lambda t: A.sort.default(t.x, 1, True),
        "topk.default": lambda t: A.topk.default(t.x, 2, 1, False),
        "_cdist_forward.default": lambda t: [torch.cdist(t.x, t.table, p) for p in (1.0, 2.0, 3.0, float("inf"))],
        "_pdist_forward.default": lambda t: [A._pdist_forward.default(t.table, p) for p in (1.0, 2.0)],
    },
    "shapes": {
        "alias.default": lambda t: A.alias.default(t.x) * 2,
        "as_strided.default": lambda t: A.as_strided.default(t.x, [2, 3], [5, 2], 1) * 2,
        "cat.default": lambda t: A.cat.default([t.x, t.z, t.y], 0),
        "clone.default": lambda t: A.clone.default(t.image, memory_format=torch.channels_last),
        "constant_pad_nd.default": lambda t: A.constant_pad_nd.default(t.image, [1, 2, -1, 3], 0.5),
        "diagonal.default": lambda t: A.diagonal.default(t.image, 1, 2, 3) * 2,
        "expand.default": lambda t: A.expand.default(t.z, [3, 5]) * t.x,
        "flip.default": lambda t: A.flip.default(t.image, [1, -1]),
        "permute.default": lambda t: A.permute.default(t.image, [2, 0, 3, 1]) * 2,
        "reflection_pad1d.default": lambda t: A.reflection_pad1d.default(t.line, [2, 3]),
        "reflection_pad2d.default": lambda t: A.reflection_pad2d.default(t.image, [1, 2, 3, 0]),
        "reflection_pad3d.default": lambda t: A.reflection_pad3d.default(t.volume, [1, 2, 0, 3, 1, 1]),
        "replication_pad2d.default": lambda t: A.replication_pad2d.default(t.image, [1, 2, 3, 0]),
        "replication_pad3d.default": lambda t: A.replication_pad3d.default(t.volume, [1, 2, 0, 3, 1, 1]),
        "repeat.default": lambda t: A.repeat.default(t.x, [2, 2, 3]),
        "select.int": lambda t: A.select.int(t.image, 1, -2) * 2,
        "select_scatter.default": lambda t: A.select_scatter.default(t.x, t.row, 0, 1),
        "slice.Tensor": lambda t: A.slice.Tensor(t.image, 3, -6, 7, 2) * 2,
        "slice_scatter.default": lambda t: A.slice_scatter.default(t.image, t.image[:, :, :, :3] * 2, 3, 1, 7, 2),
        "split_with_sizes.default": lambda t: [part * 2 for part in A.split_with_sizes.default(t.image, [1, 4, 3], 3)],
        "squeeze.dim": lambda t: A.squeeze.dim(t.z, 0) * 2,
        "squeeze.dims": lambda t: A.squeeze.dims(t.volume, [0, 1]) * 2,
        "unsqueeze.default": lambda t: A.unsqueeze.default(t.x, 1) * 2,
        "view.default": lambda t: A.view.default(t.image, [8, 56]) * 2,
        "_to_copy.default": lambda t: (A._to_copy.default(t.x, dtype=torch.float16), A._to_copy.default(t.x, dtype=torch.int32)),
    },
    "places": {
        "embedding.default": lambda t: A.embedding.default(t.table, t.ids, 1),
        "_embedding_bag.default": lambda t: A._embedding_bag.default(t.table.detach(), t.ids.reshape(-1), torch.tensor([0, 2, 5]), mode=1)[
            0
        ],
        "gather.default": lambda t: A.gather.default(t.x, 0, t.along),
        "index.Tensor": lambda t: (A.index.Tensor(t.image, [None, t.ids % 4, t.ids - 3]), A.index.Tensor(t.x, [t.places % 3, None])),
        "index_put.default": lambda t: (
            A.index_put.default(t.table, [t.places], t.x, True),
            A.index_put.default(t.table, [t.places], t.x),
            t.table.clone().index_put((t.ids,), t.row, True),
            A.index_put.default(t.x, [t.mask], t.number.detach()),
            A.index_put.default(t.p, [None, None, t.six.detach() > 0], t.p.detach()[:, :, :1]),
            A.index_put.default(t.x, [t.mask[:, 0]], t.row.detach(), True),
        ),
        "index_select.default": lambda t: A.index_select.default(t.x, 1, t.places),
        "masked_scatter.default": lambda t: A.masked_scatter.default(t.x, t.mask, t.table),
        "scatter.value": lambda t: A.scatter.value(t.x, 0, t.along, 2.0),
        "scatter.src": lambda t: A.scatter.src(t.x, 0, t.along[:1], t.y[:1]),
        "scatter_add.default": lambda t: A.scatter_add.default(t.x, 0, t.along, t.y[:2]),
        "scatter_reduce.two": lambda t: [A.scatter_reduce.two(t.x, 0, t.along, t.y[:2], how) for how in ("sum", "mean", "amax", "prod")],
    },
    "networks": {
        "mm.default": lambda t: A.mm.default(t.a, t.b),
        "addmm.default": lambda t: (A.addmm.default(t.row[:3], t.a, t.b), A.addmm.default(t.a[:, :3], t.a, t.b, beta=0.5, alpha=2)),
        "bmm.default": lambda t: A.bmm.default(t.p, t.q),
        "convolution.default": lambda t: (
            A.convolution.default(t.line, t.w1, t.four, [2], [1], [1], False, [0], 1),
            A.convolution.default(t.image, t.w2, t.six, [2, 1], [1, 2], [1, 2], False, [0, 0], 2),
            A.convolution.default(t.volume, t.w3, None, [1, 1, 1], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1),
            A.convolution.default(t.image, t.wt, None, [2, 1], [1, 0], [1, 1], True, [1, 0], 1),
        ),
        "max_pool2d_with_indices.default": lambda t: (
            A.max_pool2d_with_indices.default(t.image, [3, 2], [2, 2], [1, 1], [1, 1], True),
            A.max_pool2d_with_indices.default(t.image, [2], [], [0], [2]),
        ),
        "max_pool3d_with_indices.default": lambda t: A.max_pool3d_with_indices.default(t.volume, [2, 3, 2], [1, 2, 2]),
        "avg_pool1d.default": lambda t: torch.nn.functional.avg_pool1d(t.line, 3, 2, 1),
        "avg_pool2d.default": lambda t: A.avg_pool2d.default(t.image, [3, 2], [2, 2], [1, 1], True, False),
        "avg_pool3d.default": lambda t: A.avg_pool3d.default(t.volume, [2, 2, 3]),
        "adaptive_avg_pool1d.default": lambda t: torch.nn.functional.adaptive_avg_pool1d(t.line, 4),
        "_adaptive_avg_pool2d.default": lambda t: A._adaptive_avg_pool2d.default(t.image, [3, 5]),
        "_adaptive_avg_pool3d.default": lambda t: A._adaptive_avg_pool3d.default(t.volume, [2, 4, 7]),
        "upsample_bilinear2d.vec": lambda t: (
            A.upsample_bilinear2d.vec(t.image, [10, 5], True, None),
            A.upsample_bilinear2d.vec(t.image, None, False, [2.0, 1.5]),
        ),
        "upsample_nearest2d.vec": lambda t: (
            A.upsample_nearest2d.vec(t.image, [10, 5], None),
            A.upsample_nearest2d.vec(t.image, None, [2.0, 3.0]),
        ),
        "grid_sampler_2d.default": lambda t: A.grid_sampler_2d.default(t.image, t.grid, 0, 0, False),
        "col2im.default": lambda t: A.col2im.default(t.columns, [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
    },
    "norms": {
        "_native_batch_norm_legit.default": lambda t: torch.nn.functional.batch_norm(
            t.image, t.mean.clone(), t.var.clone(), t.four, t.four, True, 0.2
        ),
        "_native_batch_norm_legit.no_stats": lambda t: A._native_batch_norm_legit.no_stats(t.image, t.four, None, True, 0.1, 1e-5)[0],
        "_native_batch_norm_legit_no_training.default": lambda t: torch.nn.functional.batch_norm(t.image, t.mean, t.var, t.four, t.four),
        "native_group_norm.default": lambda t: A.native_group_norm.default(t.image, t.four, t.four, 2, 4, 56, 2, 1e-5),
        "groups of channels": lambda t: torch.nn.functional.group_norm(t.image, 2, t.four, t.four),
        "native_layer_norm.default": lambda t: (
            A.native_layer_norm.default(t.image, [8], t.eight, t.eight, 1e-5),
            A.native_layer_norm.default(t.x, [3, 5], None, None, 1e-3),
        ),
        "attention": lambda t: (
            torch.nn.functional.scaled_dot_product_attention(t.tokens, t.tokens * 2, t.tokens + 1),
            torch.nn.functional.scaled_dot_product_attention(t.tokens, t.tokens, t.tokens, is_causal=True),
        ),
    },
    "beyond": {
        "shifts": lambda t: (t.i << t.j, t.i >> t.j, t.i.__lshift__(2), t.i.__rshift__(1), t.i << 70, 5 << t.j, 3 & t.i, t.i ^ t.j),
        "windows": lambda t: (t.x.unfold(1, 3, 2), t.image.unfold(-1, 2, 1).sum(-1), t.image.unfold(2, 3, 2).unfold(3, 3, 3)),
        "sorted places": lambda t: (
            torch.searchsorted(t.row.detach().sort().values, t.x),
            torch.searchsorted(t.y.detach().sort(1).values, t.odd.expand(3, 5), right=True, out_int32=True),
            torch.searchsorted(t.y.detach(), t.x, sorter=t.y.detach().argsort(1), side="right"),
            torch.bucketize(t.odd, t.row.detach().sort().values, right=True),
            torch.bucketize(t.i, torch.arange(-7, 8, 2)),
            torch.bucketize(2, torch.tensor([1, 2, 2, 3]), right=True),
        ),
        "functions": lambda t: (
            torch.erfc(t.x),
            torch.erfinv(t.unit),
            torch.lgamma(t.above),
            torch.digamma(t.unit.detach()),
            torch.copysign(t.x, -t.y),
            torch.copysign(t.odd, -0.0),
            torch.hypot(t.x, t.z),
            torch.round(t.x, decimals=2),
            torch.round(t.x * 1e3, decimals=-1),
            torch.nan_to_num(t.odd, 3.0),
            torch.nan_to_num(t.x, posinf=2.0),
        ),
        "lengths": lambda t: (
            torch.linalg.vector_norm(t.x, 3.0, dim=0),
            torch.nn.functional.normalize(t.image, dim=1),
            t.p.norm(),
            torch.mv(t.a, t.six),
        ),
        "rolls": lambda t: (torch.roll(t.x, 7), torch.roll(t.row, -1), torch.roll(t.image, (3, -1), (1, 3)), t.x[:0].roll(1)),
        "running": lambda t: (
            torch.logcumsumexp(t.x, 1),
            torch.cummax(t.x, 0),
            torch.cummin(t.p, -1),
            torch.cummax(t.i, 1),
            torch.cummax(t.number.detach(), 0),
        ),
        "pools": lambda t: (
            torch.nn.functional.adaptive_max_pool2d(t.image, (3, 5), return_indices=True),
            torch.nn.functional.adaptive_max_pool2d(t.image[0], 2),
            torch.nn.functional.adaptive_max_pool3d(t.volume, (2, 3, 2)),
            torch.nn.functional.interpolate(t.image, scale_factor=1.7, mode="bicubic"),
        ),
        "pieces": lambda t: (t.x[1] * t.y[:, 2:4].sum(), torch.stack(t.x.unbind(1)), t.x[torch.tril_indices(3, 3)[0]]),
        "slopes at random": lambda t: torch.nn.functional.rrelu(t.x),
    },
    "rows and grids": {
        "bags": lambda t: [
            torch.nn.functional.embedding_bag(ids, t.table, offsets, mode=mode, **more)
            for mode, more in (
                ("max", {}),
                ("max", {"padding_idx": 1}),
                ("mean", {"padding_idx": 6}),
                ("sum", {"padding_idx": 0}),
                ("sum", {"per_sample_weights": t.six, "padding_idx": 3}),
            )
            for ids, offsets in ((t.ids.reshape(-1), torch.tensor([0, 2, 2, 5])),)
        ],
        "rows by frequency": lambda t: torch.nn.functional.embedding(t.ids, t.table, scale_grad_by_freq=True, padding_idx=3),
        "weights by direction": lambda t: (
            torch._weight_norm(t.w2, t.w2[:, :1, :1, :1] + 2, 0),
            torch._weight_norm(t.a, t.six[None], 1),
        ),
        "masks of two axes": lambda t: torch.nn.functional.scaled_dot_product_attention(
            t.tokens, t.tokens, t.tokens, attn_mask=torch.tensor([[0.5, 0, -1.0, 2, 0, -float("inf")]] * 6, dtype=t.x.dtype)
        ),
        "ways back from grids": lambda t: (
            A.upsample_nearest1d_backward.default(t.line, [9], [2, 3, 4]),
            A._upsample_nearest_exact1d_backward.default(t.line, [9], [2, 3, 4]),
            A._upsample_nearest_exact2d_backward.default(t.image, [7, 8], [2, 4, 5, 3]),
            A.upsample_nearest3d_backward.default(t.volume, [5, 6, 7], [1, 2, 3, 4, 2]),
            A.upsample_linear1d_backward.default(t.line, [9], [2, 3, 4], True),
            A.upsample_bicubic2d_backward.default(t.image, [7, 8], [2, 4, 5, 3], False),
            A.upsample_trilinear3d_backward.default(t.volume, [5, 6, 7], [1, 2, 3, 4, 2], False),
            torch.nn.functional.grid_sample(t.volume, t.points, padding_mode="border", align_corners=False),
        ),
        "in the middle": lambda t: (
            [t.x.median(), t.x.median(1), t.p.median(0, keepdim=True), t.odd.median(0), t.odd[:1].median(), t.i.median(1)],
            t.x.kthvalue(2, 0),
            torch.dist(t.x, t.y, 3),
        ),
        "written by places": lambda t: (
            [t.mask.scatter(0, t.along, True), t.mask.scatter(1, t.along[:, :3], t.mask)],
            A.scatter.reduce(t.x.detach(), 0, t.along, t.y.detach(), reduce="add"),
            A.scatter.value_reduce(t.x.detach(), 0, t.along, 2.0, reduce="multiply"),
            torch.index_reduce(t.x, 1, t.places, t.y[:, :3], "amax"),
            torch.index_reduce(t.x, 1, t.places, t.y[:, :3], "mean", include_self=False),
            torch.addbmm(t.a[:, :3], t.p, t.q, beta=0.5, alpha=2.0),
        ),
    },
    "beside": {
        "heads of keys for several of queries": lambda t: [
            torch.nn.functional.scaled_dot_product_attention(t.tokens, t.tokens[:, :1], t.tokens[:, 1:2], is_causal=causal, enable_gqa=True)
            for causal in (False, True)
        ],
        "products of three": lambda t: torch.nn.functional.bilinear(
            t.p, t.q.mT.repeat(1, 2, 1)[:, :4], t.a[:2, :, None] * t.six, t.four[:2]
        ),
        "the middle of what is a number": lambda t: (
            [t.x.nanmedian(), t.p.nanmedian(0), t.p.nanmedian(2, keepdim=True), t.odd.nanmedian(0), t.i.nanmedian(1)],
            torch.where(t.mask | (t.along[:1] < 2), t.x, torch.nan).nanmedian(1),
        ),
        "put by number": lambda t: (
            torch.put(t.x, torch.tensor([3, -1, 7]), t.eight[:3]),
            torch.put(t.x, torch.tensor([[3, -1], [3, 0]]), t.four.reshape(2, 2), accumulate=True),
        ),
    },
}

DRAWN = {
    "native_dropout.default": lambda t: A.native_dropout.default(t.x, 0.3, True),
    "rand.default": lambda t: A.rand.default([3, 5]) + t.x,
    "randn.default": lambda t: A.randn.default([3, 5]) * t.x,
    "randperm.default": lambda t: t.x[A.randperm.default(3)],
}
"""Those that draw random numbers: of torch's generator, as eager mode draws them."""

BACKWARD = {
    "_adaptive_avg_pool2d_backward.default": "networks",
    "avg_pool2d_backward.default": "networks",
    "convolution_backward.default": "networks",
    "embedding_dense_backward.default": "places",
    "max_pool2d_with_indices_backward.default": "networks",
    "native_group_norm_backward.default": "norms",
    "native_layer_norm_backward.default": "norms",
}
"""Those that autograd puts into backward graphs of the others, each with the group where it does."""


def _resized(t: Given) -> torch.Tensor:
    return torch.relu(t.x).detach().clone().resize_(2, 5) * t.x[:2]


OUTSIDE: dict[str, tuple[Case, str | None]] = {
    "nonzero.default": (lambda t: t.row * A.index_select.default(t.y, 0, A.nonzero.default(t.x[:, 0] > -9)[:, 0]), "aten.nonzero.default"),
    "_fft_r2c.default": (lambda t: A._fft_r2c.default(t.x.tanh(), [1], 0, True).abs() * t.number, "aten._fft_r2c.default"),
    "_fft_c2r.default": (lambda t: A._fft_c2r.default(torch.complex(t.x.tanh(), t.y), [1], 2, 8) * t.number, "aten._fft_c2r.default"),
    "_local_scalar_dense.default": (lambda t: t.x * t.y.detach().sum().item() * t.y, None),
    "atan2.out": (lambda t: A.atan2.out(t.x.detach(), t.y.detach(), out=torch.empty_like(t.x)) * t.x, None),
    "resize_.default": (_resized, None),
    "sym_is_contiguous.default": (lambda t: t.x * t.y if A.sym_is_contiguous.default(t.x) else t.x + t.y, None),
    "sym_numel.default": (lambda t: t.x * A.sym_numel.default(t.x) * t.y, None),
    "sym_size.int": (lambda t: t.x * A.sym_size.int(t.x, 0) + t.y.sum() * t.y.size(1), None),
    "half as long again": (lambda t: t.x.sum() * torch.ones(int(t.y.shape[1] * 1.5), dtype=torch.float64) * t.number, None),
    "sym_storage_offset.default": (lambda t: t.x * (A.sym_storage_offset.default(t.y[1:]) + 1) * t.y, None),
    "sym_stride.int": (lambda t: t.x * A.sym_stride.int(t.x, 0) * t.y, None),
}
"""Those that are no tensors of the language, and the operator that the line of log about a fallback names. A size that data decides, and
complex numbers, are what the language does not have: PyTorch runs those, between regions of ours. Numbers for Python, and sizes, are what
programs have as sizes. What writes into its result reaches us as a function of its arguments (`out=`), or PyTorch runs it between graphs
(`resize_`, which its own tracing cannot follow)."""
