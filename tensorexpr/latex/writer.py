"""Definitions and expressions as formulas of LaTeX.

Every node has one function here; it gives a text and how tightly it binds, and whoever puts it into an operator asks for
parentheses. `inline` forms (no tall fractions) stand in subscripts and in the limits of sums.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from tensorexpr.dtypes import DType
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Param,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    TensorType,
    apply,
    conjuncts,
    const,
)
from tensorexpr.latex.names import escaped, letters, symbol
from tensorexpr.latex.terms import before, factors_of, flattened, negated, signed, terms_of
from tensorexpr.text import literal
from tensorexpr.traversal import negate, walk

WIDTH = 100
"""Characters that a line shows at most where a sum can be broken."""

_CASES, _OR, _AND, _NOT, _COMPARE, _ADD, _MOD, _BIG, _MUL, _FRACTION, _ATOM = range(11)
"""How tightly a formula binds. What begins with a big operator (`_BIG`) may be the last factor of a product only."""

_FUNCTIONS = {
    "exp": r"\exp", "log": r"\log", "log2": r"\log_{2}", "sin": r"\sin", "cos": r"\cos", "tan": r"\tan", "sinh": r"\sinh",
    "cosh": r"\cosh", "tanh": r"\tanh", "asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "sigmoid": r"\sigma",
    "minimum": r"\min", "maximum": r"\max",
}  # fmt: skip
_RELATIONS = {"eq": "=", "ne": r"\ne", "lt": "<", "le": r"\le", "gt": ">", "ge": r"\ge"}
_BITWISE = {"and": r"\mathbin{\&}", "or": r"\mathbin{|}", "xor": r"\oplus", "shift_left": r"\ll", "shift_right": r"\gg"}
_WITH_LIMITS = {"sum": r"\sum", "prod": r"\prod", "all": r"\bigwedge", "any": r"\bigvee"}
_WITH_RANGE = {"max": r"\max", "min": r"\min", "argmax": r"\operatorname*{arg\,max}", "argmin": r"\operatorname*{arg\,min}"}
_SCATTERED = {"sum": "+", "prod": r"\times"}

Formula = tuple[str, int]


def shown(texts: Iterable[str]) -> int:
    """About how many characters a reader sees: a command is one, braces and scripts none."""
    return sum(len(re.sub(r"[{}_^&\s]", "", re.sub(r"\\(?:[a-zA-Z]+\*?|.)", "x", text))) for text in texts)


def _parens(text: str) -> str:
    return _enclosed("(", text, ")")


def _enclosed(opening: str, text: str, closing: str) -> str:
    """Delimiters around a text, sized where it is taller than a letter."""
    if re.search(r"\\(frac|sum|prod|big|left|begin|sqrt|substack|operatorname\*)", text):
        return rf"\left{opening} {text} \right{closing}"
    return f"{opening} {text} {closing}" if opening.startswith("\\") else f"{opening}{text}{closing}"


class Writer:
    """Writes formulas; `step` is the index of the scan whose body is written, `states` its states by their formal names."""

    def __init__(self) -> None:
        self.combiners: dict[Combiner, int] = {}
        self.step: str | None = None
        self.states: dict[str, str] = {}
        self.local: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------ definitions

    def belongs(self, name: str, type_: TensorType) -> str:
        r"""`x \in \mathbb{R}^{8 \times 3}`."""
        extents = r" \times ".join(self.within(e, _MUL) for e in type_.shape)
        return rf"{symbol(name)} \in {_set(type_.dtype)}" + (f"^{{{extents}}}" if extents else "")

    def definition(self, definition: Definition) -> list[str]:
        """The rows of one definition."""
        match definition:
            case Define(name, axes, value):
                return self.equation(self.element(name, [Index(axis.index) for axis in axes]), value)
            case Scatter():
                target = self.element(definition.name, definition.indices)
                sent = self.within(definition.value, _ADD)
                if definition.combine in _SCATTERED:
                    head = rf"{target} &\mathrel{{{_SCATTERED[definition.combine]}}}= {sent}"
                else:
                    head = rf"{target} &\leftarrow {_FUNCTIONS[definition.combine + 'imum']}({target}, {sent})"
                return [head + self.domain(definition.axes, definition.where)]
            case Segments():
                names = ", ".join(map(symbol, definition.names))
                keys = ", ".join(self.within(key, _ADD) for key in definition.keys)
                row = rf"({names}) &= \operatorname{{segments}}{_parens(keys)}"
                return [row + self.domain(definition.loops, definition.where)]
            case Scan():
                return self.scan(definition)

    def equation(self, target: str, value: Expr) -> list[str]:
        """`target &= value`, a long sum in several rows."""
        rows = [f"{target} &= "]
        fresh = True
        for sign, term in terms_of(value):
            own, level = self.expr(term)
            text = own if level > _ADD or (fresh and level == _CASES and term is value) else _parens(own)
            text = text if fresh and sign == "+" else f"{sign}{text}" if fresh else f" {sign} {text}"
            if not fresh and shown([rows[-1], text]) > WIDTH:
                rows.append(r"&\quad{}")
            rows[-1] += text
            fresh = False
        return rows

    def domain(self, axes: Sequence[Axis], where: Expr | None) -> str:
        r"""`\quad \text{for } 0 \le i < n,\ c`."""
        conditions = [self.range(axis) for axis in axes] + self.conditions(conjuncts(where))
        return r" \quad \text{for } " + r",\ ".join(conditions) if conditions else ""

    def scan(self, scan: Scan) -> list[str]:
        """Entry t of a result is the state after step t; the state before step 0 is entry -1."""
        rows = []
        outer = (self.step, dict(self.states), dict(self.local))
        for name, (formal, type_), start in zip(scan.names, scan.states, scan.inits, strict=True):
            indices: list[Expr] = [Index(letter) for letter in letters(len(type_.shape), {scan.step})]
            rows.append(f"{self.element(name, [const(-1), *indices])} &= {self.element(start, indices)}")
            self.states[formal] = name
        self.step = scan.step
        self.local |= {name: name for definition in scan.body for name, _ in definition.results}
        self.local |= {following: name for name, following in zip(scan.names, scan.nexts, strict=True) if following in self.local}
        for definition in scan.body:
            rows += self.definition(definition)
        known = {name for definition in scan.body for name, _ in definition.results}
        for name, following, (_, type_) in zip(scan.names, scan.nexts, scan.states, strict=True):
            if following not in known:
                indices = [Index(letter) for letter in letters(len(type_.shape), {scan.step})]
                rows.append(f"{self.element(name, [Index(scan.step), *indices])} &= {self.element(following, indices)}")
        rows[-1] += self.domain([Axis(scan.step, const(0), scan.length)], None)
        self.step, self.states, self.local = outer
        return rows

    def combiner_rows(self) -> list[str]:
        """What the operators of users' combiners mean."""
        rows = []
        for combiner, number in self.combiners.items():
            left, right = (self.pack([Param(p.name, p.dtype) for p in side]) for side in (combiner.left, combiner.right))
            sign = r"\oplus" if number == 1 else rf"\oplus^{{({number})}}"
            rows.append(f"{left} {sign} {right} &= {self.pack(combiner.results)}")
        return rows

    def pack(self, items: Sequence[Expr]) -> str:
        """Several values as a tuple."""
        return _parens(", ".join(self.within(item, _CASES) for item in items))

    # ------------------------------------------------------------------------------------------------ expressions

    def within(self, expr: Expr, level: int, inline: bool = False) -> str:
        """The text of an expression, in parentheses where it binds less than `level`."""
        text, own = self.expr(expr, inline)
        return text if own >= level else _parens(text)

    def expr(self, expr: Expr, inline: bool = False) -> Formula:
        """The text of an expression and how tightly it binds."""
        match expr:
            case Const():
                return _number(expr)
            case Index(name) | Size(name) | Param(name):
                return symbol(name, index=True), _ATOM
            case Access():
                return self.element(expr.tensor, expr.indices), _ATOM
            case Cast():
                return self.cast(expr, inline)
            case Reduce():
                return self.reduce(expr)
            case Apply():
                return self.apply(expr, inline)
        raise AssertionError(type(expr))

    def element(self, tensor: str, indices: Sequence[Expr]) -> str:
        """`x_{i, j}`; in brackets where an index is an element itself; of a state, the entry before."""
        if tensor in self.states:
            assert self.step is not None
            before = apply("sub", Index(self.step), const(1))
            tensor, indices = self.states[tensor], (before, *indices)
        elif tensor in self.local:
            assert self.step is not None
            tensor, indices = self.local[tensor], (Index(self.step), *indices)
        if not indices:
            return symbol(tensor)
        texts = ", ".join(self.within(index, _ADD, inline=True) for index in indices)
        if any(isinstance(node, Access | Reduce) for index in indices for node in walk(index)):
            return f"{symbol(tensor)}{_enclosed('[', texts, ']')}"
        return f"{symbol(tensor)}_{{{texts}}}"

    def cast(self, expr: Cast, inline: bool) -> Formula:
        """Only casts that may change a value are shown; of a condition, its indicator."""
        source, target = expr.arg.dtype, expr.dtype
        if source.is_bool:
            return rf"\mathbf{{1}}{_enclosed('[', self.condition(expr.arg), ']')}", _ATOM
        if _keeps_value(source, target):
            return self.expr(expr.arg, inline)
        return rf"\mathrm{{{target}}}{_parens(self.within(expr.arg, _CASES))}", _ATOM

    def reduce(self, expr: Reduce) -> Formula:
        """A big operator before what it combines, the sign of a sum in front of it."""
        if signed("+", expr)[0] == "-":
            return self.sum(expr, False)
        name = expr.combiner.name
        masks = self.conditions(conjuncts(expr.where))
        if not expr.combiner.is_builtin:
            number = self.combiners.setdefault(expr.combiner, len(self.combiners) + 1)
            sign = r"\bigoplus" if number == 1 else rf"\mathop{{\bigoplus\nolimits^{{({number})}}}}\limits"
            head = sign + _below([*map(self.range, expr.axes), *masks])
            return rf"\left[ {head} {self.pack(expr.values)} \right]_{{{expr.component}}}", _ATOM
        body = self.within(expr.values[0], _BIG)
        if name in _WITH_RANGE:
            return f"{_WITH_RANGE[name]}{_below([*map(self.range, expr.axes), *masks])} {body}", _BIG
        heads = []
        for number, axis in enumerate(expr.axes):
            start = f"{symbol(axis.index, index=True)} = {self.within(axis.start, _ADD, inline=True)}"
            lower = [start, *(masks if number == len(expr.axes) - 1 else ())]
            heads.append(f"{_WITH_LIMITS[name]}{_below(lower)}^{{{self.within(before(axis.stop), _ADD, inline=True)}}}")
        if not heads:
            heads.append(_WITH_LIMITS[name] + (_below(masks) if masks else ""))
        return f"{' '.join(heads)} {body}", _BIG

    def range(self, axis: Axis) -> str:
        r"""`0 \le k < n`."""
        start, stop = (self.within(e, _ADD, inline=True) for e in (axis.start, axis.stop))
        return rf"{start} \le {symbol(axis.index, index=True)} < {stop}"

    # ------------------------------------------------------------------------------------------------ operations

    def apply(self, expr: Apply, inline: bool) -> Formula:
        """A scalar operation."""
        name, args = expr.op.name, expr.args
        match name:
            case "where":
                return self.where(expr)
            case "recompute":  # a mark on a value
                return self.expr(args[0], inline)
            case "add" | "sub" | "neg":
                return self.sum(expr, inline)
            case "mul":
                return self.sum(expr, inline) if signed("+", expr)[0] == "-" else self.product(expr, inline)
            case "div":
                return self.sum(expr, inline) if signed("+", expr)[0] == "-" else self.fraction(args[0], args[1], inline)
            case "floordiv":
                return self.rounded("floor", args[0], args[1], inline)
            case "mod":
                return rf"{self.within(args[0], _FRACTION, inline)} \bmod {self.within(args[1], _FRACTION, inline)}", _MOD
            case "pow":
                return self.power(args[0], self.within(args[1], _ADD, inline=True)), _FRACTION
            case "exp2":
                return f"2^{{{self.within(args[0], _ADD, inline=True)}}}", _FRACTION
            case "sqrt":
                return rf"\sqrt{{{self.within(args[0], _ADD, inline)}}}", _ATOM
            case "rsqrt":
                return rf"\frac{{1}}{{\sqrt{{{self.within(args[0], _ADD, inline)}}}}}", _FRACTION
            case "expm1":
                return rf"\exp{_parens(self.within(args[0], _CASES))} - 1", _ADD
            case "log1p":
                return rf"\log{_parens(self.within(apply('add', Const(1, expr.dtype), args[0]), _ADD))}", _ATOM
            case "abs":
                return _enclosed(r"\lvert", self.within(args[0], _CASES, inline), r"\rvert"), _ATOM
            case "floor" | "ceil":
                return _enclosed(rf"\l{name}", self.within(args[0], _CASES, inline), rf"\r{name}"), _ATOM
            case "invert" if not expr.dtype.is_bool:
                return rf"{{\sim}} {self.within(args[0], _ATOM, inline)}", _MUL
            case "and" | "or" | "invert" | "xor" if expr.dtype.is_bool:
                return self.logic(expr)
        if name in _RELATIONS:
            left, right = (self.condition(a) if a.dtype.is_bool else self.within(a, _ADD, inline) for a in args)
            return f"{left} {_RELATIONS[name]} {right}", _COMPARE
        if name in _BITWISE:
            left, right = (self.within(a, _FRACTION, inline) for a in args)
            return f"{left} {_BITWISE[name]} {right}", _MUL
        operands = flattened(expr) if name in ("minimum", "maximum") else args
        head = _FUNCTIONS.get(name) or rf"\operatorname{{{escaped(name)}}}"
        return head + _parens(", ".join(self.within(a, _CASES, inline) for a in operands)), _ATOM

    def sum(self, expr: Apply | Reduce, inline: bool) -> Formula:
        """Terms with their signs; the rounded-up quotient is recognized."""
        match expr:
            case Apply(op, (Apply(quotient, (above, below)),)) if op.name == "neg" and quotient.name == "floordiv":
                return self.rounded("ceil", negated(above), below, inline)
        text = ""
        for sign, term in terms_of(expr):
            own = self.within(term, _BIG, inline)
            text += f" {sign} {own}" if text else own if sign == "+" else f"-{own}"
        return text, _ADD

    def product(self, expr: Apply, inline: bool) -> Formula:
        """Numbers in front, then the other factors in order; only the last may begin with a big operator."""
        factors = factors_of(expr)
        texts = [self.within(f, _MUL, inline) for f in factors if isinstance(f, Const)]
        others = [f for f in factors if not isinstance(f, Const)]
        level = _MUL
        for number, factor in enumerate(others):
            own, level = self.expr(factor, inline)
            least = _BIG if number == len(others) - 1 else _MUL
            if level < least or (number and own.startswith("-")):
                own, level = _parens(own), _ATOM
            texts.append(own)
        result = texts[0]
        for earlier, text in pairwise(texts):
            if text[0].isdigit() or (earlier[-1].isdigit() and text.startswith(r"\frac")):
                joint = r" \cdot "
            else:
                joint = " " if earlier[-1].isdigit() and not earlier.endswith("}") else r" \, "
            result += joint + text
        return result, min(level, _MUL)

    def fraction(self, above: Expr, below: Expr, inline: bool) -> Formula:
        """`above / below`, flat where `inline`."""
        if inline:
            return f"{self.within(above, _MUL, True)} / {self.within(below, _FRACTION, True)}", _MUL
        return rf"\frac{{{self.within(above, _CASES)}}}{{{self.within(below, _CASES)}}}", _FRACTION

    def rounded(self, name: str, above: Expr, below: Expr, inline: bool) -> Formula:
        """A quotient rounded down ("floor") or up ("ceil")."""
        return _enclosed(rf"\l{name}", self.fraction(above, below, inline)[0], rf"\r{name}"), _ATOM

    def power(self, base: Expr, exponent: str) -> str:
        text, level = self.expr(base)
        if level < _ATOM or "^" in text or (isinstance(base, Apply) and base.op.name != "abs"):
            text = _parens(text)
        return f"{text}^{{{exponent}}}"

    def where(self, expr: Apply) -> Formula:
        """Cases, else-branches that are selections themselves in the same list; against zero, an indicator."""
        condition, taken, otherwise = expr.args
        if _is_zero(otherwise) or _is_zero(taken):
            chosen = condition if _is_zero(otherwise) else negate(condition)
            value, level = self.expr(taken if _is_zero(otherwise) else otherwise)
            if level < _BIG:
                value, level = _parens(value), _ATOM
            return rf"\mathbf{{1}}{_enclosed('[', self.condition(chosen), ']')} \, {value}", min(level, _MUL)
        rows = []
        node: Expr = expr
        while isinstance(node, Apply) and node.op.name == "where":
            rows.append(rf"{self.expr(node.args[1])[0]} & \text{{if }} {self.condition(node.args[0])}")
            node = node.args[2]
        rows.append(rf"{self.expr(node)[0]} & \text{{otherwise}}")
        return r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}", _CASES

    # ------------------------------------------------------------------------------------------------ conditions

    def condition(self, expr: Expr) -> str:
        r"""A condition at the outermost level: `0 \le i < n \land c`."""
        parts = list(conjuncts(expr))
        if len(parts) == 1:
            return self.within(parts[0], _OR, inline=True)
        return r" \land ".join(self.conditions(parts)) or r"\mathrm{true}"

    def conditions(self, parts: Iterable[Expr]) -> list[str]:
        """Conditions that all hold, two bounds of one expression as one."""
        lower: dict[Expr, tuple[int, str]] = {}
        texts: list[str] = []
        for part in parts:
            match part:
                case Apply(op, (left, right)) if op.name in ("lt", "le") and left in lower:
                    at, bounded = lower.pop(left)
                    texts[at] = f"{bounded} {_RELATIONS[op.name]} {self.within(right, _ADD, True)}"
                    continue
                case Apply(op, (left, right)) if op.name in ("ge", "gt") and left.dtype.is_integer:
                    sign = r"\le" if op.name == "ge" else "<"
                    lower[left] = len(texts), f"{self.within(right, _ADD, True)} {sign} {self.within(left, _ADD, True)}"
            texts.append(self.within(part, _NOT, True))
        return texts

    def logic(self, expr: Apply) -> Formula:
        """The operations on conditions."""
        if expr.op.name == "invert":
            return rf"\lnot {self.within(expr.args[0], _ATOM)}", _NOT
        if expr.op.name == "and":
            return r" \land ".join(self.conditions(conjuncts(expr))), _AND
        sign = r" \lor " if expr.op.name == "or" else r" \oplus "
        return sign.join(self.within(a, _NOT) for a in expr.args), _OR


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and not expr.dtype.is_bool and expr.value == 0


def _number(value: Const) -> Formula:
    if value.dtype.is_bool:
        return rf"\mathrm{{{'true' if value.value else 'false'}}}", _ATOM
    text = literal(value)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    level = _ADD if sign else _ATOM
    if digits in ("inf", "nan"):
        return sign + (r"\infty" if digits == "inf" else r"\mathrm{NaN}"), level
    mantissa, _, exponent = digits.partition("e")
    mantissa = mantissa.removesuffix(".0")
    if not exponent:
        return sign + mantissa, level
    power = f"10^{{{int(exponent)}}}"
    return sign + (power if mantissa == "1" else rf"{mantissa} \cdot {power}"), level if sign else _MUL


def _keeps_value(source: DType, target: DType) -> bool:
    """Whether a cast is the identity on numbers: to a wider type, or of integers to floats (which may round)."""
    if target.is_float:
        return not source.is_float or target.itemsize >= source.itemsize
    return target.is_integer and source.is_integer and bool(np.can_cast(source.numpy, target.numpy))


def _set(dtype: DType) -> str:
    if dtype.is_bool:
        return r"\{0, 1\}"
    return r"\mathbb{R}" if dtype.is_float else r"\mathbb{Z}" if dtype.is_signed else r"\mathbb{N}"


def _below(rows: Sequence[str]) -> str:
    """Conditions under a big operator, one upon the other."""
    text = r" \\ ".join(rows)
    return "" if not rows else f"_{{{text}}}" if len(rows) == 1 else rf"_{{\substack{{{text}}}}}"
