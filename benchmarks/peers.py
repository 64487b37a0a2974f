"""The peers that are installed here, each as functions of NumPy arrays' contents: forward, and forward with gradient.

What must be converted (tensors of torch, arrays of JAX) is converted once, outside of what is timed, and results stay where
they are; JAX's are waited for. Gradients are those of sum(output * head) by every floating input, with the output itself, as
a training step needs both.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.workloads import Spec

Candidate = Callable[[], Any]
PEERS = ("numpy", "torch", "torch.compile", "jax", "numba", "keops")


def versions() -> dict[str, str | None]:
    """The version of every peer, None where it is not installed."""
    found: dict[str, str | None] = {}
    for name, package in (("numpy", "numpy"), ("torch", "torch"), ("jax", "jax"), ("numba", "numba"), ("keops", "pykeops")):
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def candidates(spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None, wanted: Sequence[str]) -> dict[str, Candidate]:
    """Ours first, then every wanted peer that is installed and has the operation; with a head: forward and gradient."""
    found = {"tensorexpr": ours(spec, arrays, head)}
    for name in wanted:
        text = getattr(spec, name.split(".")[0])
        if text is None or versions()[name.split(".")[0]] is None:
            continue
        made = _MAKERS[name](text, arrays, head)
        if made is not None:
            found[name] = made
    return found


def ours(spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Candidate:
    """The compiled operation, or the compiled pair of output and gradients."""
    if head is None:
        return functools.partial(spec.op.compile(*arrays, **spec.static), *arrays)
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(arrays)]
    output = spec.op(*inputs, **spec.static)
    given = te.placeholder(head.shape, head.dtype.name, name="head")
    gradients = te.gradient(output, [t for t in inputs if t.dtype.is_float], given)
    return functools.partial(te.build([output, *gradients], [*inputs, given]), *arrays, head)


def _numpy(text: str, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Candidate | None:
    return None if head is not None else functools.partial(eval(text, {"np": np}), *arrays)


def _torch(text: str, arrays: Sequence[np.ndarray], head: np.ndarray | None, compiled: bool = False) -> Candidate | None:
    import torch  # noqa: PLC0415

    def border(v: Any) -> Any:
        """1 on the border, 0 inside."""
        inside = torch.ones_like(v)
        inside[1:-1, 1:-1] = 0
        return inside

    function = eval(text, {"torch": torch, "F": torch.nn.functional, "functools": functools, "border": border})
    if compiled:
        function = torch.compile(function)
    given = [torch.from_numpy(a) for a in arrays]
    if head is None:

        def forward() -> Any:
            with torch.no_grad():
                return function(*given)

        return forward
    floating = [t.requires_grad_() for t in given if t.is_floating_point()]
    seed = torch.from_numpy(head)

    def both() -> Any:
        output = function(*given)
        return (output.detach(), *torch.autograd.grad(output, floating, seed))

    return both


def _jax(text: str, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Candidate:
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415

    function = eval(text, {"jax": jax, "jnp": jnp})
    given = [jnp.asarray(a) for a in arrays]
    if head is None:
        forward = jax.jit(function)
        return lambda: jax.block_until_ready(forward(*given))
    floating = tuple(k for k, a in enumerate(arrays) if a.dtype.kind == "f")
    seed = jnp.asarray(head)

    @jax.jit
    def both(*inputs: Any) -> Any:
        def of(*moved: Any) -> Any:
            full = list(inputs)
            for position, value in zip(floating, moved, strict=True):
                full[position] = value
            return function(*full)

        output, pull = jax.vjp(of, *(inputs[k] for k in floating))
        return (output, *pull(seed))

    return lambda: jax.block_until_ready(both(*given))


def _numba(text: str, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Candidate | None:
    if head is not None:
        return None
    names: dict[str, Any] = {"np": np}
    exec(text, names)
    return functools.partial(names["f"], *arrays)


def _keops(text: str, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Candidate | None:
    import torch  # noqa: PLC0415
    from pykeops.torch import LazyTensor  # noqa: PLC0415

    function = eval(text, {"torch": torch, "LazyTensor": LazyTensor})
    given = [torch.from_numpy(a) for a in arrays]
    if head is None:
        return lambda: function(*given)
    floating = [t.requires_grad_() for t in given]
    seed = torch.from_numpy(head)

    def both() -> Any:
        output = function(*given)
        return (output.detach(), *torch.autograd.grad(output, floating, seed))

    return both


_MAKERS: dict[str, Callable[[str, Sequence[np.ndarray], np.ndarray | None], Candidate | None]] = {
    "numpy": _numpy,
    "torch": _torch,
    "torch.compile": functools.partial(_torch, compiled=True),
    "jax": _jax,
    "numba": _numba,
    "keops": _keops,
}
