"""Values of expressions at many points at once, and random expressions over indices, for the laws of this folder.

`values` evaluates with NumPy arrays over the points; a read outside its tensor at a point where it is evaluated fails the
test, whatever the guards around it: `where` evaluates only the branch taken.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import numpy as np

from tensorexpr import dtypes
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, Size, apply, const
from tensorexpr.ops import cast_value

Points = dict[str, np.ndarray]


def points_of(axes: tuple[Axis, ...], guards: tuple[Expr, ...], sizes: Mapping[str, int]) -> Points:
    """All points of a nest of axes at which the guards hold, as one array per index and size."""
    found: list[dict[str, int]] = [{}]
    for axis in axes:
        grown = []
        for point in found:
            env = {name: np.array([value]) for name, value in {**sizes, **point}.items()}
            start, stop = (int(values(e, env, 1)[0]) for e in (axis.start, axis.stop))
            grown += [{**point, axis.index: k} for k in range(start, stop)]
        found = grown
    names = [axis.index for axis in axes]
    env = {n: np.array([p[n] for p in found], np.int64) for n in names}
    env |= {n: np.full(len(found), v, np.int64) for n, v in sizes.items()}
    keep = np.ones(len(found), bool)
    for guard in guards:
        keep &= values(guard, env, len(found))
    return {n: a[keep] for n, a in env.items()}


def values(expr: Expr, env: Points, count: int, tensors: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
    """The value of an expression at each of `count` points."""
    return _values(expr, env, np.ones(count, bool), tensors or {})


def _values(expr: Expr, env: Points, active: np.ndarray, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    match expr:
        case Const():
            return np.full(active.shape, expr.dtype.numpy.type(expr.value))
        case Index() | Size():
            return env[expr.name]
        case Cast():
            return np.asarray(cast_value(_values(expr.arg, env, active, tensors), expr.dtype))
        case Access():
            tensor = tensors[expr.tensor]
            indices = [_values(e, env, active, tensors) for e in expr.indices]
            for index, extent in zip(indices, tensor.shape, strict=True):
                assert not active.any() or (index[active].min() >= 0 and index[active].max() < extent), f"{expr} reads outside"
            return tensor[tuple(np.clip(i, 0, e - 1) for i, e in zip(indices, tensor.shape, strict=True))]
        case Apply() if expr.op.name == "where":
            condition = _values(expr.args[0], env, active, tensors)
            taken = _values(expr.args[1], env, active & condition, tensors)
            return np.where(condition, taken, _values(expr.args[2], env, active & ~condition, tensors))
        case Apply():
            args = [_values(a, env, active, tensors) for a in expr.args]
            with np.errstate(all="ignore"):
                if expr.op.name == "pow":  # NumPy's vector loop rounds unlike its scalars, which are the meaning
                    result = np.array([expr.op.evaluate(a, b) for a, b in zip(*args, strict=True)])
                else:
                    result = expr.op.evaluate(*args)
            return np.asarray(result).astype(expr.dtype.numpy)
    raise AssertionError(type(expr))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal bit for bit, all NaNs being one value."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    return bool(np.all((np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y)))))


# --------------------------------------------------------------------------------------------------- random expressions


KINDS = ["add", "add", "sub", "sub", "mul", "floordiv", "floordiv", "mod", "mod", "minimum", "maximum", "neg", "abs", "where", "by"]


class IndexWriter:
    """Writes random index expressions and conditions over some indices and sizes."""

    def __init__(self, rng: random.Random, names: list[Expr], reads: tuple[str, int] | None = None) -> None:
        self.rng = rng
        self.names = names
        self.reads = reads

    def index(self, depth: int) -> Expr:
        """An int64 expression with + - * // % minimum maximum abs where."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.12:
            return rng.choice(self.names) if rng.random() < 0.75 else const(rng.randint(-6, 9))
        kind = rng.choice(KINDS)
        if kind in ("floordiv", "mod"):
            return apply(kind, self.index(depth - 1), const(rng.choice([1, 2, 2, 3, 4, 5, 6, 7, 12, -2, -3, 0])))
        if kind == "by":
            return apply(rng.choice(["floordiv", "mod", "mul"]), self.index(depth - 1), rng.choice(self.names))
        if kind == "mul":
            return apply("mul", self.index(depth - 1), const(rng.choice([-7, -3, -2, -1, 0, 1, 2, 3, 4, 6, 12])))
        if kind in ("neg", "abs"):
            return apply(kind, self.index(depth - 1))
        if kind == "where":
            return apply("where", self.condition(depth - 1), self.index(depth - 1), self.index(depth - 1))
        if self.reads and rng.random() < 0.1:
            tensor, extent = self.reads
            return Access(tensor, (apply("mod", self.index(depth - 1), const(extent)),), dtypes.int64)
        return apply(kind, self.index(depth - 1), self.index(depth - 1))

    def condition(self, depth: int) -> Expr:
        """A bool expression of comparisons and logic."""
        rng = self.rng
        if depth > 0 and rng.random() < 0.4:
            kind = rng.choice(["and", "or", "invert"])
            if kind == "invert":
                return apply("invert", self.condition(depth - 1))
            return apply(kind, self.condition(depth - 1), self.condition(depth - 1))
        name = rng.choice(["lt", "le", "gt", "ge", "eq", "ne"])
        return apply(name, self.index(max(depth, 1) - 1 + rng.randint(0, 1)), self.index(rng.randint(0, 1)))


def random_axes(rng: random.Random) -> tuple[tuple[Axis, ...], dict[str, int]]:
    """Two or three axes, some with symbolic or dependent bounds, and values for the sizes."""
    sizes = {"n": rng.randint(0, 6), "m": rng.randint(0, 4)} if rng.random() < 0.5 else {}
    axes: list[Axis] = []
    for name in ("i", "j", "k")[: rng.randint(2, 3)]:
        start: Expr = const(0)
        stop: Expr = const(rng.choice([1, 2, 3, 4, 5, 7]))
        if sizes and rng.random() < 0.5:
            stop = Size(rng.choice(list(sizes)))
        elif axes and rng.random() < 0.4:
            stop = apply("add", Index(axes[-1].index), const(rng.randint(-1, 3)))
        if rng.random() < 0.2:
            start = const(rng.randint(-2, 1))
        axes.append(Axis(name, start, stop))
    return tuple(axes), sizes


def corners(dtype: dtypes.DType) -> np.ndarray:
    """Values of a dtype at which rules go wrong."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = int(dtype.least), int(dtype.greatest)
        chosen = {0, 1, 2, 3, 5, 7, high, high - 1, low, low + 1, high // 2, low // 2}
        return np.array(sorted(c for c in chosen | ({-1, -2, -3, -7} if dtype.kind == "int" else set())), dtype.numpy)
    tiny = float(np.finfo(dtype.numpy).tiny) if dtype is not dtypes.bfloat16 else 1e-38
    big = float(np.finfo(dtype.numpy).max) if dtype is not dtypes.bfloat16 else 3e38
    numbers = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.1, 7.7, tiny, -tiny, tiny / 4, big, -big, np.inf, -np.inf, np.nan]
    return np.array(numbers).astype(dtype.numpy)


def grid(*choices: np.ndarray) -> list[np.ndarray]:
    """All combinations of the values, one array per choice."""
    combined = list(itertools.product(*(range(len(c)) for c in choices)))
    return [c[[row[at] for row in combined]] for at, c in enumerate(choices)]
