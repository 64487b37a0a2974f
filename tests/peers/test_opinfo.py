"""PyTorch's own table of operators and samples (OpInfo), in float64: the kernel of the name, called as PyTorch is called.

Of each operator some samples are taken, spread over all it has. Results that are drawn at random, and positions where values are equal,
are not compared. `PARTLY` names the operators that refuse some of their samples, with what these ask for; no value may be wrong.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest

from tensorexpr import kernels

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")
pytest.importorskip("expecttest", reason="expecttest, which PyTorch's table needs, is not installed (make test-peers installs it)")

from tensorexpr.errors import ArgumentError  # noqa: E402
from tensorexpr.interop.torch import as_torch  # noqa: E402

SAMPLES = 5
ROOMS = ("nn.functional.", "special.", "linalg.")
OTHERS = {"unfold", "linalg.norm", "linalg.vander", "allclose", "histogram"}
"""Operators whose name a kernel has that is another of PyTorch's: `nn.functional.unfold`, `torch.norm`, `torch.vander`, and NumPy's
`histogram`, which counts in integers; one that gives no tensor but Python's bool."""
PARTLY = {
    **dict.fromkeys(("full_like", "ones_like", "zeros_like"), "a device"),
    "gradient": "coordinates in place of spacings",
    "linalg.matrix_power": "an inverse",
    "nn.functional.batch_norm": "a vector of no elements",
    "nn.functional.ctc_loss": "lengths in a list",
}
UNTIED = {"argsort", "cummax", "cummin", "kthvalue", "median", "mode", "sort", "topk"}
"""Where only values are compared: PyTorch does not say which of equal elements it takes."""
LEAST = 333


def own_name(name: str) -> str:
    return next((name.removeprefix(room) for room in ROOMS if name.startswith(room)), name)


@functools.cache
def operators() -> dict[str, Any]:
    """The entries by PyTorch's name, the first of each."""
    frozen = torch.backends.flags_frozen()
    op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    if not frozen:  # PyTorch's own tests may not set flags; those beside these do
        torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
    found: dict[str, Any] = {}
    for info in op_db:
        known = "." not in own_name(info.name) and own_name(info.name) in kernels.__all__ and info.name not in OTHERS
        if known and torch.float64 in info.supported_dtypes("cpu"):
            found.setdefault(info.name, info)
    return found


def fixed(value: Any) -> Any:
    """An argument in float64 where it is of a narrower type: weights and lengths, which no sample is to be rounded by."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype == torch.float32 else value
    return tuple(value) if isinstance(value, torch.Size) else value


def called(name: str, first: Any, rest: list[Any]) -> list[Any]:
    """The arguments in PyTorch's order, where the table has another, and tensors as one argument where PyTorch takes any number."""
    if name in ("where", "embedding", "embedding_bag"):
        return [rest[0], first, *rest[1:]]
    if name in ("atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "cartesian_prod", "meshgrid") and (
        rest or isinstance(first, (list, tuple))
    ):
        return [(*(first if isinstance(first, (list, tuple)) else [first]), *rest)]
    return [first, *rest]


def several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def spread(samples: list[Any]) -> list[Any]:
    last = len(samples) - 1
    return [samples[k * last // (SAMPLES - 1)] for k in range(SAMPLES)] if len(samples) > SAMPLES else samples


def tried(name: str, info: Any) -> tuple[int, list[str]]:
    """How many samples are right, and the refusals of others; a value that is wrong fails."""
    own = own_name(name)
    function: Callable[..., Any] = as_torch(getattr(kernels, own))
    right, refused = 0, []
    drawn = [s for s in info.sample_inputs("cpu", torch.float64, requires_grad=False) if not s.kwargs.get("dropout_p")]
    for sample in spread(drawn):
        arguments, named = list(map(fixed, sample.args)), {key: fixed(value) for key, value in sample.kwargs.items()}
        wanted = several(info.op(sample.input, *arguments, **named))
        try:
            found = several(function(*called(own, sample.input, arguments), **named))
        except ArgumentError as error:
            refused.append(error.message)
            continue
        assert len(found) == len(wanted) or own == "batch_norm", f"{len(found)} results for {len(wanted)}"
        for a, b in zip(found, wanted, strict=False):
            if b.is_floating_point() or own not in UNTIED:
                torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)
        right += 1
    return right, refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(operators()))
def test_an_operator_of_pytorch(name: str) -> None:
    right, refused = tried(name, operators()[name])
    assert right
    if name not in PARTLY:
        assert refused == []


def test_how_many_there_are() -> None:
    assert len(operators()) - len(PARTLY) >= LEAST
    assert PARTLY.keys() <= operators().keys()
