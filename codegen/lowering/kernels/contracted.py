"""Tensors between definitions of which every iteration touches its own element alone, as that element: array contraction.

    for i: { W[i] = f(x[i]); y[i] = g(W[i]); acc += W[i] }   -->   for i: { w: local; w = f(x[i]); y[i] = g(w); acc += w }

Loops that were made one (`merging`) leave such tensors behind: what is stored in an iteration is read in it again, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tensorexpr.codegen.lowering.kernels.merging import accesses
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Kernel, Stmt, Store
from tensorexpr.codegen.nest.verify import touched
from tensorexpr.ir import Access, Expr
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up


def contracted(kernels: Sequence[Kernel], workspace: Mapping[str, Buffer], fresh: Callable[[str], str]) -> list[Kernel]:
    """The kernels with tensors of the workspace that one of them alone touches, always at one element, kept as that element."""
    seen: dict[str, int] = {}
    for kernel in kernels:
        for name in touched((kernel,)):
            seen[name] = seen.get(name, 0) + 1
    made: list[Kernel] = []
    for kernel in kernels:
        for name in touched((kernel,)):
            if name in workspace and seen[name] == 1 and len(_places(kernel.body, name)) == 1:
                buffer = replace(workspace[name], name=fresh(name), shape=(), memory="local")
                body = _with_local(kernel.body, name, buffer)
                kernel = kernel if body is None else replace(kernel, body=body)
        made.append(kernel)
    return made


def _places(block: Block, name: str) -> set[tuple[Expr, ...]]:
    """The elements of a tensor that statements touch, as they are written."""
    found = {n.indices for n in accesses(block) if n.tensor == name}
    return found | {s.indices for s in _stores(block) if s.buffer == name}


def _stores(block: Block) -> list[Store]:
    found: list[Store] = []
    for s in block:
        match s:
            case Store():
                found.append(s)
            case For() | Alloc():
                found += _stores(s.body)
            case If():
                found += _stores((*s.then, *s.otherwise))
    return found


def _with_local(block: Block, name: str, buffer: Buffer) -> Block | None:
    """The statements with the element in a local buffer, around the innermost block that has all that touches it; None where it is not
    stored there before it is read."""
    mine = [i for i, s in enumerate(block) if name in set(touched((Kernel("", (s,)),)))]
    only = block[mine[0]]
    if len(mine) == 1 and isinstance(only, For | Alloc):
        inner = _with_local(only.body, name, buffer)
        return None if inner is None else (*block[: mine[0]], replace(only, body=inner), *block[mine[0] + 1 :])
    if not isinstance(only, Store) or only.buffer != name or any(n.tensor == name for n in accesses((only,))):
        return None
    return (Alloc(buffer, tuple(at_local(s, name, buffer.name) for s in block)),)


def at_local(s: Stmt, name: str, local: str, dropped: int | None = None) -> Stmt:
    """A statement that reads and writes the local buffer in place of a tensor: with all indices dropped, or so many from the front."""

    def rest(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return () if dropped is None else indices[dropped:]

    def visit(node: Expr) -> Expr:
        return replace(node, tensor=local, indices=rest(node.indices)) if isinstance(node, Access) and node.tensor == name else node

    def seen(e: Expr) -> Expr:
        return bottom_up(e, visit)

    match s:
        case Store():
            if s.buffer == name:
                return Store(local, tuple(map(seen, rest(s.indices))), seen(s.value))
            return replace(s, indices=tuple(map(seen, s.indices)), value=seen(s.value))
        case For():
            return replace(s, start=seen(s.start), stop=seen(s.stop), body=tuple(at_local(x, name, local, dropped) for x in s.body))
        case Alloc():
            return replace(s, body=tuple(at_local(x, name, local, dropped) for x in s.body))
        case If():
            then, otherwise = (tuple(at_local(x, name, local, dropped) for x in part) for part in (s.then, s.otherwise))
            return replace(s, condition=seen(s.condition), then=then, otherwise=otherwise)
        case Check():
            return replace(s, index=seen(s.index), extent=seen(s.extent))
    return s
