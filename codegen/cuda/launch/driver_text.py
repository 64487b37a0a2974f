"""The driver's functions as routines: found once per process, what it says as results of ours, the current context and its device.

The launches of `launch_text` in the same module call it. The driver is the library that `LIBRARY` names, else `libcuda.so.1`; nothing
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


def driver_source() -> str:
    """The driver's functions, found once per process: what the text of launches in the same module calls, with `VALUES`.

    Also i64 te_gpu_read(host, device, bytes, stream): copies memory of the device once what stands before on the stream has run,
    and waits for that.
    """
    names = (*FUNCTIONS, *_OPTIONAL)
    texts = [f"gpu_{name}: text = {name!r}" for name in names]
    texts += [f"gpu_variable: text = {LIBRARY!r}", "gpu_usual: text = 'libcuda.so.1'"]
    finding = "".join(f"    gpu_functions.ptr[{name}] = dlsym(library, gpu_{name})\n" for name in names)
    lacking = " or ".join(f"gpu_functions.ptr[{name}] == None" for name in FUNCTIONS)
    return "\n".join((*texts, _DRIVER.replace("    FINDING\n", finding).replace("LACKING", lacking)))


VALUES: dict[str, int | str] = {
    **{name: k for k, name in enumerate((*FUNCTIONS, *_OPTIONAL))},
    "COUNT": len(FUNCTIONS) + len(_OPTIONAL),
    "NO_CODE": NO_CODE,
    "NO_FUNCTION": NO_FUNCTION,
    "NO_LIBRARY": NO_LIBRARY,
    "NO_MEMORY": NO_MEMORY,
    "DRIVER": DRIVER,
}
_DRIVER = """
gpu_ready: i64 = 0
gpu_functions: array(ptr, COUNT)

def dlopen(path: ptr, flags: i32) -> ptr: ...
def dlsym(library: ptr, name: ptr) -> ptr: ...
def getenv(name: ptr) -> ptr: ...
def malloc(size: i64) -> ptr: ...
def free(block: ptr): ...

@alwaysinline
def gpu_function(number: i64) -> ptr:
    return gpu_functions.ptr[number]

# A result of the driver's as one of ours.
@alwaysinline
def gpu_said(result: i32) -> i64:
    return 0 if result == 0 else DRIVER - i64(result)

# Finds the driver's functions; the first of them that all threads know of is what counts, and they find the same.
def gpu_start() -> i64:
    if atomic_load(gpu_ready, acquire) != 0:
        return 0
    path = getenv(gpu_variable)
    if path == None or path.i8 == 0:
        path = gpu_usual
    library = dlopen(path, 2)
    if library == None:
        return NO_LIBRARY
    FINDING
    if LACKING:
        return NO_FUNCTION
    said = gpu_said(call(i32, gpu_functions.ptr[cuInit], i32(0)))
    if said == 0:
        atomic_store(gpu_ready, 1, release)
    return said

# The context that is current, and what it is known by.
def gpu_context(context: ptr, id: ptr) -> i64:
    started = gpu_start()
    if started != 0:
        return started
    device = stack(i32, 1)
    result = call(i32, gpu_functions.ptr[cuCtxGetCurrent], context)
    if result == 0 and context.ptr == None:
        result = call(i32, gpu_functions.ptr[cuDeviceGet], device, i32(0))
        if result == 0:
            result = call(i32, gpu_functions.ptr[cuDevicePrimaryCtxRetain], context, device.i32)
        if result == 0:
            result = call(i32, gpu_functions.ptr[cuCtxSetCurrent], context.ptr)
    if result == 0:
        id.ptr = context.ptr
        if gpu_functions.ptr[cuCtxGetId] != None:
            result = call(i32, gpu_functions.ptr[cuCtxGetId], context.ptr, id)
    return gpu_said(result)

# The capability of the current device, as ten times its first number plus its second.
def gpu_capability(capability: ptr) -> i64:
    device = stack(i32, 1)
    high = stack(i32, 1)
    low = stack(i32, 1)
    result = call(i32, gpu_functions.ptr[cuCtxGetDevice], device)
    if result == 0:
        result = call(i32, gpu_functions.ptr[cuDeviceGetAttribute], high, i32(75), device.i32)
    if result == 0:
        result = call(i32, gpu_functions.ptr[cuDeviceGetAttribute], low, i32(76), device.i32)
    if result == 0:
        capability.i32 = 10 * high.i32 + low.i32
    return gpu_said(result)

def te_gpu_read(host: ptr, device: ptr, bytes: i64, stream: ptr) -> i64:
    started = gpu_start()
    if started != 0:
        return started
    result = call(i32, gpu_functions.ptr[cuMemcpyDtoHAsync_v2], host, device, bytes, stream)
    if result == 0:
        result = call(i32, gpu_functions.ptr[cuStreamSynchronize], stream)
    return gpu_said(result)

# A module of a node whose context may be another one than the current: a node is
# { next, id of the context, the context, the module, functions ... }.
def gpu_drop(node: ptr):
    old = stack(ptr, 1)
    if call(i32, gpu_functions.ptr[cuCtxPushCurrent_v2], node.ptr[2]) == 0:
        call(i32, gpu_functions.ptr[cuModuleUnload], node.ptr[3])
        call(i32, gpu_functions.ptr[cuCtxPopCurrent_v2], old)
    free(node)
"""
