"""The rewrite `inline`: the value of a buffer where it is loaded, instead of the load.

    for i in range(0, n):                               for i in range(0, n):
        a[i] = x[i] * 2.0                                   y[i] = x[n - 1 - i] * 2.0 + 1.0
    for i in range(0, n):                        -->
        y[i] = a[n - 1 - i] + 1.0

Legal where each load has its value from stores that say it in indices alone (`reaching`): the element determines the iteration that
stored it, and what that value is made of is the same at the load. So reductions are not inlined (`fuse_at` moves their loops), nor what
is updated. Loops may have been cut or split before: branches and copies of loops become a choice, `32*i_o + i_i` is taken apart into
quotient and remainder. A local buffer is inlined alike. What is loaded nowhere then is not computed, unless it is an output of the nest;
checks stay where they are, so that what fails fails as before. Values keep their bits (but for products that meet a sum, which the
target fuses).
"""

from __future__ import annotations

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.nest import Block, For, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import map_own_expressions
from tensorexpr.codegen.rewrites.paths import Path
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import changed, pruned, touched
from tensorexpr.codegen.rewrites.touched.reaching import Values
from tensorexpr.ir import Access, Expr
from tensorexpr.traversal import bottom_up


def inline(nest: LoopNest, buffer: str) -> LoopNest:
    """The nest with the value of a buffer in place of every load of it, and without its stores if nothing else needs them.

    Raises `ScheduleError` for a load whose value no expression says.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[6] = input()
    ... a[i]: f32[6] = x[i] * 2.0
    ... y[i]: f32[6] = a[5 - i] + 1.0
    ... return y
    ... ''')
    >>> print(inline(named(plain_nest(program)), "a"))
    main(x, y)
    x: parameter(f32[6])
    y: parameter(f32[6], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i_1 in range(0, 6):
            y[i_1] = x[5 - i_1] * 2.0 + 1.0
    <BLANKLINE>
    """
    found = dependences(nest)
    known: dict[Path, Values] = {}
    gone: set[Path] = set()
    for one in touched(nest, buffer):
        known.update(dict.fromkeys(one.reads, Values(nest, one, found)))
        if buffer not in nest.writes:
            gone.update(one.stores)

    def replaced(path: Path, s: Stmt) -> Block:
        if path in gone:
            return ()
        if isinstance(s, For) and s.call is not None:
            raise refuse(f"expected loads of {buffer} by statements, got one by an instruction", s)

        def value(node: Expr) -> Expr:
            return known[path].at(path, node) if isinstance(node, Access) and node.tensor == buffer else node

        return (map_own_expressions(s, lambda expr: bottom_up(expr, value)),)

    return pruned(changed(nest, known.keys() | gone, replaced), nest)
