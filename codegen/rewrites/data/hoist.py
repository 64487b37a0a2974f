"""The rewrite `hoist`: a term of a loop's body, computed in front of the loop, once for all that it depends on.

    for i in range(0, 64):                              w_of: local(f32[8])
        for k in range(0, 8):                           for k in range(0, 8):
            y[i] = y[i] + x[i, k] * exp(w[k])    -->        w_of[k] = exp(w[k])
                                                        for i in range(0, 64):
                                                            for k in range(0, 8):
                                                                y[i] = y[i] + x[i, k] * w_of[k]

Loops inside whose indices the term mentions run in front, too, over what all of their copies go through, and the term is kept for each
of their points. Legal where the term does not depend on the loop's index, nor on what is written in the loop. What guards the term inside
need not hold in front: there each element is read behind a test that it exists, if that is not known. Values keep their bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest, Store
from tensorexpr.codegen.nest.walks import buffers_written, expressions_of, inside, map_expressions
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, around, loop_at, loop_paths, put, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import apart
from tensorexpr.ir import TRUE, Access, Apply, Const, Expr, Index, apply, conjunction, const
from tensorexpr.text import print_expr
from tensorexpr.traversal import children, free_names, map_children, negate, put_term, tensors_read, walk


def hoist(nest: LoopNest, loop: str, term: Expr, name: str | None = None) -> LoopNest:
    """The nest with a term, as it is written in the body of a loop, computed in front of each copy of the loop that has it.

    The term is kept in a local buffer, `name`, or a name that follows from what it reads. Raises `ScheduleError` where no copy has the
    term, or it cannot be computed in front.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_expr, parse_program
    >>> program = parse_program('''
    ... x: f32[4, 8] = input()
    ... w: f32[8] = input()
    ... y[i, k]: f32[4, 8] = x[i, k] * exp(w[k])
    ... return y
    ... ''')
    >>> nest = named(plain_nest(program))
    >>> print(hoist(nest, "i", nest.kernels[0].body[0].body[0].body[0].value.args[1]))
    main(x, w, y)
    x: parameter(f32[4, 8])
    w: parameter(f32[8])
    y: parameter(f32[4, 8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        w_of: local(f32[8])
        for k_1 in range(0, 8):
            w_of[k_1] = exp(w[k_1])
        for i in range(0, 4):
            for k in range(0, 8):
                y[i, k] = x[i, k] * w_of[k]
    <BLANKLINE>
    """
    paths = [path for path in loop_paths(nest, loop) if any(True for _ in places_of(loop_at(nest, path).body, term))]
    if not paths:
        raise refuse(f"expected a term of the body of {loop}, got {print_expr(term)}", loop_at(nest, loop_paths(nest, loop)[0]), loop)
    read = next(iter(tensors_read(term)), "term")
    name = name or fresh(nest, f"{read}_of")[0]
    for path in reversed(paths):
        nest = put(nest, path, _hoisted(nest, path, term, name))
    return apart(nest)


def _hoisted(nest: LoopNest, path: Path, term: Expr, name: str) -> Block:
    loop = loop_at(nest, path)

    def refused(why: str) -> Exception:
        return refuse(f"expected a term that can be computed in front of {loop.index}, got {print_expr(term)}: {why}", loop, loop.index)

    reads = set(tensors_read(term))
    changed = sorted(reads & {*buffers_written(loop.body), *(s.buffer.name for _, s in walk_block(loop.body) if isinstance(s, Alloc))})
    if loop.index in free_names(term):
        raise refused("it depends on its index")
    if changed:
        raise refused(f"{changed[0]} is written in it")
    if any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") and n.dtype.is_integer and not _divides(n) for n in walk(term)):
        raise refused("it divides by an integer that may be 0")
    facts = Facts.at(nest, path)
    axes = axes_of(list(places_of(loop.body, term)), set(free_names(term)), facts, refused)
    at = tuple(sub(Index(index), start) for index, start, _ in axes)
    names = fresh(nest, *(index for index, _, _ in axes))
    new = {index: Index(own) for (index, _, _), own in zip(axes, names, strict=True)}
    for (_, start, stop), own in zip(axes, names, strict=True):
        facts = facts.loop(own, start, stop)
    there = _renamed(term, new)
    made = _guarded((Store(name, tuple(_renamed(e, new) for e in at), there),), there, nest, facts, around(nest, path).locals)
    for (_, start, stop), own in zip(reversed(axes), reversed(names), strict=True):
        made = (For(own, start, stop, made),)
    shape = tuple(const(length_of(start, stop)) for _, start, stop in axes)
    kept = Access(name, at, term.dtype)
    body = map_expressions(loop.body, lambda expr: put_term(expr, term, kept))
    buffer = Buffer(name, term.dtype, shape, "local")
    return (Alloc(buffer, (*made, For(loop.index, loop.start, loop.stop, body, loop.kind, loop.call))),)


def places_of(block: Block, term: Expr, loops: tuple[For, ...] = ()) -> Iterator[tuple[For, ...]]:
    """The loops around each statement of a block that has a term."""
    for s in block:
        if any(_has(e, term) for e in expressions_of(s)):
            yield loops
        yield from places_of(inside(s), term, (*loops, s) if isinstance(s, For) else loops)


def _has(expr: Expr, term: Expr) -> bool:
    return expr == term or any(_has(child, term) for child in children(expr))


def _renamed(expr: Expr, names: dict[str, Index]) -> Expr:
    return names.get(expr.name, expr) if isinstance(expr, Index) else map_children(expr, lambda child: _renamed(child, names))


def _divides(expr: Apply) -> bool:
    return isinstance(expr.args[1], Const) and expr.args[1].value != 0


def axes_of(
    places: list[tuple[For, ...]], names: set[str], facts: Facts, refused: Callable[[str], Exception], sizes: bool = False
) -> list[tuple[str, Expr, Expr]]:
    """The loops inside whose indices a term mentions, outermost first, with the range that all of their copies are in: from one number to
    another, or, if `sizes` may say it, the one range that all of them have."""
    inner = list(dict.fromkeys(s.index for loops in places for s in loops if s.index in names))
    found: list[tuple[str, Expr, Expr]] = []
    for index in inner:
        starts, stops, ranges = [], [], set[tuple[Expr, Expr]]()
        for loops in places:
            here, own = facts, None
            for s in loops:
                if s.index == index:
                    own = s
                    break
                here = here.loop(s.index, s.start, s.stop)
            assert own is not None  # an index is bound where it occurs
            ranges.add((own.start, own.stop))
            starts.append(min((here.interval(f)[0] for b in here.bounds(own.start, False) for f in b), default=-math.inf))
            stops.append(max((here.interval(f)[1] for b in here.bounds(own.stop, True) for f in b), default=math.inf))
        least, most = min(starts), max(stops)
        if not math.isinf(least) and not math.isinf(most):
            found.append((index, const(int(least)), const(max(int(least), int(most)))))
        elif sizes and len(ranges) == 1 and all(not free_names(e) and not tensors_read(e) for e in next(iter(ranges))):
            found.append((index, *next(iter(ranges))))
        else:
            raise refused(f"no constant number of iterations of {index} is known")
    return found


def length_of(start: Expr, stop: Expr) -> int:
    """How many elements an axis of what is kept has."""
    return max(1, constant(sub(stop, start)) or 0)


def _guarded(block: Block, term: Expr, nest: LoopNest, facts: Facts, locals_: Iterable[Buffer]) -> Block:
    """A block behind tests that the elements which a term reads exist, those that others are indexed by first."""
    shapes = {b.name: b.shape for b in (*nest.parameters, *nest.workspace, *locals_)} | {c.name: c.type.shape for c in nest.constants}
    levels: list[list[Expr]] = []

    def visit(expr: Expr, choices: tuple[Expr, ...], here: Facts, level: int) -> int:
        """The number of levels of tests that the value of an expression is behind, which is needed where some choices are made."""
        if isinstance(expr, Apply) and expr.op.name == "where":
            condition, taken, otherwise = expr.args
            level = visit(condition, choices, here, level)
            one = visit(taken, (*choices, condition), here.under(condition), level)
            return max(one, visit(otherwise, (*choices, negate(condition)), here.under(negate(condition)), level))
        level = max([visit(child, choices, here, level) for child in children(expr)], default=level)
        if not isinstance(expr, Access):
            return level
        tests = [t for i, n in zip(expr.indices, shapes[expr.tensor], strict=True) for t in (apply("ge", i, ZERO), apply("lt", i, n))]
        needed = [test for test in tests if not here.holds(test)]
        if not needed:
            return level
        levels.extend([] for _ in range(level + 1 - len(levels)))
        skipped = [negate(choice) for choice in choices]
        levels[level] += [functools.reduce(lambda a, b: apply("or", a, b), [*skipped, test]) for test in needed]
        return level + 1

    visit(term, (), facts, 0)
    for tests in reversed(levels):
        test = conjunction(dict.fromkeys(tests))
        block = block if test == TRUE else (If(test, block),)
    return block
