"""What lowering passes along: names handed out, checks to be made, and what the loops of a stage are walked for."""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.nest import Block, Buffer, CheckSite
from tensorexpr.ir import Access, Expr
from tensorexpr.records import field, record
from tensorexpr.traversal import fresh_name


@record(frozen=False)
class Names:
    """What lowering hands out: names of buffers, numbers of checks, and the workspace."""

    taken: set[str]
    checks: dict[CheckSite, int] = field(default_factory=dict)
    workspace: list[Buffer] = field(default_factory=list)

    def fresh(self, stem: str) -> str:
        return fresh_name(stem, self.taken)


@record
class Pending:
    """A check to be made: the access and axis, and the conditions under which the access is evaluated."""

    access: Access
    axis: int
    guards: tuple[Expr, ...]


@record
class Task:
    """What the loops are walked for: expressions needed, conditions around them, checks to make, statements at the innermost."""

    needs: tuple[Expr, ...]
    finish: Callable[[Scope], Block]
    where: tuple[Expr, ...] = ()
    checks: tuple[Pending, ...] = ()
    choose: Callable[[Expr], Task] | None = None
    """Makes the task for another value, where `needs` is one value that a condition further out may decide."""
    inside: Callable[[str, Scope, Callable[[], Block]], Block] | None = None
    """Wraps the body of a loop, for definitions that are computed there."""
