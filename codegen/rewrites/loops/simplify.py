"""The rewrite `simplify`: indices, conditions, bounds and literals as what they are under the loops and conditions around them.

    for i in range(0, 4):                                   for i in range(0, 4):
        for j in range(0, minimum(8, i + 8)):      -->          for j in range(0, 8):
            if i*8 + j < 40:                                        y[i*8 + j] = x[i, j]
                y[i*8 + j] = x[(i*8 + j)//8, (i*8 + j)%8]

Tests that are decided go, and with them what never runs; a loop of one iteration becomes what it has inside, a loop of none goes; a check
that cannot fail goes. Always legal: each value keeps its bits, for only integers that are indices, and conditions, are looked at.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, maximum, minimum, normal, sub
from tensorexpr.codegen.nest import GRID, THREADS, Ahead, Alloc, Block, Call, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import buffers_written, elements_read
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.paths import distinct
from tensorexpr.codegen.rewrites.touched.places import pruned
from tensorexpr.ir import FALSE, TRUE, Access, Apply, Const, Expr, apply
from tensorexpr.records import replace
from tensorexpr.regions import within
from tensorexpr.traversal import map_children, negate, walk


def simplify(nest: LoopNest, *buffers: str) -> LoopNest:
    """rewrite: what is decided is not asked; of some buffers: in the kernels that store to one of them, or to none.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> from tensorexpr.codegen.rewrites.loops.simplify import simplify
    >>> print(simplify(parse_nest('''
    ... main(y)
    ... y: parameter(f32[40], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 5):
    ...         for j in range(0, minimum(8, i + 8)):
    ...             if j + i * 8 < 40:
    ...                 y[j + i * 8] = f32((j + i * 8) // 8)
    ... ''')))
    main(y)
    y: parameter(f32[40], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, 5):
            for j in range(0, 8):
                y[j + i * 8] = f32(i)
    <BLANKLINE>
    """
    kernels, least = [], dict(nest.least)
    for kernel in nest.kernels:
        written = buffers_written(kernel.body)
        body = kernel.body if buffers and written and written.isdisjoint(buffers) else simplified(kernel.body, Facts(written, least=least))
        if body:
            alone = all(isinstance(s, For) and s.kind == "parallel" for s in body)  # else they run one after the other
            kernels.append(kernel if body is kernel.body else replace(kernel, body=body, together=kernel.together and alone))
    made = distinct(replace(nest, kernels=tuple(kernels)))
    return made if len(kernels) == len(nest.kernels) else pruned(made, nest)


def simplified(block: Block, facts: Facts, ended: bool = True) -> Block:
    """A block where some facts hold. What is not changed is the same object. Unless `ended`, loops of one iteration and of none stay, so
    that a rewrite behind finds the names that it would find at other extents."""
    made = tuple(s for old in block for s in _statement(old, facts, ended))
    return block if len(made) == len(block) and all(new is old for new, old in zip(made, block, strict=True)) else made


def _statement(s: Stmt, facts: Facts, ended: bool) -> Block:
    match s:
        case For():
            return _loop(s, facts, ended)
        case Ahead():
            return (replace(s, condition=decided(s.condition, facts), then=simplified(s.then, facts.under(s.condition), ended)),)
        case If():
            condition = decided(s.condition, facts)
            if isinstance(condition, Const):
                return simplified(s.then if condition.value else s.otherwise, facts, ended)
            then = simplified(s.then, facts.under(condition), ended)
            otherwise = s.otherwise and simplified(s.otherwise, facts.under(negate(condition)), ended)
            if not then and not otherwise:
                return ()
            if not then:
                return (If(negate(condition), otherwise),)
            same = condition is s.condition and then is s.then and otherwise is s.otherwise
            return (s if same else replace(s, condition=condition, then=then, otherwise=otherwise),)
        case Alloc():
            body = simplified(s.body, facts, ended)
            if not any(a.tensor == s.buffer.name for a in elements_read(body)) and s.buffer.name not in buffers_written(body):
                return body
            return (s if body is s.body else replace(s, body=body),)
        case Store():
            indices, value = tuple(decided(e, facts) for e in s.indices), decided(s.value, facts)
            same = value is s.value and all(a is b for a, b in zip(indices, s.indices, strict=True))
            return (s if same else replace(s, indices=indices, value=value),)
        case Check():
            index, extent = decided(s.index, facts), decided(s.extent, facts)
            if facts.is_less(index, extent) and facts.is_less(ZERO, index, 0):
                return ()
            return (s if index is s.index and extent is s.extent else replace(s, index=index, extent=extent),)
    return (s,)


def _loop(s: For, facts: Facts, ended: bool) -> Block:
    start, stop = decided(s.start, facts), decided(s.stop, facts)
    if ended and facts.is_less(stop, start, 0):
        return ()
    single = ended and s.kind not in (*GRID, *THREADS) and s.call is None
    if single and facts.is_less(start, stop) and facts.is_less(stop, apply("add", start, ONE), 0):
        return simplified(substituted(s.body, {s.index: start}), facts)
    inner = facts.loop(s.index, start, stop)
    body = simplified(s.body, inner, ended)
    if not body and s.call is None:
        return ()
    call = None if s.call is None else _call(s.call, inner)
    same = body is s.body and start is s.start and stop is s.stop and call == s.call
    return (s if same else replace(s, start=start, stop=stop, body=body, call=call),)


def _call(call: Call, facts: Facts) -> Call:
    made = []
    for operand in call.operands:
        found = decided(operand, facts)
        assert isinstance(found, Access)
        made.append(found)
    return replace(call, operands=tuple(made))


def decided(expr: Expr, facts: Facts) -> Expr:
    """An expression where some facts hold: conditions that are known are literals, choices that are known are made, quotients are what
    they are. The same object where nothing changes."""
    return _decided(expr, facts) if any(map(_is_open, walk(expr))) else expr


def _is_open(node: Expr) -> bool:
    if not isinstance(node, Apply):
        return False
    name = node.op.name
    if name in ("where", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "invert"):
        return True
    return node.dtype is dtypes.int64 and name in ("minimum", "maximum", "abs", "floordiv", "mod")


def _decided(expr: Expr, facts: Facts) -> Expr:
    if isinstance(expr, Apply) and expr.op.name == "where":
        condition = _decided(expr.args[0], facts)
        if isinstance(condition, Const):
            return _decided(expr.args[1 if condition.value else 2], facts)
        args = (condition, _where(expr.args[1], condition, facts), _where(expr.args[2], negate(condition), facts))
        return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else replace(expr, args=args)
    if isinstance(expr, Apply) and expr.dtype.is_bool:
        holds = facts.holds(expr)
        if holds is not None:
            return TRUE if holds else FALSE
    if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and expr.op.name in ("floordiv", "mod"):
        expr = within(expr, facts.box)
    made = map_children(expr, lambda child: _decided(child, facts))
    return _folded(made, facts) if isinstance(made, Apply) else made


def _where(expr: Expr, condition: Expr, facts: Facts) -> Expr:
    """`decided` where a condition holds besides."""
    return _decided(expr, facts.under(condition)) if any(map(_is_open, walk(expr))) else expr


def _folded(node: Apply, facts: Facts) -> Expr:
    """An operation whose operands are decided."""
    name = node.op.name
    if name in ("and", "or") and node.dtype.is_bool:
        unit = TRUE if name == "and" else FALSE
        rest = [a for a in node.args if a != unit]
        settled = FALSE if name == "and" else TRUE
        return settled if settled in rest else unit if not rest else rest[0] if len(rest) == 1 else node
    if name == "invert" and node.args[0] in (TRUE, FALSE):
        return negate(node.args[0])
    if node.dtype is not dtypes.int64:
        return node
    if name in ("minimum", "maximum"):
        first, second = node.args
        for low, high in ((first, second), (second, first)):
            if facts.is_less(low, high, 0):
                return low if name == "minimum" else high
        return (minimum if name == "minimum" else maximum)(first, second)
    if name == "abs" and facts.is_less(ZERO, node.args[0], 0):
        return node.args[0]
    if name == "abs" and facts.is_less(node.args[0], ZERO, 0):
        return sub(ZERO, node.args[0])
    if name == "mod" and (place := facts.wrapped(node)) is not None:
        if facts.is_less(place, node.args[1]):
            return normal(place)
        if facts.is_less(node.args[1], place, 0):
            return normal(apply("sub", place, node.args[1]))
    if name in ("add", "sub", "mul", "neg", "floordiv", "mod"):
        return within(normal(node), facts.box)
    return node
