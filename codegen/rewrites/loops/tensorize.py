"""The rewrite `tensorize`: an inner nest of loops is one instruction of the machine.

    for l in range(0, 16):                              for l in tensorize(range(0, 16), vpdpbusd(c[0], a[4*o], b[o, 0, 0])):
        for q in range(0, 4):                   -->         for q in range(0, 4):
            c[l] = c[l] + i32(a[4*o + q]) * ...                 c[l] = c[l] + i32(a[4*o + q]) * ...

Legal where the loops, all of constant extent, have one store inside, and what it computes is what the instruction says: the same operations
on elements of the same types, which lie as far apart along each loop as its operands do (`rewrites.intrinsics`). The loops stay as what it
means. A copy that is none of that (a rest, where sums are started) stays a loop; where no copy is, that is a `ScheduleError`. So does one
whose operands lie otherwise after another rewrite (`settled`). Whether the machine has the instruction is the affair of who asks. Results
differ by the remark of the instruction, if it has one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant
from tensorexpr.codegen.nest import Block, Buffer, Call, For, LoopNest, Store
from tensorexpr.codegen.rewrites.expressions import substituted_in
from tensorexpr.codegen.rewrites.intrinsics import Intrinsic, intrinsic_named, match
from tensorexpr.codegen.rewrites.paths import Path, around, loop_at, loop_paths, rewrite_loops, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.records import replace


def tensorize(nest: LoopNest, loop: str, instruction: str) -> LoopNest:
    """rewrite: for l: for q: c[l] += a[q] * b[l, q] --> instruction(c, a, b), where that is what the instruction computes.

    >>> import tensorexpr as te
    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> a = te.placeholder((2,), name="a")
    >>> c = te.compute((2,), lambda l: a[l] + 1, name="c")
    >>> body = '''  %x = load <2 x float>, ptr %a, align 4
    ...   %y = fadd <2 x float> %x, <float 1.0, float 1.0>
    ...   store <2 x float> %y, ptr %c, align 4'''
    >>> one_more = te.intrinsic("one_more2", c, body)
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[6, 2])
    ... y: parameter(f32[6, 2], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 6):
    ...         for j in range(0, 2):
    ...             y[i, j] = x[i, j] + 1.0
    ... ''')
    >>> "for j in tensorize(range(0, 2), one_more2(y[i, 0], x[i, 0])):" in str(tensorize(nest, "j", "one_more2"))
    True
    """
    found = intrinsic_named(instruction)
    reasons: list[tuple[int, str]] = []
    done = 0
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        if s.kind != "serial":
            raise refuse(f"expected a serial loop to tensorize, got {s.kind} {loop}", s, loop, "serial first")

    def called(s: For, path: Path) -> Block | None:
        nonlocal done
        call = _call(nest, found, s, path)
        if isinstance(call, str):
            reasons.append((_depth(s), call))
            return None
        done += 1
        return (replace(s, kind="tensorize", call=call),)

    made = rewrite_loops(nest, loop, called)
    if not done:
        hint = f"{found.name}: {str(found.program).strip().splitlines()[-2]}"
        reason = max(reversed(reasons), key=lambda one: one[0])[1]  # of the copy with most inside: others start or store what it adds up
        raise refuse(f"expected {reason}", loop_at(nest, loop_paths(nest, loop)[0]), loop, hint)
    return made


def settled(nest: LoopNest) -> LoopNest:
    """The nest with loops that are not what their instruction does any more, as where an operand was copied in another layout, as loops."""
    for loop in dict.fromkeys(s.index for _, s in walk_nest(nest) if isinstance(s, For) and s.call is not None):
        nest = rewrite_loops(nest, loop, partial(_settled, nest))
    return nest


def _settled(nest: LoopNest, s: For, path: Path) -> Block | None:
    if s.call is None:
        return None
    serial = replace(s, kind="serial", call=None)
    call = _call(nest, intrinsic_named(s.call.name), serial, path)
    return (serial if isinstance(call, str) else replace(s, call=call),)


def _depth(s: For) -> int:
    """How many loops are one right inside the other."""
    return 1 + max((_depth(one) for one in s.body if isinstance(one, For)), default=0)


def _call(nest: LoopNest, found: Intrinsic, s: For, path: Path) -> Call | str:
    """The instruction with operands with which it does what a loop does; else the reason why it does not."""
    extents: list[tuple[str, int]] = []
    one: object = s
    while isinstance(one, For):
        start, stop = constant(one.start), constant(one.stop)
        if start != 0 or stop is None or len(one.body) != 1 or one.kind != "serial":
            return f"serial loops of constant extent with one statement for {found.name}, got {one.index}"
        extents.append((one.index, stop))
        one = one.body[0]
    if not isinstance(one, Store):
        return f"one store in the loops for {found.name}, got other statements"
    target, value = Access(one.buffer, one.indices, one.value.dtype), one.value
    if found.adds:
        if not isinstance(value, Apply) or value.op.name != "add" or value.args[0] != target:
            return f"a sum for {found.name}, got another statement"
        value = value.args[1]
    shapes = _shapes(nest, around(nest, path).locals)
    operands = match(found, tuple(extents), target, value, shapes)
    if isinstance(operands, str):
        return operands
    zeros: dict[str, Expr] = {index: ZERO for index, _ in extents}

    def first(access: Access) -> Access:
        return replace(access, indices=tuple(substituted_in(i, zeros) for i in access.indices))

    inputs = (first(operands[i.name]) for i in found.program.inputs)
    return Call(found.name, found.operands, (first(target), *inputs), found.body, found.declarations)


def _shapes(nest: LoopNest, locals_: tuple[Buffer, ...]) -> Mapping[str, tuple[Expr, ...]]:
    found = {b.name: b.shape for b in (*nest.parameters, *nest.workspace, *locals_)}
    return found | {c.name: c.type.shape for c in nest.constants}
