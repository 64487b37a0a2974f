"""What depends on constants alone is computed when a program is compiled, and its result is a constant of the compiled function.

Whole definitions that read nothing but constants, and inside of the others the largest expressions over elements of constants
(the scale of a normalisation from its variance) at indices that are plain loops over whole ranges, so that they may be
computed everywhere. Nothing is folded whose result takes more memory than the constants that it is made of (a small
bound aside): it would be read from memory where it is computed now. Nor is a product that stands in a sum: it is fused with
the sum, at no cost and rounded once. What was read for folded definitions only is gone from the program. The values are those of
compiled code; equal ones are one array for all functions that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from tensorexpr.codegen.disk import digest
from tensorexpr.constants import data
from tensorexpr.constants.freezing import with_literals
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Constant,
    Define,
    Definition,
    Expr,
    Index,
    Input,
    Program,
    Reduce,
    Scatter,
    TensorType,
    const,
)
from tensorexpr.records import replace
from tensorexpr.simplify import remove_dead_definitions
from tensorexpr.text import print_program
from tensorexpr.traversal import bound_names, children, expressions, fresh_name, map_children, reads, size_names, walk

FREE_BYTES = 64 << 10
"""A result of at most this size is folded whatever it is made of."""

Run = Callable[[Program, Sequence[np.ndarray]], Sequence[np.ndarray]]


def folded(program: Program, run: Run) -> Program:
    """The program as it is compiled: literals for constants without axes, `fold`, and nothing that no output needs."""
    if not program.constants:
        return program
    return remove_dead_definitions(fold(remove_dead_definitions(with_literals(program)), run))


def fold(program: Program, run: Run) -> Program:
    """The program with constants for what depends on constants alone; `run` computes a program on its inputs.

    Requires: nothing. Ensures: inputs, outputs and values are kept, bit for bit but for sums of floats, which have the order that the
    schedule of the folded part gives them. A program whose folded part would fail (an index out of bounds) stays as it is.
    """
    if not program.constants:
        return program
    lifted = _lift_expressions(program)
    made_of = _made_of(lifted)
    folded = _worthwhile(lifted, made_of)
    if not folded:
        return program
    needed = {name for d in lifted.definitions if not _all_in(d, folded) for name in reads(d)} | set(lifted.outputs)
    results = [name for d in lifted.definitions if _all_in(d, folded) for name, _ in d.results if name in needed]
    part = _part(lifted, results)
    try:
        arrays = _computed(part, [c for c in lifted.constants if any(i.name == c.name for i in part.inputs)], run)
    except OutOfBoundsError:
        return program
    definitions = tuple(d for d in lifted.definitions if not _all_in(d, folded))
    used = {name for d in definitions for name in reads(d)} | set(lifted.outputs)
    constants = [*lifted.constants, *(Constant(name, array) for name, array in zip(results, arrays, strict=True))]
    # Once more: what was read from a definition that is a constant now may be part of a larger expression over constants.
    return fold(replace(lifted, constants=tuple(c for c in constants if c.name in used), definitions=definitions), run)


def _computed(part: Program, constants: Sequence[Constant], run: Run) -> list[np.ndarray]:
    """The outputs of a program of constants: those that another function still has, else made."""
    text = digest(print_program(part), *(c.content for c in constants))
    keys = [(text, position) for position in range(len(part.outputs))]
    found = [data.known(key) for key in keys]
    kept = [array for array in found if array is not None]
    if len(kept) == len(keys):
        return kept
    return [data.shared(key, data.frozen(array)) for key, array in zip(keys, run(part, [c.data for c in constants]), strict=True)]


def _all_in(definition: Definition, names: Mapping[str, object]) -> bool:
    return all(name in names for name, _ in definition.results)


def _made_of(program: Program) -> dict[str, frozenset[str]]:
    """For each tensor that depends on constants alone, those constants."""
    found = {c.name: frozenset([c.name]) for c in program.constants}
    for definition in program.definitions:
        sources = reads(definition)
        open_ = any(size_names(e) for e in expressions(definition)) or any(size_names(e) for _, t in definition.results for e in t.shape)
        if sources and not open_ and all(name in found for name in sources):
            made_of = frozenset(c for name in sources for c in found[name])
            found.update((name, made_of) for name, _ in definition.results)
    return found


def _worthwhile(program: Program, made_of: Mapping[str, frozenset[str]]) -> dict[str, None]:
    """The results to fold: no larger than what they are made of, or only read by what is folded."""
    sizes = {c.name: c.data.nbytes for c in program.constants}
    products = _products(program)
    readers: dict[str, list[Definition]] = {}
    for definition in program.definitions:
        for name in reads(definition):
            readers.setdefault(name, []).append(definition)
    folded: dict[str, None] = {}
    fused: set[str] = set()
    for definition in reversed(program.definitions):
        names = [name for name, _ in definition.results]
        if not all(name in made_of for name in names):
            continue
        inner = all(name not in program.outputs and all(_all_in(r, folded) for r in readers.get(name, ())) for name in names)
        bytes_ = sum(_bytes(type_) for _, type_ in definition.results)
        rest = [r for name in names for r in readers.get(name, ()) if not _all_in(r, folded)]
        if not products.isdisjoint(names) and any(not _added(r, fused).isdisjoint(names) for r in rest):
            fused.update(names)
            continue
        if inner or bytes_ <= max(FREE_BYTES, sum(sizes[c] for c in made_of[names[0]])):
            folded.update(dict.fromkeys(names))
    return folded


def _tips(expr: Expr) -> Iterator[Expr]:
    """What a value is in the end: the branches of choices, without signs in front of them."""
    match expr:
        case Apply() if expr.op.name == "neg":
            yield from _tips(expr.args[0])
        case Apply() if expr.op.name == "where":
            yield from _tips(expr.args[1])
            yield from _tips(expr.args[2])
        case _:
            yield expr


def _is_product(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.op.name == "mul" and expr.dtype.is_float


def _products(program: Program) -> set[str]:
    """The tensors whose elements are products of floats, there or where they are read from."""
    found: set[str] = set()
    for definition in program.definitions:
        if isinstance(definition, Define) and any(
            _is_product(tip) or (isinstance(tip, Access) and tip.tensor in found) for tip in _tips(definition.value)
        ):
            found.add(definition.name)
    return found


def _terms(expr: Expr) -> tuple[Expr, ...]:
    """What an expression may add up, by itself or over its points."""
    match expr:
        case Apply() if expr.op.name in ("add", "sub"):
            return expr.args
        case Reduce():
            return expr.values
    return ()


def _added(definition: Definition, terms_themselves: set[str]) -> set[str]:
    """The tensors that a definition reads as terms of sums; the values of some definitions are such terms themselves."""
    terms = [term for e in expressions(definition) for node in walk(e) for term in _terms(node)]
    if isinstance(definition, Scatter) or (isinstance(definition, Define) and definition.name in terms_themselves):
        terms.append(definition.value)
    return {tip.tensor for term in terms for tip in _tips(term) if isinstance(tip, Access)}


def _bytes(type_: TensorType) -> int:
    return prod(int(e.value) if isinstance(e, Const) else 1 << 62 for e in type_.shape) * type_.dtype.itemsize


def _part(program: Program, results: Sequence[str]) -> Program:
    """The program of some results, with constants as inputs."""
    needed = set(results)
    kept: list[Definition] = []
    for definition in reversed(program.definitions):
        if any(name in needed for name, _ in definition.results):
            kept.append(definition)
            needed.update(reads(definition))
    inputs = tuple(Input(c.name, c.type) for c in program.constants if c.name in needed)
    return Program(inputs, (), tuple(reversed(kept)), tuple(results))


# -------------------------------------------------------------------------------------------------- parts of expressions


def _lift_expressions(program: Program) -> Program:
    """The program with a definition of its own for each largest expression over constants inside of one that reads more."""
    constants = {c.name: c for c in program.constants}
    taken = {*program.types, *program.sizes, *(i for d in program.definitions for e in expressions(d) for i in bound_names(e))}
    taken |= {a.index for d in program.definitions if isinstance(d, Define) for a in d.axes}
    lifter = _Lifter(constants, taken)
    definitions: list[Definition] = []
    for definition in program.definitions:
        if isinstance(definition, Define) and any(name not in constants for name in reads(definition)):
            value = lifter.visit(definition.value, _ranges(definition.axes))
            if value is not definition.value:
                definitions += lifter.made
                lifter.made = []
                definition = replace(definition, value=value)
        definitions.append(definition)
    return replace(program, definitions=tuple(definitions)) if len(definitions) > len(program.definitions) else program


def _ranges(axes: Sequence[Axis]) -> dict[str, int]:
    """How far indices run that begin at 0 and end at a number."""
    return {a.index: int(a.stop.value) for a in axes if a.start == const(0) and isinstance(a.stop, Const)}


class _Lifter:
    def __init__(self, constants: Mapping[str, Constant], taken: set[str]) -> None:
        self.constants = constants
        self.taken = taken
        self.made: list[Definition] = []
        self.known: dict[int, tuple[Expr, bool, bool]] = {}

    def made_of(self, expr: Expr) -> tuple[bool, bool]:
        """Whether an expression reads constants, and whether it is made of anything else but them; each part is looked at once."""
        found = self.known.get(id(expr))
        if found is not None:
            return found[1:]
        constant = isinstance(expr, Access) and expr.tensor in self.constants
        other = not (constant or isinstance(expr, Apply | Cast | Reduce | Const | Index))
        for child in children(expr):
            reads_constants, reads_others = self.made_of(child)
            constant, other = constant or reads_constants, other or reads_others
        self.known[id(expr)] = expr, constant, other
        return constant, other

    def visit(self, expr: Expr, ranges: dict[str, int]) -> Expr:
        """The expression with reads of new tensors; `ranges` are the indices around it that run over whole ranges."""
        constant, other = self.made_of(expr)
        if isinstance(expr, Access) or not constant:
            return expr
        if not other and isinstance(expr, Apply | Cast | Reduce) and self.lifts(expr, ranges):
            return self.lift(expr, ranges)
        inner = ranges
        if isinstance(expr, Reduce):
            inner = {**ranges, **_ranges(expr.axes)}
        terms = {id(term) for term in _terms(expr)}
        return map_children(expr, lambda child: self.term(child, inner) if id(child) in terms else self.visit(child, inner))

    def term(self, expr: Expr, ranges: dict[str, int]) -> Expr:
        """A term of a sum: its products stay, for what their factors have of constants alone."""
        if not any(map(_is_product, _tips(expr))):
            return self.visit(expr, ranges)
        if _is_product(expr):
            return map_children(expr, lambda factor: self.visit(factor, ranges))
        choice = expr.args[0] if isinstance(expr, Apply) and expr.op.name == "where" else None
        return map_children(expr, lambda child: self.visit(child, ranges) if child is choice else self.term(child, ranges))

    def lifts(self, expr: Expr, ranges: Mapping[str, int]) -> bool:
        """Whether an expression of constants alone reads at places that exist at every point of the ranges, and is worth its memory."""
        read: set[str] = set()
        free: dict[str, None] = {}
        inner = dict(ranges)
        own = set(bound_names(expr))
        for node in walk(expr):
            if isinstance(node, Reduce):
                inner.update(_ranges(node.axes))
        for node in walk(expr):
            match node:
                case Access():
                    read.add(node.tensor)
                    for index, extent in zip(node.indices, self.constants[node.tensor].data.shape, strict=True):
                        if not self._exists(index, extent, inner):
                            return False
                case Index():
                    if node.name not in inner:
                        return False
                    if node.name not in own:
                        free[node.name] = None
        size = prod(inner[name] for name in free) * expr.dtype.itemsize
        return 0 < size <= max(FREE_BYTES, sum(self.constants[name].data.nbytes for name in read))

    @staticmethod
    def _exists(index: Expr, extent: int, ranges: Mapping[str, int]) -> bool:
        if isinstance(index, Const):
            return 0 <= index.value < extent
        return isinstance(index, Index) and ranges.get(index.name, extent + 1) <= extent

    def lift(self, expr: Expr, ranges: Mapping[str, int]) -> Access:
        """A read of a new tensor that holds the values of an expression."""
        own = set(bound_names(expr))
        free = tuple(dict.fromkeys(n.name for n in walk(expr) if isinstance(n, Index) and n.name not in own))
        name = fresh_name("folded", self.taken)
        self.made.append(Define(name, tuple(Axis(index, const(0), const(ranges[index])) for index in free), expr))
        return Access(name, tuple(Index(index) for index in free), expr.dtype)
