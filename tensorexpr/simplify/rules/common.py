"""Rules that hold for every dtype: constant folding, selection, logic, casts, order of operands.

Each rule gives the same value bit for bit, except that the payload and sign of a NaN are not part of a value.
"""

from __future__ import annotations

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.ir import FALSE, TRUE, Apply, Cast, Const, Expr, apply
from tensorexpr.ops import cast_value
from tensorexpr.rewrite import on
from tensorexpr.traversal import negate, tensors_read


def is_value(expr: Expr, value: bool | int | float) -> bool:
    """Whether `expr` is the literal `value` of its own dtype; 0.0 and -0.0 are different values."""
    return isinstance(expr, Const) and (expr.value == value or not expr.dtype.is_float) and expr == Const(value, expr.dtype)


def operands_of(expr: Expr, name: str) -> tuple[Expr, ...] | None:
    """The operands where `expr` is the operation `name`, else None."""
    return expr.args if isinstance(expr, Apply) and expr.op.name == name else None


def without_negative(expr: Apply) -> Expr | None:
    """x + -y -> x - y;  -x + y -> y - x;  x - -y -> x + y"""
    left, right = expr.args
    negated = operands_of(right, "neg")
    if negated is not None:
        return apply("sub" if expr.op.name == "add" else "add", left, negated[0])
    negated = operands_of(left, "neg")
    return apply("sub", right, negated[0]) if negated is not None and expr.op.name == "add" else None


def scalar(expr: Const) -> np.generic:
    """The NumPy scalar of a literal."""
    number: np.generic = expr.dtype.numpy.type(expr.value)
    return number


def literal(value: object, dtype: DType) -> Const:
    """The literal of a NumPy scalar."""
    return Const(float(value) if dtype.is_float else value.item(), dtype)  # type: ignore[arg-type, attr-defined]  # NumPy's scalars convert


@on()
def fold_constants(expr: Expr) -> Expr | None:
    """op(c1, c2, ...) -> c, where all operands are literals: the value that `ops.evaluate` gives"""
    if not isinstance(expr, Apply) or not all(isinstance(a, Const) for a in expr.args):
        return None
    with np.errstate(all="ignore"):
        return literal(np.asarray(expr.op.evaluate(*(scalar(a) for a in expr.args)))[()], expr.dtype)  # type: ignore[arg-type]  # NumPy's scalars convert


@on("cast")
def fold_cast(expr: Expr) -> Expr | None:
    """cast(c) -> c', where c is a literal"""
    assert isinstance(expr, Cast)
    if not isinstance(expr.arg, Const):
        return None
    with np.errstate(all="ignore"):
        return literal(cast_value(scalar(expr.arg), expr.dtype), expr.dtype)


@on("where")
def choose_branch(expr: Expr) -> Expr | None:
    """where(True, a, b) -> a;  where(False, a, b) -> b;  where(c, a, a) -> a"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    if condition == TRUE or taken == otherwise:
        return taken
    return otherwise if condition == FALSE else None


@on("where")
def turn_selection(expr: Expr) -> Expr | None:
    """where(not c, a, b) -> where(c, b, a)"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    if isinstance(condition, Apply) and condition.op.name == "invert":
        return apply("where", condition.args[0], otherwise, taken)
    return None


@on("where")
def turn_comparison(expr: Expr) -> Expr | None:
    """where(a >= b, x, y) -> where(a < b, y, x), and likewise for > and !=, for integers; literals stand last: where(a < b, 0, y) ->
    where(a >= b, y, 0)"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    if not isinstance(condition, Apply) or condition.op.name not in _MIRRORED or condition.args[0].dtype.is_float:
        return None
    if isinstance(taken, Const) != isinstance(otherwise, Const):
        return apply("where", negate(condition), otherwise, taken) if isinstance(taken, Const) else None
    return apply("where", negate(condition), otherwise, taken) if condition.op.name in ("ge", "gt", "ne") else None


@on("where")
def select_bool(expr: Expr) -> Expr | None:
    """where(c, True, False) -> c;  where(c, False, True) -> not c"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    if (taken, otherwise) == (TRUE, FALSE):
        return condition
    return negate(condition) if (taken, otherwise) == (FALSE, TRUE) else None


@on("where")
def merge_selections(expr: Expr) -> Expr | None:
    """where(c, where(d, a, b), b) -> where(c and d, a, b), where d reads no tensor (it is now evaluated where c is false)"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    if isinstance(taken, Apply) and taken.op.name == "where" and taken.args[2] == otherwise and reads_nothing(taken.args[0]):
        return apply("where", apply("and", condition, taken.args[0]), taken.args[1], otherwise)
    return None


@on("where")
def merge_alternatives(expr: Expr) -> Expr | None:
    """where(c, a, where(d, a, b)) -> where(c or d, a, b), where d reads no tensor (it is now evaluated where c is true)"""
    assert isinstance(expr, Apply)
    condition, taken, otherwise = expr.args
    if isinstance(otherwise, Apply) and otherwise.op.name == "where" and otherwise.args[1] == taken and reads_nothing(otherwise.args[0]):
        return apply("where", apply("or", condition, otherwise.args[0]), taken, otherwise.args[2])
    return None


_UNIONS = {("lt", "gt"): "ne", ("lt", "eq"): "le", ("gt", "eq"): "ge"}
"""What it says that one of two comparisons of the same integers holds."""


@on("or")
def unite_comparisons(expr: Expr) -> Expr | None:
    """a < b or a > b -> a != b;  a < b or a == b -> a <= b;  a > b or a == b -> a >= b, where a and b are integers, also as b > a"""
    assert isinstance(expr, Apply)
    first, second = expr.args
    if not isinstance(first, Apply) or not isinstance(second, Apply) or first.op.name not in _MIRRORED or second.op.name not in _MIRRORED:
        return None
    if not first.args[0].dtype.is_integer:
        return None
    name = second.op.name
    if first.args == second.args[::-1]:
        name = _MIRRORED[name]
    elif first.args != second.args:
        return None
    found = _UNIONS.get((first.op.name, name)) or _UNIONS.get((name, first.op.name))
    return None if found is None else apply(found, *first.args)


@on("add", "sub", "mul", "div", "minimum", "maximum", "and", "or")
def join_selections(expr: Expr) -> Expr | None:
    """where(c, a, k) + where(c, b, m) -> where(c, a + b, k + m), where k and m are literals, for every operation of two operands;
    where(c, a, k) + where(not c, m, b) likewise, and where(c, a, k) + where(not c, b, m) -> where(c, a + m, k + b)"""
    assert isinstance(expr, Apply)
    first, second = (operands_of(arg, "where") for arg in expr.args)
    if first is None or second is None:
        return None
    if first[0] != second[0]:
        if negate(second[0]) != first[0]:
            return None
        second = (first[0], *second[:0:-1])
        if isinstance(first[2], Const) and isinstance(second[1], Const):
            return apply("where", first[0], Apply(expr.op, (first[1], second[1])), Apply(expr.op, (first[2], second[2])))
    for at in (1, 2):
        if isinstance(first[at], Const) and isinstance(second[at], Const):
            return apply("where", first[0], *(Apply(expr.op, (a, b)) for a, b in zip(first[1:], second[1:], strict=True)))
    return None


def reads_nothing(expr: Expr) -> bool:
    """Whether evaluating `expr` reads no tensor, so that it may be evaluated anywhere."""
    return not tensors_read(expr)


@on("and", "or", "xor")
def logic_units(expr: Expr) -> Expr | None:
    """a and True -> a;  a and False -> False;  a or False -> a;  a or True -> True;  a xor False -> a;  a xor True -> not a (bools)"""
    assert isinstance(expr, Apply)
    if not expr.dtype.is_bool:
        return None
    for one, other in (expr.args, expr.args[::-1]):
        if one == TRUE:
            return {"and": other, "or": TRUE, "xor": apply("invert", other)}[expr.op.name]
        if one == FALSE:
            return FALSE if expr.op.name == "and" else other
    return None


@on("and", "or", "xor")
def logic_twice(expr: Expr) -> Expr | None:
    """a & a -> a;  a | a -> a;  a ^ a -> 0 (bools and integers)"""
    assert isinstance(expr, Apply)
    if expr.args[0] != expr.args[1]:
        return None
    return Const(0, expr.dtype) if expr.op.name == "xor" else expr.args[0]


@on("invert")
def invert_condition(expr: Expr) -> Expr | None:
    """~~a -> a;  not (a < b) -> a >= b for bools and integers, and likewise for every comparison; floats: == and != only"""
    assert isinstance(expr, Apply)
    inner = expr.args[0]
    if not isinstance(inner, Apply):
        return None
    if inner.op.name == "invert":
        return inner.args[0]
    if inner.op.name in ("eq", "ne"):  # a NaN differs from everything, so these two are opposites for floats as well
        return apply("ne" if inner.op.name == "eq" else "eq", *inner.args)
    turned = negate(inner)
    return turned if turned != expr else None


@on("invert")
def invert_logic(expr: Expr) -> Expr | None:
    """not (a and b) -> not a or not b;  not (a or b) -> not a and not b, where both sides are comparisons that can be turned"""
    assert isinstance(expr, Apply)
    inner = expr.args[0]
    if not (isinstance(inner, Apply) and inner.op.name in ("and", "or") and inner.dtype.is_bool):
        return None
    turned = [negate(a) for a in inner.args]
    if any(isinstance(t, Apply) and t.op.name == "invert" for t in turned):
        return None
    return apply("or" if inner.op.name == "and" else "and", *turned)


@on("eq", "ne")
def compare_bool(expr: Expr) -> Expr | None:
    """a == True -> a;  a == False -> not a;  a != True -> not a;  a != False -> a (bools)"""
    assert isinstance(expr, Apply)
    for one, other in (expr.args, expr.args[::-1]):
        if one in (TRUE, FALSE):
            return other if (one == TRUE) == (expr.op.name == "eq") else negate(other)
    return None


_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@on(*_MIRRORED)
def literal_last_in_comparison(expr: Expr) -> Expr | None:
    """c < a -> a > c, and likewise for every comparison, where c is a literal and a is none"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if isinstance(left, Const) and not isinstance(right, Const):
        return apply(_MIRRORED[expr.op.name], right, left)
    return None


@on("add", "mul", "and", "or", "xor", "minimum", "maximum")
def literal_last(expr: Expr) -> Expr | None:
    """c + a -> a + c, and likewise for * & | ^; minimum and maximum but for floats and 0 (they tell -0.0 from 0.0 by order)"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if not isinstance(left, Const) or isinstance(right, Const):
        return None
    if expr.op.name in ("minimum", "maximum") and expr.dtype.is_float and left.value == 0:
        return None
    return Apply(expr.op, (right, left))


@on("minimum", "maximum")
def extremum_twice(expr: Expr) -> Expr | None:
    """minimum(a, a) -> a;  maximum(a, a) -> a"""
    assert isinstance(expr, Apply)
    return expr.args[0] if expr.args[0] == expr.args[1] else None


@on("maximum")
def clamp_from_below(expr: Expr) -> Expr | None:
    """maximum(minimum(x, b), a) -> minimum(maximum(x, a), b), where a < b are literals: of two ways to write a range, one"""
    assert isinstance(expr, Apply)
    inner, least = operands_of(expr.args[0], "minimum"), expr.args[1]
    if inner is None or not isinstance(least, Const) or not isinstance(inner[1], Const) or isinstance(inner[0], Const):
        return None
    return apply("minimum", Apply(expr.op, (inner[0], least)), inner[1]) if least.value < inner[1].value else None


@on("minimum", "maximum")
def extremum_units(expr: Expr) -> Expr | None:
    """maximum(a, least) -> a;  minimum(a, greatest) -> a, where the literal is the dtype's least or greatest value (infinities)"""
    assert isinstance(expr, Apply)
    unit = expr.dtype.least if expr.op.name == "maximum" else expr.dtype.greatest
    for one, other in (expr.args, expr.args[::-1]):
        if is_value(one, unit):
            return other
    return None


@on("cast")
def cast_to_itself(expr: Expr) -> Expr | None:
    """cast(a) -> a, where a has the dtype already"""
    assert isinstance(expr, Cast)
    return expr.arg if expr.arg.dtype is expr.dtype else None


@on("cast")
def cast_of_cast(expr: Expr) -> Expr | None:
    """cast(cast(a)) -> cast(a), where the inner cast keeps every value; or all three are integers and the outer is no wider"""
    assert isinstance(expr, Cast)
    if not isinstance(expr.arg, Cast):
        return None
    source, middle, target = expr.arg.arg.dtype, expr.arg.dtype, expr.dtype
    narrowing = all(d.is_integer for d in (source, middle, target)) and target.bits <= middle.bits
    if not narrowing:
        if not holds_values_of(middle, source):
            return None
        # An integer seen through a float saturates where the integer itself would wrap around.
        if middle.is_float and not source.is_float and target.is_integer and not holds_values_of(target, source):
            return None
    return Cast(target, expr.arg.arg)


def holds_values_of(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow.is_bool:
        return True
    if wide.is_bool:
        return False
    if narrow.is_float:
        if wide is dtypes.float64 or wide is dtypes.float32:
            return narrow.bits <= wide.bits
        return False
    if wide.is_float:
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[wide.name]
        return narrow.bits - (narrow.kind == "int") <= digits
    return wide.least <= narrow.least and narrow.greatest <= wide.greatest


@on("ne", "eq")
def truth_of_cast(expr: Expr) -> Expr | None:
    """cast(b) != 0 -> b;  cast(b) == 0 -> not b, where b is a bool"""
    assert isinstance(expr, Apply)
    left, right = expr.args
    if isinstance(left, Cast) and left.arg.dtype.is_bool and isinstance(right, Const) and right.value == 0:
        return left.arg if expr.op.name == "ne" else negate(left.arg)
    return None


COMMON_RULES = (
    fold_constants,
    fold_cast,
    choose_branch,
    turn_selection,
    turn_comparison,
    select_bool,
    merge_selections,
    merge_alternatives,
    unite_comparisons,
    join_selections,
    logic_units,
    logic_twice,
    invert_condition,
    invert_logic,
    compare_bool,
    literal_last_in_comparison,
    literal_last,
    extremum_twice,
    clamp_from_below,
    extremum_units,
    cast_to_itself,
    cast_of_cast,
    truth_of_cast,
)
