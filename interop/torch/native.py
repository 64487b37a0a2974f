"""Calls on plain tensors in eager mode without Python between torch and the kernel: see `native_text`.

A `NativeCalls` is the chain of signatures of one operator; `run(*tensors)` gives the results, or None where the long way is to be
gone. It is for tensors of the plain types that are not negated (`is_neg`, which DLPack does not tell). That torch shows tensors as they
are is seen on some when this is first needed; where it does not (a torch without the DLPack exchange) there is no `run`, and all
calls go the long way.

A `Result` of some size is a block of ours, which torch takes by the same exchange: when torch lets go of it, it is kept for results to
come, and it leaves no holes in the C library's heap. Its storage cannot be resized.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from tensorexpr.codegen.llvm import NativeModule, host
from tensorexpr.codegen.llvm.process.call import Plan, words_of, workspace_functions
from tensorexpr.codegen.llvm.process.memory import POOLED
from tensorexpr.interop.torch.native_text import MANAGED, RESULT, ROW, SYMBOLS, VIEW, WORDS, native_routines

_MOST = 16  # signatures that are looked through; others are found by their hash, the long way
_WRAPS, _SHOWS = 4, 5  # managed_tensor_to_py_object_no_sync and dltensor_from_py_object_no_sync: words of DLPack's table
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
def _table() -> int:
    """The address of torch's table of the exchange; 0 where there is none that does as it should."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    table = int(pointer(capsule, _NAME))
    if ctypes.c_uint32.from_address(table).value != 1:  # the major version
        return 0
    return table if _word(table, _WRAPS) and _word(table, _SHOWS) and _shows(_word(table, _SHOWS)) else 0


def _word(table: int, place: int) -> int:
    return ctypes.c_int64.from_address(table + 8 * place).value


def _exchange() -> int:
    """The address of torch's function that shows a tensor as a DLTensor; 0 where there is none."""
    return _word(_table(), _SHOWS) if _table() else 0


@cache
def _view() -> Any:
    """Torch's function that shows a tensor, as one of Python's."""
    return _showing(_exchange())


def _showing(address: int) -> Any:
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(address)


def _shows(address: int) -> bool:
    """Whether tensors are shown as they are."""
    shows = _showing(address)
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
    imports |= {"te_none": id(None), "te_like": id(torch.empty_like), "te_view": _exchange(), "te_wrap": _word(_table(), _WRAPS)}
    imports |= dict(zip(("te_memory_take", "te_memory_give"), workspace_functions(POOLED), strict=True))
    made = NativeModule.compiled(native_routines(host().triple), host(), "registers", imports)
    made.keep_forever()
    return made


class Result:
    """A result like a model (a tensor of the CPU or of no device, which may be without memory): `words` are those of RESULT."""

    def __init__(self, model: torch.Tensor) -> None:
        size = model.numel() * model.element_size()
        self._held: tuple[Any, ...] = (model,)
        word = {"bytes": 0, "model": id(model), "template": 0}
        if size >= POOLED and _table():
            like = torch.empty_like(model, device="meta")
            shape, strides = words_of(like.shape), words_of(like.stride())
            values = {"version": _word(_table(), 0), "device": 1, "form": model.ndim | _code(model.dtype) << 32}
            values |= {"shape": ctypes.addressof(shape), "strides": ctypes.addressof(strides)}
            template = words_of([values.get(name, 0) for name in MANAGED])
            self._held = model, shape, strides, template
            word |= {"bytes": size, "template": ctypes.addressof(template)}
        self.words = [word[name] for name in RESULT]

    def make(self) -> torch.Tensor:
        """One, of undefined elements. Raises `MemoryError`."""
        if len(self._held) == 1:
            return torch.empty_like(self._held[0], device="cpu")
        row = words_of(self.words)
        made: torch.Tensor = _result()(ctypes.addressof(row))
        return made


@cache
def _result() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(_module().address("te_result"))


@cache
def _code(type_: torch.dtype) -> int:
    """A dtype as a DLTensor has it."""
    view = View()
    _view()(torch.empty(1, dtype=type_), ctypes.addressof(view))
    return int(view.dtype)


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
                _view()(tensor, ctypes.addressof(view))
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
        results = [Result(model) for model in models]
        made = words_of([word for result in results for word in result.words])
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
            "results": ctypes.addressof(made),
        }
        table = words_of([values[name] for name in WORDS])
        self._tables.append((table, plan, held, row_words, order, pointers, made, results))
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
