"""Kernels compiled once for sizes known only as they run; their gradients stay gathers."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

N, K, M = te.dim("n"), te.dim("k"), te.dim("m")
A, C = te.placeholder((N, K), name="a"), te.placeholder((N, K), name="c")
B, V = te.placeholder((K, M), name="b"), te.placeholder((M,), name="v")
T = te.placeholder((N,), "int64", name="t")

CASES = [
    ("gelu", kernels.gelu(A), [A]),
    ("glu", kernels.glu(A), [A]),
    ("lerp", kernels.lerp(A, C, A), [A, C]),
    ("sum", kernels.sum(A, axis=0, keepdims=True), [A]),
    ("var", kernels.var(A, axis=0), [A]),
    ("var_mean", kernels.var_mean(A, axis=1), [A]),
    ("norm", kernels.norm(A), [A]),
    ("logsumexp", kernels.logsumexp(A, axis=0), [A]),
    ("softmax", kernels.softmax(A), [A]),
    ("log_softmax", kernels.log_softmax(A, axis=0), [A]),
    ("matmul", kernels.matmul(A, B), [A, B]),
    ("einsum", kernels.einsum("nk,km,m->n", A, B, V), [A, B, V]),
    ("kron", kernels.kron(A, B), [A, B]),
    ("diagonal", kernels.diagonal(A, offset=1), [A]),
    ("diag_embed", kernels.diag_embed(V, offset=-1), [V]),
    ("triu", kernels.triu(A), [A]),
    ("mse_loss", kernels.mse_loss(A, C), [A, C]),
    ("cross_entropy", kernels.cross_entropy(A, T, label_smoothing=0.1), [A, T]),
    ("cosine_similarity", kernels.cosine_similarity(A, C), [A, C]),
]


@pytest.mark.parametrize(("name", "result", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_values_and_gradients_at_every_size(name, result, inputs):
    outputs = list(result) if isinstance(result, tuple) else [result]
    heads = [te.placeholder(y.shape, name=f"head_{position}") for position, y in enumerate(outputs)]
    wrt = [x for x in inputs if x.dtype.is_float]
    gradient = te.gradient(outputs, wrt, heads)
    assert T in inputs or not {row.lowering for row in gradient.report().rows} & {"segments", "atomics"}
    assert all(tensor.dtype == "float32" for tensor in outputs)
    compiled = te.build([*outputs, *gradient], [*inputs, *heads])
    rng = np.random.default_rng(4)
    for sizes in ({"n": 3, "k": 4, "m": 2}, {"n": 5, "k": 6, "m": 7}, {"n": 1, "k": 2, "m": 1}):
        given = {}
        for tensor in inputs:
            shape = tuple(sizes[str(extent)] for extent in tensor.shape)
            given[tensor] = rng.integers(0, sizes["k"], shape) if tensor is T else rng.standard_normal(shape).astype(np.float32)
        for head, value in zip(heads, te.evaluate(outputs, given), strict=True):
            given[head] = rng.standard_normal(value.shape).astype(np.float32)
        expected = te.evaluate([*outputs, *gradient], given)
        for mine, other in zip(compiled(*given.values()), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-5)
