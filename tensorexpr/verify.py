"""What every program satisfies, and the check of it. `run_passes` verifies after each pass.

1. Names: every tensor is named once in the whole program: inputs, constants, results of definitions, and inside scans
   the states and the results of the body. Names are Python identifiers, those of indices and sizes not `inf` or `nan`.
2. Sizes: `Program.sizes` lists every symbolic size that occurs, each once.
3. Order: a definition reads only inputs, constants, results of definitions before it, and inside a scan its states.
4. Ranks: an access has one index per axis of its tensor.
5. Index types: indices of accesses and bounds of axes are int64.
6. Element types: an access has the dtype of its tensor.
7. Scope: every index is bound where it stands, by an axis of the definition, an enclosing reduction or the step of a
   scan; nothing binds a name that is bound already; no index has the name of a size. Parameters of combiners occur in
   combiners only.
8. Shapes: axes of a Define start at 0; extents are expressions over sizes and constants alone.
9. Operands: every operation has as many operands as its row says, all of one dtype that the row accepts, and records the
   dtype that follows.
10. Literals: an integer literal lies in the range of its dtype.
11. Reductions: the combiner is a built-in or well formed, has the number of values it combines, of a dtype it accepts
   (sum and prod numbers, all and any bools); the component exists; `where` is a bool.
12. Combiners: left and right parameters, results and identity have the same length and dtypes; parameters differ; results
   are expressions over the parameters alone; the identity is made of literals.
13. Scatters: `combine` and `lowering` are known; there is one int64 index per axis; value and result have one dtype; sum
   and prod combine numbers; `where` is a bool.
14. Scans: names, states, inits and nexts are equally many, at least one; each init and next has the type of its state.
15. Segments: two names, one int64 key per extent; the axes, those of the batch too, are as those of a Define; `where` is a bool.
16. Outputs: every output is an input, a constant or a result of a definition.

The check takes time linear in the size of the program and does not recur over chains of definitions. The first broken
invariant is an `InternalError` that quotes its name and the definition.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import NoReturn
from weakref import WeakKeyDictionary

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError, InternalError
from tensorexpr.ir import (
    BUILTIN_COMBINERS,
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Param,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    TensorType,
    const,
)
from tensorexpr.ops import result_dtype
from tensorexpr.text import print_definition, print_expr, print_type
from tensorexpr.traversal import children, reads, walk

SCATTER_COMBINERS = ("sum", "prod", "max", "min")
SCATTER_LOWERINGS = ("segments", "atomics")
_RESERVED = ("inf", "nan")


_checked: WeakKeyDictionary[Definition, tuple[tuple[str, ...], dict[str, TensorType | None]]] = WeakKeyDictionary()
"""Definitions that hold, with the sizes and the types of what they read: a pass leaves most of them as they are."""


def verify(program: Program) -> None:
    """Checks the invariants of this module's docstring. Raises `InternalError` naming the first that does not hold."""
    _Verifier(program).run()


def _quoted(definition: Definition) -> str:
    try:
        return print_definition(definition)
    except Exception:  # a broken definition may have no text; the invariant matters more than how it prints
        return repr(definition)


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name not in _RESERVED


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.sizes = frozenset(program.sizes)
        self.types: dict[str, TensorType] = {}
        self.taken: set[str] = set()
        self.definition: Definition | None = None

    def fail(self, invariant: str, message: str, at: object = None) -> NoReturn:
        term = None if self.definition is None else _quoted(self.definition)
        location = None if self.definition is None else self.definition.location
        raise InternalError(f"invariant {invariant!r}: {message}", term=term, location=location, at=at)

    def run(self) -> None:
        program = self.program
        if len(self.sizes) != len(program.sizes):
            self.fail("sizes", f"expected each size once, got {', '.join(program.sizes)}")
        for size in program.sizes:
            if not _is_identifier(size):
                self.fail("names", f"expected an identifier for a size, got {size!r}")
        for name, type_ in [(i.name, i.type) for i in program.inputs] + [(c.name, c.type) for c in program.constants]:
            self.declare(name, type_)
            self.shape(type_.shape, name)
        for definition in program.definitions:
            self.definition = definition
            known = _checked.get(definition)
            if known is None or known != (program.sizes, self.types_of(known[1])):
                self.check(definition, ())
                if not isinstance(definition, Scan):  # which takes names
                    _checked[definition] = program.sizes, self.types_of(reads(definition))
            for name, type_ in definition.results:
                self.declare(name, type_)
        self.definition = None
        for output in program.outputs:
            if output not in self.types:
                self.fail("outputs", f"expected the name of a tensor of the program, got {output}")

    def types_of(self, read: Iterable[str]) -> dict[str, TensorType | None]:
        return {name: self.types.get(name) for name in read}

    def declare(self, name: str, type_: TensorType) -> None:
        if not name.isidentifier() or keyword.iskeyword(name):
            self.fail("names", f"expected an identifier for a tensor, got {name!r}")
        if name in self.taken:
            self.fail("names", f"expected each tensor to be named once, got {name} twice")
        self.taken.add(name)
        self.types[name] = type_

    # ----------------------------------------------------------------------------------------------- definitions

    def check(self, definition: Definition, scope: tuple[str, ...]) -> None:
        match definition:
            case Define(_, axes, value):
                self.expr(value, self.whole(axes, definition.name, scope))
            case Scatter():
                self.scatter(definition, scope)
            case Segments():
                self.segments(definition, scope)
            case Scan():
                self.scan(definition, scope)

    def whole(self, axes: tuple[Axis, ...], name: str, scope: tuple[str, ...]) -> tuple[str, ...]:
        """Checks axes that run over a whole shape, and binds their indices."""
        for axis in axes:
            if axis.start != const(0):
                self.fail("shapes", f"expected an axis that starts at 0, got {print_expr(axis.start)}", at=axis.index)
        self.shape((a.stop for a in axes), name)
        return self.bind((a.index for a in axes), scope)

    def shape(self, extents: Iterable[Expr], name: str) -> None:
        for extent in extents:
            self.expr(extent, ())
            self.int64(extent)
            if any(isinstance(e, Access | Reduce) for e in walk(extent)):
                self.fail("shapes", f"expected an extent over sizes and constants, got {print_expr(extent)}", at=name)

    def scatter(self, definition: Scatter, scope: tuple[str, ...]) -> None:
        type_ = definition.type
        if definition.combine not in SCATTER_COMBINERS:
            self.fail("scatters", f"expected combine to be one of {', '.join(SCATTER_COMBINERS)}, got {definition.combine}")
        if definition.lowering not in SCATTER_LOWERINGS:
            self.fail("scatters", f"expected lowering to be one of {', '.join(SCATTER_LOWERINGS)}, got {definition.lowering}")
        self.shape(type_.shape, definition.name)
        inner = self.axes(definition.axes, scope)
        for index in definition.indices:
            self.expr(index, inner)
            self.int64(index)
        if len(definition.indices) != len(type_.shape):
            self.fail("scatters", f"expected {len(type_.shape)} indices, got {len(definition.indices)}")
        self.condition(definition.where, inner, "scatters")
        self.expr(definition.value, inner)
        if definition.value.dtype is not type_.dtype:
            self.fail("scatters", f"expected a value of {type_.dtype.name}, got {definition.value.dtype.name}")
        if definition.combine in ("sum", "prod") and type_.dtype.is_bool:
            self.fail("scatters", f"expected numbers to combine by {definition.combine}, got bool")

    def segments(self, definition: Segments, scope: tuple[str, ...]) -> None:
        if len(definition.names) != 2:
            self.fail("segments", f"expected the names of offsets and order, got {', '.join(definition.names)}")
        self.shape(definition.extents, definition.name)
        inner = self.whole((*definition.batch, *definition.axes), definition.name, scope)
        for key in definition.keys:
            self.expr(key, inner)
            self.int64(key)
        if len(definition.keys) != len(definition.extents):
            self.fail("segments", f"expected {len(definition.extents)} keys, one per extent, got {len(definition.keys)}")
        self.condition(definition.where, inner, "segments")

    def scan(self, definition: Scan, scope: tuple[str, ...]) -> None:
        self.shape((definition.length,), definition.names[0] if definition.names else "scan")
        counts = {len(definition.names), len(definition.states), len(definition.inits), len(definition.nexts)}
        if len(counts) != 1 or 0 in counts:
            self.fail("scans", "expected as many names, states, inits and nexts, at least one of each")
        inner = self.bind((definition.step,), scope)
        self.same_types(definition, definition.inits)
        local: list[str] = []
        for name, type_ in definition.states:
            self.shape(type_.shape, name)
            self.declare(name, type_)
            local.append(name)
        outer, self.definition = self.definition, None
        for item in definition.body:
            self.definition = item
            self.check(item, inner)
            for name, type_ in item.results:
                self.declare(name, type_)
                local.append(name)
        self.definition = outer
        self.same_types(definition, definition.nexts)
        for name in local:
            del self.types[name]

    def same_types(self, definition: Scan, names: tuple[str, ...]) -> None:
        for name, (state, type_) in zip(names, definition.states, strict=True):
            found = self.types.get(name)
            if found is None:
                self.fail("order", f"expected a tensor defined before, got {name}")
            if found.dtype is not type_.dtype or not _may_be_equal(found.shape, type_.shape):
                self.fail("scans", f"expected {name} of the type of its state, {print_type(type_)}, got {print_type(found)}", at=state)

    # ----------------------------------------------------------------------------------------------- expressions

    def bind(self, names: Iterable[str], scope: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _is_identifier(name):
                self.fail("names", f"expected an identifier for an index, got {name!r}")
            if name in scope:
                self.fail("scope", f"expected an index that is not bound yet, got {name} again")
            if name in self.sizes:
                self.fail("scope", f"expected an index that has no size's name, got {name}")
            scope = (*scope, name)
        return scope

    def axes(self, axes: tuple[Axis, ...], scope: tuple[str, ...]) -> tuple[str, ...]:
        for axis in axes:
            for bound in (axis.start, axis.stop):
                self.expr(bound, scope)
                self.int64(bound)
            scope = self.bind((axis.index,), scope)
        return scope

    def int64(self, expr: Expr) -> None:
        if expr.dtype is not dtypes.int64:
            self.fail("index types", f"expected int64, got {expr.dtype.name}", at=print_expr(expr))

    def condition(self, where: Expr | None, scope: tuple[str, ...], invariant: str) -> None:
        if where is not None:
            self.expr(where, scope)
            if not where.dtype.is_bool:
                self.fail(invariant, f"expected a bool for where, got {where.dtype.name}", at=print_expr(where))

    def expr(self, expr: Expr, scope: tuple[str, ...], params: tuple[Param, ...] | None = None) -> None:
        """Checks one expression; `params` are those of the combiner whose results it is in."""
        match expr:
            case Const(value, dtype):
                if dtype.is_integer and not dtype.least <= value <= dtype.greatest:
                    self.fail("literals", f"expected a value of {dtype.name}, got {value}")
            case Index(name):
                if name not in scope:
                    self.fail("scope", f"expected a bound index, got {name}")
            case Size(name):
                if name not in self.sizes:
                    self.fail("sizes", f"expected a size of the program, got {name}")
            case Param(name):
                if params is None or expr not in params:
                    self.fail("scope", f"expected a parameter of the combiner around it, got {name}")
            case Reduce():
                inner = self.axes(expr.axes, scope)
                self.condition(expr.where, inner, "reductions")
                for item in expr.values:
                    self.expr(item, inner, params)
                self.reduction(expr)
                return
        for child in children(expr):
            self.expr(child, scope, params)
        if isinstance(expr, Access):
            self.access(expr)
        elif isinstance(expr, Apply):
            self.apply(expr)

    def access(self, expr: Access) -> None:
        found = self.types.get(expr.tensor)
        if found is None:
            self.fail("order", f"expected a tensor defined before, got {expr.tensor}")
        if len(found.shape) != len(expr.indices):
            self.fail("ranks", f"expected {len(found.shape)} indices, got {len(expr.indices)}", at=print_expr(expr))
        for index in expr.indices:
            self.int64(index)
        if found.dtype is not expr.dtype:
            self.fail("element types", f"expected {found.dtype.name}, got {expr.dtype.name}", at=print_expr(expr))

    def apply(self, expr: Apply) -> None:
        try:
            dtype = result_dtype(expr.op, tuple(a.dtype for a in expr.args))
        except DefinitionError as error:
            self.fail("operands", error.message, at=print_expr(expr))
        if dtype is not expr.dtype:
            self.fail("operands", f"expected {dtype.name} as the dtype of {expr.op.name}, got {expr.dtype.name}", at=print_expr(expr))

    def reduction(self, expr: Reduce) -> None:
        combiner = expr.combiner
        count = 1 if combiner.is_builtin else len(combiner.results)
        if len(expr.values) != count:
            self.fail("reductions", f"expected {count} values to reduce by {combiner.name}, got {len(expr.values)}")
        if not 0 <= expr.component < count:
            self.fail("reductions", f"expected a component below {count}, got {expr.component}")
        if not combiner.is_builtin:
            self.combiner(combiner, tuple(v.dtype for v in expr.values))
            return
        if combiner.name not in BUILTIN_COMBINERS:
            self.fail("reductions", f"expected one of {', '.join(BUILTIN_COMBINERS)}, got {combiner.name}")
        is_bool = expr.values[0].dtype.is_bool
        if combiner.name in ("sum", "prod") and is_bool:
            self.fail("reductions", f"expected numbers to reduce by {combiner.name}, got bool")
        if combiner.name in ("all", "any") and not is_bool:
            self.fail("reductions", f"expected bools to reduce by {combiner.name}, got {expr.values[0].dtype.name}")

    def combiner(self, combiner: Combiner, values: tuple[DType, ...]) -> None:
        for what, items in (
            ("left parameters", combiner.left),
            ("right parameters", combiner.right),
            ("results", combiner.results),
            ("identity", combiner.identity),
        ):
            if tuple(e.dtype for e in items) != values:
                expected, found = (", ".join(d.name for d in row) for row in (values, tuple(e.dtype for e in items)))
                self.fail("combiners", f"expected {what} of {expected}, got {found}", at=combiner.name)
        params = (*combiner.left, *combiner.right)
        if len({p.name for p in params}) != len(params):
            self.fail("combiners", f"expected parameters that differ, got {', '.join(p.name for p in params)}", at=combiner.name)
        for literal in combiner.identity:
            if not isinstance(literal, Const):
                self.fail("combiners", f"expected a literal in the identity, got {print_expr(literal)}", at=combiner.name)
        for result in combiner.results:
            for node in walk(result):
                if not isinstance(node, Const | Param | Apply | Cast):
                    self.fail("combiners", f"expected an expression over the parameters, got {print_expr(node)}", at=combiner.name)
            self.expr(result, (), params)


def _may_be_equal(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
    """Equal rank and no pair of constant extents that differ (symbolic extents are compared when the program runs)."""
    return len(left) == len(right) and all(
        a == b or not (isinstance(a, Const) and isinstance(b, Const)) for a, b in zip(left, right, strict=True)
    )
