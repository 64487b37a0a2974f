"""Attention: masks, causality, groups of heads, biases by distance, bands; linear attention; rotary embedding."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

Q, K, V = (2, 4, 3), (2, 5, 3), (2, 5, 2)
SDPA = "F.scaled_dot_product_attention"
INFINITE = np.where(np.arange(20).reshape(4, 5) % 3 == 0, -np.inf, 0.25)
MASKED = np.arange(20).reshape(4, 5) % 3 == 0
MASKED[2] = False


def rotated(interleaved):
    pair = "x.unflatten(-1, (-1, 2)).unbind(-1)" if interleaved else "x.chunk(2, -1)"
    join = "torch.stack(y, -1).flatten(-2)" if interleaved else "torch.cat(y, -1)"
    angle = "torch.outer(torch.arange({0}, {0} + x.shape[-2]), 100.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1]))"
    turn = "(a * c.cos() - b * c.sin(), a * c.sin() + b * c.cos())"
    return f"lambda x: (lambda a, b, c: (lambda y: {join})({turn}))(*{pair}, {angle.format(3)})"


PHI = "(lambda x: F.elu(x) + 1)"
LINEAR = f"lambda q, k, v: (lambda p: p @ v / (p.sum(-1, keepdim=True) + 1e-6))(({PHI}(q) @ {PHI}(k).transpose(-1, -2)).tril(%s))"

CASES = [
    Case("sdpa", kernels.scaled_dot_product_attention, (Q, K, V, None), SDPA),
    Case("sdpa without batch, scale", kernels.scaled_dot_product_attention, (Q[1:], K[1:], V[1:], None),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3)", static={"scale": 0.3}),
    Case("sdpa causal", kernels.scaled_dot_product_attention, ((2, 2, 5, 3), (2, 2, 5, 3), (2, 2, 5, 2), None),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)", static={"is_causal": True}),
    Case("sdpa causal, fewer columns", kernels.scaled_dot_product_attention, (K, Q, (2, 4, 2), None),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)", static={"is_causal": True}),
    Case("sdpa float mask", kernels.scaled_dot_product_attention, (Q, K, V, (4, 5)), SDPA),
    Case("sdpa float mask per head", kernels.scaled_dot_product_attention, ((2, 2, 3, 3), (2, 2, 3, 3), (2, 2, 3, 2), (2, 1, 3)), SDPA),
    Case("sdpa mask of minus infinities", kernels.scaled_dot_product_attention, (Q, K, V, Data((4, 5), INFINITE)), SDPA, kinks=True),
    Case("sdpa bool mask, a row of nothing", kernels.scaled_dot_product_attention, (Q, K, V, Data((4, 5), MASKED)), SDPA),
    Case("sdpa bool mask, causal", kernels.scaled_dot_product_attention, (Q, K, V, Data((2, 1, 5), "bool")),
         "lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m & torch.ones(4, 5, dtype=torch.bool).tril())",
         static={"is_causal": True}),
    Case("sdpa grouped queries", kernels.scaled_dot_product_attention, ((2, 4, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3), None),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)", static={"enable_gqa": True}),
    Case("relative position attention", kernels.relative_position_attention, (Q, K, V, (2, 8)),
         "lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b[:, torch.arange(4)[:, None] - torch.arange(5) + 4])"),
    Case("relative position attention causal", kernels.relative_position_attention, (Q, Q, Q, (2, 7)),
         "lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b[:, torch.arange(4)[:, None] - torch.arange(4) + 3]"
         " + torch.full((4, 4), -math.inf).triu(1))", static={"is_causal": True}),
    Case("alibi attention", kernels.alibi_attention, (Q, Q, Q, (2,)),
         "lambda q, k, v, s: F.scaled_dot_product_attention(q, k, v, s[:, None, None] * (torch.arange(4) - torch.arange(4)[:, None])"
         " + torch.full((4, 4), -math.inf).triu(1))"),
    Case("alibi attention both ways", kernels.alibi_attention, (Q, K, V, (2,)),
         "lambda q, k, v, s: F.scaled_dot_product_attention(q, k, v, -s[:, None, None] * (torch.arange(5) - torch.arange(4)[:, None])"
         ".abs())",
         static={"is_causal": False}),
    Case("sliding window attention", kernels.sliding_window_attention, ((2, 6, 3), (2, 6, 3), (2, 6, 2)),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(6, 6, dtype=torch.bool).tril().triu(-2))",
         static={"left": 2}),
    Case("sliding window attention both ways, groups", kernels.sliding_window_attention, ((4, 6, 3), (2, 7, 3), (2, 7, 2)),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(6, 7, dtype=torch.bool).tril(2).triu(-1), enable_gqa=True)",
         static={"left": 1, "right": 2, "enable_gqa": True}),
    Case("sliding window attention, rows of nothing", kernels.sliding_window_attention, ((6, 3), (3, 3), (3, 2)),
         "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(6, 3, dtype=torch.bool).tril().triu(-1))",
         static={"left": 1}),
    Case("linear attention", kernels.linear_attention, (Q, K, V), LINEAR % 99),
    Case("linear attention causal", kernels.linear_attention, (K, K, V), LINEAR % 0, static={"is_causal": True}),
    Case("rotary embedding", kernels.rotary_embedding, ((2, 3, 4),), rotated(False), static={"base": 100.0, "offset": 3}),
    Case("rotary embedding interleaved", kernels.rotary_embedding, ((2, 3, 6),), rotated(True),
         static={"base": 100.0, "offset": 3, "interleaved": True}),
]  # fmt: skip
