"""Kernels as custom calls of XLA: the handlers registered with JAX, and how long what they run is kept.

`kernel_of(program)` gives compiled code a record that the handlers find by its number (`handler_text`); `cuda` does for GPUs what is
done here for the CPU. Equal kernels share one. A record stays as long as someone holds its `Kernel` (JAX does from lowering to
compiling) or an executable of XLA uses it, whoever is the last; XLA's executables may outlive every object in Python. Records that
were in use when their `Kernel` died are looked at again when the next one is made.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax

from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.llvm import NativeModule, host
from tensorexpr.codegen.llvm.process.call import words_of
from tensorexpr.codegen.nest import CheckSite
from tensorexpr.errors import TargetError, user_location
from tensorexpr.interop.jax import cpu_text
from tensorexpr.interop.jax.abi import DTYPES, SIZES
from tensorexpr.interop.jax.handler_text import RECORD, SYMBOLS, TARGET, TYPE, handler_routines
from tensorexpr.ir import Const, Program, integer
from tensorexpr.text import print_program

_OLDEST = (0, 10)  # whose FFI keeps states for executables


class _TypeInfo(ctypes.Structure):
    """XLA_FFI_TypeInfo."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Kernel:
    """A kernel that XLA can call: `number` is what names it in programs of XLA."""

    def __init__(self, number: int) -> None:
        self.number = number


class Entry(NamedTuple):
    """What a record says of a kernel: its words, and what they refer to, which lives as long."""

    words: dict[str, int]
    held: tuple[Any, ...]


class Handlers:
    """The handlers for a platform in this process, registered with JAX (unless `register` says no), and the records of their kernels.

    `part`, `own` and `strings` are the platform's text (see `handler_text`), `imports` the addresses of what it calls.
    """

    def __init__(
        self,
        platform: str,
        part: str,
        own: tuple[str, ...],
        strings: dict[str, str],
        imports: Mapping[str, int],
        register: bool = True,
    ) -> None:
        if jax.__version_info__ < _OLDEST:
            raise TargetError(
                f"tensorexpr.interop.jax: expected jax {'.'.join(map(str, _OLDEST))} or newer, got {jax.__version__}",
                location=user_location(),
                hint="pip install --upgrade 'tensorexpr[jax]'",
            )
        self.record = (*RECORD, *own)
        text = handler_routines(host().triple, part, own, strings)
        self._module = NativeModule.compiled(text, host(), "registers", {**addresses_of(SYMBOLS), **imports})
        # XLA keeps the addresses for as long as the process lives.
        self._module.keep_forever()
        self.address = address = self._module.address
        self._add = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("te_jax_add"))
        self._open = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("te_jax_open"))
        self._close = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address("te_jax_close"))
        self._lock = threading.RLock()
        self._kernels: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()
        self._open_records: dict[int, tuple[Any, Any]] = {}  # by number: the record, and what it refers to
        self._orphans: dict[int, None] = {}  # numbers of open records whose kernel died
        self._closed: list[Any] = []
        self._type_info = _TypeInfo(SIZES["XLA_FFI_TypeInfo"], None, address("te_jax_delete"))
        if register:
            self._register(platform)

    def _register(self, platform: str) -> None:
        """Tells JAX of the handlers; it keeps them for a platform that comes later."""
        pointer, address = ctypes.c_void_p, self.address
        registration = {
            "type_id": jax.ffi.pycapsule(pointer(ctypes.CFUNCTYPE(ctypes.c_void_p)(address("te_jax_type"))())),
            "type_info": jax.ffi.pycapsule(pointer(ctypes.addressof(self._type_info))),
        }
        jax.ffi.register_ffi_type(TYPE, registration, platform=platform)  # type: ignore[arg-type]  # JAX's stubs know one kind of capsule
        stages = {name: jax.ffi.pycapsule(pointer(address(f"te_jax_{name}"))) for name in ("instantiate", "execute")}
        jax.ffi.register_ffi_target(TARGET, stages, platform=platform)

    def kernel(self, number: int, make: Callable[[], Entry]) -> Kernel:
        """The kernel of a number; its entry is made where there is none."""
        with self._lock:
            found = self._kernels.get(number)
            if found is None:
                self._sweep()
                if number not in self._open_records:
                    self._open_records[number] = self._record(number, make())
                self._orphans.pop(number, None)
                found = self._kernels[number] = Kernel(number)
                weakref.finalize(found, self._died, number).atexit = False
            return found

    def _record(self, number: int, entry: Entry) -> tuple[Any, Any]:
        new = not self._closed
        record = (ctypes.c_int64 * len(self.record))() if new else self._closed.pop()
        for name, value in {"number": number, **entry.words}.items():
            record[self.record.index(name)] = value
        if new:
            record[self.record.index("users")] = -1
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))  # stays in the list
            self._add(ctypes.addressof(record))
        self._open(ctypes.addressof(record))
        return record, entry.held

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
def addresses_of(symbols: tuple[str, ...]) -> dict[str, int]:
    """Where the C library has functions."""
    libc = ctypes.CDLL(None)
    return {name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0 for name in symbols}


@cache
def handlers() -> Handlers:
    """The handlers of this process for the CPU, registered on first use."""
    return Handlers("cpu", cpu_text.TEXT, cpu_text.OWN, cpu_text.STRINGS, {})


def kernel_of(program: Program) -> Kernel:
    """The kernel of a program of constant extents on this CPU."""
    function = build_program(program)
    messages = messages_of(function.checks)

    def make() -> Entry:
        plan = function.plan
        if plan is None:  # extents are constant, so it is memory: this says what no memory holds
            function.layout(tuple(tuple(map(integer, item.type.shape)) for item in program.inputs))
        assert plan is not None
        words, held = common_words(program, plan.inputs, messages)
        pointers = words_of(plan.constants)
        words |= {
            "entry": plan.entry,
            "constants": len(plan.constants),
            "pointers": ctypes.addressof(pointers),
            "workspace": plan.workspace,
        }
        return Entry(words, (*held, plan, pointers))

    return handlers().kernel(number_of(program, messages), make)


def number_of(program: Program, messages: Sequence[bytes], *more: bytes) -> int:
    """The number of the kernel of a program: made from all that it does."""
    made = hashlib.blake2b(print_program(program).encode(), digest_size=8)
    for part in (*(c.data.tobytes() for c in program.constants), *messages, *more):
        made.update(part + b"\0")
    return int.from_bytes(made.digest(), "little", signed=True)


def common_words(program: Program, inputs: int, messages: Sequence[bytes]) -> tuple[dict[str, int], tuple[Any, ...]]:
    """The words of a record that are the same on every platform, and what they refer to."""
    names = (*(i.name for i in program.inputs), *program.outputs)
    numbers: list[int] = []
    for type_ in (program.types[name] for name in names):
        shape = [int(e.value) for e in type_.shape if isinstance(e, Const)]
        numbers += (DTYPES[type_.dtype.name][1], len(shape), *shape)
    types, texts = words_of(numbers), (ctypes.c_char_p * max(1, len(messages)))(*messages)
    words = {
        "inputs": inputs,
        "outputs": len(names) - inputs,
        "types": ctypes.addressof(types),
        "messages": ctypes.addressof(texts),
    }
    return words, (types, texts)


class _Hole(int):
    """A number that a message leaves open: it reads as its place in a format of the C library, and what is one less as the other."""

    def __format__(self, spec: str) -> str:
        return "\1"

    def __sub__(self, other: int) -> _Last:
        return _Last()


class _Last(int):
    def __format__(self, spec: str) -> str:
        return "\2"


def messages_of(checks: Sequence[CheckSite]) -> list[bytes]:
    """What checks say, as formats of the C library: two per check (see `handler_text`)."""
    found = []
    for site in checks:
        for extent in (_Hole(1), 0):
            text = str(site.failed(_Hole(0), extent)).replace("%", "%%")
            found.append(text.replace("\1", "%1$llu" if site.unsigned else "%1$lld").replace("\2", "%2$lld").encode())
    return found
