"""`te.gradient`: the gradient of tensors of the language, as tensors.

The graph becomes a program under the keys of its tensors, `reverse` derives the adjoints, and what it adds is lifted back:
the gradients are ordinary tensors that read the tensors of the forward pass, so they can be composed, scheduled,
compiled together with it, and differentiated again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tensorexpr.autodiff.api.arguments import checked_heads, checked_tensors, text_of
from tensorexpr.autodiff.api.directions import Directions
from tensorexpr.autodiff.api.report import Report, Row, rows_of
from tensorexpr.autodiff.api.units import GivenRule, Graph, Unit, tensors_of, units_of, with_rules
from tensorexpr.autodiff.local.overrides import Override, Rule
from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.autodiff.sweep.accumulate import accumulate
from tensorexpr.autodiff.sweep.primal import with_plain_reads
from tensorexpr.autodiff.sweep.reverse import Received, Reverse, reverse
from tensorexpr.building.collecting import collecting_less
from tensorexpr.building.fallback import first_sound
from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.hints import Explained, checked, suggestion
from tensorexpr.ir import Access, Apply, Definition, Expr, Index, Program
from tensorexpr.language import Tensor, lift, program_of
from tensorexpr.language.definitions.sorting import plan_of
from tensorexpr.markup import listed
from tensorexpr.records import cached_property
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify

LOWERINGS = ("segments", "atomics")


@checked()
def gradient(
    output: Tensor | Sequence[Tensor],
    wrt: Tensor | Sequence[Tensor],
    head: Tensor | Sequence[Tensor | None] | None = None,
    override: Mapping[Tensor, GivenRule | tuple[Sequence[Tensor], GivenRule]] | None = None,
    lowering: str | None = None,
) -> Gradient:
    """The gradients of `output` by the tensors `wrt`: a sequence of tensors, one for each, of its shape and dtype.

    `output` is a tensor or a list of tensors, `head` what their elements are weighted with: a tensor of the same shape and
    dtype, a list of these for a list. A scalar output needs none. Inputs the output does not depend on have gradient zero.
    Heads with one more axis in front, of the same extent B for all outputs, are B heads at once: every gradient then has this
    axis in front, too, and what does not depend on the head is computed once for all of them.

    `override` gives tensors a rule of their own, `rule(output, inputs, head) -> list`, one tensor (or None for zero) for each
    input: `{tensor: rule}` for the tensors it reads, `{tensor: (inputs, rule)}` to make all between these inputs and the tensor
    one unit. `lowering` forces one form on every read: "segments" (sorted by where it reads,
    deterministic, as reads at places that depend on data are by themselves) or "atomics" (a scatter in any order).

    Raises `DifferentiationError` for outputs or `wrt` that are not floating tensors, a computed tensor that the outputs have nothing to
    do with, a missing or misshapen head, and rules that give the wrong number, shapes or dtypes.

    >>> A = te.placeholder((2, 3), name="A")
    >>> s = te.compute((2,), lambda i: te.sum(lambda j: A[i, j] ** 2, 3), name="s")
    >>> gradient = te.gradient(s, A, te.placeholder((2,), name="head"))
    >>> print(gradient)
    head: f32[2] = input()
    A: f32[2, 3] = input()
    A_bar[i, j]: f32[2, 3] = head[i] * A[i, j] * 2.0
    return A_bar
    >>> print(gradient.report())
    tensor  consumer  access   lowering    iterations  reads  ratio
    A       s         A[i, j]  substitute           6      6   1.00
    """
    outputs = checked_tensors(output, "output")
    inputs = checked_tensors(wrt, "wrt")
    heads, count = checked_heads(outputs, isinstance(output, Tensor), head)
    if lowering is not None and (not isinstance(lowering, str) or lowering not in LOWERINGS):
        raise DifferentiationError(
            f"te.gradient: expected lowering= to be None, 'segments' or 'atomics', got {lowering!r}",
            location=user_location(),
            hint=suggestion(lowering, LOWERINGS),
        )
    units = units_of([*outputs, *inputs], {} if override is None else override)
    met = _met([*outputs, *(h for h in heads if h is not None), *(t for unit in units.values() for t in unit.inputs)])
    for tensor in inputs:
        if tensor.definition is not None and tensor.key not in met:
            raise DifferentiationError(
                f"expected wrt to be inputs or tensors that the output is computed from, got {tensor.name}, which it does not know",
                term=text_of(tensor),
                location=tensor.location or user_location(),
                hint=f"compute the output from {tensor.name}; a tensor that is made again from the same text is another one",
            )

    def derived(form: str | None) -> Gradient:
        made = Gradient(outputs, inputs, heads, units, form, count)
        verify(program_of(list(made)))
        return made

    forms = [("its gradient by gathers", lambda: derived(lowering))]
    if lowering is None:
        forms.append(("its gradient by scatters", lambda: derived("atomics")))
    with collecting_less():
        found, _ = first_sound(", ".join(t.name for t in outputs), forms, lambda: print_program(program_of(outputs)))
    for tensor in found:
        _ORIGINS[tensor] = met
    return found


_DISPLAYED = 40
"""Definitions, of the forward pass and of its derivative, whose formulas a notebook shows."""
_ORIGINS: weakref.WeakKeyDictionary[Tensor, frozenset[str]] = weakref.WeakKeyDictionary()
"""The keys of the tensors that a gradient was derived from: the gradient of a linear function knows its input and does not read it."""


def _met(roots: Sequence[Tensor]) -> frozenset[str]:
    """The keys of all tensors that the roots are computed from, or were derived from."""
    tensors = tensors_of(roots)
    return frozenset(tensors).union(*(_ORIGINS[t] for t in tensors.values() if t in _ORIGINS))


class Gradient(Explained, Sequence[Tensor]):
    """The gradients, one per tensor of `wrt`, and how they came about.

    `print(gradient)` shows them as a program. `adjoints[tensor]` is the gradient by any tensor of the graph,
    `contributions[tensor][consumer]` the part of it that `consumer` sends, `report()` a table with one row per read. `reverse`
    is the derivative as a program, `tensors` what its names of the forward pass stand for, `forward` the definitions of these.

    >>> A = te.placeholder((2, 3), name="A")
    >>> s = te.compute((), lambda: te.sum(lambda i, j: A[i, j] ** 2, (2, 3)), name="s")
    >>> A_bar, = te.gradient(s, A)
    >>> A_bar.shape
    (2, 3)
    """

    noun = "the gradients"
    offered = ("count", "index", "program", "report")

    def __init__(
        self,
        outputs: Sequence[Tensor],
        wrt: Sequence[Tensor],
        heads: Sequence[Tensor | None],
        units: Mapping[Tensor, Unit],
        lowering: str | None,
        count: Expr | None = None,
        as_written: bool = False,
    ) -> None:
        self._request = (outputs, heads, units, lowering, count)
        self._wrt, self._is_as_written = wrt, as_written
        single = [
            head if head is None or count is None else Tensor(f"{t.name}_bar", t.extents, t.dtype)
            for t, head in zip(outputs, heads, strict=True)
        ]
        roots = [*(h for h in (*heads, *single) if h is not None), *wrt, *outputs]
        planned = [tensor for tensor in tensors_of(roots).values() if tensor.plan is not None]
        plans = tuple(plan for plan in map(plan_of, planned) if plan is not None)
        graph = Graph.of([*(part for tensor in planned for part in tensor.plan or ()), *roots], dict(units))
        self.tensors, self._labels, self.forward = graph.known, graph.labels, graph.program.definitions
        seeds = [(tensor.key, None if given is None else given.key) for tensor, given in zip(outputs, single, strict=True)]
        self._units = graph.rules
        self._rules: Mapping[str, Override] = {name: unit.override(_sweep_rule(unit, graph)) for name, unit in graph.rules.items()}
        marked = [tensor.key for tensor in graph.known.values() if tensor.recompute]
        primal = graph.program
        plain = (
            not planned and self._rules.keys() <= primal.types.keys()
        )  # plans and rules in scans know what stands beside them by its name
        if plain and not as_written:
            ruled = (name for unit in graph.rules.values() for name in (unit.tensor.key, *(t.key for t in unit.inputs)))
            primal = with_plain_reads(primal, [*(t.key for t in roots), *ruled, *marked])
        self.reverse: Reverse = reverse(
            primal, seeds, [t.key for t in wrt], self._rules, lowering, graph.labels, plans=plans, marked=marked
        )
        derived: Sequence[Definition] = self.reverse.workspace.definitions
        self._directions: Directions | None = None
        if count is not None:
            stands = {s.key: head.key for s, head in zip(single, heads, strict=True) if s is not None and head is not None}
            self._directions = Directions.over([("direction", count)], stands, self.reverse.workspace)
            derived = self._directions.spread(derived)
        self._table = self._lifted([*self.forward, *derived], self.tensors)
        self._gradients = tuple(self._result(self.reverse.adjoints[tensor.key]) for tensor in wrt)
        self.adjoints: Mapping[Tensor, Tensor] = _Adjoints(self)
        self.contributions: Mapping[Tensor, Mapping[Tensor, Tensor]] = _Contributions(self)

    def __len__(self) -> int:
        return len(self._gradients)

    def __getitem__(self, at: Any) -> Any:
        return self._gradients[at]

    def __repr__(self) -> str:
        return f"<gradients {listed([t.name for t in self._gradients])}>"

    def _repr_latex_(self) -> str | None:
        """Its formulas, simplified as `print` shows them; None, so that `repr` is shown, where that takes long."""
        return None if len(self.forward) + len(self.reverse.workspace.definitions) > _DISPLAYED else self.program._repr_latex_()

    def __str__(self) -> str:
        return str(self.program)

    @property
    def program(self) -> Program:
        """The gradients as mathematics: a program of what they need of the forward pass, and of them, simplified as it is compiled."""
        return simplify(program_of(list(self._gradients)))

    @cached_property
    def _written(self) -> Gradient:
        """The gradients by every read as it is written, none of them taken at the source of what it reads."""
        outputs, heads, units, lowering, count = self._request
        return self if self._is_as_written else Gradient(outputs, self._wrt, heads, units, lowering, count, as_written=True)

    def report(self) -> Report:
        """One row per read as written, in the order in which the gradient was derived."""
        if not self._is_as_written:
            return self._written.report()
        rows: list[Row] = []
        scattered: dict[str, Program] = {}
        types = self.reverse.workspace.types
        extents = tuple(dict.fromkeys(e for name in self.tensors for e in types[name].shape if isinstance(e, Apply)))
        for name, received in self.reverse.received.items():
            if name in self.tensors:
                for row, scatter in rows_of(name, received, self.reverse.around, self._labels, types, extents):
                    rows.append(row)
                    if row.lowering == "segments" and scatter is not None:
                        scattered.setdefault(row.access, scatter)
        return Report(tuple(rows), tuple(scattered.items()))

    def _lifted(self, definitions: Sequence[Definition], known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        table = lift(Program((), (), tuple(definitions), (), self.reverse.program.sizes), known)
        new = [d for d in definitions if not any(name in known for name, _ in d.results)]
        with_rules(self._units, self._rules, new, table)
        return table

    def _result(self, name: str) -> Tensor:
        """The tensor called `name` in the derivative, for all directions."""
        if self._directions is not None:
            name, copies = self._directions.result(name)
            self._table = self._lifted(copies, self._table)
        return self._table[name]

    def _adjoint(self, tensor: Tensor) -> Tensor:
        name = self.reverse.adjoints.get(getattr(tensor, "key", ""))
        if name is not None:
            return self._result(name)
        if tensor not in self.adjoints:
            raise DifferentiationError(
                f"expected a tensor of the graph that was differentiated, got {getattr(tensor, 'name', tensor)!r}",
                location=user_location(),
                hint="gradient.adjoints has the outputs and all that they read",
            )
        outputs, heads, units, lowering, count = self._request
        return Gradient(outputs, checked_tensors(tensor, "wrt"), heads, units, lowering, count)[0]

    def _received(self, tensor: Tensor) -> Received:
        self._adjoint(tensor)
        return self.reverse.received.get(tensor.key, Received((), []))

    def _contribution(self, tensor: Tensor, consumer: str) -> Tensor:
        """A tensor for the part of an adjoint that one consumer sends."""
        received = self._received(tensor)
        if consumer in self.reverse.together:  # what one of several sends in one scan is not told apart there: derived for it alone
            _, _, units, lowering, count = self._request
            alone = self.tensors[consumer]
            return Gradient([alone], [tensor], [self._adjoint(alone)], units, lowering, count)._contribution(tensor, consumer)
        scratch = self.reverse.workspace.inside()
        at = tuple(Index(axis.index) for axis in received.target)
        terms: list[Expr] = [Access(name, at, tensor.dtype) for by, name in received.whole if by == consumer]
        name = scratch.new_name(tensor.key, "_bar_part")
        accumulate(tensor.key, name, received.target, [one for one in received.flows if one.consumer == consumer], terms, scratch)
        if self._directions is None:
            return self._lifted(scratch.definitions, self._table)[name]
        self._table = self._lifted(self._directions.spread(scratch.definitions), self._table)
        return self._result(name)


Value = TypeVar("Value")


class _ByTensor(Mapping[Tensor, Value]):
    """A mapping that says in a `DifferentiationError` what it has where it is asked for something else; `get` gives the default."""

    def __repr__(self) -> str:
        return f"<for each of {listed([tensor.name for tensor in self])}>"

    def get(self, tensor: Any, default: Any = None) -> Any:
        if tensor not in self:
            return default
        return self[tensor]


class _Adjoints(_ByTensor[Tensor]):
    """The adjoints of the tensors of the graph; those that do not lie on the way to `wrt` are derived when asked for."""

    def __init__(self, owner: Gradient) -> None:
        self._owner = owner

    def __getitem__(self, tensor: Tensor) -> Tensor:
        return self._owner._adjoint(tensor)

    def __iter__(self) -> Iterator[Tensor]:
        return (tensor for key, tensor in self._owner.tensors.items() if key in self._owner._written.reverse.received)

    def __contains__(self, tensor: object) -> bool:
        return getattr(tensor, "key", None) in self._owner.tensors

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Contributions(_ByTensor["_Parts"]):
    """For each tensor the parts of its adjoint by consumer."""

    def __init__(self, owner: Gradient) -> None:
        self._owner = owner

    def __getitem__(self, tensor: Tensor) -> _Parts:
        return _Parts(self._owner._written, tensor)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._owner.adjoints)

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._owner.adjoints

    def __len__(self) -> int:
        return len(self._owner.adjoints)


class _Parts(_ByTensor[Tensor]):
    """What each consumer sends to one tensor."""

    def __init__(self, owner: Gradient, tensor: Tensor) -> None:
        received = owner._received(tensor)
        self._owner, self._tensor = owner, tensor
        consumers = [one.consumer for one in received.flows] + [by for by, _ in received.whole]
        self._consumers = dict.fromkeys(name for by in consumers for name in owner.reverse.together.get(by, (by,)))

    def __getitem__(self, consumer: Tensor) -> Tensor:
        if consumer not in self:
            named = ", ".join(self._owner._table[key].name for key in self._consumers) or "none"
            raise DifferentiationError(
                f"expected a consumer of {self._tensor.name} ({named}), got {getattr(consumer, 'name', consumer)!r}",
                term=text_of(self._tensor),
                location=user_location(),
                hint=f"gradient.contributions[{self._tensor.name}] has the tensors that read it, on the way from the outputs",
            )
        return self._owner._contribution(self._tensor, consumer.key)

    def __iter__(self) -> Iterator[Tensor]:
        return (self._owner._table[key] for key in self._consumers)

    def __contains__(self, consumer: object) -> bool:
        return getattr(consumer, "key", None) in self._consumers

    def __len__(self) -> int:
        return len(self._consumers)


def _sweep_rule(unit: Unit, graph: Graph) -> Rule:
    """A unit as a rule of the sweep."""

    def rule(adjoint: str, workspace: Workspace, override: Override) -> list[tuple[str, str]]:
        head = Tensor(f"{unit.tensor.name}_bar", unit.tensor.extents, unit.tensor.dtype)
        pairs = [(source, result) for source, result in zip(unit.inputs, unit.results(head), strict=True) if result is not None]
        names = graph.insert([result for _, result in pairs], {**override.names, head.key: adjoint}, workspace, unit.steps(override))
        pulled = zip((source for source, _ in pairs), names, strict=True)
        return [(override.names.get(source.key, source.key), name) for source, name in pulled if source.dtype.is_float]

    return rule
