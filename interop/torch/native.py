"""Calls on plain tensors in eager mode without Python between torch and the kernel: see `native_text`.

A `NativeCalls` is the chain of signatures of one operator; `run(*tensors)` gives the results, or None where the long way is to be
gone. It is for tensors of the plain types that are not negated (`is_neg`, which DLPack does not tell). That torch shows tensors as they
are is seen on some when this is first needed; where it does not (a torch without the DLPack exchange) there is no `run`, and all
calls go the long way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from tensorexpr.codegen.llvm import NativeModule, host
from tensorexpr.codegen.llvm.process.call import Plan, words_of, workspace_functions
from tensorexpr.interop.torch.native_text import ROW, SYMBOLS, VIEW, WORDS, native_routines

_MOST = 16  # signatures that are looked through; others are found by their hash, the long way
_SLOT = 5  # dltensor_from_py_object_no_sync, in words from the start of DLPack's table
_NAME = b"dlpack_exchange_api"
_FASTCALL = 0x80


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class View(ctypes.Structure):
    """DLTensor, with device and dtype as one number each."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int64),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


@cache
def _exchange() -> int:
    """The address of torch's function that shows a tensor as a DLTensor; 0 where there is none that does as it should."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    table = int(pointer(capsule, _NAME))
    if ctypes.c_uint32.from_address(table).value != 1:  # the major version
        return 0
    address = ctypes.c_int64.from_address(table + 8 * _SLOT).value
    return address if address and _shows(address) else 0


def _shows(address: int) -> bool:
    """Whether tensors are shown as they are."""
    shows = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(address)
    base = torch.zeros(4, 6)
    for tensor in (base, base.t()[2:], torch.zeros((), dtype=torch.float64), torch.zeros(3, dtype=torch.bool), base.requires_grad_()):
        view = View()
        if shows(tensor, ctypes.addressof(view)):
            return False
        found = (tuple(view.shape[: view.rank]), tuple(view.strides[: view.rank]), (view.data or 0) + view.offset)
        if found != (tuple(tensor.shape), tensor.stride(), tensor.data_ptr()):
            return False
    return all(getattr(View, name).offset == at for name, at in VIEW.items())


@cache
def _module() -> NativeModule:
    imports = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in SYMBOLS}
    imports |= {"te_none": id(None), "te_like": id(torch.empty_like), "te_view": _exchange()}
    made = NativeModule.compiled(native_routines(host().triple), host(), "registers", imports)
    made.keep_forever()
    return made


class NativeCalls:
    """The signatures of an operator that are called without Python."""

    def __init__(self) -> None:
        self.run: Any = None
        self._tables: list[tuple[Any, ...]] = []

    def link(
        self,
        plan: Plan,
        tensors: Sequence[torch.Tensor],
        read: Sequence[bool],
        models: Sequence[torch.Tensor],
        strides: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Has calls on tensors like these go straight to the code of a plan; `read` says which inputs the kernel reads, `models` what
        results look like, `strides` how inputs lie that the kernel does not take in row-major order. Under the lock of whoever makes
        kernels."""
        if len(self._tables) >= _MOST or not _exchange():
            return
        rows, held = [], []
        for position, (tensor, used) in enumerate(zip(tensors, read, strict=True)):
            view = View()
            try:
                ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(_exchange())(tensor, ctypes.addressof(view))
            except RuntimeError:
                return  # without memory of its own, as inside of `is_grads_batched`: calls like it go the way of Python
            shape = words_of(tuple(tensor.shape))
            wanted = _strides(tuple(tensor.shape)) if strides is None else _lying(tuple(tensor.shape), strides[position])
            lying = words_of(wanted if used else (-1,) * tensor.ndim)
            held += [shape, lying]
            values = {"device": view.device, "type": view.dtype, "rank": tensor.ndim}
            values |= {"shape": ctypes.addressof(shape), "strides": ctypes.addressof(lying)}
            rows += [values[name] for name in ROW]
        row_words, order, pointers = words_of(rows), words_of(plan.order), words_of(plan.constants)
        made = words_of([id(model) for model in models])  # which are held beside them
        take, give = workspace_functions(plan.workspace)
        values = {
            "next": 0,
            "entry": plan.entry,
            "inputs": plan.inputs,
            "outputs": len(models),
            "release": int(plan.release),
            "workspace": plan.workspace,
            "take": take,
            "give": give,
            "constants": len(plan.constants),
            "pointers": ctypes.addressof(pointers),
            "order": ctypes.addressof(order),
            "rows": ctypes.addressof(row_words),
            "models": ctypes.addressof(made),
        }
        table = words_of([values[name] for name in WORDS])
        self._tables.append((table, plan, held, row_words, order, pointers, made, models))
        # The table is whole before anything leads to it: another thread may be calling.
        if len(self._tables) > 1:
            self._tables[-2][0][WORDS.index("next")] = ctypes.addressof(table)
            return
        head = words_of([ctypes.addressof(table)])
        method = _Method(b"te_torch", _module().address("te_torch"), _FASTCALL, None)
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p], ctypes.py_object
        self._head = head, method
        self.run = make(ctypes.addressof(method), ctypes.addressof(head), None)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor of this shape without gaps; -1 where any will do."""
    found, step = [], 1
    for extent in reversed(shape):
        found.append(step)
        step *= extent
    return _lying(shape, tuple(reversed(found)))


def _lying(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides, with -1 where any will do."""
    return tuple(-1 if extent == 1 or 0 in shape else stride for extent, stride in zip(shape, strides, strict=True))
