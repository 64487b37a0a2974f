"""The handlers of XLA's FFI as LLVM IR: how a program compiled by XLA enters a kernel of ours.

One custom call serves all kernels. Its attribute `kernel` names one by a number made from what it computes, so the text of a
program is the same in every process. XLA's stages:

- instantiate, once per executable of XLA: looks the number up among the records of this process and makes the record the state of
  the call. XLA counts the users of a record in that way, and tells when an executable goes (`te_jax_delete`).
- execute: the record has the entry point; pointers come from the call frame, the constants' and the workspace from the record. A
  block of workspace is kept per record for the next call; calls that meet have blocks of their own.

A record is never freed, only used again, so that a look at a stale one is harmless: `users` is -1 where it is closed. What went
wrong is said in the words of the record's `messages` (formats of the C library, two per check of the kernel: with the index and
the greatest index, and with the index where the tensor is empty).

The layouts are those of xla/ffi/api/c_api.h (version 0.3), which jaxlib ships; a test reads them from there.
"""

from __future__ import annotations

MAJOR, MINOR = 0, 3
TARGET = "tensorexpr.kernel"
TYPE = "tensorexpr.record"
ATTRIBUTE = "kernel"
SYMBOLS = ("malloc", "free", "snprintf")

LAYOUT = {
    "XLA_FFI_CallFrame.extension_start": 8,
    "XLA_FFI_CallFrame.api": 16,
    "XLA_FFI_CallFrame.ctx": 24,
    "XLA_FFI_CallFrame.args.size": 56,
    "XLA_FFI_CallFrame.args.args": 72,
    "XLA_FFI_CallFrame.rets.size": 96,
    "XLA_FFI_CallFrame.rets.rets": 112,
    "XLA_FFI_CallFrame.attrs.size": 136,
    "XLA_FFI_CallFrame.attrs.attrs": 160,
    "XLA_FFI_Buffer.data": 24,
    "XLA_FFI_Scalar.value": 8,
    "XLA_FFI_Extension_Base.type": 8,
    "XLA_FFI_Metadata_Extension.metadata": 24,
    "XLA_FFI_Metadata.api_version.major_version": 24,
    "XLA_FFI_Metadata.api_version.minor_version": 28,
    "XLA_FFI_Metadata.traits": 32,
    "XLA_FFI_Metadata.state_type_id": 40,
    "XLA_FFI_Api.XLA_FFI_Error_Create": 48,
    "XLA_FFI_Api.XLA_FFI_State_Set": 104,
    "XLA_FFI_Api.XLA_FFI_State_Get": 112,
    "XLA_FFI_State_Set_Args.ctx": 16,
    "XLA_FFI_State_Set_Args.stage": 24,
    "XLA_FFI_State_Set_Args.type_id": 32,
    "XLA_FFI_State_Set_Args.state": 40,
    "XLA_FFI_State_Get_Args.ctx": 16,
    "XLA_FFI_State_Get_Args.stage": 24,
    "XLA_FFI_State_Get_Args.type_id": 32,
    "XLA_FFI_State_Get_Args.state": 40,
    "XLA_FFI_Error_Create_Args.message": 16,
    "XLA_FFI_Error_Create_Args.errc": 24,
}
"""Bytes from the start of a struct to a field, as far as the handlers look."""

SIZES = {
    "XLA_FFI_State_Set_Args": 48,
    "XLA_FFI_State_Get_Args": 48,
    "XLA_FFI_Error_Create_Args": 28,
    "XLA_FFI_TypeInfo": 24,
    "XLA_FFI_TypeId": 8,
}
"""Bytes that a struct says it has (up to the end of its last field)."""

CODES = {"INVALID_ARGUMENT": 3, "NOT_FOUND": 5, "RESOURCE_EXHAUSTED": 8, "OUT_OF_RANGE": 11}

RECORD = (
    "next", "number", "users", "entry", "inputs", "outputs", "constants", "pointers", "workspace", "block", "messages",
)  # fmt: skip
"""The words of a record: the one behind it in the list, the kernel's number, how many executables of XLA use it (-1: closed), the entry
point, the numbers of inputs, outputs and constants, the addresses of the constants, bytes of workspace, a block of that size that
is free (or 0), the formats of the messages."""

_STRINGS = {
    "unknown": "tensorexpr: expected a kernel that this process has compiled, got a program made elsewhere: trace and lower it here first",
    "counts": "tensorexpr: expected the numbers of arguments and results of the kernel, got other ones",
    "memory": "tensorexpr: expected memory for a workspace of %lld bytes, got none",
}
_MESSAGE = 2048  # bytes of the longest message


def handler_text(triple: str) -> str:
    """te_jax_{instantiate,execute,delete}, te_jax_{add,open,close}; te_jax_type gives the address of the number of our type of states."""
    text = _TEXT
    values = {f"${name}$": str(offset) for name, offset in LAYOUT.items()}
    values |= {f"$sizeof.{name}$": str(size) for name, size in SIZES.items()}
    values |= {f"$code.{name}$": str(code) for name, code in CODES.items()}
    values |= {f"$record.{name}$": str(8 * position) for position, name in enumerate(RECORD)}
    values |= {"$MAJOR$": str(MAJOR), "$MINOR$": str(MINOR), "$MESSAGE$": str(_MESSAGE)}
    for name, value in values.items():
        text = text.replace(name, value)
    strings = (f'@te.{name} = internal constant [{len(t) + 1} x i8] c"{t}\\00"' for name, t in _STRINGS.items())
    return "\n".join((f'target triple = "{triple}"', *strings, text))


_TEXT = """
@te.type = internal global i64 0, align 8
@te.records = internal global ptr null, align 8
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @snprintf(ptr, i64, ptr, ...)

define internal ptr @te.field(ptr %base, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load ptr, ptr %at, align 8
  ret ptr %value
}
define internal i64 @te.word(ptr %base, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; An error of XLA with a message, which XLA copies.
define internal ptr @te.error(ptr %frame, i32 %code, ptr %message) noinline nounwind {
  %args = alloca [32 x i8], align 8
  store i64 $sizeof.XLA_FFI_Error_Create_Args$, ptr %args, align 8
  %extension = getelementptr i8, ptr %args, i64 8
  store ptr null, ptr %extension, align 8
  %message.at = getelementptr i8, ptr %args, i64 $XLA_FFI_Error_Create_Args.message$
  store ptr %message, ptr %message.at, align 8
  %code.at = getelementptr i8, ptr %args, i64 $XLA_FFI_Error_Create_Args.errc$
  store i32 %code, ptr %code.at, align 4
  %api = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.api$)
  %create = call ptr @te.field(ptr %api, i64 $XLA_FFI_Api.XLA_FFI_Error_Create$)
  %made = call ptr %create(ptr %args)
  ret ptr %made
}

; Whether the call only asks what the handler is; then the answer is written.
define internal i1 @te.asked(ptr %frame, i64 %state) alwaysinline nounwind {
  %extension = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.extension_start$)
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %no, label %look
look:
  %type.at = getelementptr i8, ptr %extension, i64 $XLA_FFI_Extension_Base.type$
  %type = load i32, ptr %type.at, align 4
  %asks = icmp eq i32 %type, 1
  br i1 %asks, label %answer, label %no
answer:
  %metadata = call ptr @te.field(ptr %extension, i64 $XLA_FFI_Metadata_Extension.metadata$)
  %major = getelementptr i8, ptr %metadata, i64 $XLA_FFI_Metadata.api_version.major_version$
  store i32 $MAJOR$, ptr %major, align 4
  %minor = getelementptr i8, ptr %metadata, i64 $XLA_FFI_Metadata.api_version.minor_version$
  store i32 $MINOR$, ptr %minor, align 4
  %traits = getelementptr i8, ptr %metadata, i64 $XLA_FFI_Metadata.traits$
  store i32 0, ptr %traits, align 4
  %state.at = getelementptr i8, ptr %metadata, i64 $XLA_FFI_Metadata.state_type_id$
  store i64 %state, ptr %state.at, align 8
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Where XLA writes the number that it gives to the type of our states.
define ptr @te_jax_type() nounwind {
  ret ptr @te.type
}

; Puts a new record, whole but closed, in front of the list, under the lock of the caller.
define void @te_jax_add(ptr %record) nounwind {
  %first = load ptr, ptr @te.records, align 8
  store ptr %first, ptr %record, align 8
  store atomic ptr %record, ptr @te.records release, align 8
  ret void
}
; Opens a record of the list whose words are in place.
define void @te_jax_open(ptr %record) nounwind {
  %users = getelementptr i8, ptr %record, i64 $record.users$
  store atomic i64 0, ptr %users seq_cst, align 8
  ret void
}
; Closes a record that nothing uses; 1 where it is closed now.
define i64 @te_jax_close(ptr %record) nounwind {
  %users = getelementptr i8, ptr %record, i64 $record.users$
  %pair = cmpxchg ptr %users, i64 0, i64 -1 seq_cst seq_cst, align 8
  %closed = extractvalue { i64, i1 } %pair, 1
  br i1 %closed, label %clear, label %done
clear:
  %block.at = getelementptr i8, ptr %record, i64 $record.block$
  %block = atomicrmw xchg ptr %block.at, i64 0 seq_cst, align 8
  %pointer = inttoptr i64 %block to ptr
  call void @free(ptr %pointer)
  br label %done
done:
  %result = zext i1 %closed to i64
  ret i64 %result
}
define void @te_jax_delete(ptr %record) nounwind {
  %users = getelementptr i8, ptr %record, i64 $record.users$
  %before = atomicrmw sub ptr %users, i64 1 seq_cst, align 8
  ret void
}

; One user more of an open record with this number; null where there is none.
define internal ptr @te.found(i64 %number) nounwind {
entry:
  %first = load atomic ptr, ptr @te.records acquire, align 8
  br label %next
next:
  %record = phi ptr [ %first, %entry ], [ %behind, %other ], [ %behind.stale, %stale ]
  %end = icmp eq ptr %record, null
  br i1 %end, label %none, label %look
look:
  %own = call i64 @te.word(ptr %record, i64 $record.number$)
  %same = icmp eq i64 %own, %number
  br i1 %same, label %enter, label %other
other:
  %behind = load ptr, ptr %record, align 8
  br label %next
enter:
  %users.at = getelementptr i8, ptr %record, i64 $record.users$
  %start = load atomic i64, ptr %users.at seq_cst, align 8
  br label %try
try:
  %users = phi i64 [ %start, %enter ], [ %seen, %again ]
  %closed = icmp slt i64 %users, 0
  br i1 %closed, label %stale, label %swap
swap:
  %more = add i64 %users, 1
  %pair = cmpxchg ptr %users.at, i64 %users, i64 %more seq_cst seq_cst, align 8
  %seen = extractvalue { i64, i1 } %pair, 0
  %entered = extractvalue { i64, i1 } %pair, 1
  br i1 %entered, label %check, label %again
again:
  br label %try
check:
  ; Closed and used for another kernel in between?
  %now = call i64 @te.word(ptr %record, i64 $record.number$)
  %still = icmp eq i64 %now, %number
  br i1 %still, label %found, label %leave
leave:
  call void @te_jax_delete(ptr %record)
  br label %stale
stale:
  %behind.stale = load ptr, ptr %record, align 8
  br label %next
found:
  ret ptr %record
none:
  ret ptr null
}

define ptr @te_jax_instantiate(ptr %frame) nounwind {
  %type = load i64, ptr @te.type, align 8
  %asked = call i1 @te.asked(ptr %frame, i64 %type)
  br i1 %asked, label %fine, label %attribute
attribute:
  %count = call i64 @te.word(ptr %frame, i64 $XLA_FFI_CallFrame.attrs.size$)
  %one = icmp eq i64 %count, 1
  br i1 %one, label %read, label %unknown
read:
  %attributes = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.attrs.attrs$)
  %scalar = load ptr, ptr %attributes, align 8
  %value = call ptr @te.field(ptr %scalar, i64 $XLA_FFI_Scalar.value$)
  %number = load i64, ptr %value, align 8
  %record = call ptr @te.found(i64 %number)
  %none = icmp eq ptr %record, null
  br i1 %none, label %unknown, label %keep
unknown:
  %error = call ptr @te.error(ptr %frame, i32 $code.NOT_FOUND$, ptr @te.unknown)
  ret ptr %error
keep:
  %args = alloca [48 x i8], align 8
  store i64 $sizeof.XLA_FFI_State_Set_Args$, ptr %args, align 8
  %extension = getelementptr i8, ptr %args, i64 8
  store ptr null, ptr %extension, align 8
  %context = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.ctx$)
  %context.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Set_Args.ctx$
  store ptr %context, ptr %context.at, align 8
  %stage.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Set_Args.stage$
  store i32 0, ptr %stage.at, align 4
  %type.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Set_Args.type_id$
  store ptr @te.type, ptr %type.at, align 8
  %state.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Set_Args.state$
  store ptr %record, ptr %state.at, align 8
  %api = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.api$)
  %set = call ptr @te.field(ptr %api, i64 $XLA_FFI_Api.XLA_FFI_State_Set$)
  %refused = call ptr %set(ptr %args)
  ret ptr %refused
fine:
  ret ptr null
}

; A workspace: the block that the record has free, or a new one.
define internal ptr @te.take(ptr %record, i64 %size) nounwind {
  %block.at = getelementptr i8, ptr %record, i64 $record.block$
  %kept = atomicrmw xchg ptr %block.at, i64 0 seq_cst, align 8
  %none = icmp eq i64 %kept, 0
  br i1 %none, label %new, label %have
have:
  %pointer = inttoptr i64 %kept to ptr
  ret ptr %pointer
new:
  %whole = add i64 %size, 64
  %made = call ptr @malloc(i64 %whole)
  ret ptr %made
}
define internal void @te.give(ptr %record, ptr %block) nounwind {
  %value = ptrtoint ptr %block to i64
  %block.at = getelementptr i8, ptr %record, i64 $record.block$
  %before = atomicrmw xchg ptr %block.at, i64 %value seq_cst, align 8
  %pointer = inttoptr i64 %before to ptr
  call void @free(ptr %pointer)
  ret void
}

; The error of a failed check: `status` is its number plus 1.
define internal ptr @te.failed(ptr %frame, ptr %record, i64 %status, ptr %errors) noinline nounwind {
  %text = alloca [$MESSAGE$ x i8], align 8
  %index = load i64, ptr %errors, align 8
  %extent = call i64 @te.word(ptr %errors, i64 8)
  %last = add i64 %extent, -1
  %empty = icmp eq i64 %extent, 0
  %check = sub i64 %status, 1
  %pair = shl i64 %check, 1
  %step = zext i1 %empty to i64
  %position = add i64 %pair, %step
  %messages = call ptr @te.field(ptr %record, i64 $record.messages$)
  %format.at = getelementptr ptr, ptr %messages, i64 %position
  %format = load ptr, ptr %format.at, align 8
  %written = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 $MESSAGE$, ptr %format, i64 %index, i64 %last)
  %error = call ptr @te.error(ptr %frame, i32 $code.OUT_OF_RANGE$, ptr %text)
  ret ptr %error
}
define internal ptr @te.full(ptr %frame, i64 %size) noinline nounwind {
  %text = alloca [$MESSAGE$ x i8], align 8
  %written = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 $MESSAGE$, ptr @te.memory, i64 %size)
  %error = call ptr @te.error(ptr %frame, i32 $code.RESOURCE_EXHAUSTED$, ptr %text)
  ret ptr %error
}

; Copies the data pointers of buffers.
define internal void @te.data(ptr %buffers, i64 %count, ptr %to) alwaysinline nounwind {
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %copy ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %copy, label %done
copy:
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %k
  %buffer = load ptr, ptr %buffer.at, align 8
  %data = call ptr @te.field(ptr %buffer, i64 $XLA_FFI_Buffer.data$)
  %to.at = getelementptr ptr, ptr %to, i64 %k
  store ptr %data, ptr %to.at, align 8
  %k.next = add i64 %k, 1
  br label %test
done:
  ret void
}

define ptr @te_jax_execute(ptr %frame) nounwind {
  %asked = call i1 @te.asked(ptr %frame, i64 0)
  br i1 %asked, label %fine, label %state
state:
  %args = alloca [48 x i8], align 8
  store i64 $sizeof.XLA_FFI_State_Get_Args$, ptr %args, align 8
  %extension = getelementptr i8, ptr %args, i64 8
  store ptr null, ptr %extension, align 8
  %context = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.ctx$)
  %context.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Get_Args.ctx$
  store ptr %context, ptr %context.at, align 8
  %stage.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Get_Args.stage$
  store i32 0, ptr %stage.at, align 4
  %type.at = getelementptr i8, ptr %args, i64 $XLA_FFI_State_Get_Args.type_id$
  store ptr @te.type, ptr %type.at, align 8
  %api = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.api$)
  %get = call ptr @te.field(ptr %api, i64 $XLA_FFI_Api.XLA_FFI_State_Get$)
  %refused = call ptr %get(ptr %args)
  %known = icmp eq ptr %refused, null
  br i1 %known, label %counts, label %refuse
refuse:
  ret ptr %refused
counts:
  %record = call ptr @te.field(ptr %args, i64 $XLA_FFI_State_Get_Args.state$)
  %inputs = call i64 @te.word(ptr %record, i64 $record.inputs$)
  %outputs = call i64 @te.word(ptr %record, i64 $record.outputs$)
  %given = call i64 @te.word(ptr %frame, i64 $XLA_FFI_CallFrame.args.size$)
  %wanted = call i64 @te.word(ptr %frame, i64 $XLA_FFI_CallFrame.rets.size$)
  %inputs.fit = icmp eq i64 %inputs, %given
  %outputs.fit = icmp eq i64 %outputs, %wanted
  %fit = and i1 %inputs.fit, %outputs.fit
  br i1 %fit, label %pointers, label %misfit
misfit:
  %misfit.error = call ptr @te.error(ptr %frame, i32 $code.INVALID_ARGUMENT$, ptr @te.counts)
  ret ptr %misfit.error
pointers:
  %constants = call i64 @te.word(ptr %record, i64 $record.constants$)
  %parameters = add i64 %inputs, %outputs
  %count = add i64 %parameters, %constants
  %buffers = alloca ptr, i64 %count, align 8
  %arguments = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.args.args$)
  call void @te.data(ptr %arguments, i64 %inputs, ptr %buffers)
  %results = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.rets.rets$)
  %results.at = getelementptr ptr, ptr %buffers, i64 %inputs
  call void @te.data(ptr %results, i64 %outputs, ptr %results.at)
  %constants.at = getelementptr ptr, ptr %buffers, i64 %parameters
  %addresses = call ptr @te.field(ptr %record, i64 $record.pointers$)
  %bytes = shl i64 %constants, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %constants.at, ptr align 8 %addresses, i64 %bytes, i1 false)
  %errors = alloca [2 x i64], align 8
  %entry = call ptr @te.field(ptr %record, i64 $record.entry$)
  %workspace = call i64 @te.word(ptr %record, i64 $record.workspace$)
  %needs = icmp ne i64 %workspace, 0
  br i1 %needs, label %take, label %run
take:
  %block = call ptr @te.take(ptr %record, i64 %workspace)
  %full = icmp eq ptr %block, null
  br i1 %full, label %memory, label %enter
memory:
  %full.error = call ptr @te.full(ptr %frame, i64 %workspace)
  ret ptr %full.error
enter:
  %address = ptrtoint ptr %block to i64
  %up = add i64 %address, 63
  %aligned = and i64 %up, -64
  %space = inttoptr i64 %aligned to ptr
  %status.space = call i64 %entry(ptr %buffers, ptr null, ptr %space, ptr %errors)
  call void @te.give(ptr %record, ptr %block)
  br label %judge
run:
  %status.run = call i64 %entry(ptr %buffers, ptr null, ptr null, ptr %errors)
  br label %judge
judge:
  %status = phi i64 [ %status.space, %enter ], [ %status.run, %run ]
  %well = icmp eq i64 %status, 0
  br i1 %well, label %fine, label %failed
failed:
  %error = call ptr @te.failed(ptr %frame, ptr %record, i64 %status, ptr %errors)
  ret ptr %error
fine:
  ret ptr null
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
