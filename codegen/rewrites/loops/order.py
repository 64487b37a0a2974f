"""What `dependence` says of the order in which a loop's iterations run, as refusals with the two accesses and a point."""

from __future__ import annotations

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.walks import buffers_written, declared_in, elements_read
from tensorexpr.codegen.nest_proofs.races import meet
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths
from tensorexpr.codegen.rewrites.refusals import refuse


def check_any_order(nest: LoopNest, loop: str, word: str, alike: bool = False, updates: bool = False) -> None:
    """Refuses where iterations of some copy of a loop depend on each other; `word` says how they are to run. With `alike` two may write one
    element where both write the same value (blocks that are shifted inwards); with `updates` they may add to one in another order."""
    deps = dependences(nest)
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        for conflict in deps.carried(s):
            if updates and conflict.update:
                continue
            if alike and conflict.kind == "output" and meet(deps.loop(s), conflict.first, conflict.second, deps.questions).holds:
                continue
            hint = "rfactor first" if conflict.update is not None else None
            raise refuse(f"expected iterations of {loop} that may {word} in any order: {conflict}", s, loop, hint)


def check_repeatable(nest: LoopNest, loop: str) -> None:
    """Refuses where an iteration that runs twice would not write the same again: it reads what it has written."""
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        own = declared_in(s.body)
        read = {a.tensor for a in elements_read(s.body)}
        for name in sorted(buffers_written(s.body) - own):
            if name in read:
                raise refuse(f"expected iterations of {loop} that read nothing that they write, got {name}", s, loop, 'tail="peel"')
