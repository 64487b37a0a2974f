"""Sums of few products in each lane, as the instructions that processors have for them.

    for j in vectorize(range(16)):
        for q in unroll(range(4)):
            c[j] = c[j] + i32(a[q]) * i32(b[j, q])            vpdpbusd: four numbers of a for all lanes, four of b in each

The loop stays in the nest as what the instruction means; here it is recognized by what its loads are: one factor is the same in all lanes,
with its elements side by side along the loop, those of the other lie in each lane side by side and lanes one behind the other.
Integers have the same bits. Of bfloat16 the second product of a pair is added before the first, and subnormal numbers count as zero, as
the instruction has it (Intel, Architecture Instruction Set Extensions, VDPBF16PS).

| sum | factors | loop | instruction | feature |
|---|---|---|---|---|
| int32 | uint8 by int8, int8 by int8 | 4 | `vpdpbusd` | AVX512-VNNI |
| int32 | int16 by int16 | 2 | `vpdpwssd` | AVX512-VNNI |
| float32 | bfloat16 by bfloat16 | 2 | `vdpbf16ps` | AVX512-BF16 |

Two int8: (a + 128) * b is a product of the instruction, and 128 * b is another, which all rows of a tile share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from tensorexpr import dtypes
from tensorexpr.codegen.llvm.emitter import memory as emit_memory
from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.codegen.nest import For, Store
from tensorexpr.codegen.target import DOTS, Dot
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Cast, Expr
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, tensors_read

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.statements import Statements

BITS = 512
"""Bits of a register of these instructions."""
MOST_REGISTERS = 4
"""Registers of one piece of a vectorized loop."""


FEATURES = {"avx512_vnni": "+avx512vnni", "avx512_bf16": "+avx512bf16"}
"""What LLVM calls the features."""
NAMES = {
    dtypes.int8: ("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>"),
    dtypes.int16: ("llvm.x86.avx512.vpdpwssd.512", "<16 x i32>"),
    dtypes.bfloat16: ("llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>"),
}
"""What LLVM calls the instructions, and the type of both factors there, by the type of the factor that each lane has for itself."""


class Found(NamedTuple):
    """An instruction that a loop is, the store in it, the factor that all lanes share and the one that each has for itself."""

    dot: Dot
    store: Store
    shared: Access
    own: Access


def dot_in(s: For, extent: int, apart: Callable[[Access], tuple[float, float] | None], features: Collection[str]) -> Found | None:
    """The instruction that an unrolled loop in lanes is on a machine with some `features`, as LLVM calls them; None where it is none.

    `apart` says how many elements the lanes of an access lie apart, and iterations of the loop.
    """
    store = s.body[0] if len(s.body) == 1 else None
    factors = _factors(store, s.index) if isinstance(store, Store) else None
    if factors is None or not isinstance(store, Store):
        return None
    for shared, own in (factors, factors[::-1]):
        for dot in DOTS:
            if (dot.total, dot.shared, dot.own, dot.products) != (store.value.dtype, shared.dtype, own.dtype, extent):
                continue
            if FEATURES[dot.feature] in features and apart(shared) == (0, 1) and apart(own) == (dot.products, 1):
                return Found(dot, store, shared, own)
    return None


def summed(emitter: Statements, s: For, extent: int) -> bool:
    """Emits an unrolled loop in lanes that adds products of narrow numbers by such an instruction, if it does; says whether it was."""
    if emitter.mask is not None or emitter.lanes * 32 % BITS or emitter.lanes * 32 // BITS > MOST_REGISTERS:
        return False
    place = emitter.b.mark()
    found = dot_in(s, extent, lambda access: _apart(emitter, s.index, access), emitter.machine.features.split(","))
    if found is None:
        emitter.b.rewind(place)
        return False
    _emit(emitter, s, found)
    return True


def _factors(store: Store, index: str) -> tuple[Access, Access] | None:
    """The loads whose product, in the type of the sum, a store adds to what is there."""
    value = store.value
    if not (isinstance(value, Apply) and value.op.name == "add" and all(index not in free_names(i) for i in store.indices)):
        return None
    for total, product in (value.args, value.args[::-1]):
        own = isinstance(total, Access) and total.tensor == store.buffer and total.indices == store.indices
        if own and isinstance(product, Apply) and product.op.name == "mul":
            one, other = (_loaded(factor) for factor in product.args)
            if one is not None and other is not None and store.buffer not in (one.tensor, other.tensor):
                return one, other
    return None


def _loaded(factor: Expr) -> Access | None:
    """The element that a factor is, in a wider type."""
    if isinstance(factor, Cast) and isinstance(factor.arg, Access):
        indices = factor.arg.indices
        return factor.arg if not any(map(tensors_read, indices)) else None
    return None


def _emit(emitter: Statements, s: For, found: Found) -> None:
    dot, store, shared, own = found
    b, lanes, count = emitter.b, emitter.lanes, dot.products
    total = emitter.expr(Access(store.buffer, store.indices, dot.total))
    total = b.vector(total, lanes)
    one, many = emitter.buffers[shared.tensor], emitter.buffers[own.tensor]
    with emitter.bound(s.index, literal(0, "i64")):
        at, first = emitter.offset(one, shared.indices), emitter.offset(many, own.indices)
    pointer = b.emit(f"getelementptr inbounds {one.element}, ptr {one.pointer}, i64 {at.text}", "ptr")
    word = b.emit(f"load i32, ptr {pointer.text}, align {one.align}", "i32")
    signed = dot.shared is dtypes.int8
    if signed:
        word = b.op("xor", word, Value("-2139062144", "i32"))  # 0x80 in each byte: 128 more
    words = b.vector(word, 16)
    pieces = []
    for piece in range(lanes // 16):
        start = b.add(first.base, piece * 16 * count)
        pointer = b.emit(f"getelementptr inbounds {many.element}, ptr {many.pointer}, i64 {start.text}", "ptr")
        numbers = b.emit(f"load <16 x i32>, ptr {pointer.text}, align {many.align}", "i32", 16)
        sums = total if lanes == 16 else b.shuffled(total, range(piece * 16, piece * 16 + 16))
        if signed:
            lanes_128 = Value("splat (i32 -2139062144)", "i32", 16)
            sums = b.op("sub", sums, _called(emitter, dot, Value("zeroinitializer", "i32", 16), lanes_128, numbers))
        pieces.append(_called(emitter, dot, sums, words, numbers))
    binding, sums = emitter.buffers[store.buffer], b.joined(pieces)
    emit_memory.store(b, binding, emitter.offset(binding, store.indices), sums, lanes, None)


def _apart(emitter: Statements, index: str, access: Access) -> tuple[int, int] | None:
    """How many elements lanes of an access lie apart, and iterations of the loop; None where that is not known."""
    binding = emitter.buffers[access.tensor]
    if binding.lanes > 1 or len(access.indices) != len(binding.strides):
        return None
    step, opaque = 0, Opaque()
    for place, row in zip(access.indices, binding.strides, strict=True):
        form = affine_of(place, opaque)
        if form is None or any(index in Affine.of(atom).names() for atom in form.atoms() if not isinstance(atom, str)):
            return None
        if any(index in free_names(e) for e in opaque.names):
            return None
        factor = form.coefficient(index)
        if factor and row.const is None:
            return None
        step += factor * int(row.const or 0)
    with emitter.bound(index, literal(0, "i64")):
        first = emitter.offset(binding, access.indices)
    return None if first.lanes > 1 and not first.stride else (first.stride, step)


def _called(emitter: Statements, dot: Dot, sums: Value, words: Value, numbers: Value) -> Value:
    b = emitter.b
    name, operand = NAMES[dot.own]
    b.module.declarations[name] = f"declare {sums.full_type} @{name}({sums.full_type}, {operand}, {operand})"
    operands = [value.text for value in (words, numbers)]
    if operand != words.full_type:
        operands = [b.emit(f"bitcast {v.typed} to {operand}", "bfloat", 32).text for v in (words, numbers)]
    arguments = ", ".join(f"{operand} {value}" for value in operands)
    return b.emit(f"call {sums.full_type} @{name}({sums.typed}, {arguments})", sums.type, 16)
