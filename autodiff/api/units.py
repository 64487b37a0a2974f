"""Units: tensors that are differentiated by a rule of their own, given by `override=` or by the op that made them.

A rule is a function of tensors of the language, `rule(output, inputs, head) -> list`. It is called once, with a stand-in for
the head, and the tensors that it gives become definitions of the derivative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tensorexpr.autodiff.api.arguments import text_of
from tensorexpr.autodiff.local.overrides import Copy, Override, Rule
from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.ir import Definition, Expr, Index, Program, Scan
from tensorexpr.language import Tensor, program_of
from tensorexpr.language.core.renaming import ProgramRenaming, local_names
from tensorexpr.language.core.tensor import Ruled, step_of
from tensorexpr.language.core.tracing import Frame, binding, inside
from tensorexpr.records import field, record
from tensorexpr.text import print_type
from tensorexpr.traversal import map_expressions, substitute

GivenRule = Callable[[Tensor, Sequence[Tensor], Tensor], Sequence[Tensor | None]]


@record
class Unit:
    """The rule of `tensor`, and the inputs to which it sends.

    A tensor in the body of a scan stands in `frames`, outermost first; `names` are its own there, and those of others beside it, where
    they are not their keys; `places` and `depth` are the `steps` and the `depth` of a `Ruled`.
    """

    tensor: Tensor
    inputs: tuple[Tensor, ...]
    rule: GivenRule
    frames: tuple[Frame, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    places: tuple[Expr, ...] = ()
    depth: int = 0

    def results(self, head: Tensor) -> list[Tensor | None]:
        """What the rule gives for a head: checked to be a tensor of its shape and dtype for each input, or None.

        The rule of a tensor in the body of a scan is called as if it stood in the body.
        """
        with ExitStack() as stack:
            for frame in self.frames:
                stack.enter_context(inside(frame))
                stack.enter_context(binding((frame.axis,)))
            return _checked(self, self.rule(self.tensor, list(self.inputs), head))

    def override(self, rule: Rule) -> Override:
        """The unit by names, with `rule` for what it does to definitions."""
        return Override(tuple(self.names.get(t.key, t.key) for t in self.inputs), rule, self.names)

    def steps(self, override: Override) -> dict[str, Expr]:
        """The steps of the frames of the tensor, by what `override` calls those of the scans around it."""
        around: dict[str, Expr] = {step_of(at).name: Index(step) for at, step in enumerate(override.steps)}
        return {frame.step: substitute(place, around) for frame, place in zip(self.frames, self.places, strict=True)}


def units_of(roots: Sequence[Tensor], override: Mapping[Tensor, Any]) -> dict[Tensor, Unit]:
    """The tensors of the graph that have a rule, by `override` or of their own, each after those it is made of."""
    if not isinstance(override, Mapping):
        raise DifferentiationError(
            f"expected override= to map tensors to rules, got {override!r}", location=user_location(), hint="override={C: rule}"
        )
    for tensor, given in override.items():
        if not isinstance(tensor, Tensor) or not _is_override(given):
            raise DifferentiationError(
                f"expected override= to map tensors to rules, got {tensor!r}: {given!r}",
                location=user_location(),
                hint="override={C: rule} or {C: ([A, B], rule)} with rule(output, inputs, head) -> list of gradients",
            )
        if tensor.frames:
            raise DifferentiationError(
                f"expected override= for tensors of their own, got {tensor.name}, which belongs to the body of a scan",
                term=text_of(tensor),
                location=tensor.location or user_location(),
                hint="an op has its rule inside of scans, too: te.op(gradient=rule); or override what te.scan returns",
            )
        if tensor.definition is None:
            raise DifferentiationError(
                f"expected override= for computed tensors, got {tensor.name}, which is given",
                term=text_of(tensor),
                location=user_location(),
            )
        later = next((source for source in given[0] if tensor.key in tensors_of([source])), None) if isinstance(given, tuple) else None
        if later is not None:
            raise DifferentiationError(
                f"expected the inputs of the rule of {tensor.name} to come before it, got {later.name}, which depends on it",
                term=text_of(later),
                location=later.location or user_location(),
                hint=f"override={{{tensor.name}: (inputs, rule)}} makes all between the inputs and {tensor.name} one unit",
            )
        before = tensors_of([tensor]) if isinstance(given, tuple) else {}
        stranger = next((source for source in given[0] if source.key not in before), None) if isinstance(given, tuple) else None
        if stranger is not None:
            raise DifferentiationError(
                f"expected the inputs of the rule of {tensor.name} to be tensors that it is computed from, got {stranger.name}",
                term=text_of(stranger),
                location=stranger.location or user_location(),
                hint=f"what {tensor.name} does not depend on receives nothing from it: leave {stranger.name} out",
            )
    found: dict[Tensor, Unit] = {}
    done: set[Tensor] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        tensor, ready = stack.pop()
        if ready:
            unit = _unit(tensor, override)
            if unit is not None:
                found[tensor] = unit
            continue
        if tensor in done:
            continue
        done.add(tensor)
        unit = _unit(tensor, override)
        stack.append((tensor, True))
        stack.extend((source, False) for source in reversed((*tensor.sources, *(() if unit is None else unit.inputs))))
    for tensor in override:
        if tensor not in done:
            raise DifferentiationError(
                f"expected override= for tensors of the graph, got {tensor.name}, which the outputs do not depend on",
                term=text_of(tensor),
                location=tensor.location or user_location(),
            )
    return found


def is_rule(given: object) -> bool:
    """Whether something can be called as `rule(output, inputs, head)`."""
    try:
        parameters = inspect.signature(given).parameters.values()  # type: ignore[arg-type]  # what is no callable raises a TypeError, which is caught
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return sum(p.default is p.empty for p in places) <= 3 and (more or len(places) >= 3)


def _is_override(given: Any) -> bool:
    if not isinstance(given, tuple):
        return is_rule(given)
    if len(given) != 2 or not isinstance(given[0], Sequence):
        return False
    return is_rule(given[1]) and all(isinstance(tensor, Tensor) for tensor in given[0])


def _unit(tensor: Tensor, override: Mapping[Tensor, Any]) -> Unit | None:
    given = override.get(tensor, tensor.unit)
    if given is None:
        return None
    if isinstance(given, tuple):
        return Unit(tensor, tuple(given[0]), given[1])
    return Unit(tensor, tuple(tensor.sources), given)


def _inner_units(tensors: Iterable[Tensor]) -> dict[str, Unit]:
    """The units in the bodies of scans, by the names that their tensors have there."""
    found = {}
    for tensor in tensors:
        for one in tensor.ruled:
            assert one.tensor.unit is not None
            inputs, rule = one.tensor.unit
            found[one.names.get(one.tensor.key, one.tensor.key)] = Unit(
                one.tensor, tuple(inputs), rule, one.frames, one.names, one.steps, one.depth
            )
    return found


def with_rules(
    units: Mapping[str, Unit], rules: Mapping[str, Override], definitions: Sequence[Definition], tensors: Mapping[str, Tensor]
) -> None:
    """Gives new tensors, made of definitions of a derivative, the rules of the tensors that are computed there again."""
    copies = {name: (units[tensor], copy) for tensor, rule in rules.items() for name, copy in rule.copies.items()}
    for definition in definitions if copies else ():
        own = [(name, around) for name, around in _standing(definition) if name in copies]
        results = [name for name, _ in definition.results]
        made = tensors[results[0]].definition
        if not own or made is None:
            continue
        inner = dict(zip(local_names(definition), local_names(made), strict=True))
        table = {name: tensor.key for name, tensor in tensors.items()} | inner
        ruled = tuple(_ruled(*copies[name], around, table) for name, around in own)
        for name in results:
            tensors[name].ruled = ruled


def _standing(definition: Definition, around: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The results of a definition and the names inside of it, with the steps of the scans around them."""
    yield from ((name, around) for name, _ in definition.results)
    if isinstance(definition, Scan):
        for inner in definition.body:
            yield from _standing(inner, (*around, definition.step))


def _ruled(unit: Unit, copy: Copy, around: tuple[str, ...], table: Mapping[str, str]) -> Ruled:
    """A copy of a tensor inside of scans with steps `around`; `table` has the names of what is there."""
    here: dict[str, Expr] = {name: step_of(at) for at, name in enumerate(around)}
    further = range(len(around) - unit.depth + len(copy.steps), len(around))  # scans around the tensor that were copied with it
    places = [substitute(step, here) for step in copy.steps] + [step_of(at) for at in further]
    moved = {step_of(at).name: place for at, place in enumerate(places)}
    names = {key: table[name] for key, name in copy.names.items() if name in table}
    return Ruled(unit.tensor, unit.frames, names, tuple(substitute(place, moved) for place in unit.places), len(around))


def _checked(unit: Unit, given: Any) -> list[Tensor | None]:
    tensor = unit.tensor
    results: list[Any] | None = [given] if isinstance(given, Tensor) else list(given) if isinstance(given, Sequence) else None
    if results is None or len(results) != len(unit.inputs):
        raise DifferentiationError(
            f"expected the rule of {tensor.name} to give {len(unit.inputs)} gradients, got {given!r}" if results is None else
            f"expected the rule of {tensor.name} to give {len(unit.inputs)} gradients, got {len(results)}",
            term=text_of(tensor),
            location=tensor.location or user_location(),
            hint=f"one for each of {', '.join(t.name for t in unit.inputs)}; None where nothing flows",
        )  # fmt: skip
    for source, result in zip(unit.inputs, results, strict=True):
        if result is None:
            continue
        if not isinstance(result, Tensor) or result.extents != source.extents or result.dtype is not source.dtype:
            got = print_type(result.type) if isinstance(result, Tensor) else repr(result)
            raise DifferentiationError(
                f"expected the rule of {tensor.name} to give {print_type(source.type)} for {source.name}, got {got}",
                term=text_of(tensor),
                location=tensor.location or user_location(),
            )
    return results


def tensors_of(roots: Sequence[Tensor]) -> dict[str, Tensor]:
    """All tensors of a graph by key."""
    found: dict[str, Tensor] = {}
    stack = list(reversed(roots))
    while stack:
        tensor = stack.pop()
        if tensor.key not in found:
            found[tensor.key] = tensor
            stack.extend(reversed(tensor.sources))
    return found


@record(frozen=False)
class Graph:
    """The graph of some tensors as a program under their keys, with the units in it, those in bodies of scans included, by name;
    `known` grows with what rules read."""

    program: Program
    known: dict[str, Tensor]
    labels: dict[str, str]
    rules: dict[str, Unit]

    @classmethod
    def of(cls, roots: Sequence[Tensor], units: dict[Tensor, Unit]) -> Graph:
        """The graph in an order in which the inputs of each unit come before it."""
        ordered = [*(tensor for unit in units.values() for tensor in unit.inputs), *roots]
        program = program_of(ordered, keys=True)
        known = tensors_of(ordered)
        inner = (name for d in program.definitions for name in (*(n for n, _ in d.results), *local_names(d)))
        labels = {name: name.rpartition("__")[0] or name for name in inner}  # no tensor has those of a scan that nothing reads
        labels |= {key: tensor.name for key, tensor in known.items()}
        return cls(program, known, labels, {t.key: unit for t, unit in units.items()} | _inner_units(known.values()))

    def insert(
        self, wanted: Sequence[Tensor], names: Mapping[str, str], workspace: Workspace, steps: Mapping[str, Expr] | None = None
    ) -> list[str]:
        """Adds definitions for `wanted` to the workspace, as far as it has none; gives their names. `names` replaces keys, `steps`
        the indices of scans around."""
        names = dict(names)
        for tensor in _needed(wanted, {*names, *workspace.types}):
            definition = tensor.definition
            if definition is None:
                self.known[tensor.key] = tensor
                workspace.types[tensor.key] = tensor.type
            elif tensor.key not in names:  # else it was added with another result of its definition
                labels = {name: name.rpartition("__")[0] for name in (*(n for n, _ in definition.results), *local_names(definition))}
                names |= {name: workspace.new_name(tensor.name if name == tensor.key else label, "") for name, label in labels.items()}
                renamed = ProgramRenaming(names, workspace.sizes).definition(definition)
                workspace.add(map_expressions(renamed, lambda e: substitute(e, dict(steps))) if steps else renamed)
        return [names.get(tensor.key, tensor.key) for tensor in wanted]


def _needed(wanted: Sequence[Tensor], known: Collection[str]) -> list[Tensor]:
    """The tensors that some are computed from, and these, down to what is known, each after what it reads."""
    done: dict[Tensor, None] = {}
    stack = [(tensor, False) for tensor in reversed(wanted)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in done or tensor.key in known:
            continue
        if ready:
            done[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend((source, False) for source in reversed(tensor.sources))
    return list(done)
