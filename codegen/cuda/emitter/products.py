"""The text of a product of matrices on tensor cores: operands into fragments, then one instruction for each tile of a warp.

Where a loop around it does nothing but wait for its tiles and fill those of iterations to come, and a warp has its block's part of a
multiprocessor for itself, fragments are loaded one instruction's depth ahead, past the end of an iteration, too: the barrier then stands
between instructions whose operands are there, so that tensor cores work on while warps wait for each other and for what they load first.

    for k_o: { wait; fill k_o + 2; for k: { A, B = load(k_o, k); C += A B } }
    -->  wait; fill 2; A, B = load(0, 0)
         for k_o: for k: { A', B' = load(k_o, k + 16), or behind the last: wait; fill k_o + 3; load(k_o + 1, 0); C += A B; A, B = A', B' }
"""

from __future__ import annotations

from math import prod
from typing import Protocol

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.emitter.mma import PIECES, Operand, Product
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.expressions import Emitter
from tensorexpr.codegen.cuda.thread.values import Value
from tensorexpr.codegen.nest import For, Stmt
from tensorexpr.ir import Access, Expr, Index, apply, const, integer
from tensorexpr.traversal import substitute

LONE = 96
"""Accumulators of a lane from which on its block is alone on a multiprocessor; with fewer, one block works while another waits."""
REGISTERS = 200
"""Registers of a lane for accumulators and fragments: the rest of 255 are addresses and what is under way."""


class Kernel(Protocol):
    """What writes a kernel: names, the indices in scope, and emitters of expressions."""

    scope: dict[str, Value]

    def word(self, name: str, role: str = "") -> str: ...

    def fragment(self, name: str) -> str: ...

    def emitter(self, names: frozenset[Expr], lines: list[str]) -> Emitter: ...

    def outside_of_lanes(self, statements: tuple[Stmt, ...], lines: list[str], margin: str) -> None: ...


def write_product(kernel: Kernel, made: Product, lines: list[str], margin: str) -> None:
    """The lines of a product."""
    k, lane, length = _entered(kernel, made)
    lines += [f"{margin}{{", f"{margin}  const int {lane} = (int)threadIdx.x;", f"{margin}  #pragma unroll"]
    lines.append(f"{margin}  for (int {k} = 0; {k} < {length}; {k} += {made.kind.depth}) {{")
    inner = margin + "    "
    names = _declared(kernel, made, "", lines, inner)
    _loaded(kernel, made, names, Index(made.k.index), lines, inner)
    _multiplied(kernel, made, names, Index(made.k.index), lines, inner)
    lines += [f"{margin}  }}", f"{margin}}}"]


def may_rotate(made: Product) -> bool:
    """Whether a lane has room for two sets of fragments, and use for them."""
    wide = made.kind.operand.itemsize // 8 + 1
    tiles = [prod(_length(loop) for loop in operand.loops) for operand in (made.a, made.b)]
    accumulators = prod(tiles) * len(made.accumulators()) * wide
    pieces = [PIECES if side == made.split else 1 for side in "ab"]
    fragments = (tiles[0] * made.kind.a_registers * pieces[0] + tiles[1] * made.kind.b_registers * pieces[1]) * wide
    steps = integer(made.k.stop) // made.kind.depth
    return steps % 2 == 0 and accumulators >= LONE and accumulators + 2 * fragments <= REGISTERS


def write_rotated(kernel: Kernel, loop: For, head: tuple[Stmt, ...], made: Product, lines: list[str], margin: str) -> None:
    """The lines of a loop that is `head`, which waits for tiles and fills those to come, and a product: fragments are loaded ahead."""
    k, lane, length = _entered(kernel, made)
    depth, start, stop = made.kind.depth, integer(loop.start), integer(loop.stop)
    name, next_ = kernel.word(loop.index), kernel.word(f"{loop.index} next", "next")
    inner, deepest = margin + "    ", margin + "      "
    kernel.scope[loop.index] = v.integer(start)
    kernel.outside_of_lanes(head, lines, margin)
    lines += [f"{margin}{{", f"{margin}  const int {lane} = (int)threadIdx.x;"]
    names = _declared(kernel, made, "[2]", lines, margin + "  ")
    _loaded(kernel, made, [f"{n}[0]" for n in names], const(0), lines, margin + "  ")
    kernel.scope[loop.index] = Value(name, dtypes.int64, v.ATOM, True, start, stop - 1)
    lines += [f"{margin}  for (int {name} = {start}; {name} < {stop}; ++{name}) {{", f"{inner}#pragma unroll"]
    lines += [f"{inner}for (int {k} = 0; {k} < {length}; {k} += {depth}) {{", f"{deepest}if ({k} + {depth} < {length}) {{"]
    ahead = [f"{n}[({k} / {depth} + 1) % 2]" for n in names]
    _loaded(kernel, made, ahead, apply("add", Index(made.k.index), const(depth)), lines, deepest + "  ")
    lines += [f"{deepest}}} else {{", f"{deepest}  const int {next_} = {name} + 1;"]
    kernel.scope[loop.index] = Value(next_, dtypes.int64, v.ATOM, True, start + 1, stop)
    kernel.outside_of_lanes(head, lines, deepest + "  ")
    _loaded(kernel, made, ahead, const(0), lines, deepest + "  ")
    lines.append(f"{deepest}}}")
    _multiplied(kernel, made, [f"{n}[{k} / {depth} % 2]" for n in names], Index(made.k.index), lines, deepest)
    lines += [f"{inner}}}", f"{margin}  }}", f"{margin}}}"]


def _entered(kernel: Kernel, made: Product) -> tuple[str, str, int]:
    """Takes the loops over k and over lanes into scope; gives their names and how long the former is."""
    k, length = kernel.word(made.k.index), integer(made.k.stop)
    kernel.scope[made.k.index] = Value(k, dtypes.int64, v.ATOM, True, 0, length - made.kind.depth)
    lane = kernel.word(made.lane.index, "thread")
    kernel.scope[made.lane.index] = Value(lane, dtypes.int64, v.ATOM, True, 0, integer(made.lane.stop) - 1)
    return k, lane, length


def _declared(kernel: Kernel, made: Product, sets: str, lines: list[str], margin: str) -> list[str]:
    """Declares the fragments of both operands, or sets of them, and gives their names."""
    type_ = "double" if made.kind.operand is dtypes.float64 else "uint32_t"
    names = []
    for side, registers in (("a", made.kind.a_registers), ("b", made.kind.b_registers)):
        operand = made.operand(side)
        names.append(kernel.fragment(operand.access.tensor))
        sizes = "".join(f"[{_length(loop)}]" for loop in operand.loops) + (f"[{PIECES}]" if side == made.split else "")
        lines.append(f"{margin}{type_} {names[-1]}{sets}{sizes}[{registers}];")
    return names


def _loaded(kernel: Kernel, made: Product, names: list[str], start: Expr, lines: list[str], margin: str) -> None:
    """The fragments of both operands for one instruction's depth along k."""
    kind = made.kind
    for name, side, registers in zip(names, "ab", (kind.a_registers, kind.b_registers), strict=True):
        operand = made.operand(side)
        # Where there are two tiles of two matrices each, one load takes both.
        pairs = next((loop.index for loop in reversed(operand.loops) if operand is made.b and operand.load and _length(loop) % 2 == 0), "")
        deepest = _loops(kernel, operand.loops, lines, margin, pairs)
        place, masked = _place_of(kernel, operand, name), made.masked and side == made.side
        if not operand.load:
            _elements(kernel, made, side, registers, start, place, lines, deepest)
        else:
            transposed = "true" if operand.load == "columns" else "false"
            at = _place(kernel, made.a_row(start) if operand is made.a else made.b_row(start, pairs), lines, deepest)
            next_ = name + "".join(f"[{kernel.word(n)}{' + 1' if n == pairs else ''}]" for n in (loop.index for loop in operand.loops))
            filled = [place, next_] if pairs else [place]
            lines.append(f"{deepest}te_matrices<{transposed}>({', '.join(filled)}, &{at});")
            if kind.operand is dtypes.float32:
                lines += [f"{deepest}te_tf32({fragment});" for fragment in filled]
        if masked and operand.load:
            for tile, fragment in enumerate(filled):
                moved = {pairs: apply("add", Index(pairs), const(tile))} if pairs else {}
                for register in range(registers):
                    parts = [substitute(made.holds(operand, register, part, start), moved) for part in range(kind.together)]
                    asked = ", ".join(_value(kernel, part, lines, deepest) for part in parts)
                    lines.append(f"{deepest}te_mask({fragment}[{register}], {asked});")
        _close(operand.loops, lines, margin)


def _multiplied(kernel: Kernel, made: Product, names: list[str], start: Expr, lines: list[str], margin: str) -> None:
    """One instruction for each tile of a warp, or one for each piece of an operand. Where a condition only leaves out zeros, it is asked
    where the other operand has something that times zero is none."""
    counted = [] if made.zeros or made.masked else made.counted()
    if not made.asked():
        _instructions(kernel, made, names, counted, "", lines, margin)
        return
    odd, type_ = kernel.fragment("odd"), "double" if made.kind.operand is dtypes.float64 else "uint32_t"
    lines.append(f"{margin}{type_} {odd} = 0;")
    for side, name in zip("ab", names, strict=True):
        operand = made.operand(side)
        if operand in made.asked():
            deepest = _loops(kernel, operand.loops, lines, margin)
            asked = _place_of(kernel, operand, name) + ("[0]" if side == made.split else "")
            lines.append(f"{deepest}te_zeros_{made.kind.word.removeprefix('te_mma_')}({odd}, {asked});")
            _close(operand.loops, lines, margin)
    lines.append(f"{margin}if (__any_sync(0xffffffffu, te_odd({odd}))) {{")
    if made.masked:
        each = kernel.word(f"{made.k.index} each", "point")
        kernel.scope[f"{made.k.index} each"] = Value(each, dtypes.int64, v.ATOM, True, 0, made.kind.depth - 1)
        lines.append(f"{margin}  for (int {each} = 0; {each} < {made.kind.depth}; ++{each}) {{")
        at_each = made.counted(apply("add", start, Index(f"{made.k.index} each")))
        _instructions(kernel, made, names, at_each, each, lines, margin + "    ", True)
        lines.append(f"{margin}  }}")
    else:
        _instructions(kernel, made, names, made.counted(), "", lines, margin + "  ", True)
    lines.append(f"{margin}}} else {{")
    _instructions(kernel, made, names, counted, "", lines, margin + "  ")
    lines.append(f"{margin}}}")


def _instructions(
    kernel: Kernel, made: Product, names: list[str], counted: list[Expr], each: str, lines: list[str], margin: str, odd: bool = False
) -> None:
    """The instructions, under conditions on columns or rows, or those of one point of k; `odd` says that operands may not be finite."""
    both = (*made.a.loops, *made.b.loops)
    deepest = _loops(kernel, both, lines, margin)
    fragments = [_place_of(kernel, made.operand(side), name) for side, name in zip("ab", names, strict=True)]
    if odd and made.split:
        fragments = [f if side == made.split else f"te_finite({f})" for side, f in zip("ab", fragments, strict=True)]
    targets = [_place(kernel, access, lines, deepest) for access in made.accumulators()]
    asked = [_value(kernel, condition, lines, deepest) for condition in counted]
    word = f"{made.kind.word}_{'rows' if made.side == 'a' else 'columns'}" if counted else made.kind.word
    lines.append(f"{deepest}{word}({', '.join([*targets, *fragments, *([each] if each else []), *asked])});")
    _close(both, lines, margin)


def _place_of(kernel: Kernel, operand: Operand, name: str) -> str:
    return name + "".join(f"[{kernel.word(loop.index)}]" for loop in operand.loops)


def _elements(kernel: Kernel, made: Product, side: str, registers: int, start: Expr, place: str, lines: list[str], margin: str) -> None:
    """The registers of an operand, element by element."""
    operand, masked = made.operand(side), made.masked and side == made.side
    for register in range(registers):
        parts = []
        for part in range(made.kind.together):
            parts.append(_place(kernel, made.element(operand, register, part, start), lines, margin))
            if masked:
                parts[-1] = f"te_counted({_value(kernel, made.holds(operand, register, part, start), lines, margin)}, {parts[-1]})"
        if side == made.split:
            lines.append(f"{margin}te_split({', '.join([*(f'{place}[{n}][{register}]' for n in range(PIECES)), *parts])});")
        else:
            packed = f"{made.kind.packs}({', '.join(parts)})" if made.kind.packs else parts[0]
            lines.append(f"{margin}{place}[{register}] = {packed};")


def _place(kernel: Kernel, access: Access, lines: list[str], margin: str) -> str:
    before: list[str] = []
    text = kernel.emitter(frozenset(), before).place(access.tensor, access.indices)
    lines += [margin + line for line in before]
    return text


def _value(kernel: Kernel, expr: Expr, lines: list[str], margin: str) -> str:
    before: list[str] = []
    text = kernel.emitter(frozenset(), before).value(expr).text
    lines += [margin + line for line in before]
    return text


def _length(loop: For) -> int:
    return integer(loop.stop)


def _loops(kernel: Kernel, loops: tuple[For, ...], lines: list[str], margin: str, pairs: str = "") -> str:
    """Opens unrolled loops, that of `pairs` with every second point; gives the margin inside."""
    for loop in loops:
        name, length, step = kernel.word(loop.index), _length(loop), 2 if loop.index == pairs else 1
        kernel.scope[loop.index] = Value(name, dtypes.int64, v.ATOM, True, 0, length - step)
        lines += [f"{margin}#pragma unroll", f"{margin}for (int {name} = 0; {name} < {length}; {name} += {step}) {{"]
        if step == 1:
            lines[-1] = lines[-1].replace(f"{name} += 1", f"++{name}")
        margin += "  "
    return margin


def _close(loops: tuple[For, ...], lines: list[str], margin: str) -> None:
    lines += [f"{margin}{'  ' * depth}}}" for depth in reversed(range(len(loops)))]
