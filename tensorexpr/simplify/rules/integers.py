"""Rules for integers of every width, exact with wraparound: they hold in the ring of integers modulo 2**bits.

Nothing here assumes that arithmetic stays in range, so `x + 1 > x`, `(x*4)//4` and `-x < 0` are left alone; index
arithmetic, which does not overflow, is simplified as integer sets in `simplify.facts.indices`.
"""

from __future__ import annotations

from tensorexpr.dtypes import DType
from tensorexpr.ir import FALSE, TRUE, Apply, Const, Expr, apply
from tensorexpr.rewrite import on
from tensorexpr.simplify.rules.common import is_value, operands_of, without_negative


def wrapped(value: int, dtype: DType) -> Const:
    """The literal congruent to `value` modulo 2**bits."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and value > dtype.greatest:
        value -= 1 << dtype.bits
    return Const(value, dtype)


@on("add", "sub")
def add_zero(expr: Expr) -> Expr | None:
    """x + 0 -> x;  x - 0 -> x;  0 - x -> -x"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if is_value(right, 0):
        return left
    if is_value(left, 0):
        return right if expr.op.name == "add" else apply("neg", right)
    return None


@on("mul")
def multiply_unit(expr: Expr) -> Expr | None:
    """x * 1 -> x;  x * 0 -> 0;  x * -1 -> -x"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if is_value(right, 1):
        return left
    if is_value(right, 0):
        return right
    return apply("neg", left) if expr.dtype.is_signed and is_value(right, -1) else None


@on("sub")
def subtract_itself(expr: Expr) -> Expr | None:
    """x - x -> 0;  (x + y) - y -> x;  (x + y) - x -> y"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if left == right:
        return Const(0, expr.dtype)
    total = operands_of(left, "add")
    if total is not None and right in total:
        return total[0] if total[1] == right else total[1]
    return None


@on("neg")
def negate_twice(expr: Expr) -> Expr | None:
    """--x -> x;  -(x - y) -> y - x"""
    assert isinstance(expr, Apply)
    inner = operands_of(expr.args[0], "neg")
    if inner is not None:
        return inner[0]
    difference = operands_of(expr.args[0], "sub")
    return None if difference is None else apply("sub", difference[1], difference[0])


@on("add", "sub")
def add_negative(expr: Expr) -> Expr | None:
    """x + -y -> x - y;  -x + y -> y - x;  x - -y -> x + y"""
    assert isinstance(expr, Apply)
    return without_negative(expr)


@on("add", "sub")
def collect_literals(expr: Expr) -> Expr | None:
    """(x + c) + d -> x + (c + d);  (x - c) - d -> x - (c + d), and mixed, where c and d are literals (the sum wraps around)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if not isinstance(right, Const) or not isinstance(left, Apply) or left.op.name not in ("add", "sub"):
        return None
    if not isinstance(left.args[1], Const):
        return None
    first = int(left.args[1].value) * (1 if left.op.name == "add" else -1)
    total = first + int(right.value) * (1 if expr.op.name == "add" else -1)
    if total < 0:
        return apply("sub", left.args[0], wrapped(-total, expr.dtype))
    return apply("add", left.args[0], wrapped(total, expr.dtype))


@on("add", "sub")
def add_negative_literal(expr: Expr) -> Expr | None:
    """x + -c -> x - c;  x - -c -> x + c, where c is a positive literal whose negative is one too"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if isinstance(right, Const) and expr.dtype.least < right.value < 0:
        return apply("sub" if expr.op.name == "add" else "add", left, Const(-right.value, right.dtype))
    return None


@on("mul")
def collect_factors(expr: Expr) -> Expr | None:
    """(x * c) * d -> x * (c * d), where c and d are literals (the product wraps around)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    inner = operands_of(left, "mul")
    if isinstance(right, Const) and inner is not None and isinstance(inner[1], Const):
        return apply("mul", inner[0], wrapped(int(inner[1].value) * int(right.value), expr.dtype))
    return None


@on("floordiv", "mod")
def divide_by_unit(expr: Expr) -> Expr | None:
    """x // 1 -> x;  x % 1 -> 0;  x // 0 -> 0;  x % 0 -> 0 (division by zero gives zero)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if is_value(right, 1):
        return left if expr.op.name == "floordiv" else Const(0, expr.dtype)
    return Const(0, expr.dtype) if is_value(right, 0) else None


@on("floordiv", "mod")
def divide_zero(expr: Expr) -> Expr | None:
    """0 // x -> 0;  0 % x -> 0, also where x is zero"""
    assert isinstance(expr, Apply)
    return expr.args[0] if is_value(expr.args[0], 0) else None


@on("pow")
def small_power(expr: Expr) -> Expr | None:
    """x ** 0 -> 1;  x ** 1 -> x;  x ** 2 -> x * x"""
    assert isinstance(expr, Apply)
    base, exponent = expr.args
    if is_value(exponent, 0):
        return Const(1, expr.dtype)
    if is_value(exponent, 1):
        return base
    return apply("mul", base, base) if is_value(exponent, 2) else None


@on("abs", "sign")
def unsigned_magnitude(expr: Expr) -> Expr | None:
    """abs(x) -> x where x is unsigned;  abs(abs(x)) -> abs(x);  abs(-x) -> abs(x)"""
    assert isinstance(expr, Apply)
    if expr.op.name != "abs":
        return None
    inner = expr.args[0]
    if not expr.dtype.is_signed or operands_of(inner, "abs") is not None:
        return inner
    negated = operands_of(inner, "neg")
    return None if negated is None else apply("abs", negated[0])


@on("eq", "ne", "lt", "le", "gt", "ge")
def compare_with_itself(expr: Expr) -> Expr | None:
    """x == x, x <= x, x >= x -> True;  x != x, x < x, x > x -> False"""
    assert isinstance(expr, Apply)
    if expr.args[0] != expr.args[1]:
        return None
    return TRUE if expr.op.name in ("eq", "le", "ge") else FALSE


@on("lt", "le", "gt", "ge")
def compare_with_limit(expr: Expr) -> Expr | None:
    """x < least -> False;  x >= least -> True;  x > greatest -> False;  x <= greatest -> True, of the dtype of x"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    name = expr.op.name
    if is_value(right, left.dtype.least) and name in ("lt", "ge"):
        return FALSE if name == "lt" else TRUE
    if is_value(right, left.dtype.greatest) and name in ("gt", "le"):
        return FALSE if name == "gt" else TRUE
    return None


@on("eq", "ne")
def compare_sums(expr: Expr) -> Expr | None:
    """x + c == d -> x == d - c;  -x == d -> x == -d;  x - y == 0 -> x == y, and != likewise (equality holds modulo 2**bits)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if not isinstance(left, Apply) or not isinstance(right, Const):
        return None
    name = left.op.name
    if name == "neg":
        return Apply(expr.op, (left.args[0], wrapped(-int(right.value), right.dtype)))
    if name in ("add", "sub") and isinstance(left.args[1], Const):
        shift = int(left.args[1].value) * (1 if name == "add" else -1)
        return Apply(expr.op, (left.args[0], wrapped(int(right.value) - shift, right.dtype)))
    if name == "sub" and right.value == 0:
        return Apply(expr.op, left.args)
    return None


@on("minimum", "maximum")
def extremum_limit(expr: Expr) -> Expr | None:
    """minimum(x, least) -> least;  maximum(x, greatest) -> greatest, of the dtype of x"""
    assert isinstance(expr, Apply)
    limit = expr.dtype.least if expr.op.name == "minimum" else expr.dtype.greatest
    return expr.args[1] if is_value(expr.args[1], limit) else None


@on("and", "or", "xor")
def bit_units(expr: Expr) -> Expr | None:
    """x & 0 -> 0;  x & ones -> x;  x | 0 -> x;  x | ones -> ones;  x ^ 0 -> x;  x ^ ones -> ~x, where ones has every bit set"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    name = expr.op.name
    if is_value(right, 0):
        return right if name == "and" else left
    if right == wrapped(-1, expr.dtype):
        return {"and": left, "or": right, "xor": apply("invert", left)}[name]
    return None


@on("shift_left", "shift_right")
def shift_by_zero(expr: Expr) -> Expr | None:
    """x << 0 -> x;  x >> 0 -> x;  0 << x -> 0;  0 >> x -> 0"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    return left if is_value(right, 0) or is_value(left, 0) else None


@on("mul")
def multiply_selection(expr: Expr) -> Expr | None:
    """where(c, x, 0) * y -> where(c, x * y, 0);  y * where(c, x, 0) -> where(c, y * x, 0), and for the other branch"""
    assert isinstance(expr, Apply)
    for at in (0, 1):
        chosen = operands_of(expr.args[at], "where")
        if chosen is None or not (is_value(chosen[1], 0) or is_value(chosen[2], 0)):
            continue
        other = expr.args[1 - at]
        branches = [b if is_value(b, 0) else apply("mul", *((b, other) if at == 0 else (other, b))) for b in chosen[1:]]
        return apply("where", chosen[0], *branches)
    return None


INTEGER_RULES = (
    add_zero,
    multiply_unit,
    subtract_itself,
    negate_twice,
    add_negative,
    collect_literals,
    add_negative_literal,
    collect_factors,
    divide_by_unit,
    divide_zero,
    small_power,
    unsigned_magnitude,
    compare_with_itself,
    compare_with_limit,
    compare_sums,
    extremum_limit,
    bit_units,
    shift_by_zero,
    multiply_selection,
)
