"""The statements that compute one buffer: its stores, and those of the local buffers that these read.

In a plain nest that is a kernel; after rewrites it may stand in the loops of others, in several copies.
"""

from __future__ import annotations

from tensorexpr.codegen.nest import Alloc, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside
from tensorexpr.codegen.rewrites.paths import Path, statement, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.hints import suggestion
from tensorexpr.ir import Access
from tensorexpr.records import record
from tensorexpr.traversal import walk


@record
class Region:
    """What computes `buffer`: the paths of all stores to it and to the local buffers (`locals`) from which its values and the conditions
    around it come, in order; `roots` are the paths of the outermost statements that hold nothing else, in order."""

    buffer: str
    stores: tuple[Path, ...]
    locals: tuple[str, ...]
    roots: tuple[Path, ...]

    @property
    def root(self) -> Path:
        """The one root. Raises `ScheduleError` where what computes the buffer stands in several places."""
        if len(self.roots) != 1:
            raise refuse(f"expected {self.buffer} to be computed in one place, got {len(self.roots)}", hint="rewrite before loops are cut")
        return self.roots[0]


def region(nest: LoopNest, buffer: str) -> Region:
    """The statements that compute a buffer. Raises `ScheduleError` where nothing stores to it."""
    every = list(walk_nest(nest))
    written = dict.fromkeys(s.buffer for _, s in every if isinstance(s, Store))
    if buffer not in written:
        raise refuse(f"expected a buffer that {nest.name} computes, got {buffer!r}", hint=suggestion(buffer, written))
    private = {s.buffer.name for _, s in every if isinstance(s, Alloc)}
    needed = {buffer: None}
    found: dict[Path, None] = {}
    todo = [buffer]
    while todo:
        name = todo.pop()
        for path, s in every:
            if not isinstance(s, Store) or s.buffer != name:
                continue
            found[path] = None
            for read in (*_read_by(s), *_read_around(nest, path)):
                if read in private and read not in needed:
                    needed[read] = None
                    todo.append(read)
    stores = tuple(sorted(found))
    return Region(buffer, stores, tuple(n for n in needed if n != buffer), _roots(nest, set(stores)))


def _read_by(s: Stmt) -> list[str]:
    return [n.tensor for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)]


def _read_around(nest: LoopNest, path: Path) -> list[str]:
    """The buffers that conditions and bounds of loops around a statement read."""
    found: list[str] = []
    s: Stmt | None = None
    for depth, at in enumerate(path[1:], 1):
        s = inside(nest.kernels[path[0]] if s is None else s)[at]
        found += _read_by(s) if depth < len(path) - 1 else []
    return found


def _roots(nest: LoopNest, stores: set[Path]) -> tuple[Path, ...]:
    """The outermost statements all of whose stores are among some."""

    def only(path: Path) -> bool:
        below = [(path, statement(nest, path))]
        while below:
            here, s = below.pop()
            if isinstance(s, Store) and here not in stores:
                return False
            below += [((*here, at), inner) for at, inner in enumerate(inside(s))]
        return True

    found: dict[Path, None] = {}
    for path in sorted(stores):
        for end in range(2, len(path) + 1):
            if only(path[:end]):
                found[path[:end]] = None
                break
    return tuple(found)


def loops_of(nest: LoopNest, buffer: str) -> tuple[str, ...]:
    """The names of the loops around stores to a buffer and in its region, outermost first, each once."""
    found: dict[str, None] = {}
    for path in region(nest, buffer).stores:
        for end in range(2, len(path)):
            s = statement(nest, path[:end])
            if isinstance(s, For):
                found.setdefault(s.index)
    return tuple(found)
