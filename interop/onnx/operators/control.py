"""Branches, loops, sequences and optionals.

A loop whose number of steps and whose end are known is a scan of the language, one that ends by data a `te.while_loop`, a branch on data
a `te.cond`. A loop over what has no fixed shape or is a sequence is run while the model is read, and asks at each step whether it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto

from tensorexpr import kernels
from tensorexpr.errors import DefinitionError, TargetError
from tensorexpr.graph.trace.control import cond, while_loop
from tensorexpr.graph.trace.tracing import Trace
from tensorexpr.interop.onnx.operators.common import axis_of, filled, integers, number, reshaped, sizes
from tensorexpr.interop.onnx.operators.shapes import sliced
from tensorexpr.interop.onnx.table import Known, Raw, operator
from tensorexpr.interop.onnx.values import Hangs, Option, is_constant, is_text, kind_of, known, tensor_of
from tensorexpr.language import Tensor, cast, compute, scan


class _Unfit(Exception):
    """What a loop or branch of the language does not take."""


_NOT_FIT = (_Unfit, Hangs, DefinitionError, TargetError, TypeError, ValueError)


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found = [tensor_of(value) if not is_text(value) else None for value in values]
    if not all(isinstance(value, Tensor) for value in found):
        raise _Unfit
    return found  # type: ignore[return-value]  # all are tensors by the line above


def _truth(value: Any) -> bool:
    return bool(number(known(value)))


# -------------------------------------------------------------------------------------------------------- branches


@operator("If")
def _if(flag: Raw, *, then_branch: GraphProto, else_branch: GraphProto, scope: Any, outputs: int) -> Any:
    if not is_constant(flag):
        given = tensor_of(flag)
        decision = compute((), lambda: given[(0,) * given.ndim] if given.dtype.is_bool else given[(0,) * given.ndim] != 0)
        try:
            found = cond(decision, lambda: tuple(_tensors(scope.run(then_branch, []))), lambda: tuple(_tensors(scope.run(else_branch, []))))
            return tuple(found)
        except _NOT_FIT:
            pass
    return tuple(scope.run(then_branch if _truth(flag) else else_branch, []))


# ----------------------------------------------------------------------------------------------------------- loops


@operator("Loop")
def _loop(most: Raw = None, going: Raw = None, *state: Raw, body: GraphProto, scope: Any) -> Any:
    width = len(state)
    always = going is None or (is_constant(going) and _truth(going))
    count = int(number(known(most))) if most is not None and is_constant(most) else None
    ways: list[Callable[[], Any]] = []
    if always and count is not None and count > 0:
        ways.append(lambda: _scanned(count, state, body, scope))
    if len(body.output) == width + 1:
        ways.append(lambda: _while(most, going, state, body, scope))
    for way in ways:
        try:
            return tuple(way())
        except _NOT_FIT:
            pass
    return tuple(_unrolled(most, going, state, body, scope))


def _scanned(count: int, state: Sequence[Any], body: GraphProto, scope: Any) -> list[Any]:
    """A loop of so many steps that never ends early, as a scan: what is collected is state that the next step does not read."""
    inits, width = _tensors(state), len(state)
    trial = Trace("trial")
    with trial.open():
        formals = [trial.formal(init.type, "state") for init in inits]
        first = scope.run(body, [trial.formal(_number_type(), "t"), np.asarray(True), *formals])
    if not (isinstance(first[0], np.ndarray) or is_constant(first[0])) or not _truth(first[0]):
        raise _Unfit
    collected = [filled(item.shape, 0, item.dtype) for item in _tensors(first[1 + width :])]

    def step(t: Any, old: Any) -> Any:
        now = compute((), lambda: cast(t, "int64"), name="t")
        found = scope.run(body, [now, np.asarray(True), *old[:width]], plain=True)
        return tuple(_tensors(found[1:]))

    if not inits and not collected:
        return []
    found = scan(step, (*inits, *collected), count)
    ends = [compute(i.shape, lambda *at, s=s: s[(count - 1, *at)]) for i, s in zip(inits, found, strict=False)]
    return [*ends, *found[width:]]


def _number_type() -> Any:
    return filled((), 0, "int64").type


def _while(most: Any, going: Any, state: Sequence[Any], body: GraphProto, scope: Any) -> list[Any]:
    """A loop that ends by data and collects nothing."""
    inits = _tensors(state)
    limit = tensor_of(most) if most is not None else None
    first = tensor_of(going) if going is not None else None

    def scalar(x: Tensor, kind: str) -> Tensor:
        return compute((), lambda: cast(x[(0,) * x.ndim], kind))

    start = (filled((), 0, "int64"), scalar(first, "bool") if first is not None else filled((), 1, "bool"), *inits)
    until = scalar(limit, "int64") if limit is not None else None

    def goes(t: Tensor, go: Tensor, *values: Tensor) -> Any:
        return compute((), lambda: go[()] if until is None else go[()] & (t[()] < until[()]))

    def step(t: Tensor, go: Tensor, *values: Tensor) -> Any:
        found = _tensors(scope.run(body, [t, go, *values]))
        return (compute((), lambda: t[()] + 1), scalar(found[0], "bool"), *found[1:])

    return list(while_loop(goes, step, start)[2:])


def _unrolled(most: Any, going: Any, state: Sequence[Any], body: GraphProto, scope: Any) -> list[Any]:
    """A loop that is run while the model is read."""
    width, values, step = len(state), list(state), 0
    collected: list[list[Any]] = [[] for _ in body.output[1 + width :]]
    while most is None or step < int(number(known(most))):
        if going is not None and not _truth(going):
            break
        again, *found = scope.run(body, [np.asarray(step, np.int64), np.asarray(True), *values])
        going, values = again, found[:width]
        for item, kept in zip(found[width:], collected, strict=True):
            kept.append(item)
        step += 1
    stacked = [
        kernels.stack(tuple(map(tensor_of, kept)), axis=0) if kept else _nothing(about)
        for kept, about in zip(collected, body.output[1 + width :], strict=True)
    ]
    return [*values, *stacked]


def _nothing(about: Any) -> Any:
    """What is collected in no step."""
    tensor = about.type.tensor_type
    return np.zeros((0, *(d.dim_value for d in tensor.shape.dim)), kind_of(tensor.elem_type or 1))


@operator("Scan", since=9)
def _scan(
    *inputs: Raw, body: GraphProto, num_scan_inputs: int, scan_input_axes: Any = None, scan_input_directions: Any = None,
    scan_output_axes: Any = None, scan_output_directions: Any = None, scope: Any,
) -> Any:  # fmt: skip
    width = len(inputs) - num_scan_inputs
    state, given = _tensors(inputs[:width]), _tensors(inputs[width:])
    axes = [axis_of(a, x.ndim) for a, x in zip(scan_input_axes or [0] * len(given), given, strict=True)]
    backwards = list(scan_input_directions or [0] * len(given))
    count = sizes(given[0])[axes[0]] if given else 0

    def element(x: Tensor, axis: int, back: int, t: Any) -> Tensor:
        at = count - 1 - t if back else t
        return compute((*x.shape[:axis], *x.shape[axis + 1 :]), lambda *i: x[(*i[:axis], at, *i[axis:])])

    def inputs_at(t: Any) -> list[Tensor]:
        return [element(x, axis, back, t) for x, axis, back in zip(given, axes, backwards, strict=True)]

    if not count:
        collected = [_nothing(about) for about in body.output[width:]]
        return (*state, *collected)
    try:
        found = _stepped(count, state, inputs_at, body, scope)
    except _NOT_FIT:
        found = _by_steps(count, state, inputs_at, body, scope)
    results = []
    directions = list(scan_output_directions or [0] * (len(found) - width))
    for k, item in enumerate(found[width:]):
        ordered = kernels.flip(item, axes=0) if directions[k] else item
        to = axis_of((scan_output_axes or [0] * (len(found) - width))[k], ordered.ndim)
        results.append(kernels.moveaxis(ordered, source=0, destination=to) if to else ordered)
    return (*found[:width], *results)


def _stepped(count: int, state: list[Tensor], inputs_at: Callable[[Any], list[Tensor]], body: GraphProto, scope: Any) -> list[Any]:
    width = len(state)
    trial = Trace("trial")
    with trial.open():
        formals = [trial.formal(item.type, "state") for item in state]
        first = _tensors(scope.run(body, [*formals, *inputs_at(0)]))
    if any(a.type != b.type for a, b in zip(state, first, strict=False)):
        raise _Unfit
    collected = [filled(item.shape, 0, item.dtype) for item in first[width:]]
    if not state and not collected:
        return []

    def step(t: Any, old: Any) -> Any:
        return tuple(_tensors(scope.run(body, [*old[:width], *inputs_at(t)], plain=True)))

    found = scan(step, (*state, *collected), count)
    ends = [compute(i.shape, lambda *at, s=s: s[(count - 1, *at)]) for i, s in zip(state, found, strict=False)]
    return [*ends, *found[width:]]


def _by_steps(count: int, state: list[Tensor], inputs_at: Callable[[Any], list[Tensor]], body: GraphProto, scope: Any) -> list[Any]:
    width, values = len(state), list(state)
    collected: list[list[Tensor]] = [[] for _ in body.output[width:]]
    for t in range(count):
        found = _tensors(scope.run(body, [*values, *inputs_at(t)]))
        values = found[:width]
        for item, kept in zip(found[width:], collected, strict=True):
            kept.append(item)
    return [*values, *(kernels.stack(tuple(kept), axis=0) for kept in collected)]


@operator("Scan", until=9)
def _batched_scan(*inputs: Raw, body: GraphProto, num_scan_inputs: int, directions: Any = None, scope: Any) -> Any:
    """Before version 9 all has a batch in front, each item of which is a scan of its own."""
    if inputs[0] is not None:
        raise ValueError("lengths of sequences")
    given = _tensors(inputs[1:])
    results = []
    for b in range(sizes(given[0])[0]):
        own = [compute(x.shape[1:], lambda *i, x=x, b=b: x[(b, *i)]) for x in given]
        results.append(_scan(*own, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions, scope=scope))
    return tuple(kernels.stack(tuple(items), axis=0) for items in zip(*results, strict=True))


# ------------------------------------------------------------------------------------------------------- sequences


@operator("SequenceEmpty")
def _empty(*, dtype: int = 1) -> Any:
    return []


@operator("SequenceConstruct")
def _construct(*items: Raw) -> Any:
    return [_item(item) for item in items]


def _item(value: Any) -> Any:
    return value if is_text(value) else tensor_of(value)


def _place(position: Any, count: int, last: int) -> int:
    at = count if position is None else int(number(known(position)))
    if not -count <= at <= last:
        raise ValueError(f"position {at} of {count}")
    return at + count if at < 0 else at


@operator("SequenceInsert")
def _insert(sequence: Raw, item: Raw, position: Raw = None) -> Any:
    at = _place(position, len(sequence), len(sequence))
    return [*sequence[:at], _item(item), *sequence[at:]]


@operator("SequenceErase")
def _erase(sequence: Raw, position: Raw = None) -> Any:
    at = len(sequence) - 1 if position is None else _place(position, len(sequence), len(sequence) - 1)
    return [*sequence[:at], *sequence[at + 1 :]]


@operator("SequenceAt")
def _at(sequence: Raw, position: Raw) -> Any:
    return sequence[_place(position, len(sequence), len(sequence) - 1)]


@operator("SequenceLength")
def _length(sequence: Raw) -> Any:
    return np.asarray(len(sequence), np.int64)


@operator("ConcatFromSequence")
def _concat(sequence: Raw, *, axis: int, new_axis: int = 0) -> Any:
    items = tuple(sequence)
    return kernels.stack(items, axis=axis) if new_axis else items[0] if len(items) == 1 else kernels.concatenate(items, axis=axis)


@operator("SplitToSequence")
def _split(x: Tensor, split: Known = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    at = axis_of(axis, x.ndim)
    extent = sizes(x)[at]
    if split is None:
        widths = [1] * extent
    elif np.ndim(split) == 0:
        width = int(number(split))
        widths = [min(width, extent - start) for start in range(0, extent, width)]
    else:
        widths = integers(split)
    found, start = [], 0
    for width in widths:
        part = sliced(x, {at: range(start, start + width)})
        found.append(reshaped(part, (*x.shape[:at], *x.shape[at + 1 :])) if split is None and not keepdims else part)
        start += width
    return found


@operator("SequenceMap")
def _map(first: Raw, *others: Raw, body: GraphProto, scope: Any) -> Any:
    """A graph for each item of a sequence; what is no sequence is given to all."""
    results: list[list[Any]] = [[] for _ in body.output]
    for k, item in enumerate(first):
        given = [item, *(other[k] if isinstance(other, list) else other for other in others)]
        for one, kept in zip(scope.run(body, given), results, strict=True):
            kept.append(_item(one))
    return tuple(results)


# ------------------------------------------------------------------------------------------------------- optionals


@operator("Optional")
def _optional(value: Raw = None, *, type: Any = None) -> Any:
    return value if isinstance(value, Option) else Option(value)


@operator("OptionalHasElement")
def _has(value: Raw = None) -> Any:
    return np.asarray(value is not None and not (isinstance(value, Option) and value.value is None))


@operator("OptionalGetElement")
def _get(value: Raw) -> Any:
    found = value.value if isinstance(value, Option) else value
    if found is None:
        raise ValueError("an optional without a value")
    return found
