"""Literals folded in a finished kernel: what unrolling, tiles and borders leave of bounds and conditions once extents are numbers.

for k in range(minimum(0, 48), 8):                 for k in range(0, 8):
    if 3 < 4:                              -->         ...
        ...

Integers that are kept in a narrow type are compared with literals as they are kept, and not made wider only to be made narrow again.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Ahead, Alloc, Block, Check, For, If, Kernel, Stmt, Store
from tensorexpr.ir import FALSE, TRUE, Apply, Cast, Const, Expr, apply
from tensorexpr.records import replace
from tensorexpr.rewrite import RuleSet, on
from tensorexpr.simplify.rules.common import choose_branch, fold_constants, logic_units
from tensorexpr.traversal import bottom_up, walk


@on("eq", "ne", "lt", "le", "gt", "ge")
def compare_narrow(expr: Expr) -> Expr | None:
    """i64(x) == c -> x == c, where c is a literal that the narrower type of x holds; other comparisons alike"""
    assert isinstance(expr, Apply)
    wide, c = expr.args
    if not isinstance(wide, Cast) or not isinstance(c, Const) or not _is_widening(wide):
        return None
    x = wide.arg
    return apply(expr.op.name, x, Const(c.value, x.dtype)) if int(x.dtype.least) <= int(c.value) <= int(x.dtype.greatest) else None


@on("cast")
def cast_at_once(expr: Expr) -> Expr | None:
    """i8(i64(x)) -> i8(x), where x is an integer of a narrower type than i64"""
    assert isinstance(expr, Cast)
    wide = expr.arg
    if not expr.dtype.is_integer or not isinstance(wide, Cast) or not _is_widening(wide):
        return None
    return wide.arg if wide.arg.dtype is expr.dtype else Cast(expr.dtype, wide.arg)


def _is_widening(cast: Cast) -> bool:
    return cast.dtype is dtypes.int64 and cast.arg.dtype.is_integer and cast.arg.dtype.bits < dtypes.int64.bits


_RULES = RuleSet((fold_constants, logic_units, choose_branch, compare_narrow, cast_at_once))


def with_folded_literals(kernel: Kernel) -> Kernel:
    """The kernel without operations on integer literals, and without tests that are decided."""
    return replace(kernel, body=_block(kernel.body))


def _block(block: Block) -> Block:
    return tuple(made for s in block for made in _statement(s))


def _statement(s: Stmt) -> Block:
    match s:
        case For():
            return (replace(s, start=_folded(s.start), stop=_folded(s.stop), body=_block(s.body)),)
        case Alloc():
            return (replace(s, body=_block(s.body)),)
        case If():
            condition, then, otherwise = _folded(s.condition), _block(s.then), _block(s.otherwise)
            if condition in (TRUE, FALSE) and not isinstance(s, Ahead):
                return then if condition == TRUE else otherwise
            return (replace(s, condition=condition, then=then, otherwise=otherwise),)
        case Store():
            return (replace(s, indices=tuple(map(_folded, s.indices)), value=_folded(s.value)),)
        case Check():
            return (replace(s, index=_folded(s.index), extent=_folded(s.extent)),)
    return (s,)


def _folded(expr: Expr) -> Expr:
    return bottom_up(expr, _without_literals) if any(map(_is_foldable, walk(expr))) else expr


def _is_foldable(node: Expr) -> bool:
    """Whether an operation on integers has literals alone, or one on conditions a literal; or an integer is made wider for nothing."""
    if isinstance(node, Cast):
        return cast_at_once(node) is not None
    if not isinstance(node, Apply) or node.args[0].dtype not in (dtypes.int64, dtypes.bool_):
        return False
    if all(isinstance(a, Const) for a in node.args) or TRUE in node.args or FALSE in node.args:
        return True
    return isinstance(node.args[0], Cast) and _is_widening(node.args[0])


def _without_literals(node: Expr) -> Expr:
    if not isinstance(node, Cast) and (not isinstance(node, Apply) or node.args[0].dtype not in (dtypes.int64, dtypes.bool_)):
        return node
    return _RULES.step(node) or node
