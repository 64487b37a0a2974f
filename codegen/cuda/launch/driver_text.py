"""The driver's functions as LLVM IR: found once per process, what it says as results of ours, the current context and its device.

It is what the texts of `launch_text` in the same module call. The driver is the library that `LIBRARY` names, else `libcuda.so.1`; nothing
of it is asked for before the first call.
"""

from __future__ import annotations

SYMBOLS = ("dlopen", "dlsym", "getenv", "malloc", "free")
"""What the text calls of the C library."""
LIBRARY = "TENSOREXPR_CUDA_DRIVER"
"""The variable of the environment that names the driver's library, where it is not where the system looks."""
NO_CODE, NO_LIBRARY, NO_FUNCTION, NO_MEMORY, DRIVER = -1, -2, -3, -4, -1000
"""Results: no code for this GPU; the driver's library is not there, or lacks a function; no memory of the host; DRIVER - r for a result r
of the driver's."""

FUNCTIONS = (
    "cuInit", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetDevice",
    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize",
)  # fmt: skip
_OPTIONAL = ("cuCtxGetId",)  # since CUDA 12; without it a context is known by its address


def literal(text: str) -> str:
    """Text as a constant that ends with a zero."""
    return f'[{len(text) + 1} x i8] c"{text}\\00"'


def driver_text() -> str:
    """The driver's functions, found once per process: what the texts of `launcher_text` in the same module call.

    Also i64 te_gpu_read(host, device, bytes, stream): copies memory of the device once what stands before on the stream has run,
    and waits for that.
    """
    names = (*FUNCTIONS, *_OPTIONAL)
    finding = []
    for k, name in enumerate(names):
        finding += [
            f"find{k}:",
            f"  %f{k} = call ptr @dlsym(ptr %library, ptr @te.gpu.name{k})",
            f"  %g{k} = getelementptr ptr, ptr @te.gpu.functions, i64 {k}",
            f"  store ptr %f{k}, ptr %g{k}, align 8",
        ]
        after = f"find{k + 1}" if k + 1 < len(names) else "found"
        if name in _OPTIONAL:
            finding.append(f"  br label %{after}")
        else:
            finding += [f"  %n{k} = icmp eq ptr %f{k}, null", f"  br i1 %n{k}, label %lacking, label %{after}"]
    values = {"LACKS": str(NO_FUNCTION), "ABSENT": str(NO_LIBRARY), "DRIVER": str(DRIVER), "FINDING": "\n".join(finding)}
    values |= {f"${name}": str(k) for k, name in enumerate(names)}
    text = _DRIVER
    for word in sorted(values, key=len, reverse=True):
        text = text.replace(word, values[word])
    constants = [f"@te.gpu.name{k} = internal constant {literal(name)}" for k, name in enumerate(names)]
    constants += [
        f"@te.gpu.variable = internal constant {literal(LIBRARY)}",
        f"@te.gpu.usual = internal constant {literal('libcuda.so.1')}",
        f"@te.gpu.functions = internal global [{len(names)} x ptr] zeroinitializer, align 8",
    ]
    return "\n".join((*constants, text))


_DRIVER = """@te.gpu.ready = internal global i64 0, align 8
declare ptr @dlopen(ptr, i32)
declare ptr @dlsym(ptr, ptr)
declare ptr @getenv(ptr)
declare ptr @malloc(i64)
declare void @free(ptr)

define internal ptr @te.gpu.function(i64 %number) alwaysinline nounwind {
  %at = getelementptr ptr, ptr @te.gpu.functions, i64 %number
  %found = load ptr, ptr %at, align 8
  ret ptr %found
}
; A result of the driver's as one of ours.
define internal i64 @te.gpu.said(i32 %result) alwaysinline nounwind {
  %fine = icmp eq i32 %result, 0
  %wide = sext i32 %result to i64
  %shown = sub i64 DRIVER, %wide
  %said = select i1 %fine, i64 0, i64 %shown
  ret i64 %said
}

; Finds the driver's functions; the first of them that all threads know of is what counts, and they find the same.
define internal i64 @te.gpu.start() nounwind {
entry:
  %ready = load atomic i64, ptr @te.gpu.ready acquire, align 8
  %known = icmp ne i64 %ready, 0
  br i1 %known, label %done, label %look
done:
  ret i64 0
look:
  %named = call ptr @getenv(ptr @te.gpu.variable)
  %unnamed = icmp eq ptr %named, null
  br i1 %unnamed, label %usual, label %letter
letter:
  %first = load i8, ptr %named, align 1
  %empty = icmp eq i8 %first, 0
  br i1 %empty, label %usual, label %open
usual:
  br label %open
open:
  %path = phi ptr [ %named, %letter ], [ @te.gpu.usual, %usual ]
  %library = call ptr @dlopen(ptr %path, i32 2)
  %missing = icmp eq ptr %library, null
  br i1 %missing, label %absent, label %find0
absent:
  ret i64 ABSENT
lacking:
  ret i64 LACKS
FINDING
found:
  %init = call ptr @te.gpu.function(i64 $cuInit)
  %result = call i32 %init(i32 0)
  %said = call i64 @te.gpu.said(i32 %result)
  %fine = icmp eq i64 %said, 0
  br i1 %fine, label %keep, label %refused
keep:
  store atomic i64 1, ptr @te.gpu.ready release, align 8
  ret i64 0
refused:
  ret i64 %said
}

; The context that is current, and what it is known by.
define internal i64 @te.gpu.context(ptr %context, ptr %id) nounwind {
entry:
  %device = alloca i32, align 4
  %started = call i64 @te.gpu.start()
  %usable = icmp eq i64 %started, 0
  br i1 %usable, label %ask, label %unusable
unusable:
  ret i64 %started
ask:
  %current = call ptr @te.gpu.function(i64 $cuCtxGetCurrent)
  %r0 = call i32 %current(ptr %context)
  %e0 = icmp eq i32 %r0, 0
  br i1 %e0, label %look, label %failed
look:
  %have = load ptr, ptr %context, align 8
  %none = icmp eq ptr %have, null
  br i1 %none, label %first, label %number
first:
  %get = call ptr @te.gpu.function(i64 $cuDeviceGet)
  %r1 = call i32 %get(ptr %device, i32 0)
  %e1 = icmp eq i32 %r1, 0
  br i1 %e1, label %retain, label %failed
retain:
  %retaining = call ptr @te.gpu.function(i64 $cuDevicePrimaryCtxRetain)
  %number0 = load i32, ptr %device, align 4
  %r2 = call i32 %retaining(ptr %context, i32 %number0)
  %e2 = icmp eq i32 %r2, 0
  br i1 %e2, label %set, label %failed
set:
  %setting = call ptr @te.gpu.function(i64 $cuCtxSetCurrent)
  %made = load ptr, ptr %context, align 8
  %r3 = call i32 %setting(ptr %made)
  %e3 = icmp eq i32 %r3, 0
  br i1 %e3, label %number, label %failed
number:
  %numbering = call ptr @te.gpu.function(i64 $cuCtxGetId)
  %its = load ptr, ptr %context, align 8
  %address = ptrtoint ptr %its to i64
  store i64 %address, ptr %id, align 8
  %old = icmp eq ptr %numbering, null
  br i1 %old, label %fine, label %ask.id
ask.id:
  %r4 = call i32 %numbering(ptr %its, ptr %id)
  %e4 = icmp eq i32 %r4, 0
  br i1 %e4, label %fine, label %failed
fine:
  ret i64 0
failed:
  %r = phi i32 [ %r0, %ask ], [ %r1, %first ], [ %r2, %retain ], [ %r3, %set ], [ %r4, %ask.id ]
  %said = call i64 @te.gpu.said(i32 %r)
  ret i64 %said
}

; The capability of the current device, as ten times its first number plus its second.
define internal i64 @te.gpu.capability(ptr %capability) nounwind {
entry:
  %device = alloca i32, align 4
  %value = alloca i32, align 4
  %getting = call ptr @te.gpu.function(i64 $cuCtxGetDevice)
  %r0 = call i32 %getting(ptr %device)
  %e0 = icmp eq i32 %r0, 0
  br i1 %e0, label %major, label %failed
major:
  %asking = call ptr @te.gpu.function(i64 $cuDeviceGetAttribute)
  %number = load i32, ptr %device, align 4
  %r1 = call i32 %asking(ptr %value, i32 75, i32 %number)
  %e1 = icmp eq i32 %r1, 0
  br i1 %e1, label %minor, label %failed
minor:
  %high = load i32, ptr %value, align 4
  %r2 = call i32 %asking(ptr %value, i32 76, i32 %number)
  %e2 = icmp eq i32 %r2, 0
  br i1 %e2, label %fine, label %failed
fine:
  %low = load i32, ptr %value, align 4
  %ten = mul i32 %high, 10
  %both = add i32 %ten, %low
  store i32 %both, ptr %capability, align 4
  ret i64 0
failed:
  %r = phi i32 [ %r0, %entry ], [ %r1, %major ], [ %r2, %minor ]
  %said = call i64 @te.gpu.said(i32 %r)
  ret i64 %said
}

define i64 @te_gpu_read(ptr %host, ptr %device, i64 %bytes, ptr %stream) nounwind {
entry:
  %started = call i64 @te.gpu.start()
  %usable = icmp eq i64 %started, 0
  br i1 %usable, label %copy, label %unusable
unusable:
  ret i64 %started
copy:
  %copying = call ptr @te.gpu.function(i64 $cuMemcpyDtoHAsync_v2)
  %r0 = call i32 %copying(ptr %host, ptr %device, i64 %bytes, ptr %stream)
  %e0 = icmp eq i32 %r0, 0
  br i1 %e0, label %wait, label %failed
wait:
  %waiting = call ptr @te.gpu.function(i64 $cuStreamSynchronize)
  %r1 = call i32 %waiting(ptr %stream)
  br label %failed
failed:
  %r = phi i32 [ %r0, %copy ], [ %r1, %wait ]
  %said = call i64 @te.gpu.said(i32 %r)
  ret i64 %said
}

; A module of a node whose context may be another one than the current: a node is
; { next, id of the context, the context, the module, functions ... }.
define internal void @te.gpu.drop(ptr %node) nounwind {
  %old = alloca ptr, align 8
  %context.at = getelementptr ptr, ptr %node, i64 2
  %context = load ptr, ptr %context.at, align 8
  %module.at = getelementptr ptr, ptr %node, i64 3
  %module = load ptr, ptr %module.at, align 8
  %pushing = call ptr @te.gpu.function(i64 $cuCtxPushCurrent_v2)
  %r0 = call i32 %pushing(ptr %context)
  %there = icmp eq i32 %r0, 0
  br i1 %there, label %unload, label %gone
unload:
  %unloading = call ptr @te.gpu.function(i64 $cuModuleUnload)
  %r1 = call i32 %unloading(ptr %module)
  %popping = call ptr @te.gpu.function(i64 $cuCtxPopCurrent_v2)
  %r2 = call i32 %popping(ptr %old)
  br label %gone
gone:
  call void @free(ptr %node)
  ret void
}
"""
