"""From the graph of tensors to programs and back: `program_of`, `names_of`, `lift`; and `te.evaluate`.

The graph is walked with an explicit stack, so chains of thousands of definitions are fine, and in a fixed order (outputs
first to last, sources in the order in which a definition reads them), so equal graphs give equal programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorexpr.errors import ArgumentError, DefinitionError, user_location
from tensorexpr.hints import checked, described
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Access, Axis, Constant, Define, Definition, Input, Program, TensorType, const
from tensorexpr.ir import Index as IndexNode
from tensorexpr.language.core.renaming import ProgramRenaming, local_names
from tensorexpr.language.core.tensor import Tensor, fresh_key, name_of
from tensorexpr.language.core.tracing import RESERVED
from tensorexpr.records import record
from tensorexpr.traversal import definition_sizes, fresh_name, reads, size_names


@record
class _Graph:
    """What a program is made of, in order."""

    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    computed: tuple[Tensor, ...]
    definitions: tuple[Definition, ...]
    sizes: tuple[str, ...]


@checked()
def program_of(outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None = None, keys: bool = False) -> Program:
    """The program that computes `outputs`.

    Inputs are the placeholders in order of appearance, or `inputs` in that order, which may hold computed tensors: the program
    then takes them as given. Names are the pretty ones, made unique (`C`, `C_1`), or with `keys` the keys of the tensors.
    With pretty names every output is a definition of its own: an input that is returned, or a tensor returned twice, is
    copied. An input that has the name of a size is numbered.

    Raises `DefinitionError` for two inputs of one name, a placeholder that is not among `inputs`, and a tensor that belongs to
    the body of a scan.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.program_of([te.compute((2,), lambda i: A[i, 0], name="first")]))
    A: f32[2, 3] = input()
    first[i]: f32[2] = A[i, 0]
    return first
    """
    graph = _graph(outputs, inputs)
    names = {} if keys else _names(graph)
    renaming = ProgramRenaming(names, graph.sizes)
    program = Program(
        tuple(Input(names.get(t.key, t.key), t.type, t.path, t.initial) for t in graph.inputs),
        tuple(Constant(names.get(t.key, t.key), t.data) for t in graph.constants if t.data is not None),
        tuple(renaming.definition(d) for d in graph.definitions),
        tuple(names.get(t.key, t.key) for t in outputs),
        graph.sizes,
    )
    return program if keys else _with_own_outputs(program)


@checked()
def names_of(outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None = None) -> dict[str, str]:
    """The name that every tensor of the graph has in `program_of(outputs, inputs)`, by its key.

    >>> A = te.placeholder((2, 3), name="A")
    >>> s = te.compute((2,), lambda i: A[i, 0], name="s")
    >>> sorted(te.names_of([s]).values())
    ['A', 's']
    """
    return _names(_graph(outputs, inputs))


@checked()
def lift(program: Program, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors for everything the program names: those in `known` as they are, the others new, reading each other.

    Definitions whose results are all known are left out. The result maps each name of the program to its tensor.

    >>> A = te.placeholder((2, 3), name="A")
    >>> program = te.program_of([te.compute((2,), lambda i: A[i, 0], name="first")])
    >>> sorted(te.lift(program, {"A": A}))
    ['A', 'first']
    """
    table = dict(known)
    for given in program.inputs:
        if given.name not in table:
            table[given.name] = Tensor(given.name, given.type.shape, given.type.dtype)
            table[given.name].path, table[given.name].initial = given.path, given.initial
    for constant in program.constants:
        if constant.name not in table:
            table[constant.name] = Tensor(constant.name, constant.type.shape, constant.type.dtype, data=constant.data)
    for definition in program.definitions:
        results = definition.results
        if all(name in table for name, _ in results):
            continue
        if any(name in table for name, _ in results):
            _add_siblings(results, table)
            continue
        read = reads(definition)
        keys = {name: fresh_key(name) for name in (*(name for name, _ in results), *local_names(definition))}
        renamed = ProgramRenaming({name: table[name].key for name in read} | keys, ()).definition(definition)
        sources = tuple(table[name] for name in read)
        for component, (name, type_) in enumerate(results):
            table[name] = Tensor(
                name, type_.shape, type_.dtype, key=keys[name], definition=renamed, component=component, sources=sources,
                location=definition.location,
            )  # fmt: skip
    return table


def _add_siblings(results: Sequence[tuple[str, TensorType]], table: dict[str, Tensor]) -> None:
    """The results of one scan that are missing in the table, as tensors beside one that is known."""
    known = next(table[name] for name, _ in results if name in table)
    assert known.definition is not None
    for component, (name, type_) in enumerate(results):
        if name not in table:
            key = known.definition.results[component][0]
            table[name] = Tensor(
                name_of(key) if name == key else name, type_.shape, type_.dtype, key=key, definition=known.definition,
                component=component, sources=known.sources, frames=known.frames, location=known.location,
            )  # fmt: skip
            table[name].ruled = known.ruled


@checked()
def evaluate(outputs: Any, arrays: Mapping[Tensor, Any] | None = None, sizes: Mapping[str, int] | None = None) -> Any:
    """The meaning of the language: `outputs` computed by the reference interpreter, as naive as possible and slow.

    `outputs` is a tensor, which gives an array, or a list or tuple of tensors, which gives a tuple of arrays. `arrays` maps
    tensors to arrays of their shape and dtype: the placeholders, and computed tensors that are to be taken as given. `sizes`
    gives `te.dim` sizes that no array fixes.

    Raises `ArgumentError` for an array that is missing, of another shape or dtype, or for nothing that is asked;
    `OutOfBoundsError` (an `IndexError`) for a data-dependent index that leaves its tensor.

    >>> A = te.placeholder((2, 3), name="A")
    >>> total = te.compute((), lambda: te.sum(lambda i, j: A[i, j], (2, 3)), name="total")
    >>> te.evaluate(total, {A: np.ones((2, 3), np.float32)})
    array(6., dtype=float32)
    """
    several = isinstance(outputs, list | tuple)
    wanted = list(outputs) if several else [outputs]
    if arrays is not None and not isinstance(arrays, Mapping):
        raise ArgumentError(
            f"te.evaluate: expected a dict from tensors to arrays, got {described(arrays)}",
            location=user_location(),
            hint="te.evaluate(C, {A: a, B: b})",
        )
    given = dict(arrays or {})
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"te.evaluate: expected tensors as keys, got {tensor!r}", location=user_location(), hint="te.evaluate(C, {A: a, B: b})"
            )
    for tensor in _ordered(wanted, given):
        if tensor.definition is None and tensor.data is None and tensor not in given:
            raise ArgumentError(
                f"te.evaluate: expected an array for {tensor.name}, got none",
                term=tensor,
                location=user_location(),
                hint="give it as {A: array}",
            )
    program = program_of(wanted, list(given))
    values = {item.name: _array(value, tensor) for item, (tensor, value) in zip(program.inputs, given.items(), strict=True)}
    results = evaluate_program(program, values, _sizes(sizes))
    found = tuple(results[name] for name in program.outputs)
    return found if several else found[0]


def _array(value: Any, tensor: Tensor) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool | int | float | np.generic | list | tuple):
        try:
            kind = np.asarray(value).dtype
            if np.can_cast(kind, tensor.dtype.numpy, "same_kind") or (kind.kind == "i" and tensor.dtype.is_integer):
                return np.asarray(value, tensor.dtype.numpy)
        except (TypeError, ValueError, OverflowError):
            pass
    raise ArgumentError(f"{tensor.name}: expected an array of {tensor.dtype.name}, got {value!r}", term=tensor, location=user_location())


def _sizes(sizes: Any) -> dict[str, int]:
    """The sizes given by the user. Raises `ArgumentError` where they are not names with counts."""
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping):
        raise ArgumentError(f"te.evaluate: expected sizes by name, got {sizes!r}", location=user_location(), hint='sizes={"n": 5}')
    for name, value in sizes.items():
        if not isinstance(name, str) or not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise ArgumentError(
                f"te.evaluate: expected an integer of at least 0 for the size {name}, got {value!r}",
                location=user_location(),
                hint='sizes={"n": 5}',
            )
    return {name: int(value) for name, value in sizes.items()}


# ----------------------------------------------------------------------------------------------------------- graph


def _graph(outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None) -> _Graph:
    order = _ordered(outputs, () if inputs is None else inputs)
    given = tuple(t for t in order if t.definition is None and t.data is None) if inputs is None else tuple(dict.fromkeys(inputs))
    known = set(given)
    for tensor in order:
        if tensor.definition is None and tensor.data is None and tensor not in known:
            other = "another one of that name" if any(t.name == tensor.name for t in given) else "none"
            raise DefinitionError(
                f"expected every placeholder that is read among the inputs, got {other} for {tensor.name}",
                term=tensor,
                location=user_location(),
                hint=f"the inputs given are {', '.join(t.name for t in given) or 'none'}",
            )
    constants = tuple(t for t in order if t.data is not None and t not in known)
    computed = tuple(t for t in order if t.definition is not None and t not in known)
    definitions = tuple({id(t.definition): t.definition for t in computed if t.definition is not None}.values())
    shapes = (name for t in given for e in t.extents for name in size_names(e))
    sizes = tuple(dict.fromkeys((*shapes, *definition_sizes(definitions))))
    return _Graph(given, constants, computed, definitions, sizes)


def _ordered(outputs: Sequence[Tensor], inputs: Iterable[Tensor]) -> list[Tensor]:
    """The outputs and all they read down to the inputs, each after what it reads."""
    for what, tensors in (("outputs", outputs), ("inputs", inputs)):
        if isinstance(tensors, str) or not isinstance(tensors, Sequence | Mapping):
            raise DefinitionError(f"expected a list of tensors as {what}, got {tensors!r}", location=user_location())
    for given in inputs:
        if not isinstance(given, Tensor):
            raise DefinitionError(f"expected tensors as inputs, got {given!r}", location=user_location())
    stop = set(inputs)
    done: dict[Tensor, None] = {}
    for output in outputs:
        if not isinstance(output, Tensor):
            raise DefinitionError(
                f"expected tensors as outputs, got {output!r}",
                location=user_location(),
                hint="a scalar becomes one by te.compute((), lambda: x)",
            )
        stack = [(output, False)]
        while stack:
            tensor, ready = stack.pop()
            if tensor in done:
                continue
            if tensor.frames:
                raise DefinitionError(
                    f"expected a tensor that has a meaning outside of a scan, got {tensor.name}, which belongs to the body of one",
                    location=tensor.location,
                    hint="only what te.scan returns leaves its body: make it one of the states",
                )
            if ready or tensor in stop or not tensor.sources:
                done[tensor] = None
                continue
            stack.append((tensor, True))
            stack.extend((source, False) for source in reversed(tensor.sources))
    return list(done)


def _names(graph: _Graph) -> dict[str, str]:
    """Pretty names by key, unique in the program: inputs keep theirs, unnamed tensors are numbered."""
    taken = {*graph.sizes, *RESERVED}
    names: dict[str, str] = {}
    for tensor in graph.inputs:
        if not tensor.named:
            continue
        if tensor.name in graph.sizes:
            continue  # renamed below, when the names of all inputs are taken
        if tensor.name in taken:
            raise DefinitionError(
                f"expected a name for each input of a program, got {tensor.name} twice",
                term=tensor,
                location=tensor.location,
                at="also the name of an input",
                hint="give te.placeholder another name=",
            )
        taken.add(tensor.name)
        names[tensor.key] = tensor.name
    numbers: dict[str, int] = {}

    def numbered(stem: str) -> str:
        while True:
            name = f"{stem}{numbers.setdefault(stem, 0)}"
            numbers[stem] += 1
            if name not in taken:
                taken.add(name)
                return name

    for tensor in graph.inputs + graph.constants + graph.computed:
        if tensor.key not in names:
            names[tensor.key] = fresh_name(tensor.name, taken) if tensor.named else numbered(tensor.name)
    for definition in graph.definitions:
        # Results of a scan that nothing reads have no tensor in the graph, but stand in the text.
        for key in (*(key for key, _ in definition.results if key not in names), *local_names(definition)):
            stem = name_of(key)
            names[key] = numbered(stem) if stem == "t" else fresh_name(stem, taken)
    return names


def _with_own_outputs(program: Program) -> Program:
    """The program with a copy for each output that is no definition, or an output already."""
    defined = {name for d in program.definitions for name, _ in d.results}
    types = program.types
    taken = set(types) | {name for d in program.definitions for name in local_names(d)} | set(program.sizes) | set(RESERVED)
    outputs: list[str] = []
    copies: list[Define] = []
    for name in program.outputs:
        if name in defined and name not in outputs:
            outputs.append(name)
            continue
        copy = fresh_name(name, taken)
        indices = [fresh_name(f"i{n}", set(program.sizes)) for n in range(len(types[name].shape))]
        axes = tuple(Axis(i, const(0), e) for i, e in zip(indices, types[name].shape, strict=True))
        copies.append(Define(copy, axes, Access(name, tuple(map(IndexNode, indices)), types[name].dtype)))
        outputs.append(copy)
    if not copies:
        return program
    return Program(program.inputs, program.constants, (*program.definitions, *copies), tuple(outputs), program.sizes)


__all__ = ["evaluate", "lift", "names_of", "program_of"]
