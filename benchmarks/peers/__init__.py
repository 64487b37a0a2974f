"""The peers that are installed here, each as functions of NumPy arrays' contents: forward, and forward with gradient.

A module per peer, imported where the peer is installed and asked for. Its table `FUNCTIONS` goes by the keys of the workloads;
its `candidate` makes a call of no arguments. What must be converted (tensors of torch, arrays of JAX, buffers of Halide, weights
in a library's own layout) is converted once, outside of what is timed, and results stay where they are; JAX's are waited for.
Gradients are those of sum(output * head) by every floating input, with the output itself, as a training step needs both.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.spec import Spec

Candidate = Callable[[], Any]

PACKAGES = {
    "numpy": "numpy", "torch": "torch", "torch.compile": "torch", "jax": "jax", "numba": "numba", "keops": "pykeops", "halide": "halide",
}  # fmt: skip
PEERS = tuple(PACKAGES)
OURS = "tensorexpr"


def versions() -> dict[str, str | None]:
    """The version of every peer's package, None where it is not installed."""
    found: dict[str, str | None] = {}
    for package in dict.fromkeys(PACKAGES.values()):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def missing(wanted: Sequence[str]) -> list[str]:
    """The wanted peers that are not installed."""
    found = versions()
    return [name for name in wanted if found[PACKAGES[name]] is None]


def module(name: str) -> Any:
    """The module of an installed peer."""
    return importlib.import_module(f"tensorexpr.benchmarks.peers.with_{name.split('.')[0]}")


def lacking(name: str, spec: Spec, gradient: bool) -> str | None:
    """Why a peer is not measured on a workload: it has not got the operation, or is not meant for it; None where it is."""
    if name == OURS or module(name).has(spec.key, spec.static, gradient):
        return None
    left: Sequence[str] = getattr(module(name), "LEFT_TO_LIBRARIES", ())
    return "left to libraries" if spec.key in left else "has not got it"


def maker(name: str, spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Callable[[], Candidate] | None:
    """What builds a candidate: ours, or an installed peer's; None where the peer has not got the operation, or not its gradient."""
    if name == OURS:
        return lambda: ours(spec, arrays, head)
    if lacking(name, spec, head is not None):
        return None
    room = module(name)
    options = {"compiled": True} if name == "torch.compile" else {}
    return lambda: room.candidate(spec.key, spec.static, arrays, head, **options)


def candidates(spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None, wanted: Sequence[str]) -> dict[str, Candidate]:
    """Ours first, then every wanted peer that is installed and has the operation; with a head: forward and gradient."""
    makers = {name: maker(name, spec, arrays, head) for name in (OURS, *wanted) if name == OURS or name not in missing(wanted)}
    return {name: make() for name, make in makers.items() if make is not None}


def ours(spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Candidate:
    """The compiled operation, or the compiled pair of output and gradients."""
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(arrays)]
    output = spec.op(*inputs, **spec.static)
    if head is None:
        return functools.partial(te.build(output, inputs), *arrays)
    given = te.placeholder(head.shape, head.dtype.name, name="head")
    gradients = te.gradient(output, [t for t in inputs if t.dtype.is_float], given)
    return functools.partial(te.build([output, *gradients], [*inputs, given]), *arrays, head)
