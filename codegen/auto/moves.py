"""How an index moves with the loops around it: elements for one step of each, exactly for affine indices, in the mean for others.

A quotient moves by a fraction of an element, a remainder like what it is the remainder of (an axis never spans more than its buffer), a
clamped or chosen index like the operand that moves most, an index that is read from memory as data says.
"""

from __future__ import annotations

from typing import NamedTuple

from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index
from tensorexpr.traversal import free_names


class Move(NamedTuple):
    """Elements for one step of each loop by name, the constant offset, the loops with which it jumps as data says, and those with which it
    does not move evenly."""

    steps: dict[str, float]
    offset: float
    random: frozenset[str]
    uneven: frozenset[str] = frozenset()


def move_of(e: Expr, known: dict[Expr, Move]) -> Move:
    """How an integer moves; `known` remembers parts."""
    found = known.get(e)
    if found is None:
        found = known[e] = _move(e, known)
    return found


def _move(e: Expr, known: dict[Expr, Move]) -> Move:
    match e:
        case Const():
            return Move({}, float(e.value), frozenset())
        case Index():
            return Move({e.name: 1.0}, 0.0, frozenset())
        case Cast():
            return move_of(e.arg, known)
        case Access():
            return Move({}, 0.0, frozenset(free_names(e)), frozenset(free_names(e)))
        case Apply():
            parts = [move_of(a, known) for a in e.args]
            match e.op.name:
                case "add":
                    return _sum(parts[0], parts[1], 1.0)
                case "sub":
                    return _sum(parts[0], parts[1], -1.0)
                case "neg":
                    return _scaled(parts[0], -1.0)
                case "mul":
                    for one, other in ((0, 1), (1, 0)):
                        if not parts[one].steps and not parts[one].random:
                            return _scaled(parts[other], parts[one].offset or 1.0)
                    return _most(parts)
                case "floordiv" if isinstance(e.args[1], Const) and e.args[1].value:
                    return _scaled(parts[0], 1.0 / float(e.args[1].value))._replace(uneven=_names(parts))
                case "mod" if isinstance(e.args[1], Const) and e.args[1].value:
                    period = abs(float(e.args[1].value))
                    steps = {n: s for n, s in parts[0].steps.items() if s % period}
                    return Move(steps, parts[0].offset % period, parts[0].random, _names(parts))
                case "where":
                    return _most(parts[1:])
                case _:
                    return _most(parts)
    return Move({}, 0.0, frozenset())


def _sum(a: Move, b: Move, sign: float) -> Move:
    steps = dict(a.steps)
    for name, step in b.steps.items():
        steps[name] = steps.get(name, 0.0) + sign * step
    steps = {name: step for name, step in steps.items() if step}
    return Move(steps, a.offset + sign * b.offset, a.random | b.random, a.uneven | b.uneven)


def _scaled(a: Move, factor: float) -> Move:
    return Move({n: s * factor for n, s in a.steps.items()}, a.offset * factor, a.random, a.uneven)


def _most(parts: list[Move]) -> Move:
    best = max(parts, key=lambda part: len(part.steps))
    return best._replace(random=frozenset().union(*(p.random for p in parts)), uneven=_names(parts))


def _names(parts: list[Move]) -> frozenset[str]:
    return frozenset().union(*(p.steps.keys() | p.random | p.uneven for p in parts))
