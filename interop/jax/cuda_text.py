"""The part of the handlers that launches kernels on a GPU: see `handler_text`.

A call takes XLA's stream, makes the stream's context current, and calls the record's entry point (`codegen.cuda.launch_text`), which loads
the kernels into a context that it meets first and launches them. Workspace, and memory for the report of checks, are XLA's
(`XLA_FFI_DeviceMemory_Allocate`), given back at once: XLA uses memory again in the order of the stream. Nothing is waited for, except
that a kernel with checks is: its report is read once the stream has come so far, and an index out of bounds is this call's error.
Constants are copied to a context when it is met first; what two threads copied there at once, both keep.

A record's own words: the bytes of each constant; whether kernels report; the functions of the launcher's module that read memory of the
device and unload the kernels; the contexts it was used in, each { next, context, addresses of the constants ... }.
"""

from __future__ import annotations

OWN = ("lengths", "reports", "read", "unload", "contexts")
DRIVER = (
    "cuStreamGetCtx",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoD_v2",
    "cuGetErrorString",
)
"""The functions of CUDA's driver that the text calls."""
STRINGS = {
    "refused": "tensorexpr: expected a launch that CUDA's driver accepts, got: %s",
    "unknown_result": "an error that it has no words for",
    "nocode": "tensorexpr: expected a GPU like the one that the kernel was compiled for, got another one",
    "driver": "tensorexpr: expected CUDA's driver in this process, got none that has what launches need",
    "host_memory": "tensorexpr: expected memory of the host for a launch, got none",
    "misaligned": "tensorexpr: expected buffers that begin at multiples of 16 bytes, got another one (number %lld, arguments first)",
}
TEXT = """
declare i32 @cuStreamGetCtx(ptr, ptr)
declare i32 @cuCtxPushCurrent_v2(ptr)
declare i32 @cuCtxPopCurrent_v2(ptr)
declare i32 @cuCtxSynchronize()
declare i32 @cuMemAlloc_v2(ptr, i64)
declare i32 @cuMemFree_v2(i64)
declare i32 @cuMemcpyHtoD_v2(i64, ptr, i64)
declare i32 @cuGetErrorString(i32, ptr)

; The error of a result of the driver's; null for 0.
define internal ptr @te.driver.error(ptr %frame, i32 %result) nounwind {
  %text.at = alloca ptr, align 8
  %fine = icmp eq i32 %result, 0
  br i1 %fine, label %none, label %ask
none:
  ret ptr null
ask:
  store ptr null, ptr %text.at, align 8
  %asked = call i32 @cuGetErrorString(i32 %result, ptr %text.at)
  %text = load ptr, ptr %text.at, align 8
  %mute = icmp eq ptr %text, null
  %words = select i1 %mute, ptr @te.unknown_result, ptr %text
  %address = ptrtoint ptr %words to i64
  %error = call ptr @te.said(ptr %frame, i32 $code.INTERNAL$, ptr @te.refused, i64 %address, i64 0)
  ret ptr %error
}
; The error of a result of the launcher's; null for 0.
define internal ptr @te.launch.error(ptr %frame, i64 %status) nounwind {
  switch i64 %status, label %other [
    i64 0, label %none
    i64 -1, label %nocode
    i64 -2, label %driver
    i64 -3, label %driver
    i64 -4, label %memory
  ]
none:
  ret ptr null
nocode:
  br label %say
driver:
  br label %say
memory:
  br label %say
say:
  %format = phi ptr [ @te.nocode, %nocode ], [ @te.driver, %driver ], [ @te.host_memory, %memory ]
  %error = call ptr @te.said(ptr %frame, i32 $code.INTERNAL$, ptr %format, i64 0, i64 0)
  ret ptr %error
other:
  %result.64 = sub i64 -1000, %status
  %result = trunc i64 %result.64 to i32
  %said = call ptr @te.driver.error(ptr %frame, i32 %result)
  ret ptr %said
}

; Frees what a record has in a context, which is current.
define internal void @te.drop(ptr %record, ptr %node) nounwind {
entry:
  %constants = call i64 @te.word(ptr %record, i64 $record.constants$)
  %addresses = getelementptr i64, ptr %node, i64 2
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %constants
  br i1 %more, label %look, label %done
look:
  %address.at = getelementptr i64, ptr %addresses, i64 %k
  %address = load i64, ptr %address.at, align 8
  %there = icmp ne i64 %address, 0
  br i1 %there, label %free, label %next
free:
  %freed = call i32 @cuMemFree_v2(i64 %address)
  br label %next
next:
  %k.next = add i64 %k, 1
  br label %test
done:
  call void @free(ptr %node)
  ret void
}

; Gives back what a closed record has on devices, once all that was launched has run.
define internal void @te.clear(ptr %record) nounwind {
entry:
  %old = alloca ptr, align 8
  %contexts.at = getelementptr i8, ptr %record, i64 $record.contexts$
  %head = atomicrmw xchg ptr %contexts.at, i64 0 seq_cst, align 8
  %first = inttoptr i64 %head to ptr
  br label %next
next:
  %node = phi ptr [ %first, %entry ], [ %behind, %go ]
  %end = icmp eq ptr %node, null
  br i1 %end, label %unload, label %enter
enter:
  %behind = load ptr, ptr %node, align 8
  %context = call ptr @te.field(ptr %node, i64 8)
  %pushed = call i32 @cuCtxPushCurrent_v2(ptr %context)
  %there = icmp eq i32 %pushed, 0
  br i1 %there, label %drop, label %gone
drop:
  %waited = call i32 @cuCtxSynchronize()
  call void @te.drop(ptr %record, ptr %node)
  %popped = call i32 @cuCtxPopCurrent_v2(ptr %old)
  br label %go
gone:
  call void @free(ptr %node)
  br label %go
go:
  br label %next
unload:
  %used = icmp ne ptr %first, null
  br i1 %used, label %modules, label %done
modules:
  %unloading = call ptr @te.field(ptr %record, i64 $record.unload$)
  %unloaded = call i64 %unloading()
  br label %done
done:
  ret void
}

; Writes the addresses of the constants in a context, which is current; copies them there where they are not.
define internal ptr @te.constants(ptr %frame, ptr %record, ptr %context, ptr %to) nounwind {
entry:
  %constants = call i64 @te.word(ptr %record, i64 $record.constants$)
  %bytes = shl i64 %constants, 3
  %contexts.at = getelementptr i8, ptr %record, i64 $record.contexts$
  %first = load atomic ptr, ptr %contexts.at acquire, align 8
  br label %next
next:
  %node = phi ptr [ %first, %entry ], [ %behind, %other ]
  %end = icmp eq ptr %node, null
  br i1 %end, label %make, label %look
look:
  %own = call ptr @te.field(ptr %node, i64 8)
  %same = icmp eq ptr %own, %context
  br i1 %same, label %found, label %other
other:
  %behind = load ptr, ptr %node, align 8
  br label %next
make:
  %size = add i64 %bytes, 16
  %made = call ptr @calloc(i64 1, i64 %size)
  %full = icmp eq ptr %made, null
  br i1 %full, label %memory, label %fill
memory:
  %memory.error = call ptr @te.said(ptr %frame, i32 $code.RESOURCE_EXHAUSTED$, ptr @te.host_memory, i64 0, i64 0)
  ret ptr %memory.error
fill:
  %context.64 = ptrtoint ptr %context to i64
  call void @te.put(ptr %made, i64 8, i64 %context.64)
  %data = call ptr @te.field(ptr %record, i64 $record.pointers$)
  %lengths = call ptr @te.field(ptr %record, i64 $record.lengths$)
  %addresses = getelementptr i64, ptr %made, i64 2
  br label %test
test:
  %k = phi i64 [ 0, %fill ], [ %k.next, %copied ]
  %more = icmp slt i64 %k, %constants
  br i1 %more, label %allocate, label %push
allocate:
  %address.at = getelementptr i64, ptr %addresses, i64 %k
  %length.at = getelementptr i64, ptr %lengths, i64 %k
  %length = load i64, ptr %length.at, align 8
  %some = icmp ne i64 %length, 0
  br i1 %some, label %new, label %copied
new:
  %allocated = call i32 @cuMemAlloc_v2(ptr %address.at, i64 %length)
  %well = icmp eq i32 %allocated, 0
  br i1 %well, label %copy, label %refused
copy:
  %data.at = getelementptr ptr, ptr %data, i64 %k
  %from = load ptr, ptr %data.at, align 8
  %address = load i64, ptr %address.at, align 8
  %copy.result = call i32 @cuMemcpyHtoD_v2(i64 %address, ptr %from, i64 %length)
  %done = icmp eq i32 %copy.result, 0
  br i1 %done, label %copied, label %refused
copied:
  %k.next = add i64 %k, 1
  br label %test
refused:
  %result = phi i32 [ %allocated, %new ], [ %copy.result, %copy ]
  call void @te.drop(ptr %record, ptr %made)
  %refused.error = call ptr @te.driver.error(ptr %frame, i32 %result)
  ret ptr %refused.error
push:
  %head = load atomic ptr, ptr %contexts.at acquire, align 8
  store ptr %head, ptr %made, align 8
  %pair = cmpxchg ptr %contexts.at, ptr %head, ptr %made seq_cst seq_cst, align 8
  %pushed = extractvalue { ptr, i1 } %pair, 1
  br i1 %pushed, label %found, label %push
found:
  %here = phi ptr [ %node, %look ], [ %made, %push ]
  %kept = getelementptr i64, ptr %here, i64 2
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to, ptr align 8 %kept, i64 %bytes, i1 false)
  ret ptr null
}

; Launches on a stream, whose context is current, in memory of the device for workspace and report.
define internal ptr @te.launched(ptr %frame, ptr %record, ptr %buffers, ptr %stream, ptr %memory) nounwind {
entry:
  %report = alloca [3 x i64], align 8
  %kernels = call ptr @te.field(ptr %record, i64 $record.entry$)
  ; The report lies behind the workspace, whose bytes are a multiple of 256.
  %workspace = call i64 @te.word(ptr %record, i64 $record.workspace$)
  %behind = getelementptr i8, ptr %memory, i64 %workspace
  %status = call i64 %kernels(ptr %buffers, ptr null, ptr %memory, ptr %behind, ptr %stream)
  %launched = icmp eq i64 %status, 0
  br i1 %launched, label %ask, label %refused
refused:
  %bad = phi i64 [ %status, %entry ], [ %read, %wait ]
  %error = call ptr @te.launch.error(ptr %frame, i64 %bad)
  ret ptr %error
ask:
  %reports = call i64 @te.word(ptr %record, i64 $record.reports$)
  %checked = icmp ne i64 %reports, 0
  br i1 %checked, label %wait, label %fine
wait:
  %reading = call ptr @te.field(ptr %record, i64 $record.read$)
  %read = call i64 %reading(ptr %report, ptr %behind, i64 24, ptr %stream)
  %known = icmp eq i64 %read, 0
  br i1 %known, label %judge, label %refused
judge:
  %check = load i64, ptr %report, align 8
  %well = icmp eq i64 %check, 0
  br i1 %well, label %fine, label %failed
failed:
  %index.at = getelementptr i64, ptr %report, i64 1
  %failed.error = call ptr @te.failed(ptr %frame, ptr %record, i64 %check, ptr %index.at)
  ret ptr %failed.error
fine:
  ret ptr null
}

; The same in the memory that it needs, which XLA gives.
define internal ptr @te.supplied(ptr %frame, ptr %record, ptr %buffers, ptr %stream) nounwind {
entry:
  %args = alloca [48 x i8], align 8
  %workspace = call i64 @te.word(ptr %record, i64 $record.workspace$)
  %reports = call i64 @te.word(ptr %record, i64 $record.reports$)
  %report = shl i64 %reports, 8
  %size = add i64 %workspace, %report
  %some = icmp ne i64 %size, 0
  br i1 %some, label %allocate, label %plain
plain:
  %plain.error = call ptr @te.launched(ptr %frame, ptr %record, ptr %buffers, ptr %stream, ptr null)
  ret ptr %plain.error
allocate:
  call void @te.begin.here(ptr %args, i64 $sizeof.XLA_FFI_DeviceMemory_Allocate_Args$, ptr %frame)
  call void @te.put(ptr %args, i64 $XLA_FFI_DeviceMemory_Allocate_Args.size$, i64 %size)
  call void @te.put(ptr %args, i64 $XLA_FFI_DeviceMemory_Allocate_Args.alignment$, i64 256)
  call void @te.put(ptr %args, i64 $XLA_FFI_DeviceMemory_Allocate_Args.data$, i64 0)
  %refused = call ptr @te.ask(ptr %frame, i64 $XLA_FFI_Api.XLA_FFI_DeviceMemory_Allocate$, ptr %args)
  %given = icmp eq ptr %refused, null
  br i1 %given, label %launch, label %refuse
refuse:
  ret ptr %refused
launch:
  %memory = call ptr @te.field(ptr %args, i64 $XLA_FFI_DeviceMemory_Allocate_Args.data$)
  %error = call ptr @te.launched(ptr %frame, ptr %record, ptr %buffers, ptr %stream, ptr %memory)
  %address = ptrtoint ptr %memory to i64
  call void @te.begin.here(ptr %args, i64 $sizeof.XLA_FFI_DeviceMemory_Free_Args$, ptr %frame)
  call void @te.put(ptr %args, i64 $XLA_FFI_DeviceMemory_Free_Args.size$, i64 %size)
  call void @te.put(ptr %args, i64 $XLA_FFI_DeviceMemory_Free_Args.data$, i64 %address)
  %kept = call ptr @te.ask(ptr %frame, i64 $XLA_FFI_Api.XLA_FFI_DeviceMemory_Free$, ptr %args)
  %well = icmp eq ptr %error, null
  %said = select i1 %well, ptr %kept, ptr %error
  ret ptr %said
}

; The position of the first buffer that does not begin at a multiple of sixteen bytes, or -1.
define internal i64 @te.apart(ptr %record, ptr %buffers) nounwind {
entry:
  %inputs = call i64 @te.word(ptr %record, i64 $record.inputs$)
  %outputs = call i64 @te.word(ptr %record, i64 $record.outputs$)
  %count = add i64 %inputs, %outputs
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %none
look:
  %at = getelementptr i64, ptr %buffers, i64 %k
  %address = load i64, ptr %at, align 8
  %low = and i64 %address, 15
  %k.next = add i64 %k, 1
  %begins = icmp eq i64 %low, 0
  br i1 %begins, label %test, label %found
found:
  ret i64 %k
none:
  ret i64 -1
}

define internal ptr @te.run(ptr %frame, ptr %record, ptr %buffers, ptr %constants.at) nounwind {
entry:
  %context.at = alloca ptr, align 8
  %args = alloca [48 x i8], align 8
  %apart = call i64 @te.apart(ptr %record, ptr %buffers)
  %begin = icmp slt i64 %apart, 0
  br i1 %begin, label %stream, label %aside
aside:
  %aside.error = call ptr @te.said(ptr %frame, i32 $code.INVALID_ARGUMENT$, ptr @te.misaligned, i64 %apart, i64 0)
  ret ptr %aside.error
stream:
  call void @te.begin.here(ptr %args, i64 $sizeof.XLA_FFI_Stream_Get_Args$, ptr %frame)
  call void @te.put(ptr %args, i64 $XLA_FFI_Stream_Get_Args.stream$, i64 0)
  %refused = call ptr @te.ask(ptr %frame, i64 $XLA_FFI_Api.XLA_FFI_Stream_Get$, ptr %args)
  %given = icmp eq ptr %refused, null
  br i1 %given, label %context, label %refuse
refuse:
  ret ptr %refused
context:
  %stream.own = call ptr @te.field(ptr %args, i64 $XLA_FFI_Stream_Get_Args.stream$)
  %asked = call i32 @cuStreamGetCtx(ptr %stream.own, ptr %context.at)
  %known = icmp eq i32 %asked, 0
  br i1 %known, label %enter, label %driver
enter:
  %context.own = load ptr, ptr %context.at, align 8
  %pushed = call i32 @cuCtxPushCurrent_v2(ptr %context.own)
  %entered = icmp eq i32 %pushed, 0
  br i1 %entered, label %constants, label %driver
driver:
  %result = phi i32 [ %asked, %context ], [ %pushed, %enter ]
  %driver.error = call ptr @te.driver.error(ptr %frame, i32 %result)
  ret ptr %driver.error
constants:
  %missing = call ptr @te.constants(ptr %frame, ptr %record, ptr %context.own, ptr %constants.at)
  %there = icmp eq ptr %missing, null
  br i1 %there, label %launch, label %leave
launch:
  %launched = call ptr @te.supplied(ptr %frame, ptr %record, ptr %buffers, ptr %stream.own)
  br label %leave
leave:
  %error = phi ptr [ %missing, %constants ], [ %launched, %launch ]
  %popped = call i32 @cuCtxPopCurrent_v2(ptr %context.at)
  ret ptr %error
}
"""
