"""Random rewrites of loops for the law."""

from __future__ import annotations

import random

from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.codegen.rewrites import loops
from tensorexpr.codegen.rewrites.paths import around, loop_at, loop_paths, walk_nest
from tests.codegen.rewrites.law import Move


def names_of(nest: LoopNest) -> list[str]:
    """The names of all loops, in order."""
    return list(dict.fromkeys(s.index for _, s in walk_nest(nest) if isinstance(s, For)))


def drawn(nest: LoopNest, rng: random.Random) -> str | None:
    """The name of a loop."""
    names = names_of(nest)
    return rng.choice(names) if names else None


def of_a_loop(word: str) -> Move:
    """A rewrite of one loop."""

    def move(nest: LoopNest, rng: random.Random) -> LoopNest | None:
        name = drawn(nest, rng)
        return None if name is None else getattr(loops, word)(nest, name)

    move.__name__ = word
    return move


def split(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    name = drawn(nest, rng)
    return (
        None
        if name is None
        else loops.split(nest, name, rng.choice((1, 2, 3, 4, 8)), rng.choice(("peel", "peel", "shift", "guard", "stride")))
    )


def cut(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    name = drawn(nest, rng)
    return None if name is None else loops.partition(nest, name, at=[rng.randrange(-1, 6) for _ in range(rng.choice((1, 2)))])


def residues(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    name = drawn(nest, rng)
    return None if name is None else loops.partition(nest, name, residues=rng.choice((1, 2, 3)))


def partition(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    name = drawn(nest, rng)
    return None if name is None else loops.partition(nest, name, most=rng.choice((8, 64, 256)))


def chain(nest: LoopNest, rng: random.Random) -> list[str]:
    """The names of the loops around and including one, outermost first."""
    name = drawn(nest, rng)
    if name is None:
        return []
    path = rng.choice(loop_paths(nest, name))
    return [s.index for s in (*around(nest, path).loops, loop_at(nest, path))]


def fuse(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    names = chain(nest, rng)
    return loops.fuse(nest, *names[-2:]) if len(names) > 1 else None


def reorder(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    names = chain(nest, rng)
    if len(names) < 2:
        return None
    chosen = rng.sample(names, rng.randint(2, min(3, len(names))))
    return loops.reorder(nest, *chosen)


def skew(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    names = chain(nest, rng)
    return loops.skew(nest, *rng.sample(names, 2), rng.choice((-1, 1, 1, 2))) if len(names) > 1 else None


def widen(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    names = chain(nest, rng)
    return loops.widen(nest, names[-1], *rng.choice([(), *((name,) for name in names[:-1])])) if len(names) > 1 else None


def simplify(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    return loops.simplify(nest)


KINDS = [of_a_loop(word) for word in ("unroll", "vectorize", "parallel", "serial")]
ALL: list[Move] = [
    split,
    split,
    cut,
    residues,
    partition,
    partition,
    fuse,
    reorder,
    reorder,
    reorder,
    simplify,
    skew,
    widen,
    of_a_loop("reverse"),
    of_a_loop("distribute"),
    *KINDS,
]
