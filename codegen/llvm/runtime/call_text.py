"""The call path from Python as routines: one function that every compiled function of this process is called through.

It has CPython's vectorcall signature. It reads a table of 64-bit words (see `call`) that says what the callable takes and gives,
compares every argument with it by loads from the array objects (type, dtype, rank, flags, extents; for `out`, an array or a tuple
of them, also that it may be written and overlaps no input), allocates results, takes workspace, and enters the kernel, without
the interpreter's lock where the kernel is long. Arguments that do not match are compared with the next table, one per signature;
what matches none is handed to the callable's method `call`, in Python, which copies, converts or refuses. Nothing has happened
by then.

Small results are NumPy's, large ones arrays around a block of `memory_text`, to which the array gives it back: it owns its data,
with our memory handler in its field. Small workspace is one block per callable that is kept between calls, large workspace
a block for this call.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.runtime.memory_text import VALUES, memory_text
from tensorexpr.codegen.llvm.text.routines import Routines, addressed
from tensorexpr.records import record

SYMBOLS = (
    "Py_IncRef",
    "Py_DecRef",
    "PyObject_GetAttr",
    "PyObject_Vectorcall",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyErr_Clear",
    "PyErr_NoMemory",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyMem_RawMalloc",
    "PyMem_RawFree",
)


@record
class Layouts:
    """Where things lie in memory, in bytes, found and proved by `call`: fields of array objects, tuples and callables."""

    type: int
    data: int
    rank: int
    extents: int
    descr: int
    flags: int
    handler: int
    tuple_size: int
    tuple_items: int
    table: int


WORDS = (
    "entry", "inputs", "outputs", "single", "release", "workspace", "block", "constants", "pointers", "sizes", "arguments", "order", "next",
)  # fmt: skip
ARGUMENT_WORDS = ("descr", "rank", "bytes", "extents")


_OWNED, _READY, _WRITABLE = 4, 257, 1281
"""Flags of arrays: their data is theirs; C-contiguous and aligned; writeable as well."""


def call_routines(layouts: Layouts, triple: str, pooled: int) -> Routines:
    """The module: `te_call` and `te_array`, beside the functions of `memory_text`; blocks of ours begin at `pooled` bytes."""
    values = {name.upper(): getattr(layouts, name) for name in Layouts.__match_args__}
    values |= {f"AT_{name}": at for name, at in addressed(WORDS).items()} | {
        f"OF_{name}": at for name, at in addressed(ARGUMENT_WORDS).items()
    }
    values |= {
        "OWNED": _OWNED,
        "READY": _READY,
        "WRITABLE": _WRITABLE,
        "POOLED": pooled,
        "COUNT": 2**63 - 1,
        "ROW": 8 * len(ARGUMENT_WORDS),
    }
    return Routines(memory_text("linux" in triple) + _TEXT, {**VALUES, **values}, f'target triple = "{triple}"\n')


_TEXT = """
te_ndarray: extern
te_out: extern
te_call_name: extern
te_none: extern
te_tuple: extern
te_handler: extern

def te_new_array(kind: ptr, descr: ptr, rank: i32, extents: ptr, strides: ptr, data: ptr, flags: i32, owner: ptr) -> ptr: ...
def Py_IncRef(object: ptr): ...
def Py_DecRef(object: ptr): ...
def PyObject_GetAttr(object: ptr, name: ptr) -> ptr: ...
def PyObject_Vectorcall(function: ptr, arguments: ptr, count: i64, names: ptr) -> ptr: ...
def PyTuple_New(count: i64) -> ptr: ...
def PyTuple_SetItem(tuple: ptr, place: i64, item: ptr) -> i32: ...
def PyErr_Clear(): ...
def PyErr_NoMemory() -> ptr: ...
def te_watch(): ...
def te_watched() -> i64: ...
def PyEval_SaveThread() -> ptr: ...
def PyEval_RestoreThread(thread: ptr): ...
def PyMem_RawMalloc(size: i64) -> ptr: ...
def PyMem_RawFree(block: ptr): ...

# Whether an array is as a row of the table says, with these flags.
@alwaysinline
def fits(array: ptr, row: ptr, ready: i32) -> i1:
    if (array + TYPE).ptr != te_ndarray:
        return False
    rank = i64((array + RANK).i32)
    if (array + DESCR).i64 != row.i64[OF_DESCR] or rank != row.i64[OF_RANK] or (array + FLAGS).i32 & ready != ready:
        return False
    mine = (array + EXTENTS).ptr
    theirs = row.ptr[OF_EXTENTS]
    for k in range(rank):
        if mine.i64[k] != theirs.i64[k]:
            return False
    return True

# A new array around a block of ours: null, with Python's error set, where memory does not hold it.
@unwinds
def te_array(descr: ptr, rank: i32, extents: ptr, bytes: i64) -> ptr:
    block = te_memory_take(bytes)
    if block == None:
        PyErr_NoMemory()
        return None
    Py_IncRef(descr)
    array = te_new_array(te_ndarray, descr, rank, extents, None, block, WRITABLE, None)
    if array == None:
        te_memory_give(block)
        return None
    (array + FLAGS).i32 = (array + FLAGS).i32 | OWNED
    Py_IncRef(te_handler)
    (array + HANDLER).ptr = te_handler
    return array

@noinline
@unwinds
def slow(self: ptr, arguments: ptr, count: i64, names: ptr) -> ptr:
    method = PyObject_GetAttr(self, te_call_name)
    if method == None:
        return None
    # Without the flag that would let the callee write into the slot before the arguments.
    result = PyObject_Vectorcall(method, arguments, count & COUNT, names)
    Py_DecRef(method)
    return result

# Puts the data of inputs in their places; whether all of them fit.
@alwaysinline
def take_inputs(table: ptr, arguments: ptr, inputs: i64, buffers: ptr) -> i1:
    order = table.ptr[AT_ORDER]
    for i in range(inputs):
        place = order.i64[i]
        array = arguments.ptr[place]
        if not fits(array, table.ptr[AT_ARGUMENTS] + ROW * place, READY):
            return False
        buffers.ptr[i] = (array + DATA).ptr
    return True

# Whether an array is one for the result at a place, which overlaps no input.
@alwaysinline
def is_for_result(table: ptr, out: ptr, place: i64, inputs: i64, buffers: ptr) -> i1:
    row = table.ptr[AT_ARGUMENTS] + ROW * (inputs + place)
    if not fits(out, row, WRITABLE):
        return False
    begin = (out + DATA).i64
    for i in range(inputs):
        data = buffers.i64[i]
        size = (table.ptr[AT_ARGUMENTS] + ROW * table.ptr[AT_ORDER].i64[i]).i64[OF_BYTES]
        if ult(data, begin + row.i64[OF_BYTES]) and ult(begin, data + size):
            return False
    return True

# Puts the arrays of a tuple in the places of results; whether all of them are for results, and overlap no input nor each other.
@alwaysinline
def take_results(table: ptr, out: ptr, inputs: i64, outputs: i64, buffers: ptr, results: ptr) -> i1:
    if (out + TYPE).ptr != te_tuple or (out + TUPLE_SIZE).i64 != outputs:
        return False
    rows = table.ptr[AT_ARGUMENTS] + ROW * inputs
    for k in range(outputs):
        array = (out + TUPLE_ITEMS).ptr[k]
        if not is_for_result(table, array, k, inputs, buffers):
            return False
        begin = (array + DATA).i64
        for j in range(k):
            other = (results.ptr[j] + DATA).i64
            size = (rows + ROW * j).i64[OF_BYTES]
            if ult(other, begin + (rows + ROW * k).i64[OF_BYTES]) and ult(begin, other + size):
                return False
        results.ptr[k] = array
    for k in range(outputs):
        Py_IncRef(results.ptr[k])
    return True

# New arrays for the results: how many there are; fewer, with Python's error set, where memory does not hold them.
@alwaysinline
@unwinds
def make_results(rows: ptr, outputs: i64, results: ptr) -> i64:
    for k in range(outputs):
        row = rows + ROW * k
        descr = row.ptr[OF_DESCR]
        rank = i32(row.i64[OF_RANK])
        made = None
        if row.i64[OF_BYTES] >= POOLED:
            made = te_array(descr, rank, row.ptr[OF_EXTENTS], row.i64[OF_BYTES])
        else:
            Py_IncRef(descr)
            made = te_new_array(te_ndarray, descr, rank, row.ptr[OF_EXTENTS], None, None, 0, None)
        if made == None:
            return k
        results.ptr[k] = made
    return outputs

# Runs the kernel in a workspace: its status; another one than 0 where there is no memory for that.
@alwaysinline
@unwinds
def run(table: ptr, buffers: ptr) -> i64:
    error = stack(i64, 2)
    bytes = table.i64[AT_WORKSPACE]
    block = None
    if bytes >= POOLED:
        block = te_memory_take(bytes)
    elif bytes != 0:
        # The block that the last call left; while another call has it, one of our own.
        block = atomic_swap(table.ptr[AT_BLOCK], None, acquire)
        if block == None:
            block = PyMem_RawMalloc(bytes + 64)
    if bytes != 0 and block == None:
        return 1
    workspace = ptr(i64(block) + 63 & -64)
    status = 0
    if table.i64[AT_RELEASE] == 0:
        status = call(i64, table.ptr[AT_ENTRY], buffers, table.ptr[AT_SIZES], workspace, error)
    else:
        thread = PyEval_SaveThread()
        te_watch()
        status = call(i64, table.ptr[AT_ENTRY], buffers, table.ptr[AT_SIZES], workspace, error)
        # What was interrupted has failed: the slow way raises what there is to raise.
        status = status | te_watched()
        PyEval_RestoreThread(thread)
    if bytes >= POOLED:
        te_memory_give(block)
    elif bytes != 0:
        PyMem_RawFree(atomic_swap(table.ptr[AT_BLOCK], block, release))
    return status

@alwaysinline
@unwinds
def answer(results: ptr, outputs: i64, single: i1) -> ptr:
    if single:
        return results.ptr[0]
    tuple = PyTuple_New(outputs)
    if tuple != None:
        for k in range(outputs):
            PyTuple_SetItem(tuple, k, results.ptr[k])
    return tuple

# A call by one table: its result; null, with nothing done, where arguments do not fit or something fails.
@unwinds
def call_by(table: ptr, arguments: ptr, count: i64, names: ptr) -> ptr:
    inputs = table.i64[AT_INPUTS]
    outputs = table.i64[AT_OUTPUTS]
    single = table.i64[AT_SINGLE] != 0
    if count != inputs:
        return None
    buffers = stack(ptr, inputs + outputs + table.i64[AT_CONSTANTS])
    results = stack(ptr, outputs)
    if not take_inputs(table, arguments, inputs, buffers):
        return None
    out = te_none
    if names != None:
        if (names + TUPLE_SIZE).i64 != 1 or (names + TUPLE_ITEMS).ptr != te_out:
            return None
        out = arguments.ptr[inputs]
    made = outputs
    if out == te_none:
        made = make_results(table.ptr[AT_ARGUMENTS] + ROW * inputs, outputs, results)
    elif not single:
        if not take_results(table, out, inputs, outputs, buffers, results):
            return None
    elif is_for_result(table, out, 0, inputs, buffers):
        results.ptr[0] = out
        Py_IncRef(out)
    else:
        return None
    if made == outputs:
        for k in range(outputs):
            buffers.ptr[inputs + k] = (results.ptr[k] + DATA).ptr
        pointers = table.ptr[AT_POINTERS]
        for k in range(table.i64[AT_CONSTANTS]):
            buffers.ptr[inputs + outputs + k] = pointers.ptr[k]
        if run(table, buffers) == 0:
            found = answer(results, outputs, single)
            if found != None:
                return found
            PyErr_Clear()
    else:
        PyErr_Clear()
    # Results made so far are given up: the slow way starts from the arguments again, and says what is wrong.
    for k in range(made):
        Py_DecRef(results.ptr[k])
    return None

@unwinds
def te_call(self: ptr, arguments: ptr, flagged: i64, names: ptr) -> ptr:
    table = (self + TABLE).ptr
    while table != None:
        found = call_by(table, arguments, flagged & COUNT, names)
        if found != None:
            return found
        table = table.ptr[AT_NEXT]
    return slow(self, arguments, flagged & COUNT, names)
"""
