"""Compiled functions: arrays in, arrays out, through one native entry point.

A call of arrays that fit as they are goes through machine code from end to end (`codegen.llvm.call`). Every other one comes to
`call`, which checks and converts its arrays (`codegen.compiled.arguments`), allocates results and workspace and enters the native
code. Python's lock is given up while that runs, unless it is over sooner than the lock is had back. Nothing is shared
between calls but read-only data, so any number of threads may be inside at once. A function holds IR values (program,
schedule, nest) and native code, and no tensor of the language: what it was built from may go away.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pickle import PicklingError
from typing import Any

import numpy as np

from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.compiled.arguments import MOST_BYTES, READY, Arguments, Layout, Signature, address
from tensorexpr.codegen.compiled.context import Context, Names, Symbol, extents_of
from tensorexpr.codegen.compiled.versions import Entry, Versions
from tensorexpr.codegen.cost import Cost, cost_of
from tensorexpr.codegen.executable import Built, Look
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.llvm import NativeFunction
from tensorexpr.codegen.llvm.process.call import Callable, Plan, Row, empty, link, native_calls
from tensorexpr.codegen.llvm.process.pool import pool, raise_pending
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.codegen.nest import CheckSite, LoopNest
from tensorexpr.codegen.nest.early import taken_apart
from tensorexpr.codegen.profiling import Profile, Stamped, counted, median_call, profiled
from tensorexpr.errors import ArgumentError, OutOfBoundsError, TargetError, user_location
from tensorexpr.hints import Explained, suggestion
from tensorexpr.integers.solving.effort import DomainTooComplex, at_most
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Const, Program
from tensorexpr.markup import code, or_reason, page, paragraph
from tensorexpr.records import replace
from tensorexpr.text import is_readable

STAGES = ("nest", "llvm", "asm")
_CUDA_STAGES = ("cuda", "ptx")
MOST_LINKED = 16
"""Sizes of a function of open sizes whose calls go through machine code: those of a call are compared with them one after the other."""
_ndarray = np.ndarray
_BYTES = np.dtype(np.uint8)
_COUNTED, _EFFORT = 40, 200_000
"""Definitions of a program whose cost a notebook shows, and steps of the solver for it."""


@native_calls
class CompiledFunction(Explained, Callable):
    """A compiled function of arrays: `f(*arrays, out=None)`.

    Takes one array per parameter of `signature` (any strides; scalars for 0-d parameters) and gives one array if it was
    built from one tensor, else a tuple. `out`, of the same form, is computed into and returned. Raises `ArgumentError`
    for arguments that do not fit and for results that memory does not hold, `OutOfBoundsError` (an `IndexError`) for a
    data-dependent index outside its tensor; the contents of the results are then unspecified.

    >>> A = te.placeholder((2, 3), name="A")
    >>> f = te.build(te.compute((2, 3), lambda i, j: A[i, j] * 2.0, name="B"), [A])
    >>> f.cost.operations, f.cost.bytes, f.workspace_bytes()
    (6, 48, 0)
    """

    noun = "a compiled function"
    offered = (
        "at", "context", "cost", "export", "name", "nest", "placeholders", "profile", "program", "run", "schedule", "signature", "source",
        "target", "updates", "workspace_bytes",
    )  # fmt: skip
    habits = dict.fromkeys(
        ("grad", "gradient", "backward", "vjp", "jvp"),
        "what is differentiated is the definition: te.vjp(op), or te.gradient(C, [A]) of tensors",
    )
    _called: Names | None = None
    _ready: Entry | None = None
    versions: Versions | None = None
    """Of a function of open sizes: code for the sizes of calls, beside that for all sizes."""
    updates: tuple[str, ...] = ()
    """The inputs whose new values are the last outputs."""
    mode = "inference"
    target = "cpu"
    origin: Any = None
    """A function of this one that gives what builds it again, and the arguments of that: how it is pickled."""

    def __init__(
        self, built: Built, signature: Signature, order: tuple[int, ...] | None = None, symbols: tuple[Symbol, ...] | None = None
    ) -> None:
        """`signature` has the inputs in calling order; `order` says where each input of the program stands in it."""
        if order is not None:
            places = {position: k for k, position in enumerate(order)}
            signature = replace(signature, inputs=tuple(signature.inputs[places[k]] for k in range(len(order))))
        self._symbols = symbols
        self._bare = signature.single
        self._executable = built.executable
        self.constants: dict[str, np.ndarray] = built.constants
        self._look: Look = built.look
        self._order = order
        self.signature = signature
        self._native = NativeFunction(self._executable.code, list(built.constants.values()))
        self._checks: tuple[CheckSite, ...] = self._executable.checks
        self._arguments = Arguments(signature, self._native.workspace_size)
        self._types = self._arguments.input_types
        self._find_layout = self._arguments.find_layout
        self._cost: Cost | None = None
        self._linked: set[tuple[int, ...]] = set()
        self.plan = self._plan()
        if self.plan is not None:
            link(self, self.plan)

    def _plan(self) -> Plan | None:
        """What calls through machine code are to do; None where extents are open (see `_link_at`), and where bytes need more than machine
        integers, so that Python says so."""
        parameters = (*self.signature.inputs, *self.signature.outputs)
        if self.signature.sizes or not all(isinstance(extent, Const) for p in parameters for extent in p.shape):
            return None
        return self._plan_at([tuple(int(extent_value(extent, {})) for extent in p.shape) for p in parameters], ())

    def _plan_at(self, shapes: Sequence[tuple[int, ...]], sizes: tuple[int, ...]) -> Plan | None:
        """The same for inputs and outputs of these shapes, which say what the open sizes are."""
        parameters = (*self.signature.inputs, *self.signature.outputs)
        rows = tuple(Row(p.dtype.numpy, shape) for p, shape in zip(parameters, shapes, strict=True))
        workspace = self._native.workspace_size(sizes)
        if max(workspace, *(row.bytes for row in rows)) > MOST_BYTES:
            return None
        inputs = len(self.signature.inputs)
        order = tuple(range(inputs)) if self._order is None else self._order
        return Plan(
            self._native.address,
            inputs,
            rows,
            order,
            self._native.constants,
            workspace,
            self.signature.single,
            self._native.is_long(sizes),
            self._native,
            sizes,
        )

    def _link_at(self, arrays: Sequence[np.ndarray], layout: Layout) -> None:
        """Lets calls with arrays of these shapes, which were just met, go through machine code."""
        version = None if self.versions is None else self.versions.find(layout.sizes)
        if isinstance(version, CompiledFunction):
            plan = version.plan
        else:
            plan = self._plan_at([*(a.shape for a in arrays), *(shape for shape, _ in layout.outputs)], layout.sizes)
        if plan is not None:
            self._linked.add(layout.sizes)
            link(self, plan)

    def call(self, *arrays: Any, out: Any = None, **keywords: Any) -> Any:
        """A call by way of Python: what `f(*arrays, out=out)` does where the arrays do not fit as they are, or a run has failed."""
        raise_pending()
        if keywords:
            raise self._arguments.named(keywords)
        results = self._computed(arrays, None if out is None else self._arguments.targets(out), None)
        return results[0] if self.signature.single else tuple(results)

    __call__ = call

    def _computed(self, arrays: Sequence[Any], out: Sequence[Any] | None, context: Context | None) -> list[Any]:
        """The results, in new arrays or in those of `out` that are not None; activations in the memory of a context or in new memory."""
        inputs: Any = arrays
        for array in arrays:
            if type(array) is not _ndarray or array.flags.num & READY != READY:
                inputs = self._arguments.prepare(arrays)
                break
        else:
            if tuple([array.dtype for array in arrays]) != self._types:
                inputs = self._arguments.prepare(arrays)
        layout = self._find_layout(tuple([array.shape for array in inputs]))
        if layout is None:
            # Shapes that are new: of the wrong rank, or to be checked once.
            if inputs is arrays:
                inputs = self._arguments.prepare(arrays)
            layout = self._arguments.layout(tuple([array.shape for array in inputs]))
        if out is None:
            try:
                results = returned = [empty(shape, type_) for shape, type_ in layout.outputs]
            except (MemoryError, ValueError):
                raise self._arguments.too_large(layout) from None
        else:
            results, returned = self._arguments.results(out, layout, arrays, context is not None)
        self._run(inputs, results, layout, context)
        if self.plan is None and inputs is arrays and len(self._linked) < MOST_LINKED and layout.sizes not in self._linked:
            self._link_at(arrays, layout)
        if returned is not results:
            for target, result in zip(returned, results, strict=True):
                if target is not result:
                    np.copyto(target, result)
        return returned

    def _run(self, inputs: list[np.ndarray], results: list[np.ndarray], layout: Layout, context: Context | None) -> None:
        block = None
        if layout.workspace:
            try:
                block = self.block(layout.workspace + ALIGNMENT) if context is None else context.memory(layout.workspace, self.block)
            except ArgumentError:  # of what was lent, and a `ValueError` as well
                raise
            except (MemoryError, ValueError):
                raise self._arguments.no_workspace(layout.workspace) from None
            if not isinstance(block, _ndarray):
                raise ArgumentError(
                    f"{self.name}: workspace: expected an array in this machine's memory, got a {type(block).__name__}",
                    location=user_location(),
                )
        workspace = 0 if block is None else address(block)
        if self.plan is None:
            self.enter([address(array) for array in inputs], [address(array) for array in results], layout, workspace)
            return
        entry = self._ready
        if entry is None:
            entry = self._ready = self.entry(layout)  # there is one layout where extents are constant
        entry([address(array) for array in inputs], [address(array) for array in results], workspace)

    def layout(self, shapes: tuple[tuple[int, ...], ...]) -> Layout:
        """What follows from the shapes of the inputs, whose ranks are right: sizes, shapes and types of the results, workspace.

        Raises `ArgumentError` for extents that are not the function's.
        """
        return self._find_layout(shapes) or self._arguments.layout(shapes)

    def enter(self, inputs: Sequence[int], outputs: Sequence[int], layout: Layout, workspace: int = 0) -> None:
        """Runs on memory that the caller holds: the address of each input in calling order, of each result, and of a workspace.

        What is there has the shapes of `layout` and the types of `signature`, in row-major order without gaps; the workspace has
        `layout.workspace` bytes and ALIGNMENT more. Raises `OutOfBoundsError` as a call does.
        """
        version = None if self.versions is None else self.versions.at(layout)
        if version is not None and version.entry is not None:
            version.enter(inputs, outputs, workspace, layout.workspace)
            return
        pointers = list(inputs) if self._order is None else [inputs[k] for k in self._order]
        pointers += outputs
        failure = self._native(pointers, layout.sizes, -(-workspace // ALIGNMENT) * ALIGNMENT)
        if failure is not None:
            raise self.failure(*failure)

    def entry(self, layout: Layout) -> Entry:
        """`enter` for one layout, made ready: `entry(inputs, outputs, workspace=0)`, with fewer steps per call."""
        version = None if self.versions is None else self.versions.at(layout)
        if version is not None and version.entry is not None:
            return version.within(layout.workspace)
        run, order = self._native.entry(layout.sizes, self._native.is_long(layout.sizes), bool(self._checks)), self._order

        def enter(inputs: Sequence[int], outputs: Sequence[int], workspace: int = 0) -> None:
            ordered = inputs if order is None else [inputs[k] for k in order]
            failure = run([*ordered, *outputs], -(-workspace // ALIGNMENT) * ALIGNMENT)
            if failure is not None:
                raise self.failure(*failure)

        return enter

    @property
    def checks(self) -> tuple[CheckSite, ...]:
        """What may fail as the code runs, by the numbers that the entry point gives."""
        return self._checks

    def failure(self, check: int, index: int, extent: int) -> OutOfBoundsError:
        """The error of a check that failed at an index, for an axis of this extent."""
        return self._checks[check].failed(index, extent)

    # ------------------------------------------------------------------------------------------------ runs in a context

    def context(self, bindings: Mapping[str, Any] | None = None, *, workspace: Any = None) -> Context:
        """A context that knows the placeholders of this function, with arrays bound to some of them by name."""
        made = Context(workspace=workspace).declare(self)
        for name, array in (bindings or {}).items():
            made.bind(name, array)
        return made

    def run(self, context: Context, /, **bindings: Any) -> Any:
        """Computes with the arrays bound in a context, and those given by name for this run alone; gives what a call gives.

        An array for the name of an output is what that output is written to, in place. Where the function has updates, the
        arrays bound for them hold the new values afterwards; if the run fails, they are as they were.

        Raises as a call does, and `ArgumentError` for a placeholder that has no array, or two, for a name that is none of the
        function's, and for a context that is in use.
        """
        if not isinstance(context, Context):
            raise ArgumentError(
                f"{self.name}: expected a te.Context to run in, got a {type(context).__name__}",
                location=user_location(),
                hint="compiled.run(te.Context({'w': array}), x=array)",
            )
        context.enter()
        try:
            found = context.plain_arrays(self._names, bindings)
            if found is not None and self._short:
                return self(*found)
            inputs, buffers = context.arrays_for(self, bindings) if found is None else (found, ())
            targets = [context.target(self, name) for name in self.updates]
            results = self._computed(inputs, None if all(b is None for b in buffers) else buffers, context)
            kept = len(results) - len(targets)
            if targets:
                self.settle()
            for target, result in zip(targets, results[kept:], strict=True):
                self.assign(target, result)
        finally:
            context.leave()
        return results[0] if self._bare else tuple(results[:kept])

    def settle(self) -> None:
        """Waits where a call does not, until it is known whether its checks passed. Raises what they found."""

    @property
    def _names(self) -> Names:
        """What its placeholders are called, for contexts."""
        if self._called is None:
            self._called = Names.of(self.placeholders)
        return self._called

    @property
    def _short(self) -> bool:
        """Whether a run is a call: nothing is stored afterwards, and no activation is in memory of the context."""
        return self.plan is not None and self.plan.workspace == 0 and not self.updates

    def updated(self, names: tuple[str, ...], bare: bool) -> CompiledFunction:
        """The function, whose last outputs are new values for these inputs; `bare`: a run gives its one other output bare."""
        self.updates, self._bare = names, bare
        return self

    def __copy__(self) -> CompiledFunction:
        return self  # as Python does with functions

    def __deepcopy__(self, memo: Any) -> CompiledFunction:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """By its program (or schedule), from which it is built where it is unpickled."""
        if self.origin is None:
            raise PicklingError(f"{self.name}: expected a function that was built of a program, got one of code alone")
        found: tuple[Any, ...] = self.origin(self)
        return found

    @property
    def places(self) -> tuple[int, ...]:
        """For each parameter of the entry point its place among the placeholders."""
        count, total = len(self.signature.inputs), len(self.signature.inputs) + len(self.signature.outputs)
        return (*(range(count) if self._order is None else self._order), *range(count, total))

    @property
    def placeholders(self) -> tuple[Symbol, ...]:
        """What is bound at run time: the inputs, then the outputs (without those that are new values of inputs)."""
        if self._symbols is None:
            inputs = tuple(Symbol(p.name, "input", p.dtype, extents_of(p.shape), p.name) for p in self.signature.inputs)
            self._symbols = (*inputs, *(Symbol(p.name, "output", p.dtype, extents_of(p.shape), p.name) for p in self.signature.outputs))
        return self._symbols

    def export(
        self, path: str | os.PathLike[str], *, cpus: Sequence[str] | str | None = None, gpus: Sequence[str] | str | None = None
    ) -> Path:
        """Writes the function to a bundle, under its own name: see `te.export`."""
        from tensorexpr.codegen.bundle.export import export  # noqa: PLC0415 -- bundles hold compiled functions

        return export(path, cpus=cpus, gpus=gpus, **{self.name: self})

    def at(self, **sizes: int) -> CompiledFunction:
        """The function whose code calls with these open sizes run: that for these sizes alone, where calls had it made, else this one.

        >>> n = te.dim("n")
        >>> x = te.placeholder((n, n), name="x")
        >>> f = te.build(te.compute((n, n), lambda i, j: x[j, i], name="turned"), [x])
        >>> found = f(np.ones((512, 512), np.float32))
        >>> f.at(n=512), f.at(n=3) is f
        (<compiled turned(x: float32[512, 512]) -> turned: float32[512, 512]>, True)
        """
        found = None if self.versions is None else self.versions.find(self.signature.ordered(sizes))
        return found if isinstance(found, CompiledFunction) else self

    def workspace_bytes(self, **sizes: int) -> int:
        """Bytes of memory for activations that a run needs, with these sizes where extents are open."""
        return self._workspace_bytes(self.signature.ordered(sizes))

    def _workspace_bytes(self, sizes: Sequence[int]) -> int:
        return self._native.workspace_size(sizes)

    def statements(self, sizes: Sequence[int]) -> int | None:
        """About how many statements a call with these sizes runs, in the order of `signature.sizes`; None where data say."""
        return self._native.statements(sizes)

    def block(self, size: int) -> Any:
        """Memory for activations."""
        return empty((size,), _BYTES)

    def own(self, array: np.ndarray) -> Any:
        """An array of this function's device with the contents of an array of NumPy's: on the CPU the array itself."""
        return array

    def assign(self, target: Any, value: Any) -> None:
        """Writes the elements of an array of this function's device into another one."""
        np.copyto(target, value)

    # ------------------------------------------------------------------------------------------------ a look inside

    def known_as(self, name: str) -> CompiledFunction:
        """The function itself, whose messages about arguments begin with the name of the op that made it, not with those of its results."""
        self._arguments.known_as = name
        return self

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.signature.name

    @property
    def program(self) -> Program:
        """The program that was compiled, simplified."""
        return self._look.stages.program

    @property
    def schedule(self) -> Schedule:
        """How the program is computed."""
        return self._look.stages.schedule

    @property
    def is_scheduled_by_hand(self) -> bool:
        """Whether a user made the schedule."""
        return self._look.stages.own

    @property
    def nest(self) -> LoopNest:
        """The loops that the schedule was lowered to."""
        return self._look.stages.nest

    @property
    def cost(self) -> Cost:
        """`(operations, bytes)` of one call, from the integer domains; formulas where there are sizes (see `codegen.cost`)."""
        if self._cost is None:
            self._cost = cost_of(self.program)
        return self._cost

    def profile(self, *arrays: Any, seconds: float = 0.5) -> Profile:
        """Where the time of a call with these arrays goes: time, operations, bytes and share of the roofline by kernel, by
        definition and by the line of the source.

        The function is built once more with the clock read between its kernels, and run for some `seconds`. `print` shows
        the tables, `.save("profile.html")` writes a page, `.save("trace.json")` a trace for Chrome or Perfetto.

        >>> import numpy as np
        >>> import tensorexpr as te
        >>> x = te.placeholder((64, 64), name="x")
        >>> f = te.build(te.compute((64, 64), lambda i, j: te.exp(x[i, j]), name="y"))
        >>> found = f.profile(np.zeros((64, 64), np.float32), seconds=0.01)
        >>> [(row.name, row.operations, row.bytes) for row in found.kernels]
        [('y', 4096, 32768)]

        Raises as a call does, and `ArgumentError` for a time that is none.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise ArgumentError(f"{self.name}: expected a number of seconds above 0, got {seconds!r}", location=user_location())
        inputs = self._arguments.prepare(arrays)
        layout = self.layout(tuple([array.shape for array in inputs]))
        fixed = None if self.versions is None else self.versions.at(layout).function
        if isinstance(fixed, CompiledFunction):
            return fixed.profile(*inputs, seconds=seconds)
        results = [empty(shape, type_) for shape, type_ in layout.outputs]
        block = self.block(layout.workspace + ALIGNMENT) if layout.workspace else None
        workspace = 0 if block is None else -(-address(block) // ALIGNMENT) * ALIGNMENT
        pointers = [address(inputs[k]) for k in (range(len(inputs)) if self._order is None else self._order)]
        pointers += [address(array) for array in results]

        def run(native: NativeFunction) -> None:
            failure = native(pointers, layout.sizes, workspace)
            if failure is not None:
                raise self.failure(*failure)

        nest, sizes = taken_apart(self.nest).rest, dict(zip(self.signature.sizes, layout.sizes, strict=True))
        times = Stamped(nest, [self.constants[constant.name] for constant in nest.constants]).nanoseconds(run, seconds)
        call = median_call(lambda: self(*inputs), seconds / 2)
        return profiled(self.name, times, call, counted(nest, sizes, self.program), facts_here(), pool().threads, sizes)

    def source(self, stage: str = "llvm") -> str:
        """The code at a stage: "nest", "llvm" or "asm" (on the CUDA target also "cuda" and "ptx").

        Raises `TargetError` for a stage that this target does not have.
        """
        if stage in STAGES:
            return self._look.source(stage)
        if stage in _CUDA_STAGES:
            raise TargetError(
                f"expected a stage of the cpu, one of {', '.join(STAGES)}, got {stage!r}",
                location=user_location(),
                hint="te.build(..., target='cuda') has it",
            )
        raise TargetError(
            f"expected a stage, one of {', '.join(STAGES)}, got {stage!r}", location=user_location(), hint=suggestion(stage, STAGES)
        )

    def __repr__(self) -> str:
        return f"<compiled {self.signature.line}>"

    def _repr_html_(self) -> str:
        """What it takes and gives, what a call costs, and its loops."""
        return page(code(repr(self)), or_reason(lambda: page(self._costs(), self.nest._repr_html_())))

    def _costs(self) -> str:
        """The cost in words, where it is counted without much ado."""
        definitions = self.program.definitions
        if self.signature.sizes or len(definitions) > _COUNTED or not all(map(is_readable, definitions)):
            return ""
        with suppress(DomainTooComplex), at_most(_EFFORT):
            moved, inside = f"{self.cost.bytes:,} bytes in and out", f"{self.workspace_bytes():,} bytes of workspace"
            return paragraph(f"{self.cost.operations:,} operations, {moved}, {inside}")
        return ""
