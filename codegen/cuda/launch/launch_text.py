"""Launches as LLVM IR: a plan worked out and handed to the driver by native code, without Python and without CuPy.

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

The driver is found by `driver_text`, which stands in the same module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tensorexpr.codegen.cuda.launch.driver_text import FUNCTIONS, NO_CODE, NO_MEMORY
from tensorexpr.codegen.cuda.launch.plan import ALIGNMENT, Loop, Plan, Step
from tensorexpr.codegen.llvm.text.arithmetic import Arithmetic
from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.errors import TargetError, user_location

_INVALID_VALUE = 1
_MOST_BLOCKS = (1 << 31) - 1
_MOST_ASKED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)(a?)")


def launcher_text(symbol: str, plan: Plan, images: Mapping[str, bytes]) -> str:
    """The entry points of a function: `images` are its cubins by architecture, "sm_90" or, for that device alone, "sm_90a".

    A device takes the newest code of its own generation that is not newer than itself. Raises `TargetError` for names that are none.
    """
    chosen = ordered(images)
    kernels = list(dict.fromkeys(step.kernel for step in plan.launches))
    parts = []
    for arch in chosen:
        data = images[arch]
        contents = f"\\{data.hex(chr(92))}" if data else ""
        parts.append(f'@{symbol}_{arch} = internal constant [{len(data)} x i8] c"{contents}", align 64')
    values = {name: k for k, name in enumerate(FUNCTIONS)} | {"BYTES": 8 * (4 + len(kernels)), "NO_MEMORY": NO_MEMORY, "NO_CODE": NO_CODE}
    source = "\n".join(
        (
            *(f"SYMBOL_{arch}: here" for arch in chosen),
            *(f"SYMBOL_name{k}: text = {name!r}" for k, name in enumerate(kernels)),
            _NODE.replace("    CHOOSE\n", _choice(chosen)).replace("    FIND\n", _finding(kernels, plan)),
        )
    )
    parts.append(Routines(source.replace("SYMBOL", symbol), values).text())
    parts.append(_Launcher(symbol, plan, kernels).text())
    return "\n".join(parts)


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

@here
def malloc(size: i64) -> ptr: ...
@here
def gpu_function(number: i64) -> ptr: ...
@here
def gpu_said(result: i32) -> i64: ...
@here
def gpu_context(context: ptr, id: ptr) -> i64: ...
@here
def gpu_capability(capability: ptr) -> i64: ...
@here
def gpu_drop(node: ptr): ...

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
    node = malloc(BYTES)
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
    """The entry that launches a plan."""

    def __init__(self, symbol: str, plan: Plan, kernels: Sequence[str]) -> None:
        self.symbol, self.plan = symbol, plan
        self.kernels = {name: k for k, name in enumerate(kernels)}
        self.ir = Arithmetic("t", plan.sizes)
        self.places: dict[str, str] = {}
        self.labels = 0

    def text(self) -> str:
        ir, plan = self.ir, self.plan
        most = max((len(step.buffers) + len(step.scalars) + step.reports for step in plan.launches), default=0)
        ir.lines += [
            f"define i64 @{self.symbol}(ptr %buffers, ptr %sizes, ptr %workspace, ptr %report, ptr %stream) nounwind {{",
            "entry:",
            "  %node.at = alloca ptr, align 8",
            f"  %block = alloca [{max(1, most)} x i64], align 16",
            "  %bytes = alloca i64, align 8",
            "  %extra = alloca [5 x ptr], align 16",
            "  %result = alloca i32, align 4",
            f"  %status = call i64 @{self.symbol}_node(ptr %node.at)",
            "  %usable = icmp eq i64 %status, 0",
            "  br i1 %usable, label %begin, label %unusable",
            "unusable:",
            "  ret i64 %status",
            "begin:",
            "  %node = load ptr, ptr %node.at, align 8",
            f"  %launching = call ptr @gpu_function(i64 {FUNCTIONS.index('cuLaunchKernel')})",
        ]
        # CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END, as every launch has them.
        for k, word in enumerate(("inttoptr (i64 1 to ptr)", "%block", "inttoptr (i64 2 to ptr)", "%bytes", "null")):
            ir.lines.append(f"  store ptr {word}, ptr {ir.new(f'getelementptr ptr, ptr %extra, i64 {k}')}, align 8")
        self.addresses()
        if plan.reports:
            clearing = ir.new(f"call ptr @gpu_function(i64 {FUNCTIONS.index('cuMemsetD8Async')})")
            self.done(ir.new(f"call i32 {clearing}(ptr %report, i8 0, i64 24, ptr %stream)"))
        self.steps(plan.steps)
        ir.lines += [
            "  ret i64 0",
            "failed:",
            "  %r = load i32, ptr %result, align 4",
            "  %said = call i64 @gpu_said(i32 %r)",
            "  ret i64 %said",
            "}",
        ]
        return "\n".join(ir.lines)

    def addresses(self) -> None:
        """The address of every buffer: those handed in, then those in the workspace one behind the other."""
        ir, plan = self.ir, self.plan
        for k, name in enumerate((*plan.parameters, *plan.constants)):
            self.places[name] = ir.new(f"load i64, ptr {ir.new(f'getelementptr i64, ptr %buffers, i64 {k}')}, align 8")
        at = ir.new("ptrtoint ptr %workspace to i64") if plan.workspace else ""
        for name, itemsize, extents in plan.workspace:
            self.places[name] = at
            at = ir.binary("add", at, ir.padded(itemsize, extents, ALIGNMENT))

    def label(self) -> int:
        self.labels += 1
        return self.labels

    def done(self, result: str) -> None:
        """Goes on where the driver says 0."""
        k, ir = self.label(), self.ir
        fine = ir.new(f"icmp eq i32 {result}, 0")
        ir.lines += [
            f"  store i32 {result}, ptr %result, align 4",
            f"  br i1 {fine}, label %on{k}, label %failed",
            f"on{k}:",
        ]

    def steps(self, steps: Sequence[Step | Loop]) -> None:
        for step in steps:
            if isinstance(step, Loop):
                self.loop(step)
            else:
                self.launch(step)

    def loop(self, loop: Loop) -> None:
        k, ir = self.label(), self.ir
        start, stop = ir.value(loop.start), ir.value(loop.stop)
        ir.lines += [f"  br label %from{k}", f"from{k}:", f"  br label %test{k}", f"test{k}:"]
        ir.lines += [
            f"  %i{k} = phi i64 [ {start}, %from{k} ], [ %n{k}, %next{k} ]",
            f"  %go{k} = icmp slt i64 %i{k}, {stop}",
            f"  br i1 %go{k}, label %body{k}, label %over{k}",
            f"body{k}:",
        ]
        outer = ir.scope.get(loop.index)
        ir.scope[loop.index] = f"%i{k}"
        self.steps(loop.steps)
        del ir.scope[loop.index]
        if outer is not None:
            ir.scope[loop.index] = outer
        ir.lines += [f"  br label %next{k}", f"next{k}:", f"  %n{k} = add i64 %i{k}, 1", f"  br label %test{k}", f"over{k}:"]

    def launch(self, step: Step) -> None:
        """One launch; none where the grid has no blocks, refused where it has more than a driver takes."""
        k, ir = self.label(), self.ir
        blocks = [ir.value(extent) for extent in step.blocks]
        for value in dict.fromkeys(b for b in blocks if b.startswith("%") or int(b) < 1):
            j = self.label()
            some = ir.new(f"icmp sgt i64 {value}, 0")
            ir.lines += [f"  br i1 {some}, label %some{j}, label %skip{k}", f"some{j}:"]
        for value in dict.fromkeys(b for b in blocks if b.startswith("%") or int(b) > _MOST_BLOCKS):
            few = ir.new(f"icmp sle i64 {value}, {_MOST_BLOCKS}")
            self.done(ir.new(f"select i1 {few}, i32 0, i32 {_INVALID_VALUE}"))
        values = [self.places[name] for name in step.buffers] + [ir.value(name) for name in step.scalars]
        if step.reports:
            values.append(ir.new("ptrtoint ptr %report to i64"))
        for position, value in enumerate(values):
            ir.lines.append(f"  store i64 {value}, ptr {ir.new(f'getelementptr i64, ptr %block, i64 {position}')}, align 8")
        ir.lines.append(f"  store i64 {8 * len(values)}, ptr %bytes, align 8")
        function = ir.new(f"load ptr, ptr {ir.new(f'getelementptr ptr, ptr %node, i64 {4 + self.kernels[step.kernel]}')}, align 8")
        grid = ", ".join(f"i32 {ir.new(f'trunc i64 {b} to i32')}" for b in blocks)
        threads = ", ".join(f"i32 {n}" for n in step.threads)
        call = f"call i32 %launching(ptr {function}, {grid}, {threads}, i32 {step.shared}, ptr %stream, ptr null, ptr %extra)"
        self.done(ir.new(call))
        ir.lines += [f"  br label %skip{k}", f"skip{k}:"]
