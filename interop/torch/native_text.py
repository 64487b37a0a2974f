"""Calls of kernels on torch tensors as routines: from the tensors of a call to its results, where a signature fits.

`te_torch(self, args, count)` is a function of CPython's (METH_FASTCALL). It looks at the tensors through torch's functions of the
DLPack exchange (`dltensor_from_py_object_no_sync`: no capsule, no copy), compares them with the tables in the chain that `self` leads
to, makes the results, and runs the kernel. It gives a tuple of results, or None where nothing fits or the kernel found an index out of
bounds: whoever called then goes the long way, which says what is wrong.

Large results are blocks of ours (`memory_text`) that torch takes by the same exchange, and that come back when nobody holds the tensor any
more, in whatever thread; small ones are made by torch after models of theirs.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.text.routines import Routines

SYMBOLS = (
    "PyLong_AsVoidPtr",
    "PyErr_Clear",
    "PyErr_NoMemory",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyObject_CallOneArg",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "Py_IncRef",
    "Py_DecRef",
)
"""What the text calls of CPython, beside the addresses te_view and te_wrap (torch's), te_memory_take and te_memory_give (ours), te_like (a
function after whose argument results are made), te_none."""

WORDS = ("next", "entry", "inputs", "outputs", "release", "workspace", "take", "give", "constants", "pointers", "order", "rows", "results")
"""A table: the one behind it, the entry point, numbers of inputs and outputs, whether Python's lock is given up during the kernel, bytes
of workspace, the functions that take and give it back, the number of constants and their addresses, for each input of the kernel its
place in the call, a row per input (the words of ROW), a row per result (those of RESULT)."""

ROW = ("device", "type", "rank", "shape", "strides")
"""An input: device and dtype as a DLTensor has them, rank, extents, strides (-1: any)."""

RESULT = ("bytes", "model", "template")
"""A result: its bytes if it is a block of ours, else 0, and the tensor after which it is made; how the block is shown to torch."""

VIEW = {"data": 0, "device": 8, "rank": 16, "dtype": 20, "shape": 24, "strides": 32, "offset": 40}
"""Where the fields of a DLTensor lie; it has 48 bytes."""

MANAGED = ("version", "holder", "deleter", "flags", "data", "device", "form", "shape", "strides", "offset")
"""The words of a DLManagedTensorVersioned; `form` are rank and dtype."""


def native_routines(triple: str) -> Routines:
    """The module, which exports te_torch."""
    values: dict[str, int | str] = {f"word.{name}": k for k, name in enumerate(WORDS)}
    values |= {f"own.{name}": k for k, name in enumerate(ROW)} | {f"made.{name}": k for k, name in enumerate(RESULT)}
    values |= {f"shown.{name}": k for k, name in enumerate(MANAGED)} | {f"of.{name}": at for name, at in VIEW.items()}
    return Routines(
        _TEXT,
        {**values, "ROW": 8 * len(ROW), "RESULT": 8 * len(RESULT), "MANAGED": 8 * len(MANAGED), "VIEW": _VIEW},
        f'target triple = "{triple}"\n',
    )


_VIEW = 48  # bytes of a DLTensor
_TEXT = """
te_none: extern
te_like: extern

def te_view(tensor: ptr, view: ptr) -> i32: ...
def te_wrap(managed: ptr, tensor: ptr) -> i32: ...
def te_memory_take(size: i64) -> ptr: ...
def te_memory_give(block: ptr): ...
def PyLong_AsVoidPtr(number: ptr) -> ptr: ...
def PyErr_Clear(): ...
def PyErr_NoMemory() -> ptr: ...
def PyTuple_New(count: i64) -> ptr: ...
def PyTuple_SetItem(tuple: ptr, place: i64, item: ptr) -> i32: ...
def PyObject_CallOneArg(function: ptr, argument: ptr) -> ptr: ...
def PyEval_SaveThread() -> ptr: ...
def PyEval_RestoreThread(thread: ptr): ...
def Py_IncRef(object: ptr): ...
def Py_DecRef(object: ptr): ...

# Where the elements of a tensor begin.
@alwaysinline
def start(view: ptr) -> i64:
    return (view + of.data).i64 + (view + of.offset).i64

# Whether a view fits a row of a table, and has memory if it has elements (a tensor of zeros may have none).
def fits(view: ptr, row: ptr) -> i1:
    if (view + of.device).i64 != row.i64[own.device] or (view + of.dtype).i32 != (row + 8 * own.type).i32:
        return False
    rank = (view + of.rank).i32
    if rank != (row + 8 * own.rank).i32:
        return False
    sound = (view + of.data).ptr != None
    shape = (view + of.shape).ptr
    strides = (view + of.strides).ptr
    for k in range(i64(rank)):
        extent = shape.i64[k]
        wanted = row.ptr[own.strides].i64[k]
        if extent != row.ptr[own.shape].i64[k] or (wanted != -1 and strides.i64[k] != wanted):
            return False
        if extent == 0:
            sound = True
    return sound

def nothing() -> ptr:
    Py_IncRef(te_none)
    return te_none

# What torch calls when nobody holds a tensor around a block of ours any more.
def let_go(managed: ptr):
    te_memory_give(managed.ptr[shown.holder])

# A tensor around a block of ours; null, with Python's error set, where there is none. Behind the elements stands what torch gives back.
def te_result(row: ptr) -> ptr:
    before = row.i64[made.bytes] + 63 & -64
    block = te_memory_take(before + MANAGED)
    if block == None:
        PyErr_NoMemory()
        return None
    managed = block + before
    memcpy(managed, row.ptr[made.template], MANAGED)
    managed.ptr[shown.holder] = block
    managed.ptr[shown.deleter] = let_go
    managed.ptr[shown.data] = block
    tensor = stack(ptr, 1)
    if te_wrap(managed, tensor) != 0:
        return None
    return tensor.ptr

# Runs what a table says on tensors that fit it.
def run(table: ptr, views: ptr) -> ptr:
    errors = stack(i64, 2)
    view = stack(i8, VIEW)
    inputs = table.i64[word.inputs]
    outputs = table.i64[word.outputs]
    constants = table.i64[word.constants]
    buffers = stack(i64, inputs + outputs + constants)
    for k in range(inputs):
        buffers.i64[k] = start(views + VIEW * table.ptr[word.order].i64[k])
    results = PyTuple_New(outputs)
    if results == None:
        return None
    for k in range(outputs):
        row = table.ptr[word.results] + RESULT * k
        result = None
        if row.i64[made.bytes] != 0:
            result = te_result(row)
        else:
            result = PyObject_CallOneArg(te_like, row.ptr[made.model])
        if result == None:
            Py_DecRef(results)
            return None
        PyTuple_SetItem(results, k, result)
        if te_view(result, view) != 0:
            PyErr_Clear()
            Py_DecRef(results)
            return nothing()
        buffers.i64[inputs + k] = start(view)
    memcpy(buffers + 8 * (inputs + outputs), table.ptr[word.pointers], 8 * constants)
    size = table.i64[word.workspace]
    block = None
    if size != 0:
        block = call(ptr, table.ptr[word.take], size + 64)
    status = 1
    if size == 0 or block != None:
        space = ptr(i64(block) + 63 & -64)
        if table.i64[word.release] != 0:
            thread = PyEval_SaveThread()
            status = call(i64, table.ptr[word.entry], buffers, None, space, errors)
            PyEval_RestoreThread(thread)
        else:
            status = call(i64, table.ptr[word.entry], buffers, None, space, errors)
        call(None, table.ptr[word.give], block)
    if status == 0:
        return results
    Py_DecRef(results)
    return nothing()

def te_torch(self: ptr, args: ptr, count: i64) -> ptr:
    views = stack(i8, VIEW * count)
    for k in range(count):
        if te_view(args.ptr[k], views + VIEW * k) != 0:
            PyErr_Clear()
            return nothing()
    table = atomic_load(PyLong_AsVoidPtr(self).ptr, acquire)
    while table != None:
        if table.i64[word.inputs] == count:
            k = 0
            while k < count and fits(views + VIEW * k, table.ptr[word.rows] + ROW * k):
                k += 1
            if k == count:
                return run(table, views)
        table = table.ptr[word.next]
    return nothing()
"""
