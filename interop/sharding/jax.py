"""Arrays on a mesh of JAX: programs that stay split.

Under `jit` with split arguments an op is one custom call with a partitioning rule. Shardy propagates by its factors (`factors`: one letter
for each axis that a derived rule splits), and asks for the program of a device once it knows how arguments lie. That program is the
plan that moves least: halos come from neighbors (`ppermute`), parts that differ at borders are branches of one `switch`, and addends
are combined where they are made. `shard_map` is the same by hand, with its gradient.
"""

from __future__ import annotations

import functools
import itertools
import math
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from tensorexpr.codegen.memo import Memo
from tensorexpr.dtypes import dtype
from tensorexpr.interop.jax import cuda
from tensorexpr.interop.jax.calls import called
from tensorexpr.interop.jax.handler import kernel_of
from tensorexpr.interop.operators import Operator, op_of
from tensorexpr.interop.sharding.plan import Choice, Layout, Plan, choices, cost_of
from tensorexpr.ir import Const, Program
from tensorexpr.language import program_of
from tensorexpr.op.specs import Spec
from tensorexpr.sharding import WHOLE, Bounds, Partial, Rule, Sharding, Split, part_of
from tensorexpr.simplify import simplify

COMBINERS: dict[str, Callable[..., Any]] = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}
_KEPT = 1024

part = Primitive("tensorexpr_part")
part.multiple_results = True


class Kernels:
    """Compiled parts, which live as long as a program of XLA that holds this: its partitions are lowered apart from it."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, Program], Any] = {}

    def of(self, program: Program, platform: str) -> Any:
        """The kernel of a part."""
        key = platform, program
        if key not in self._kernels:
            self._kernels[key] = kernel_of(program) if platform == "cpu" else cuda.kernel_of(program, program.outputs[0])
        return self._kernels[key]


@part.def_abstract_eval
def _types(*avals: Any, program: Program, kernels: Kernels) -> list[ShapedArray]:
    types = [program.types[name] for name in program.outputs]
    return [ShapedArray(tuple(int(e.value) for e in t.shape if isinstance(e, Const)), t.dtype.numpy) for t in types]


def _lower(platform: str, context: Any, *operands: Any, program: Program, kernels: Kernels) -> Any:
    return called(context, operands, kernels.of(program, platform), program.outputs[0])


for _platform in ("cpu", cuda.PLATFORM):
    mlir.register_lowering(part, functools.partial(_lower, _platform), platform=_platform)


# ---------------------------------------------------------------------------------------------------- parts of one shape


class Uniform:
    """A plan whose parts take and give arrays of one shape on all devices, as programs of XLA have to."""

    def __init__(self, plan: Plan, kernels: Kernels) -> None:
        self.plan, self.kernels = plan, kernels
        self.boxes = [self._widest(position) for position in range(len(plan.inputs))]
        """For each input how much more than its block a device takes, before and behind, along each axis."""
        self.programs: list[Program] = []
        table = []
        for at in plan.places():
            program = simplify(self._part(at))
            if program not in self.programs:
                self.programs.append(program)
            table.append(self.programs.index(program))
        self.table = np.array(table, np.int32)

    def _widest(self, position: int) -> list[tuple[int, int]]:
        plan, name = self.plan, self.plan.sharding.program.inputs[position].name
        more = [(0, 0)] * len(plan.sharding.extents(name))
        for at in plan.places():
            needs = plan.part(at).inputs[name]
            if needs is not None:
                more = [
                    (max(before, begin - low), max(behind, high - end))
                    for (before, behind), (low, high), (begin, end) in zip(more, needs, plan.held(position, at), strict=True)
                ]
        return more

    def _part(self, at: tuple[int, ...]) -> Program:
        plan = self.plan
        wider: dict[str, Bounds] = {}
        for position, given in enumerate(plan.sharding.program.inputs):
            if plan.part(at).inputs[given.name] is not None:
                held = plan.held(position, at)
                wider[given.name] = tuple((b - more[0], e + more[1]) for (b, e), more in zip(held, self.boxes[position], strict=True))
        return part_of(plan.sharding.program, *plan.restriction(at), wider).program

    def run(self, names: Sequence[str], *blocks: Any) -> list[Any]:
        """The results of this device, of the blocks that it holds, where `names` are the axes of the mesh."""
        plan = self.plan
        taken = [self._taken(position, block, names) for position, block in enumerate(blocks)]
        if len(self.programs) == 1:
            results = self._bind(self.programs[0], *taken)
        else:
            place: Any = 0
            for name, count in zip(names, plan.counts, strict=True):
                place = place * count + jax.lax.axis_index(name)
            branches = [functools.partial(self._bind, program) for program in self.programs]
            results = jax.lax.switch(jnp.asarray(self.table)[place], branches, *taken)
        return [self._combined(result, layout, names) for result, layout in zip(results, plan.outputs, strict=True)]

    def _bind(self, program: Program, *taken: Any) -> list[Any]:
        """The results of a part; an element stands for what it does not read."""
        shapes = [tuple(int(e.value) for e in given.type.shape if isinstance(e, Const)) for given in program.inputs]
        given = [a if a.shape == shape else jnp.zeros(shape, a.dtype) for a, shape in zip(taken, shapes, strict=True)]
        results: list[Any] = part.bind(*given, program=program, kernels=self.kernels)
        return results

    def _taken(self, position: int, block: Any, names: Sequence[str]) -> Any:
        for axis, (before, behind) in enumerate(self.boxes[position]):
            if before or behind:
                along = [k for k, one in enumerate(self.plan.inputs[position]) if isinstance(one, Split) and one.axis == axis]
                block = _with_halo(block, axis, before, behind, [names[k] for k in along], math.prod(self.plan.counts[k] for k in along))
        return block

    def _combined(self, result: Any, layout: Layout, names: Sequence[str]) -> Any:
        for name, one in zip(names, layout, strict=True):
            if isinstance(one, Partial):
                result = COMBINERS[one.combine](result, name)
        return result


def _with_halo(block: Any, axis: int, before: int, behind: int, names: Sequence[str], count: int) -> Any:
    """A block with the ends of its neighbors; the first and the last device are neighbors, and one alone is its own."""
    length = block.shape[axis]
    if not names:
        return jnp.take(block, np.arange(-before, length + behind) % length, axis)
    name = tuple(names) if len(names) > 1 else names[0]
    cut = functools.partial(jax.lax.slice_in_dim, block, axis=axis)
    parts = [block]
    if before:
        parts.insert(0, jax.lax.ppermute(cut(length - before, length), name, [(k, (k + 1) % count) for k in range(count)]))
    if behind:
        parts.append(jax.lax.ppermute(cut(0, behind), name, [((k + 1) % count, k) for k in range(count)]))
    return jnp.concatenate(parts, axis)


class Planner:
    """The plans of a program, by how its arguments lie on a mesh."""

    def __init__(self, program: Program) -> None:
        self.sharding, self.kernels = Sharding(program), Kernels()
        self._plans: Memo[Uniform] = Memo(_KEPT)

    def plan(self, counts: tuple[int, ...], layouts: tuple[Layout, ...], outputs: tuple[Layout, ...] | None) -> Uniform:
        """The plan that moves the least of those whose parts are all of one shape."""
        return self._plans.get((counts, layouts, outputs), lambda: self._choose(counts, layouts, outputs))

    def _choose(self, counts: tuple[int, ...], layouts: Sequence[Layout], outputs: Sequence[Layout] | None) -> Uniform:
        found = [choice for choice in choices(self.sharding, counts) if self._is_even(choice, counts)]
        best = min(found, key=lambda choice: cost_of(self.sharding, counts, choice, layouts, outputs, combined=True))
        return Uniform(Plan(self.sharding, counts, best), self.kernels)

    def _is_even(self, choice: Choice, counts: tuple[int, ...]) -> bool:
        """Whether blocks are as long as each other, hold their halos, and addends are of a kind that XLA combines."""
        lengths: dict[Any, int] = {}
        for rule, count in zip(choice, counts, strict=True):
            if rule is None:
                continue
            if rule.combine is not None and rule.combine not in COMBINERS:
                return False
            for key, extent in self._axes(rule):
                length = lengths.get(key, extent)
                if length % count:
                    return False
                lengths[key] = length // count
        for rule in choice:
            for given, one in zip(self.sharding.program.inputs, rule.inputs if rule is not None else (), strict=False):
                if isinstance(one, Split) and max(one.halo) + one.step > lengths[given.name, one.axis] + 1:
                    return False
        return True

    def _axes(self, rule: Rule) -> Iterator[tuple[Any, int]]:
        """The axes and loops that a rule cuts, with their extents."""
        tensors = [*(given.name for given in self.sharding.program.inputs), *self.sharding.program.outputs]
        for name, one in zip(tensors, (*rule.inputs, *rule.outputs), strict=True):
            if isinstance(one, Split):
                yield (name, one.axis), self.sharding.extents(name)[one.axis]
        yield from ((site, rule.extents[site]) for site, _ in rule.sites if site.kind != "axis")

    # ------------------------------------------------------------------------------------------------ Shardy

    def factors(self) -> tuple[str, tuple[str, ...]]:
        """The rules as one of Shardy: a letter for each axis, equal ones where a rule splits them together, and the letters of addends."""
        program = self.sharding.program
        tensors = [*(given.name for given in program.inputs), *program.outputs]
        letters = [["" for _ in self.sharding.extents(name)] for name in tensors]
        fresh = (f"{letter}{turn or ''}" for turn in itertools.count() for letter in string.ascii_lowercase)
        addends = []
        for rule in self.sharding.rules:
            ours = [(k, one.axis) for k, one in enumerate((*rule.inputs, *rule.outputs)) if isinstance(one, Split)]
            extents = {self.sharding.extents(tensors[k])[axis] for k, axis in ours}
            if (
                len(ours) > 1
                and len(extents) == 1
                and not any(letters[k][axis] for k, axis in ours)
                and len({k for k, _ in ours}) == len(ours)
            ):
                letter = next(fresh)
                for k, axis in ours:
                    letters[k][axis] = letter
                if any(isinstance(one, Partial) for one in rule.outputs) and not any(isinstance(one, Split) for one in rule.outputs):
                    addends.append(letter)
        texts = [" ".join(letter or next(fresh) for letter in axes) for axes in letters]
        count = len(program.inputs)
        return f"{', '.join(texts[:count])} -> {', '.join(texts[count:])}", tuple(addends)


# ---------------------------------------------------------------------------------------------------- under jit

_PLANNERS: Memo[Planner] = Memo(_KEPT)


def planner_of(program: Program) -> Planner:
    """The planner of a program."""
    return _PLANNERS.get(program, lambda: Planner(program))


def is_split(context: Any) -> bool:
    """Whether a program that is being lowered is for several devices, and XLA splits it."""
    return bool(getattr(context.module_context.axis_context, "num_devices", 1) not in (None, 1))


def lowered(context: Any, operands: Sequence[Any], program: Program) -> Any:
    """A program on operands of a program for several devices, which XLA partitions by the derived rules."""
    planner = planner_of(program)
    context.module_context.add_keepalive(planner.kernels)
    return mlir.lower_fun(_partitioned(planner, program), multiple_results=True)(context, *operands)


def _partitioned(planner: Planner, program: Program) -> Callable[..., Any]:

    def whole(*arguments: Any) -> tuple[Any, ...]:
        return tuple(part.bind(*arguments, program=program, kernels=planner.kernels))

    def partition(mesh: Any, arguments: Any, results: Any) -> Any:
        names, counts = tuple(mesh.axis_names), tuple(mesh.devices.shape)
        layouts = tuple(_layout(one.sharding.spec, names) for one in arguments)
        uniform = planner.plan(counts, layouts, tuple(_layout(one.sharding.spec, names) for one in results))
        given = tuple(
            NamedSharding(mesh, _spec(layout, names, one.ndim)) for layout, one in zip(uniform.plan.inputs, arguments, strict=True)
        )
        made = tuple(NamedSharding(mesh, _spec(layout, names, one.ndim)) for layout, one in zip(uniform.plan.outputs, results, strict=True))
        return mesh, lambda *blocks: tuple(uniform.run(names, *blocks)), made, given

    function = custom_partitioning(whole)
    rule, addends = planner.factors()
    function.def_partition(partition=partition, sharding_rule=rule, reduction_factors=addends)
    return function


def _layout(spec: PartitionSpec, names: Sequence[str]) -> Layout:
    """How an array lies along each axis of a mesh."""
    where = {name: axis for axis, held in enumerate(spec) for name in (held if isinstance(held, tuple) else (held,)) if name is not None}
    return tuple(Split(where[name]) if name in where else WHOLE for name in names)


def _spec(layout: Layout, names: Sequence[str], rank: int) -> PartitionSpec:
    held: list[list[str]] = [[] for _ in range(rank)]
    for name, one in zip(names, layout, strict=True):
        if isinstance(one, Split):
            held[one.axis].append(name)
    return PartitionSpec(*(None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in held))


# ---------------------------------------------------------------------------------------------------- shard_map


def shard_map(operation: Any, mesh: Any, in_specs: Sequence[PartitionSpec], **static: Any) -> Callable[..., Any]:
    """An op on arrays that lie on a mesh as `in_specs` say: `jax.shard_map` around the parts that are derived for it.

    Halos are exchanged and addends combined inside. Results lie as the rules split them, and gradients as the arguments do.
    """
    chosen = op_of(operation, "shard_map")
    trees, bound = chosen.bind(in_specs, static)
    operator = Operator.of(chosen, [tree if tree == () else None for tree in trees], bound)
    names, counts = tuple(mesh.axis_names), tuple(mesh.devices.shape)
    layouts = tuple(_layout(spec, names) for spec in in_specs)

    def mapped(which: Operator, given: Sequence[Layout], arguments: Sequence[Any], wanted: Sequence[Layout] | None) -> tuple[Any, ...]:
        specs = [Spec(tuple(a.shape), dtype(np.dtype(a.dtype))) for a in arguments]
        inputs, outputs = which.trace(specs)
        planner = planner_of(program_of(list(outputs), inputs))
        uniform = planner.plan(counts, tuple(given), None if wanted is None else tuple(wanted))
        plan = uniform.plan
        body = jax.shard_map(
            lambda *blocks: tuple(uniform.run(names, *blocks)),
            mesh=mesh,
            in_specs=tuple(_spec(layout, names, a.ndim) for layout, a in zip(plan.inputs, arguments, strict=True)),
            out_specs=tuple(_spec(layout, names, len(out.shape)) for layout, out in zip(plan.outputs, outputs, strict=True)),
            check_vma=False,
        )
        results: tuple[Any, ...] = body(*arguments)
        if wanted is None:
            return results
        lie = [NamedSharding(mesh, _spec(layout, names, result.ndim)) for layout, result in zip(wanted, results, strict=True)]
        return tuple(map(jax.lax.with_sharding_constraint, results, lie))

    @jax.custom_vjp
    def run(*arguments: Any) -> Any:
        return mapped(operator, layouts, arguments, None)

    def forward(*arguments: Any) -> Any:
        return run(*arguments), arguments

    def backward(arguments: Any, heads: Any) -> Any:
        wanted = tuple(jnp.issubdtype(a.dtype, jnp.floating) for a in arguments)
        floats = tuple(jnp.issubdtype(h.dtype, jnp.floating) for h in heads)
        lies = [layout for layout, want in zip(layouts, wanted, strict=True) if want]
        whole = [(WHOLE,) * len(names)] * sum(floats)
        given = [h for h, f in zip(heads, floats, strict=True) if f]
        found = iter(mapped(operator.vjp(wanted, floats), [*layouts, *whole], [*arguments, *given], lies))
        return tuple(next(found) if want else np.zeros(a.shape, jax.dtypes.float0) for a, want in zip(arguments, wanted, strict=True))

    run.defvjp(forward, backward)

    def call(*arguments: Any) -> Any:
        results = run(*arguments)
        return results[0] if len(results) == 1 else results

    return call
