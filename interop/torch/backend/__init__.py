"""`torch.compile(model, backend="tensorexpr")`: graphs of PyTorch as programs of ours, for inference and for training.

    model = torch.compile(model, backend="tensorexpr")
    model(x).square().mean().backward()

The backend is found by name (an entry point of this package). What happens, a page each:

- `graphs`: AOTAutograd gives a forward and a backward graph of functional ATen operators; random numbers are made ready. `lists`:
  operators on lists of tensors are taken apart.
- `regions`: what has a definition becomes regions, as few as can be, usually one; PyTorch runs the rest, and one line of the logger
  `tensorexpr.torch` says so. `cuts`: a backward graph is cut where little passes, so that what was saved is freed on the way.
- `lowering`: a region is composed by the definitions of the `table` (a page per family in `aten/`) and compiled as one program; ops of
  ours in the model are composed with what surrounds them. `sizes`: open extents, and how tensors lie in memory.
- `calls`: regions run on torch's memory, without Python in between where extents are fixed.

`options={"fallback": False}` makes it an error that PyTorch would have to run an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import suggestion
from tensorexpr.interop.torch.backend import aten
from tensorexpr.interop.torch.backend.graphs import through_autograd
from tensorexpr.interop.torch.backend.sizes import settle_signs
from tensorexpr.interop.torch.backend.table import TABLE
from tensorexpr.op.operation import for_every_op

_OPTIONS = ("fallback",)


def backend(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None, **others: Any
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo's: what `torch.compile(..., backend="tensorexpr")` calls.

    `options`: "fallback" (True): whether PyTorch runs what we have no definition of, or it is an error. `mode` has no meaning here.
    Raises `ArgumentError` for other options.
    """
    given = {**(options or {}), **others}
    for name in given:
        if name not in _OPTIONS:
            raise ArgumentError(
                f"torch.compile: backend tensorexpr: expected options among {', '.join(_OPTIONS)}, got {name!r}",
                location=user_location(),
                hint=suggestion(name, _OPTIONS),
            )
    settle_signs(inputs)
    return through_autograd(module, inputs, strict=not given.get("fallback", True))


for_every_op(torch.compiler.allow_in_graph)  # an op called on tensors in a model is a node of its graph

__all__ = ["TABLE", "aten", "backend"]
