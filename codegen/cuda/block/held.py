"""Rows that a block goes through several times: what a thread has of one is read once and held in registers.

    for o, part, lane: top[lane] = maximum(top[lane], x[i, o, part, lane])
    ...
    for o, part, lane: y[i, o, part, lane] = exp(x[i, o, part, lane] - top)
    -->
    x_row: local(f32[8, 4, 256])
    for o, part, lane: { x_row[o, part, lane] = x[i, o, part, lane]; top[lane] = maximum(top[lane], x[i, o, part, lane]) }
    ...
    for o, part, lane: y[i, o, part, lane] = exp(x_row[o, part, lane] - top)

Loops that read the same elements in the same threads are found by what they ask for, their own indices by their places, and by the
condition that they are under as a whole, as at the end of a row. Nothing that the kernel writes is held; the first of the loops reads in
any case, and all of them are unrolled. In a loop over rows each is held in its turn. A thread holds `MOST` registers of rows, what is read
most often before others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from math import prod

from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import behind_declarations, map_expressions, written
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Apply, Const, Expr, Index, const, integer
from tensorexpr.records import record, replace
from tensorexpr.traversal import bottom_up, children, free_names, fresh_name, substitute, tensors_read

MOST = 64
"""Registers of a thread for rows."""
LEAST_LANES, MOST_LANES = 32, 1024
"""Lanes that a loop has which the threads of a block run, one each."""


@record
class Row:
    """What several loops read: the tensor, its indices and the condition of the loops over the places of these, and how long they are."""

    tensor: str
    indices: tuple[Expr, ...]
    condition: Expr | None
    extents: tuple[int, ...]


def with_rows(block: Block, buffers: Mapping[str, Buffer], taken: set[str]) -> Block:
    """The statements of a block of threads with rows held."""
    return _with_rows(block, buffers, taken, written(block))


def _with_rows(block: Block, buffers: Mapping[str, Buffer], taken: set[str], written: set[str]) -> Block:
    """The same of statements in loops of it, where the kernel writes some buffers: one row after the other is held."""
    block = _in_loops(block, buffers, taken, written)
    nests = [chain for s in behind_declarations(block) if (chain := _chain(s)) is not None]
    found: dict[Row, list[int]] = {}
    dtypes: dict[Row, DType] = {}
    for number, chain in enumerate(nests):
        for access, certain in _accesses(_conditional(chain[-1].body)[1], True):
            row = _row(access, chain)
            if row is None or access.tensor in written or buffers[access.tensor].memory == "local":
                continue
            dtypes[row] = access.dtype
            if certain or row in found:
                found.setdefault(row, []).append(number)
    held: dict[Row, Buffer] = {}
    room = MOST
    for row, places in sorted(found.items(), key=lambda item: -len(set(item[1]))):
        registers = prod(row.extents[:-1]) * max(4, dtypes[row].itemsize) // 4
        if len(set(places)) > 1 and registers <= room and dtypes[row].itemsize >= 2:
            room -= registers
            held[row] = Buffer(fresh_name(f"{row.tensor}_row", taken), dtypes[row], tuple(map(const, row.extents)), "local")
    if not held:
        return block
    first = {row: found[row][0] for row in held}
    made = _with_held(block, count(), held, first)
    for buffer in held.values():
        made = (Alloc(buffer, made),)
    return made


def _in_loops(block: Block, buffers: Mapping[str, Buffer], taken: set[str], written: set[str]) -> Block:
    """The statements with rows held in the loops that each thread runs by itself."""

    def inside(s: Stmt) -> Stmt:
        if isinstance(s, Alloc):
            body = _in_loops(s.body, buffers, taken, written)
        elif isinstance(s, For) and s.kind == "serial" and _chain(s) is None:
            body = _with_rows(s.body, buffers, taken, written)
        else:
            return s
        return s if body is s.body else replace(s, body=body)

    made = tuple(map(inside, block))
    return block if all(a is b for a, b in zip(made, block, strict=True)) else made


def _chain(s: Stmt) -> tuple[For, ...] | None:
    """Loops that stand directly inside each other, the innermost over lanes, all of constant length from 0, around stores."""
    chain: list[For] = []
    while isinstance(s, For):
        if not (isinstance(s.start, Const) and s.start.value == 0 and isinstance(s.stop, Const)):
            return None
        chain.append(s)
        if s.kind == "vectorize":
            return tuple(chain) if LEAST_LANES <= integer(s.stop) <= MOST_LANES and _is_plain(s.body) else None
        if s.kind not in ("serial", "unroll") or len(s.body) != 1:
            return None
        s = s.body[0]
    return None


def _is_plain(block: Block) -> bool:
    return all(isinstance(s, Store) or (isinstance(s, If) and _is_plain((*s.then, *s.otherwise))) for s in block)


def _conditional(block: Block) -> tuple[Expr | None, Block]:
    """The condition that statements are under as a whole, if that is of indices alone, and the statements."""
    if len(block) == 1 and isinstance(s := block[0], If) and not s.otherwise and not tensors_read(s.condition):
        return s.condition, s.then
    return None, block


def _accesses(block: Block, certain: bool) -> Iterator[tuple[Access, bool]]:
    """The accesses of statements, and whether each is made in any case."""
    for s in block:
        match s:
            case Store():
                for e in (s.value, *s.indices):
                    yield from _reads(e, certain)
            case If():
                yield from _reads(s.condition, certain)
                yield from _accesses((*s.then, *s.otherwise), False)


def _reads(e: Expr, certain: bool) -> Iterator[tuple[Access, bool]]:
    if isinstance(e, Access):
        yield e, certain
    for place, child in enumerate(children(e)):
        yield from _reads(child, certain and not (isinstance(e, Apply) and e.op.name == "where" and place))


def _row(access: Access, chain: tuple[For, ...]) -> Row | None:
    """What an access reads in its loops; None where it does not depend on all of them, or on what is read."""
    own = {loop.index for loop in chain}
    if not own <= {n for i in access.indices for n in free_names(i)} or any(map(tensors_read, access.indices)):
        return None
    places: dict[str, Expr] = {loop.index: Index(f" {number}") for number, loop in enumerate(chain)}
    condition, _ = _conditional(chain[-1].body)
    asked = None if condition is None else substitute(condition, places)
    return Row(access.tensor, tuple(substitute(i, places) for i in access.indices), asked, tuple(integer(loop.stop) for loop in chain))


def _with_held(block: Block, numbers: Iterator[int], held: Mapping[Row, Buffer], first: Mapping[Row, int]) -> Block:
    """The statements with rows held; chains of loops have their numbers as they stand, also where one statement stands twice."""
    made: list[Stmt] = []
    for s in block:
        if isinstance(s, Alloc):
            made.append(replace(s, body=_with_held(s.body, numbers, held, first)))
        elif (chain := _chain(s)) is not None:
            made.append(_nest(chain, next(numbers), held, first))
        else:
            made.append(s)
    return tuple(made)


def _nest(chain: tuple[For, ...], number: int, held: Mapping[Row, Buffer], first: Mapping[Row, int]) -> For:
    """The loops with what is held in place of what was read, or with what is read held."""
    at = tuple(Index(loop.index) for loop in chain)
    loads: dict[Row, Store] = {}
    touched = False

    def visit(n: Expr) -> Expr:
        nonlocal touched
        row = _row(n, chain) if isinstance(n, Access) else None
        if row is None or row not in held or not isinstance(n, Access):
            return n
        if number < first[row]:
            return n
        if number == first[row]:
            loads[row], touched = Store(held[row].name, at, n), True
            return n
        touched = True
        return Access(held[row].name, at, n.dtype)

    condition, statements = _conditional(chain[-1].body)
    body = map_expressions(statements, lambda e: bottom_up(e, visit))
    body = (*loads.values(), *body)
    inner = replace(chain[-1], body=body if condition is None else (If(condition, body),))
    for loop in reversed(chain[:-1]):
        inner = replace(loop, kind="unroll" if touched else loop.kind, body=(inner,))
    return inner
