"""The handlers of XLA's FFI as LLVM IR: how a program compiled by XLA enters a kernel of ours, on every platform.

One custom call serves all kernels of a platform. Its attribute `kernel` names one by a number made from what it computes, so the text
of a program is the same in every process. XLA's stages:

- instantiate, once per executable of XLA: looks the number up among the records of this process and makes the record the state of
  the call. XLA counts the users of a record in that way, and tells when an executable goes (`te_jax_delete`).
- execute: compares the buffers of the call frame with the types that the record has, and hands their addresses to the platform's part,
  `te.run` of `cpu_text` or `cuda_text`; the record has the entry point that it calls.

A record is never freed, only used again, so that a look at a stale one is harmless: `users` is -1 where it is closed (the platform's
`te.clear` then gives back what the record holds). What went wrong is said in the words of the record's `messages` (formats of the C
library, two per check of the kernel: with the index and the greatest index, and with the index where the tensor is empty).
"""

from __future__ import annotations

from tensorexpr.interop.jax.abi import substituted

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


def handler_text(triple: str, part: str, own: tuple[str, ...], strings: dict[str, str]) -> str:
    """te_jax_{instantiate,execute,delete}, te_jax_{add,open,close}; te_jax_type gives the address of the number of our type of states.

    `part` is the text of a platform, `own` the words that its records have of their own, `strings` what it says.
    """
    words = (*RECORD, *own)
    values = {f"$record.{name}$": str(8 * position) for position, name in enumerate(words)}
    values |= {"$MESSAGE$": str(_MESSAGE)}
    text = substituted(_TEXT + part)
    for name, value in values.items():
        text = text.replace(name, value)
    constants = (f'@te.{name} = internal constant [{len(t) + 1} x i8] c"{t}\\00"' for name, t in {**_STRINGS, **strings}.items())
    return "\n".join((f'target triple = "{triple}"', *constants, text))


_TEXT = """
@te.type = internal global i64 0, align 8
@te.records = internal global ptr null, align 8
declare ptr @malloc(i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i32 @snprintf(ptr, i64, ptr, ...)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

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
define internal void @te.put(ptr %base, i64 %offset, i64 %value) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  store i64 %value, ptr %at, align 8
  ret void
}

; Begins what a function of XLA's takes: the size of the struct, no extension.
define internal void @te.begin(ptr %args, i64 %size) alwaysinline nounwind {
  call void @te.put(ptr %args, i64 0, i64 %size)
  call void @te.put(ptr %args, i64 8, i64 0)
  ret void
}
; The same where the context of the call stands behind that.
define internal void @te.begin.here(ptr %args, i64 %size, ptr %frame) alwaysinline nounwind {
  call void @te.begin(ptr %args, i64 %size)
  %context = call i64 @te.word(ptr %frame, i64 $XLA_FFI_CallFrame.ctx$)
  call void @te.put(ptr %args, i64 $XLA_FFI_State_Get_Args.ctx$, i64 %context)
  ret void
}
; Calls a function of XLA's; an error or null.
define internal ptr @te.ask(ptr %frame, i64 %function, ptr %args) alwaysinline nounwind {
  %api = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.api$)
  %address = call ptr @te.field(ptr %api, i64 %function)
  %refused = call ptr %address(ptr %args)
  ret ptr %refused
}
; Sets or gets the state of the call.
define internal ptr @te.state(ptr %frame, i64 %function, ptr %args) alwaysinline nounwind {
  call void @te.begin.here(ptr %args, i64 $sizeof.XLA_FFI_State_Get_Args$, ptr %frame)
  call void @te.put(ptr %args, i64 $XLA_FFI_State_Get_Args.stage$, i64 0)
  %type = ptrtoint ptr @te.type to i64
  call void @te.put(ptr %args, i64 $XLA_FFI_State_Get_Args.type_id$, i64 %type)
  %refused = call ptr @te.ask(ptr %frame, i64 %function, ptr %args)
  ret ptr %refused
}

; An error of XLA with a message made of a format and two words, which XLA copies.
define internal ptr @te.said(ptr %frame, i32 %code, ptr %format, i64 %first, i64 %second) noinline nounwind {
  %text = alloca [$MESSAGE$ x i8], align 8
  %written = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 $MESSAGE$, ptr %format, i64 %first, i64 %second)
  %args = alloca [32 x i8], align 8
  call void @te.begin(ptr %args, i64 $sizeof.XLA_FFI_Error_Create_Args$)
  %message = ptrtoint ptr %text to i64
  call void @te.put(ptr %args, i64 $XLA_FFI_Error_Create_Args.message$, i64 %message)
  %code.at = getelementptr i8, ptr %args, i64 $XLA_FFI_Error_Create_Args.errc$
  store i32 %code, ptr %code.at, align 4
  %made = call ptr @te.ask(ptr %frame, i64 $XLA_FFI_Api.XLA_FFI_Error_Create$, ptr %args)
  ret ptr %made
}
; The error of a failed check: `status` is its number plus 1, `errors` the index and the extent.
define internal ptr @te.failed(ptr %frame, ptr %record, i64 %status, ptr %errors) noinline nounwind {
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
  %error = call ptr @te.said(ptr %frame, i32 $code.OUT_OF_RANGE$, ptr %format, i64 %index, i64 %last)
  ret ptr %error
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
  call void @te.put(ptr %metadata, i64 $XLA_FFI_Metadata.state_type_id$, i64 %state)
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
  call void @te.clear(ptr %record)
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
  %record = phi ptr [ %first, %entry ], [ %behind, %other ]
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
  %users = phi i64 [ %start, %enter ], [ %seen, %swap ]
  %closed = icmp slt i64 %users, 0
  br i1 %closed, label %other, label %swap
swap:
  %more = add i64 %users, 1
  %pair = cmpxchg ptr %users.at, i64 %users, i64 %more seq_cst seq_cst, align 8
  %seen = extractvalue { i64, i1 } %pair, 0
  %entered = extractvalue { i64, i1 } %pair, 1
  br i1 %entered, label %check, label %try
check:
  ; Closed and used for another kernel in between?
  %now = call i64 @te.word(ptr %record, i64 $record.number$)
  %still = icmp eq i64 %now, %number
  br i1 %still, label %found, label %leave
leave:
  call void @te_jax_delete(ptr %record)
  br label %other
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
  %error = call ptr @te.said(ptr %frame, i32 $code.NOT_FOUND$, ptr @te.unknown, i64 0, i64 0)
  ret ptr %error
keep:
  %args = alloca [48 x i8], align 8
  %state = ptrtoint ptr %record to i64
  call void @te.put(ptr %args, i64 $XLA_FFI_State_Set_Args.state$, i64 %state)
  %refused = call ptr @te.state(ptr %frame, i64 $XLA_FFI_Api.XLA_FFI_State_Set$, ptr %args)
  ret ptr %refused
fine:
  ret ptr null
}

; Writes the addresses of buffers that have the types at *types, and moves that behind them; the position of the first that has not, or -1.
define internal i64 @te.taken(ptr %buffers, i64 %count, ptr %types, ptr %to) nounwind {
entry:
  %start = load ptr, ptr %types, align 8
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %take ]
  %type = phi ptr [ %start, %entry ], [ %behind, %take ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %done
look:
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %k
  %buffer = load ptr, ptr %buffer.at, align 8
  %dtype.at = getelementptr i8, ptr %buffer, i64 $XLA_FFI_Buffer.dtype$
  %dtype.32 = load i32, ptr %dtype.at, align 4
  %dtype = zext i32 %dtype.32 to i64
  %dtype.own = load i64, ptr %type, align 8
  %dtype.fits = icmp eq i64 %dtype, %dtype.own
  %rank = call i64 @te.word(ptr %buffer, i64 $XLA_FFI_Buffer.rank$)
  %rank.own = call i64 @te.word(ptr %type, i64 8)
  %rank.fits = icmp eq i64 %rank, %rank.own
  %extents = call ptr @te.field(ptr %buffer, i64 $XLA_FFI_Buffer.dims$)
  %extents.own = getelementptr i64, ptr %type, i64 2
  %behind = getelementptr i64, ptr %extents.own, i64 %rank.own
  %both = and i1 %dtype.fits, %rank.fits
  br i1 %both, label %axis, label %misfit
axis:
  %a = phi i64 [ 0, %look ], [ %a.next, %extent ]
  %axes = icmp slt i64 %a, %rank
  br i1 %axes, label %extent, label %take
extent:
  %extent.at = getelementptr i64, ptr %extents, i64 %a
  %given = load i64, ptr %extent.at, align 8
  %own.at = getelementptr i64, ptr %extents.own, i64 %a
  %own = load i64, ptr %own.at, align 8
  %same = icmp eq i64 %given, %own
  %a.next = add i64 %a, 1
  br i1 %same, label %axis, label %misfit
take:
  %data = call ptr @te.field(ptr %buffer, i64 $XLA_FFI_Buffer.data$)
  %to.at = getelementptr ptr, ptr %to, i64 %k
  store ptr %data, ptr %to.at, align 8
  %k.next = add i64 %k, 1
  br label %test
misfit:
  ret i64 %k
done:
  store ptr %type, ptr %types, align 8
  ret i64 -1
}

define ptr @te_jax_execute(ptr %frame) nounwind {
  %asked = call i1 @te.asked(ptr %frame, i64 0)
  br i1 %asked, label %fine, label %state
state:
  %args = alloca [48 x i8], align 8
  %types = alloca ptr, align 8
  %refused = call ptr @te.state(ptr %frame, i64 $XLA_FFI_Api.XLA_FFI_State_Get$, ptr %args)
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
  %misfit.error = call ptr @te.said(ptr %frame, i32 $code.INVALID_ARGUMENT$, ptr @te.counts, i64 0, i64 0)
  ret ptr %misfit.error
pointers:
  %constants = call i64 @te.word(ptr %record, i64 $record.constants$)
  %parameters = add i64 %inputs, %outputs
  %count = add i64 %parameters, %constants
  %buffers = alloca ptr, i64 %count, align 8
  %types.own = call ptr @te.field(ptr %record, i64 $record.types$)
  store ptr %types.own, ptr %types, align 8
  %arguments = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.args.args$)
  %argument = call i64 @te.taken(ptr %arguments, i64 %inputs, ptr %types, ptr %buffers)
  %arguments.fit = icmp slt i64 %argument, 0
  br i1 %arguments.fit, label %look, label %argument.misfit
argument.misfit:
  %argument.error = call ptr @te.said(ptr %frame, i32 $code.INVALID_ARGUMENT$, ptr @te.argument, i64 %argument, i64 0)
  ret ptr %argument.error
look:
  %results = call ptr @te.field(ptr %frame, i64 $XLA_FFI_CallFrame.rets.rets$)
  %results.at = getelementptr ptr, ptr %buffers, i64 %inputs
  %result = call i64 @te.taken(ptr %results, i64 %outputs, ptr %types, ptr %results.at)
  %results.fit = icmp slt i64 %result, 0
  br i1 %results.fit, label %run, label %result.misfit
result.misfit:
  %result.error = call ptr @te.said(ptr %frame, i32 $code.INVALID_ARGUMENT$, ptr @te.result, i64 %result, i64 0)
  ret ptr %result.error
run:
  %constants.at = getelementptr ptr, ptr %buffers, i64 %parameters
  %error = call ptr @te.run(ptr %frame, ptr %record, ptr %buffers, ptr %constants.at)
  ret ptr %error
fine:
  ret ptr null
}
"""
