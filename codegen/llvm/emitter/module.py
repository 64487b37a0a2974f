"""A loop nest as the text of an LLVM module: an entry point, a function per kernel, a function per parallel loop.

    entry (see `abi`)  loads pointers and sizes, places the workspace, calls the kernels (many: by functions of some), returns the status
    kernel             statements of one kernel; pointers are noalias arguments, so LLVM knows what cannot overlap
    part               (environment, begin, end): what the pool calls for a chunk; unpacks and calls the range
    range              iterations begin..end of a parallel loop

A parallel loop hands the pool an array of 64-bit words (pointers, sizes, outer indices) as its environment; loops that run together
are one range for it (see `together_text`). Functions that are equal but for names are one, called with other pointers: the layers of a
model, the variables of an optimizer. A failed check records itself once in `status` and `error`, leaves its function, and whoever starts
next sees it and stops.
The text depends on nest and machine alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tensorexpr.bounds.wrapping import MOST_SIZE
from tensorexpr.codegen.llvm.emitter.memory import Binding
from tensorexpr.codegen.llvm.emitter.statements import Statements
from tensorexpr.codegen.llvm.runtime.pool_trials import SITE
from tensorexpr.codegen.llvm.runtime.together_text import ROW, TOGETHER, WEIGHT
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT, Workspace, constant_shape
from tensorexpr.codegen.llvm.text.builder import LONGEST_WORD, SCALAR_LOOP, Builder, Module
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.codegen.nest import Buffer, Check, For, Kernel, LoopNest, buffers_of
from tensorexpr.codegen.nest.walks import expressions_in, statements
from tensorexpr.dtypes import DType, int64
from tensorexpr.ir import Expr, Index
from tensorexpr.records import record
from tensorexpr.traversal import walk

_NAME = re.compile(r"(%[-\w$.]+|^[-\w$.]+:)", re.MULTILINE)
NUMBERS = "%numbers"
MOST_CALLS = 128
"""Kernels that one function calls."""
_CHUNK_WORK = 20_000.0  # units of Op.cost that make a chunk worth handing over: some microseconds

_FAIL = """define internal void @te.fail(ptr %status, ptr %error, i64 %check, i64 %index, i64 %extent) cold noinline {
entry:
  %exchange = cmpxchg ptr %status, i64 0, i64 %check seq_cst seq_cst, align 8
  %first = extractvalue { i64, i1 } %exchange, 1
  br i1 %first, label %record, label %exit
record:
  store i64 %index, ptr %error, align 8
  %place = getelementptr i64, ptr %error, i64 1
  store i64 %extent, ptr %place, align 8
  br label %exit
exit:
  ret void
}
"""


@record
class Array:
    """A buffer that lives outside of local memory."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    memory: str
    written: bool
    within: tuple[int, Expr] | None = None


def _known(emitter: Statements, array: Array) -> tuple[int, int] | None:
    """Between which numbers the elements of an array of int64 are said to be (`nest_proofs` holds the nest to it)."""
    if array.within is None or array.dtype is not int64:
        return None
    high = emitter.expr(array.within[1]).high
    return None if high is None else (array.within[0], high)


@record
class KernelCall:
    """A kernel as the entry point calls it: its symbol, the arrays it takes, whether it may fail, and the table of its numbers."""

    symbol: str
    names: tuple[str, ...]
    checked: bool
    numbers: str | None = None


def has_checks(kernel: Kernel) -> bool:
    """Whether a kernel checks an index as it runs."""
    return any(isinstance(s, Check) for s in statements(kernel.body))


def emit(nest: LoopNest, machine: Machine, stamped: bool = False) -> str:
    """The LLVM IR of a nest for a machine; `nest.name` is the entry point (see `abi` for its signature).

    `stamped`: the entry point takes one buffer more, behind the constants, and writes there when the first kernel begins and when
    each of them has ended, as seconds and nanoseconds of the monotonic clock.
    """
    return ModuleEmitter(nest, machine, stamped).text()


def entry_name(nest: LoopNest) -> str:
    """The symbol of the entry point: the name of the nest where it is an identifier, else made one."""
    return "te_" + re.sub(r"[^A-Za-z0-9_]", "_", nest.name)


class ModuleEmitter:
    """The text of one module for a whole nest. Kernels and their parallel loops are `linkage` functions of it."""

    linkage = "internal"
    numbered = False
    """Whether kernels and their ranges take a table of numbers behind all else."""

    def __init__(self, nest: LoopNest, machine: Machine, stamped: bool = False) -> None:
        self.nest = nest
        self.machine = machine
        self.stamped = stamped
        self.module = self.new_module()
        self.arrays: dict[str, Array] = {}
        self.workspace = Workspace(nest)
        for buffer in (*nest.parameters, *nest.workspace):
            self.arrays[buffer.name] = self._array(buffer, nest)
        for constant in nest.constants:
            self.arrays[constant.name] = Array(constant.name, constant.type.dtype, constant.type.shape, "constant", False)
        self.checked = any(map(has_checks, nest.kernels))
        # Only x86's stores past the caches are known to pay, and to need no more than a fence.
        self.streams = frozenset(nest.streams if machine.architecture == "x86_64" else ())
        self.ahead = dict(nest.ahead)
        self.positions = {name: position for position, name in enumerate(self.arrays)}
        self.ranges = 0
        self.functions: dict[int, list[tuple[str, str]]] = {}
        """Symbols and texts of functions by how many lines they have."""
        self.alike: dict[object, str] = {}
        """The symbols of kernels by what they are known to be like."""

    def new_module(self) -> Module:
        """A module without functions yet."""
        return Module(scales=self.machine.scales, vector_bits=self.machine.vector_bits, spread=self.machine.spread)

    @staticmethod
    def _array(buffer: Buffer, nest: LoopNest) -> Array:
        written = buffer.memory == "workspace" or buffer.name in nest.writes
        return Array(buffer.name, buffer.dtype, buffer.shape, buffer.memory, written, buffer.within)

    def text(self) -> str:
        calls = [self._kernel(number, kernel) for number, kernel in enumerate(self.nest.kernels)]
        self._entry(calls)
        return f"; {self.nest.name}\n{self.written()}"

    def written(self, fails: bool = True) -> str:
        """The module as it is now; its functions may fail if that is checked and they do not only call others."""
        parts = [f'target triple = "{self.machine.triple}"', ""]
        if self.checked and fails:
            parts.append(_FAIL)
        parts.append(self.module.text)
        if self.checked:
            parts.append('!0 = !{!"branch_weights", i32 1, i32 1048575}')
        if self.streams:
            parts.append("!1 = !{i32 1}")
        if self.module.scalar:
            parts += [f"{SCALAR_LOOP} = distinct !{{{SCALAR_LOOP}, !3}}", '!3 = !{!"llvm.loop.vectorize.enable", i1 false}']
        return "\n".join(parts) + "\n"

    # ------------------------------------------------------------------------------------------------ names and arguments

    @staticmethod
    def _plain(name: str) -> str:
        """A word of LLVM for a name, alike for some names: of values it is not more than a part. LLVM cuts off what is very long."""
        return re.sub(r"[^A-Za-z0-9_]", "_", name)[:LONGEST_WORD]

    def _size_value(self, name: str) -> Value:
        return Value(f"%size.{self._plain(name)}.{self.nest.sizes.index(name)}", "i64", low=0, high=MOST_SIZE)

    def _pointer(self, name: str) -> str:
        return f"%{self._plain(name)}.{self.positions[name]}"

    def _arguments(self, names: tuple[str, ...]) -> list[str]:
        """The arguments of kernels and ranges, as they stand in a definition: arrays, sizes, error state."""
        arguments = []
        for name in names:
            array = self.arrays[name]
            readonly = "" if array.written else " readonly"
            arguments.append(f"ptr noalias{readonly} align {self._alignment(array)} {self._pointer(name)}")
        arguments += [f"i64 {self._size_value(size).text}" for size in self.nest.sizes]
        if self.checked:
            arguments += ["ptr %status", "ptr %error"]
        return [*arguments, f"ptr noalias readonly {NUMBERS}"] if self.numbered else arguments

    @staticmethod
    def _alignment(array: Array) -> int:
        return ALIGNMENT if array.memory == "workspace" else array.dtype.itemsize

    def _words(self, names: tuple[str, ...], checked: bool) -> list[tuple[str, str]]:
        """The same as (type, text), for calls and environments."""
        words = [("ptr", self._pointer(name)) for name in names]
        words += [("i64", self._size_value(size).text) for size in self.nest.sizes]
        if checked:
            words += [("ptr", "%status"), ("ptr", "%error")]
        return [*words, ("ptr", NUMBERS)] if self.numbered else words

    def _attributes(self) -> str:
        return f'nounwind "prefer-vector-width"="{self.machine.vector_bits}" "no-trapping-math"="true"'

    def _emitter(self, names: tuple[str, ...]) -> Statements:
        """A fresh function body in which sizes and the named arrays are bound."""
        emitter = Statements(Builder(self.module), self.machine)
        for size in self.nest.sizes:
            emitter.sizes[size] = self._size_value(size)
        for name in names:
            array = self.arrays[name]
            strides: list[Value] = []
            stride = literal(1, "i64")
            for extent in reversed(array.shape):
                strides.append(stride)
                stride = emitter.b.mul(stride, emitter.expr(extent))
            count = stride.const if isinstance(stride.const, int) else None
            kept = tuple(reversed(strides)), array.memory, 1, count
            known = _known(emitter, array)
            more = name in self.streams, self.ahead.get(name, 0), known, array.written
            emitter.buffers[name] = Binding(self._pointer(name), array.dtype, *kept, *more)
        return emitter

    # ------------------------------------------------------------------------------------------------ kernels

    def _kernel(self, number: int, kernel: Kernel) -> KernelCall:
        """Emits a kernel, or finds one that it is known to be like; gives the call of it."""
        names = kernel.buffers
        form = None if kernel.like is None else (id(kernel.like[0]), *map(self._facts, names))
        symbol = self.alike.get(form)
        if symbol is None:
            symbol = self._new_kernel(f"kernel{number}.{self._plain(kernel.name)}", kernel, names)
            if form is not None:
                self.alike[form] = symbol
        return KernelCall(symbol, names, self.checked)

    def _facts(self, name: str) -> tuple[object, ...]:
        """What code knows of a buffer beside its name, type and shape."""
        array = self.arrays[name]
        return array.memory, array.written, name in self.streams, self.ahead.get(name, 0), array.within

    def _new_kernel(self, symbol: str, kernel: Kernel, names: tuple[str, ...]) -> str:
        emitter = self._emitter(names)
        calls = dict(self.module.calls)
        if kernel.together:
            self._together(symbol, names, emitter, kernel)
        else:
            emitter.outline = lambda emitter, loop, start, stop: self._parallel(symbol, names, emitter, loop, start, stop)
            emitter.block(kernel.body)
        self._fence(emitter.b, names)
        emitter.b.line("ret void")
        header = f"define {self.linkage} void @{symbol}({', '.join(self._arguments(names))}) noinline {self._attributes()}"
        return self._function(symbol, emitter.b.function(header), calls)

    def _function(self, symbol: str, text: str, calls: dict[str, int]) -> str:
        """Adds a function, if none is equal to it but for names; gives the symbol of the one that is there. `calls` are those of
        helpers before it was written."""
        plain = text.replace(f"@{symbol}", "@")
        others = self.functions.setdefault(plain.count("\n"), [])
        nameless = _nameless(plain) if others else ""
        for other, its_text in others:
            if _nameless(its_text) == nameless:
                self.module.calls.clear()
                self.module.calls.update(calls)
                return other
        others.append((symbol, plain))
        self.module.functions.append(text)
        return symbol

    def _parallel(self, kernel: str, outer: tuple[str, ...], emitter: Statements, loop: For, start: Value, stop: Value) -> None:
        """A parallel loop, and the call of the pool."""
        symbol = f"{kernel}.range{self.ranges}"
        part, environment = self._range(symbol, outer, emitter, loop, start, stop)
        b = emitter.b
        count = b.sub(stop, start)
        if count.const is None:
            count = b.intrinsic("smax", count, 0)
        work = emitter.work(loop, start, stop)
        if isinstance(work, float):
            grain = literal(max(1, int(min(_CHUNK_WORK / max(work, 1.0), _CHUNK_WORK))), "i64")
        else:
            ratio = b.op("fdiv", literal(_CHUNK_WORK, "double"), b.intrinsic("maxnum", work, 1.0))
            grain = b.intrinsic("smax", b.emit(f"call i64 @llvm.fptosi.sat.i64.f64({ratio.typed})", "i64"), 1)
        self._call_pool(b, symbol, part, environment, count, grain)

    def _together(self, symbol: str, names: tuple[str, ...], emitter: Statements, kernel: Kernel) -> None:
        """Parallel loops that run together, and one call of the pool for all of them."""
        b = emitter.b
        table = b.slot(f"[{ROW * len(kernel.body) + ROW + 1} x i64]", 16)
        rows = 0
        total = literal(0, "i64")

        def put(word: int, type_: str, text: str) -> None:
            address = b.emit(f"getelementptr i64, ptr {table}, i64 {1 + ROW * rows + word}", "ptr")
            b.line(f"store {type_} {text}, ptr {address.text}, align 8")

        def outline(emitter: Statements, loop: For, start: Value, stop: Value) -> None:
            nonlocal rows, total
            part, environment = self._range(f"{symbol}.range{self.ranges}", names, emitter, loop, start, stop)
            work = emitter.work(loop, start, stop)
            # What is not known now is as heavy as anything.
            weight = max(1, round(work / WEIGHT)) if isinstance(work, float) else round(_CHUNK_WORK / WEIGHT)
            count = b.sub(stop, start)
            count = count if count.const is not None else b.intrinsic("smax", count, 0)
            for word, (type_, text) in enumerate((("ptr", f"@{part}"), ("ptr", environment), ("i64", str(weight)), ("i64", total.text))):
                put(word, type_, text)
            rows, total = rows + 1, b.add(total, b.mul(count, weight))

        emitter.outline = outline
        emitter.block(kernel.body)
        b.line(f"store i64 {rows}, ptr {table}, align 8")
        put(ROW - 1, "i64", total.text)
        if self.module.beside is None:
            self.module.declare("llvm.smax.i64", "i64 (i64, i64)")
            self.module.declare("llvm.smin.i64", "i64 (i64, i64)")
            self.module.helper("te.together", lambda: TOGETHER)
        else:
            # Not `hidden`: its address is taken, and the linker may place the two objects anywhere; so it is read from the offset table.
            self.module.declarations["te.together"] = "declare void @te.together(ptr, i64, i64)"
            self.module.beside["te.together"] = TOGETHER.replace("internal", "hidden", 1)
        self._call_pool(b, symbol, "te.together", table, total, literal(max(1, round(_CHUNK_WORK / WEIGHT)), "i64"))

    def _range(self, symbol: str, outer: tuple[str, ...], emitter: Statements, loop: For, start: Value, stop: Value) -> tuple[str, str]:
        """The range function and the part function of a parallel loop: gives the symbol of the part, and its environment."""
        self.ranges += 1
        calls = dict(self.module.calls)
        names = tuple(n for n in buffers_of(loop.body) if n in outer)
        locals_ = [n for n in buffers_of(loop.body) if n not in outer]
        used = {node.name for e in expressions_in(loop.body) for node in walk(e) if isinstance(node, Index)}
        indices = [name for name in emitter.indices if name in used]

        extra = [f"i64 %index{k}" for k in range(len(indices))] + [f"ptr %local{k}" for k in range(len(locals_))]
        inner = self._emitter(names)
        for k, name in enumerate(indices):
            known = emitter.indices[name]
            inner.indices[name] = Value(f"%index{k}", "i64", low=known.low, high=known.high, multiple=known.multiple)
        for k, name in enumerate(locals_):
            known_local = emitter.buffers[name]
            inner.buffers[name] = Binding(f"%local{k}", known_local.dtype, known_local.strides, "local")
        if self.checked:
            status = inner.b.emit("load atomic i64, ptr %status monotonic, align 8", "i64")
            go, leave = inner.b.name("go"), inner.b.name("leave")
            inner.b.branch(inner.b.compare("icmp eq", status, 0), go, leave)
            inner.b.begin(leave)
            inner.b.line("ret void")
            inner.b.begin(go)
        begin = Value("%begin", "i64", low=start.low, high=stop.high, multiple=1)
        end = Value("%end", "i64", low=start.low, high=stop.high)
        inner.serial(loop, begin, end)
        self._fence(inner.b, names)
        inner.b.line("ret void")
        arguments = [*self._arguments(names), *extra, "i64 %begin", "i64 %end"]
        header = f"define internal void @{symbol}({', '.join(arguments)}) noinline {self._attributes()}"
        made = self._function(symbol, inner.b.function(header), calls)

        words = self._words(names, self.checked)
        words += [(emitter.indices[name].type, emitter.indices[name].text) for name in indices]
        words += [("ptr", emitter.buffers[name].pointer) for name in locals_]
        words.append(("i64", start.text))
        if made == symbol:
            self.module.functions.append(self._part(symbol, [type_ for type_, _ in words]))
        b = emitter.b
        environment = b.slot(f"[{len(words)} x i64]", 16)
        for place, (type_, text) in enumerate(words):
            address = b.emit(f"getelementptr i64, ptr {environment}, i64 {place}", "ptr")
            b.line(f"store {type_} {text}, ptr {address.text}, align 8")
        return f"{made}.part", environment

    def _call_pool(self, b: Builder, symbol: str, part: str, environment: str, count: Value, grain: Value) -> None:
        """All iterations, in chunks of `grain` at least; `symbol` is where what is found out about the loop is kept."""
        self.module.declare("te_parallel_for", "void (ptr, ptr, i64, i64, ptr)")
        self.module.functions.append(f"@{symbol}.site = internal global {SITE} zeroinitializer, align 64")
        b.line(f"call void @te_parallel_for(ptr @{part}, ptr {environment}, {count.typed}, {grain.typed}, ptr @{symbol}.site)")
        self._leave_on_failure(b)

    def _part(self, symbol: str, types: list[str]) -> str:
        b = Builder(self.module)
        values = []
        for place, type_ in enumerate(types):
            address = b.emit(f"getelementptr i64, ptr %environment, i64 {place}", "ptr")
            values.append(b.emit(f"load {type_}, ptr {address.text}, align 8", type_))
        start = values.pop()
        first = b.op("add", start, Value("%begin", "i64"))
        last = b.op("add", start, Value("%end", "i64"))
        b.line(f"call void @{symbol}({', '.join(v.typed for v in (*values, first, last))})")
        b.line("ret void")
        return b.function(f"define internal void @{symbol}.part(ptr %environment, i64 %begin, i64 %end) {self._attributes()}")

    def _fence(self, b: Builder, names: tuple[str, ...]) -> None:
        """Stores past the caches are on their way before anybody is told that they are done."""
        if self.streams & set(names):
            self.module.declare("llvm.x86.sse.sfence", "void ()")
            b.line("call void @llvm.x86.sse.sfence()")

    def _leave_on_failure(self, b: Builder) -> None:
        if not self.checked:
            return
        status = b.emit("load atomic i64, ptr %status acquire, align 8", "i64")
        go, leave = b.name("go"), b.name("leave")
        b.branch(b.compare("icmp eq", status, 0), go, leave)
        b.begin(leave)
        b.line("ret void")
        b.begin(go)

    # ------------------------------------------------------------------------------------------------ entry

    def _entry(self, calls: list[KernelCall]) -> None:
        """The entry point: all calls, or calls of functions that make some of them each, where they are many."""
        b = Builder(self.module)
        name, few = entry_name(self.nest), len(calls) <= MOST_CALLS
        if few:
            self._bind(b, calls)
        if self.checked:
            b.line("%status = alloca i64, align 8")
            b.line("store i64 0, ptr %status, align 8")
        failed = b.name("failed")
        if few:
            self._call_all(b, calls, failed)
        else:
            words = "ptr %buffers, ptr %sizes, ptr %workspace, ptr %error" + (", ptr %status" if self.checked else "")
            for number, start in enumerate(range(0, len(calls), MOST_CALLS)):
                symbol = f"{name}.part{number}"
                self._some_calls(symbol, words, calls[start : start + MOST_CALLS], start)
                b.line(f"call void @{symbol}({words})")
                self._stop_on_failure(b, failed)
        b.line("ret i64 0")
        if self.checked and calls:
            b.begin(failed)
            code = b.emit("load i64, ptr %status, align 8", "i64")
            b.line(f"ret {code.typed}")
        header = f"define i64 @{name}(ptr %buffers, ptr %sizes, ptr %workspace, ptr %error) {self._attributes()}"
        self.module.functions.append(b.function(header))

    def _some_calls(self, symbol: str, words: str, calls: list[KernelCall], first: int) -> None:
        """A function of some calls, of the kernels from number `first` on: LLVM takes more than linear time over functions of
        thousands of pointers."""
        b = Builder(self.module)
        self._bind(b, calls)
        failed = b.name("failed")
        self._call_all(b, calls, failed, first)
        b.line("ret void")
        if any(call.checked for call in calls):
            b.begin(failed)
            b.line("ret void")
        self.module.functions.append(b.function(f"define internal void @{symbol}({words}) noinline {self._attributes()}"))

    def _bind(self, b: Builder, calls: list[KernelCall]) -> None:
        """Loads sizes and the pointers that calls take."""
        used = dict.fromkeys(name for call in calls for name in call.names)
        for place, size in enumerate(self.nest.sizes):
            address = b.emit(f"getelementptr i64, ptr %sizes, i64 {place}", "ptr")
            b.line(f"{self._size_value(size).text} = load i64, ptr {address.text}, align 8")
        order = [p.name for p in self.nest.parameters] + [c.name for c in self.nest.constants]
        for place, name in enumerate(order):
            if name in used:
                address = b.emit(f"getelementptr ptr, ptr %buffers, i64 {place}", "ptr")
                b.line(f"{self._pointer(name)} = load ptr, ptr {address.text}, align 8")
        self._place_workspace(b, used)
        if self.stamped:
            address = b.emit(f"getelementptr ptr, ptr %buffers, i64 {len(order)}", "ptr")
            b.line(f"%stamps = load ptr, ptr {address.text}, align 8")

    def _call_all(self, b: Builder, calls: list[KernelCall], failed: str, first: int = 0) -> None:
        """Calls of the kernels from number `first` on."""
        if self.stamped and first == 0:
            self._stamp(b, 0)
        for number, call in enumerate(calls, first):
            words = self._words(call.names, call.checked) + ([] if call.numbers is None else [("ptr", call.numbers)])
            b.line(f"call void @{call.symbol}({', '.join(f'{type_} {text}' for type_, text in words)})")
            if self.stamped:
                self._stamp(b, number + 1)
            if call.checked:
                self._stop_on_failure(b, failed)

    def _stop_on_failure(self, b: Builder, failed: str) -> None:
        if self.checked:
            status = b.emit("load atomic i64, ptr %status acquire, align 8", "i64")
            go = b.name("go")
            b.branch(b.compare("icmp eq", status, 0), go, failed)
            b.begin(go)

    def _stamp(self, b: Builder, place: int) -> None:
        """Reads the monotonic clock (a `struct timespec` of two words)."""
        self.module.declare("clock_gettime", "i32 (i32, ptr)")
        address = b.emit(f"getelementptr i64, ptr %stamps, i64 {2 * place}", "ptr")
        b.emit(f"call i32 @clock_gettime(i32 1, ptr {address.text})", "i32")

    def _place_workspace(self, b: Builder, used: dict[str, None]) -> None:
        fixed = self.workspace.offsets
        offset = literal(self.workspace.fixed, "i64")
        emitter = Statements(b, self.machine)
        for size in self.nest.sizes:
            emitter.sizes[size] = self._size_value(size)
        for buffer in self.nest.workspace:
            place = literal(fixed[buffer.name], "i64") if buffer.name in fixed else offset
            if buffer.name in used:
                b.line(f"{self._pointer(buffer.name)} = getelementptr i8, ptr %workspace, i64 {place.text}")
            if constant_shape(buffer) is None:
                size_value = literal(buffer.dtype.itemsize, "i64")
                for extent in buffer.shape:
                    size_value = b.mul(size_value, emitter.expr(extent))
                padded = b.op("and", b.add(size_value, ALIGNMENT - 1), -ALIGNMENT)
                offset = b.add(offset, padded)


@lru_cache(256)
def _nameless(text: str) -> str:
    """The text of a function with numbers in the place of names."""
    parts = _NAME.split(text)
    found = {name: name.strip("%:") for name in dict.fromkeys(parts[1::2])}
    numbers = {name: f"%{number}" for number, name in enumerate(dict.fromkeys(found.values()))}  # unlike literals
    parts[1::2] = [numbers[found[name]] for name in parts[1::2]]
    return "".join(parts)
