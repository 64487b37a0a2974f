"""Long nests as many small modules: each kernel by itself, compiled in the background while the rest of the program is still being made.

A kernel with its parallel loops is a *unit*, a module of its own; one more has the entry point, which calls the units.

- Kernels are written in names by order, and a unit's symbol is a digest of its text: so kernels of any programs that are equal but for
  names are one unit of the process, compiled once; those that differ in numbers alone share code as well (`numbers`). For that a unit
  knows of buffers only what it shows itself: no alignment beyond that of an element, and "not written" where it does not write.
- `compile_ahead` is told of parts of a nest as they stand, and hands their units to LLVM (`background`); `nest_in_units` then has little
  left to wait for. Kernels that differ in names alone are written once, too.
- What the text of a kernel calls of functions that a process has once (`Module.beside`) is linked with it, and compiled once.
- The function of thousands of calls is made without optimization: LLVM takes a tenth of a millisecond for each pointer that is passed
  otherwise, and a call takes a nanosecond more.
"""

from __future__ import annotations

from copy import copy
from itertools import chain, starmap

from tensorexpr.codegen.llvm.emitter.module import MOST_CALLS, Array, KernelCall, ModuleEmitter, entry_name, has_checks
from tensorexpr.codegen.llvm.process.background import Job, image_of, submit, withdraw
from tensorexpr.codegen.llvm.process.jit import ObjectCode
from tensorexpr.codegen.llvm.process.load import kernel_passes
from tensorexpr.codegen.llvm.process.numbers import UNIT, Code, Unit, unit_of
from tensorexpr.codegen.llvm.runtime.pool_trials import SITE
from tensorexpr.codegen.llvm.text.builder import Module
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.memo import Memo, remembered
from tensorexpr.codegen.nest import Buffer, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.names import canonical
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.records import replace

MOST_TOGETHER = 8
"""Kernels of a nest that is one module."""
_KEPT = 2048

_emitted: Memo[Unit] = Memo(_KEPT)
_once: Memo[Job] = Memo(_KEPT)
_form = remembered(canonical)


class _UnitEmitter(ModuleEmitter):
    """Kernels of a nest, each as a module, and the entry point as another."""

    linkage = "hidden"
    numbered = True

    def unit(self, kernel: Kernel) -> Unit:
        """The unit of a kernel: that of an equal one, or handed to LLVM now."""
        form = _form(kernel if kernel.like is None else kernel.like[0])
        key = (form, self.machine, self.nest.sizes, *map(self._facts, kernel.buffers))
        unit = _emitted.get(key, lambda: self._written_as(kernel.buffers)._of(form))
        for job in (*unit.beside, unit.code.job):
            submit(job)
        return unit

    def new_module(self) -> Module:
        return replace(super().new_module(), beside={})

    def _written_as(self, names: tuple[str, ...]) -> _UnitEmitter:
        """What writes a kernel of these buffers in names by order: texts of kernels that differ in names are one."""
        formal = {name: f"b{number}" for number, name in enumerate(names)}
        made = copy(self)
        made.module, made.functions, made.ranges = self.new_module(), {}, 0
        made.arrays = {formal[name]: replace(self.arrays[name], name=formal[name]) for name in names}
        made.positions = {formal[name]: number for number, name in enumerate(names)}
        made.streams = frozenset(formal[name] for name in names if name in self.streams)
        made.ahead = {formal[name]: self.ahead[name] for name in names if name in self.ahead}
        return made

    def _of(self, kernel: Kernel) -> Unit:
        self.checked = has_checks(kernel)
        stored = {s.buffer for s in statements(kernel.body) if isinstance(s, Store)}
        self.arrays = {name: replace(array, written=name in stored) for name, array in self.arrays.items()}
        self._new_kernel(UNIT, kernel, tuple(self.arrays))
        beside = tuple(starmap(self._beside, (self.module.beside or {}).items()))
        passes = kernel_passes(kernel)
        if passes == "registers" and not self.module.helpers:  # a function without a helper has nothing to inline
            passes = "functions"
        return unit_of(self.written(), self.checked, self.machine, passes, beside)

    def _beside(self, name: str, text: str) -> Job:
        """The module of a function that is there once."""
        words = f'target triple = "{self.machine.triple}"\n\n{text}'
        return _once.get((name, self.machine), lambda: Job(words, self.machine, "registers"))

    def entry(self, units: list[Unit], codes: dict[int, Code]) -> Job:
        """The module of the entry point, which calls the units of all kernels in order; `codes` are those of the units, by identity."""
        self.module, self.numbered = self.new_module(), False
        self.checked = any(unit.checked for unit in units)
        tables = {key: self._table(number, code) for number, (key, code) in enumerate(codes.items())}
        calls = [
            KernelCall(codes[id(u)].symbol, k.buffers, u.checked, tables[id(u)]) for u, k in zip(units, self.nest.kernels, strict=True)
        ]
        self._entry(calls)
        declared = {c.symbol: ", ".join([type_ for type_, _ in self._words(c.names, c.checked)] + ["ptr"]) for c in calls}
        text = [self.written(fails=False), *(f"declare hidden void @{name}({types})" for name, types in declared.items()), ""]
        return Job("\n".join(text), self.machine, "registers" if len(calls) <= MOST_CALLS else "calls")

    def _table(self, number: int, code: Code) -> str:
        """The numbers that a unit is called with, and places for what the pool finds out about its loops."""
        if not code.values:
            return "null"
        sites = [f"@te.site.{number}.{place}" for place in range(code.sites)]
        self.module.functions += [f"{site} = internal global {SITE} zeroinitializer, align 64" for site in sites]
        words = [*(f"i64 {value}" for value in code.values), *(f"i64 ptrtoint (ptr {site} to i64)" for site in sites)]
        self.module.functions.append(f"@te.numbers.{number} = internal constant [{len(words)} x i64] [{', '.join(words)}], align 16")
        return f"@te.numbers.{number}"

    def _facts(self, name: str) -> tuple[object, ...]:
        array = self.arrays[name]
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
        codes = {id(unit): unit.code for unit in units}
        entry = emitter.entry(units, codes)
        submit(entry)
        jobs = {code.symbol: code.job for code in codes.values()}
        images = [image_of(job) for job in dict.fromkeys((*chain.from_iterable(unit.beside for unit in units), *jobs.values()))]
        return ObjectCode(image_of(entry), (entry_name(nest),), tuple(images))
    except BaseException:
        withdraw(unit.code.job for unit in units)
        raise
