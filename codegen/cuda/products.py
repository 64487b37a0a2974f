"""The text of a product of matrices on tensor cores: operands into fragments, then one instruction for each tile of a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tensorexpr import dtypes
from tensorexpr.codegen.cuda import values as v
from tensorexpr.codegen.cuda.expressions import Emitter
from tensorexpr.codegen.cuda.mma import Operand, Product
from tensorexpr.codegen.cuda.values import Value
from tensorexpr.codegen.nest import For
from tensorexpr.ir import Access, Expr, Index, integer


class Kernel(Protocol):
    """What writes a kernel: names, the indices in scope, and emitters of expressions."""

    scope: dict[str, Value]

    def word(self, name: str, role: str = "") -> str: ...

    def fragment(self, name: str) -> str: ...

    def emitter(self, names: frozenset[Expr], lines: list[str]) -> Emitter: ...


def write_product(kernel: Kernel, made: Product, lines: list[str], margin: str) -> None:
    """The lines of a product."""
    k, kind = kernel.word(made.k.index), made.kind
    length = integer(made.k.stop)
    kernel.scope[made.k.index] = Value(k, dtypes.int64, v.ATOM, True, 0, length - kind.depth)
    lane = kernel.word(made.lane.index, "thread")
    kernel.scope[made.lane.index] = Value(lane, dtypes.int64, v.ATOM, True, 0, integer(made.lane.stop) - 1)
    lines += [f"{margin}{{", f"{margin}  const int {lane} = (int)threadIdx.x;", f"{margin}  #pragma unroll"]
    lines.append(f"{margin}  for (int {k} = 0; {k} < {length}; {k} += {kind.depth}) {{")
    inner = margin + "    "
    type_ = "double" if kind.operand is dtypes.float64 else "uint32_t"
    names = []
    for operand, registers, element in ((made.a, kind.a_registers, made.a_element), (made.b, kind.b_registers, made.b_element)):
        name = kernel.fragment(operand.access.tensor)
        sizes = "".join(f"[{_length(loop)}]" for loop in operand.loops)
        lines.append(f"{inner}{type_} {name}{sizes}[{registers}];")
        # Where there are two tiles of two matrices each, one load takes both.
        pairs = next((loop.index for loop in reversed(operand.loops) if operand is made.b and operand.load and _length(loop) % 2 == 0), "")
        deepest = _loops(kernel, operand.loops, lines, inner, pairs)
        place = name + "".join(f"[{kernel.word(loop.index)}]" for loop in operand.loops)
        if operand.load:
            transposed = "true" if operand.load == "columns" else "false"
            start = Index(made.k.index)
            at = _place(kernel, made.a_row(start) if operand is made.a else made.b_row(start, pairs), lines, deepest)
            next_ = name + "".join(f"[{kernel.word(n)}{' + 1' if n == pairs else ''}]" for n in (loop.index for loop in operand.loops))
            filled = [place, next_] if pairs else [place]
            lines.append(f"{deepest}te_matrices<{transposed}>({', '.join(filled)}, &{at});")
            if kind.operand is dtypes.float32:
                lines += [f"{deepest}te_tf32({fragment});" for fragment in filled]
        else:
            _elements(kernel, made, operand, registers, element, place, lines, deepest)
        _close(operand.loops, lines, inner)
        names.append(place)
    both = (*made.a.loops, *made.b.loops)
    deepest = _loops(kernel, both, lines, inner)
    targets = [_place(kernel, access, lines, deepest) for access in made.accumulators()]
    counted = [_value(kernel, condition, lines, deepest) for condition in made.counted()]
    word = f"{kind.word}_columns" if counted else kind.word
    lines.append(f"{deepest}{word}({', '.join([*targets, *names, *counted])});")
    _close(both, lines, inner)
    lines += [f"{margin}  }}", f"{margin}}}"]


def _elements(
    kernel: Kernel,
    made: Product,
    operand: Operand,
    registers: int,
    element: Callable[[int, int, Expr], Access],
    place: str,
    lines: list[str],
    margin: str,
) -> None:
    """The registers of an operand, element by element."""
    for register in range(registers):
        parts = [_place(kernel, element(register, part, Index(made.k.index)), lines, margin) for part in range(made.kind.together)]
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
