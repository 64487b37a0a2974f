"""Affine forms of indices: `affine_of` reads an int64 expression as a quasi-affine form (sums, products with constants, floor division and
modulo by positive constants, shifts and masks by constants); what is not (products of sizes, data-dependent indices) can become an opaque
name, so that proofs go on with what is known around it. `expression_of` goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from tensorexpr import dtypes
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.integers.forms.affine import Interval
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Param, Size, apply, const
from tensorexpr.records import field, record
from tensorexpr.traversal import map_children, size_names, walk


@record(frozen=False)
class Opaque:
    """Names given to integer expressions that are not affine: equal expressions get one name (`?0`, `?1`, ...).

    A cast that keeps the value does not make another name: `ids[t]` is the same number as int32 and as int64.
    """

    names: dict[Expr, str] = field(default_factory=dict)
    _expressions: dict[str, Expr] = field(default_factory=dict, init=False, compare=False, repr=False)

    def name_of(self, expr: Expr) -> str:
        """The name that stands for the value of `expr`."""
        while isinstance(expr, Cast) and expr.arg.dtype.is_integer and expr.dtype is dtypes.int64 and expr.arg.dtype is not dtypes.uint64:
            expr = expr.arg
        return self.names.setdefault(expr, f"?{len(self.names)}")

    @property
    def expressions(self) -> dict[str, Expr]:
        """What each name stands for, as an int64 expression."""
        if len(self._expressions) < len(self.names):  # there are only ever more
            for expr, name in self.names.items():
                if name not in self._expressions:
                    self._expressions[name] = expr if expr.dtype is dtypes.int64 else Cast(dtypes.int64, expr)
        return self._expressions


def affine_of(expr: Expr, opaque: Opaque | None = None) -> Affine | None:
    """The quasi-affine form of an integer expression, or None where it has none and `opaque` is not given."""
    if type(expr) is Index or type(expr) is Size:
        return Affine.of(expr.name)
    if not isinstance(expr, Apply):
        return _affine(expr, opaque)
    found = _plain_affine(expr)
    return found if found is not None or opaque is None else _affine(expr, opaque)


@lru_cache(maxsize=1 << 14)
def _plain_affine(expr: Expr) -> Affine | None:
    """The form without opaque names, which is asked for again and again: of all parts, by every case of what stands around them."""
    return _affine(expr, None)


def told_sizes(extents: Sequence[Expr]) -> list[tuple[str, int, Affine]]:
    """For every size that affine extents tell, the number of the extent that does and its form, in an order in which each form has sizes
    that are told before it and this one alone; extents that are a size and nothing else go first."""
    forms = [(number, affine_of(e)) for number, e in enumerate(extents) if not isinstance(e, Const)]
    known = [(number, form) for number, form in forms if form is not None and all(isinstance(atom, str) for atom, _ in form.terms)]
    known.sort(key=lambda one: (len(one[1].terms), one[1].constant != 0, one[1].terms[0][1] != 1 if one[1].terms else False, one[0]))
    found: dict[str, tuple[int, Affine]] = {}
    progress = True
    while progress:
        progress = False
        for number, form in known:
            unknown = [str(atom) for atom, _ in form.terms if atom not in found]
            if len(unknown) == 1:
                found[unknown[0]] = (number, form)
                progress = True
    return [(name, number, form) for name, (number, form) in found.items()]


def _affine(expr: Expr, opaque: Opaque | None) -> Affine | None:
    match expr:
        case Const() if expr.dtype.is_integer:
            return Affine.of(int(expr.value))
        case Index() | Size():
            return Affine.of(expr.name)
        case Cast() if expr.dtype is dtypes.int64 and isinstance(expr.arg, Const) and expr.arg.dtype.is_integer:
            return Affine.of(int(expr.arg.value))
        case Cast() if expr.dtype is dtypes.int64 and expr.arg.dtype is dtypes.int64:
            return affine_of(expr.arg, opaque)
        case Apply() if expr.dtype is dtypes.int64:
            found = _affine_apply(expr, opaque)
            if found is not None:
                return found
    return None if opaque is None else Affine.of(opaque.name_of(expr))


def _affine_apply(expr: Apply, opaque: Opaque | None) -> Affine | None:
    name = expr.op.name
    if name == "neg":
        inner = affine_of(expr.args[0], opaque)
        return None if inner is None else -inner
    if name not in _AFFINE_OPS:
        return None
    # Without names for what is opaque, so that a product or a quotient that is not affine becomes one name as a whole.
    left, right = affine_of(expr.args[0]), affine_of(expr.args[1])
    if name in ("add", "sub"):
        left = affine_of(expr.args[0], opaque) if left is None else left
        right = affine_of(expr.args[1], opaque) if right is None else right
        if left is None or right is None:
            return None
        return left + right if name == "add" else left - right
    if name == "mul" and left is not None and left.is_constant:
        left, right, expr = right, left, apply("mul", expr.args[1], expr.args[0])
    if right is None or not right.is_constant:
        return None
    factor = right.constant
    if (name in ("floordiv", "mod") and factor <= 0) or (name == "and" and (factor < 0 or factor & (factor + 1))):
        return None
    if name in ("shift_left", "shift_right") and not 0 <= factor < 62:
        return None
    left = affine_of(expr.args[0], opaque) if left is None else left
    if left is None:
        return None
    match name:
        case "mul":
            return left * factor
        case "floordiv":
            return left // factor
        case "mod":
            return left % factor
        case "shift_left":
            return left * (1 << factor)
        case "shift_right":
            return left // (1 << factor)
    return left % (factor + 1)


_AFFINE_OPS = ("add", "sub", "mul", "floordiv", "mod", "shift_left", "shift_right", "and")


def signed_sum(positive: list[Expr], negative: list[Expr], constant: int) -> Expr:
    """What is added, then what is subtracted, then the constant; a sum that begins with a minus begins with a negation."""
    if not positive:
        if constant > 0 or not negative:
            positive, constant = [const(constant)], 0
        else:
            positive, negative = [apply("neg", negative[0])], negative[1:]
    result = positive[0]
    for item in positive[1:]:
        result = apply("add", result, item)
    for item in negative:
        result = apply("sub", result, item)
    if constant:
        result = apply("add" if constant > 0 else "sub", result, const(abs(constant)))
    return result


def expression_of(affine: Affine, sizes: Iterable[str] = (), opaque: Opaque | None = None) -> Expr:
    """The int64 expression of an affine form: names in `sizes` become sizes, opaque names their expressions, others indices.

    Terms with positive coefficients come first, then the rest, then the constant; `c*e - c*m*(e // m)` becomes a modulo.
    """
    return _built(affine, set(sizes), {} if opaque is None else opaque.expressions)


def _built(form: Affine, sizes: set[str], hidden: Mapping[str, Expr]) -> Expr:
    form, modulos = split_modulos(form)
    positive = [times(_atom(t, sizes, hidden), c) for t, c in form.terms if c > 0]
    positive += [times(apply("mod", _built(e, sizes, hidden), const(m)), c) for e, m, c in modulos if c > 0]
    negative = [times(_atom(t, sizes, hidden), -c) for t, c in form.terms if c < 0]
    negative += [times(apply("mod", _built(e, sizes, hidden), const(m)), -c) for e, m, c in modulos if c < 0]
    return signed_sum(positive, negative, form.constant)


def _atom(a: str | FloorDiv, sizes: set[str], hidden: Mapping[str, Expr]) -> Expr:
    if isinstance(a, FloorDiv):
        return apply("floordiv", _built(a.numerator, sizes, hidden), const(a.denominator))
    if a in hidden:
        return hidden[a]
    return Size(a) if a in sizes else Index(a)


def times(factor: Expr, size: int) -> Expr:
    """A term with its factor, which is not written where it is 1."""
    return factor if size == 1 else apply("mul", factor, const(size))


def within(expr: Expr, box: Mapping[str, Interval]) -> Expr:
    """An expression with quotients and remainders of indices replaced by what they are where these lie in a box.

    Those of data stay: they may wrap around, indices never do.
    """
    return _within(expr, box) if any(map(_divides, walk(expr))) else expr


def _divides(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op.name in ("floordiv", "mod") and node.dtype is dtypes.int64


def _within(expr: Expr, box: Mapping[str, Interval]) -> Expr:
    if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and not any(isinstance(n, Access | Param) for n in walk(expr)):
        opaque = Opaque()
        form = affine_of(expr, opaque)
        # Names of what is not affine are this form's own: those that a box may have by the same names stand for something else.
        found = None if form is None else form.within({name: box[name] for name in box if name not in opaque.expressions})
        if found is not None and found is not form:
            return expression_of(found, size_names(expr), opaque)
    return map_children(expr, lambda child: _within(child, box))


def normal_form(extent: Expr) -> Expr:
    """An expression over sizes in normal form, so that equal extents are equal terms; as it is where it is not affine."""
    if isinstance(extent, Const | Size):
        return extent
    form = affine_of(extent)
    return extent if form is None else expression_of(form, sizes=form.names())


def split_modulos(form: Affine) -> tuple[Affine, list[tuple[Affine, int, int]]]:
    """Splits off the terms c * (e % m), which stand in the form as c*e - c*m*(e // m); gives the rest and the (e, m, c).

    Only where e stands there term by term, so that taking it out leaves fewer terms.
    """
    factors = dict(form.terms)
    constant = form.constant
    modulos: list[tuple[Affine, int, int]] = []
    for atom, _ in form.terms:
        factor = factors.get(atom, 0)
        if not isinstance(atom, FloorDiv) or not factor or factor % atom.denominator:
            continue
        count = -factor // atom.denominator
        needed = [(own, count * value) for own, value in atom.numerator.terms]
        if not all(factors.get(own, 0) * value > 0 and abs(factors[own]) >= abs(value) for own, value in needed):
            continue
        for own, value in needed:
            factors[own] -= value
        factors[atom] = 0
        constant -= count * atom.numerator.constant
        modulos.append((atom.numerator, atom.denominator, count))
    return Affine(factors, constant), modulos
