"""The places at which a buffer is touched, and nests with other expressions, or nothing, at some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside
from tensorexpr.codegen.rewrites.paths import Path, put, statement, walk_block, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.hints import suggestion
from tensorexpr.ir import Access, Expr
from tensorexpr.records import record, replace
from tensorexpr.traversal import negate, tensors_read, walk


@record(eq=False)
class Touched:
    """A buffer as it is declared once: `home` is the path of its `Alloc`, empty for one of the head; the paths of the statements that store
    to it, and of those that read it themselves, in order."""

    buffer: str
    home: Path
    stores: tuple[Path, ...]
    reads: tuple[Path, ...]


def touched(nest: LoopNest, buffer: str) -> tuple[Touched, ...]:
    """Where a buffer is touched: for each of its declarations. Raises `ScheduleError` where nothing of that name is computed."""
    homes: list[Path] = []
    stores: list[Path] = []
    reads: list[Path] = []
    written: dict[str, None] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, Alloc) and s.buffer.name == buffer:
            homes.append(path)
        if isinstance(s, Store):
            written.setdefault(s.buffer)
            if s.buffer == buffer:
                stores.append(path)
        if is_read_by(s, buffer):
            reads.append(path)
    if not stores:
        raise refuse(f"expected a buffer that {nest.name} computes, got {buffer!r}", hint=suggestion(buffer, written))

    def under(paths: Iterable[Path], home: Path) -> tuple[Path, ...]:
        return tuple(path for path in paths if path[: len(home)] == home)

    return tuple(Touched(buffer, home, under(stores, home), under(reads, home)) for home in homes or [()])


def declared(nest: LoopNest, one: Touched) -> Buffer:
    """The declaration of a buffer that is touched."""
    if not one.home:
        return next(b for b in (*nest.parameters, *nest.workspace) if b.name == one.buffer)
    s = statement(nest, one.home)
    assert isinstance(s, Alloc)
    return s.buffer


def undeclared(nest: LoopNest, one: Touched) -> LoopNest:
    """The nest without a declaration of a local buffer; one of the head stays until nothing touches it (`pruned`)."""
    if not one.home:
        return nest
    s = statement(nest, one.home)
    assert isinstance(s, Alloc)
    return put(nest, one.home, s.body)


def rest_of(nest: LoopNest, path: Path, copies: Sequence[Path], depth: int = 1) -> Path | None:
    """The outermost loop around a place, below the first steps of its path and not around some loops, where that is a copy of one inside of
    these: what is left beside whole blocks; the outermost statement where there is no loop. None where it is another loop."""
    inner = {s.index for at in copies for _, s in walk_block(inside(statement(nest, at))) if isinstance(s, For)}
    outermost: Path | None = None
    for end in range(max(depth + 1, 2), len(path) + 1):
        if any(at[:end] == path[:end] for at in copies):
            continue
        outermost = outermost or path[:end]
        s = statement(nest, path[:end])
        if isinstance(s, For):
            return path[:end] if s.index in inner else None
    return outermost


def is_read_by(s: Stmt, buffer: str) -> bool:
    """Whether an expression of a statement itself reads a buffer."""
    return any(buffer in tensors_read(e) for e in expressions_of(s))


def elements_of(s: Stmt, buffer: str) -> tuple[Access, ...]:
    """The elements of a buffer that a statement itself reads, each once."""
    return tuple(dict.fromkeys(n for e in expressions_of(s) for n in walk(e) if isinstance(n, Access) and n.tensor == buffer))


def by_axes(buffer: Buffer, access: Access) -> Access:
    """Gives an element back. Raises `ScheduleError` where it is said by its position alone, in several axes."""
    if len(access.indices) != len(buffer.shape):
        raise refuse(f"expected elements of {buffer.name} by an index for each axis, got one by its position")
    return access


def shared(first: Path, second: Path) -> int:
    """How many steps two paths begin with alike."""
    count = 0
    for a, b in zip(first, second):
        if a != b:
            break
        count += 1
    return count


def are_exclusive(nest: LoopNest, first: Path, second: Path) -> bool:
    """Whether two places are in the two branches of one condition."""
    depth = shared(first, second)
    if depth < 2 or depth in (len(first), len(second)):
        return False
    s = statement(nest, first[:depth])
    return isinstance(s, If) and (first[depth] < len(s.then)) != (second[depth] < len(s.then))


def conditions_around(nest: LoopNest, path: Path, below: int = 0) -> tuple[Expr, ...]:
    """The conditions that hold at a path, of the branches that stand at steps behind the first `below`, outermost first."""
    found = []
    for end in range(max(below, 2), len(path)):
        s = statement(nest, path[:end])
        if isinstance(s, If):
            found.append(s.condition if path[end] < len(s.then) else negate(s.condition))
    return tuple(found)


def loops_around(nest: LoopNest, path: Path, below: int = 0) -> tuple[For, ...]:
    """The loops around a path that stand at steps behind the first `below`, outermost first."""
    found = (statement(nest, path[:end]) for end in range(max(below, 2), len(path)))
    return tuple(s for s in found if isinstance(s, For))


def changed(nest: LoopNest, paths: Iterable[Path], function: Callable[[Path, Stmt], Block]) -> LoopNest:
    """The nest with the statements at some paths replaced, those inside of others before these; all paths as they are now."""
    for path in sorted(set(paths), reverse=True):
        nest = put(nest, path, function(path, statement(nest, path)))
    return nest


def pruned(nest: LoopNest, before: LoopNest) -> LoopNest:
    """The nest without loops, branches, allocations and kernels in which nothing is left to do, and without workspace that something
    touched before and nothing does now (what nothing touched keeps a name from being taken: `part_of` of the search)."""
    kernels = tuple(replace(kernel, body=pruned_block(kernel.body)) for kernel in nest.kernels)
    nest = replace(nest, kernels=tuple(kernel for kernel in kernels if kernel.body))
    names = _named_outside(nest)
    gone = ({b.name for b in nest.workspace} & _named_outside(before)) - names
    return replace(
        nest,
        workspace=tuple(b for b in nest.workspace if b.name not in gone),
        ahead=tuple(pair for pair in nest.ahead if pair[0] not in gone),
        atomics=tuple(name for name in nest.atomics if name not in gone),
    )


def _named_outside(nest: LoopNest) -> set[str]:
    """The buffers of the head that statements touch."""
    found: set[str] = set()

    def block(statements: Block, local: frozenset[str]) -> None:
        for s in statements:
            found.update({name for e in expressions_of(s) for name in tensors_read(e)} - local)
            if isinstance(s, Store):
                found.update({s.buffer} - local)
            block(inside(s), local | {s.buffer.name} if isinstance(s, Alloc) else local)

    for kernel in nest.kernels:
        block(kernel.body, frozenset())
    return found


def pruned_block(block: Block) -> Block:
    """A block without statements in which nothing is left to do."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case For() | Alloc():
                body = pruned_block(s.body)
                if body:
                    found.append(replace(s, body=body))
            case If():
                then, otherwise = pruned_block(s.then), pruned_block(s.otherwise)
                if then:
                    found.append(replace(s, then=then, otherwise=otherwise))
                elif otherwise:
                    found.append(If(negate(s.condition), otherwise))
            case _:
                found.append(s)
    return tuple(found)


def apart(nest: LoopNest) -> LoopNest:
    """Gives a nest back. Raises `ScheduleError` where a loop, or a local buffer, is inside of a copy of itself."""

    def block(statements: Block, names: frozenset[str]) -> None:
        for s in statements:
            name = s.index if isinstance(s, For) else s.buffer.name if isinstance(s, Alloc) else None
            if name in names:
                raise refuse(
                    f"expected copies of {name} beside each other, got one inside of another", s, hint="rewrite before it is copied"
                )
            block(inside(s), names if name is None else names | {name})

    for kernel in nest.kernels:
        block(kernel.body, frozenset())
    return nest
