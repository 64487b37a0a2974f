"""The candidates of the GPU benchmark beside ours, their clock, and the results that ours are compared with.

All share one GPU and its memory: each library is kept from taking all of it, and gives back what it holds between rows. Products of
float32 are in full everywhere unless the workload asks for TF32: PyTorch's convolutions and JAX's products round by default.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorexpr.benchmarks import peers
from tensorexpr.benchmarks.gpu.workloads import Workload
from tensorexpr.codegen.cuda.launch.device import Device

PACKAGES = {
    "torch": "torch", "torch.compile": "torch", "deterministic": "torch", "jax": "jax", "cupy": "cupy", "triton": "triton",
}  # fmt: skip
"""What each peer needs; "deterministic" is PyTorch in its deterministic mode, where a gradient scatters."""
ENVIRONMENT = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # which PyTorch's deterministic mode wants
}

AGAIN = 75
"""The status of a process that is to be started again, and goes on behind what ended it."""
GRACE = 10.0
"""Seconds for what can not be broken off: a compilation, a launch that is waited for."""
Call = Callable[[], Any]


class Clock:
    """Seconds that calls take on a device."""

    def __init__(self, device: Device) -> None:
        self._cupy = None if device.arch is None else importlib.import_module("cupy")

    def synchronize(self) -> None:
        """Waits for all that was launched."""
        if self._cupy is not None:
            self._cupy.cuda.runtime.deviceSynchronize()

    def seconds(self, call: Call, repeats: int) -> float:
        """Of one call, over so many in a row."""
        if self._cupy is None:
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            return (time.perf_counter() - start) / repeats
        before, after = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        self.synchronize()
        before.record()
        for _ in range(repeats):
            call()
        after.record()
        self.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(before, after)) * 1e-3 / repeats


def installed(name: str) -> bool:
    """Whether a peer is there."""
    return importlib.util.find_spec(PACKAGES[name]) is not None


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` in the main thread once Python runs again after so many seconds. Where it does not within `GRACE` more, as
    behind threads of a kernel that wait for each other in vain, the process ends with `AGAIN`."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds:g} seconds")

    def lost() -> None:
        print(f"more than {seconds + GRACE:g} seconds, and nothing comes back: this process ends", file=sys.stderr, flush=True)
        os._exit(AGAIN)

    before, end = signal.signal(signal.SIGALRM, late), threading.Timer(seconds + GRACE, lost)
    end.daemon = True
    end.start()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        end.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def free() -> None:
    """Has the libraries that are loaded give back what memory of the GPU they hold and do not use."""
    if (cupy := sys.modules.get("cupy")) is None:
        return
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def candidate(
    name: str, load: Workload, arrays: Sequence[np.ndarray], head: np.ndarray | None, there: Sequence[Any], device: Device
) -> Call | None:
    """A call of a peer, or None where it has not got the operation."""
    spec = load.spec
    if name == "jax":
        return _jax(load, arrays, head)
    if name == "cupy":
        functions = {**peers.module("numpy").FUNCTIONS, "copy": lambda x: x.copy(), "transpose": lambda x: x.T.copy()}
        if device.arch is None or head is not None or spec.key not in functions:
            return None
        return functools.partial(functions[spec.key], *there, **spec.static)
    if name == "deterministic":
        return _deterministic(load, arrays, head) if load.scatters and head is not None else None
    functions = peers.module("triton").functions(load.precision) if name == "triton" else _torch_functions()
    return through_torch(load, arrays, head, functions, compiled=name == "torch.compile")


def _torch_functions() -> dict[str, Callable[..., Any]]:
    import torch  # noqa: PLC0415 -- seconds, and not there everywhere

    return {**peers.module("torch").FUNCTIONS, "copy": torch.clone, "transpose": lambda x: x.t().contiguous()}


def _tensor(array: np.ndarray, wide: bool = False) -> Any:
    """On PyTorch's GPU, or on the CPU where it has none; `wide`: floats in float64."""
    import torch  # noqa: PLC0415 -- as above

    is_float = array.dtype.kind not in "iub"
    brain = array.dtype.name == "bfloat16"
    made = torch.from_numpy(array.astype(np.float32) if brain else array).to("cuda" if torch.cuda.is_available() else "cpu")
    if wide and is_float:
        return made.to(torch.float64)
    return made.to(torch.bfloat16) if brain else made


def through_torch(
    load: Workload, arrays: Sequence[np.ndarray], head: np.ndarray | None, functions: dict[str, Callable[..., Any]],
    *, compiled: bool = False, wide: bool = False,
) -> Call | None:  # fmt: skip
    """A function of tensors of PyTorch, and its gradients by autograd: a tuple of tensors."""
    import torch  # noqa: PLC0415 -- as above

    spec = load.spec
    if spec.key not in functions or spec.key.endswith("_nhwc"):
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = load.precision == "tf32" and not wide
    given = [_tensor(a, wide) for a in arrays]
    function: Callable[..., Any] = functools.partial(functions[spec.key], **spec.static)
    if compiled:
        torch._dynamo.reset()  # else the ninth function of a kind is left as it is
        eager = functions[spec.key]
        function = torch.compile(lambda *tensors: eager(*tensors, **spec.static), dynamic=False)
    if head is None:

        def forward() -> Any:
            with torch.no_grad():
                return (function(*given),)

        return forward
    floating = [t.requires_grad_() for t in given if t.is_floating_point()]
    seed = _tensor(head, wide)

    def both() -> Any:
        output = function(*given)
        return (output.detach(), *torch.autograd.grad(output, floating, seed))

    return both


def _deterministic(load: Workload, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Call | None:
    import torch  # noqa: PLC0415 -- as above

    call = through_torch(load, arrays, head, _torch_functions())
    if call is None:
        return None

    def same_bits() -> Any:
        torch.use_deterministic_algorithms(True)
        try:
            return call()
        finally:
            torch.use_deterministic_algorithms(False)

    return same_bits


def _jax(load: Workload, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Call | None:
    if load.spec.key in ("copy", "transpose"):
        return None
    import jax  # noqa: PLC0415 -- as above

    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if load.precision == "tf32" else "highest")
    made = peers.maker("jax", load.spec, arrays, head)
    return None if made is None else made()


def error(load: Workload, arrays: Sequence[np.ndarray], head: np.ndarray | None, results: Sequence[Any], device: Device) -> float:
    """The largest difference of our results from float64's, relative to the largest magnitude of each; NaN where there is one."""
    given, seed = list(arrays), head
    if load.checked is not None:
        given[0], seed = given[0][: load.checked], None if head is None else head[: load.checked]
    call = through_torch(load, given, seed, _torch_functions(), wide=True)
    if call is None:
        raise LookupError("PyTorch has no such operation")
    wanted = call()
    if load.checked is not None:  # the first input's gradient, and none that other rows add to
        wanted = wanted[:2]
    worst = 0.0
    for found, expected in zip(results, wanted, strict=load.checked is None):
        read = device.read(found if load.checked is None else found[: load.checked])
        difference = (_tensor(read, wide=True) - expected).abs().max()
        scale = float(expected.abs().max()) or 1.0
        relative = float(difference) / scale
        worst = relative if relative != relative else max(worst, relative)
    return worst
