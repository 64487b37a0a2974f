"""One nest from those of the pieces of a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tensorexpr.building.progress import step
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.nest import Alloc, Buffer, For, LoopNest
from tensorexpr.codegen.nest.names import NestNames
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.codegen.nest_proofs import Verdict
from tensorexpr.codegen.pieces.cut import Piece
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Access, Program
from tensorexpr.language.core.renaming import index_names
from tensorexpr.records import replace
from tensorexpr.traversal import expressions, fresh_name, walk

MOST_KEPT = 256

Made = tuple[LoopNest, Verdict]

_nests: Memo[Made] = Memo(MOST_KEPT)


def nest_of_pieces(
    program: Program,
    pieces: Sequence[Piece],
    target: Target,
    make: Callable[[Program, Target], Made],
    ahead: Callable[[LoopNest], None] = lambda part: None,
) -> Made:
    """The nest of a program from those that `make` gives for its pieces, and what is proved of it. `ahead` is told of each part of it as
    soon as it is there, under its names in the whole."""
    read = {piece.names[number] for piece in pieces for number in range(len(piece.program.inputs))}
    taken = {*program.types, *program.sizes, *(i for d in program.definitions for i in index_names(d))}
    parts: list[LoopNest] = []
    verdicts: list[Verdict] = []
    checks = 0
    for number, piece in enumerate(pieces, 1):
        step(f"piece {number} of {len(pieces)}")
        made = _nests.get((piece.program, _lines(piece.program), target), lambda given=piece.program: make(given, target))  # type: ignore[misc]  # mypy has no type for a lambda with a default
        part = _in_place(made[0], piece, program, taken, checks)
        # What is written past the caches is not read again.
        part = replace(part, streams=tuple(n for n in part.streams if n in program.outputs and n not in read))
        ahead(part)
        checks += len(part.checks)
        parts.append(part)
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
    rename = NestNames(names, indices, checks)
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


def _locals(nest: LoopNest) -> Iterator[str]:
    return (s.buffer.name for k in nest.kernels for s in statements(k.body) if isinstance(s, Alloc))


def _loops(nest: LoopNest) -> Iterator[str]:
    return (s.index for k in nest.kernels for s in statements(k.body) if isinstance(s, For))


def _joined(program: Program, parts: Sequence[LoopNest]) -> LoopNest:
    """The kernels of all parts in order, in one nest."""
    written = {b.name: b for part in parts for b in part.parameters if b.name in part.writes}
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
        streams=tuple(n for n in program.outputs if n in streams),
        ahead=tuple((n, ahead[n]) for n in declared if n in ahead),
        atomics=tuple(n for n in declared if n in atomics),
    )


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    decided: Counter[str] = Counter()
    for verdict in verdicts:
        decided.update(dict(verdict.decided))
    return Verdict(tuple(f for v in verdicts for f in v.findings), tuple(sorted(decided.items())))
