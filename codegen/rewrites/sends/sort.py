"""The rewrite `sort`: what is sent to elements that data chooses, sorted by blocks of elements, each with an owner.

    for t in range(0, n):                           counting sort of t by the block of k[t]: starts[b], order[...]
        S[k[t]] = S[k[t]] + x[t]          -->       for t_own in range(0, (m + 63)//64):
                                                        for t_k in range(starts[t_own], starts[t_own + 1]):
                                                            if k[order[t_k]] >= t_own*64 and k[order[t_k]] < ...:
                                                                S[k[order[t_k]]] = S[...] + x[order[t_k]]

As `own`, but every owner has a list of what is sent to its elements, so that there may be as many as one likes: few, for the cores, or
many, whose elements stay in a near cache while they take in. The sort is stable. So an element takes in what is sent to it in the order of
the text, whatever the number of owners: all values keep their bits. The condition says what the lists hold, for who proves that owners do
not meet.

Legal where `own` is, and what is stored has one place along the axis for an iteration of the loop.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, floordiv, maximum, minimum, sub
from tensorexpr.codegen.lowering.scatters.sorting import Sorting
from tensorexpr.codegen.nest import Block, Buffer, For, LoopNest, Store
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.split import length_of
from tensorexpr.codegen.rewrites.names import chosen, fresh, taken_names
from tensorexpr.codegen.rewrites.paths import around, distinct, loop_at, put, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.sends.own import Owned, checks_of, sent_to
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Size
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, walk


def sort(nest: LoopNest, buffer: str, loop: str, width: int, axis: int = 0, names: tuple[str, str] | None = None) -> LoopNest:
    """The nest with what a loop sends to a buffer sorted by blocks of `width` elements along an axis.

    `names` are those of the loops over owners and over what one takes in. Raises `ScheduleError` where the loop stores to something else,
    or to several places in an iteration.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, k, S)
    ... x: parameter(f32[22])
    ... k: parameter(i64[22])
    ... S: parameter(f32[9], written)
    ...
    ... def kernel_0() -> S:
    ...     for t in range(0, 22):
    ...         if k[t] >= 0 and k[t] < 9:
    ...             S[k[t]] = x[t]
    ... ''')
    >>> print(sort(nest, "S", "t", 4))
    main(x, k, S)
    x: parameter(f32[22])
    k: parameter(i64[22])
    S: parameter(f32[9], written)
    S_keys: workspace(i64[22], within=(0, 2))
    S_starts: workspace(i64[4], within=(0, 22))
    S_order: workspace(i64[22], within=(0, 21))
    <BLANKLINE>
    def kernel_0() -> S:
        for t_v in range(0, 4):
            S_starts[t_v] = 0
        for t_t in range(0, 22):
            S_keys[t_t] = minimum(maximum(k[t_t] // 4, 0), 2)
            if S_keys[t_t] < 2:
                S_starts[S_keys[t_t] + 2] = S_starts[S_keys[t_t] + 2] + 1
        for v in range(2, 4):
            S_starts[v] = S_starts[v] + S_starts[v - 1]
        for p in range(0, 22):
            S_order[S_starts[S_keys[p] + 1]] = p
            S_starts[S_keys[p] + 1] = S_starts[S_keys[p] + 1] + 1
        for t_own in range(0, 3):
            for t_k in range(S_starts[t_own], S_starts[t_own + 1]):
                if k[S_order[t_k]] >= t_own * 4 and k[S_order[t_k]] < minimum(t_own * 4 + 4, 9):
                    if k[S_order[t_k]] >= 0 and k[S_order[t_k]] < 9:
                        S[k[S_order[t_k]]] = x[S_order[t_k]]
    <BLANKLINE>
    """
    target, paths = sent_to(nest, buffer, loop, width, axis)
    if len(paths) > 1 or around(nest, paths[0]).loops:
        raise refuse(f"expected one loop {loop} that sends to {buffer}, with no loop around it", loop_at(nest, paths[0]), loop)
    (path,) = paths
    s, facts = loop_at(nest, path), Facts.at(nest, path)
    owner, taken_in = chosen(nest, names, f"{loop}_own", f"{loop}_k")
    owned = Owned(target, axis, width, owner)
    place = owned.one_place(nest, path)
    inner = {one.index for _, one in walk_block(s.body) if isinstance(one, For)}
    if place is None or inner & set(free_names(place)):
        raise refuse(f"expected one place of {buffer}, known at once, for an iteration of {loop}, got others", s, loop, "own")
    length = length_of(s, facts)
    if any(not isinstance(node, Const | Size | Apply) for node in walk(length)):
        raise refuse(f"expected as many iterations of {loop} as arithmetic of sizes says", s, loop, "own")
    extent = constant(target.shape[axis])  # at least one block, also of no elements
    count = add(floordiv(target.shape[axis], width), ONE) if extent is None else maximum(owned.count, ONE)
    most = sub(count, ONE)
    keys, starts, order = fresh(nest, f"{buffer}_keys", f"{buffer}_starts", f"{buffer}_order")
    buffers = (
        Buffer(keys, dtypes.int64, (length,), "workspace", (0, most)),
        Buffer(starts, dtypes.int64, (add(count, ONE),), "workspace", (0, length)),
        Buffer(order, dtypes.int64, (length,), "workspace", (0, sub(length, ONE))),
    )
    sorting = Sorting((), lambda at: (keys, at), lambda at: (starts, at), lambda at: (order, at), count, length, False)
    taken = taken_names(nest) | {owner, taken_in, keys, starts, order}
    v, t = (Index(name) for name in fresh(replace(nest, workspace=(*nest.workspace, *buffers)), f"{loop}_v", f"{loop}_t"))
    there: Expr = add(Access(order, (Index(taken_in),), dtypes.int64), s.start)
    block: Expr = minimum(maximum(floordiv(place, width), ZERO), most)
    counted = substituted(sorting.counted((), t, block), {loop: add(t, s.start)})
    begin: Block = (
        For(v.name, ZERO, add(count, ONE), (Store(starts, (v,), ZERO),)),
        For(t.name, ZERO, length, counted),
        *sorting.sorted({*taken, v.name, t.name}),
    )
    body = substituted(owned.loop(s, place).body, {loop: there})
    run = tuple(Access(starts, (at,), dtypes.int64) for at in (Index(owner), add(Index(owner), ONE)))
    owners = For(owner, ZERO, owned.count, (For(taken_in, run[0], run[1], body),))
    made = put(replace(nest, workspace=(*nest.workspace, *buffers)), path, (*checks_of(s, target), *begin, owners))
    return distinct(made)
