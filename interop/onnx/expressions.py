"""Definitions in ONNX's operators: index notation as arithmetic on broadcast tensors.

Every scalar expression is a tensor over the axes in scope: dimension k belongs to the k-th axis, and is 1 where the expression does not
depend on it. An index is an arange; an access is a transposition where its indices are axes, else `GatherND` at computed places; a
reduction has its axes behind the others, and reduces them away. Reads at places that depend on data are held inside of the tensor: ONNX
knows no error.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tensorexpr.dtypes import DType, int64
from tensorexpr.errors import TargetError, user_location
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Expr, Index, Reduce, apply
from tensorexpr.ops import OPS, Op, expand
from tensorexpr.traversal import tensors_read, walk

_LOGICAL = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor"), "invert": ("Not", "BitwiseNot")}
_REDUCTIONS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin", "all": "ReduceMin", "any": "ReduceMax"}
_CODES = {
    "bool": TensorProto.BOOL, "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64,
    "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
}  # fmt: skip


def _made_of(op: Op) -> str | None:
    """The other operations that say an operation here, where ONNX has no operator for it."""
    text = op.onnx or op.formula
    return None if text is None or text.isidentifier() else text


def code_of(dtype: DType) -> int:
    """ONNX's number of an element type."""
    return int(_CODES[dtype.name])


def unsupported(what: str, where: object) -> TargetError:
    """The error for what has no form in ONNX here."""
    return TargetError(
        f"to_onnx: expected a graph that ONNX's operators can say, got {what}", term=where, location=user_location(),
        hint="definitions by te.compute with built-in reductions go out; te.scan, te.scatter, branches, loops and effects do not",
    )  # fmt: skip


@dataclass
class Nodes:
    """Nodes of one ONNX graph or function as they are made; `taken` are its names."""

    taken: set[str]
    made: list[NodeProto] = field(default_factory=list)
    _known: dict[Any, str] = field(default_factory=dict)

    def fresh(self, stem: str) -> str:
        """A name that is not taken."""
        name = next(n for n in itertools.chain([stem], (f"{stem}_{k}" for k in itertools.count(1))) if n not in self.taken)
        self.taken.add(name)
        return name

    def add(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """A node with one output; its name."""
        output = self.fresh(op.lower()) if output is None else output
        self.made.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def constant(self, array: np.ndarray) -> str:
        """A constant; equal ones are one."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.add("Constant", [], self.fresh("c"), value=numpy_helper.from_array(np.array(array, order="C")))
        return self._known[key]


@dataclass
class Term:
    """A tensor over the axes in scope: its name and dimensions, 1 where it does not depend on an axis."""

    name: str
    dims: tuple[int, ...]


class Definitions:
    """Writes definitions into `nodes`; `shapes` are the extents of all tensors by name."""

    def __init__(self, nodes: Nodes, shapes: dict[str, tuple[int, ...]]) -> None:
        self._nodes, self._shapes = nodes, shapes

    def write(self, definition: Any) -> None:
        """The nodes that compute a definition under its name."""
        if not isinstance(definition, Define):
            raise unsupported(f"a {type(definition).__name__.lower()}", definition)
        shape = self._shapes[definition.name]
        scope = [(axis.index, 0, extent) for axis, extent in zip(definition.axes, shape, strict=True)]
        term = self._lifted(self._term(definition.value, scope), len(scope))
        if term.dims == shape:
            self._nodes.add("Identity", [term.name], definition.name)
        else:
            self._nodes.add("Expand", [term.name, self._shape(shape)], definition.name)

    # ---------------------------------------------------------------------------------------------------- expressions

    def _term(self, expr: Expr, scope: list[tuple[str, int, int]]) -> Term:
        nodes = self._nodes
        match expr:
            case Const():
                return Term(nodes.constant(np.asarray(expr.value, expr.dtype.numpy)), ())
            case Index(name=name):
                place = next(k for k, (index, _, _) in enumerate(scope) if index == name)
                _, start, stop = scope[place]
                dims = (*[1] * place, stop - start)
                return Term(nodes.constant(np.arange(start, stop, dtype=np.int64).reshape(dims)), dims)
            case Cast():
                inner = self._term(expr.arg, scope)
                return Term(nodes.add("Cast", [inner.name], to=code_of(expr.dtype)), inner.dims)
            case Access():
                return self._access(expr, scope)
            case Reduce():
                return self._reduce(expr, scope)
            case Apply():
                return self._apply(expr, [self._term(arg, scope) for arg in expr.args])
        raise unsupported(f"a {type(expr).__name__.lower()}", expr)

    def _expanded(self, text: str, expr: Apply, terms: list[Term]) -> Term:
        """An operation as the others that it is made of; each value is an expression, for its dtype, and the tensor that has it."""
        kind = expr.args[0].dtype

        def number(value: float) -> tuple[Expr, Term]:
            return Const(value, kind), Term(self._nodes.constant(np.asarray(value, kind.numpy)), ())

        def applied(name: str, *operands: tuple[Expr, Term]) -> tuple[Expr, Term]:
            made = Apply(OPS[name], tuple(e for e, _ in operands))
            return made, self._apply(made, [t for _, t in operands])

        return expand(text, dict(zip("ab", zip(expr.args, terms))), number, applied)[1]

    def _apply(self, expr: Apply, terms: list[Term]) -> Term:
        text = _made_of(expr.op)
        if text is not None:
            return self._expanded(text, expr, terms)
        rank = max(len(term.dims) for term in terms)
        terms = [self._lifted(term, rank) if term.dims else term for term in terms]
        dims = _broadcast([term.dims for term in terms if term.dims], rank)
        names, nodes, op = [term.name for term in terms], self._nodes, expr.op.name
        kind = expr.args[-1].dtype

        if op == "mod":
            return Term(self._mod(names, kind), dims)
        if op == "floordiv":
            return Term(self._floordiv(names, kind), dims)
        if op in _LOGICAL:
            return Term(nodes.add(_LOGICAL[op][0 if kind.is_bool else 1], names), dims)
        if expr.op.onnx is None:
            raise unsupported(f"the operation {op}", expr)
        return Term(nodes.add(expr.op.onnx, names), dims)

    def _mod(self, names: list[str], kind: DType) -> str:
        if not kind.is_float:
            return self._nodes.add("Mod", names)
        whole = self._nodes.add("Mul", [self._floordiv(names, kind), names[1]])
        return self._nodes.add("Sub", [names[0], whole])

    def _floordiv(self, names: list[str], kind: DType) -> str:
        if kind.is_float:
            return self._nodes.add("Floor", [self._nodes.add("Div", names)])
        # Integers: what the remainder with the divisor's sign leaves is a multiple.
        rest = self._nodes.add("Mod", names)
        return self._nodes.add("Div", [self._nodes.add("Sub", [names[0], rest]), names[1]])

    def _access(self, expr: Access, scope: list[tuple[str, int, int]]) -> Term:
        nodes, shape = self._nodes, self._shapes[expr.tensor]
        if not shape:
            return Term(expr.tensor, ())
        places = {index: (k, start, stop) for k, (index, start, stop) in enumerate(scope)}
        direct = [places[i.name] for i in expr.indices if isinstance(i, Index)]
        whole = len(direct) == len(shape) and all((a, b) == (0, n) for (_, a, b), n in zip(direct, shape, strict=True))
        if whole and len({k for k, _, _ in direct}) == len(direct):
            order = sorted(range(len(direct)), key=lambda axis: direct[axis][0])
            name = expr.tensor if order == list(range(len(order))) else nodes.add("Transpose", [expr.tensor], perm=order)
            extents = [1] * (max(k for k, _, _ in direct) + 1)
            for axis in order:
                extents[direct[axis][0]] = shape[axis]
            kept = [shape[axis] for axis in order]
            return Term(name if kept == extents else nodes.add("Reshape", [name, self._shape(extents)]), tuple(extents))
        terms = [self._term(index, scope) for index in expr.indices]
        rank = max(max(len(term.dims) for term in terms), 1)
        terms = [self._lifted(term, rank) for term in terms]
        dims = _broadcast([term.dims for term in terms], rank)
        columns = []
        for term, extent in zip(terms, shape, strict=True):
            held = nodes.add("Max", [nodes.add("Min", [term.name, nodes.constant(np.asarray(extent - 1))]), nodes.constant(np.asarray(0))])
            columns.append(nodes.add("Expand", [nodes.add("Unsqueeze", [held, self._shape([rank])]), self._shape((*dims, 1))]))
        return Term(nodes.add("GatherND", [expr.tensor, nodes.add("Concat", columns, axis=rank)]), dims)

    # ----------------------------------------------------------------------------------------------------- reductions

    def _reduce(self, expr: Reduce, scope: list[tuple[str, int, int]]) -> Term:
        name = expr.combiner.name
        if name not in _REDUCTIONS and name not in ("argmax", "argmin"):
            raise unsupported(f"the reduction {name}", expr)
        inner, guards = list(scope), []
        for axis in expr.axes:
            start, stop = (_bound(e, inner, least) for e, least in ((axis.start, True), (axis.stop, False)))
            inner.append((axis.index, start, max(start, stop)))
            guards += _guards(axis, start, stop)
        if expr.where is not None:
            guards.append(expr.where)
        outer, rank = len(scope), len(inner)
        value = self._lifted(self._term(expr.values[0], inner), rank)
        kind = expr.values[0].dtype
        for guard in guards:
            test = self._lifted(self._term(guard, inner), rank)
            other = self._nodes.constant(np.asarray(_identity(name, kind), kind.numpy))
            value = Term(self._nodes.add("Where", [test.name, value.name, other]), _broadcast([test.dims, value.dims], rank))
        full = (*value.dims[:outer], *(stop - start for _, start, stop in inner[outer:]))
        if full != value.dims:
            value = Term(self._nodes.add("Expand", [value.name, self._shape(full)]), full)
        dims = full[:outer]
        if name in ("argmax", "argmin"):
            flat = self._nodes.add("Reshape", [value.name, self._shape((*dims, int(np.prod(full[outer:]))))])
            return Term(self._nodes.add("ArgMax" if name == "argmax" else "ArgMin", [flat], axis=outer, keepdims=0), dims)
        axes = self._shape(range(outer, rank))
        if name in ("all", "any"):
            number = self._nodes.add("Cast", [value.name], to=TensorProto.INT32)
            reduced = self._nodes.add(_REDUCTIONS[name], [number, axes], keepdims=0)
            return Term(self._nodes.add("Cast", [reduced], to=TensorProto.BOOL), dims)
        return Term(self._nodes.add(_REDUCTIONS[name], [value.name, axes], keepdims=0), dims)

    def _shape(self, shape: Any) -> str:
        return self._nodes.constant(np.asarray(list(shape), np.int64))

    def _lifted(self, term: Term, rank: int) -> Term:
        """The term with dimensions of 1 behind its own, up to `rank`."""
        if len(term.dims) == rank:
            return term
        dims = (*term.dims, *[1] * (rank - len(term.dims)))
        return Term(self._nodes.add("Reshape", [term.name, self._shape(dims)]), dims)


def _broadcast(shapes: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    return tuple(max((shape[k] for shape in shapes), key=lambda n: (n != 1, n)) for k in range(rank)) if shapes else ()


def _identity(name: str, kind: DType) -> Any:
    values = {"sum": 0, "prod": 1, "all": True, "any": False, "max": kind.least, "argmax": kind.least}
    return values.get(name, kind.greatest)


def _guards(axis: Axis, start: int, stop: int) -> list[Expr]:
    """What an axis with bounds that depend on others asks of the points between its outermost bounds."""
    index = Index(axis.index)
    found: list[Expr] = []
    if not isinstance(axis.start, Const):
        found.append(apply("le", axis.start, index))
    if not isinstance(axis.stop, Const):
        found.append(apply("lt", index, axis.stop))
    return found


def _bound(expr: Expr, scope: list[tuple[str, int, int]], least: bool) -> int:
    """The least or greatest value of a bound over all indices in scope."""
    if isinstance(expr, Const):
        return int(expr.value)
    if tensors_read(expr):
        raise unsupported("a reduction whose range depends on data", expr)
    names = list(dict.fromkeys(node.name for node in walk(expr) if isinstance(node, Index)))
    ranges = {index: range(start, stop) for index, start, stop in scope}
    values = [_evaluated(expr, dict(zip(names, point, strict=True))) for point in itertools.product(*(ranges[n] for n in names))]
    return min(values, default=0) if least else max(values, default=0)


def _evaluated(expr: Expr, point: dict[str, int]) -> int:
    match expr:
        case Const():
            return int(expr.value)
        case Index(name=name):
            return point[name]
        case Apply():
            return int(expr.op.evaluate(*(np.int64(_evaluated(arg, point)) for arg in expr.args)))
        case Cast(dtype=dtype) if dtype is int64:
            return _evaluated(expr.arg, point)
    raise unsupported("a range that is no arithmetic on indices", expr)
