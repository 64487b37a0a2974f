"""What sums mean, in NumPy over all points at once: an oracle for products that take the interpreter seconds.

It sums in float64, so it is for numbers whose sums are exact there, which are rounded once where a tensor is made. What `where` does not
choose may be read anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorexpr.ir import Access, Apply, Cast, Const, Define, Expr, Index, Program, Reduce

Grid = dict[str, np.ndarray]
COMBINED = {"sum": (np.add, 0.0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}
"""Combiners, and what they begin with."""


def evaluated(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a program of definitions, each elementwise or one sum or extreme of such, of constant extents (those of sums may
    differ)."""
    arrays = {name: array.astype(np.float64) for name, array in inputs.items()}
    types: dict[str, np.dtype] = {}
    for d in program.definitions:
        assert isinstance(d, Define)
        value = d.value
        sums = value.axes if isinstance(value, Reduce) else ()
        grid: Grid = {}
        inside = np.bool_(True)
        for place, axis in enumerate((*d.axes, *sums)):
            start, stop = (_value(e, grid, arrays) for e in (axis.start, axis.stop))
            points = np.arange(np.min(start), np.max(stop))
            grid[axis.index] = points.reshape([-1 if p == place else 1 for p in range(len(d.axes) + len(sums))])
            inside = inside & (grid[axis.index] >= start) & (grid[axis.index] < stop)
        if isinstance(value, Reduce):
            inside = inside if value.where is None else inside & _value(value.where, grid, arrays)
            combine, nothing = COMBINED[value.combiner.name]
            points = np.where(inside, _value(value.values[0], grid, arrays), nothing)
            found = combine.reduce(points, tuple(range(len(d.axes), points.ndim)))
        else:
            found = _value(value, grid, arrays)
        rounded = found.astype(np.float32).astype(d.value.dtype.numpy) if d.value.dtype.itemsize < 4 else found.astype(d.value.dtype.numpy)
        types[d.name], arrays[d.name] = rounded.dtype, rounded.astype(np.float64)
    return {name: arrays[name].astype(types[name]) for name in program.outputs}


def _value(e: Expr, grid: Grid, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    match e:
        case Const():
            return np.asarray(e.value)
        case Index():
            return grid[e.name]
        case Cast():
            return _value(e.arg, grid, arrays)  # of exact numbers
        case Access():
            array = arrays[e.tensor]
            places = (np.clip(_value(i, grid, arrays), 0, n - 1) for i, n in zip(e.indices, array.shape, strict=True))
            return array[tuple(places)]
        case Apply() if e.op.name == "where":
            return np.where(*(_value(a, grid, arrays) for a in e.args))
        case Apply():
            return e.op.evaluate(*(_value(a, grid, arrays) for a in e.args))
    raise AssertionError(type(e))
