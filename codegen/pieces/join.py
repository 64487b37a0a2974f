"""One nest from those of the pieces of a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest_proofs import Verdict
from tensorexpr.codegen.pieces.cut import Piece
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Access, Expr, Program
from tensorexpr.language.core.renaming import Renaming, index_names
from tensorexpr.progress import step
from tensorexpr.records import replace
from tensorexpr.traversal import expressions, fresh_name, walk

MOST_KEPT = 256

Made = tuple[LoopNest, Verdict]

_nests: Memo[Made] = Memo(MOST_KEPT)


def nest_of_pieces(program: Program, pieces: Sequence[Piece], target: Target, make: Callable[[Program, Target], Made]) -> Made:
    """The nest of a program from those that `make` gives for its pieces, and what is proved of it."""
    taken = {*program.types, *program.sizes, *(i for d in program.definitions for i in index_names(d))}
    parts: list[LoopNest] = []
    verdicts: list[Verdict] = []
    for number, piece in enumerate(pieces, 1):
        step(f"piece {number} of {len(pieces)}")
        made = _nests.get((piece.program, _lines(piece.program), target), lambda given=piece.program: make(given, target))  # type: ignore[misc]
        parts.append(_in_place(made[0], piece, program, taken, sum(len(part.checks) for part in parts)))
        verdicts.append(made[1])
    return _joined(program, parts), _all(verdicts)


def _lines(program: Program) -> tuple[object, ...]:
    """The lines that a check of a piece could name."""
    found = []
    for definition in program.definitions:
        accesses = [node for e in expressions(definition) for node in walk(e) if isinstance(node, Access)]
        if any(isinstance(node, Access) for access in accesses for index in access.indices for node in walk(index)):
            found += [definition.location, *(access.location for access in accesses)]
    return tuple(found)


def _in_place(nest: LoopNest, piece: Piece, whole: Program, taken: set[str], checks: int) -> LoopNest:
    """The nest of a piece under the names of the whole, its checks behind so many others. What it has for itself, and loops that are
    called as a tensor, get names that are not taken."""
    formal = re.compile(rf"\b{piece.letter}(\d+)(?=_|\b)")

    def actual(text: str) -> str:
        return formal.sub(lambda m: piece.names[int(m[1])], text)

    shared = {b.name for b in nest.parameters} | {c.name for c in nest.constants}
    names = {name: actual(name) for name in shared}
    for name in (*(b.name for b in nest.workspace), *_locals(nest)):
        if name not in names:
            names[name] = actual(name) if formal.fullmatch(name) else fresh_name(actual(name), taken)
    tensors = whole.types
    indices = {name: fresh_name(name, taken) for name in dict.fromkeys(_loops(nest)) if name in tensors}
    rename = _Names(names, indices, checks)
    return replace(
        nest,
        parameters=tuple(map(rename.buffer, nest.parameters)),
        constants=tuple(replace(c, name=names[c.name]) for c in nest.constants),
        workspace=tuple(map(rename.buffer, nest.workspace)),
        kernels=tuple(replace(k, name=actual(k.name), body=rename.block(k.body)).made_like(k, names) for k in nest.kernels),
        writes=tuple(names[n] for n in nest.writes),
        checks=tuple(replace(c, access=actual(c.access), tensor=actual(c.tensor), definition=actual(c.definition)) for c in nest.checks),
        streams=tuple(names[n] for n in nest.streams),
        ahead=tuple((names[n], count) for n, count in nest.ahead),
        atomics=tuple(names[n] for n in nest.atomics),
    )


def _statements(block: Block) -> Iterator[Stmt]:
    for s in block:
        yield s
        match s:
            case For() | Alloc():
                yield from _statements(s.body)
            case If():
                yield from _statements((*s.then, *s.otherwise))


def _locals(nest: LoopNest) -> Iterator[str]:
    return (s.buffer.name for k in nest.kernels for s in _statements(k.body) if isinstance(s, Alloc))


def _loops(nest: LoopNest) -> Iterator[str]:
    return (s.index for k in nest.kernels for s in _statements(k.body) if isinstance(s, For))


class _Names:
    """Other names for buffers and loops, and other numbers for checks."""

    def __init__(self, buffers: dict[str, str], indices: dict[str, str], checks: int) -> None:
        self.buffers, self.indices, self.checks = buffers, indices, checks
        self.expr = Renaming(buffers, indices)

    def buffer(self, buffer: Buffer) -> Buffer:
        return replace(buffer, name=self.buffers[buffer.name])

    def block(self, block: Block) -> Block:
        return tuple(map(self.statement, block))

    def statement(self, s: Stmt) -> Stmt:
        match s:
            case For():
                index, call = self.indices.get(s.index, s.index), s.call
                if call is not None:
                    operands = tuple(self.access(operand) for operand in call.operands)
                    call = replace(call, operands=operands)
                return For(index, self.expr(s.start), self.expr(s.stop), self.block(s.body), s.kind, call)
            case If():
                return replace(s, condition=self.expr(s.condition), then=self.block(s.then), otherwise=self.block(s.otherwise))
            case Alloc():
                return Alloc(self.buffer(s.buffer), self.block(s.body))
            case Store():
                return Store(self.buffers[s.buffer], tuple(map(self.expr, s.indices)), self.expr(s.value))
            case Check():
                return Check(self.expr(s.index), self.expr(s.extent), s.check + self.checks)
        raise AssertionError(type(s))

    def access(self, access: Access) -> Access:
        renamed: Expr = self.expr(access)
        assert isinstance(renamed, Access)
        return renamed


def _joined(program: Program, parts: Sequence[LoopNest]) -> LoopNest:
    """The kernels of all parts in order, in one nest."""
    written = {b.name: b for part in parts for b in part.parameters if b.name in part.writes}
    given = {b.name for part in parts for b in part.parameters if b.name not in part.writes}
    results = set(program.outputs)
    parameters = [Buffer(i.name, i.type.dtype, i.type.shape, "parameter") for i in program.inputs]
    parameters += [written[name] for name in program.outputs]
    workspace = [replace(b, memory="workspace") for b in written.values() if b.name not in results]
    workspace += [b for part in parts for b in part.workspace]
    constants = {c.name for part in parts for c in part.constants}
    streams, atomics = {n for part in parts for n in part.streams}, {n for part in parts for n in part.atomics}
    ahead = {name: count for part in parts for name, count in part.ahead}
    declared = [b.name for b in (*parameters, *workspace)]
    return replace(
        parts[0],
        parameters=tuple(parameters),
        constants=tuple(c for c in program.constants if c.name in constants),
        workspace=tuple(workspace),
        kernels=tuple(kernel for part in parts for kernel in part.kernels),
        writes=program.outputs,
        checks=tuple(check for part in parts for check in part.checks),
        # What is written past the caches is not read again.
        streams=tuple(n for n in program.outputs if n in streams and n not in given),
        ahead=tuple((n, ahead[n]) for n in declared if n in ahead),
        atomics=tuple(n for n in declared if n in atomics),
    )


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    decided: Counter[str] = Counter()
    for verdict in verdicts:
        decided.update(dict(verdict.decided))
    return Verdict(tuple(f for v in verdicts for f in v.findings), tuple(sorted(decided.items())))
