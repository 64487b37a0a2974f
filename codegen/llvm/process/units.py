"""Long nests as many small modules: each kernel by itself, compiled in the background while the rest of the program is still being made.

A kernel with its parallel loops is a *unit*, a module of its own; one more has the entry point, which calls the units.

- A unit's symbol is a digest of its text without names, so kernels of any programs that are equal but for names are one unit of the
  process, compiled once. For that a unit knows of buffers only what it shows itself: no alignment beyond that of an element, and
  "not written" where it does not write.
- `compile_ahead` is told of parts of a nest as they stand, and hands their units to LLVM (`background`); `nest_in_units` then has little
  left to wait for. Kernels that differ in names alone are written once, too.
- The function of thousands of calls is made without optimization: LLVM takes a tenth of a millisecond for each pointer that is passed
  otherwise, and a call takes a nanosecond more.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tensorexpr.codegen import disk
from tensorexpr.codegen.llvm.emitter.module import MOST_CALLS, Array, KernelCall, ModuleEmitter, entry_name, has_checks
from tensorexpr.codegen.llvm.emitter.statements import statements
from tensorexpr.codegen.llvm.process.background import Job, image_of, submit, withdraw
from tensorexpr.codegen.llvm.process.jit import ObjectCode
from tensorexpr.codegen.llvm.process.load import kernel_passes
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.nest import Buffer, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.names import canonical
from tensorexpr.records import record, replace

MOST_TOGETHER = 8
"""Kernels of a nest that is one module."""
_KEPT = 2048
_UNIT = "te.unit"


@record(eq=False)
class Unit:
    """A kernel that is compiled by itself: its symbol, whether it may fail, and the work of LLVM."""

    symbol: str
    checked: bool
    job: Job


_units: Memo[Unit] = Memo(_KEPT)
_emitted: Memo[Unit] = Memo(_KEPT)
_forms: WeakKeyDictionary[Kernel, Kernel] = WeakKeyDictionary()


class _UnitEmitter(ModuleEmitter):
    """Kernels of a nest, each as a module, and the entry point as another."""

    linkage = "hidden"

    def __init__(self, nest: LoopNest, machine: Machine) -> None:
        super().__init__(nest, machine)
        self.known_arrays = self.arrays

    def unit(self, kernel: Kernel) -> Unit:
        """The unit of a kernel: that of an equal one, or handed to LLVM now."""
        first = kernel if kernel.like is None else kernel.like[0]
        form = _forms.get(first)
        if form is None:
            form = _forms[first] = canonical(first)
        key = (form, self.machine, self.nest.sizes, *map(self._facts, kernel.buffers))
        unit = _emitted.get(key, lambda: self._of(kernel))
        submit(unit.job)
        return unit

    def _of(self, kernel: Kernel) -> Unit:
        self.module, self.known, self.ranges = self.new_module(), {}, 0
        self.checked = has_checks(kernel)
        stored = {s.buffer for s in statements(kernel.body) if isinstance(s, Store)}
        self.arrays = {n: replace(self.known_arrays[n], written=n in stored) for n in kernel.buffers}
        self._new_kernel(_UNIT, kernel, kernel.buffers)
        self.arrays = self.known_arrays
        passes = kernel_passes(kernel)
        told = (passes, repr(self.machine), *self.known, *self.module.declarations.values(), *self.module.helpers.values())
        symbol = f"{_UNIT}.{disk.digest(*told)[:32]}"
        text = self.written().replace(f"@{_UNIT}", f"@{symbol}")
        return _units.get(symbol, lambda: Unit(symbol, self.checked, Job(text, self.machine, passes)))

    def entry(self, units: list[Unit]) -> Job:
        """The module of the entry point, which calls the units of all kernels in order."""
        self.module = self.new_module()
        self.checked = any(unit.checked for unit in units)
        calls = [KernelCall(u.symbol, k.buffers, u.checked) for u, k in zip(units, self.nest.kernels, strict=True)]
        self._entry(calls)
        declared = {c.symbol: ", ".join(type_ for type_, _ in self._words(c.names, c.checked)) for c in calls}
        text = [self.written(fails=False), *(f"declare hidden void @{name}({types})" for name, types in declared.items()), ""]
        return Job("\n".join(text), self.machine, "registers" if len(calls) <= MOST_CALLS else "calls")

    def _facts(self, name: str) -> tuple[object, ...]:
        array = self.known_arrays[name]
        return array.dtype, array.shape, name in self.streams, self.ahead.get(name, 0), array.within

    @staticmethod
    def _array(buffer: Buffer, nest: LoopNest) -> Array:
        return Array(buffer.name, buffer.dtype, buffer.shape, "workspace", True, buffer.within)

    @staticmethod
    def _alignment(array: Array) -> int:
        return array.dtype.itemsize


def compile_ahead(nest: LoopNest, machine: Machine) -> None:
    """Hands the kernels of a part of a nest to LLVM, under the names and with the outputs that they have in the whole."""
    emitter = _UnitEmitter(nest, machine)
    for kernel in nest.kernels:
        emitter.unit(kernel)


def nest_in_units(nest: LoopNest, machine: Machine) -> ObjectCode:
    """The object code of a nest of many kernels."""
    emitter = _UnitEmitter(nest, machine)
    units: list[Unit] = []
    try:
        for kernel in nest.kernels:
            units.append(emitter.unit(kernel))
        entry = emitter.entry(units)
        submit(entry)
        images = {unit.symbol: image_of(unit.job) for unit in units}
        return ObjectCode(image_of(entry), (entry_name(nest),), tuple(images.values()))
    except BaseException:
        withdraw(unit.job for unit in units)
        raise
