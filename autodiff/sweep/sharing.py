"""One access object under several conditions: what it sends is one contribution, so its reads are visited once.

    r = x[i + k];  where(a, f(r), 0) + where(b, g(r), 0)        x_bar[i + k] += where(a, f', 0) + where(b, g', 0)   where a or b

Each use alone is a contribution under its own condition. Where these overlap and are turned around as loops, the points at which both hold
would be visited twice. Alternatives (`a or b`) are split into disjoint pieces by `pieces`, as any others are.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.autodiff.invert.pieces import depends_on_data
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.local.derivatives import plus
from tensorexpr.autodiff.local.workspace import Workspace, guarded
from tensorexpr.autodiff.sweep.accumulate import Flow, flow
from tensorexpr.ir import Axis, Const, Expr, apply, conjunction, conjuncts
from tensorexpr.records import replace

Sent = tuple[str, str, Contribution]
"""A consumer, the definition that it is or that was made of a part of it, and what that sends."""


def flows_of(sent: Sequence[Sent], target: tuple[Axis, ...], lowering: str | None, workspace: Workspace) -> list[Flow]:
    """A flow for everything that was sent, one for all uses of an access object where they would have loops of their own."""
    found: list[tuple[Sent, Flow]] = []
    places: dict[str, list[int]] = {}  # of what each definition sends
    for owner, by, one in sent:
        new = replace(flow(owner, one, target, lowering, workspace), definition=by)
        for at in places.setdefault(by, []):
            (_, _, other), earlier = found[at]
            both = united(other, one) if _has_loops(new) or _has_loops(earlier) else None
            joint = None if both is None else replace(flow(owner, both, target, lowering, workspace), definition=by)
            if both is not None and joint is not None and (joint.inverse is not None or None in (new.inverse, earlier.inverse)):
                found[at] = ((owner, by, both), joint)
                break
        else:
            places[by].append(len(found))
            found.append(((owner, by, one), new))
    return [made for _, made in found]


def _has_loops(one: Flow) -> bool:
    return one.gathers is None or any(gather.axes for gather in one.gathers)


def united(a: Contribution, b: Contribution) -> Contribution | None:
    """One contribution for two uses of an access object, None where they have none in common.

    It stands wherever one of both does, as far as indices tell; its value has the conditions.
    """
    shared = {id(access) for access, _ in a.reads} & {id(access) for access, _ in b.reads}
    if not shared or a.access != b.access or a.axes != b.axes:
        return None
    common = tuple(guard for guard in a.guards if guard in b.guards)
    sides = [(c, tuple(guard for guard in c.guards if guard not in common)) for c in (a, b)]
    first, second = (guarded(c.value, rest, Const(0, c.value.dtype)) for c, rest in sides)
    both = dict.fromkeys((id(access), access) for access, _ in a.reads if id(access) in shared)
    alone = [(access, (*rest, *own)) for c, rest in sides for access, own in c.reads if id(access) not in shared]
    return replace(a, guards=one_of([a.guards, b.guards]), value=plus(first, second), reads=(*((access, ()) for _, access in both), *alone))


def _known(guards: Sequence[Expr]) -> list[Expr]:
    """What conditions say that does not depend on data."""
    return [part for guard in guards for part in conjuncts(guard) if not depends_on_data(part)]


def one_of(guards: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """Conditions under which at least one of several lists of guards holds, as far as indices tell."""
    common = [guard for guard in guards[0] if all(guard in others for others in guards)]
    known = [_known([guard for guard in own if guard not in common]) for own in guards]
    if not all(known):
        return tuple(common)
    either = conjunction(known[0])
    for other in known[1:]:
        either = apply("or", either, conjunction(other))
    return (*common, either)
