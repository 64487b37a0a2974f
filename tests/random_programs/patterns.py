"""What users write: products, convolutions, stencils, poolings, softmaxes, norms, attention, gathers, recurrences, pieces, and
definitions that fit nothing. Each pattern reads what is there or new inputs, so that patterns in a row make chains."""

from __future__ import annotations

from tests.random_programs.values import BORDERS, Values
from tests.random_programs.writer import FLOATS, Loop, Refused, tuple_text


class Patterns(Values):
    """A method for each pattern; `PATTERNS` has them with their weights."""

    # ------------------------------------------------------------------------------------------- definitions at random

    def anything(self) -> None:
        shape = self.shape()
        dtype, scope = self.dtype(), self.loops(shape)
        body = self.value(dtype, scope, self.rng.choice((1, 2, 2, 3)))
        self.note("anything")
        self.define(shape, body, names_of(scope), dtype)

    def elementwise(self) -> None:
        x = self.tensor(self.rng.choice((1, 2, 2, 3)), new=0.2)
        scope = self.loops(x.shape)
        at = ", ".join(loop.name for loop in scope)
        body = f"{x.name}[{at}]"
        for _ in range(self.rng.choice((1, 2, 3))):
            other = self.value(x.dtype, scope, 0)
            kind = self.rng.random()
            if kind < 0.3 and x.dtype in FLOATS:
                body = f"te.{self.rng.choice(('tanh', 'sigmoid', 'abs', 'erf', 'atan'))}({body})"
            elif kind < 0.45:
                body = f"te.maximum({body}, {self.literal(x.dtype)})"
            else:
                body = f"{body} {self.rng.choice('+-*')} {other}"
        self.note("elementwise")
        self.define(x.shape, body, at, x.dtype)

    # ------------------------------------------------------------------------------------------------------ products

    def einsum(self) -> None:
        rng = self.rng
        dtype = self.number()
        letters = self.letters(rng.choice((2, 3, 3, 3, 4, 5)))
        extents = {letter: self.extent() for letter in letters}
        operands = []
        for _ in range(rng.choice((1, 2, 2, 2, 3))):
            chosen = rng.sample(letters, min(len(letters), rng.choice((1, 2, 2, 2, 3))))
            shape = tuple(extents[c] for c in chosen)
            found = [t for t in self.tensors if t.shape == shape and t.dtype == dtype]
            tensor = rng.choice(found) if found and rng.random() < 0.6 else self.placeholder(shape, dtype)
            operands.append((tensor, chosen))
        used = [c for c in letters if any(c in chosen for _, chosen in operands)]
        kept = rng.sample(used, min(len(used), rng.choice((0, 1, 2, 2, 2, 3))))
        summed = rng.sample([c for c in used if c not in kept], len(used) - len(kept))
        terms = [f"{t.name}[{', '.join(chosen)}]" for t, chosen in operands]
        body = " * ".join(terms)
        points = self.points(*(extents[c] for c in used))
        if summed:
            inner = tuple_text(tuple(extents[c] for c in summed)) if len(summed) > 1 else extents[summed[0]]
            body = f"te.sum(lambda {', '.join(summed)}: {body}, {inner})"
        if rng.random() < 0.15:
            body = f"{body} + {self.element(dtype, tuple(Loop(c, extents[c], self.points(extents[c])) for c in kept))}"
        self.note("einsum")
        self.define(tuple(extents[c] for c in kept), body, ", ".join(kept), dtype, points)

    def convolution(self) -> None:
        rng = self.rng
        dtype = self.number()
        stride, dilation, taps = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 2)), rng.choice(("2", "3", "3", "5"))
        if rng.random() < 0.5:
            n, c = self.extent(), self.extent()
            k = rng.choice(("2", "3", "4", "8", self.extent()))
            x, w = self.placeholder((c, n), dtype), self.placeholder((k, c, taps), dtype)
            border = rng.choice((None, *BORDERS))
            place = f"{stride} * i + {dilation} * r" if stride > 1 or dilation > 1 else "i + r"
            shape = (
                (k, f"({n} - {dilation} * ({taps} - 1) - 1) // {stride} + 1")
                if border is None
                else (k, f"({n} + {stride - 1}) // {stride}")
            )
            if self.size(shape[1]) < 0:
                raise Refused("too short")
            read = f"{x.name}[q, {place}]" if border is None else f"{x.name}.read(q, {place} - 1, outside={self.border(border, dtype)})"
            body = f"te.sum(lambda q, r: {read} * {w.name}[o, q, r], ({c}, {taps}))"
            self.note("convolution", *([f"border {border}"] if border else []))
            self.define(shape, body, "o, i", dtype, self.points(*shape, c, taps))
            return
        h, l = self.extent(), self.extent()
        c, k = rng.choice(("1", "2", "3")), rng.choice(("1", "2", "3", "4"))
        x, w = self.placeholder((c, h, l), dtype), self.placeholder((k, c, taps, taps), dtype)
        border = rng.choice((None, "value", *BORDERS))
        if border is None:
            shape = (k, f"({h} - {taps}) // {stride} + 1", f"({l} - {taps}) // {stride} + 1")
            read = f"{x.name}[q, {stride} * i + r, {stride} * j + s]"
        else:
            shape = (k, h, l) if stride == 1 else (k, f"({h} + 1) // {stride}", f"({l} + 1) // {stride}")
            read = f"{x.name}.read(q, {stride} * i + r - 1, {stride} * j + s - 1, outside={self.border(border, dtype)})"
        if min(self.size(e) for e in shape) < 0:
            raise Refused("too short")
        body = f"te.sum(lambda q, r, s: {read} * {w.name}[o, q, r, s], ({c}, {taps}, {taps}))"
        self.note("convolution", *([f"border {border}"] if border else []))
        self.define(shape, body, "o, i, j", dtype, self.points(*shape, c, taps, taps))

    def border(self, border: str, dtype: str) -> str:
        return self.literal(dtype) if border == "value" else f'"{border}"'

    def stencil(self) -> None:
        rng = self.rng
        rank = rng.choice((1, 2, 2))
        x = self.tensor(rank)
        scope = self.loops(x.shape)
        border = rng.choice(BORDERS)
        self.note("stencil", f"border {border}")
        terms = []
        for _ in range(rng.choice((2, 3, 4, 5))):
            forms = []
            for loop in scope:
                shift = rng.choice((0, 0, 1, -1, 2, -2))
                forms.append(f"{loop.name} {'+-'[shift < 0]} {abs(shift)}" if shift else loop.name)
            terms.append(f"{x.name}.read({', '.join(forms)}, outside={self.border(border, x.dtype)})")
        body = terms[0]
        for term in terms[1:]:
            body = f"{body} {rng.choice('++-*')} {term}"
        self.define(x.shape, body, names_of(scope), x.dtype)

    def pooling(self) -> None:
        rng = self.rng
        x = self.tensor(rng.choice((1, 2, 2)))
        window, stride = rng.choice((2, 3)), rng.choice((1, 2, 3))
        names = self.letters(2 * x.rank)
        outer, inner = names[: x.rank], names[x.rank :]
        word = rng.choice(("max", "max", "min", "sum", "argmax"))
        border = rng.choice((None, None, *BORDERS))
        if border is None:
            shape = tuple(f"({e} - {window}) // {stride} + 1" for e in x.shape)
            if any(self.size(e) < 0 for e in shape):
                raise Refused("too short")
            places = [f"{stride} * {i} + {p}" if stride > 1 else f"{i} + {p}" for i, p in zip(outer, inner, strict=True)]
            read = f"{x.name}[{', '.join(places)}]"
        else:
            shape = x.shape
            places = [f"{i} + {p} - 1" for i, p in zip(outer, inner, strict=True)]
            read = f"{x.name}.read({', '.join(places)}, outside={self.border(border, x.dtype)})"
            self.note(f"border {border}")
        windows = tuple_text((str(window),) * x.rank) if x.rank > 1 else str(window)
        self.note("pooling", f"te.{word}")
        self.define(
            shape,
            f"te.{word}(lambda {', '.join(inner)}: {read}, {windows})",
            ", ".join(outer),
            x.dtype,
            self.points(*shape) * window**x.rank,
        )

    # --------------------------------------------------------------------------------------------------------- rows

    def softmax(self) -> None:
        rng = self.rng
        x = self.tensor(2, self.floating())
        n, m = x.shape
        self.note("softmax")
        along = rng.random() < 0.7
        at, other = (f"{x.name}[i, j]", f"{x.name}[i, k]") if along else (f"{x.name}[i, j]", f"{x.name}[k, j]")
        length, rows, row = (m, n, "i") if along else (n, m, "j")
        if rng.random() < 0.5:
            top = self.define((rows,), f"te.max(lambda k: {other}, {length})", row, x.dtype, self.points(n, m))
            e = self.define((n, m), f"te.exp({at} - {top.name}[{row}])", "i, j", x.dtype)
            sums = f"{e.name}[i, k]" if along else f"{e.name}[k, j]"
            if rng.random() < 0.5:
                s = self.define((rows,), f"te.sum(lambda k: {sums}, {length})", row, x.dtype, self.points(n, m))
                self.define((n, m), f"{e.name}[i, j] / {s.name}[{row}]", "i, j", x.dtype)
            else:
                self.define((n, m), f"{e.name}[i, j] / te.sum(lambda k: {sums}, {length})", "i, j", x.dtype, self.points(n, m, length))
            return
        body = f"te.log(te.sum(lambda k: te.exp({other}), {length}) + 1)"
        self.define((rows,), body, row, x.dtype, self.points(n, m))

    def norm(self) -> None:
        rng = self.rng
        x = self.tensor(rng.choice((2, 2, 3)), self.floating())
        lead, m = x.shape[:-1], x.shape[-1]
        if "casts" in self.options.without and x.dtype != "float64":
            raise Refused("an extent as a number")
        scope = self.loops(lead)
        rows = names_of(scope)
        self.note("norm")
        length = f'te.cast({m} + 1, "{x.dtype}")' if m in self.open else f"{max(1, self.size(m))}"
        mean = self.define(lead, f"te.sum(lambda z: {x.name}[{rows}, z], {m}) / {length}", rows, x.dtype, self.points(*x.shape))
        square = f"({x.name}[{rows}, z] - {mean.name}[{rows}]) ** 2"
        var = self.define(lead, f"te.sum(lambda z: {square}, {m}) / {length}", rows, x.dtype, self.points(*x.shape))
        body = f"({x.name}[{rows}, z] - {mean.name}[{rows}]) * te.rsqrt({var.name}[{rows}] + 0.5)"
        if rng.random() < 0.6:
            g = self.placeholder((m,), x.dtype)
            body = f"{body} * {g.name}[z]"
        self.define(x.shape, body, f"{rows}, z", x.dtype)

    def attention(self) -> None:
        dtype = self.floating()
        n, m, d = self.extent(), self.extent(), self.rng.choice(("2", "3", "4", "8", self.extent()))
        if self.points(n, m, d) > self.room // 3:
            raise Refused("too many points")
        q, k, v = self.placeholder((n, d), dtype), self.placeholder((m, d), dtype), self.placeholder((m, d), dtype)
        self.note("attention")
        masked = self.rng.random() < 0.4
        score = f"te.sum(lambda r: {q.name}[i, r] * {k.name}[j, r], {d}) * 0.25"
        s = self.define((n, m), f"te.where(j <= i, {score}, -9.0)" if masked else score, "i, j", dtype, self.points(n, m, d))
        top = self.define((n,), f"te.max(lambda j: {s.name}[i, j], {m})", "i", dtype, self.points(n, m))
        e = self.define((n, m), f"te.exp({s.name}[i, j] - {top.name}[i])", "i, j", dtype)
        total = self.define((n,), f"te.sum(lambda j: {e.name}[i, j], {m})", "i", dtype, self.points(n, m))
        self.define(
            (n, d), f"te.sum(lambda j: {e.name}[i, j] * {v.name}[j, r], {m}) / (1 + {total.name}[i])", "i, r", dtype, self.points(n, m, d)
        )

    def total(self) -> None:
        """A reduction over some axes of a tensor, under a condition perhaps."""
        rng = self.rng
        x = self.tensor(rng.choice((1, 2, 2, 3)))
        scope = self.loops(x.shape)
        kept = [loop for loop in scope if rng.random() < 0.4]
        summed = [loop for loop in scope if loop not in kept]
        if not summed:
            raise Refused("nothing to sum")
        word = rng.choice(("sum", "sum", "sum", "max", "min", "prod", "argmax", "argmin"))
        if word in self.options.without:
            word = "sum"
        read = f"{x.name}[{names_of(scope)}]"
        body = read if rng.random() < 0.5 else f"{read} * {self.element(x.dtype, scope)}"
        if word == "prod":
            body = f"te.clip({body}, {0 if x.dtype.startswith('u') else -1}, 1)" if x.dtype not in FLOATS else f"1 + 0.1 * te.tanh({body})"
        where = ""
        if self.chance("mask", 0.35):
            where = f", where=lambda {names_of(tuple(summed))}: {self.condition(scope)}"
            self.note("reduction where")
        self.note("total", f"te.{word}")
        extents = tuple_text(tuple(loop.stop or "1" for loop in summed)) if len(summed) > 1 else summed[0].stop
        text = f"te.{word}(lambda {names_of(tuple(summed))}: {body}, {extents}{where})"
        self.define(tuple(loop.stop or "1" for loop in kept), text, names_of(tuple(kept)), x.dtype, self.points(*x.shape))

    def folded(self) -> None:
        """A reduction by a combiner of the user's own along the last axis."""
        x = self.tensor(self.rng.choice((1, 2, 2)))
        if self.points(*x.shape) > 60_000 or self.size(x.shape[-1]) > 400:
            raise Refused("a long fold")
        scope = self.loops(x.shape)
        lead, last = scope[:-1], scope[-1]
        body = f"{x.name}[{names_of(scope)}]"
        if self.rng.random() < 0.4:
            body = f"te.where({self.condition(scope)}, {body}, {self.literal(x.dtype)})"
        where = ""
        if self.chance("mask", 0.3):
            where = f", where=lambda {last.name}: {self.condition(scope)}"
            self.note("reduction where")
        extent = last.stop or "1"
        if lead and self.chance("dependent", 0.2):
            extent = f"te.minimum({lead[-1].name} + 1, {extent})"
            self.note("dependent extent")
        text = self.combined(x.dtype, body, last.name, extent, where, scope)
        self.note("folded", "te.reduce")
        self.define(x.shape[:-1], text, names_of(lead), x.dtype, self.points(*x.shape))

    def prefix(self) -> None:
        rng = self.rng
        self.need("dependent")
        x = self.tensor(rng.choice((1, 2)))
        word = rng.choice(("sum", "sum", "max", "min", "prod"))
        if word in self.options.without:
            word = "sum"
        n = x.shape[-1]
        if self.size(n) > 1500:
            raise Refused("a long prefix")
        rows = self.loops(x.shape[:-1])
        lead = "".join(f"{loop.name}, " for loop in rows)
        read = f"{x.name}[{lead}q]"
        if word == "prod" and x.dtype in FLOATS:
            read = f"(1 + 0.1 * te.tanh({read}))"
        extent = rng.choice(("z + 1", "z", f"{n} - z"))
        read = read if extent != f"{n} - z" else read.replace("q]", "z + q]")
        self.note("prefix", "dependent extent", f"te.{word}")
        self.define(x.shape, f"te.{word}(lambda q: {read}, {extent})", f"{lead}z", x.dtype, self.points(*x.shape, n) // 2)

    # ------------------------------------------------------------------------------------------------------- layouts

    def reshape(self) -> None:
        rng = self.rng
        x = self.tensor(2)
        n, m = x.shape
        kind = rng.randrange(5)
        self.note("reshape")
        if kind == 0:
            self.define((f"({n}) * ({m})",), f"{x.name}[f // ({m}), f % ({m})]", "f", x.dtype)
        elif kind == 1:
            self.define((m, n), f"{x.name}[j, i]", "i, j", x.dtype)
        elif kind == 2:
            self.define(
                (f"2 * ({n})", m), f"{x.name}[i // 2, j] * (i % 2 + 1)" if x.dtype == "int64" else f"{x.name}[i // 2, j]", "i, j", x.dtype
            )
        elif kind == 3:
            y = self.tensor(1)
            blocks = rng.choice((2, 3, 4))
            last = f"({y.shape[0]}) // {blocks}"
            self.define((last, str(blocks)), f"{y.name}[i * {blocks} + j]", "i, j", y.dtype)
        else:
            self.define((f"({n} + 1) // 2", m), f"{x.name}[{'2 * i'}, {m} - 1 - j]", "i, j", x.dtype)

    def pieces(self) -> None:
        rng = self.rng
        x = self.tensor(rng.choice((1, 2)))
        y = self.tensor(x.rank, x.dtype)
        scope = self.loops(x.shape)
        rest = names_of(scope[1:])
        self.note("pieces", "where")
        if rng.random() < 0.5 and all(a == b for a, b in zip(x.shape[1:], y.shape[1:], strict=True)):
            n, m = x.shape[0], y.shape[0]
            tail = f", {rest}" if rest else ""
            body = f"te.where(i < {n}, {x.name}[i{tail}], {y.name}[i - ({n}){tail}])"
            self.define((f"({n}) + ({m})", *x.shape[1:]), body, f"i{tail}", x.dtype)
            return
        body = self.value(x.dtype, scope, 1)
        for _ in range(rng.choice((1, 2, 2))):
            body = f"te.where({self.condition(scope)}, {self.value(x.dtype, scope, 1)}, {body})"
        self.define(x.shape, body, names_of(scope), x.dtype)

    def twins(self) -> None:
        """Several piecewise definitions over one box, that are computed side by side."""
        rng = self.rng
        shape = self.shape(rng.choice((1, 2, 2)))
        dtype, scope = self.number(), self.loops(shape)
        condition = self.condition(scope)
        self.note("twins", "where")
        for _ in range(rng.choice((2, 2, 3))):
            kind = rng.random()
            inside = self.value(dtype, scope, 1)
            body = f"te.where({condition}, {inside}, {self.literal(dtype)})" if kind < 0.6 else inside
            self.define(shape, body, names_of(scope), dtype)

    # ------------------------------------------------------------------------------------------------------ data places

    def gather(self) -> None:
        rng = self.rng
        w = self.tensor(rng.choice((1, 2, 2, 3)))
        count = self.extent()
        keys = self.picks((count,), w.shape[0])
        rest = self.loops(w.shape[1:], (Loop("t", count, 1),))
        at = "".join(f", {loop.name}" for loop in rest)
        self.note("gather", "checked data index")
        shape = (count, *w.shape[1:])
        kind = rng.random()
        if kind < 0.35:
            self.define(shape, f"{w.name}[{keys.name}[t]{at}]", f"t{at}", w.dtype)
        elif kind < 0.6:
            wide = rng.choice((2, 3))
            table = self.picks((count, str(wide)), w.shape[0])
            if rng.random() < 0.5:
                self.define(
                    shape, f"te.sum(lambda z: {w.name}[{table.name}[t, z]{at}], {wide})", f"t{at}", w.dtype, self.points(*shape) * wide
                )
            else:
                terms = " * ".join(f"{w.name}[{table.name}[t, {k}]{at}]" for k in range(wide))
                self.define(shape, terms, f"t{at}", w.dtype)
            self.note("data index in a reduction")
        elif kind < 0.8:
            self.define(shape, f"{w.name}[{keys.name}[t]{at}] - {w.name}[0{at}]", f"t{at}", w.dtype)
        else:
            text = f"te.where({self.condition((Loop('t', count, 2),))}, {w.name}[{keys.name}[t]{at}], {self.literal(w.dtype)})"
            self.note("data index in a where")
            self.define(shape, text, f"t{at}", w.dtype)

    def scatter(self) -> None:
        rng = self.rng
        self.need("scatter")
        x = self.tensor(rng.choice((1, 2, 2)))
        scope = self.loops(x.shape)
        combine = rng.choice(("sum", "sum", "sum", "max", "min", "prod"))
        if combine in self.options.without:
            combine = "sum"
        target = tuple(self.extent() for _ in range(rng.choice((0, 1, 1, 2))))
        if self.points(*target) > self.options.points:
            raise Refused("too many points")
        places = [
            self.picked(e, scope) if "data" not in self.options.without and rng.random() < 0.6 else self.index(e, scope) for e in target
        ]
        places = ["i" if rng.random() < 0.2 and e == x.shape[0] else p for p, e in zip(places, target, strict=True)]
        value = f"{x.name}[{names_of(scope)}]" if rng.random() < 0.5 else self.value(x.dtype, scope, 1)
        if combine == "prod" and x.dtype in FLOATS:
            value = f"1 + 0.1 * te.tanh({value})"
        where = ""
        if self.chance("mask", 0.4):
            where = f", where=lambda {names_of(scope)}: {self.condition(scope)}"
            self.note("scatter where")
        self.note("scatter", f"scatter {combine}")
        if any("K" in p for p in places):
            self.note("data index in a scatter")
        self.spend(self.points(*x.shape))
        name = self.fresh("T")
        body = f"lambda {names_of(scope)}: ({tuple_text(tuple(places))}, {value})"
        self.statement(
            f'{name} = te.scatter({tuple_text(target)}, {body}, {tuple_text(x.shape)}, combine="{combine}"{where}, name="{name}")'
        )
        self.made(name, target)

    def rows_by_data(self) -> None:
        """Rows of a compressed matrix: extents that are data."""
        self.need("data")
        n, m, k = self.extent(), self.extent(), self.extent()
        dtype = self.number()
        p = self.placeholder((f"{n} + 1",), "int64", m)
        cols, v, x = self.placeholder((m,), "int32", k), self.placeholder((m,), dtype), self.placeholder((k,), dtype)
        self.note("rows by data", "extent that is data", "data index in a reduction")
        low, high = f"te.minimum({p.name}[i], {p.name}[i + 1])", f"te.maximum({p.name}[i], {p.name}[i + 1])"
        at = f"te.minimum({low} + z, {m} - 1)"
        body = f"te.sum(lambda z: {v.name}[{at}] * {x.name}[{cols.name}[{at}]], {high} - {low})"
        self.define((n,), body, "i", dtype, self.points(n, m))

    def sampled(self) -> None:
        """Reads between elements, at places that are computed."""
        self.need("data")
        dtype = "float32" if "float32" in self.dtypes else "float64"
        if dtype not in self.dtypes or "step" in self.options.without:
            raise Refused("no floats")
        x = self.tensor(1, dtype)
        g = self.placeholder((self.extent(),), dtype)
        n = x.shape[0]
        self.note("sampled", "clipped data index")
        at = f'te.cast(te.floor({g.name}[i] * 2), "int64")'
        low = f"{x.name}[te.clip({at}, 0, {n} - 1)]"
        high = f"{x.name}[te.clip({at} + 1, 0, {n} - 1)]"
        self.define(g.shape, f"{low} + ({g.name}[i] - te.floor({g.name}[i])) * ({high} - {low})", "i", dtype)

    # --------------------------------------------------------------------------------------------------------- scans

    def scan(self) -> None:
        rng = self.rng
        self.need("scan")
        dtype = self.floating() if rng.random() < 0.8 else self.number()
        n = self.extent() if rng.random() < 0.5 else rng.choice(("0", "1", "3", "4", "7"))
        m = self.extent() if rng.random() < 0.8 else None
        if self.size(n) > 60 or self.points(n, m or "1") * 8 > self.room:
            raise Refused("a long scan")
        state = () if m is None else (m,)
        init = self.placeholder(state, dtype)
        checkpoint = (
            rng.choice(("", "", ", checkpoint=2", ', checkpoint="sqrt"', ", checkpoint=3"))
            if "checkpoint" not in self.options.without
            else ""
        )
        x = self.tensor(2, dtype) if rng.random() < 0.4 else self.placeholder((n, m) if m else (n,), dtype)
        scope = (Loop("t", n, 1), *(Loop("i", e, 1) for e in state))
        at = "s[i]" if m else "s[()]"
        if m and rng.random() < 0.3:
            at = rng.choice(
                (f"s[{m} - 1 - i]", f"te.sum(lambda q: s[q], {m}) * 0.1" if dtype in FLOATS else "s[i]", 's.read(i - 1, outside="clamp")')
            )
        read = self.read(x, scope)
        if rng.random() < 0.3:
            read = f"te.where({self.condition(scope)}, {read}, {self.literal(dtype)})"
        step = f"te.tanh({at} * 0.5 + {read})" if dtype in FLOATS and rng.random() < 0.6 else f"{at} + {read}"
        body = f"te.compute({tuple_text(state)}, lambda{' i' if m else ''}: {step})"
        self.note("scan", *(["checkpoint"] if checkpoint else []))
        self.spend(self.points(n, m or "1") * 4)
        name = self.fresh("T")
        self.statement(f'{name} = te.scan(lambda t, s: {body}, {init.name}, {n}{checkpoint}, name="{name}")')
        self.made(name, (n, *state))

    # ---------------------------------------------------------------------------------------------------- reductions inside

    def under_a_condition(self) -> None:
        """Reductions in reductions under a condition that guards what they read."""
        rng = self.rng
        shape = self.shape(rng.choice((1, 1, 2)))
        dtype, scope = self.floating(), self.loops(shape)
        w = self.placeholder((rng.choice(("3", "2", self.extent())), rng.choice(("4", self.extent()))), dtype)
        h = self.tensor(1, dtype)
        i = scope[0].name if scope else "0"
        inner, outer = rng.choice(("max", "sum", "prod", "min")), rng.choice(("sum", "sum", "max"))
        core = f"te.{inner}(lambda u: {w.name}[{i}, u] * {h.name}[v], {w.shape[1]})"
        if inner in self.options.without or outer in self.options.without:
            raise Refused("left out")
        if inner == "prod":
            core = f"te.prod(lambda u: 1 + 0.1 * te.tanh({w.name}[{i}, u] * {h.name}[v]), {w.shape[1]})"
        text = f"te.where({i} < {w.shape[0]}, te.{outer}(lambda v: {core}, {h.shape[0]}), {self.literal(dtype)})"
        self.note("nested reduction", "reduction under a condition", "where")
        self.define(shape, f"{text} + {self.value(dtype, scope, 0)}", names_of(scope), dtype, self.points(*shape, *w.shape[1:], *h.shape))

    def winner(self) -> None:
        rng = self.rng
        x = self.tensor(2)
        n, m = x.shape
        word = rng.choice(("argmax", "argmin"))
        place = self.define((n,), f"te.{word}(lambda k: {x.name}[i, k], {m})", "i", "int64", self.points(n, m))
        self.note("winner", f"te.{word}", "data index in a where")
        if self.size(m) and rng.random() < 0.6:
            self.define((n,), f"{x.name}[i, te.clip({place.name}[i], 0, {m} - 1)]", "i", x.dtype)

    def distances(self) -> None:
        rng = self.rng
        dtype = self.floating()
        n, m, d = self.extent(), self.extent(), rng.choice(("2", "3", "4"))
        x, y = self.placeholder((n, d), dtype), self.placeholder((m, d), dtype)
        square = f"te.sum(lambda r: ({x.name}[i, r] - {y.name}[j, r]) ** 2, {d})"
        self.note("distances")
        if rng.random() < 0.5:
            v = self.placeholder((m,), dtype)
            self.define((n,), f"te.sum(lambda j: te.exp(-0.1 * {square}) * {v.name}[j], {m})", "i", dtype, self.points(n, m, d))
        else:
            s = self.define((n, m), f"te.sqrt({square} + 1)", "i, j", dtype, self.points(n, m, d))
            self.define((n,), f"te.min(lambda j: {s.name}[i, j], {m})", "i", dtype, self.points(n, m))

    def write(self, count: int) -> None:
        """Some patterns in a row."""
        allowed = [(maker, weight) for maker, weight in PATTERNS.items() if maker.__name__ not in self.options.without]
        self.tries([maker.__get__(self) for maker, _ in allowed], [weight for _, weight in allowed], count)


def names_of(scope: tuple[Loop, ...]) -> str:
    return ", ".join(loop.name for loop in scope)


PATTERNS = {
    Patterns.anything: 10, Patterns.elementwise: 6, Patterns.einsum: 9, Patterns.convolution: 5, Patterns.stencil: 5, Patterns.pooling: 4,
    Patterns.softmax: 4, Patterns.norm: 3, Patterns.attention: 2, Patterns.total: 5, Patterns.prefix: 3, Patterns.reshape: 4,
    Patterns.pieces: 5, Patterns.twins: 4, Patterns.gather: 5, Patterns.scatter: 5, Patterns.rows_by_data: 1, Patterns.sampled: 1,
    Patterns.folded: 3, Patterns.scan: 3, Patterns.under_a_condition: 2, Patterns.winner: 2, Patterns.distances: 3,
}  # fmt: skip
