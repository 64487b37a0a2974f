"""Normalization over batches, layers, groups, instances and windows of channels, and to norm 1."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = (3, 4, 2, 3)
C = (4,)
POSITIVE = Data(C, "positive")

CASES = [
    Case(
        "batch_norm training", kernels.batch_norm, (X, C, POSITIVE, C, C),
        "lambda x, m, v, w, b: (F.batch_norm(x, None, None, w, b, True), 0.9 * m + 0.1 * x.mean((0, 2, 3)),"
        " 0.9 * v + 0.1 * x.var((0, 2, 3)))",
        static={"training": True},
    ),
    Case(
        "batch_norm training, no tensors", kernels.batch_norm, ((5, 4), None, None, None, None),
        "lambda x: F.batch_norm(x, None, None, None, None, True, eps=1e-3)", static={"training": True, "eps": 1e-3},
    ),
    Case("batch_norm inference", kernels.batch_norm, (X, C, POSITIVE, C, C),
        "lambda x, m, v, w, b: (x - m[:, None, None]) / (v + 1e-5).sqrt()[:, None, None] * w[:, None, None] + b[:, None, None]",
    ),
    Case("layer_norm", kernels.layer_norm, ((4, 9), (9,), (9,)), "lambda x, w, b: F.layer_norm(x, (9,), w, b)"),
    Case(
        "layer_norm rank 2", kernels.layer_norm, (X, (2, 3), (2, 3)),
        "lambda x, w, b: F.layer_norm(x, (2, 3), w, b, 1e-3)",
        None, {"eps": 1e-3},
    ),
    Case(
        "layer_norm plain, all axes", kernels.layer_norm, ((2, 3, 4), None, None), "lambda x: F.layer_norm(x, (2, 3, 4))",
        static={"normalized_shape": (2, 3, 4)},
    ),
    Case("rms_norm", kernels.rms_norm, ((4, 3, 5), (5,)), "lambda x, w: F.rms_norm(x, (5,), w)"),
    Case(
        "rms_norm rank 2", kernels.rms_norm, ((4, 3, 5), None),
        "lambda x: F.rms_norm(x, (3, 5), eps=1e-2)",
        None, {"normalized_shape": (3, 5), "eps": 1e-2},
    ),
    Case(
        "group_norm", kernels.group_norm, ((2, 6, 2, 3), (6,), (6,)),
        "lambda x, w, b: F.group_norm(x, 3, w, b)",
        static={"num_groups": 3},
    ),
    Case("group_norm of one group", kernels.group_norm, ((2, 6, 3), None, None), "lambda x: F.group_norm(x, 1)", static={"num_groups": 1}),
    Case("instance_norm", kernels.instance_norm, (X, None, None, C, C), "lambda x, w, b: F.instance_norm(x, None, None, w, b)"),
    Case(
        "instance_norm running", kernels.instance_norm, (X, C, POSITIVE, None, None),
        "lambda x, m, v: (x - m[:, None, None]) / (v + 1e-5).sqrt()[:, None, None]", static={"use_input_stats": False},
    ),
    Case(
        "local_response_norm", kernels.local_response_norm, ((2, 7, 3),),
        "lambda x: F.local_response_norm(x, 3, 0.5)",
        static={"size": 3, "alpha": 0.5},
    ),
    Case(
        "local_response_norm even", kernels.local_response_norm, ((2, 5, 2, 3),), "lambda x: F.local_response_norm(x, 4, 1e-1, 0.5, 2.0)",
        static={"size": 4, "alpha": 1e-1, "beta": 0.5, "k": 2.0},
    ),
    Case("normalize", kernels.normalize, ((4, 5),), "F.normalize"),
    Case("normalize p 1, axis 0", kernels.normalize, ((4, 5),), "lambda x: F.normalize(x, 1.0, 0)", static={"p": 1.0, "axis": 0}),
    Case("normalize p 3", kernels.normalize, ((4, 5),), "lambda x: F.normalize(x, 3.0)", static={"p": 3.0}),
    Case("normalize p inf", kernels.normalize, (Data((4, 5), "distinct"),), "lambda x: F.normalize(x, float('inf'))", static={"p": np.inf}),
    Case(
        "normalize of zeros", kernels.normalize, (Data((2, 3), np.zeros((2, 3))),),
        "lambda x: F.normalize(x, eps=0.5)",
        static={"eps": 0.5},
    ),
    Case("weight_norm", kernels.weight_norm, ((4, 3, 2), (4, 1, 1)), "lambda v, g: torch._weight_norm(v, g, 0)"),
    Case(
        "weight_norm axis 1", kernels.weight_norm, ((4, 3, 2), (1, 3, 1)),
        "lambda v, g: g * v / v.norm(dim=(0, 2), keepdim=True)",
        static={"axis": 1},
    ),
]  # fmt: skip
