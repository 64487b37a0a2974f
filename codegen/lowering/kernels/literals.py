"""Literals folded in a finished kernel: what unrolling, tiles and borders leave of bounds and conditions once extents are numbers.

for k in range(minimum(0, 48), 8):                 for k in range(0, 8):
    if 3 < 4:                              -->         ...
        ...
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Ahead, Block, If, Kernel, Stmt
from tensorexpr.codegen.nest.walks import map_own_expressions, with_blocks
from tensorexpr.ir import FALSE, TRUE, Apply, Const, Expr
from tensorexpr.records import replace
from tensorexpr.rewrite import RuleSet
from tensorexpr.simplify.rules.common import choose_branch, fold_constants, logic_units
from tensorexpr.traversal import bottom_up, walk

_RULES = RuleSet((fold_constants, logic_units, choose_branch))


def with_folded_literals(kernel: Kernel) -> Kernel:
    """The kernel without operations on integer literals, and without tests that are decided."""
    return replace(kernel, body=_block(kernel.body))


def _block(block: Block) -> Block:
    return tuple(made for s in block for made in _statement(s))


def _statement(s: Stmt) -> Block:
    made = with_blocks(map_own_expressions(s, _folded), _block)
    if isinstance(made, If) and made.condition in (TRUE, FALSE) and not isinstance(made, Ahead):
        return made.then if made.condition == TRUE else made.otherwise
    return (made,)


def _folded(expr: Expr) -> Expr:
    return bottom_up(expr, _without_literals) if any(map(_is_foldable, walk(expr))) else expr


def _is_foldable(node: Expr) -> bool:
    """Whether an operation on integers has literals alone, or one on conditions a literal."""
    if not isinstance(node, Apply) or node.args[0].dtype not in (dtypes.int64, dtypes.bool_):
        return False
    return all(isinstance(a, Const) for a in node.args) or TRUE in node.args or FALSE in node.args


def _without_literals(node: Expr) -> Expr:
    return node if not isinstance(node, Apply) or node.args[0].dtype not in (dtypes.int64, dtypes.bool_) else _RULES.step(node) or node
