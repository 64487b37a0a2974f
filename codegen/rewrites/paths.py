"""Where statements stand in a nest, and nests with other statements there.

A path is the number of a kernel and then the position of a statement among those of the one around it, from outside in; of a condition
the statements of both branches are counted through. Nests are values: `put` makes another one, and shares what is not on the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import inside, with_blocks
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.hints import suggestion
from tensorexpr.ir import Expr
from tensorexpr.records import record, replace
from tensorexpr.traversal import negate

Path = tuple[int, ...]
"""The number of a kernel, then positions."""


def with_inside(s: Stmt | Kernel, at: int, block: Block) -> Stmt | Kernel:
    """A statement or kernel with the statement at a position inside replaced by a block."""
    if isinstance(s, If):
        branch, here = ("then", at) if at < len(s.then) else ("otherwise", at - len(s.then))
        old = s.then if branch == "then" else s.otherwise
        return replace(s, **{branch: (*old[:here], *block, *old[here + 1 :])})
    assert isinstance(s, For | Alloc | Kernel)
    return replace(s, body=(*s.body[:at], *block, *s.body[at + 1 :]))


def statement(nest: LoopNest, path: Path) -> Stmt:
    """The statement at a path. Requires: there is one."""
    found: Stmt | Kernel = nest.kernels[path[0]]
    for at in path[1:]:
        found = inside(found)[at]
    assert isinstance(found, Stmt)
    return found


def put(nest: LoopNest, path: Path, block: Block) -> LoopNest:
    """The nest with the statement at a path replaced by a block, which may be empty."""
    around: list[Stmt | Kernel] = [nest.kernels[path[0]]]
    for at in path[1:-1]:
        around.append(inside(around[-1])[at])
    for s, at in zip(reversed(around), reversed(path[1:]), strict=True):
        made = with_inside(s, at, block)
        if isinstance(made, Kernel):
            return distinct(replace(nest, kernels=(*nest.kernels[: path[0]], made, *nest.kernels[path[0] + 1 :])))
        block = (made,)
    raise AssertionError(path)


def distinct(nest: LoopNest) -> LoopNest:
    """The nest in which no object is a statement twice: `dependence` knows statements by identity, and copies of a body share what did
    not change in them. The first keeps its identity."""
    seen: set[int] = set()

    def block(body: Block) -> Block:
        made = tuple(map(one, body))
        return body if all(new is old for new, old in zip(made, body, strict=True)) else made

    def one(s: Stmt) -> Stmt:
        again = id(s) in seen
        seen.add(id(s))
        made = with_blocks(s, block)
        return replace(s) if again and made is s else made

    kernels = tuple(replace(k, body=body) if (body := block(k.body)) is not k.body else k for k in nest.kernels)
    return nest if all(new is old for new, old in zip(kernels, nest.kernels, strict=True)) else replace(nest, kernels=kernels)


@record
class Around:
    """What is around a statement, outermost first: loops, conditions that hold (negated in an `otherwise`), local buffers."""

    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    locals: tuple[Buffer, ...] = ()

    def within(self, s: Stmt | Kernel, at: int) -> Around:
        """What is around the statement at a position in `s`, where `s` stands here."""
        match s:
            case For():
                return replace(self, loops=(*self.loops, s))
            case If():
                return replace(self, conditions=(*self.conditions, s.condition if at < len(s.then) else negate(s.condition)))
            case Alloc():
                return replace(self, locals=(*self.locals, s.buffer))
        return self


def around(nest: LoopNest, path: Path) -> Around:
    """The loops, conditions and local buffers around the statement at a path."""
    found = Around()
    s: Stmt | Kernel = nest.kernels[path[0]]
    for at in path[1:]:
        found = found.within(s, at)
        s = inside(s)[at]
    return found


def walk_nest(nest: LoopNest) -> Iterator[tuple[Path, Stmt]]:
    """Every statement with its path, in the order of the text, those around before those inside."""
    for number in range(len(nest.kernels)):
        yield from walk_kernel(nest, number)


def walk_kernel(nest: LoopNest, number: int) -> Iterator[tuple[Path, Stmt]]:
    """Every statement of one kernel with its path in the nest; none where rewrites found that it never runs and took it out."""
    kernels = nest.kernels[number : number + 1]
    return walk_block(kernels[0].body, (number,)) if kernels else iter(())


def walk_block(block: Block, path: Path = ()) -> Iterator[tuple[Path, Stmt]]:
    """Every statement of a block with its path, which begins with that of what the block stands in."""
    pending = [((*path, at), s) for at, s in enumerate(block)][::-1]
    while pending:  # no generator inside of another: each statement would come through all of those around it
        here, s = pending.pop()
        yield here, s
        if not isinstance(s, Store):
            pending += [((*here, at), inner) for at, inner in enumerate(inside(s))][::-1]


def loop_paths(nest: LoopNest, name: str) -> tuple[Path, ...]:
    """The paths of all loops of a name, in order. Raises `ScheduleError` where there is none."""
    found = tuple(path for path, s in walk_nest(nest) if isinstance(s, For) and s.index == name)
    if not found:
        names = dict.fromkeys(s.index for _, s in walk_nest(nest) if isinstance(s, For))
        raise refuse(f"expected a loop of {nest.name}, got {name!r}", hint=suggestion(name, names, f"its loops are {', '.join(names)}"))
    return found


def loop_at(nest: LoopNest, path: Path) -> For:
    """The loop at a path. Requires: there is one."""
    found = statement(nest, path)
    assert isinstance(found, For)
    return found


def rewrite_loops(nest: LoopNest, name: str, function: Callable[[For, Path], Block | None]) -> LoopNest:
    """The nest with every loop of a name replaced by a block; one for which there is none stays. Raises `ScheduleError` where no loop has
    the name."""
    for path in reversed(loop_paths(nest, name)):  # what stands behind keeps its path
        block = function(loop_at(nest, path), path)
        nest = nest if block is None else put(nest, path, block)
    return nest
