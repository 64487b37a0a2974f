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
def cuStreamGetCtx(stream: ptr, context: ptr) -> i32: ...
def cuCtxPushCurrent_v2(context: ptr) -> i32: ...
def cuCtxPopCurrent_v2(context: ptr) -> i32: ...
def cuCtxSynchronize() -> i32: ...
def cuMemAlloc_v2(address: ptr, size: i64) -> i32: ...
def cuMemFree_v2(address: i64) -> i32: ...
def cuMemcpyHtoD_v2(to: i64, source: ptr, size: i64) -> i32: ...
def cuGetErrorString(result: i32, text: ptr) -> i32: ...

# The error of a result of the driver's; null for 0.
def driver_error(frame: ptr, result: i32) -> ptr:
    if result == 0:
        return None
    text = stack(ptr, 1)
    text.ptr = None
    cuGetErrorString(result, text)
    words = said_unknown_result if text.ptr == None else text.ptr
    return said(frame, code.INTERNAL, said_refused, i64(words), 0)

# The error of a result of the launcher's; null for 0.
def launch_error(frame: ptr, status: i64) -> ptr:
    if status == 0:
        return None
    if status < -4:
        return driver_error(frame, i32(-1000 - status))
    text = said_nocode if status == -1 else said_host_memory if status == -4 else said_driver
    return said(frame, code.INTERNAL, text, 0, 0)

# Frees what a record has in a context, which is current.
def drop(record: ptr, node: ptr):
    for k in range(record.i64[word.constants]):
        address = node.i64[k + 2]
        if address != 0:
            cuMemFree_v2(address)
    free(node)

# Gives back what a closed record has on devices, once all that was launched has run.
def clear(record: ptr):
    old = stack(ptr, 1)
    node = atomic_swap(record.ptr[word.contexts], None, seq_cst)
    if node == None:
        return
    while node != None:
        behind = node.ptr[0]
        if cuCtxPushCurrent_v2(node.ptr[1]) == 0:
            cuCtxSynchronize()
            drop(record, node)
            cuCtxPopCurrent_v2(old)
        else:
            free(node)
        node = behind
    call(i64, record.ptr[word.unload])

# Writes the addresses of the constants in a context, which is current; copies them there where they are not.
def put_constants(frame: ptr, record: ptr, context: ptr, to: ptr) -> ptr:
    count = record.i64[word.constants]
    node = atomic_load(record.ptr[word.contexts], acquire)
    while node != None and node.ptr[1] != context:
        node = node.ptr[0]
    if node == None:
        node = calloc(1, 8 * count + 16)
        if node == None:
            return said(frame, code.RESOURCE_EXHAUSTED, said_host_memory, 0, 0)
        node.ptr[1] = context
        for k in range(count):
            length = record.ptr[word.lengths].i64[k]
            if length == 0:
                continue
            address = node + 16 + 8 * k
            result = cuMemAlloc_v2(address, length)
            if result == 0:
                result = cuMemcpyHtoD_v2(address.i64, record.ptr[word.pointers].ptr[k], length)
            if result != 0:
                drop(record, node)
                return driver_error(frame, result)
        while True:
            first = atomic_load(record.ptr[word.contexts], acquire)
            node.ptr[0] = first
            if atomic_exchange(record.ptr[word.contexts], first, node, seq_cst, seq_cst):
                break
    memcpy(to, node + 16, 8 * count)
    return None

# Launches on a stream, whose context is current, in memory of the device for workspace and report.
def launched(frame: ptr, record: ptr, buffers: ptr, stream: ptr, memory: ptr) -> ptr:
    report = stack(i64, 3)
    # The report lies behind the workspace, whose bytes are a multiple of 256.
    behind = memory + record.i64[word.workspace]
    status = call(i64, record.ptr[word.entry], buffers, None, memory, behind, stream)
    if status != 0 or record.i64[word.reports] == 0:
        return launch_error(frame, status)
    read = call(i64, record.ptr[word.read], report, behind, i64(24), stream)
    if read != 0:
        return launch_error(frame, read)
    return None if report.i64[0] == 0 else failed(frame, record, report.i64[0], report + 8)

# The same in the memory that it needs, which XLA gives.
def supplied(frame: ptr, record: ptr, buffers: ptr, stream: ptr) -> ptr:
    args = stack(i64, 6)
    size = record.i64[word.workspace] + (record.i64[word.reports] << 8)
    if size == 0:
        return launched(frame, record, buffers, stream, None)
    begin(args, sizeof.XLA_FFI_DeviceMemory_Allocate_Args, frame)
    (args + XLA_FFI_DeviceMemory_Allocate_Args.size).i64 = size
    (args + XLA_FFI_DeviceMemory_Allocate_Args.alignment).i64 = 256
    (args + XLA_FFI_DeviceMemory_Allocate_Args.data).i64 = 0
    refused = ask(frame, XLA_FFI_Api.XLA_FFI_DeviceMemory_Allocate, args)
    if refused != None:
        return refused
    memory = (args + XLA_FFI_DeviceMemory_Allocate_Args.data).ptr
    error = launched(frame, record, buffers, stream, memory)
    begin(args, sizeof.XLA_FFI_DeviceMemory_Free_Args, frame)
    (args + XLA_FFI_DeviceMemory_Free_Args.size).i64 = size
    (args + XLA_FFI_DeviceMemory_Free_Args.data).ptr = memory
    held = ask(frame, XLA_FFI_Api.XLA_FFI_DeviceMemory_Free, args)
    return held if error == None else error

def run(frame: ptr, record: ptr, buffers: ptr, constants: ptr) -> ptr:
    context = stack(ptr, 1)
    args = stack(i64, 6)
    for k in range(record.i64[word.inputs] + record.i64[word.outputs]):
        if buffers.i64[k] & 15 != 0:
            return said(frame, code.INVALID_ARGUMENT, said_misaligned, k, 0)
    begin(args, sizeof.XLA_FFI_Stream_Get_Args, frame)
    (args + XLA_FFI_Stream_Get_Args.stream).i64 = 0
    refused = ask(frame, XLA_FFI_Api.XLA_FFI_Stream_Get, args)
    if refused != None:
        return refused
    stream = (args + XLA_FFI_Stream_Get_Args.stream).ptr
    result = cuStreamGetCtx(stream, context)
    if result == 0:
        result = cuCtxPushCurrent_v2(context.ptr)
    if result != 0:
        return driver_error(frame, result)
    error = put_constants(frame, record, context.ptr, constants)
    if error == None:
        error = supplied(frame, record, buffers, stream)
    cuCtxPopCurrent_v2(context)
    return error
"""
