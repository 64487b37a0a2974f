"""Scalar expressions as C++: what is used more than once computed once, elements read, branches taken.

A subexpression that occurs twice in a statement is named before it (`const float t0 = ...;`), in the branch of a `where` that
asks for it: nothing of the branch not taken is evaluated, since it may read outside of a tensor. Such a branch becomes an
`if`; a plain one a `?:`. Additions and multiplications of floats may contract to fused multiply-adds, as on the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from tensorexpr import dtypes, ir
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.operations import apply, cast, literal, logical
from tensorexpr.codegen.cuda.thread.values import Value, c_type
from tensorexpr.codegen.nest import Buffer
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size, const, integer
from tensorexpr.records import record
from tensorexpr.regions import affine_of, expression_of
from tensorexpr.traversal import bottom_up, substitute, walk

T = TypeVar("T")
_WORTH_A_NAME = 12  # nodes of an index expression from which it is named where it occurs twice


def wanted_names(expressions: tuple[Expr, ...]) -> frozenset[Expr]:
    """The subexpressions of one statement that are worth a name: those that occur more than once and are no mere index."""
    counts: Counter[Expr] = Counter()
    sizes: dict[Expr, int] = {}
    order: list[Expr] = []
    todo: list[tuple[Expr, bool]] = [(e, False) for e in reversed(expressions)]
    for e in expressions:
        counts[e] += 1
    while todo:
        node, done = todo.pop()
        if done:
            sizes[node] = 1 + sum(sizes.get(c, 1) for c in _children(node))
            order.append(node)
        elif node not in sizes:
            sizes[node] = 0
            todo.append((node, True))
            for child in reversed(_children(node)):
                counts[child] += 1
                todo.append((child, False))
    found = set()
    for node in order:
        if counts[node] < 2 or isinstance(node, Const | Index | Size):
            continue
        if node.dtype is dtypes.int64 or node.dtype.is_bool:
            if sizes[node] >= _WORTH_A_NAME:
                found.add(node)
        else:
            found.add(node)
    return frozenset(found)


def _children(node: Expr) -> tuple[Expr, ...]:
    match node:
        case Apply():
            return node.args
        case Cast():
            return (node.arg,)
        case Access():
            return node.indices
    return ()


@record
class Surroundings:
    """What expressions of a kernel refer to: buffers and, by name, loop indices and sizes in scope; `word` gives the identifier
    of a buffer, `fresh` a new one. Of `own` buffers every thread has the element of its lane alone: they have no last axis. Of those with
    `slots` each warp has its own, which the text there is the index of. Rows of `swizzled` buffers of 16 bits are cut into pieces of 128
    bytes, whose chunks of sixteen lie in another order in each of eight rows (see `emitter.groups`)."""

    buffers: dict[str, Buffer]
    indices: dict[str, Value]
    word: Callable[[str], str]
    fresh: Callable[[], str]
    own: frozenset[str] = frozenset()
    slots: Mapping[str, str] = MappingProxyType({})
    swizzled: frozenset[str] = frozenset()


class Emitter:
    """The expressions of one statement: `lines` go before it, `names` are the subexpressions to be named there."""

    def __init__(self, around: Surroundings, names: frozenset[Expr], lines: list[str]) -> None:
        self.around = around
        self.names = names
        self.lines = lines
        self.known: dict[Expr, Value] = {}

    def value(self, e: Expr) -> Value:
        """The value of an expression; shared parts of it are computed in the lines before."""
        found = self.known.get(e)
        if found is not None:
            return found
        made = self._made(e)
        if e in self.names:
            name = self.around.fresh()
            self.lines.append(f"const {v.type_of(made)} {name} = {made.text};")
            made = Value(name, made.dtype, v.ATOM, made.narrow, made.low, made.high, made.wild)
            self.known[e] = made
        return made

    def _made(self, e: Expr) -> Value:
        match e:
            case Const():
                return literal(e)
            case Index() | Size():
                return self.around.indices[e.name]
            case Access():
                return self.element(e)
            case Cast():
                return cast(self.value(e.arg), e.dtype)
            case Apply() if e.op.name == "where":
                return self.choice(e)
            case Apply():
                return apply(e.op.name, e.args[0].dtype, [self.value(a) for a in e.args])
        raise InternalError(f"cuda: expected an expression of a loop nest, got {type(e).__name__}", term=e)

    def choice(self, e: Apply) -> Value:
        """`where`: a `?:`, or an `if` around the lines that a branch needs."""
        condition = self.value(e.args[0])
        branches = []
        for arg in e.args[1:]:
            inner = Emitter(self.around, self.names, [])
            inner.known = dict(self.known)
            branches.append((inner.value(arg), inner.lines))
        (taken, before), (otherwise, after) = branches
        low = None if taken.low is None or otherwise.low is None else min(taken.low, otherwise.low)
        high = None if taken.high is None or otherwise.high is None else max(taken.high, otherwise.high)
        narrow = taken.narrow and otherwise.narrow
        if e.dtype is dtypes.int64 and not narrow:
            taken, otherwise = v.widened(taken), v.widened(otherwise)
        wild = taken.wild or otherwise.wild
        if not before and not after and otherwise.text == "false":
            return logical("and", e.dtype, [condition, taken])  # which does not ask for the second either
        if not before and not after:
            text = f"{condition.inside(v.OR)} ? {taken.inside(v.OR)} : {otherwise.inside(v.CHOICE)}"
            return Value(text, e.dtype, v.CHOICE, narrow, low, high, wild)
        name = self.around.fresh()
        self.lines += [
            f"{'int' if narrow else c_type(e.dtype)} {name};",
            f"if ({condition.text}) {{",
            *(f"  {line}" for line in before),
            f"  {name} = {taken.text};",
            "} else {",
            *(f"  {line}" for line in after),
            f"  {name} = {otherwise.text};",
            "}",
        ]
        return Value(name, e.dtype, v.ATOM, narrow, low, high, wild)

    def element(self, e: Access) -> Value:
        """An element as a value in registers."""
        text = self.place(e.tensor, e.indices)
        if e.dtype.is_float and e.dtype.bits == 16:
            return Value(f"te_f32({text})", e.dtype)
        if e.dtype is not dtypes.int64:
            return Value(text, e.dtype)
        buffer = self.around.buffers[e.tensor]
        if buffer.within is None:
            return Value(text, e.dtype, v.ATOM, wild=True)
        least, most = buffer.within[0], self.value(buffer.within[1]).high
        if is_narrow(buffer):
            return Value(text, e.dtype, v.ATOM, True, least, most)
        found = Value(text, e.dtype, v.ATOM, False, least, most)
        return found if most is None else v.narrowed(found, least, most)

    def place(self, name: str, indices: tuple[Expr, ...]) -> str:
        """An element as a place in memory."""
        buffer, word = self.around.buffers[name], self.around.word(name)
        if buffer.memory == "local":
            indices = indices[:-1] if name in self.around.own else indices
            if name in self.around.swizzled:
                *outer, row, column = without_units(indices, tuple(integer(n) for n in buffer.shape))
                piece, rest, turn = (
                    ir.apply(op, e, const(n)) for op, e, n in (("floordiv", column, 64), ("mod", column, 64), ("mod", row, 8))
                )
                below = "".join(f"[{self.value(i).text}]" for i in (*outer, piece, row))
                return f"{word}{below}[{self.value(rest).inside(v.BIT_XOR)} ^ {self.value(turn).inside(v.PRODUCT)} * 8]"
            return word + self.around.slots.get(name, "") + "".join(f"[{self.value(i).text}]" for i in indices)
        if len(indices) == 1 < len(buffer.shape):
            return f"{word}[{self.value(indices[0]).text}]"
        offset = self.flattened(indices, buffer.shape)
        if offset is not None:
            return f"{word}[{offset.text}]"
        offset = v.integer(0)
        for i, extent in zip(indices, buffer.shape, strict=True):
            length = self.value(extent)
            at = self.value(i)
            # The access is in bounds wherever it is evaluated.
            at = v.narrowed(at, 0, max(0, length.constant - 1)) if length.constant is not None else at
            offset = v.add(v.mul(offset, length), at)
        return f"{word}[{offset.text}]"

    def flattened(self, indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Value | None:
        """The position of an element whose indices are parts of one loop (its quotients and remainders), as one affine form: most of
        these cancel. None where there is no such form or no such part."""
        if not any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") for i in indices for n in walk(i)):
            return None
        read: dict[str, Expr] = {}

        def named(node: Expr) -> Expr:
            if not isinstance(node, Access) or node.dtype is not dtypes.int64:
                return node
            name = next((n for n, e in read.items() if e == node), f"#{len(read)}")
            read[name] = node
            return Index(name)

        # Quotient and remainder of what is read cancel, too.
        position = row_major(tuple(bottom_up(i, named) for i in indices), shape)
        form = None if position is None else affine_of(position)
        if form is None:
            return None
        found = expression_of(form)
        for name in reversed(read):  # what is read may be read at places that are read
            found = substitute(found, {name: read[name]})
        return self.value(found)


def without_units(items: Sequence[T], extents: Sequence[int]) -> list[T]:
    """What is said of each axis, without those of one element before the last."""
    return [item for item, n in zip(items[:-1], extents[:-1], strict=True) if n != 1] + [items[-1]]


def is_narrow(buffer: Buffer) -> bool:
    """Whether a buffer is a number of a thread that an `int` holds."""
    if buffer.within is None or buffer.memory != "local" or buffer.shape or buffer.dtype is not dtypes.int64:
        return False
    least, most = buffer.within
    return isinstance(most, Const) and v.fits(least, int(most.value))


def row_major(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr | None:
    """The row-major position as an expression, where all extents but the first, which is none of it, are constants."""
    if not indices:
        return const(0)
    position = indices[0]
    if len(indices) == 1:  # the position itself, of tensors of more axes
        return position
    for i, extent in zip(indices[1:], shape[1:], strict=True):
        if not isinstance(extent, Const):
            return None
        position = ir.apply("add", ir.apply("mul", position, extent), i)
    return position
