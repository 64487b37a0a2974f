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

from tensorexpr.codegen.cuda.launch.driver_text import FUNCTIONS, NO_CODE, NO_MEMORY, literal
from tensorexpr.codegen.cuda.launch.plan import ALIGNMENT, Loop, Plan, Step
from tensorexpr.codegen.llvm.text.arithmetic import Arithmetic
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
        parts.append(f'@{symbol}.{arch} = internal constant [{len(data)} x i8] c"{contents}", align 64')
    parts += [f"@{symbol}.name{k} = internal constant {literal(name)}" for k, name in enumerate(kernels)]
    parts += [f"@{symbol}.modules = internal global ptr null, align 8"]
    parts += [_image(symbol, chosen), _functions(symbol, kernels, _asked(plan)), _load(symbol), _unload(symbol)]
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


def _image(symbol: str, chosen: Sequence[str]) -> str:
    """The code for the current device: see `launcher_text`."""
    lines = [
        f"define internal i64 @{symbol}.image(ptr %image) nounwind {{",
        "entry:",
        "  %at = alloca i32, align 4",
        "  %asked = call i64 @te.gpu.capability(ptr %at)",
        "  %known = icmp eq i64 %asked, 0",
        "  br i1 %known, label %look, label %unknown",
        "unknown:",
        "  ret i64 %asked",
        "look:",
        "  %capability = load i32, ptr %at, align 4",
        "  br label %try0",
    ]
    for k, arch in enumerate(chosen):
        number, alone = capability(arch)
        lines.append(f"try{k}:")
        if alone:
            lines.append(f"  %fits{k} = icmp eq i32 %capability, {number}")
        else:
            lines += [
                f"  %newer{k} = icmp sge i32 %capability, {number}",
                f"  %older{k} = icmp slt i32 %capability, {number - number % 10 + 10}",
                f"  %fits{k} = and i1 %newer{k}, %older{k}",
            ]
        lines += [
            f"  br i1 %fits{k}, label %take{k}, label %try{k + 1}",
            f"take{k}:",
            f"  store ptr @{symbol}.{arch}, ptr %image, align 8",
            "  ret i64 0",
        ]
    return "\n".join([*lines, f"try{len(chosen)}:", f"  ret i64 {NO_CODE}", "}"])


def _asked(plan: Plan) -> dict[str, int]:
    """The bytes of shared memory that launches of a kernel ask for, where they ask for some."""
    return {step.kernel: step.shared for step in plan.launches if step.shared}


def _functions(symbol: str, kernels: Sequence[str], asked: Mapping[str, int]) -> str:
    """The node of the current context (see `te.gpu.drop`), its module loaded where it is not; the driver is told of kernels that will ask
    for shared memory."""
    finding = []
    for k, name in enumerate(kernels):
        after = f"get{k + 1}" if k + 1 < len(kernels) else "push"
        finding += [
            f"get{k}:",
            f"  %slot{k} = getelementptr ptr, ptr %made, i64 {4 + k}",
            f"  %got{k} = call i32 %getting(ptr %slot{k}, ptr %module, ptr @{symbol}.name{k})",
            f"  store i32 %got{k}, ptr %result, align 4",
            f"  %fine{k} = icmp eq i32 %got{k}, 0",
            f"  br i1 %fine{k}, label %{f'tell{k}' if name in asked else after}, label %lacking",
        ]
        if name in asked:
            finding += [
                f"tell{k}:",
                f"  %function{k} = load ptr, ptr %slot{k}, align 8",
                f"  %told{k} = call i32 %telling(ptr %function{k}, i32 {_MOST_ASKED}, i32 {asked[name]})",
                f"  store i32 %told{k}, ptr %result, align 4",
                f"  %heard{k} = icmp eq i32 %told{k}, 0",
                f"  br i1 %heard{k}, label %{after}, label %lacking",
            ]
    values = {
        "SYMBOL": symbol,
        "BYTES": str(8 * (4 + len(kernels))),
        "FINDING": "\n".join(finding),
        "NEXT": "get0" if kernels else "push",
        "NO_MEMORY": str(NO_MEMORY),
        "$LOAD": str(FUNCTIONS.index("cuModuleLoadData")),
        "$GET": str(FUNCTIONS.index("cuModuleGetFunction")),
        "$TELL": str(FUNCTIONS.index("cuFuncSetAttribute")),
    }
    text = _NODE
    for word in sorted(values, key=len, reverse=True):
        text = text.replace(word, values[word])
    return text


_NODE = """define internal i64 @SYMBOL.node(ptr %found) nounwind {
entry:
  %context.at = alloca ptr, align 8
  %id.at = alloca i64, align 8
  %image.at = alloca ptr, align 8
  %module.at = alloca ptr, align 8
  %result = alloca i32, align 4
  %status = call i64 @te.gpu.context(ptr %context.at, ptr %id.at)
  %usable = icmp eq i64 %status, 0
  br i1 %usable, label %begin, label %unusable
unusable:
  ret i64 %status
begin:
  %id = load i64, ptr %id.at, align 8
  %head = load atomic ptr, ptr @SYMBOL.modules acquire, align 8
  br label %next
next:
  %node = phi ptr [ %head, %begin ], [ %behind, %other ]
  %end = icmp eq ptr %node, null
  br i1 %end, label %choose, label %look
look:
  %own.at = getelementptr i64, ptr %node, i64 1
  %own = load i64, ptr %own.at, align 8
  %same = icmp eq i64 %own, %id
  br i1 %same, label %have, label %other
other:
  %behind = load ptr, ptr %node, align 8
  br label %next
have:
  store ptr %node, ptr %found, align 8
  ret i64 0
choose:
  %choice = call i64 @SYMBOL.image(ptr %image.at)
  %chosen = icmp eq i64 %choice, 0
  br i1 %chosen, label %load, label %none
none:
  ret i64 %choice
load:
  %loading = call ptr @te.gpu.function(i64 $LOAD)
  %image = load ptr, ptr %image.at, align 8
  %loaded = call i32 %loading(ptr %module.at, ptr %image)
  store i32 %loaded, ptr %result, align 4
  %in = icmp eq i32 %loaded, 0
  br i1 %in, label %keep, label %failed
keep:
  %made = call ptr @malloc(i64 BYTES)
  %full = icmp eq ptr %made, null
  br i1 %full, label %memory, label %fill
memory:
  ret i64 NO_MEMORY
fill:
  %id.to = getelementptr i64, ptr %made, i64 1
  store i64 %id, ptr %id.to, align 8
  %context = load ptr, ptr %context.at, align 8
  %context.to = getelementptr ptr, ptr %made, i64 2
  store ptr %context, ptr %context.to, align 8
  %module = load ptr, ptr %module.at, align 8
  %module.to = getelementptr ptr, ptr %made, i64 3
  store ptr %module, ptr %module.to, align 8
  %getting = call ptr @te.gpu.function(i64 $GET)
  %telling = call ptr @te.gpu.function(i64 $TELL)
  br label %NEXT
FINDING
push:
  %first = load atomic ptr, ptr @SYMBOL.modules acquire, align 8
  store ptr %first, ptr %made, align 8
  %pair = cmpxchg ptr @SYMBOL.modules, ptr %first, ptr %made seq_cst seq_cst, align 8
  %pushed = extractvalue { ptr, i1 } %pair, 1
  br i1 %pushed, label %new, label %push
new:
  store ptr %made, ptr %found, align 8
  ret i64 0
lacking:
  call void @te.gpu.drop(ptr %made)
  br label %failed
failed:
  %r = load i32, ptr %result, align 4
  %said = call i64 @te.gpu.said(i32 %r)
  ret i64 %said
}"""


def _load(symbol: str) -> str:
    return f"""define i64 @{symbol}_load() nounwind {{
  %node = alloca ptr, align 8
  %status = call i64 @{symbol}.node(ptr %node)
  ret i64 %status
}}"""


def _unload(symbol: str) -> str:
    return f"""define i64 @{symbol}_unload() nounwind {{
entry:
  %head = atomicrmw xchg ptr @{symbol}.modules, ptr null seq_cst, align 8
  br label %next
next:
  %node = phi ptr [ %head, %entry ], [ %behind, %drop ]
  %end = icmp eq ptr %node, null
  br i1 %end, label %done, label %drop
drop:
  %behind = load ptr, ptr %node, align 8
  call void @te.gpu.drop(ptr %node)
  br label %next
done:
  ret i64 0
}}"""


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
            f"  %status = call i64 @{self.symbol}.node(ptr %node.at)",
            "  %usable = icmp eq i64 %status, 0",
            "  br i1 %usable, label %begin, label %unusable",
            "unusable:",
            "  ret i64 %status",
            "begin:",
            "  %node = load ptr, ptr %node.at, align 8",
            f"  %launching = call ptr @te.gpu.function(i64 {FUNCTIONS.index('cuLaunchKernel')})",
        ]
        # CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END, as every launch has them.
        for k, word in enumerate(("inttoptr (i64 1 to ptr)", "%block", "inttoptr (i64 2 to ptr)", "%bytes", "null")):
            ir.lines.append(f"  store ptr {word}, ptr {ir.new(f'getelementptr ptr, ptr %extra, i64 {k}')}, align 8")
        self.addresses()
        if plan.reports:
            clearing = ir.new(f"call ptr @te.gpu.function(i64 {FUNCTIONS.index('cuMemsetD8Async')})")
            self.done(ir.new(f"call i32 {clearing}(ptr %report, i8 0, i64 24, ptr %stream)"))
        self.steps(plan.steps)
        ir.lines += [
            "  ret i64 0",
            "failed:",
            "  %r = load i32, ptr %result, align 4",
            "  %said = call i64 @te.gpu.said(i32 %r)",
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
