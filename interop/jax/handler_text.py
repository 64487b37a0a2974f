"""The handlers of XLA's FFI as routines: how a program compiled by XLA enters a kernel of ours, on every platform.

One custom call serves all kernels of a platform. Its attribute `kernel` names one by a number made from what it computes, so the text
of a program is the same in every process. XLA's stages:

- instantiate, once per executable of XLA: looks the number up among the records of this process and makes the record the state of
  the call. XLA counts the users of a record in that way, and tells when an executable goes (`te_jax_delete`).
- execute: compares the buffers of the call frame with the types that the record has, and hands their addresses to the platform's part,
  `run` of `cpu_text` or `cuda_text`; the record has the entry point that it calls.

A record is never freed, only used again, so that a look at a stale one is harmless: `users` is -1 where it is closed (the platform's
`clear` then gives back what the record holds). What went wrong is said in the words of the record's `messages` (formats of the C
library, two per check of the kernel: with the index and the greatest index, and with the index where the tensor is empty).
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.interop.jax.abi import VALUES

TARGET = "tensorexpr.kernel"
TYPE = "tensorexpr.record"
ATTRIBUTE = "kernel"
SYMBOLS = ("malloc", "calloc", "free", "snprintf")
"""What the texts call of the C library."""

RECORD = ("next", "number", "users", "entry", "inputs", "outputs", "types", "constants", "pointers", "workspace", "messages")
"""The words of a record: the one behind it in the list, the kernel's number, how many executables of XLA use it (-1: closed), the entry
point, the numbers of inputs and outputs, their types (of each XLA's number of the dtype, the rank, the extents), the number of
constants and the addresses of their data, bytes of workspace, the formats of the messages; behind them the words that the platform's
part has of its own."""

_STRINGS = {
    "unknown": "tensorexpr: expected a kernel that this process has compiled, got a program made elsewhere: trace and lower it here first",
    "counts": "tensorexpr: expected the numbers of arguments and results of the kernel, got other ones",
    "argument": "tensorexpr: expected the dtype and the shape that the kernel was compiled for, got another argument %lld",
    "result": "tensorexpr: expected the dtype and the shape that the kernel was compiled for, got another result %lld",
    "memory": "tensorexpr: expected memory for a workspace of %lld bytes, got none",
}
_MESSAGE = 2048  # bytes of the longest message


def handler_routines(triple: str, part: str, own: tuple[str, ...], strings: dict[str, str]) -> Routines:
    """te_jax_{instantiate,execute,delete}, te_jax_{add,open,close}; te_jax_type gives the address of the number of our type of states.

    `part` is the text of a platform, `own` the words that its records have of their own, `strings` what it says.
    """
    words = {f"word.{name}": position for position, name in enumerate((*RECORD, *own))}
    texts = "".join(f"said_{name}: text = {text!r}\n" for name, text in {**_STRINGS, **strings}.items())
    return Routines(texts + _TEXT + part, {**VALUES, **words, "MESSAGE": _MESSAGE}, f'target triple = "{triple}"\n')


_TEXT = """
kind: i64 = 0
records: ptr = None

def malloc(size: i64) -> ptr: ...
def calloc(count: i64, size: i64) -> ptr: ...
def free(block: ptr): ...
def snprintf(to: ptr, size: i64, format: ptr, *words) -> i32: ...

# Begins what a function of XLA's takes: the size of the struct, no extension, the context of the call.
@alwaysinline
def begin(args: ptr, size: i64, frame: ptr):
    args.i64[0] = size
    args.i64[1] = 0
    (args + XLA_FFI_State_Get_Args.ctx).i64 = (frame + XLA_FFI_CallFrame.ctx).i64

# Calls a function of XLA's; an error or null.
@alwaysinline
def ask(frame: ptr, function: i64, args: ptr) -> ptr:
    return call(ptr, ((frame + XLA_FFI_CallFrame.api).ptr + function).ptr, args)

# Sets or gets the state of the call.
@alwaysinline
def ask_state(frame: ptr, function: i64, args: ptr) -> ptr:
    begin(args, sizeof.XLA_FFI_State_Get_Args, frame)
    (args + XLA_FFI_State_Get_Args.stage).i64 = 0
    (args + XLA_FFI_State_Get_Args.type_id).ptr = at(kind)
    return ask(frame, function, args)

# An error of XLA with a message made of a format and two words, which XLA copies.
@noinline
def said(frame: ptr, code: i32, format: ptr, first: i64, second: i64) -> ptr:
    text = stack(i8, MESSAGE)
    snprintf(text, MESSAGE, format, first, second)
    args = stack(i64, 4)
    args.i64[0] = sizeof.XLA_FFI_Error_Create_Args
    args.i64[1] = 0
    (args + XLA_FFI_Error_Create_Args.message).ptr = text
    (args + XLA_FFI_Error_Create_Args.errc).i32 = code
    return ask(frame, XLA_FFI_Api.XLA_FFI_Error_Create, args)

# The error of a failed check: `status` is its number plus 1, `errors` the index and the extent.
@noinline
def failed(frame: ptr, record: ptr, status: i64, errors: ptr) -> ptr:
    extent = errors.i64[1]
    format = record.ptr[word.messages].ptr[(status - 1 << 1) + i64(extent == 0)]
    return said(frame, code.OUT_OF_RANGE, format, errors.i64[0], extent - 1)

# Whether the call only asks what the handler is; then the answer is written.
@alwaysinline
def asked(frame: ptr, state: i64) -> i1:
    extension = (frame + XLA_FFI_CallFrame.extension_start).ptr
    if extension == None or (extension + XLA_FFI_Extension_Base.type).i32 != 1:
        return False
    metadata = (extension + XLA_FFI_Metadata_Extension.metadata).ptr
    (metadata + XLA_FFI_Metadata.api_version.major_version).i32 = MAJOR
    (metadata + XLA_FFI_Metadata.api_version.minor_version).i32 = MINOR
    (metadata + XLA_FFI_Metadata.traits).i32 = 0
    (metadata + XLA_FFI_Metadata.state_type_id).i64 = state
    return True

# Where XLA writes the number that it gives to the type of our states.
def te_jax_type() -> ptr:
    return at(kind)

# Puts a new record, whole but closed, in front of the list, under the lock of the caller.
def te_jax_add(record: ptr):
    record.ptr[word.next] = records
    atomic_store(records, record, release)

# Opens a record of the list whose words are in place.
def te_jax_open(record: ptr):
    atomic_store(record.i64[word.users], 0, seq_cst)

# Closes a record that nothing uses; 1 where it is closed now.
def te_jax_close(record: ptr) -> i64:
    if not atomic_exchange(record.i64[word.users], 0, -1, seq_cst, seq_cst):
        return 0
    clear(record)
    return 1

def te_jax_delete(record: ptr):
    atomic_sub(record.i64[word.users], 1, seq_cst)

# One user more of an open record with this number; null where there is none.
def found(number: i64) -> ptr:
    record = atomic_load(records, acquire)
    while record != None:
        users = -1
        if record.i64[word.number] == number:
            users = atomic_load(record.i64[word.users], seq_cst)
        while users >= 0:
            if atomic_exchange(record.i64[word.users], users, users + 1, seq_cst, seq_cst):
                # Closed and used for another kernel in between?
                if record.i64[word.number] == number:
                    return record
                te_jax_delete(record)
                break
            users = atomic_load(record.i64[word.users], seq_cst)
        record = record.ptr[word.next]
    return None

def te_jax_instantiate(frame: ptr) -> ptr:
    if asked(frame, kind):
        return None
    record = None
    if (frame + XLA_FFI_CallFrame.attrs.size).i64 == 1:
        scalar = (frame + XLA_FFI_CallFrame.attrs.attrs).ptr.ptr
        record = found((scalar + XLA_FFI_Scalar.value).ptr.i64)
    if record == None:
        return said(frame, code.NOT_FOUND, said_unknown, 0, 0)
    args = stack(i64, 6)
    (args + XLA_FFI_State_Set_Args.state).ptr = record
    return ask_state(frame, XLA_FFI_Api.XLA_FFI_State_Set, args)

# Writes the addresses of buffers that have the types at *types, and moves that behind them; the position of the first that has not, or -1.
def taken(buffers: ptr, count: i64, types: ptr, to: ptr) -> i64:
    type = types.ptr
    for k in range(count):
        buffer = buffers.ptr[k]
        rank = (buffer + XLA_FFI_Buffer.rank).i64
        if u64((buffer + XLA_FFI_Buffer.dtype).i32) != type.i64[0] or rank != type.i64[1]:
            return k
        extents = (buffer + XLA_FFI_Buffer.dims).ptr
        for axis in range(rank):
            if extents.i64[axis] != type.i64[axis + 2]:
                return k
        type = type + 16 + 8 * rank
        to.ptr[k] = (buffer + XLA_FFI_Buffer.data).ptr
    types.ptr = type
    return -1

def te_jax_execute(frame: ptr) -> ptr:
    if asked(frame, 0):
        return None
    args = stack(i64, 6)
    refused = ask_state(frame, XLA_FFI_Api.XLA_FFI_State_Get, args)
    if refused != None:
        return refused
    record = (args + XLA_FFI_State_Get_Args.state).ptr
    inputs = record.i64[word.inputs]
    outputs = record.i64[word.outputs]
    if inputs != (frame + XLA_FFI_CallFrame.args.size).i64 or outputs != (frame + XLA_FFI_CallFrame.rets.size).i64:
        return said(frame, code.INVALID_ARGUMENT, said_counts, 0, 0)
    buffers = stack(ptr, inputs + outputs + record.i64[word.constants])
    types = stack(ptr, 1)
    types.ptr = record.ptr[word.types]
    argument = taken((frame + XLA_FFI_CallFrame.args.args).ptr, inputs, types, buffers)
    if argument >= 0:
        return said(frame, code.INVALID_ARGUMENT, said_argument, argument, 0)
    result = taken((frame + XLA_FFI_CallFrame.rets.rets).ptr, outputs, types, buffers + 8 * inputs)
    if result >= 0:
        return said(frame, code.INVALID_ARGUMENT, said_result, result, 0)
    return run(frame, record, buffers, buffers + 8 * (inputs + outputs))
"""
