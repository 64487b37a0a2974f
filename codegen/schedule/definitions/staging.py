"""The primitive `stage`: a tensor that a definition reads, copied into the workspace in another layout.

What lanes read should lie side by side, and what a tile reads one after the other. Where an operand lies otherwise, and every
element is read many times, a copy costs little beside what it saves. Its layout is the order of its axes, of which some
may be cut into blocks, whose elements lie innermost:

    C[i, j] = sum(A[i, k] * B[k, j] for k)    -->    P[j_o, k, j_i] = B[k, 16*j_o + j_i]          layout ((1, 16), 0)
                                                     C[i, j] = sum(A[i, k] * P[j // 16, k, j % 16] for k)

With the blocks as wide as a tile of registers, a tile reads one panel from its beginning to its end, at the alignment of
the workspace. The last block of an axis that they do not divide is filled up with zeros, which nothing reads. The copy is a
definition like any other: its loops are those of `s["P"]`, values are the same to the last bit.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import Stage, State, all_definitions, plain_order, plain_stages, program_facts
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.legal.placement import check_placement
from tensorexpr.ir import Access, Axis, Const, Define, Expr, Index, TensorType, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import bottom_up, fresh_name, read_occurrences

Layout = tuple[int | tuple[int, int], ...]
"""The axes of a copy, outermost first: an axis of the tensor, or one with the length of its blocks."""


def stage(state: State, name: str, tensor: str, layout: Layout) -> tuple[State, str]:
    """rewrite: C[i] = ... T[a, b] ... --> P[b', a'] = T[a', b']; C[i] = ... P[b, a] ..., with the axes of T in the layout given."""
    found = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(definition, Define) or found.scan is not None:
        raise refuse(found, f"expected a plain definition outside of scans to stage a tensor for, got {name}")
    if not _is_plain(found) or state.placed_in(name):
        raise refuse(found, f"expected plain loops of {name}, which reads {tensor}, got changed ones", hint="stage first")
    accesses = [a for a, _, _ in read_occurrences(definition.value, ()) if a.tensor == tensor]
    if not accesses:
        reads = ", ".join(dict.fromkeys(a.tensor for a, _, _ in read_occurrences(definition.value, ())))
        raise refuse(found, f"expected a tensor that {name} reads to stage, got {tensor!r}", hint=f"it reads {reads or 'none'}")
    if any(access.tensor == tensor for access, _ in found.parts.unproved):
        raise refuse(found, f"expected reads of {tensor} that are known to be in bounds, got one that is checked as it runs")
    type_ = state.program.types[tensor]
    order = tuple(entry if isinstance(entry, int) else entry[0] for entry in layout)
    blocks = {entry[0]: entry[1] for entry in layout if not isinstance(entry, int)}
    if sorted(order) != list(range(len(type_.shape))):
        raise refuse(found, f"expected each axis of {tensor} once, 0 to {len(type_.shape) - 1}, got {order}")
    if any(length < 1 for length in blocks.values()):
        raise refuse(found, f"expected blocks of at least one element, got {layout}")
    taken = {*state.program.types, *state.program.sizes, *(n for d in all_definitions(state.program) for n, _ in d.results)}
    packed = fresh_name(f"{tensor}_staged", taken)
    copy = _copy(packed, tensor, type_, order, blocks, taken)

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Access) or node.tensor != tensor:
            return node
        outer = (_over("floordiv", node.indices[k], blocks[k], type_.shape[k]) if k in blocks else node.indices[k] for k in order)
        inner = (_over("mod", node.indices[k], n, type_.shape[k]) for k, n in blocks.items())
        return replace(node, tensor=packed, indices=(*outer, *inner))

    changed = replace(definition, value=bottom_up(definition.value, visit))
    definitions = [made for d in state.program.definitions for made in ((copy, changed) if d.results[0][0] == name else (d,))]
    program = with_definitions(state.program, definitions)
    fresh = {s.name: s for s in plain_stages(program, frozenset((packed, name)))}
    if found.place is not None:
        own = fresh[name]
        fresh[name] = replace(own, place=found.place, parts=replace(own.parts, axes=found.parts.axes))
    table: dict[str, Stage] = {}
    for known in state.table:
        if known == name:
            table[packed] = fresh[packed]
        table[known] = fresh.get(known, state.table[known])
    changed_state = written_anew(state, replace(state, program=program, table=table), "stage")
    for placed in () if found.place is None else state.placed_in(found.place.stage):
        check_placement(changed_state, placed.name)
    return changed_state, packed


def _copy(packed: str, tensor: str, type_: TensorType, order: tuple[int, ...], blocks: dict[int, int], taken: set[str]) -> Define:
    """The definition of a copy; its axes are called after the number of the axis of the tensor."""
    stems = [f"a{k}" for k in range(len(order))]
    while taken & {n for stem in stems for n in (stem, f"{stem}_o", f"{stem}_i")}:
        stems = [f"{n}_" for n in stems]
    axes, inner, inside = [], [], []
    indices: list[Expr] = [Index(stem) for stem in stems]
    for k in order:
        extent, block = type_.shape[k], blocks.get(k)
        if block is None:
            axes.append(Axis(stems[k], const(0), extent))
            continue
        axes.append(Axis(f"{stems[k]}_o", const(0), _over("floordiv", _sum(extent, const(block - 1)), block)))
        inner.append(Axis(f"{stems[k]}_i", const(0), const(block)))
        indices[k] = _sum(apply("mul", Index(f"{stems[k]}_o"), const(block)), Index(f"{stems[k]}_i"))
        if not isinstance(extent, Const) or int(extent.value) % block:
            inside.append(apply("lt", indices[k], extent))
    value: Expr = Access(tensor, tuple(indices), type_.dtype)
    if inside:
        value = apply("where", conjunction(inside), value, Const(False if type_.dtype.is_bool else 0, type_.dtype))
    return Define(packed, (*axes, *inner), value)


def _over(op: str, expr: Expr, block: int, extent: Expr | None = None) -> Expr:
    """A quotient or remainder; of a literal, a literal, and of an index below an extent that one block holds, 0 or the index."""
    if isinstance(extent, Const) and int(extent.value) <= block:
        return const(0) if op == "floordiv" else expr
    if isinstance(expr, Const):
        return const(int(expr.value) // block if op == "floordiv" else int(expr.value) % block)
    return apply(op, expr, const(block))


def _sum(a: Expr, b: Expr) -> Expr:
    return const(int(a.value) + int(b.value)) if isinstance(a, Const) and isinstance(b, Const) else apply("add", a, b)


def _is_plain(found: Stage) -> bool:
    return not (found.relations or found.kinds) and found.order == plain_order(found.parts)
