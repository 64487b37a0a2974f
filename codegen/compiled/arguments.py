"""Arguments of a compiled function: its signature, the check of every call against it, sizes inferred from shapes.

A `Signature` says what the function takes and gives; `Arguments` is the signature made ready for calls. What depends on
the shapes alone (sizes, shapes of the outputs) is worked out once per tuple of shapes and remembered as a `Layout`, so a
call on contiguous arrays of shapes seen before compares dtypes and flags and nothing else. Every other call goes through
`prepare`, which copies what has foreign strides or byte order (said in the debug log `tensorexpr.runtime`) and refuses
what does not fit: an `ArgumentError` names the argument and both sides. Values are never cast.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tensorexpr.bounds.wrapping import MOST_SIZE
from tensorexpr.dtypes import DType
from tensorexpr.errors import ArgumentError, CallError, DefinitionError, user_location
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Expr, Program, greatest_size
from tensorexpr.markup import listed
from tensorexpr.records import record
from tensorexpr.regions import told_sizes
from tensorexpr.text import print_expr
from tensorexpr.traversal import size_names
from tensorexpr_runtime.errors import wanted_extent

log = logging.getLogger("tensorexpr.runtime")

# NumPy's flag bits: C-contiguous and aligned, what compiled code takes as it is.
READY = 0x0001 | 0x0100
_LAYOUTS_KEPT = 1024
_OVERLAP_WORK = 10_000
MOST_BYTES = 1 << 62
"""More than any memory has: beyond it the arithmetic of machine code on bytes would wrap around."""


@record
class Parameter:
    """An argument or result: its name, element type and extents (constants, or expressions over the sizes)."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]

    def __str__(self) -> str:
        extents = ", ".join(print_expr(e) for e in self.shape)
        return f"{self.name}: {self.dtype.name}[{extents}]"


@record
class Signature:
    """What a compiled function takes and gives.

    `inputs` and `outputs` in calling order; `sizes` are the names of the extents that are open (`te.dim`), bound by the
    shapes of the inputs at every call; `single` says whether the one output is returned bare, not in a tuple.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    sizes: tuple[str, ...] = ()
    single: bool = False

    def __str__(self) -> str:
        return self._text(", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs)))

    @property
    def line(self) -> str:
        """The text, with as many arguments and results as fit in a line."""
        return self._text(listed(self.inputs) if self.inputs else "", listed(self.outputs) if self.outputs else "")

    def _text(self, inputs: str, results: str) -> str:
        return f"{self.name}({inputs}) -> {results if self.single else f'({results})'}"

    def ordered(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Open sizes in their order. Raises `ArgumentError` where they are others, or below 0."""
        if sorted(sizes) != sorted(self.sizes):
            raise ArgumentError(
                f"{self.name}: expected the sizes {', '.join(self.sizes) or 'none'}, got {', '.join(sizes) or 'none'}",
                term=self,
                location=user_location(),
                hint=f"by name: {', '.join(f'{name}=100' for name in self.sizes)}" if self.sizes else "all its extents are numbers",
            )
        negative = next((name for name in self.sizes if sizes[name] < 0), None)
        if negative is not None:
            raise ArgumentError(
                f"{self.name}: expected sizes of at least 0, got {sizes[negative]} for {negative}", location=user_location()
            )
        return tuple(int(sizes[name]) for name in self.sizes)


def signature_of(program: Program, single: bool) -> Signature:
    """The signature of a program, called after its outputs."""
    types = program.types
    inputs = tuple(Parameter(i.name, i.type.dtype, i.type.shape) for i in program.inputs)
    outputs = tuple(Parameter(n, types[n].dtype, types[n].shape) for n in program.outputs)
    return Signature("_".join(program.outputs), inputs, outputs, program.sizes, single)


@record
class SizeSource:
    """Where a size is read from: `scale * size + rest == extent` of axis `axis` of input `position`; `rest` uses earlier sizes."""

    name: str
    position: int
    axis: int
    scale: int
    rest: tuple[tuple[str, int], ...]
    constant: int


def size_sources(signature: Signature) -> tuple[SizeSource, ...]:
    """For every size, the axis of an input that tells it, in an order in which each uses only sizes known before."""
    places = [(position, axis) for position, parameter in enumerate(signature.inputs) for axis in range(len(parameter.shape))]
    found: dict[str, SizeSource] = {}
    for name, number, form in told_sizes([signature.inputs[position].shape[axis] for position, axis in places]):
        rest = tuple((str(n), c) for n, c in form.terms if n != name)
        found[name] = SizeSource(name, *places[number], form.coefficient(name), rest, form.constant)
    for name in signature.sizes:
        if name not in found:
            raise DefinitionError(
                f"expected the size {name} to be told by an extent of an input, got no input with that extent",
                term=signature,
                location=user_location(),
                hint=f"give an input the extent {name}, or use a constant",
            )
    return tuple(found.values())


@record
class Layout:
    """What follows from the shapes of the inputs: the sizes, shape and type of every output, bytes of workspace."""

    sizes: tuple[int, ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype], ...]
    workspace: int


# The data pointer is the first field of an array object after Python's header; shown below for this NumPy before it is used.
_HEADER = object.__basicsize__
_POINTER = ctypes.c_void_p


def _address_by_field(array: np.ndarray) -> int:
    return _POINTER.from_address(id(array) + _HEADER).value  # type: ignore[return-value]  # no pointer of an array is None


def _address_by_attribute(array: np.ndarray) -> int:
    return array.ctypes.data


def _field_is_the_address() -> bool:
    base = np.zeros((4, 6), np.float32)
    samples = (base, base[1:, 2:], base[::-1], np.zeros(3, np.int8), base[2:].copy())
    return all(_address_by_field(a) == _address_by_attribute(a) for a in samples)


address = _address_by_field if _field_is_the_address() else _address_by_attribute


class Arguments:
    """A signature ready for calls: `fits` is the fast test, `prepare` the thorough one, `layout` the sizes and shapes that follow."""

    def __init__(self, signature: Signature, workspace: Callable[[Sequence[int]], int] = lambda sizes: 0) -> None:
        self.signature = signature
        self.known_as = signature.name
        """What messages call the function."""
        self._workspace = workspace
        self.input_types = tuple(p.dtype.numpy for p in signature.inputs)
        self.output_types = tuple(p.dtype.numpy for p in signature.outputs)
        self._sources = size_sources(signature)
        self._layouts: dict[tuple[tuple[int, ...], ...], Layout] = {}
        self.find_layout = self._layouts.get

    # ------------------------------------------------------------------------------------------------ inputs

    def prepare(self, arrays: Sequence[object]) -> list[np.ndarray]:
        """The arrays as the entry point takes them: C-contiguous, aligned, native; copies where they are not.

        Raises `ArgumentError` for a wrong number of arguments, a wrong type, dtype or rank (extents: see `layout`).
        """
        inputs = self.signature.inputs
        if len(arrays) != len(inputs):
            names = ", ".join(p.name for p in inputs) or "none"
            raise self._error(f"expected {_count(len(inputs), 'argument')} ({names}), got {len(arrays)}")
        return [self._prepare_one(p, t, a) for p, t, a in zip(inputs, self.input_types, arrays, strict=True)]

    def named(self, keywords: Mapping[str, object]) -> ArgumentError:
        """The error for keywords in a call, also a `TypeError`."""
        names = ", ".join(p.name for p in self.signature.inputs) or "none"
        message = f"expected arrays by position ({names}) and out, got the keyword {next(iter(keywords))}"
        return self._error(message, hint=f"{self.known_as}({names})", kind=CallError)

    def _prepare_one(self, parameter: Parameter, numpy_type: np.dtype, value: object) -> np.ndarray:
        array = value if type(value) is np.ndarray else self._as_array(parameter, numpy_type, value)
        if array.dtype != numpy_type and array.dtype.newbyteorder("=") != numpy_type:
            raise self._error(
                f"argument {parameter.name}: expected dtype {parameter.dtype.name}, got {array.dtype.name}",
                hint=f"nothing is cast silently: {parameter.name}.astype({parameter.dtype.name!r})",
            )
        if array.ndim != len(parameter.shape):
            expected, got = len(parameter.shape), array.ndim
            raise self._error(
                f"argument {parameter.name}: expected {_count(expected, 'axis')}, got {got} (shape {shape_text(array.shape)})"
            )
        if array.flags.num & READY == READY and array.dtype.isnative:
            return array
        log.debug(
            "%s: argument %s copied to contiguous memory (shape %s, strides %s, dtype %s)",
            self.signature.name, parameter.name, array.shape, array.strides, array.dtype.str,
        )  # fmt: skip
        return np.array(array, numpy_type, order="C", copy=True)

    def _as_array(self, parameter: Parameter, numpy_type: np.dtype, value: object) -> np.ndarray:
        if isinstance(value, np.ma.MaskedArray):
            raise self._error(
                f"argument {parameter.name}: expected a NumPy array, got a masked array", hint="fill it first: array.filled(value)"
            )
        if isinstance(value, np.ndarray):
            return np.asarray(value)
        if isinstance(value, np.generic):
            return np.asarray(value)
        if isinstance(value, (bool, int, float)) and not parameter.shape:
            return self._from_scalar(parameter, numpy_type, value)
        hint = None
        if isinstance(value, (list, tuple, bool, int, float)):
            hint = f"np.asarray(..., {parameter.dtype.name!r}) makes one"
        elif hasattr(value, "__dlpack__"):
            hint = "np.from_dlpack(...) is a view of it on the CPU; ops (te.op) take arrays of other libraries"
        raise self._error(f"argument {parameter.name}: expected a NumPy array, got {_kind(value)}", hint=hint)

    def _from_scalar(self, parameter: Parameter, numpy_type: np.dtype, value: bool | int | float) -> np.ndarray:
        """A Python scalar for a 0-d argument: exact kinds only, so nothing is truncated."""
        dtype = parameter.dtype
        if isinstance(value, bool):
            allowed = dtype.is_bool
        elif isinstance(value, int):
            allowed = dtype.is_float or (dtype.is_integer and dtype.least <= value <= dtype.greatest)
        else:
            allowed = dtype.is_float
        if not allowed:
            raise self._error(f"argument {parameter.name}: expected a {dtype.name} scalar, got {value!r}")
        return np.asarray(value, numpy_type)

    # ------------------------------------------------------------------------------------------------ sizes

    def layout(self, shapes: tuple[tuple[int, ...], ...]) -> Layout:
        """The sizes and the shapes of the outputs for inputs of these shapes, whose ranks are right.

        Raises `ArgumentError` where an extent is not the signature's, or two extents disagree on a size.
        """
        found = self._layouts.get(shapes)
        if found is None:
            found = self._make_layout(shapes)
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            self._layouts[shapes] = found
        return found

    def _make_layout(self, shapes: tuple[tuple[int, ...], ...]) -> Layout:
        sizes: dict[str, int] = {}
        for source in self._sources:
            extent = shapes[source.position][source.axis]
            value = extent - source.constant - sum(c * sizes[n] for n, c in source.rest)
            if value % source.scale or value // source.scale < 0:
                parameter = self.signature.inputs[source.position]
                wanted = wanted_extent(print_expr(parameter.shape[source.axis]), source.scale, source.constant, not source.rest)
                raise self._error(
                    f"argument {parameter.name}: expected {wanted}, got {extent}",
                    at=f"axis {source.axis} of {parameter.name}",
                )
            sizes[source.name] = value // source.scale
            known = greatest_size(source.name)
            most = MOST_SIZE if known is None else min(known, MOST_SIZE)
            if sizes[source.name] > most:
                bound = "2^47" if most == MOST_SIZE else source.scale * most + extent - value
                raise self._error(
                    f"argument {self.signature.inputs[source.position].name}: expected an extent of at most {bound}, got {extent}",
                    at=f"axis {source.axis} of {self.signature.inputs[source.position].name}",
                )
        for position, (parameter, shape) in enumerate(zip(self.signature.inputs, shapes, strict=True)):
            for axis, (expression, got) in enumerate(zip(parameter.shape, shape, strict=True)):
                expected = extent_value(expression, sizes)
                if expected != got:
                    raise self._extent_error(parameter, position, axis, expected, got, sizes)
        ordered = tuple(sizes[n] for n in self.signature.sizes)
        outputs = tuple(tuple(extent_value(e, sizes) for e in p.shape) for p in self.signature.outputs)
        for parameter, shape in zip(self.signature.outputs, outputs, strict=True):
            if any(n < 0 for n in shape):
                raise self._error(
                    f"expected extents of at least 0, got {shape_text(shape)} for the result {parameter.name}", at=_sizes_text(sizes)
                )
        found = Layout(ordered, tuple(zip(outputs, self.output_types, strict=True)), self._workspace(ordered))
        if any(prod(shape) * type_.itemsize > MOST_BYTES for shape, type_ in found.outputs):
            raise self.too_large(found)
        if found.workspace > MOST_BYTES:
            raise self.no_workspace(found.workspace)
        return found

    def _extent_error(
        self, parameter: Parameter, position: int, axis: int, expected: int, got: int, sizes: Mapping[str, int]
    ) -> ArgumentError:
        reason = ""
        names = size_names(parameter.shape[axis])
        if names:
            origins = [s for s in self._sources if s.name in names and (s.position, s.axis) != (position, axis)]
            told = "; ".join(f"{s.name} = {sizes[s.name]} from axis {s.axis} of {self.signature.inputs[s.position].name}" for s in origins)
            extent = print_expr(parameter.shape[axis])
            reason = f" ({told})" if extent in names else f" ({extent} with {told})"
        return self._error(
            f"argument {parameter.name}: expected extent {expected}{reason}, got {got}", at=f"axis {axis} of {parameter.name}"
        )

    # ------------------------------------------------------------------------------------------------ results

    def targets(self, out: object) -> list[Any]:
        """The caller's `out` as an array per output. Raises `ArgumentError` where it is not as many."""
        outputs = self.signature.outputs
        if self.signature.single:
            return [out]
        if isinstance(out, (tuple, list)) and len(out) == len(outputs):
            return list(out)
        got = f"{len(out)}" if isinstance(out, (tuple, list)) else _kind(out)
        raise self._error(f"out: expected a tuple of {_count(len(outputs), 'array')}, got {got}")

    def results(
        self, targets: Sequence[Any], layout: Layout, given: Sequence[object], partial: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """The arrays to compute into and the arrays to return (the `targets`, which differ where theirs are not contiguous).

        `given` are the caller's inputs; with `partial` None among the targets is a new array. Raises `ArgumentError` for a target
        that does not fit, is read-only, or shares memory with an input or with another target.
        """
        outputs = self.signature.outputs
        if partial:
            targets = [np.empty(*made) if t is None else t for t, made in zip(targets, layout.outputs, strict=True)]
        for parameter, (shape, numpy_type), target in zip(outputs, layout.outputs, targets, strict=True):
            self._check_out(parameter, numpy_type, shape, target)
        names = [p.name for p in self.signature.inputs]
        for i, target in enumerate(targets):
            label = self._label(outputs[i])
            for name, argument in zip(names, given, strict=True):
                if isinstance(argument, np.ndarray) and overlap(target, argument):
                    raise self._error(
                        f"{label}: expected memory of its own, got an array that overlaps argument {name}", hint=f"pass {name}.copy()"
                    )
            for j in range(i):
                if overlap(target, targets[j]):
                    raise self._error(f"{label}: expected memory of its own, got an array that overlaps out {outputs[j].name}")
        direct = [
            t if t.flags.num & READY == READY and t.dtype.isnative else np.empty(shape, numpy_type)
            for t, (shape, numpy_type) in zip(targets, layout.outputs, strict=True)
        ]
        return direct, list(targets)

    def too_large(self, layout: Layout) -> ArgumentError:
        """The error where memory does not hold the results: it names the largest."""
        sized = [(prod(shape) * type_.itemsize, p, shape) for p, (shape, type_) in zip(self.signature.outputs, layout.outputs, strict=True)]
        total, parameter, shape = max(sized, key=lambda item: item[0])
        return self._error(
            f"result {parameter.name}: expected an array that fits into memory, "
            f"got {parameter.dtype.name}{shape_text(shape)}, which takes {total:,} bytes",
            hint="fewer or smaller extents, or a part at a time",
        )

    def no_workspace(self, size: int) -> ArgumentError:
        """The error where memory does not hold what is stored between the definitions."""
        return self._error(
            f"expected intermediate results that fit into memory, got {size:,} bytes of them",
            hint="te.schedule shows which definitions are stored; inlined ones take no memory",
        )

    def _check_out(self, parameter: Parameter, numpy_type: np.dtype, shape: tuple[int, ...], target: object) -> None:
        label = self._label(parameter)
        if not isinstance(target, np.ndarray) or isinstance(target, np.ma.MaskedArray):
            raise self._error(f"{label}: expected a NumPy array, got {_kind(target)}")
        if target.dtype.newbyteorder("=") != numpy_type:
            hint = f"np.empty({shape}, {parameter.dtype.name!r}) fits"
            raise self._error(f"{label}: expected dtype {parameter.dtype.name}, got {target.dtype.name}", hint=hint)
        if target.shape != shape:
            hint = f"np.empty({shape}, {parameter.dtype.name!r}) fits"
            raise self._error(f"{label}: expected shape {shape_text(shape)}, got {shape_text(target.shape)}", hint=hint)
        if not target.flags.writeable:
            raise self._error(f"{label}: expected a writeable array, got a read-only one")
        if target.size and any(stride == 0 and n > 1 for stride, n in zip(target.strides, target.shape, strict=True)):
            raise self._error(f"{label}: expected every element to have its own memory, got a broadcast array")
        if not target.flags.forc and _meets_itself(target):
            raise self._error(f"{label}: expected every element to have its own memory, got an array whose elements overlap")

    def _label(self, parameter: Parameter) -> str:
        return "out" if self.signature.single else f"out {parameter.name}"

    def _error(
        self, message: str, *, at: str | None = None, hint: str | None = None, kind: type[ArgumentError] = ArgumentError
    ) -> ArgumentError:
        return kind(f"{self.known_as}: {message}", term=self.signature, location=user_location(), at=at, hint=hint)


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays share an element's memory; undecided within a bounded effort counts as sharing."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]  # NumPy's stubs know no int above 1
    except np.exceptions.TooHardError:
        return True


def shape_text(shape: Sequence[int]) -> str:
    """A shape as messages print it: [2, 3]."""
    return f"[{', '.join(map(str, shape))}]"


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def _count(number: int, noun: str) -> str:
    plural = {"axis": "axes"}.get(noun, noun + "s")
    return f"{number} {noun if number == 1 else plural}"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _meets_itself(array: np.ndarray) -> bool:
    """Whether two elements of an array share bytes, as those of overlapping windows do."""
    axes = sorted((abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1)
    reach = array.itemsize
    for stride, n in axes:
        if stride < reach:
            break
        reach += stride * (n - 1)
    else:
        return False  # each axis steps over all that lies inside of it
    places = np.zeros(1, np.int64)
    for stride, n in axes:
        places = np.add.outer(places, stride * np.arange(n)).ravel()
    return bool(array.size) and bool(np.diff(np.sort(places)).min(initial=array.itemsize) < array.itemsize)
