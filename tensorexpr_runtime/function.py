"""Functions of a bundle: arrays in, arrays out, through one C entry point.

The entry takes the constants, a pointer for each placeholder, sizes, memory for activations, and a place for errors. The lock of
the interpreter is given up while it runs, and nothing is shared between calls but read-only data. Arrays in this machine's memory
are worked on by its CPU, arrays on a GPU there (`gpu`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tensorexpr_runtime.cuda import driver
from tensorexpr_runtime.device_array import DeviceArray, is_device_array, view
from tensorexpr_runtime.errors import ArgumentError, BundleError, OutOfBoundsError, wanted_extent
from tensorexpr_runtime.files import array_type
from tensorexpr_runtime.gpu import GpuEntry, Gpus

_ALIGNMENT = 64
_LAYOUTS = 256  # that a function remembers
_MOST_SIZE = 1 << 47  # machine code relies on it; no memory has more elements, only extents of empty arrays could be more
_READY = 0x0001 | 0x0100  # NumPy's flags: contiguous and aligned


class _Layout(NamedTuple):
    """What follows from the shapes of the inputs: the sizes as C takes them, the shapes of the outputs."""

    sizes: Any
    outputs: tuple[tuple[int, ...], ...]


class BundleFunction:
    """A function of a bundle: `f(*arrays, out=None, workspace=None, stream=None, **arrays_by_name)`.

    `placeholders` are its rows of the table: the inputs in calling order, then the outputs. Gives an array if it was compiled from
    one tensor, else a tuple. `out`, of the same form, is computed into; `workspace` is memory for activations. Arrays on a GPU
    (anything with DLPack or `__cuda_array_interface__`) are worked on there, on `stream`, and so are the results (`DeviceArray`).
    """

    def __init__(
        self, name: str, table: Mapping[str, Any], library: ctypes.CDLL, variant: int | None, constants: np.ndarray, gpus: Gpus | None
    ) -> None:
        self.name = name
        self.placeholders: tuple[dict[str, Any], ...] = tuple(table["placeholders"])
        self.inputs = tuple(p for p in self.placeholders if p["kind"] == "input")
        self.outputs = tuple(p for p in self.placeholders if p["kind"] == "output")
        self.sizes: tuple[str, ...] = tuple(table["sizes"])
        self.updates: tuple[str, ...] = tuple(table["updates"])
        self._table = table
        self._types = {p["name"]: array_type(p["dtype"]) for p in self.placeholders}
        self._made = [self._types[p["name"]] for p in self.outputs]
        self._layouts: dict[tuple[tuple[int, ...], ...], _Layout] = {}
        self._constants, self._constants_at = constants, constants.ctypes.data
        self._gpu = None if gpus is None else GpuEntry(name, table, library, gpus)
        self._checks: Sequence[Mapping[str, Any]] = () if variant is None else table["checks"][variant]
        self._on_cpu = variant is not None
        if self._on_cpu:
            self._entry = getattr(library, table["symbol"])
            self._entry.argtypes, self._entry.restype = [ctypes.c_void_p] * 5, ctypes.c_int64
            self._size = getattr(library, f"{table['symbol']}_workspace")
            self._size.argtypes, self._size.restype = [ctypes.c_void_p], ctypes.c_int64

    def __call__(self, *arrays: Any, out: Any = None, workspace: Any = None, stream: Any = None, **named: Any) -> Any:
        bound = self._bound(arrays, named)
        given = [] if out is None else [out] if self._table["single"] else list(out)
        if stream is not None or any(is_device_array(a) for a in (*bound, *given)) or not self._on_cpu:
            return self._call_gpu(bound, out, workspace, stream)
        inputs = [self._input(p, a) for p, a in zip(self.inputs, bound, strict=True)]
        layout = self._layout(tuple([a.shape for a in inputs]))
        results, targets = self._results(out, layout.outputs, inputs)
        block = self._workspace(self._size(layout.sizes), workspace)
        pointers = (ctypes.c_void_p * len(self.placeholders))(*[a.__array_interface__["data"][0] for a in (*inputs, *results)])
        error = (ctypes.c_int64 * 2)()
        start = 0 if block is None else -(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        status = self._entry(self._constants_at, pointers, layout.sizes, start, error)
        if status:
            raise self._failure(self._checks, status, error[0], error[1])
        for target, result in zip(targets, results, strict=True):
            if target is not result:
                np.copyto(target, result)
        return targets[0] if self._table["single"] else tuple(targets)

    def workspace_bytes(self, **sizes: int) -> int:
        """Bytes of memory for activations that a call needs, with these sizes where extents are open."""
        if sorted(sizes) != sorted(self.sizes):
            raise ArgumentError(f"{self.name}: expected the sizes {', '.join(self.sizes) or 'none'}, got {', '.join(sizes) or 'none'}")
        if not self._on_cpu:
            return self.gpu_workspace_bytes(**sizes)
        return int(self._size(self._values(sizes)))

    def gpu_workspace_bytes(self, **sizes: int) -> int:
        """As `workspace_bytes`, on a GPU."""
        return self._on_gpu().size(self._values(sizes))

    def _values(self, sizes: Mapping[str, int]) -> Any:
        return (ctypes.c_int64 * len(self.sizes))(*(sizes[n] for n in self.sizes))

    def __repr__(self) -> str:
        def text(rows: Sequence[Mapping[str, Any]]) -> str:
            return ", ".join(f"{p['path']}: {p['dtype']}[{', '.join(p['extents'])}]" for p in rows)

        return f"{self.name}({text(self.inputs)}) -> {text(self.outputs)}"

    # ---------------------------------------------------------------------------------------------------------- a GPU

    def _on_gpu(self, first: str = "") -> GpuEntry:
        """The function on a GPU; `first` says which argument asks for it."""
        if self._gpu is None:
            raise ArgumentError(
                f"{self.name}: {first}expected arrays in this machine's memory, got a GPU's: the bundle has no code for GPUs"
            )
        return self._gpu

    def _first_on_gpu(self, bound: Sequence[Any], given: Sequence[Any]) -> str:
        """The first array that lies on a GPU, as errors say it; nothing where there is none."""
        rows = zip((*self.inputs, *self.outputs), (*bound, *given), strict=False)
        kinds = {"input": "argument", "output": "out"}
        return next((f"{kinds[row['kind']]} {row['path']}: " for row, value in rows if is_device_array(value)), "")

    def _call_gpu(self, bound: Sequence[Any], out: Any, workspace: Any, stream: Any) -> Any:
        given = [] if out is None else [out] if self._table["single"] else list(out)
        entry = self._gpu or self._on_gpu(self._first_on_gpu(bound, given))
        try:
            found = driver()
        except BundleError as error:
            raise BundleError(f"{self.name}: {self._first_on_gpu(bound, given)}{error}") from None
        device, number, placed = entry.place(self.inputs, bound, stream)
        with found.on(device):
            inputs = [
                DeviceArray.copied(np.asarray(value, self._types[p["name"]]), device, number) if array is None else array
                for p, value, array in zip(self.inputs, bound, placed, strict=True)
            ]
            for p, array in zip(self.inputs, inputs, strict=True):
                self._fits(p, array)
            layout = self._layout(tuple([a.shape for a in inputs]))
            if out is None:
                made = zip(layout.outputs, self._made, strict=True)
                results: Sequence[Any] = [DeviceArray.empty(shape, type_, device, number) for shape, type_ in made]
                targets = results
            else:
                results = self._targets(out, layout.outputs, device, number, inputs)
                targets = [out] if self._table["single"] else list(out)
            status, index, extent = entry.run(device, number, inputs, results, layout.sizes, workspace)
        if status:
            raise self._failure(entry.checks, status, index, extent)
        return targets[0] if self._table["single"] else tuple(targets)

    def _targets(
        self, out: Any, shapes: Sequence[tuple[int, ...]], device: int, stream: int, inputs: Sequence[DeviceArray]
    ) -> list[DeviceArray]:
        """The caller's arrays for results, as they lie on the GPU."""
        given = self._given(out)
        found: list[DeviceArray] = []
        for row, shape, value in zip(self.outputs, shapes, given, strict=True):
            label = f"{self.name}: out {row['path']}"
            array = view(value, stream) if is_device_array(value) else None
            if (
                array is None
                or array.shape != shape
                or array.dtype != self._types[row["name"]]
                or (array.nbytes and array.device != device)
            ):
                got = f"a {type(value).__name__}" if array is None else repr(array)
                raise ArgumentError(f"{label}: expected an array {row['dtype']}{list(shape)} on cuda:{device}, got {got}")
            for other in (*inputs, *found):
                if array.address < other.address + other.nbytes and other.address < array.address + array.nbytes:
                    raise ArgumentError(f"{label}: expected memory of its own, got an array that overlaps another one")
            found.append(array)
        return found

    # ------------------------------------------------------------------------------------------------------ arguments

    def _bound(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """An array for each input."""
        rest = dict(named)
        found = list(arrays)
        known = {name for p in self.inputs for name in (p["path"], p["name"])}
        unknown = [name for name in rest if name not in known]
        if unknown:
            raise ArgumentError(f"{self.name}: expected arrays for {self._placeholders()}, got one for {unknown[0]}")
        for p in self.inputs[len(arrays) :]:
            names = [n for n in dict.fromkeys((p["path"], p["name"])) if n in rest]
            if len(names) != 1:
                got = "none" if not names else "two"
                raise ArgumentError(f"{self.name}: expected an array for the placeholder {p['path']}, got {got}")
            found.append(rest.pop(names[0]))
        if rest or len(found) > len(self.inputs):
            got = f"{len(found)} arrays" if not rest else f"{', '.join(rest)} twice"
            raise ArgumentError(f"{self.name}: expected arrays for {self._placeholders()}, got {got}")
        return found

    def _placeholders(self) -> str:
        return ", ".join(p["path"] for p in self.inputs) or "no placeholders"

    def _input(self, row: Mapping[str, Any], value: Any) -> np.ndarray:
        wanted = self._types[row["name"]]
        try:
            array = np.asarray(value, wanted) if isinstance(value, bool | int | float) and not row["shape"] else np.asarray(value)
        except (RuntimeError, TypeError, ValueError) as error:  # from its library: a tensor that records gradients, say
            raise ArgumentError(f"{self.name}: argument {row['path']}: expected an array, got a {type(value).__name__}: {error}") from None
        self._fits(row, array)
        return array if array.flags.num & _READY == _READY and array.dtype.isnative else np.array(array, wanted, order="C")

    def _fits(self, row: Mapping[str, Any], array: Any) -> None:
        """Raises `ArgumentError` for an array of another type or rank."""
        if array.dtype != self._types[row["name"]]:
            raise ArgumentError(f"{self.name}: argument {row['path']}: expected dtype {row['dtype']}, got {array.dtype}")
        if len(array.shape) != len(row["shape"]):
            raise ArgumentError(f"{self.name}: argument {row['path']}: expected {len(row['shape'])} axes, got {len(array.shape)}")

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The sizes that the shapes of the inputs tell, all extents compared with them."""
        sizes: dict[str, int] = {}
        for name, position, axis, scale, rest, constant in self._table["size_sources"]:
            value = shapes[position][axis] - constant - sum(c * sizes[n] for n, c in rest)
            if value % scale or value // scale < 0:
                row, extent = self.inputs[position], shapes[position][axis]
                wanted = wanted_extent(row["extents"][axis], scale, constant, not rest)
                raise ArgumentError(f"{self.name}: argument {row['path']}: expected {wanted}, got {extent}")
            sizes[name] = value // scale
            most = min(self._table.get("greatest_sizes", {}).get(name, _MOST_SIZE), _MOST_SIZE)
            if sizes[name] > most:
                row, extent = self.inputs[position], shapes[position][axis]
                bound = "2^47" if most == _MOST_SIZE else scale * most + extent - value
                raise ArgumentError(f"{self.name}: argument {row['path']}: expected an extent of at most {bound}, got {extent}")
        for row, shape in zip(self.inputs, shapes, strict=True):
            expected = tuple(extent_value(e, sizes) for e in row["shape"])
            if expected != shape:
                raise ArgumentError(f"{self.name}: argument {row['path']}: expected shape {list(expected)}, got {list(shape)}")
        return sizes

    def _layout(self, shapes: tuple[tuple[int, ...], ...]) -> _Layout:
        """What follows from the shapes of the inputs, worked out once for each."""
        found = self._layouts.get(shapes)
        if found is None:
            sizes = self._sizes(shapes)
            outputs = tuple(tuple(extent_value(e, sizes) for e in p["shape"]) for p in self.outputs)
            found = _Layout(self._values(sizes), outputs)
            if len(self._layouts) >= _LAYOUTS:
                self._layouts.clear()
            self._layouts[shapes] = found
        return found

    def _results(
        self, out: Any, shapes: Sequence[tuple[int, ...]], inputs: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Arrays to compute into, and arrays to give."""
        types = self._made
        if out is None:
            made = [np.empty(shape, type_) for shape, type_ in zip(shapes, types, strict=True)]
            return made, made
        targets = self._given(out)
        for k, (row, shape, type_, target) in enumerate(zip(self.outputs, shapes, types, targets, strict=True)):
            fits = isinstance(target, np.ndarray) and target.dtype == type_ and target.shape == shape and target.flags.writeable
            if not fits:
                got = f"{target.dtype}{list(target.shape)}" if isinstance(target, np.ndarray) else f"a {type(target).__name__}"
                raise ArgumentError(f"{self.name}: out {row['path']}: expected a writeable array {row['dtype']}{list(shape)}, got {got}")
            if any(np.may_share_memory(target, other) for other in (*inputs, *targets[:k])):
                raise ArgumentError(f"{self.name}: out {row['path']}: expected memory of its own, got an array that overlaps another one")
        direct = [
            t if t.flags.num & _READY == _READY and t.dtype.isnative else np.empty(shape, type_)
            for t, shape, type_ in zip(targets, shapes, types, strict=True)
        ]
        return direct, targets

    def _given(self, out: Any) -> list[Any]:
        """The caller's arrays for results, one per output."""
        targets = [out] if self._table["single"] else list(out)
        if len(targets) != len(self.outputs):
            raise ArgumentError(f"{self.name}: out: expected {len(self.outputs)} arrays, got {len(targets)}")
        return targets

    def _workspace(self, size: int, given: np.ndarray | None) -> np.ndarray | None:
        if given is None:
            return np.empty(size + _ALIGNMENT, np.uint8) if size else None
        if not given.flags.c_contiguous or not given.flags.writeable or given.nbytes < size + -given.ctypes.data % _ALIGNMENT:
            raise ArgumentError(
                f"{self.name}: workspace: expected {size} writeable bytes at a multiple of {_ALIGNMENT}, got {given.nbytes} bytes"
            )
        return given

    def _failure(self, checks: Sequence[Mapping[str, Any]], status: int, index: int, extent: int) -> Exception:
        site = checks[status - 1]
        index = index + 2**64 if site["unsigned"] and index < 0 else index
        where = f"  in:   {site['access']}\n  at:   axis {site['axis']} of {site['tensor']}"
        wanted = (
            f"an index of {site['tensor']} from 0 to {extent - 1}" if extent else f"no access to {site['tensor']}, which has no elements"
        )
        return OutOfBoundsError(f"{site['definition']}: expected {wanted}, got {'' if extent else 'index '}{index}\n{where}")


def extent_value(extent: Any, sizes: Mapping[str, int]) -> int:
    """The value of an extent: a number, the name of a size, or an operation and its operands."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return sizes[extent]
    name, *operands = extent
    values = [extent_value(item, sizes) for item in operands]
    match name:
        case "neg":
            return -values[0]
        case "add":
            return sum(values)
        case "sub":
            return values[0] - values[1]
        case "mul":
            return prod(values)
        case "floordiv":
            return values[0] // values[1] if values[1] else 0
        case "mod":
            return values[0] % values[1] if values[1] else 0
        case "minimum":
            return min(values)
        case "maximum":
            return max(values)
    raise BundleError(f"expected an operation on extents that is known, got {name!r}")
