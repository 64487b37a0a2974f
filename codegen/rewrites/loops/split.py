"""The rewrite `split`: a loop in blocks of a fixed length, and what becomes of a rest.

    for i in range(0, n):                  for i_o in range(0, n//8):
        y[i] = x[i]            -->             for i_i in range(0, 8):
                                                   y[i_i + i_o*8] = x[i_i + i_o*8]
                                           for i_i in range(0, n % 8):
                                               y[i_i + n//8*8] = x[i_i + n//8*8]

Nothing asks whether the length divides. `tail` says what happens to a rest:

- "peel": a loop of its own behind the blocks (`partition` at the end of the last whole block). Always legal: the order stays.
- "shift": the last block is moved back to end with the loop, so that all blocks are whole; some iterations run twice. Legal where the
  iterations may run in any order and read nothing that they write, so that they write the same again. Where the loop is shorter than a
  block there is one, as long as the loop. Where its length is open, blocks of `SHORTER` iterations serve a loop that has as many, and a
  guarded one what is shorter still.
- "guard": the last block runs over the end, and a condition skips what is beyond. Always legal.
- "stride": the loop inside of a block stands outside, and for each of its places the other one goes over the blocks that have it: a residue
  class is a loop of its own. Legal where the iterations may run in any order, but for what they add up.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, floordiv, minimum, mul, sub
from tensorexpr.codegen.nest import Block, For, If, LoopNest
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.order import check_any_order, check_repeatable
from tensorexpr.codegen.rewrites.loops.simplify import decided, simplified
from tensorexpr.codegen.rewrites.names import chosen
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.hints import suggestion
from tensorexpr.ir import Const, Expr, Index, apply, const
from tensorexpr.traversal import free_names, tensors_read

SHORTER = 16
"""Iterations of the blocks of a loop that turns out to be shorter than one of those that are asked for: the lanes of a vector."""
TAILS = ("peel", "shift", "guard", "stride")


def split(nest: LoopNest, loop: str, factor: int, tail: str = "peel", names: tuple[str, str] | None = None) -> LoopNest:
    """rewrite: i -> i_o over blocks of `factor`, i_i inside a block; a rest is a loop i_i.

    `names` are those of the two loops; without them `i_o` and `i_i`, or what follows from these where they are taken.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[10])
    ... y: parameter(f32[10], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 10):
    ...         y[i] = x[i]
    ... ''')
    >>> print(split(nest, "i", 4))
    main(x, y)
    x: parameter(f32[10])
    y: parameter(f32[10], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i_o in range(0, 2):
            for i_i in range(0, 4):
                y[i_i + i_o * 4] = x[i_i + i_o * 4]
        for i_i in range(0, 2):
            y[i_i + 8] = x[i_i + 8]
    <BLANKLINE>
    """
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
        hint = "the number of iterations of the inner loop"
        raise refuse(f"expected a positive int as the factor, got {factor!r}", loop=loop, hint=hint)
    if tail not in TAILS:
        told = suggestion(tail, TAILS, "it is what becomes of a remainder: peel, a loop of its own, is the default")
        raise refuse(f"expected a tail among {', '.join(TAILS)}, got {tail!r}", loop=loop, hint=told)
    outer, inner = chosen(nest, names, f"{loop}_o", f"{loop}_i")
    for path in loop_paths(nest, loop):
        if loop_at(nest, path).kind != "serial":
            raise refuse(f"expected a serial loop, got one to {loop_at(nest, path).kind}", loop_at(nest, path), loop, "split first")
    if tail == "shift":
        check_any_order(nest, loop, "run twice")
        check_repeatable(nest, loop)
    if tail == "stride":
        check_any_order(nest, loop, "run by residue classes", updates=True)

    def blocks(s: For, path: Path) -> Block:
        facts = Facts.at(nest, path)
        return simplified(_blocks(s, factor, tail, outer, inner, facts), facts, ended=False)

    return rewrite_loops(nest, loop, blocks)


def _blocks(s: For, factor: int, tail: str, outer: str, inner: str, facts: Facts) -> Block:
    length = decided(length_of(s, facts), facts)
    whole = floordiv(length, factor)

    def at(place: Expr) -> Block:
        return substituted(s.body, {s.index: add(add(Index(inner), place), s.start)})

    begin = mul(Index(outer), const(factor))
    if tail == "peel":
        done = mul(whole, const(factor))
        blocks = For(outer, ZERO, whole, (For(inner, ZERO, const(factor), at(begin)),))
        rest = For(inner, ZERO, sub(length, done), at(done))
        # Without a whole block the loop over them stays, for whom it is that names it next; `simplify` ends it.
        return (blocks,) if facts.is_less(length, done, 0) else (blocks, rest)
    one = facts.is_less(ZERO, length) and facts.is_less(length, const(factor), 0)
    count = ONE if one else floordiv(add(length, const(factor - 1)), factor)
    if tail == "stride":
        own = floordiv(add(sub(length, Index(inner)), const(factor - 1)), factor)
        return (For(inner, ZERO, minimum(length, const(factor)), (For(outer, ZERO, own, at(begin)),)),)
    if tail == "guard":
        test = apply("lt", add(Index(inner), begin), length)
        return (For(outer, ZERO, count, (For(inner, ZERO, const(factor), (If(test, at(begin)),)),)),)

    def moved(by: int) -> Block:
        place = minimum(mul(Index(outer), const(by)), sub(length, const(by)))
        return (For(outer, ZERO, floordiv(add(length, const(by - 1)), by), (For(inner, ZERO, const(by), at(place)),)),)

    steps = (factor, SHORTER) if factor > SHORTER and not isinstance(length, Const) else (factor,)
    if isinstance(length, Const):
        short: Block = (For(inner, ZERO, length, at(ZERO)),)
    else:
        short = _guarded(inner, steps[-1], apply("lt", Index(inner), length), at(ZERO))
    found: Block = (For(outer, ZERO, ONE, short),)
    for by in reversed(steps):
        found = (If(apply("ge", length, const(by)), moved(by), found),)
    return found


def _guarded(inner: str, factor: int, test: Expr, body: Block) -> Block:
    """A block of a fixed length under a test of its index, inside of what else is asked around all of it."""
    s = body[0]
    if len(body) > 1 or not isinstance(s, If) or inner in free_names(s.condition) or any(tensors_read(s.condition)):
        return (For(inner, ZERO, const(factor), (If(test, body),)),)
    otherwise = _guarded(inner, factor, test, s.otherwise) if s.otherwise else ()
    return (If(s.condition, _guarded(inner, factor, test, s.then), otherwise),)


def length_of(s: For, facts: Facts) -> Expr:
    """The number of iterations of a loop: 0 where it ends before it begins."""
    length = sub(s.stop, s.start)
    return length if facts.is_less(s.start, s.stop, 0) else apply("maximum", length, ZERO)
