"""The upper half of the random programs: values of every dtype and reductions, with bounds on magnitudes (see `generators`)."""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import Access, Axis, Cast, Combiner, Const, Expr, Index, Param, Reduce, Size, apply, const
from tests.generator_indices import IndexWriter, Loop, Value, shifted

_LIMIT = {dtypes.float64: 2.0**40, dtypes.float32: 2.0**20, dtypes.float16: 2.0**9, dtypes.bfloat16: 2.0**6}


class ValueWriter(IndexWriter):
    """Expressions and reductions over what is in scope."""

    def value(self, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        """An expression of `dtype`; `budget` bounds the points of the reductions inside."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return self.leaf(dtype, scope)
        if rng.random() < 0.4 and budget > 1:
            found = self.reduce(dtype, scope, depth, budget)
            if found is not None:
                return found
        if self.may("where", 0.12):
            taken, other = self.value(dtype, scope, depth - 1, budget), self.value(dtype, scope, depth - 1, budget)
            return Value(
                apply("where", self.condition(scope), taken.expr, other.expr),
                max(taken.magnitude, other.magnitude),
                max(taken.grain, other.grain),
            )
        if self.may("casts", 0.08):
            source = rng.choice([d for d in self.pool if d is not dtype] or [dtype])
            return self.cast(self.value(source, scope, depth - 1, budget), dtype)
        a = self.value(dtype, scope, depth - 1, budget)
        if dtype.is_bool:
            return self.logical(a, scope, depth, budget)
        return self.integer(a, scope, depth, budget) if dtype.is_integer else self.floating(a, dtype, scope, depth, budget)

    def leaf(self, dtype: DType, scope: tuple[Loop, ...]) -> Value:
        rng = self.rng
        if rng.random() < 0.9:
            found = self.read(dtype, scope) or (self.converted(dtype, scope) if "casts" not in self.without else None)
            if found is not None:
                return found
        finite = [loop for loop in scope if loop.high is not None]
        if finite and not dtype.is_bool and rng.random() < 0.2:
            loop = rng.choice(finite)
            bound = float(max(abs(loop.low), loop.high or 0))
            return Value(Index(loop.name) if dtype is dtypes.int64 else Cast(dtype, Index(loop.name)), bound)
        if dtype.is_bool:
            return Value(Const(rng.random() < 0.5, dtype))
        if dtype.is_float and not self.differentiable and rng.random() < 0.3:
            return Value(Const(rng.choice((0.5, -0.5, 1.5, 0.25, -0.0)), dtype), 2.0, 2)
        return Value(Const(rng.randint(-2 if dtype.is_signed else 0, 3), dtype), 3.0)

    def read(self, dtype: DType, scope: tuple[Loop, ...]) -> Value | None:
        """A read of some tensor of this dtype, None if none can be read here."""
        candidates = [name for name, s in self.sources.items() if s.dtype is dtype]
        # Later tensors first more often than not, so that programs are chains rather than stars.
        candidates.sort(key=lambda name: self.rng.random() - 0.1 * list(self.sources).index(name))
        for name in candidates:
            source = self.sources[name]
            indices: list[Expr] = []
            guard: Expr | None = None
            for stop in source.shape:
                matching = [loop for loop in scope if loop.stop == stop and loop.low == 0]
                index: Expr | None
                if matching and self.rng.random() < 0.5:
                    index = Index(self.rng.choice(matching).name)
                elif isinstance(stop, Const) and stop.value > 0:
                    index = self.bounded(stop, scope)
                    if guard is None and scope and self.may("guard", 0.15):
                        index, guard = self.guarded(stop.value, scope)
                else:
                    index = self.exactly(stop, scope)
                if index is None:
                    break
                indices.append(index)
            else:
                access: Expr = Access(name, tuple(indices), dtype)
                if guard is not None:
                    access = apply("where", guard, access, Const(0, dtype))
                return Value(access, source.magnitude, source.grain)
        return None

    def guarded(self, length: int, scope: tuple[Loop, ...]) -> tuple[Expr, Expr]:
        """An index that may leave its tensor, and the condition under which it does not (a border of zeros)."""
        form = shifted(self.form(scope)[0], self.rng.randint(-2, 1))
        return form, apply("and", apply("ge", form, const(0)), apply("lt", form, const(length)))

    def converted(self, dtype: DType, scope: tuple[Loop, ...]) -> Value | None:
        """A read of a tensor of another dtype, cast."""
        others = list(dict.fromkeys(s.dtype for s in self.sources.values() if s.dtype is not dtype))
        found = self.read(self.rng.choice(others), scope) if others else None
        return None if found is None else self.cast(found, dtype)

    def cast(self, inner: Value, dtype: DType) -> Value:
        source = inner.expr.dtype
        if dtype.is_float and source.is_integer:
            return Value(Cast(dtype, apply("mod", inner.expr, Const(5, source))), 5.0)
        if dtype.is_float and source.is_float:
            # An exact program never casts a value that the narrower type would round in a sum's way of rounding.
            inner = self.tame(inner, source, 4.0)
            return Value(Cast(dtype, inner.expr), inner.magnitude, inner.grain)
        return Value(Cast(dtype, inner.expr), 1.0 if source.is_bool else inner.magnitude)

    def logical(self, a: Value, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        kind = self.rng.random()
        if kind < 0.2:
            return Value(apply("invert", a.expr))
        if kind < 0.6:
            dtype = self.rng.choice(self.pool)
            left, right = self.value(dtype, scope, depth - 1, budget), self.value(dtype, scope, depth - 1, budget)
            return Value(apply(self.rng.choice(("eq", "ne", "lt", "le", "gt", "ge")), left.expr, right.expr))
        b = self.value(dtypes.bool_, scope, depth - 1, budget)
        return Value(apply(self.rng.choice(("and", "or", "xor", "maximum", "minimum")), a.expr, b.expr))

    def integer(self, a: Value, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        rng, dtype = self.rng, a.expr.dtype
        kind = rng.random()
        if kind < 0.25:
            name, right = rng.choice((("floordiv", 3), ("mod", 3), ("pow", 2), ("shift_left", 1), ("shift_right", 2)))
            return Value(apply(name, a.expr, Const(right, dtype)))
        if kind < 0.4:
            return Value(apply(rng.choice(("neg", "abs", "sign", "invert")), a.expr))
        b = self.value(dtype, scope, depth - 1, budget)
        name = rng.choice(("add", "add", "sub", "mul", "maximum", "minimum", "and", "or", "xor", "floordiv", "mod"))
        return Value(apply(name, a.expr, b.expr))

    def floating(self, a: Value, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        rng = self.rng
        kind = rng.random()
        if not self.exact and kind < 0.35:
            return self.smooth(a, dtype)
        if kind < 0.5:
            unary: tuple[str, ...] = ("neg", "abs") if self.differentiable else ("neg", "abs", "sign", "floor", "ceil", "round", "trunc")
            return Value(apply(rng.choice(unary), a.expr), a.magnitude + 1, a.grain)
        if kind < 0.6 and not self.differentiable:
            name, right = rng.choice((("floordiv", 2), ("mod", 3), ("div", 2), ("div", 4)))
            return Value(apply(name, a.expr, Const(right, dtype)), a.magnitude + 3, a.grain + 2)
        b = self.value(dtype, scope, depth - 1, budget)
        name = rng.choice(("add", "add", "sub", "mul", "mul", "mul", "maximum", "minimum"))
        if name == "mul":
            if a.magnitude * b.magnitude * 2.0 ** (a.grain + b.grain) > _LIMIT[dtype]:
                a, b = self.tame(a, dtype, 4.0), self.tame(b, dtype, 4.0)
            return Value(apply(name, a.expr, b.expr), a.magnitude * b.magnitude, a.grain + b.grain)
        if (a.magnitude + b.magnitude) * 2.0 ** max(a.grain, b.grain) > _LIMIT[dtype]:
            a, b = self.tame(a, dtype, 4.0), self.tame(b, dtype, 4.0)
        return Value(apply(name, a.expr, b.expr), a.magnitude + b.magnitude, max(a.grain, b.grain))

    def smooth(self, a: Value, dtype: DType) -> Value:
        """A function that is smooth at every value, which stays moderate."""
        one = Const(1, dtype)
        positive = apply("add", apply("mul", a.expr, a.expr), one)
        bounded = apply("tanh", a.expr)
        unary = [apply(name, a.expr) for name in ("tanh", "sin", "cos", "sigmoid", "erf", "atan")]
        safe = [apply("exp", bounded), apply("div", a.expr, positive), *(apply(name, positive) for name in ("sqrt", "rsqrt", "log"))]
        found = self.rng.choice(unary + safe)
        return Value(found, max(3.0, a.magnitude))

    def tame(self, value: Value, dtype: DType, bound: float) -> Value:
        """The value clipped to +-bound and, but for differentiable programs, rounded down to an integer."""
        if value.magnitude <= bound and value.grain == 0 and dtype.is_float:
            return value
        high = Const(bound, dtype)
        low = Const(-bound if dtype.is_signed else 0, dtype)
        expr: Expr = apply("minimum", apply("maximum", value.expr, low), high)
        return Value(apply("floor", expr) if dtype.is_float and value.grain and self.exact else expr, bound)

    def summable(self, value: Value, dtype: DType, points: int) -> Value:
        if dtype.is_float and value.magnitude * points * 2.0**value.grain > _LIMIT[accumulator(dtype)]:
            return self.tame(value, dtype, 4.0)
        return value

    # ----------------------------------------------------------------------------------------------- reductions

    def reduction_loops(self, scope: tuple[Loop, ...], budget: int, nonempty: bool) -> tuple[tuple[Loop, ...], tuple[Axis, ...]] | None:
        rng = self.rng
        axes: list[Axis] = []
        inner = scope
        for _ in range(rng.choice((1, 1, 1, 2))):
            finite = [loop for loop in inner if loop.high is not None and loop.low >= 0]
            if finite and not nonempty and self.may("dependent", 0.25):
                outer = rng.choice(finite)
                start, stop, low, high = self.dependent(outer)
            elif self.sizes and not nonempty and "symbolic" not in self.without and rng.random() < 0.3:
                start, stop, low, high = const(0), Size(rng.choice(self.sizes)), 0, None
            else:
                length = rng.randint(1 if nonempty or "zero" in self.without or rng.random() < 0.95 else 0, 4)
                low = rng.choice((0, 0, 0, 1, -1)) if length else 0
                start, stop, high = const(low), const(low + length), low + max(0, length - 1)
            extent_bound = 5 if high is None else high - low + 1
            if extent_bound > budget:
                break
            budget //= extent_bound
            found = self.loop(stop, inner)
            found = Loop(found.name, stop, low, high)
            axes.append(Axis(found.name, start, stop))
            inner = (*inner, found)
        return (inner, tuple(axes)) if axes else None

    def dependent(self, outer: Loop) -> tuple[Expr, Expr, int, int]:
        """A triangle, its complement, or a window that ends at the border."""
        i, high = Index(outer.name), outer.high or 0
        match self.rng.randint(0, 2):
            case 0:
                return const(0), apply("add", i, const(1)), 0, high
            case 1:
                return i, const(high + 1), outer.low, high
        return const(0), apply("minimum", const(3), apply("sub", const(high + 1), i)), 0, 2

    def reduce(self, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value | None:
        rng = self.rng
        names = ["sum", "sum", "sum", "max", "min", "prod", "combiner"] if not dtype.is_bool else ["all", "any"]
        if dtype is dtypes.int64:
            names += ["argmax", "argmax"]
        name = rng.choice([n for n in names if n not in self.without] or [""])
        found = self.reduction_loops(scope, min(budget, 3 if name == "prod" else budget), self.differentiable and name in ("max", "min"))
        if not name or found is None:
            return None
        inner, axes = found
        points = max(1, self.points(inner) // max(1, self.points(scope)))
        rest = max(1, budget // points) if "nested" not in self.without else 1
        masked = self.may("mask", 0.2) and not (self.differentiable and name in ("max", "min"))
        where = self.condition(inner) if masked else None
        if name == "argmax":
            value = self.value(rng.choice(self.pool), inner, depth - 1, rest)
            return Value(Reduce(Combiner(rng.choice(("argmax", "argmin"))), (value.expr,), axes, where), points)
        value = self.value(dtype, inner, depth - 1, rest)
        if name == "combiner":
            return self.combined(value, dtype, inner, axes, where, points)
        if name == "sum":
            value = self.summable(value, dtype, points)
        if name == "prod":
            value = self.tame(value, dtype, 2.0)
        magnitude = {"sum": value.magnitude * points, "prod": 2.0 ** max(1, points)}.get(name, value.magnitude)
        return Value(Reduce(Combiner(name), (value.expr,), axes, where), magnitude, value.grain)

    def combined(
        self, value: Value, dtype: DType, inner: tuple[Loop, ...], axes: tuple[Axis, ...], where: Expr | None, points: int
    ) -> Value:
        """A reduction by a combiner of our own: greatest with its position, sum with count, composition of affine maps."""
        rng = self.rng
        value = self.tame(value, dtype, 2.0)
        kind = rng.randint(0, 3)
        second = dtypes.int64 if kind < 2 else dtype
        a0, b0, a1, b1 = Param("a0", dtype), Param("b0", dtype), Param("a1", second), Param("b1", second)
        if kind == 3:
            combiner = Combiner("largest", (a0,), (b0,), (apply("maximum", a0, b0),), (Const(dtype.least, dtype),))
            return Value(Reduce(combiner, (value.expr,), axes, where), 2.0)
        if kind == 0:
            wins = apply("gt", b0, a0)
            results: tuple[Expr, ...] = (apply("where", wins, b0, a0), apply("where", wins, b1, a1))
            identity, values = (Const(dtype.least, dtype), const(0)), (value.expr, Index(axes[-1].index))
        elif kind == 1:
            results = (apply("add", a0, b0), apply("add", a1, b1))
            identity, values = (Const(0, dtype), const(0)), (value.expr, const(1))
        else:
            results = (apply("mul", a0, b0), apply("add", apply("mul", a1, b0), b1))
            factor = self.tame(self.leaf(dtype, inner), dtype, 1.0)
            identity, values = (Const(1, dtype), Const(0, dtype)), (factor.expr, value.expr)
        combiner = Combiner("reduce" if kind else "first_largest", (a0, a1), (b0, b1), results, identity)
        first, other = (Reduce(combiner, values, axes, where, component) for component in (0, 1))
        expr = first if second is not dtype else rng.choice((first, other, apply("sub", first, other)))
        return Value(expr, 4.0 * points)
