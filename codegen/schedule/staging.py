"""The primitive `stage`: a tensor that a definition reads, copied into the workspace with its axes in another order.

What lanes read should lie side by side. Where an operand lies the other way (the weights of a gradient by the input of a
convolution with channels last), and every element is read many times, the copy costs little beside what it saves:

    C[i, j] = sum(A[i, k] * B[j, k] for k)   -->   P[k, j] = B[j, k];  C[i, j] = sum(A[i, k] * P[k, j] for k)

The copy is a definition like any other: its loops are those of `s["P"]`, values are the same to the last bit.
"""

from __future__ import annotations

from dataclasses import replace

from tensorexpr.codegen.schedule.legality import refuse
from tensorexpr.codegen.schedule.state import Stage, State, all_definitions, plain_order, plain_stages, program_facts
from tensorexpr.ir import Access, Axis, Define, Expr, Index, const
from tensorexpr.simplify.definitions import with_definitions
from tensorexpr.traversal import bottom_up, fresh_name, read_occurrences


def stage(state: State, name: str, tensor: str, order: tuple[int, ...]) -> tuple[State, str]:
    """rewrite: C[i] = ... T[a, b] ... --> P[b', a'] = T[a', b']; C[i] = ... P[b, a] ..., with the axes of T in the order given.

    >>> import tensorexpr as te
    >>> a, b = te.placeholder((8, 32), name="a"), te.placeholder((16, 32), name="b")
    >>> c = te.compute((8, 16), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k], 32), name="c")
    >>> s = te.schedule(c)
    >>> s["c"].stage("b", (1, 0))
    'b_staged'
    >>> s["b_staged"].loops
    ('a1', 'a0')
    """
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
    if sorted(order) != list(range(len(type_.shape))):
        raise refuse(found, f"expected each axis of {tensor} once, 0 to {len(type_.shape) - 1}, got {order}")
    taken = {*state.program.types, *state.program.sizes, *(n for d in all_definitions(state.program) for n, _ in d.results)}
    packed = fresh_name(f"{tensor}_staged", taken)
    indices = [f"a{k}" for k in range(len(order))]
    while taken & set(indices):
        indices = [f"{n}_" for n in indices]
    axes = tuple(Axis(indices[k], const(0), type_.shape[k]) for k in order)
    copy = Define(packed, axes, Access(tensor, tuple(map(Index, indices)), type_.dtype))

    def visit(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor == tensor:
            return replace(node, tensor=packed, indices=tuple(node.indices[k] for k in order))
        return node

    changed = replace(definition, value=bottom_up(definition.value, visit))
    definitions = [made for d in state.program.definitions for made in ((copy, changed) if d.results[0][0] == name else (d,))]
    program = with_definitions(state.program, definitions)
    fresh = {s.name: s for s in plain_stages(program, frozenset((packed, name)))}
    table: dict[str, Stage] = {}
    for known in state.table:
        if known == name:
            table[packed] = fresh[packed]
        table[known] = fresh.get(known, state.table[known])
    return replace(state, program=program, table=table), packed


def _is_plain(found: Stage) -> bool:
    return not (found.relations or found.kinds or found.place) and found.order == plain_order(found.parts)
