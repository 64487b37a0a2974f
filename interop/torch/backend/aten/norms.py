"""Definitions of ATen's normalizations and attention with what they save, and of their gradients by what was saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.dtypes import DType
from tensorexpr.interop.torch.backend.table import Form, Result, Unsupported, aten, element, filled, wide, within
from tensorexpr.kernels.conventions.arguments import product
from tensorexpr.kernels.conventions.broadcasting import same

Read = Callable[..., Any]


def _means(shape: tuple[Any, ...], over: Sequence[Any], read: Read, kind: DType) -> tuple[te.Tensor, te.Tensor]:
    """Mean and biased variance of `read(kept, inner)`, in two passes."""
    count = te.cast(product(over), kind)
    mean = te.compute(shape, lambda *i: te.sum(lambda *k: te.cast(read(i, k), kind), over) / count, name="mean")
    var = te.compute(
        shape, lambda *i: te.sum(lambda *k: te.square(te.cast(read(i, k), kind) - mean[i]), over) / count, name="var"
    )  # fmt: skip
    return mean, var


def _channel(x: te.Tensor) -> tuple[Sequence[Any], Read]:
    """What the statistics of a channel are taken over, and how it is read."""
    return (x.shape[0], *x.shape[2:]), lambda c, k: x[(k[0], c[0], *k[1:])]


# ---------------------------------------------------------------------------------------------------- batches


def _normalized(x: te.Tensor, weight: Any, bias: Any, mean: Any, inverse: Any, form: Form | Result, kind: DType) -> te.Tensor:
    def body(*i: Any) -> Any:
        c = i[1]
        y = (te.cast(x[i], kind) - te.cast(mean[c], kind)) * inverse[c]
        y = y if weight is None else y * te.cast(weight[c], kind)
        return te.cast(y if bias is None else y + te.cast(bias[c], kind), form.dtype)

    return te.compute(form.shape, body)


def _saved(result: Result, position: int, found: te.Tensor) -> te.Tensor:
    """A statistic as torch promises it: an empty one where nothing is saved."""
    form = result[position]
    if form.shape == (0,):
        return filled(form, 0)
    return te.compute(form.shape, lambda c: te.cast(found[c], form.dtype))


def _trained(result: Result, x: te.Tensor, weight: Any, bias: Any, eps: float) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    kind = wide(x.dtype)
    over, read = _channel(x)
    mean, var = _means((x.shape[1],), over, read, kind)
    inverse = te.compute(var.shape, lambda c: 1 / te.sqrt(var[c] + eps), name="inverse")
    return _normalized(x, weight, bias, mean, inverse, result, kind), mean, var, inverse


def _tested(result: Result, x: te.Tensor, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> te.Tensor:
    kind = wide(x.dtype)
    inverse = te.compute(var.shape, lambda c: 1 / te.sqrt(te.cast(var[c], kind) + eps), name="inverse")
    return _normalized(x, weight, bias, mean, inverse, result, kind)


@aten("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional")
def _batch_norm_functional(result: Result, x: te.Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, *options: Any) -> Any:
    """The normalized tensor, what is saved, and the new running statistics."""
    training, (momentum, eps) = (options[0], options[1:]) if len(options) == 3 else (True, options)
    several = len(result.forms) - 3  # the newer overload has a tensor of bytes to itself
    if not training:
        y = _tested(result, x, weight, bias, running_mean, running_var, eps)
        saved = [filled(result[1 + k], 0) for k in range(several)]
        return (y, *saved, running_mean, running_var)
    y, mean, var, inverse = _trained(result, x, weight, bias, eps)
    count = te.cast(product(_channel(x)[0]), mean.dtype)

    def moved(old: te.Tensor, new: Read) -> te.Tensor:
        return te.compute(old.shape, lambda c: te.cast((1 - momentum) * te.cast(old[c], mean.dtype) + momentum * new(c), old.dtype))

    saved = [_saved(result, 1, mean), _saved(result, 2, inverse), *(filled(result[3 + k], 0) for k in range(several - 2))]
    new_mean, new_var = moved(running_mean, lambda c: mean[c]), moved(running_var, lambda c: var[c] * (count / (count - 1)))
    return (y, *saved, new_mean, new_var)


@aten("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def _batch_norm_tested(result: Result, x: te.Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    y = _tested(result, x, weight, bias, mean, var, eps)
    return (y, *(filled(result[k], 0) for k in range(1, len(result.forms))))


@aten("native_batch_norm")
def _batch_norm(
    result: Result, x: te.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        return _batch_norm_tested(result, x, weight, bias, mean, var, momentum, eps)
    if mean is not None:
        raise Unsupported("statistics that are updated in place")
    return _batch_norm_alone(result, x, weight, bias, training, momentum, eps)


@aten("_native_batch_norm_legit.no_stats")
def _batch_norm_alone(result: Result, x: te.Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    y, mean, _, inverse = _trained(result, x, weight, bias, eps)
    return y, _saved(result, 1, mean), _saved(result, 2, inverse)


@aten("native_batch_norm_backward")
def _batch_norm_backward(
    result: Result, head: te.Tensor, x: te.Tensor, weight: Any, running_mean: Any, running_var: Any, mean: Any, inverse: Any,
    training: bool, eps: float, mask: Sequence[bool],
) -> Any:  # fmt: skip
    kind = wide(x.dtype)
    over, _ = _channel(x)
    channels = (x.shape[1],)
    if not training:
        mean = running_mean
        variance = running_var
        inverse = te.compute(channels, lambda c: 1 / te.sqrt(te.cast(variance[c], kind) + eps), name="inverse")

    def centered(i: Any) -> Any:
        return te.cast(x[i], kind) - te.cast(mean[i[1]], kind)

    def summed(value: Read, name: str) -> te.Tensor:
        return te.compute(channels, lambda c: te.sum(lambda n, *at: value((n, c, *at)), over), name=name)

    total = summed(lambda i: te.cast(head[i], kind), "total")
    dotted = summed(lambda i: te.cast(head[i], kind) * centered(i), "dotted")
    count = te.cast(product(over), kind)

    def pulled(*i: Any) -> Any:
        c = i[1]
        scale = te.cast(inverse[c], kind)
        g = te.cast(head[i], kind)
        if training:
            g = g - total[c] / count - centered(i) * (dotted[c] * scale * scale / count)
        g = g * scale
        return te.cast(g if weight is None else g * te.cast(weight[c], kind), head.dtype)

    x_bar = te.compute(x.shape, pulled) if mask[0] else None
    w_bar = te.compute(channels, lambda c: te.cast(dotted[c] * te.cast(inverse[c], kind), result[1].dtype)) if mask[1] else None
    b_bar = te.compute(channels, lambda c: te.cast(total[c], result[2].dtype)) if mask[2] else None
    return x_bar, w_bar, b_bar


# ---------------------------------------------------------------------------------------------------- layers


@aten("native_layer_norm")
def _layer_norm(result: Result, x: te.Tensor, shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> Any:
    kind, lead = wide(x.dtype), x.ndim - len(shape)
    over = x.shape[lead:]
    mean, var = _means(x.shape[:lead], over, lambda i, k: x[(*i, *k)], kind)
    inverse = te.compute(var.shape, lambda *i: 1 / te.sqrt(var[i] + eps), name="inverse")

    def body(*i: Any) -> Any:
        y = (te.cast(x[i], kind) - mean[i[:lead]]) * inverse[i[:lead]]
        y = y if weight is None else y * te.cast(weight[i[lead:]], kind)
        return te.cast(y if bias is None else y + te.cast(bias[i[lead:]], kind), result.dtype)

    def kept(position: int, found: te.Tensor) -> te.Tensor:
        return te.compute(result[position].shape, lambda *i: te.cast(found[i[:lead]], result[position].dtype))

    return te.compute(x.shape, body), kept(1, mean), kept(2, inverse)


@aten("native_layer_norm_backward")
def _layer_norm_backward(
    result: Result, head: te.Tensor, x: te.Tensor, shape: Sequence[Any], mean: te.Tensor, inverse: te.Tensor, weight: Any, bias: Any,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    kind, lead = wide(x.dtype), x.ndim - len(shape)
    over, rows = x.shape[lead:], x.shape[:lead]
    zeros = (0,) * len(shape)
    count = te.cast(product(over), kind)

    def standard(i: Any) -> Any:
        at = (*i[:lead], *zeros)
        return (te.cast(x[i], kind) - te.cast(mean[at], kind)) * te.cast(inverse[at], kind)

    def scaled(i: Any) -> Any:
        g = te.cast(head[i], kind)
        return g if weight is None else g * te.cast(weight[i[lead:]], kind)

    total = te.compute(rows, lambda *n: te.sum(lambda *k: scaled((*n, *k)), over), name="total")
    dotted = te.compute(rows, lambda *n: te.sum(lambda *k: scaled((*n, *k)) * standard((*n, *k)), over), name="dotted")

    def pulled(*i: Any) -> Any:
        n = i[:lead]
        found = scaled(i) - total[n] / count - standard(i) * (dotted[n] / count)
        return te.cast(found * te.cast(inverse[(*n, *zeros)], kind), x.dtype)

    def down(value: Read, position: int) -> te.Tensor:
        summed = (lambda *k: te.sum(lambda *n: value((*n, *k)), rows)) if rows else lambda *k: value(k)
        return te.compute(over, lambda *k: te.cast(summed(*k), result[position].dtype))

    x_bar = te.compute(x.shape, pulled) if mask[0] else None
    w_bar = down(lambda i: te.cast(head[i], kind) * standard(i), 1) if mask[1] and weight is not None else None
    b_bar = down(lambda i: te.cast(head[i], kind), 2) if mask[2] and bias is not None else None
    return x_bar, w_bar, b_bar


# ---------------------------------------------------------------------------------------------------- groups


@aten("native_group_norm")
def _group_norm(result: Result, x: te.Tensor, weight: Any, bias: Any, n: Any, c: Any, inner: Any, groups: int, eps: float) -> Any:
    kind = wide(x.dtype)
    per = x.shape[1] // groups
    over = (per, *x.shape[2:])
    mean, var = _means((x.shape[0], groups), over, lambda i, k: x[(i[0], i[1] * per + k[0], *k[1:])], kind)
    inverse = te.compute(var.shape, lambda n, g: 1 / te.sqrt(var[n, g] + eps), name="inverse")

    def body(*i: Any) -> Any:
        at = (i[0], i[1] // per)
        y = (te.cast(x[i], kind) - mean[at]) * inverse[at]
        y = y if weight is None else y * te.cast(weight[i[1]], kind)
        return te.cast(y if bias is None else y + te.cast(bias[i[1]], kind), result.dtype)

    def kept(position: int, found: te.Tensor) -> te.Tensor:
        return te.compute(result[position].shape, lambda *i: te.cast(found[i], result[position].dtype))

    return te.compute(x.shape, body), kept(1, mean), kept(2, inverse)


@aten("native_group_norm_backward")
def _group_norm_backward(
    result: Result, head: te.Tensor, x: te.Tensor, mean: te.Tensor, inverse: te.Tensor, weight: Any, n: Any, c: Any, inner: Any,
    groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    kind = wide(x.dtype)
    per = x.shape[1] // groups
    places, batch = tuple(x.shape[2:]), x.shape[0]
    count = te.cast(product((per, *places)), kind)

    def standard(i: Any) -> Any:
        at = (i[0], i[1] // per)
        return (te.cast(x[i], kind) - te.cast(mean[at], kind)) * te.cast(inverse[at], kind)

    def summed(value: Read, name: str) -> te.Tensor:
        def body(n: Any, c: Any) -> Any:
            return te.sum(lambda *at: value((n, c, *at)), places) if places else value((n, c))

        return te.compute((batch, x.shape[1]), body, name=name)

    total = summed(lambda i: te.cast(head[i], kind), "total")
    dotted = summed(lambda i: te.cast(head[i], kind) * standard(i), "dotted")

    def grouped(sums: te.Tensor, name: str) -> te.Tensor:
        def one(n: Any, g: Any) -> Any:
            def term(k: Any) -> Any:
                own = sums[n, g * per + k]
                return own if weight is None else own * te.cast(weight[g * per + k], kind)

            return te.sum(term, per) / count

        return te.compute((batch, groups), one, name=name)

    totals, dots = grouped(total, "totals"), grouped(dotted, "dots")

    def pulled(*i: Any) -> Any:
        at = (i[0], i[1] // per)
        g = te.cast(head[i], kind)
        g = g if weight is None else g * te.cast(weight[i[1]], kind)
        return te.cast((g - totals[at] - standard(i) * dots[at]) * te.cast(inverse[at], kind), x.dtype)

    x_bar = te.compute(x.shape, pulled) if mask[0] else None

    def down(sums: te.Tensor, position: int) -> te.Tensor:
        kind_ = result[position].dtype
        return te.compute((x.shape[1],), lambda c: te.cast(te.sum(lambda n: sums[n, c], batch), kind_))

    return x_bar, down(dotted, 1) if mask[1] else None, down(total, 2) if mask[2] else None


@aten("_weight_norm_interface_backward")
def _weight_norm_backward(result: Result, head: te.Tensor, v: te.Tensor, g: te.Tensor, norms: te.Tensor, dim: int) -> Any:
    if g.ndim != v.ndim:
        raise Unsupported("lengths of fewer axes")
    kind = wide(v.dtype)
    others = [k for k in range(v.ndim) if k != dim % v.ndim]

    def along(own: Any) -> Any:
        def term(*at: Any) -> Any:
            place = [own] * v.ndim
            for k, i in zip(others, at, strict=True):
                place[k] = i
            return te.cast(head[tuple(place)], kind) * te.cast(v[tuple(place)], kind)

        return te.sum(term, tuple(v.shape[k] for k in others)) if others else term()

    dotted = te.compute((v.shape[dim],), along, name="dotted")

    def pulled(*i: Any) -> Any:
        norm = te.cast(element(norms, i), kind)
        away = te.cast(head[i], kind) - te.cast(v[i], kind) * dotted[i[dim % v.ndim]] / (norm * norm)
        return te.cast(te.cast(element(g, i), kind) / norm * away, v.dtype)

    def length(*i: Any) -> Any:
        return te.cast(dotted[i[dim % v.ndim]] / te.cast(element(norms, i), kind), g.dtype)

    return te.compute(v.shape, pulled), te.compute(g.shape, length)


# ---------------------------------------------------------------------------------------------------- attention


class _Scores:
    """The scores of attention, `scale * q . k` with the mask, of `(B, H, L, D)`; scores that a row does not see are left out.

    `group` heads of queries may share one of keys and values, that at `shared(h)`.
    """

    def __init__(self, q: te.Tensor, k: te.Tensor, causal: bool, mask: Any, scale: Any) -> None:
        self.q, self.k, self.causal, self.mask = q, k, causal, mask
        self.kind = wide(q.dtype)
        depth = q.shape[-1]
        root: Any = math.sqrt(depth) if isinstance(depth, int) else te.sqrt(te.cast(depth, self.kind))
        self.scale = 1 / root if scale is None else scale
        self.columns = k.shape[2]
        heads, own = q.shape[1], k.shape[1]
        self.group = heads // own if isinstance(heads, int) and isinstance(own, int) else 1

        def score(b: Any, h: Any, i: Any, j: Any) -> Any:
            at = self.shared(h)
            found = te.sum(lambda d: te.cast(q[b, h, i, d], self.kind) * te.cast(k[b, at, j, d], self.kind), q.shape[3]) * self.scale
            if mask is not None:
                found = found + te.cast(element(mask, (b, h, i, j)), self.kind)
            return te.where(j <= i, found, -math.inf) if causal else found

        self.scores = te.compute((*q.shape[:3], self.columns), score, name="scores")

    def shared(self, head: Any) -> Any:
        """The head of keys and values that a head of queries sees."""
        return head if self.group == 1 else head // self.group

    def over(self, head: Any, value: Callable[[Any, Any], Any], lines: Any) -> Any:
        """The sum of `value(h, i)` over the heads of queries that see a head, and their rows."""
        if self.group == 1:
            return te.sum(lambda i: value(head, i), lines)
        return te.sum(lambda r, i: value(head * self.group + r, i), (self.group, lines))


_FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def _beside(k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """The values that go with keys: as many, whatever torch calls that number."""
    return v if all(map(same, k.shape[:3], v.shape[:3])) else within((*k.shape[:3], v.shape[3]), v, lambda *i: i, range(3))


@aten(_FLASH)
def _attention(result: Result, q: te.Tensor, k: te.Tensor, v: te.Tensor, dropout: float, causal: bool, mask: Any, scale: Any) -> Any:
    if dropout:
        raise Unsupported("random numbers are torch's")
    made, v = _Scores(q, k, causal, mask, scale), _beside(k, v)
    kind, scores, columns = made.kind, made.scores, made.columns
    rows = scores.shape[:3]
    top = te.compute(rows, lambda b, h, i: te.max(lambda j: scores[b, h, i, j], columns), name="top")
    safe = te.compute(rows, lambda b, h, i: te.where(top[b, h, i] == -math.inf, 0.0, top[b, h, i]), name="safe")
    weights = te.compute(scores.shape, lambda b, h, i, j: te.exp(scores[b, h, i, j] - safe[b, h, i]), name="weights")
    total = te.compute(rows, lambda b, h, i: te.sum(lambda j: weights[b, h, i, j], columns), name="total")

    def value(b: Any, h: Any, i: Any, d: Any) -> Any:
        found = te.sum(lambda j: weights[b, h, i, j] * te.cast(v[b, made.shared(h), j, d], kind), columns)
        return te.cast(te.where(total[b, h, i] == 0, 0.0, found / total[b, h, i]), result.dtype)

    y = te.compute((*rows, v.shape[3]), value)
    return y, te.compute(rows, lambda b, h, i: te.cast(safe[b, h, i] + te.log(total[b, h, i]), result[1].dtype))


@aten(f"{_FLASH}_backward")
def _attention_backward(
    result: Result, head: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor, y: te.Tensor, logsumexp: te.Tensor, dropout: float,
    causal: bool, mask: Any, scale: Any,
) -> Any:  # fmt: skip
    if dropout:
        raise Unsupported("random numbers are torch's")
    made = _Scores(q, k, causal, mask, scale)
    kind, scores, columns = made.kind, made.scores, made.columns
    promised, v = v.shape, _beside(k, v)
    rows, depth = scores.shape[:3], v.shape[3]

    def weight(b: Any, h: Any, i: Any, j: Any) -> Any:
        level = te.cast(logsumexp[b, h, i], kind)
        return te.where(level == -math.inf, 0.0, te.exp(scores[b, h, i, j] - level))

    weights = te.compute(scores.shape, weight, name="weights")
    own = te.compute(
        rows, lambda b, h, i: te.sum(lambda d: te.cast(head[b, h, i, d], kind) * te.cast(y[b, h, i, d], kind), depth), name="own"
    )

    def slope(b: Any, h: Any, i: Any, j: Any) -> Any:
        seen = te.sum(lambda d: te.cast(head[b, h, i, d], kind) * te.cast(v[b, made.shared(h), j, d], kind), depth)
        return weights[b, h, i, j] * (seen - own[b, h, i]) * made.scale

    slopes = te.compute(scores.shape, slope, name="slopes")
    lines = q.shape[2]
    q_bar = te.compute(
        q.shape,
        lambda b, h, i, d: te.cast(te.sum(lambda j: slopes[b, h, i, j] * te.cast(k[b, made.shared(h), j, d], kind), columns), q.dtype),
    )
    k_bar = te.compute(
        k.shape,
        lambda b, g, j, d: te.cast(made.over(g, lambda h, i: slopes[b, h, i, j] * te.cast(q[b, h, i, d], kind), lines), k.dtype),
    )
    v_bar = te.compute(
        v.shape,
        lambda b, g, j, d: te.cast(made.over(g, lambda h, i: weights[b, h, i, j] * te.cast(head[b, h, i, d], kind), lines), v.dtype),
    )
    return q_bar, k_bar, v_bar if v.shape is promised else within(promised, v_bar, lambda *i: i, range(3))
