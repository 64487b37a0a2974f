"""Kernels as custom calls of XLA: the handlers registered with JAX, and how long what they run is kept.

`kernel_of(function)` gives a compiled function a record that the handlers find by its number (`handler_text`). Equal kernels
share one. A record stays as long as someone holds its `Kernel` (JAX does from lowering to compiling) or an executable of XLA uses
it, whoever is the last; XLA's executables may outlive every object in Python. Records that were in use when their `Kernel` died
are looked at again when the next one is made.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import weakref
from functools import cache
from typing import Any

import jax

from tensorexpr.codegen.function import CompiledFunction
from tensorexpr.codegen.llvm import NativeModule, host
from tensorexpr.errors import TargetError, user_location
from tensorexpr.interop.jax.handler_text import RECORD, SIZES, SYMBOLS, TARGET, TYPE, handler_text
from tensorexpr.ir import Program
from tensorexpr.text import print_program

_WORDS = len(RECORD)
_OLDEST = (0, 10)  # whose FFI keeps states for executables


class _TypeInfo(ctypes.Structure):
    """XLA_FFI_TypeInfo."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Kernel:
    """A kernel that XLA can call: `number` is what names it in programs of XLA, `function` the compiled function."""

    def __init__(self, number: int, function: CompiledFunction) -> None:
        self.number = number
        self.function = function


class _Handlers:
    """The handlers in this process, registered with JAX, and the records of their kernels."""

    def __init__(self) -> None:
        if jax.__version_info__ < _OLDEST:
            raise TargetError(
                f"tensorexpr.interop.jax: expected jax {'.'.join(map(str, _OLDEST))} or newer, got {jax.__version__}",
                location=user_location(),
                hint="pip install --upgrade 'tensorexpr[jax]'",
            )
        libc = ctypes.CDLL(None)
        imports = {name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0 for name in SYMBOLS}
        self._module = NativeModule.compiled(handler_text(host().triple), host(), "registers", imports)
        # XLA keeps the addresses for as long as the process lives.
        self._module.keep_forever()
        address = self._module.address
        self._add = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("te_jax_add"))
        self._open = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("te_jax_open"))
        self._close = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address("te_jax_close"))
        self._lock = threading.RLock()
        self._kernels: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()
        self._open_records: dict[int, tuple[Any, Any]] = {}  # by number: the record, and what it refers to
        self._orphans: dict[int, None] = {}  # numbers of open records whose kernel died
        self._closed: list[Any] = []
        self._type_info = _TypeInfo(SIZES["XLA_FFI_TypeInfo"], None, address("te_jax_delete"))
        pointer = ctypes.c_void_p
        registration = {
            "type_id": jax.ffi.pycapsule(pointer(ctypes.CFUNCTYPE(ctypes.c_void_p)(address("te_jax_type"))())),
            "type_info": jax.ffi.pycapsule(pointer(ctypes.addressof(self._type_info))),
        }
        jax.ffi.register_ffi_type(TYPE, registration, platform="cpu")  # type: ignore[arg-type]
        stages = {name: jax.ffi.pycapsule(pointer(address(f"te_jax_{name}"))) for name in ("instantiate", "execute")}
        jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")

    def kernel(self, number: int, function: CompiledFunction, messages: list[bytes]) -> Kernel:
        """The kernel of a number, made for a function where there is none."""
        with self._lock:
            found = self._kernels.get(number)
            if found is None:
                self._sweep()
                self._orphans.pop(number, None)
                if number not in self._open_records:
                    self._open_records[number] = self._record(number, function, messages)
                found = self._kernels[number] = Kernel(number, function)
                weakref.finalize(found, self._died, number).atexit = False
            return found

    def _record(self, number: int, function: CompiledFunction, messages: list[bytes]) -> tuple[Any, Any]:
        plan = function.plan
        assert plan is not None, "extents are constant"
        texts = (ctypes.c_char_p * max(1, len(messages)))(*messages)
        pointers = (ctypes.c_int64 * max(1, len(plan.constants)))(*plan.constants)
        new = not self._closed
        record = (ctypes.c_int64 * _WORDS)() if new else self._closed.pop()
        values = {
            "number": number,
            "entry": plan.entry,
            "inputs": plan.inputs,
            "outputs": len(plan.rows) - plan.inputs,
            "constants": len(plan.constants),
            "pointers": ctypes.addressof(pointers),
            "workspace": plan.workspace,
            "messages": ctypes.addressof(texts),
        }
        for name, value in values.items():
            record[RECORD.index(name)] = value
        if new:
            record[RECORD.index("users")] = -1
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))  # stays in the list
            self._add(ctypes.addressof(record))
        self._open(ctypes.addressof(record))
        return record, (plan, pointers, texts)

    def _died(self, number: int) -> None:
        with self._lock:
            if number not in self._kernels:
                self._orphans[number] = None
            self._sweep()

    def _sweep(self) -> None:
        """Closes the records that nobody uses any more."""
        for number in list(self._orphans):
            record, _ = self._open_records[number]
            if self._close(ctypes.addressof(record)):
                del self._orphans[number], self._open_records[number]
                self._closed.append(record)

    @property
    def open(self) -> int:
        """How many records are open, after those that nobody uses have been closed."""
        with self._lock:
            self._sweep()
            return len(self._open_records)


@cache
def handlers() -> _Handlers:
    """The handlers of this process, registered on first use."""
    return _Handlers()


def kernel_of(function: CompiledFunction, program: Program) -> Kernel:
    """The kernel of a compiled function of constant extents; `program` is what it was compiled from."""
    messages = _messages(function)
    made = hashlib.blake2b(print_program(program).encode(), digest_size=8)
    for part in (*(c.data.tobytes() for c in program.constants), *messages):
        made.update(part + b"\0")
    number = int.from_bytes(made.digest(), "little", signed=True)
    return handlers().kernel(number, function, messages)


class _Hole(int):
    """A number that a message leaves open: it reads as its place in a format of the C library, and what is one less as the other."""

    def __format__(self, spec: str) -> str:
        return "\1"

    def __sub__(self, other: int) -> _Last:
        return _Last()


class _Last(int):
    def __format__(self, spec: str) -> str:
        return "\2"


def _messages(function: CompiledFunction) -> list[bytes]:
    """What the checks of a function say, as formats of the C library: two per check (see `handler_text`)."""
    found = []
    for check in range(len(function.checks)):
        for extent in (_Hole(1), 0):
            text = str(function.failure(check, _Hole(0), extent)).replace("%", "%%")
            found.append(text.replace("\1", "%1$lld").replace("\2", "%2$lld").encode())
    return found
