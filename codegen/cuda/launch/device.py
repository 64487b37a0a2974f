"""What runs compiled kernels: a GPU by way of CuPy, or this CPU by way of its C++ compiler.

A device takes the caller's arrays as they are where it can (anything with `__cuda_array_interface__` or DLPack on the GPU, without a
copy), makes arrays for results and workspace, and launches. CuPy holds the arrays and the stream; the launch itself is the driver's
`cuLaunchKernel`: all arguments are eight bytes wide and go as one block.

A device has one context for all threads, which a thread that has done nothing on it has not made its own: each call makes the function's
device the current one, and puts back the one that was. Arrays of another GPU are refused.

A call waits for nothing: what checks find is read behind it (`reports`). Workspace and results come from CuPy's pool, which gives memory
out again in the order of a stream. A graph runs later, in no such order: memory of calls that are captured stays theirs. What is
used on several streams is kept as long as they use it (`lifetimes`).

`TENSOREXPR_CUDA=host` chooses the CPU, for tests and for looking into a kernel without a GPU; arrays are then NumPy's.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from tensorexpr.codegen.auto.gpus import GpuFacts, facts_of
from tensorexpr.codegen.cuda.emitter.source import Launch, Source
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.cuda.launch.captures import Captures
from tensorexpr.codegen.cuda.launch.lifetimes import Kept, Uses, followed
from tensorexpr.codegen.cuda.launch.reports import CupyPort, Ledger, Pending, Say, checked_class
from tensorexpr.codegen.cuda.launch.run import Ready
from tensorexpr.codegen.cuda.nvidia.nvrtc import Compiled, version
from tensorexpr.codegen.target import code_for
from tensorexpr.errors import InternalError, TargetError, user_location
from tensorexpr.hints import checked
from tensorexpr.records import cached_property, replace

_CHOICE = "TENSOREXPR_CUDA"
_BLOCK, _SIZE, _END = 1, 2, 0
"""The driver's words for a block of arguments, its size, and the end of what is said of them."""
MOST_ASKED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: what a driver wants to be told before a launch asks for more than 48 KiB."""
_LAUNCH: tuple[Any, ...] = (ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
"""What `cuLaunchKernel` takes: the function, blocks, threads, bytes of shared memory, the stream, and two ways to say arguments."""
_INSTALL = "pip install 'tensorexpr[cuda]' (CUDA 13) or 'tensorexpr[cuda12]'"


class Kernels(Protocol):
    """Loaded kernels of one source."""

    def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int]) -> None:
        """Runs a kernel on a grid, after all that was launched before on the same stream."""

    def ready(self, launch: Launch, blocks: tuple[int, int, int], places: Sequence[int], scalars: Sequence[int]) -> Ready:
        """A launch for one thread, to which addresses and a stream are given."""
        ...

    def stream(self) -> int:
        """The stream on which the caller works now."""
        ...


class Device(Protocol):
    """Where kernels run."""

    name: str
    arch: str | None
    """What NVRTC compiles for; None where the text is compiled for a CPU."""

    @property
    def facts(self) -> GpuFacts | None:
        """What schedules and the model of time know of it; None where it is a CPU."""
        ...

    def load(self, source: Source, compiled: Compiled | None) -> Kernels:
        """The kernels of a source, ready for launches."""
        ...

    def entered(self) -> AbstractContextManager[object]:
        """While it lasts this is the current device of the thread: what is allocated and launched is there."""
        ...

    def array(self, value: object) -> Any:
        """An array of this device that shares memory with the caller's, or None where the value is none of its arrays."""
        ...

    def place(self, array: Any) -> str:
        """The name of the device that an array which `array` gave lies on."""
        ...

    def contiguous(self, array: Any) -> Any:
        """The array, or a copy of it in row-major order without gaps."""
        ...

    def copy(self, array: Any) -> Any:
        """A copy in memory of its own, which begins at a multiple of sixteen bytes."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """An array with undefined contents, which begins at a multiple of sixteen bytes."""
        ...

    def upload(self, array: np.ndarray) -> Any:
        """A copy of an array of NumPy's, there for all streams. Raises `TargetError` where the current stream is captured."""
        ...

    def scalar(self, value: np.ndarray) -> Any:
        """An array of one element, there for the current stream; a graph that is captured writes it anew."""
        ...

    def capturing(self, stream: int) -> bool:
        """Whether a stream is captured into a graph."""
        ...

    def address(self, array: Any) -> int:
        """Where the elements of an array begin."""
        ...

    def read(self, array: Any) -> np.ndarray:
        """The contents of an array, once all that was launched before has run."""
        ...

    def report(self, stream: int) -> Report:
        """Where the kernels of a call report, which say nothing yet."""
        ...

    def poll(self, stream: int) -> None:
        """Lets go of what is no longer in use, and raises what checks of earlier calls have found, as far as both are known."""

    def uses(self) -> Using:
        """What notes the streams that a function is launched on."""
        ...

    def keep(self, uses: Any, held: Any) -> None:
        """Keeps what a function that is collected has, until its uses are over."""

    def follow(self, values: Sequence[Any], stream: int, written: bool) -> None:
        """Has other libraries go on with arrays of theirs behind all that a stream was given; `written`: that wrote to them."""

    def settle(self) -> None:
        """Waits for all that was launched, and raises what its checks have found."""

    def checked(self, array: Any, pending: Pending) -> Any:
        """An array that asks whether the call that made it was in bounds before it hands out what it holds."""
        ...


class Using(Protocol):
    """What notes where a function is used."""

    def on(self, stream: int) -> None:
        """Behind launches on the current stream."""


class Report(Protocol):
    """Where the kernels of one call report."""

    address: int

    def sent(self, say: Say) -> Pending | None:
        """Behind the launches: the report under way, or None where it is read already. Raises what it says then."""
        ...

    def dropped(self) -> None:
        """Gives its place back where launches failed."""


class _ReadLater:
    """A report that is on its way to the host when a call returns."""

    def __init__(self, ledger: Ledger, stream: int) -> None:
        self._ledger, self._stream = ledger, stream
        self._slot = ledger.open(stream)
        self.address = ledger.address(self._slot)

    def sent(self, say: Say) -> Pending | None:
        return self._ledger.close(self._slot, self._stream, say)

    def dropped(self) -> None:
        self._ledger.drop(self._slot)


class CupyDevice:
    """The current GPU of CuPy, its current stream and memory pool."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        name = "libcuda.so.1" if os.name != "nt" else "nvcuda.dll"
        try:
            self._driver = ctypes.CDLL(name)
        except OSError:
            raise TargetError(f"expected the driver of the GPU that CuPy finds, {name}, to be loaded, got none") from None
        self._driver.cuLaunchKernel.argtypes = _LAUNCH  # numbers go as they are
        self._driver.cuFuncSetAttribute.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
        self._captures = Captures(self._driver, cupy.cuda.runtime)
        device = cupy.cuda.Device()
        self.arch: str | None = code_for(device.compute_capability)
        self.number = int(device.id)
        self.name = f"cuda:{self.number}"
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._checked: type | None = None
        self._kept = Kept(self._captures)

    @cached_property
    def facts(self) -> GpuFacts:
        """What is known of GPUs of this name or architecture, with the multiprocessors and the second cache that this one has."""
        assert self.arch is not None
        about = self._cupy.cuda.runtime.getDeviceProperties(self.number)
        found = facts_of(self.arch, about["name"].decode())
        return replace(found, cores=int(about["multiProcessorCount"]), l2_bytes=int(about["l2CacheSize"]))

    def load(self, source: Source, compiled: Compiled | None) -> Kernels:
        assert compiled is not None
        if any(launch.reports for launch in source.launches):
            self._reports()  # memory for them now: a call may stand in a capture, where there is none to be had
        return _CupyKernels(self._cupy, self._driver, source, compiled)

    def array(self, value: Any) -> Any:
        cupy = self._cupy
        if isinstance(value, cupy.ndarray):
            return value
        # DLPack first: it makes the current stream wait for the producer's. What PyTorch says by the other interface names no stream.
        if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
            kind, _ = value.__dlpack_device__()
            return cupy.from_dlpack(value) if kind in (2, 13) else None  # kDLCUDA, kDLCUDAManaged
        if hasattr(value, "__cuda_array_interface__"):
            return cupy.asarray(value)
        return None

    @contextmanager
    def entered(self) -> Iterator[None]:
        runtime = self._cupy.cuda.runtime
        before = runtime.getDevice()
        if before != self.number or not getattr(self._of_thread, "known", False):
            runtime.setDevice(self.number)
            with self._captures.beside():
                runtime.free(0)  # does nothing but make the context of the device that of the thread
            self._of_thread.known = True
        try:
            yield
        finally:
            if before != self.number:
                runtime.setDevice(before)

    def place(self, array: Any) -> str:
        return f"cuda:{array.data.device_id}" if array.nbytes else self.name

    def contiguous(self, array: Any) -> Any:
        return array if array.flags.c_contiguous else self._cupy.ascontiguousarray(array).reshape(array.shape)

    def copy(self, array: Any) -> Any:
        return array.copy()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return self._cupy.empty(shape, dtype)

    def upload(self, array: np.ndarray) -> Any:
        if array.dtype.kind == "V":
            # No type of NumPy's own, such as bfloat16: CuPy 14 has arrays of it, but does not take it from NumPy everywhere.
            return self.upload(array.view(f"u{array.dtype.itemsize}")).view(array.dtype)
        stream = self._cupy.cuda.get_current_stream()
        if self.capturing(int(stream.ptr)):
            raise TargetError(
                "expected arrays that lie on the GPU while a stream is captured, got one of NumPy's to be copied there",
                location=user_location(),
                hint="cupy.asarray(...) before the capture; a first call of the same kind compiles, and uploads constants",
            )
        made = self._cupy.asarray(np.ascontiguousarray(array)).reshape(array.shape)
        stream.synchronize()  # the copy is one of the current stream, and others may read the array next
        return made

    def scalar(self, value: np.ndarray) -> Any:
        if value.dtype.kind == "V":
            return self.scalar(value.view(f"u{value.dtype.itemsize}")).view(value.dtype)
        made = self._cupy.empty(value.shape, value.dtype)
        made.fill(value.item())  # by a kernel that has it as an argument: memory of the host may hold something else when a graph runs
        return made

    def capturing(self, stream: int) -> bool:
        return self._captures.taking(stream)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def read(self, array: Any) -> np.ndarray:
        copied: np.ndarray = self._cupy.asnumpy(array)
        return copied

    def _reports(self) -> Ledger:
        """The reports of this device."""
        with self._lock:
            if self._ledger is None:
                self._ledger = Ledger(CupyPort(self._cupy, self._captures))
                self._checked = checked_class(self._cupy.ndarray)
                atexit.register(self._farewell)
            return self._ledger

    def _farewell(self) -> None:
        """Says of this device, whichever is current when the process ends, what nobody asked for."""
        assert self._ledger is not None
        with suppress(Exception), self.entered():  # the device may be gone by then
            self._ledger.farewell()

    def report(self, stream: int) -> Report:
        return _ReadLater(self._ledger or self._reports(), stream)

    def poll(self, stream: int) -> None:
        self._kept.sweep()
        if self._ledger is not None:
            self._ledger.poll(stream)

    def uses(self) -> Using:
        return Uses(self._cupy, self._captures)

    def keep(self, uses: Any, held: Any) -> None:
        self._kept.add(uses, held)

    def follow(self, values: Sequence[Any], stream: int, written: bool) -> None:
        theirs = [value for value in values if not isinstance(value, self._cupy.ndarray) and not isinstance(value, bool | int | float)]
        silent = followed(self._cupy.cuda, self._captures, theirs, stream) if theirs else []
        if not silent or self.capturing(stream):
            return
        if written:
            self._cupy.cuda.get_current_stream().synchronize()
            return
        uses = Uses(self._cupy, self._captures)
        uses.on(stream)
        uses.over()
        self._kept.add(uses, silent)

    def settle(self) -> None:
        with self.entered():
            try:
                if self._ledger is None:
                    self._cupy.cuda.runtime.deviceSynchronize()
                else:
                    self._ledger.settle()
            finally:
                self._kept.sweep()

    def checked(self, array: Any, pending: Pending) -> Any:
        assert self._checked is not None
        made = self._checked(array.shape, array.dtype, array.data)
        made.pending = pending
        return made


class _CupyKernels:
    """A cubin loaded into the current context."""

    def __init__(self, cupy: Any, driver: ctypes.CDLL, source: Source, compiled: Compiled) -> None:
        self._stream = cupy.cuda.get_current_stream
        self._driver = driver
        self._module = cupy.cuda.function.Module()
        try:
            self._module.load(compiled.cubin)
        except cupy.cuda.driver.CUDADriverError as error:
            raise TargetError(
                f"expected a driver that loads code of NVRTC {'.'.join(map(str, version()))} for {compiled.arch}, got one that refuses it",
                at=str(error),
                hint="a newer driver, or tensorexpr[cuda12], whose NVRTC is older",
            ) from None
        self._functions = {name: self._module.get_function(name) for name in compiled.resources}
        for launch in source.launches:
            status = launch.shared and driver.cuFuncSetAttribute(self._functions[launch.kernel].ptr, MOST_ASKED, launch.shared)
            if status:
                raise self._failure(f"expected {launch.shared} bytes of shared memory for {launch.kernel}", status)

    def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int]) -> None:
        self.ready(launch, blocks, range(len(arguments)), ())(arguments, self.stream())

    def stream(self) -> int:
        return int(self._stream().ptr)

    def ready(self, launch: Launch, blocks: tuple[int, int, int], places: Sequence[int], scalars: Sequence[int]) -> Ready:
        # One block of arguments, eight bytes each, as the parameter table of the cubin has them; the driver copies it. Scalars stay
        # in it, behind the buffers and before the report.
        places, count = list(places), len(places) - launch.reports
        values = ctypes.create_string_buffer(max(8, 8 * (len(places) + len(scalars))))
        size = ctypes.c_size_t(8 * (len(places) + len(scalars)))
        packed = (ctypes.c_void_p * 5)(_BLOCK, ctypes.addressof(values), _SIZE, ctypes.addressof(size), _END)
        held = (values, size)  # which `packed` has by address alone
        run, function = self._driver.cuLaunchKernel, self._functions[launch.kernel].ptr
        grid = (*blocks, *launch.threads, launch.shared)
        struct.pack_into(f"{len(scalars)}q", values, 8 * count, *scalars)
        pack, report = struct.Struct(f"{count}q").pack_into, struct.Struct("q").pack_into
        # Of one place an item getter gives the address alone, of several a tuple.
        buffers = itemgetter(*places[:count]) if count > 1 else lambda addresses: [addresses[k] for k in places[:count]]

        def launched(addresses: Sequence[int], stream: int) -> None:
            pack(held[0], 0, *buffers(addresses))
            if launch.reports:
                report(held[0], 8 * (count + len(scalars)), addresses[places[-1]])
            status = run(function, *grid, stream, None, packed)
            if status:
                raise self._failure(f"the launch of {launch.kernel} with {' x '.join(map(str, blocks))} blocks failed", status)

        return launched

    def _failure(self, what: str, status: int) -> InternalError:
        text = ctypes.c_char_p()
        self._driver.cuGetErrorString(status, ctypes.byref(text))
        return InternalError(f"cuda: {what}: {(text.value or b'?').decode()}")


@cache
def _host() -> HostDevice:
    return HostDevice()


_devices: dict[int, CupyDevice] = {}


@checked()
def synchronize() -> None:
    """Waits for all that compiled functions have launched on GPUs, and raises the first `OutOfBoundsError` that their checks have found.

    Calls do not wait: what a check finds is raised by `te.synchronize()`, by the next call on that GPU, or when a result is copied to the
    host or handed to another library. On a CPU a call raises its error itself, and there is nothing to wait for.

    >>> te.synchronize()
    """
    for device in list(_devices.values()):
        device.settle()


def current_device() -> Device:
    """The device that code for the target "cuda" runs on. Raises `TargetError` that says what is missing."""
    choice = os.environ.get(_CHOICE, "").strip()
    if choice == "host":
        return _host()
    if choice:
        raise TargetError(f"{_CHOICE}: expected nothing or 'host', got {choice!r}", location=user_location())
    try:
        import cupy  # noqa: PLC0415 -- half a second, and an extra
    except ImportError:
        raise TargetError(
            "expected a target that this machine has, got 'cuda': CuPy is not installed", location=user_location(), hint=_INSTALL
        ) from None
    if not cupy.cuda.is_available():
        raise TargetError(
            "expected a target that this machine has, got 'cuda': CuPy finds no GPU (no driver, or no device)",
            location=user_location(),
            hint="target='cpu', or TENSOREXPR_CUDA=host to run kernels on the CPU",
        )
    number = cupy.cuda.runtime.getDevice()
    if number not in _devices:
        _devices.setdefault(number, CupyDevice(cupy))  # of two threads the first one's: it is that which `synchronize` settles
    return _devices[number]  # pyright: ignore[reportReturnType] whose facts are a property that is kept
