"""Rules for floats: those that give the same value, and those that do not quite, in lists of their own.

`FLOAT_RULES` keep every value: NaN stays NaN, infinities and the sign of zero are kept (which is why `x + 0.0` of any x, `x * 0.0`,
`x - x`, `-(x - y)` and `x / x` are not here). `ZERO_SIGN_RULES` change at most the sign of a zero. `DERIVED_RULES` are for formulas
that we write and not the user: products of literals are folded and stand last, and what is not selected is not multiplied.
`REASSOCIATION_RULES` hold for real numbers: they may round differently and forget a NaN or an infinity. The last three apply only
where the caller asks for them.
"""

from __future__ import annotations

import math

from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Reduce, apply
from tensorexpr.rewrite import on
from tensorexpr.simplify.rules.common import fold_constants, is_value, operands_of, reads_nothing, without_negative
from tensorexpr.traversal import free_names, put_term, walk

FUNCTION = 12
"""What functions cost at least (`Op.cost`): beside one, a product with what it is a factor of costs next to nothing."""


@on("mul", "div")
def multiply_one(expr: Expr) -> Expr | None:
    """x * 1 -> x;  x / 1 -> x;  x * -1 -> -x;  x / -1 -> -x"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if is_value(right, 1.0):
        return left
    return apply("neg", left) if is_value(right, -1.0) else None


@on("add", "sub")
def add_neutral_zero(expr: Expr) -> Expr | None:
    """x - 0.0 -> x;  x + -0.0 -> x;  y + 0.0 -> y, where y is never -0.0, of which it would make 0.0"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if is_value(right, 0.0 if expr.op.name == "sub" else -0.0):
        return left
    return left if expr.op.name == "add" and is_value(right, 0.0) and _never_negative_zero(left) else None


@on("add", "sub")
def add_zero_last(expr: Expr) -> Expr | None:
    """x + 0.0 + y -> x + y + 0.0;  x + 0.0 - y -> x - y + 0.0;  y + (x + 0.0) -> y + x + 0.0: what starts a sum makes no -0.0 of it"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    started = operands_of(left, "add")
    if started is not None and is_value(started[1], 0.0) and not is_value(right, 0.0):
        return apply("add", Apply(expr.op, (started[0], right)), started[1])
    started = operands_of(right, "add") if expr.op.name == "add" else None
    if started is not None and is_value(started[1], 0.0):
        return apply("add", Apply(expr.op, (left, started[0])), started[1])
    return None


def _never_negative_zero(expr: Expr) -> bool:
    """Whether a value is never -0.0: a sum is only where all of its terms are, and one of many terms starts from 0.0."""
    match expr:
        case Const():
            return math.copysign(1.0, expr.value) > 0 or expr.value != 0
        case Reduce():
            return expr.combiner.name == "sum" and expr.combiner.is_builtin
        case Apply() if expr.op.name == "add":
            return any(map(_never_negative_zero, expr.args))
        case Apply() if expr.op.name == "sub":
            return _never_negative_zero(expr.args[0])
        case Apply() if expr.op.name == "where":
            return all(map(_never_negative_zero, expr.args[1:]))
    return isinstance(expr, Apply) and expr.op.name == "abs"


@on("where")
def select_argument(expr: Expr) -> Expr | None:
    """where(c, a + f(x), f(y)) -> where(c, a + f(z), f(z)) with z = where(c, x, y), where f is a function, the only one of its name on each
    side, and c reads a tensor (else each side has loops of its own)"""
    assert isinstance(expr, Apply)
    condition, *sides = expr.args
    if reads_nothing(condition) or any(isinstance(n, Reduce) for side in sides for n in walk(side)):
        return None
    one, other = map(_functions, sides)
    for name in one:
        if name in other and len(one[name]) == len(other[name]) == 1:
            (x,), (y,) = one[name], other[name]
            if x != y and len(x.args) == 1:
                argument = Apply(expr.op, (condition, x.args[0], y.args[0]))
                both = Apply(x.op, (select_argument(argument) or argument,))
                taken, otherwise = put_term(sides[0], x, both), put_term(sides[1], y, both)
                found = apply("where", condition, taken, otherwise)
                return taken if taken == otherwise else select_factor(found) or found
    return None


@on("where")
def select_factor(expr: Expr) -> Expr | None:
    """where(c, x * k, x * m) -> x * where(c, k, m), where x takes a function, k and m are literals (1 where there is none) and c reads a
    tensor: a sum may then leave out what it does not depend on"""
    assert isinstance(expr, Apply)
    condition, *sides = expr.args
    (x, k), (y, m) = map(_with_literal, sides)
    if not expr.dtype.is_float or x != y or k == m or reads_nothing(condition) or not _functions(x):
        return None
    return apply("mul", x, apply("where", condition, Const(k, x.dtype), Const(m, x.dtype)))


def _with_literal(expr: Expr) -> tuple[Expr, float]:
    """What is multiplied by a literal, and that: 1 where it is multiplied by none."""
    factors, negated = operands_of(expr, "mul"), operands_of(expr, "neg")
    if negated is not None:
        return negated[0], -1.0
    if factors is not None and isinstance(factors[1], Const):
        return factors[0], float(factors[1].value)
    return expr, 1.0


def _functions(expr: Expr) -> dict[tuple[str, DType], dict[Apply, None]]:
    """The functions of floats that are computed in an expression whatever its own conditions say, by their names and dtypes: these may be
    what keeps reads inside of a tensor."""
    found: dict[tuple[str, DType], dict[Apply, None]] = {}
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Apply) and node.op.name not in ("where", "and", "or"):
            if node.op.cost >= FUNCTION and node.dtype.is_float:
                found.setdefault((node.op.name, node.dtype), {})[node] = None
            waiting.extend(reversed(node.args))
        elif isinstance(node, Cast):
            waiting.append(node.arg)
    return found


@on("neg")
def negate_twice(expr: Expr) -> Expr | None:
    """--x -> x"""
    assert isinstance(expr, Apply)
    inner = operands_of(expr.args[0], "neg")
    return None if inner is None else inner[0]


@on("add", "sub")
def add_negative(expr: Expr) -> Expr | None:
    """x + -y -> x - y;  -x + y -> y - x;  x - -y -> x + y;  -0.0 - x -> -x"""
    assert isinstance(expr, Apply)
    found = without_negative(expr)
    if found is not None:
        return found
    left, right = expr.args
    return apply("neg", right) if expr.op.name == "sub" and is_value(left, -0.0) else None


@on("add", "sub")
def add_negative_literal(expr: Expr) -> Expr | None:
    """x + -c -> x - c;  x - -c -> x + c, where c is a positive literal"""
    assert isinstance(expr, Apply)
    right = expr.args[1]
    if isinstance(right, Const) and right.value < 0:
        return apply("sub" if expr.op.name == "add" else "add", expr.args[0], Const(-right.value, right.dtype))
    return None


@on("mul", "div")
def multiply_negative(expr: Expr) -> Expr | None:
    """-x * -y -> x * y;  -x * c -> x * -c for a literal c;  -x * y -> -(x * y);  x * -y -> -(x * y), and the same for /"""
    assert isinstance(expr, Apply)
    left, right = (operands_of(a, "neg") for a in expr.args)
    if left is not None and right is not None:
        return Apply(expr.op, (left[0], right[0]))
    if left is not None:
        if isinstance(expr.args[1], Const):
            return Apply(expr.op, (left[0], Const(-expr.args[1].value, expr.dtype)))
        return apply("neg", Apply(expr.op, (left[0], expr.args[1])))
    if right is not None:
        if isinstance(expr.args[0], Const):
            return Apply(expr.op, (Const(-expr.args[0].value, expr.dtype), right[0]))
        return apply("neg", Apply(expr.op, (expr.args[0], right[0])))
    return None


@on("neg")
def negate_product(expr: Expr) -> Expr | None:
    """-(x * c) -> x * -c;  -(x / c) -> x / -c;  -(c / x) -> -c / x, where c is a literal"""
    assert isinstance(expr, Apply)
    for name in ("mul", "div"):
        inner = operands_of(expr.args[0], name)
        if inner is None:
            continue
        if isinstance(inner[1], Const):
            return apply(name, inner[0], Const(-inner[1].value, expr.dtype))
        if isinstance(inner[0], Const):
            return apply(name, Const(-inner[0].value, expr.dtype), inner[1])
    return None


@on("abs")
def magnitude(expr: Expr) -> Expr | None:
    """abs(-x) -> abs(x);  abs(abs(x)) -> abs(x)"""
    assert isinstance(expr, Apply)
    inner = expr.args[0]
    if operands_of(inner, "abs") is not None:
        return inner
    negated = operands_of(inner, "neg")
    return None if negated is None else apply("abs", negated[0])


@on("mul")
def square_of_magnitude(expr: Expr) -> Expr | None:
    """abs(x) * abs(x) -> x * x"""
    assert isinstance(expr, Apply)
    inner = operands_of(expr.args[0], "abs")
    return apply("mul", inner[0], inner[0]) if inner is not None and expr.args[0] == expr.args[1] else None


def magnitude_of_opposites(expr: Expr) -> Expr | None:
    """abs(x) for maximum(x, -x), and -abs(x) for minimum(x, -x), which may be another zero; also of a difference, or with a literal."""
    if not isinstance(expr, Apply) or expr.op.name not in ("maximum", "minimum") or not expr.dtype.is_float:
        return None
    if not _are_opposite(*expr.args):
        return None
    found = apply("abs", expr.args[1] if operands_of(expr.args[0], "neg") else expr.args[0])
    return found if expr.op.name == "maximum" else apply("neg", found)


def _are_opposite(one: Expr, other: Expr) -> bool:
    """Whether one of two numbers is the other with another sign, bit for bit."""
    for a, b in ((one, other), (other, one)):
        if operands_of(b, "neg") == (a,):
            return True
    for name in ("mul", "div"):
        left, right = operands_of(one, name), operands_of(other, name)
        if left is not None and right is not None and left[0] == right[0] and isinstance(left[1], Const) and isinstance(right[1], Const):
            return bool(left[1].value == -right[1].value != 0)
    left, right = operands_of(one, "sub"), operands_of(other, "sub")
    return left is not None and right is not None and left == right[::-1]


@on("exp", "exp2", "cos", "abs", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub")
def hidden_sign_of_zero(expr: Expr) -> Expr | None:
    """exp(minimum(x, -x)) -> exp(-abs(x));  maximum(x, -x) < y -> abs(x) < y;  maximum(x, -x) + c -> abs(x) + c, c a literal other than 0

    And whatever else is the same for both zeros.
    """
    assert isinstance(expr, Apply)
    if expr.op.name in ("add", "sub") and not (isinstance(expr.args[1], Const) and expr.args[1].value != 0):
        return None
    found = []
    for arg in expr.args:
        negated = operands_of(arg, "neg")
        magnitude = magnitude_of_opposites(arg if negated is None else negated[0])
        found.append(arg if magnitude is None else magnitude if negated is None else apply("neg", magnitude))
    return None if all(a is b for a, b in zip(found, expr.args, strict=True)) else Apply(expr.op, tuple(found))


@on("pow")
def small_power(expr: Expr) -> Expr | None:
    """x ** 0 -> 1;  x ** 1 -> x;  x ** 2 -> x * x;  x ** -1 -> 1 / x"""
    assert isinstance(expr, Apply)
    base, exponent = expr.args
    if isinstance(exponent, Const) and exponent.value == 0:
        return Const(1.0, expr.dtype)
    if is_value(exponent, 1.0):
        return base
    if is_value(exponent, -1.0):
        return apply("div", Const(1.0, expr.dtype), base)
    return apply("mul", base, base) if is_value(exponent, 2.0) else None


@on("add")
def add_itself(expr: Expr) -> Expr | None:
    """x + x -> x * 2;  y + x + x -> y + x * 2 is not here, as it rounds differently"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    return apply("mul", left, Const(2.0, expr.dtype)) if left == right and not isinstance(left, Const) else None


@on("floor", "ceil", "round", "trunc")
def round_twice(expr: Expr) -> Expr | None:
    """floor(round(x)) -> round(x), and likewise for every pair of floor, ceil, round, trunc"""
    assert isinstance(expr, Apply)
    inner = expr.args[0]
    return inner if isinstance(inner, Apply) and inner.op.name in ("floor", "ceil", "round", "trunc") else None


FLOAT_RULES = (
    multiply_one,
    add_neutral_zero,
    add_zero_last,
    negate_twice,
    add_negative,
    add_negative_literal,
    multiply_negative,
    negate_product,
    magnitude,
    square_of_magnitude,
    hidden_sign_of_zero,
    small_power,
    add_itself,
    round_twice,
    select_argument,
    select_factor,
)


@on("add", "sub")
def add_zero(expr: Expr) -> Expr | None:
    """x + 0.0 -> x;  0.0 + x -> x;  0.0 - x -> -x;  x - -0.0 -> x (a zero may change its sign)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if isinstance(right, Const) and right.value == 0:
        return left
    if isinstance(left, Const) and left.value == 0:
        return right if expr.op.name == "add" else apply("neg", right)
    return None


@on("neg")
def negate_difference(expr: Expr) -> Expr | None:
    """-(x - y) -> y - x (a zero may change its sign)"""
    assert isinstance(expr, Apply)
    inner = operands_of(expr.args[0], "sub")
    return None if inner is None else apply("sub", inner[1], inner[0])


@on("sub")
def negate_sum(expr: Expr) -> Expr | None:
    """-x - y -> -(x + y) (a zero may change its sign)"""
    assert isinstance(expr, Apply)
    inner = operands_of(expr.args[0], "neg")
    return None if inner is None else apply("neg", apply("add", inner[0], expr.args[1]))


@on("where")
def select_negative(expr: Expr) -> Expr | None:
    """where(c, -x, 0) -> -where(c, x, 0);  where(c, 0, -x) -> -where(c, 0, x) (a zero may change its sign)"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    first, second = operands_of(taken, "neg"), operands_of(otherwise, "neg")
    if first is not None and isinstance(otherwise, Const) and otherwise.value == 0:
        return apply("neg", apply("where", condition, first[0], otherwise))
    if second is not None and isinstance(taken, Const) and taken.value == 0:
        return apply("neg", apply("where", condition, taken, second[0]))
    return None


@on("mul")
def magnitude_with_sign(expr: Expr) -> Expr | None:
    """y * abs(x) * sign(x) -> y * x;  abs(x) * sign(x) -> x (a zero may change its sign)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    for one, other in ((left, right), (right, left)):
        if (signed := operands_of(other, "sign")) is not None:
            if operands_of(one, "abs") == signed:
                return signed[0]
            if (inner := operands_of(one, "mul")) is not None and operands_of(inner[1], "abs") == signed:
                return apply("mul", inner[0], signed[0])
    return None


ZERO_SIGN_RULES = (add_zero, negate_difference, negate_sum, select_negative, magnitude_with_sign)


_LEAST_FACTOR = 1e-3


def is_moderate(expr: Expr) -> bool:
    """Whether an expression is a literal that may move through products and sums of 32 bits and more without much harm."""
    return isinstance(expr, Const) and expr.dtype.bits >= 32 and _LEAST_FACTOR < abs(expr.value) < 1 / _LEAST_FACTOR


def is_power_of_two(expr: Expr) -> bool:
    """Whether an expression is a literal by which products are exact, as long as they neither overflow nor underflow."""
    return is_moderate(expr) and abs(math.frexp(expr.value)[0]) == 0.5  # type: ignore[attr-defined]  # a literal, as asked before


def _folded(name: str, left: Expr, right: Expr) -> Const | None:
    """The literal of an operation on two literals, None where it is zero, infinite or NaN."""
    folded = fold_constants(Apply(apply(name, left, right).op, (left, right)))
    return folded if isinstance(folded, Const) and math.isfinite(folded.value) and folded.value != 0 else None


@on("mul")
def absorb_literal(expr: Expr) -> Expr | None:
    """x * c * d -> x * (c * d);  c / x * d -> (c * d) / x;  x / c * c -> x;  x / c * p -> x / (c / p), p a power of two

    Also where the former literal stands further left in a product.
    """
    assert isinstance(expr, Apply)
    left, right = expr.args
    return _absorbed(left, right) if isinstance(right, Const) else None


def _absorbed(expr: Expr, factor: Const) -> Expr | None:
    if not isinstance(expr, Apply) or expr.op.name not in ("mul", "div"):
        return None
    left, right = expr.args
    if expr.op.name == "mul":
        if isinstance(right, Const):
            product = _folded("mul", right, factor)
            return None if product is None else apply("mul", left, product)
        for at in (0, 1):
            found = _absorbed(expr.args[at], factor)
            if found is not None:
                return apply("mul", *((found, right) if at == 0 else (left, found)))
        return None
    if isinstance(left, Const):
        product = _folded("mul", left, factor)
        return None if product is None else apply("div", product, right)
    if isinstance(right, Const):
        if right == factor:
            return left
        quotient = _folded("div", right, factor) if is_power_of_two(factor) else None
        return None if quotient is None else apply("div", left, quotient)
    inner = _absorbed(left, factor)
    return None if inner is None else apply("div", inner, right)


@on("div")
def divide_literals(expr: Expr) -> Expr | None:
    """x * c / d -> x * (c / d);  x / c / d -> x / (c * d);  x * c / c -> x, where c and d are literals"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if not isinstance(right, Const) or not isinstance(left, Apply) or left.op.name not in ("mul", "div"):
        return None
    inner, literal = left.args
    if not isinstance(literal, Const):
        return None
    if left.op.name == "mul" and literal == right:
        return inner
    folded = _folded("div" if left.op.name == "mul" else "mul", literal, right)
    return None if folded is None else apply(left.op.name, inner, folded)


@on("mul", "div")
def literals_last(expr: Expr) -> Expr | None:
    """(x * c) * y -> (x * y) * c;  x * (y * c) -> (x * y) * c;  (x * c) / y -> (x / y) * c, c a literal of moderate size, y none

    Of two factors with literals only those that are powers of two move.
    """
    assert isinstance(expr, Apply)
    left, right = expr.args
    if isinstance(right, Const) or expr.dtype.bits < 32:
        return None
    both = [operands_of(arg, "mul") for arg in expr.args]
    if expr.op.name == "div":
        top = both[0]
        return apply("mul", apply("div", top[0], right), top[1]) if top is not None and is_moderate(top[1]) else None
    if all(inner is not None and isinstance(inner[1], Const) and not is_power_of_two(inner[1]) for inner in both):
        return None  # the square of 0.7071 is no better to read
    for at in (0, 1):
        inner = both[at]
        if inner is not None and is_moderate(inner[1]):
            return apply("mul", apply("mul", *((inner[0], right) if at == 0 else (left, inner[0]))), inner[1])
    return None


@on("mul", "div")
def select_product(expr: Expr) -> Expr | None:
    """where(c, x, 0) * y -> where(c, x * y, 0);  y * where(c, x, 0) -> where(c, y * x, 0);  where(c, x, 0) / y -> where(c, x / y, 0)

    What is not selected is not multiplied, also by an infinity or a NaN. Only for conditions over indices and integers.
    """
    assert isinstance(expr, Apply)
    for at in (0, 1) if expr.op.name == "mul" else (0,):
        chosen = operands_of(expr.args[at], "where")
        if chosen is not None and all(node.dtype.is_integer for node in walk(chosen[0]) if isinstance(node, Access)):
            other = expr.args[1 - at]
            for taken, rest in ((1, 2), (2, 1)):
                zero = chosen[rest]
                if isinstance(zero, Const) and zero.value == 0:
                    product = Apply(expr.op, (chosen[taken], other) if at == 0 else (other, chosen[taken]))
                    parts = (product, zero) if taken == 1 else (zero, product)
                    return apply("where", chosen[0], *parts)
    return None


@on("div")
def divide_by_less(expr: Expr) -> Expr | None:
    """x / y -> x * (1 / y), where x depends on all indices that y does, and on more: the inverse is the same for all of these"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if isinstance(right, Const) or is_value(left, 1.0) or not set(free_names(right)) < set(free_names(left)):
        return None
    return apply("mul", left, apply("div", Const(1.0, expr.dtype), right))


DERIVED_RULES = (*ZERO_SIGN_RULES, absorb_literal, divide_literals, literals_last, select_product, divide_by_less)


@on("mul", "div")
def multiply_zero(expr: Expr) -> Expr | None:
    """x * 0 -> 0;  0 / x -> 0 (wrong where x is infinite, NaN or, below, zero)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    at = right if expr.op.name == "mul" else left
    return Const(0.0, expr.dtype) if isinstance(at, Const) and at.value == 0 else None


@on("sub", "div")
def cancel(expr: Expr) -> Expr | None:
    """x - x -> 0;  x / x -> 1;  (x + y) - y -> x;  (x * y) / y -> x (real arithmetic)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if left == right:
        return Const(0.0 if expr.op.name == "sub" else 1.0, expr.dtype)
    inner = operands_of(left, "add" if expr.op.name == "sub" else "mul")
    if inner is not None and right in inner:
        return inner[0] if inner[1] == right else inner[1]
    return None


@on("add", "mul")
def collect_literals(expr: Expr) -> Expr | None:
    """(x + c) + d -> x + (c + d);  (x * c) * d -> x * (c * d), where c and d are literals (real arithmetic)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    inner = operands_of(left, expr.op.name)
    if inner is None or not isinstance(inner[1], Const) or not isinstance(right, Const):
        return None
    folded = fold_constants(Apply(expr.op, (inner[1], right)))
    return None if folded is None or not math.isfinite(folded.value) else Apply(expr.op, (inner[0], folded))  # type: ignore[attr-defined]  # a literal, as asked before


@on("div")
def divide_by_literal(expr: Expr) -> Expr | None:
    """x / c -> x * (1 / c), where c is a literal and 1 / c is normal (rounds twice)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if not isinstance(right, Const) or right.value == 0 or isinstance(left, Const):
        return None
    inverse = Const(1.0 / right.value, expr.dtype)
    return apply("mul", left, inverse) if math.isfinite(inverse.value) and inverse.value != 0 else None


REASSOCIATION_RULES = (*ZERO_SIGN_RULES, multiply_zero, cancel, collect_literals, divide_by_literal)
