"""PyTorch's side of a row of the case table, run by PyTorch, by `torch.compile`, and by JAX.

The text is a lambda over the tensors that are given, with `torch`, `F` and `math` in scope. For JAX these names stand for functions of
`jax.numpy`, `jax.nn` and `jax.lax` that mean the same, where there are such; keywords are translated. What is missing, or differs in
value, is told, and that row has no JAX.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

PEERS = {"torch": "torch", "torch.compile": "torch._inductor.compile_fx", "jax": "jax"}
"""The peers, and the module that imports all that they need."""
KEYWORDS = {"dim": "axis", "dims": "axis", "keepdim": "keepdims", "input": "x"}
"""What JAX calls keywords of PyTorch."""


def candidate(peer: str, text: str, arrays: Sequence[np.ndarray], heads: Sequence[np.ndarray] | None) -> Callable[[], list[Any]]:
    """What computes the outputs of a row by a peer, with heads the gradients by the floating tensors behind them."""
    if peer == "jax":
        return _jax(text, arrays, heads)
    return _torch(text, arrays, heads, peer == "torch.compile")


def _torch(text: str, arrays: Sequence[np.ndarray], heads: Sequence[np.ndarray] | None, compiled: bool) -> Callable[[], list[Any]]:
    torch: Any = importlib.import_module("torch")
    functional: Any = importlib.import_module("torch.nn.functional")
    function = eval(text, {"torch": torch, "F": functional, "math": math})
    if compiled:
        function = torch.compile(function, dynamic=False)
    given = [torch.from_numpy(array) for array in arrays]
    if heads is None:

        def forward() -> list[Any]:
            with torch.no_grad():
                return _listed(function(*given))

        return forward
    floating = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()]
    seeds = [torch.from_numpy(head) for head in heads]

    def both() -> list[Any]:
        outputs = _listed(function(*given))
        made = [output for output in outputs if output.is_floating_point()]
        gradients = torch.autograd.grad(made, floating, seeds, materialize_grads=True)
        return [*(output.detach() for output in outputs), *gradients]

    return both


def _jax(text: str, arrays: Sequence[np.ndarray], heads: Sequence[np.ndarray] | None) -> Callable[[], list[Any]]:
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    functions = _Functions(jax)
    written = eval(text, {"torch": functions, "F": functions, "math": math})
    given = [jnp.asarray(array) for array in arrays]

    def function(*tensors: Any) -> Any:
        return _bare(written(*(_Tensor(functions, tensor) for tensor in tensors)))

    if heads is None:
        forward = jax.jit(lambda *tensors: _listed(function(*tensors)))
        return lambda: _listed(jax.block_until_ready(forward(*given)))
    floating = [k for k, tensor in enumerate(given) if jnp.issubdtype(tensor.dtype, jnp.floating)]

    @jax.jit
    def both(seeds: Any, *tensors: Any) -> list[Any]:
        def of(*moved: Any) -> Any:
            full = list(tensors)
            for position, value in zip(floating, moved, strict=True):
                full[position] = value
            outputs = _listed(function(*full))
            return [output for output in outputs if jnp.issubdtype(output.dtype, jnp.floating)], outputs

        _, pull, outputs = jax.vjp(of, *(tensors[k] for k in floating), has_aux=True)
        return [*outputs, *pull(seeds)]

    seeds = [jnp.asarray(head) for head in heads]
    return lambda: _listed(jax.block_until_ready(both(seeds, *given)))


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


class _Functions:
    """`torch` and `torch.nn.functional` for JAX: functions of tensors, and names of dtypes."""

    def __init__(self, jax: Any) -> None:
        self._own = _own(jax)

    @property
    def linalg(self) -> _Functions:
        """`torch.linalg`, whose names mean the same."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name in self._own:
            return functools.partial(self._call, self._own[name], {})
        for room in ("numpy", "nn", "scipy.special", "lax"):
            found = getattr(importlib.import_module(f"jax.{room}"), name, None)
            if found is not None:
                is_function = callable(found) and not hasattr(found, "dtype")
                return functools.partial(self._call, found, KEYWORDS) if is_function else found
        raise AttributeError(f"JAX has no {name}")

    def _call(self, function: Callable[..., Any], words: Mapping[str, str], *arguments: Any, **keywords: Any) -> Any:
        """A call with the arrays of tensors, and the function's words for keywords; what comes is tensors again."""
        given = {words.get(name, name): _bare(value) for name, value in keywords.items()}
        return _dressed(self, function(*map(_bare, arguments), **given))


class _Tensor:
    """An array of JAX with the methods of PyTorch's tensors, which are its functions."""

    def __init__(self, rooms: _Functions, array: Any) -> None:
        self.rooms, self.array = rooms, array
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype

    def __getattr__(self, name: str) -> Any:
        if name in ("T", "mT"):
            return _Tensor(self.rooms, getattr(self.array, name))
        return functools.partial(getattr(self.rooms, name), self)

    def __getitem__(self, at: Any) -> Any:
        return _dressed(self.rooms, self.array[_bare(at)])

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:  # beyond the end JAX reads the last row
        return (self[k] for k in range(len(self.array)))


def _operator(name: str, turned: bool) -> Callable[..., Any]:
    function = getattr(operator, name)
    if turned:
        return lambda self, other: _dressed(self.rooms, function(_bare(other), self.array))
    return lambda self, *others: _dressed(self.rooms, function(self.array, *map(_bare, others)))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(_Tensor, f"__{_name}__", _operator(f"__{_name}__", False))
    setattr(_Tensor, f"__r{_name}__", _operator(f"__{_name}__", True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "invert", "abs"):
    setattr(_Tensor, f"__{_name}__", _operator(f"__{_name}__", False))


def _bare(tree: Any) -> Any:
    """The arrays in the place of tensors."""
    if isinstance(tree, tuple | list):
        found = [_bare(item) for item in tree]
        return found if isinstance(tree, list) else tuple(found)
    return tree.array if isinstance(tree, _Tensor) else tree


def _dressed(rooms: _Functions, tree: Any) -> Any:
    """Tensors in the place of arrays."""
    if isinstance(tree, tuple | list):
        return tuple(_dressed(rooms, item) for item in tree)
    return _Tensor(rooms, tree) if hasattr(tree, "dtype") and hasattr(tree, "ndim") else tree


def _own(jax: Any) -> dict[str, Callable[..., Any]]:
    """Functions that JAX has under another name, or in other arguments."""
    jnp, lax, nn = jax.numpy, jax.lax, jax.nn

    def pairs(value: Any, rank: int) -> tuple[int, ...]:
        return tuple(value) if isinstance(value, tuple | list) else (value,) * rank

    def conv(rank: int) -> Callable[..., Any]:
        letters = "DHW"[3 - rank :]

        def call(x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
            images = x if x.ndim == rank + 2 else x[None]
            border = padding.upper() if isinstance(padding, str) else [(p, p) for p in pairs(padding, rank)]
            made = lax.conv_general_dilated(
                images, w, pairs(stride, rank), border, rhs_dilation=pairs(dilation, rank), feature_group_count=groups,
                dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"),
            )  # fmt: skip
            made = made if bias is None else made + bias.reshape(-1, *(1,) * rank)
            return made if images is x else made[0]

        return call

    def pool(rank: int, largest: bool) -> Callable[..., Any]:
        def call(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Any:
            window = (*(1,) * (x.ndim - rank), *pairs(kernel_size, rank))
            steps = (*(1,) * (x.ndim - rank), *pairs(kernel_size if stride is None else stride, rank))
            border = [*((0, 0),) * (x.ndim - rank), *((p, p) for p in pairs(padding, rank))]
            if largest:
                return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, border)
            return lax.reduce_window(x, 0.0, lax.add, window, steps, border) / math.prod(window)

        return call

    def pad(x: Any, widths: Sequence[int], mode: str = "constant", value: float = 0.0) -> Any:
        given = [(widths[k], widths[k + 1]) for k in range(0, len(widths), 2)]
        full = [*((0, 0),) * (x.ndim - len(given)), *reversed(given)]
        if mode == "constant":
            return jnp.pad(x, full, constant_values=value)
        return jnp.pad(x, full, mode={"replicate": "edge", "circular": "wrap"}.get(mode, mode))

    def layer_norm(x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        axes = tuple(range(x.ndim - len(shape), x.ndim))
        made = (x - x.mean(axes, keepdims=True)) * lax.rsqrt(x.var(axes, keepdims=True) + eps)
        made = made if weight is None else made * weight
        return made if bias is None else made + bias

    def attention(q: Any, k: Any, v: Any, is_causal: bool = False, scale: float | None = None) -> Any:
        scores = jnp.einsum("...id,...jd->...ij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return nn.softmax(scores, -1) @ v

    return {
        **{f"conv{rank}d": conv(rank) for rank in (1, 2, 3)},
        **{f"max_pool{rank}d": pool(rank, True) for rank in (1, 2, 3)},
        **{f"avg_pool{rank}d": pool(rank, False) for rank in (1, 2, 3)},
        "pad": pad,
        "layer_norm": layer_norm,
        "scaled_dot_product_attention": attention,
        "linear": lambda x, w, b=None: x @ w.T if b is None else x @ w.T + b,
        "cat": lambda tensors, dim=0: jnp.concatenate(tensors, dim),
        "transpose": jnp.swapaxes,
        "movedim": jnp.moveaxis,
        "amax": lambda x, dim=None, keepdim=False: jnp.max(x, dim, keepdims=keepdim),
        "amin": lambda x, dim=None, keepdim=False: jnp.min(x, dim, keepdims=keepdim),
        "softmax": lambda x, dim: nn.softmax(x, dim),
        "log_softmax": lambda x, dim: nn.log_softmax(x, dim),
        "logsumexp": lambda x, dim, keepdim=False: nn.logsumexp(x, dim, keepdims=keepdim),
        "logsigmoid": nn.log_sigmoid,
        "unsqueeze": jnp.expand_dims,
        "addcmul": lambda x, a, b, value=1: x + value * a * b,
        "addcdiv": lambda x, a, b, value=1: x + value * a / b,
        "addmm": lambda b, x, y, beta=1, alpha=1: beta * b + alpha * (x @ y),
        "vector_norm": lambda x, ord=2, dim=None: jnp.linalg.norm(x, ord, dim),
        "cross": lambda x, y, dim=-1: jnp.cross(x, y, axis=dim),
        "reshape": lambda x, *shape: x.reshape(*shape),
        "view": lambda x, *shape: x.reshape(*shape),
        "permute": lambda x, *axes: jnp.transpose(x, axes[0] if len(axes) == 1 else axes),
        "flip": lambda x, *axes: jnp.flip(x, axes[0] if len(axes) == 1 else axes),
        "clamp": lambda x, min=None, max=None: jnp.clip(x, min, max),
        "gelu": lambda x, approximate="none": nn.gelu(x, approximate == "tanh"),
        "add": lambda x, y, alpha=1: x + alpha * y,
        "sub": lambda x, y, alpha=1: x - alpha * y,
        "mul": jnp.multiply,
        "div": jnp.divide,
        "bmm": jnp.matmul,
        "mm": jnp.matmul,
        "mv": jnp.matmul,
        "gather": lambda x, dim, index: jnp.take_along_axis(x, index, dim),
        "index_select": lambda x, dim, index: jnp.take(x, index, dim),
        "embedding": lambda ids, table: table[ids],
        "mse_loss": lambda x, y, reduction="mean": _reduced(jnp, (x - y) ** 2, reduction),
        "l1_loss": lambda x, y, reduction="mean": _reduced(jnp, jnp.abs(x - y), reduction),
    }


def _reduced(jnp: Any, values: Any, reduction: str) -> Any:
    return {"mean": jnp.mean, "sum": jnp.sum, "none": jnp.asarray}[reduction](values)
