"""Random expressions as text: values of a dtype, conditions, indices that stay inside, reads in every way, reductions."""

from __future__ import annotations

from tests.random_programs.writer import FLOATS, Loop, Refused, Tensor, Writer

BORDERS = ("clamp", "reflect", "symmetric", "wrap", "value")
_UNARY = ("tanh", "sin", "cos", "sigmoid", "erf", "atan", "exp2", "expm1", "sinh", "cosh", "log1p")
_LOGIC = ("&", "|", "^")


class Values(Writer):
    """The writer of expressions; `scope` is what indices are there."""

    # ----------------------------------------------------------------------------------------------------- indices

    def affine(self, scope: tuple[Loop, ...]) -> str:
        """A sum of few loops with small factors, that may leave anything."""
        rng = self.rng
        terms = []
        for loop in rng.sample(scope, min(len(scope), rng.choice((1, 1, 1, 2)))):
            factor = rng.choice((1, 1, 1, 1, 2, 2, 3, -1))
            terms.append(loop.name if factor == 1 else f"{factor} * {loop.name}")
        shift = rng.choice((0, 0, 1, -1, 2, -2, 3))
        if shift or not terms:
            terms.append(str(abs(shift)) if shift >= 0 else f"-{-shift}")
        text = " + ".join(terms).replace("+ -", "- ")
        if scope and rng.random() < 0.12:
            self.note("divmod index")
            text = f"({text}) // {rng.choice((2, 3))}" if rng.random() < 0.5 else f"({text}) % {rng.choice((2, 3, 5))}"
        return text

    def picked(self, below: str, scope: tuple[Loop, ...]) -> str:
        """An element of an index array that stays below an extent."""
        self.need("data")
        rng = self.rng
        fixed = [loop for loop in scope if loop.stop is not None]
        if not fixed:
            raise Refused("nothing to pick by")
        loops = rng.sample(fixed, min(len(fixed), rng.choice((1, 1, 1, 2))))
        keys = self.picks(tuple(loop.stop or "1" for loop in loops), below)
        return f"{keys.name}[{', '.join(loop.name for loop in loops)}]"

    def index(self, extent: str, scope: tuple[Loop, ...], data: bool = True) -> str:
        """An index that stays below an extent (if that is not empty)."""
        rng = self.rng
        same = [loop.name for loop in scope if loop.stop == extent]
        if same and rng.random() < 0.6:
            return rng.choice(same)
        if same and rng.random() < 0.25:
            self.note("reversed")
            return f"{extent} - 1 - {rng.choice(same)}"
        if data and scope and self.chance("data", 0.2):
            text = self.picked(extent, scope)
            kind = rng.random()
            if kind < 0.25:
                self.note("clipped data index")
                return f"te.clip({text} + {rng.choice((0, 1, -1))}, 0, {extent} - 1)"
            if kind < 0.4:
                return f"({text} + {rng.choice((1, 2))}) % ({extent})"
            self.note("checked data index")
            return text
        form = self.affine(scope)
        if rng.random() < 0.5:
            self.note("clamped index")
            return f"te.clip({form}, 0, {extent} - 1)"
        self.note("modulo index")
        return f"({form}) % ({extent})"

    # ------------------------------------------------------------------------------------------------------- reads

    def read(self, tensor: Tensor, scope: tuple[Loop, ...]) -> str:
        """An element of a tensor, in one of the ways in which users reach it."""
        rng = self.rng
        if not tensor.shape:
            return f"{tensor.name}[()]"
        kind = rng.random()
        if scope and kind < 0.3 and "border" not in self.options.without:
            border = rng.choice(BORDERS)
            self.note(f"border {border}")
            forms = []
            for extent in tensor.shape:
                same = [loop.name for loop in scope if loop.stop == extent]
                if same and rng.random() < 0.7:
                    shift = rng.choice((0, 1, -1, 1, -1, 2, -2))
                    forms.append(f"{rng.choice(same)} {'+-'[shift < 0]} {abs(shift)}" if shift else rng.choice(same))
                elif "data" not in self.options.without and rng.random() < 0.1:
                    forms.append(f"{self.picked(extent, scope)} + {rng.choice((0, 1))}")
                    self.note("data index at a border")
                else:
                    forms.append(self.affine(scope))
            outside = self.literal(tensor.dtype) if border == "value" else f'"{border}"'
            return f"{tensor.name}.read({', '.join(forms)}, outside={outside})"
        if scope and kind < 0.42:
            at = rng.randrange(tensor.rank)
            form = self.affine(scope)
            others = [self.index(e, scope) if k != at else form for k, e in enumerate(tensor.shape)]
            self.note("guarded read")
            access = f"{tensor.name}[{', '.join(others)}]"
            return f"te.where(({form} >= 0) & ({form} < {tensor.shape[at]}), {access}, {self.literal(tensor.dtype)})"
        return f"{tensor.name}[{', '.join(self.index(e, scope) for e in tensor.shape)}]"

    def cast(self, text: str, source: str, target: str) -> str:
        if source == target:
            return text
        self.note("cast")
        return f'te.cast({text}, "{target}")'

    def element(self, dtype: str, scope: tuple[Loop, ...]) -> str:
        """A read of some tensor, in this dtype."""
        rng = self.rng
        found = [t for t in self.tensors if t.below is None]
        own = [t for t in found if t.dtype == dtype]
        fitting = [t for t in own if all(any(loop.stop == e for loop in scope) for e in t.shape)]
        kind = rng.random()
        if fitting and kind < 0.55:
            tensor = rng.choice(fitting[-3:])
        elif own and kind < 0.85:
            tensor = rng.choice(own)
        elif found and kind < 0.92 and "casts" not in self.options.without:
            tensor = rng.choice(found)
        else:
            stops = [loop.stop for loop in scope if loop.stop is not None]
            if stops and rng.random() < 0.7:
                shape = tuple(rng.sample(stops, min(len(stops), rng.choice((1, 2, 2)))))
                if self.points(*shape) > 4 * self.options.points:
                    raise Refused("too large")
            else:
                shape = self.shape()
            tensor = self.constant(dtype) if self.chance("constant", 0.08) else self.placeholder(shape, dtype)
        text = self.read(tensor, scope)
        if tensor.dtype != dtype and dtype in FLOATS and tensor.dtype not in (*FLOATS, "bool"):
            text = f"{text} % 5"
        return self.cast(text, tensor.dtype, dtype)

    def literal(self, dtype: str) -> str:
        rng = self.rng
        if dtype == "bool":
            return rng.choice(("True", "False"))
        if dtype in FLOATS:
            return rng.choice(("0.0", "1.0", "2.0", "0.5", "-1.5", "3.0", "-0.0"))
        return rng.choice(("0", "1", "2", "3") if dtype.startswith("u") else ("0", "1", "2", "-1", "3"))

    # ---------------------------------------------------------------------------------------------------- conditions

    def condition(self, scope: tuple[Loop, ...], depth: int = 1) -> str:
        """A condition on indices, sometimes on data."""
        rng = self.rng
        if depth and rng.random() < 0.25:
            one, other = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            return f"({one}) {rng.choice('&|')} ({other})"
        if not scope:
            return f"{self.element(self.number(), scope)} > 0"
        loop = rng.choice(scope)
        kind = rng.random()
        if kind < 0.22:
            bound = loop.stop if loop.stop is not None and rng.random() < 0.5 else str(rng.choice((0, 1, 2, 3, 5, 8)))
            return f"{self.affine(scope)} {rng.choice(('<', '<=', '>', '>=', '!='))} {bound}"
        if kind < 0.4:
            return f"{loop.name} {rng.choice(('<', '<=', '>', '==', '!='))} {rng.choice((0, 1, 1, 2, 3, 7))}"
        if kind < 0.6 and len(scope) > 1:
            one, other = rng.sample(scope, 2)
            self.note("condition on two indices")
            return f"{one.name} {rng.choice(('<', '<=', '>', '>=', '!='))} {other.name}"
        if kind < 0.7:
            return f"{loop.name} % {rng.choice((2, 3, 4))} == {rng.choice((0, 1))}"
        if kind < 0.78 and self.chance("data", 0.7):
            self.note("condition on an index array")
            return f"{self.picked(rng.choice(list(self.extents)), scope)} {rng.choice(('<', '>', '=='))} {rng.choice((0, 1, 2))}"
        self.note("condition on data")
        return f"{self.element(self.number(), scope)} {rng.choice(('>', '<', '>=', '!='))} {rng.choice(('0', '1'))}"

    # ---------------------------------------------------------------------------------------------------- expressions

    def value(self, dtype: str, scope: tuple[Loop, ...], depth: int = 2, nested: int = 2) -> str:
        """An expression of this dtype; `nested` bounds how deep reductions stand in each other."""
        rng = self.rng
        if dtype == "bool":
            return self.logical(scope, depth, nested)
        kind = rng.random()
        if depth <= 0:
            if kind < 0.82:
                return self.element(dtype, scope)
            if kind < 0.92 and scope:
                self.note("index as a value")
                return f'te.cast({rng.choice(scope).name} % 7, "{dtype}")'
            return f'te.cast({self.literal(dtype)}, "{dtype}")'
        if kind < 0.2 and nested and "reduction" not in self.options.without:
            try:
                return self.reduction(dtype, scope, depth - 1, nested - 1)
            except Refused:
                pass
        if kind < 0.35:
            self.note("where")
            text = f"te.where({self.condition(scope)}, {self.value(dtype, scope, depth - 1, nested)}, "
            return f"{text}{self.value(dtype, scope, depth - 1, nested) if rng.random() < 0.6 else self.literal(dtype)})"
        return self.floating_value(dtype, scope, depth, nested) if dtype in FLOATS else self.integer(dtype, scope, depth, nested)

    def floating_value(self, dtype: str, scope: tuple[Loop, ...], depth: int, nested: int) -> str:
        rng = self.rng
        a = self.value(dtype, scope, depth - 1, nested)
        kind = rng.random()
        if kind < 0.2:
            name = rng.choice((*_UNARY[:6], "exp", "sqrt", "rsqrt", "log", "abs", "square", "neg", rng.choice(_UNARY)))
            self.note("function")
            match name:
                case "sqrt" | "rsqrt" | "log":
                    return f"te.{name}({a} * {a} + 1)" if len(a) < 60 else f"te.{name}(te.abs({a}) + 1)"
                case "exp" | "exp2" | "expm1" | "sinh" | "cosh":
                    return f"te.{name}(te.clip({a}, -3, 3))"
                case "log1p":
                    return f"te.log1p(te.abs({a}))"
                case "neg":
                    return f"-({a})"
            return f"te.{name}({a})"
        if kind < 0.28:
            if "step" not in self.options.without and rng.random() < 0.5:
                self.note("step function")
                step = rng.choice(("te.floor({})", "te.ceil({})", "te.round({})", "te.trunc({})", "te.sign({})", "({}) // 2", "({}) % 3"))
                return step.format(a)
            return f"te.clip({a}, -2, {rng.choice((1, 2))})"
        if kind < 0.34:
            return f"({a}) {rng.choice(('** 2', '* 0.5', '/ 2', '- 1', '+ 1'))}"
        b = self.value(dtype, scope, depth - 1, nested)
        if kind < 0.4:
            self.note("division")
            return f"({a}) / (1 + te.abs({b}))"
        if kind < 0.5:
            return f"te.{rng.choice(('maximum', 'minimum'))}({a}, {b})"
        return f"({a}) {rng.choice('+-***')} ({b})"

    def integer(self, dtype: str, scope: tuple[Loop, ...], depth: int, nested: int) -> str:
        rng = self.rng
        a = self.value(dtype, scope, depth - 1, nested)
        kind = rng.random()
        if kind < 0.3:
            return f"({a}) {rng.choice(('// 3', '% 3', '% 5', '<< 1', '>> 2', '* 2', '+ 1', '** 2'))}"
        if kind < 0.4:
            return f"te.{rng.choice(('abs', 'sign'))}({a})" if rng.random() < 0.7 else f"~({a})"
        b = self.value(dtype, scope, depth - 1, nested)
        if kind < 0.55:
            return f"te.{rng.choice(('maximum', 'minimum'))}({a}, {b})"
        return f"({a}) {rng.choice(('+', '-', '*', '+', '*', '&', '|', '^', '//', '%'))} ({b})"

    def logical(self, scope: tuple[Loop, ...], depth: int, nested: int) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.2 and depth > 0 and nested:
            extents, where, inner = self.domain(scope)
            self.note("all or any")
            names = ", ".join(loop.name for loop in inner[len(scope) :])
            return f"te.{rng.choice(('all', 'any'))}(lambda {names}: {self.condition(inner)}, {extents}{where})"
        if kind < 0.6 or depth <= 0:
            return f"({self.condition(scope)})"
        if kind < 0.7:
            return f"~{self.logical(scope, depth - 1, nested)}"
        dtype = self.number()
        one, other = (self.value(dtype, scope, depth - 1, nested) for _ in range(2))
        return f"(({one}) {rng.choice(('<', '<=', '>', '==', '!='))} ({other}))"

    # ----------------------------------------------------------------------------------------------------- reductions

    def domain(self, scope: tuple[Loop, ...], nonempty: bool = False, fixed: bool = False) -> tuple[str, str, tuple[Loop, ...]]:
        """Extents of a reduction, its `where=`, and the scope inside."""
        rng = self.rng
        inner = scope
        extents: list[str] = []
        around = max(1, _product(scope))
        for _ in range(rng.choice((1, 1, 1, 2))):
            (name,) = self.letters(1, inner)
            outer = [loop for loop in scope if loop.most > 1]
            if outer and not fixed and self.chance("dependent", 0.2):
                loop = rng.choice(outer)
                forms = [f"{loop.name} + 1", loop.name, f"te.minimum({loop.name} + 1, 3)", f"te.maximum({loop.name} - 1, 0)"]
                if loop.stop is not None:
                    forms += [f"{loop.stop} - {loop.name}", f"te.minimum(3, {loop.stop} - {loop.name})"]
                extents.append(rng.choice(forms))
                self.note("dependent extent")
                inner = (*inner, Loop(name, None, loop.most))
            elif scope and not fixed and self.chance("data", 0.04):
                bound = rng.choice(list(self.extents))
                extents.append(f"te.minimum({self.picked(bound, scope)}, {bound})")
                self.note("extent that is data")
                inner = (*inner, Loop(name, None, max(1, self.size(bound))))
            else:
                extent = self.extent() if rng.random() < 0.7 else rng.choice(("2", "3", "4", "1", "5"))
                if around * self.points(extent) > max(self.room, 16):
                    extent = rng.choice(("2", "3"))
                extents.append(extent)
                inner = (*inner, Loop(name, extent, self.points(extent)))
            around = _product(inner)
        self.spend(around // 2)
        where = ""
        if not nonempty and self.chance("mask", 0.25):
            names = ", ".join(loop.name for loop in inner[len(scope) :])
            where = f", where=lambda {names}: {self.condition(inner)}"
            self.note("reduction where")
        return (extents[0] if len(extents) == 1 else f"({', '.join(extents)})"), where, inner

    def reduction(self, dtype: str, scope: tuple[Loop, ...], depth: int, nested: int) -> str:
        """A reduction whose value has this dtype."""
        rng = self.rng
        name = rng.choice(("sum", "sum", "sum", "sum", "max", "min", "prod", "argmax", "argmin", "reduce"))
        if name in self.options.without or (name.startswith("arg") and dtype in FLOATS and "casts" in self.options.without):
            name = "sum"
        extents, where, inner = self.domain(scope, fixed=name.startswith("arg"))
        names = ", ".join(loop.name for loop in inner[len(scope) :])
        if nested == 0 or depth <= 0:
            body = self.value(dtype, inner, max(0, depth), 0)
        else:
            body = self.value(dtype, inner, depth, nested)
        if "te.sum(" in body or "te.max(" in body or "te.prod(" in body:
            self.note("nested reduction")
        self.note(f"te.{name}")
        if name == "reduce":
            return self.combined(dtype, body, names, extents, where, inner)
        if name == "prod" and dtype in FLOATS:
            body = f"te.clip({body}, -2, 2)" if rng.random() < 0.5 else f"1 + 0.1 * te.tanh({body})"
        text = f"te.{name}(lambda {names}: {body}, {extents}{where})"
        found = dtype if dtype in FLOATS or name in ("max", "min") else "int64"
        if name.startswith("arg"):
            text = f"{text} % 9"
            found = "int64"
        return self.cast(text, found, dtype) if found != dtype else text

    def combined(self, dtype: str, body: str, names: str, extents: str, where: str, inner: tuple[Loop, ...]) -> str:
        """A reduction by a combiner of the user's own."""
        rng = self.rng
        self.need("combiner")
        if dtype not in FLOATS:
            if dtype == "bool":
                raise Refused("no combiner")
            return f"te.reduce(lambda x, y: te.maximum(x, y), 0, lambda {names}: {body}, {extents}{where})"
        kind = rng.randrange(4)
        last = inner[-1].name
        match kind:
            case 0:
                combine = "lambda x, y: (te.where(y[0] > x[0], y[0], x[0]), te.where(y[0] > x[0], y[1], x[1]))"
                text = f"te.reduce({combine}, (-np.inf, -1), lambda {names}: ({body}, {last}), {extents}{where})"
                return (
                    f'te.cast({text}[1], "{dtype}")'
                    if rng.random() < 0.5 and "casts" not in self.options.without
                    else f"te.maximum({text}[0], -9)"
                )
            case 1:
                combine = "lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1])"
                factor = f"te.clip({self.element(dtype, inner)}, -1, 1)"
                return f"te.reduce({combine}, (1.0, 0.0), lambda {names}: ({factor}, {body}), {extents}{where})[1]"
            case 2:
                return f"te.reduce(lambda x, y: te.maximum(x, y), -9.0, lambda {names}: {body}, {extents}{where})"
        combine = "lambda x, y: (x[0] + y[0], x[1] + y[1])"
        return f"te.reduce({combine}, (0.0, 0), lambda {names}: ({body}, 1), {extents}{where})[0]"


def _product(scope: tuple[Loop, ...]) -> int:
    result = 1
    for loop in scope:
        result *= loop.most
    return result
