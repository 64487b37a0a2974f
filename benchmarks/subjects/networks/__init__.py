"""Whole networks beside their peers, a process for each: `python -m tensorexpr bench models`.

`times` is what a call takes, and whether it is right, `memory` its peak (`--memory`), `first` what a backend adds to the first call with
empty caches (`--first`), `onnx` what is exported to ONNX beside onnxruntime (`--onnx`). The networks are those of `benchmarks.networks`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

NETWORKS = "tensorexpr.benchmarks.networks"
BACKENDS = ("eager", "inductor", "tensorexpr")


def result_of(found: Any) -> Any:
    """The tensor that a network computes: its logits, where it gives several things."""
    return found.logits if hasattr(found, "logits") else found


def loss_of(found: Any) -> Any:
    """What is differentiated: the loss of the network's own, or the mean of squares."""
    own = getattr(found, "loss", None)
    return result_of(found).square().mean() if own is None else own


def calls_of(torch: Any, network: Any, call: Any, arguments: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Inference and a training step: functions without arguments that give tensors."""

    def inference() -> list[Any]:
        network.eval()
        with torch.no_grad():
            return [result_of(call(**arguments))]

    def training() -> list[Any]:
        network.train()
        network.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        loss = loss_of(call(**arguments))
        loss.backward()
        return [loss.detach(), *(p.grad for p in network.parameters() if p.grad is not None)]

    return {"inference": inference, "training": training}


def chosen(parts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The networks whose names have one of `parts` in them, and those among them that need a package that is not installed."""
    full = importlib.import_module(NETWORKS).FULL
    names = [name for name in full if not parts or any(part.lower() in name for part in parts)]
    there = importlib.util.find_spec("transformers") is not None
    absent = [name for name in names if full[name][0].startswith("language") and not there]
    return [name for name in names if name not in absent], absent
