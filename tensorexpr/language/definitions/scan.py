"""`te.scan`: recurrences over a leading axis, such as cumulative sums, time stepping and recurrent networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Const, Definition, Expr, Scan, Size, TensorType
from tensorexpr.language.core.printing import describe
from tensorexpr.language.core.renaming import index_names, renamed
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.core.tensor import Ruled, Tensor, as_extents, fresh_key, of_sizes, step_of
from tensorexpr.language.core.tracing import RESERVED, Frame, active_frames, binding, fresh_index, inside, parameters, stem_of
from tensorexpr.language.definitions.compute import compute, define, names_for
from tensorexpr.language.definitions.functions import cast, where
from tensorexpr.regions import affine_of
from tensorexpr.traversal import expressions, fresh_name, walk

_WHAT = "te.scan"


@checked()
def scan(body: Callable[[Any, Any], Any], init: Any, length: Any, name: Any = None, checkpoint: int | str | None = None) -> Any:
    """The states of a recurrence: entry t of the result is the state after step t, so its shape is `(length, *state)`.

    `init` is a tensor or a tuple of tensors, the state before step 0. `body(t, state)` gets the step and the state, one tensor
    or a tuple of tensors as `init` is, and returns the next state: tensors of the same shapes and dtypes, made by `te.compute`
    and its kin from the state, the step and any tensor outside. A state without axes is read `s[()]`, and the body may return
    a scalar for it. The result is a tensor, or a tuple of tensors.

    Backwards the states are read again: all are kept (they are the result), and what else a step computes is computed anew.
    `checkpoint=c` keeps the states after every c-th step alone and computes those between again, segment by segment, which
    costs one more run of the steps; "sqrt" takes c near the square root of the length. Where not all states are read anyway, as
    with `s[length - 1]`, at most length / c + c + 8 are held at a time: the ends of segments, one segment, and adjoints. It writes
    the recurrence as a scan over segments around a scan over steps: the body runs once more if the segments leave a rest.

    Raises `DefinitionError` where `init` is not made of tensors, the length is no extent, the next state differs from the
    state in number, shape or dtype, and where `checkpoint` is no positive number (or "sqrt" of a length that is a number).

    >>> x = te.placeholder((5,), name="x")
    >>> zero = te.compute((), lambda: te.cast(0.0, "float32"), name="zero")
    >>> sums = te.scan(lambda t, s: te.compute((), lambda: s[()] + x[t], name="next"), zero, 5, name="sums")
    >>> te.evaluate(sums, {x: np.ones(5, np.float32)})
    array([1., 2., 3., 4., 5.], dtype=float32)
    """
    location = user_location()
    if checkpoint is not None:
        return _in_segments(body, init, length, name, checkpoint, location)
    single = not isinstance(init, tuple | list)
    inits = _initial(init, location)
    (extent,) = as_extents((length,), _WHAT)
    if not of_sizes(extent.expr):
        raise DefinitionError(f"{_WHAT}: expected a length made of integers and sizes, got {extent!r}", location=location)
    stems = parameters(body, 2, _WHAT, "the step and the state", "t, state")
    step = fresh_index(stems[0])
    frame = Frame(step.name, extent.expr)
    names = [stems[1]] if single else [f"{stems[1]}_{n}" for n in range(len(inits))]
    states = tuple(Tensor(n, i.extents, i.dtype, frames=(frame,), location=location) for n, i in zip(names, inits, strict=True))
    frame.states = states
    with inside(frame), binding((frame.axis,)):
        result = body(Scalar(step), states[0] if single else states)
        following = _checked(result, states, single, location)
        nexts, local = _own(following, frame, location)
    _kept(frame, nexts, local, inits)
    return _completed(frame, inits, nexts, local, names_for(name, None if single else len(inits), _WHAT), single, location)


def _initial(init: Any, location: Location | None) -> list[Tensor]:
    """The initial states."""
    inits = list(init) if isinstance(init, tuple | list) else [init]
    if not inits or not all(isinstance(i, Tensor) for i in inits):
        wrong = next((i for i in inits if not isinstance(i, Tensor)), None)
        raise DefinitionError(
            f"{_WHAT}: expected init to be a tensor or a tuple of tensors, the state before step 0, got {wrong!r}",
            location=location,
            hint="a recurrence needs a base: te.compute(shape, lambda ...: 0.0) or te.constant(array)",
        )
    return inits


def _segment(checkpoint: Any, length: int | None, location: Location | None) -> int:
    """How many steps make a segment."""
    if checkpoint == "sqrt" and length is not None:
        return max(1, math.isqrt(max(length - 1, 0)) + 1)
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool) and checkpoint > 0:
        return checkpoint
    raise DefinitionError(
        f"{_WHAT}: expected checkpoint= to be None, a number of steps, or 'sqrt' of a length that is a number, got {checkpoint!r}",
        location=location,
        hint="checkpoint=16 keeps every 16th state",
    )


def _in_segments(body: Callable[[Any, Any], Any], init: Any, length: Any, name: Any, checkpoint: Any, location: Location | None) -> Any:
    """A scan over segments of steps; its results are the states after each segment and, beside them, all states within it."""
    single = not isinstance(init, tuple | list)
    inits = _initial(init, location)
    (extent,) = as_extents((length,), _WHAT)
    number = int(extent.expr.value) if isinstance(extent.expr, Const) else None
    steps = _segment(checkpoint, number, location)
    if number is not None and number <= steps:
        return scan(body, init, length, name)
    whole: Any = extent if number is None else number
    segments, rest = whole // steps, whole % steps
    names = names_for(name, None if single else len(inits), _WHAT)

    def stepping(first: Any, start: Sequence[Tensor], count: Any) -> tuple[Tensor, ...]:
        """The states of `count` steps from the step `first`."""
        return _tuple(scan(lambda q, state: body(first + q, state), start[0] if single else tuple(start), count))

    def segment(g: Scalar, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        within = stepping(g * steps, state[: len(inits)], steps)
        return (*(_entry(t, steps - 1) for t in within), *within)

    within_types = [(steps, *i.shape) for i in inits]
    blank = [compute(shape, lambda *at, i=i: cast(0, i.dtype)) for shape, i in zip(within_types, inits, strict=True)]
    found = scan(segment, (*inits, *blank), segments)
    ends, inside = found[: len(inits)], found[len(inits) :]
    if isinstance(rest, int) and rest == 0:
        results = tuple(_joined(e, t, None, steps, segments, whole, n) for e, t, n in zip(ends, inside, names, strict=True))
    else:
        last = [
            compute(i.shape, lambda *at, i=i, e=e: where(segments > 0, e[(segments - 1, *at)], i[at])) if not isinstance(segments, int)
            else _entry(e, segments - 1)
            for i, e in zip(inits, ends, strict=True)
        ]  # fmt: skip
        behind = stepping(segments * steps, last, rest)
        results = tuple(_joined(e, t, b, steps, segments, whole, n) for e, t, b, n in zip(ends, inside, behind, names, strict=True))
    return results[0] if single else results


def _joined(ends: Tensor, inside: Tensor, behind: Tensor | None, steps: int, segments: Any, length: Any, name: str | None) -> Tensor:
    """All states in order: those of the segments, then those of the steps behind."""

    def state(t: Scalar, *at: Scalar) -> Any:
        # What a segment ends with is kept without it: where only the last state is read the insides are not held.
        value = where(t % steps == steps - 1, ends[(t // steps, *at)], inside[(t // steps, t % steps, *at)])
        return value if behind is None else where(t < segments * steps, value, behind[(t - segments * steps, *at)])

    return compute((length, *inside.shape[2:]), state, name)


def _entry(states: Tensor, step: Any) -> Tensor:
    return compute(states.shape[1:], lambda *at: states[(step, *at)])


def _tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _checked(result: Any, states: tuple[Tensor, ...], single: bool, location: Location | None) -> list[Tensor]:
    """The next states. Raises `DefinitionError` where they are not like the states."""
    several = isinstance(result, tuple | list)
    if single == several or (several and len(result) != len(states)):
        got = f"a tuple of {len(result)}" if several else _short(result)
        wanted = "one tensor" if single else f"a tuple of {len(states)} tensors"
        raise DefinitionError(f"{_WHAT}: expected the body to return {wanted}, the next state, got {got}", location=location)
    following = []
    for value, state in zip(result if several else [result], states, strict=True):
        if isinstance(value, Scalar | bool | int | float) and state.ndim == 0:
            value = define((), [], value, None, location)
        if not isinstance(value, Tensor):
            raise DefinitionError(
                f"{_WHAT}: expected the body to return a tensor for the state {state.name}, got {_short(value)}",
                location=location,
                hint="te.compute(s.shape, lambda ...: ...) makes it",
            )
        if value.dtype is not state.dtype:
            raise DefinitionError(
                f"{_WHAT}: expected the next {state.name} to be {state.dtype.name} like the state, got {value.dtype.name}",
                term=value,
                location=value.location or location,
                hint=f'te.cast(x, "{state.dtype.name}") in the body, or an init of dtype {value.dtype.name}',
            )
        if len(value.extents) != state.ndim or not all(map(_same, value.extents, state.extents)):
            shapes = [f"({', '.join(describe(e, {}) for e in t.extents)})" for t in (state, value)]
            raise DefinitionError(
                f"{_WHAT}: expected the next {state.name} to have shape {shapes[0]} like the state, got {shapes[1]}",
                term=value,
                location=value.location or location,
            )
        following.append(value)
    return following


def _short(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _same(a: Expr, b: Expr) -> bool:
    if a == b:
        return True
    first, second = affine_of(a), affine_of(b)
    return first is not None and first == second


def _own(following: list[Tensor], frame: Frame, location: Location | None) -> tuple[list[Tensor], list[Tensor]]:
    """The next states as definitions of the body, each its own, and all tensors of the body in order."""
    nexts: list[Tensor] = []
    for tensor, state in zip(following, frame.states, strict=True):
        plain = frame in tensor.frames and tensor.definition is not None and tensor not in nexts
        if not plain or tensor.extents != state.extents:
            indices = [fresh_index(f"i{n}") for n in range(tensor.ndim)]
            tensor = define(state.extents, indices, tensor[tuple(map(Scalar, indices))], tensor.name, location)
        nexts.append(tensor)
    done: dict[Tensor, None] = {}
    stack = [(tensor, False) for tensor in reversed(nexts)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in done or (frame not in tensor.frames and tensor not in nexts) or tensor in frame.states:
            continue
        if ready:
            done[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend((source, False) for source in reversed(_sources(tensor)))
    return nexts, list(done)


def _sources(tensor: Tensor) -> tuple[Tensor, ...]:
    """What a tensor reads, and what its own gradient rule sends to."""
    return tensor.sources if tensor.unit is None else (*tensor.sources, *tensor.unit[0])


def _kept(frame: Frame, nexts: list[Tensor], local: list[Tensor], inits: list[Tensor]) -> None:
    """Makes the tensors of the body that have a gradient rule of their own states that nothing reads, so that they are stored: what
    derivatives compute again has lost its rule."""
    for tensor in local:
        if tensor.unit is not None and tensor.dtype.is_float and tensor not in nexts:
            axes = [fresh_index(f"i{n}") for n in range(tensor.ndim)]
            inits.append(define(tensor.extents, axes, cast(0, tensor.dtype), tensor.name, tensor.location))
            frame.states = (*frame.states, Tensor(f"{tensor.name}_before", tensor.extents, tensor.dtype, frames=(frame,)))
            nexts.append(tensor)


def _completed(
    frame: Frame,
    inits: list[Tensor],
    nexts: list[Tensor],
    local: list[Tensor],
    names: list[str | None],
    single: bool,
    location: Location | None,
) -> Any:
    own = set(local) | set(frame.states)
    outer = list(dict.fromkeys([*inits, *(s for tensor in local for s in _sources(tensor) if s not in own)]))
    wanted = {f for tensor in (*outer, *local) for f in tensor.frames}
    frames = tuple(f for f in active_frames() if f in wanted)
    body = list({id(t.definition): t.definition for t in local if t.definition is not None}.values())
    step = _step_name(frame, body)
    renamed_body = tuple(renamed(definition, {}, {frame.step: step}) for definition in body)
    given = [*names, *(state.name for state in frame.states[len(names) :])]
    keys = [fresh_key(n or "t") for n in given]
    definition = Scan(
        tuple(keys),
        frame.length,
        step,
        tuple((s.key, TensorType(s.extents, s.dtype)) for s in frame.states),
        tuple(i.key for i in inits),
        renamed_body,
        tuple(t.key for t in nexts),
        location,
    )
    results = tuple(
        Tensor(
            n, (frame.length, *state.extents), state.dtype, key=key, definition=definition, component=position, sources=tuple(outer),
            frames=frames, location=location,
        )
        for position, (n, key, state) in enumerate(zip(given, keys, frame.states, strict=True))
    )  # fmt: skip
    for result in results:
        here = [Ruled(t, (frame,), {}, (step_of(0),), 1) for t in local if t.unit is not None]
        deeper = [one.inside(frame) for t in local for one in t.ruled if t.unit is None]
        result.ruled = tuple({one.tensor: one for one in (*here, *deeper)}.values())
    return results[0] if single else results[: len(names)]


def _step_name(frame: Frame, body: list[Definition]) -> str:
    """The step's final name: that of the user's parameter, unless something in the body has it."""
    taken = {*RESERVED, *(stem_of(f.step) for f in active_frames())}
    for definition in body:
        taken.update(index_names(definition))
        taken.update(node.name for e in expressions(definition) for node in walk(e) if isinstance(node, Size))
    taken.update(node.name for node in walk(frame.length) if isinstance(node, Size))
    return fresh_name(stem_of(frame.step), taken)
