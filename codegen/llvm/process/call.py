"""Callables that Python enters without Python: a base class whose instances are called through machine code (`call_text`).

An instance has two words behind its header: the address of `te_call`, where CPython's vectorcall protocol looks, and that of a
table which says what the callable takes, the first in a chain with one per signature. `te_call` checks arrays against the
tables and runs the kernel itself; all else goes to the instance's method `call`. As long as no signature is linked the first word is 0
and CPython calls `__call__`, which is `call`. All that this assumes of CPython and NumPy (where fields lie, what they hold) is
shown on real objects when this module is imported; where anything differs, `Callable` is a plain class.

The vectorcall protocol is PEP 590; the idea of checking arguments in generated code is that of Numba's dispatcher.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tensorexpr.codegen.llvm.process.jit import NativeModule
from tensorexpr.codegen.llvm.process.memory import POOLED, Memory
from tensorexpr.codegen.llvm.process.pool import pool
from tensorexpr.codegen.llvm.runtime.call_text import SYMBOLS, WORDS, Layouts, call_routines
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.records import record

_HEADER = object.__basicsize__
_CALL, _TABLE = _HEADER, _HEADER + 8
_HAS_VECTORCALL = 1 << 11
_IS_BASE = 1 << 10
_TYPE_FLAGS = 168  # bytes to the flags of a type object
_NEW_FROM_DESCR, _GET_HANDLER = 94, 305  # PyArray_NewFromDescr and PyDataMem_GetHandler in NumPy's table of functions

_LAYOUTS = Layouts(type=8, data=16, rank=24, extents=32, descr=56, flags=64, handler=88, tuple_size=16, tuple_items=24, table=_TABLE)


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _half(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def _numpy_functions() -> int:
    """The address of NumPy's table of functions."""
    api = np._core._multiarray_umath._ARRAY_API if hasattr(np, "_core") else np.core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]  # NumPy's stubs do not have what is private
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return int(pointer(api, None))


def _fields_are_known() -> bool:
    """Whether arrays, tuples and types of this interpreter and this NumPy lie in memory as `_LAYOUTS` says."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.maxsize != 2**63 - 1 or _HEADER != 16:
        return False
    base = np.zeros((4, 6), np.float32)
    readonly = np.zeros((2, 3), np.int64)
    readonly.flags.writeable = False
    # What NumPy allocates with now; a view has none.
    get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(_word(_numpy_functions() + 8 * _GET_HANDLER))
    handler = id(get_handler())
    for array in (base, base[1:, 2:], base[::-1].T, np.zeros((), np.float64), np.zeros((3, 0, 2), np.int8), readonly, np.zeros(5, bool)):
        at, rank = id(array), array.ndim
        extents = _word(at + _LAYOUTS.extents)
        if (
            _word(at + _LAYOUTS.type) != id(np.ndarray)
            or _word(at + _LAYOUTS.data) != array.ctypes.data
            or _half(at + _LAYOUTS.rank) != rank
            or tuple(_word(extents + 8 * k) for k in range(rank)) != array.shape
            or _word(at + _LAYOUTS.descr) != id(array.dtype)
            or _half(at + _LAYOUTS.flags) & 0xFFFF != array.flags.num & 0xFFFF
            or _word(at + _LAYOUTS.handler) != (handler if array.flags.owndata else 0)
        ):
            return False
    pair = (base, readonly)
    items = tuple(_word(id(pair) + _LAYOUTS.tuple_items + 8 * k) for k in range(2))
    return (
        _word(id(pair) + _LAYOUTS.tuple_size) == 2 and items == (id(base), id(readonly)) and _word(id(dict) + _TYPE_FLAGS) == dict.__flags__
    )


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


_TP_CALL, _TP_MEMBERS, _SSIZE, _READONLY = 50, 72, 19, 1


def _native_base() -> type | None:
    """The class whose instances have the two words, or None where this interpreter does not make it as expected."""
    if not _fields_are_known():
        return None
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SSIZE, _CALL, _READONLY, None), _Member(None, 0, 0, 0, None))
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p)
    slots = (_Slot * 3)(_Slot(_TP_CALL, call), _Slot(_TP_MEMBERS, ctypes.addressof(members)), _Slot(0, None))
    spec = _Spec(b"tensorexpr.codegen.llvm.process.call.Callable", _HEADER + 16, 0, _IS_BASE | _HAS_VECTORCALL, ctypes.addressof(slots))
    make = ctypes.pythonapi.PyType_FromSpec
    make.argtypes, make.restype = [ctypes.c_void_p], ctypes.py_object
    made: type = make(ctypes.byref(spec))
    made._spec = (spec, slots, members)  # type: ignore[attr-defined]  # types take attributes
    return made if made.__basicsize__ == _HEADER + 16 and made.__flags__ & _HAS_VECTORCALL else None


_native = _native_base()
_linking = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_linking.acquire, after_in_parent=_linking.release, after_in_child=_linking.release)
if TYPE_CHECKING:

    class Callable:
        """What checkers of types see of it: a class without anything."""

else:
    Callable = object if _native is None else _native

Kind = TypeVar("Kind", bound=type)


def native_calls(kind: Kind) -> Kind:
    """A decorator for a class derived from `Callable`, with the method `call` and `__call__ = call`: instances can be linked.

    A class that has a `__call__` of its own loses the flag that makes CPython look for machine code; here the two do the same.
    """
    if _native is not None and not kind.__flags__ & _HAS_VECTORCALL and _word(id(kind) + _TYPE_FLAGS) == kind.__flags__:
        ctypes.c_int64.from_address(id(kind) + _TYPE_FLAGS).value |= _HAS_VECTORCALL
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    return kind


@record
class Row:
    """An argument or result of constant shape."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of an array of this shape."""
        return prod(self.shape) * self.dtype.itemsize


@record
class Plan:
    """What `te_call` is to do: `rows` of inputs in calling order, then of outputs; `order`, where each input of the kernel stands.

    `sizes`: what the kernel's open sizes are at these shapes; `single`: the one result is given bare; `release`: the interpreter's lock is
    given up during the kernel; `workspace`: bytes; `owner` keeps the code at `entry` and the constants alive.
    """

    entry: int
    inputs: int
    rows: tuple[Row, ...]
    order: tuple[int, ...]
    constants: tuple[int, ...]
    workspace: int
    single: bool
    release: bool
    owner: object
    sizes: tuple[int, ...] = ()


def link(instance: Any, plan: Plan) -> None:
    """Makes calls of an instance of `Callable` that fit `plan` go through machine code; its attribute `_links` keeps the tables."""
    if _native is None:
        return
    extents = [(ctypes.c_int64 * max(1, len(row.shape)))(*row.shape) for row in plan.rows]
    words = [
        word
        for row, shape in zip(plan.rows, extents, strict=True)
        for word in (id(row.dtype), len(row.shape), row.bytes, ctypes.addressof(shape))
    ]
    arguments, order, pointers, sizes = (words_of(items) for items in (words, plan.order, plan.constants, plan.sizes))
    values = {
        "entry": plan.entry,
        "inputs": plan.inputs,
        "outputs": len(plan.rows) - plan.inputs,
        "single": int(plan.single),
        "release": int(plan.release),
        "workspace": plan.workspace,
        "block": 0,
        "constants": len(plan.constants),
        "pointers": ctypes.addressof(pointers),
        "sizes": ctypes.addressof(sizes),
        "arguments": ctypes.addressof(arguments),
        "order": ctypes.addressof(order),
        "next": 0,
    }
    table = words_of([values[name] for name in WORDS])
    code = _module()
    if plan.workspace:
        weakref.finalize(instance, _free, table).atexit = False
    # The table is whole before anything leads to it: another thread may be calling.
    with _linking:
        links = instance.__dict__.setdefault("_links", [])
        links.append((table, plan, extents, arguments, order, pointers, sizes, code))
        if len(links) > 1:
            links[-2][0][WORDS.index("next")] = ctypes.addressof(table)
        else:
            ctypes.c_int64.from_address(id(instance) + _TABLE).value = ctypes.addressof(table)
            ctypes.c_int64.from_address(id(instance) + _CALL).value = code.address("te_call")


def workspace_functions(size: int) -> tuple[int, int]:
    """The addresses of what gives a call so many bytes of workspace and of what takes them back: `ptr take(i64)`, `void give(ptr)`.

    Large ones are blocks of ours, which calls use again: the system clears new memory page by page, in as much time as many a kernel takes.
    """
    if _native is not None and size >= POOLED:
        return _module().address("te_memory_take"), _module().address("te_memory_give")
    take, give = (
        ctypes.cast(function, ctypes.c_void_p).value for function in (ctypes.pythonapi.PyMem_RawMalloc, ctypes.pythonapi.PyMem_RawFree)
    )
    return take or 0, give or 0


def words_of(items: Sequence[int]) -> Any:
    """An array of C of at least one word."""
    return (ctypes.c_int64 * max(1, len(items)))(*items)


def _free(table: Any) -> None:
    """Gives back the workspace that calls have kept."""
    position = WORDS.index("block")
    block, table[position] = table[position], 0
    if block:
        ctypes.pythonapi.PyMem_RawFree(ctypes.c_void_p(block))


_NAMES = (sys.intern("out"), sys.intern("call"))


memory = Memory()


@cache
def _module() -> NativeModule:
    """The machine code of `te_call` in this process, and that of the memory of results."""
    imports = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in SYMBOLS}
    imports |= {"te_ndarray": id(np.ndarray), "te_tuple": id(tuple), "te_none": id(None)}
    imports |= {"te_out": id(_NAMES[0]), "te_call_name": id(_NAMES[1])}
    imports |= {"te_new_array": _word(_numpy_functions() + 8 * _NEW_FROM_DESCR), "te_handler": id(memory.capsule)}
    imports |= {"te_watch": pool().watch, "te_watched": pool().watched}
    made = NativeModule.compiled(call_routines(_LAYOUTS, host().triple, POOLED), host(), "registers", imports)
    memory.attach(made)
    return made


@cache
def _new_array() -> Any:
    address = _module().address("te_array")
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
    return kind(address)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new array of undefined contents, as a compiled function gives it: large ones in memory that is used again.

    Raises `MemoryError` or `ValueError` where memory does not hold it.
    """
    size = prod(shape) * dtype.itemsize
    if _native is None or not POOLED <= size <= sys.maxsize:
        return np.empty(shape, dtype)
    array: np.ndarray = _new_array()(id(dtype), len(shape), (ctypes.c_int64 * len(shape))(*shape), size)
    return array
