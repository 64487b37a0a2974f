"""Launches as routines: a plan worked out and handed to the driver by native code, without Python and without CuPy.

For a function `NAME` there is

    int64_t NAME(void *const *buffers, const int64_t *sizes, void *workspace, void *report, CUstream stream)

- `buffers`: an address on the device per parameter of the plan, then one per constant, each a multiple of 16.
- `sizes`: the symbolic extents in the order of the plan, in memory of the host.
- `workspace`: `plan.workspace_bytes(sizes)` bytes of the device at a multiple of 256 (may be null where that is 0).
- `report`: where the plan reports: 24 bytes of the device, which are zeroed here, on the stream, before the kernels run. The number of
  the failed check plus 1 (0: none), the index, the extent.
- the result: 0 once all is launched (nothing is waited for), or what went wrong, less than 0: see `NO_CODE` ... `DRIVER`.

`NAME_load()` has the module loaded, which else the first call does (it may not stand in the capture of a graph); `NAME_unload()`
frees what was loaded. Both work on the context that is current, as every call does; where none is, the primary one of device 0
becomes it. A context is known by the number that the driver gives it, so one that takes the place of another is not taken for it.
Any number of threads may be inside; two that load at the same time both do, and one of the modules is used.

The driver is found by `driver_text`, in the same module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tensorexpr.codegen.cuda.launch.driver_text import VALUES, driver_source
from tensorexpr.codegen.cuda.launch.plan import ALIGNMENT, Loop, Plan, Step
from tensorexpr.codegen.llvm.text.extents import SIZES, bytes_of, names_of, size
from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.errors import TargetError, user_location

_INVALID_VALUE = 1
_MOST_BLOCKS = (1 << 31) - 1
_MOST_ASKED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)(a?)")


def launches(triple: str, functions: Sequence[tuple[str, Plan, Mapping[str, bytes]]], more: str = "") -> Routines:
    """The module of the entry points of functions: each has a symbol, a plan, and cubins by architecture, "sm_90" or, for that device
    alone, "sm_90a"; with `more` routines.

    A device takes the newest code of its own generation that is not newer than itself. Raises `TargetError` for names that are none.
    """
    head = [f'target triple = "{triple}"']
    source = [driver_source(), SIZES]
    for symbol, plan, images in functions:
        for arch in ordered(images):
            data = images[arch]
            contents = f"\\{data.hex(chr(92))}" if data else ""
            head.append(f'@{symbol}_{arch} = internal constant [{len(data)} x i8] c"{contents}", align 64')
        source.append(_function(plan, ordered(images)).replace("SYMBOL", symbol))
    return Routines("\n".join((*source, more)), VALUES, "\n".join(head) + "\n")


def _function(plan: Plan, chosen: Sequence[str]) -> str:
    """The text of the entry points of a plan, for a SYMBOL."""
    kernels = list(dict.fromkeys(step.kernel for step in plan.launches))
    node = (
        _NODE.replace("    CHOOSE\n", _choice(chosen)).replace("    FIND\n", _finding(kernels, plan)).replace("KERNELS", str(len(kernels)))
    )
    names = [f"SYMBOL_{arch}: here" for arch in chosen] + [f"SYMBOL_name{k}: text = {name!r}" for k, name in enumerate(kernels)]
    return "\n".join((*names, node, *_Launcher(plan, kernels).lines))


def ordered(images: Sequence[str] | Mapping[str, bytes]) -> list[str]:
    """Architectures, what a device prefers first. Raises `TargetError` for names that are none."""
    for name in images:
        if not _ARCHITECTURE.fullmatch(name):
            raise TargetError(f"expected architectures of GPUs such as sm_90, got {name!r}", location=user_location())
    return sorted(images, key=lambda name: (-capability(name)[0], not capability(name)[1]))


def capability(arch: str) -> tuple[int, bool]:
    """The capability of an architecture as ten times its first number plus its second, and whether code for it runs on that alone."""
    match = _ARCHITECTURE.fullmatch(arch)
    assert match is not None
    return 10 * int(match[1]) + int(match[2]), bool(match[3])


def _choice(chosen: Sequence[str]) -> str:
    """Statements that take the first architecture of those that are chosen which a device can run."""
    lines = ""
    for arch in chosen:
        number, alone = capability(arch)
        fits = f"device == {number}" if alone else f"device >= {number} and device < {number - number % 10 + 10}"
        lines += f"    if image == None and {fits}:\n        image = SYMBOL_{arch}\n"
    return lines


def _finding(kernels: Sequence[str], plan: Plan) -> str:
    """Statements that put the kernels in their places, and tell the driver of those that will ask for shared memory."""
    asked = {step.kernel: step.shared for step in plan.launches if step.shared}
    lines = ""
    for k, name in enumerate(kernels):
        get = f"call(i32, gpu_function(cuModuleGetFunction), node + {32 + 8 * k}, module.ptr, SYMBOL_name{k})"
        lines += f"    if result == 0:\n        result = {get}\n"
        if name in asked:
            tell = f"call(i32, gpu_function(cuFuncSetAttribute), node.ptr[{4 + k}], i32({_MOST_ASKED}), i32({asked[name]}))"
            lines += f"    if result == 0:\n        result = {tell}\n"
    return lines


_NODE = """
SYMBOL_modules: ptr = None

# The node of the current context (see `gpu_drop`), its module loaded where it is not.
def SYMBOL_node(found: ptr) -> i64:
    context = stack(ptr, 1)
    id = stack(i64, 1)
    capability = stack(i32, 1)
    module = stack(ptr, 1)
    status = gpu_context(context, id)
    if status != 0:
        return status
    node = atomic_load(SYMBOL_modules, acquire)
    while node != None:
        if node.i64[1] == id.i64:
            found.ptr = node
            return 0
        node = node.ptr[0]
    status = gpu_capability(capability)
    if status != 0:
        return status
    device = capability.i32
    image = None
    CHOOSE
    if image == None:
        return NO_CODE
    result = call(i32, gpu_function(cuModuleLoadData), module, image)
    if result != 0:
        return gpu_said(result)
    node = malloc(8 * (4 + KERNELS))
    if node == None:
        return NO_MEMORY
    node.i64[1] = id.i64
    node.ptr[2] = context.ptr
    node.ptr[3] = module.ptr
    FIND
    if result != 0:
        gpu_drop(node)
        return gpu_said(result)
    while True:
        first = atomic_load(SYMBOL_modules, acquire)
        node.ptr[0] = first
        if atomic_exchange(SYMBOL_modules, first, node, seq_cst, seq_cst):
            break
    found.ptr = node
    return 0

@exported
def SYMBOL_load() -> i64:
    return SYMBOL_node(stack(ptr, 1))

@exported
def SYMBOL_unload() -> i64:
    node = atomic_swap(SYMBOL_modules, None, seq_cst)
    while node != None:
        behind = node.ptr[0]
        gpu_drop(node)
        node = behind
    return 0
"""


class _Launcher:
    """The lines of the entry that launches a plan."""

    def __init__(self, plan: Plan, kernels: Sequence[str]) -> None:
        self.kernels = {name: k for k, name in enumerate(kernels)}
        self.names = names_of(plan.sizes)
        self.places: dict[str, str] = {}
        self.loops = 0
        most = max((len(step.buffers) + len(step.scalars) + step.reports for step in plan.launches), default=0)
        self.lines = [_ENTRY.replace("WORDS", str(max(1, most)))]
        for k, name in enumerate((*plan.parameters, *plan.constants)):
            self.places[name] = f"buffers.i64[{k}]"
        for k, (name, itemsize, extents) in enumerate(plan.workspace):  # one behind the other
            before = f"place{k - 1} + length" if k else "i64(workspace)"
            self.lines += [f"    place{k} = {before}", f"    length = {bytes_of(0, [(itemsize, extents)], ALIGNMENT, self.names)}"]
            self.places[name] = f"place{k}"
        if plan.reports:
            self.done("    ", "gpu_function(cuMemsetD8Async), report, i8(0), i64(24), stream")
        self.steps("    ", plan.steps)
        self.lines.append("    return 0\n")

    def done(self, indent: str, call: str) -> None:
        """Goes on where the driver says 0."""
        self.lines += [f"{indent}result = call(i32, {call})", f"{indent}if result != 0:", f"{indent}    return gpu_said(result)"]

    def steps(self, indent: str, steps: Sequence[Step | Loop]) -> None:
        for step in steps:
            if isinstance(step, Loop):
                self.loop(indent, step)
            else:
                self.launch(indent, step)

    def loop(self, indent: str, loop: Loop) -> None:
        self.loops += 1
        k = self.loops
        start, stop = (size(extent, self.names) for extent in (loop.start, loop.stop))
        self.lines += [f"{indent}index{k} = {start}", f"{indent}stop{k} = {stop}", f"{indent}while index{k} < stop{k}:"]
        outer, self.names = self.names, {**self.names, loop.index: f"index{k}"}
        self.steps(f"{indent}    ", loop.steps)
        self.names = outer
        self.lines.append(f"{indent}    index{k} += 1")

    def launch(self, indent: str, step: Step) -> None:
        """One launch; none where the grid has no blocks, refused where it has more than a driver takes."""
        blocks = [size(extent, self.names) for extent in step.blocks]
        values = [self.places[name] for name in step.buffers] + [size(name, self.names) for name in step.scalars]
        values += ["i64(report)"] * step.reports
        self.lines += [f"{indent}grid{axis} = {extent}" for axis, extent in zip("xyz", blocks, strict=True)]
        self.lines.append(f"{indent}if gridx > 0 and gridy > 0 and gridz > 0:")
        self.lines += [
            f"{indent}    if max(gridx, max(gridy, gridz)) > {_MOST_BLOCKS}:",
            f"{indent}        return gpu_said({_INVALID_VALUE})",
        ]
        self.lines += [f"{indent}    block.i64[{position}] = {value}" for position, value in enumerate(values)]
        self.lines.append(f"{indent}    bytes.i64 = {8 * len(values)}")
        threads = ", ".join(f"i32({n})" for n in step.threads)
        function = f"node.ptr[{4 + self.kernels[step.kernel]}], i32(gridx), i32(gridy), i32(gridz), {threads}"
        self.done(f"{indent}    ", f"gpu_function(cuLaunchKernel), {function}, i32({step.shared}), stream, None, extra")


# CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END, as every launch has them.
_ENTRY = """
@exported
def SYMBOL(buffers: ptr, sizes: ptr, workspace: ptr, report: ptr, stream: ptr) -> i64:
    found = stack(ptr, 1)
    block = stack(i64, WORDS)
    bytes = stack(i64, 1)
    extra = stack(ptr, 5)
    status = SYMBOL_node(found)
    if status != 0:
        return status
    node = found.ptr
    extra.i64[0] = 1
    extra.ptr[1] = block
    extra.i64[2] = 2
    extra.ptr[3] = bytes
    extra.ptr[4] = None"""
