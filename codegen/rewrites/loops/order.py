"""What `dependence` says of the order in which a loop's iterations run, as refusals with the two accesses and a point."""

from __future__ import annotations

from tensorexpr.codegen.dependence import Allowed, Dependences, dependences
from tensorexpr.codegen.nest import Alloc, Block, For, LoopNest
from tensorexpr.codegen.rewrites.expressions import buffers_written, elements_read
from tensorexpr.codegen.rewrites.paths import inside, loop_at, loop_paths
from tensorexpr.codegen.rewrites.refusals import refuse


def check_any_order(nest: LoopNest, loop: str, word: str, updates: bool = False) -> Dependences:
    """Refuses where iterations of some copy of a loop hang on each other; gives the dependences of the nest. With `updates` those that
    accumulate into one element by an operation whose order does not matter may change places."""
    deps = dependences(nest)
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        check_free(deps, s, word, updates)
    return deps


def check_free(deps: Dependences, s: For, word: str, updates: bool = False) -> None:
    """Refuses where iterations of one loop hang on each other."""
    allowed = deps.may_run_in_any_order(s, updates)
    if not allowed:
        raise hindered(f"expected iterations of {s.index} that may {word} in any order", s, allowed)


def hindered(message: str, s: For, allowed: Allowed, hint: str | None = None) -> Exception:
    """The error that says what stands in the way."""
    return refuse(f"{message}: {allowed.obstacle}", s, s.index, hint)


def check_repeatable(nest: LoopNest, loop: str) -> None:
    """Refuses where an iteration that runs twice would not write the same again: it reads what it has written."""
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        own = _allocated(s.body)
        read = {a.tensor for a in elements_read(s.body)}
        for name in sorted(buffers_written(s.body) - own):
            if name in read:
                raise refuse(f"split: expected iterations of {loop} that read nothing that they write, got {name}", s, loop, 'tail="peel"')


def _allocated(block: Block) -> set[str]:
    """The local buffers that a block declares."""
    found: set[str] = set()
    for s in block:
        found |= {s.buffer.name} if isinstance(s, Alloc) else set()
        found |= _allocated(inside(s))
    return found
