"""Which loops of a nest are whose, and what a definition calls them.

Each definition has a table from its own names, which users say, to those of the nest. At first they are those of the plain nest: `i` of the
second definition may be `i_1` there. What a word makes of a loop is named after it on both sides; loops that a rewrite of the nest made
without a definition in mind belong to that from whose loop's name theirs begins (`i_1_o` is `i_o` to the definition whose `i` is `i_1`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.codegen.nest import Block, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import with_blocks
from tensorexpr.codegen.plain import Plain
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.codegen.rewrites.paths import distinct, walk_block, walk_nest
from tensorexpr.codegen.rewrites.regions import loops_of as loops_around
from tensorexpr.ir import Definition, Index, Scan
from tensorexpr.records import replace
from tensorexpr.traversal import fresh_name

Table = Mapping[str, Mapping[str, str]]
"""For each definition the names of its loops in the nest by its own names."""


def loops_in(nest: LoopNest) -> dict[str, None]:
    """The names of all loops, in the order of the text."""
    return dict.fromkeys(s.index for _, s in walk_nest(nest) if isinstance(s, For))


def buffers_stored(nest: LoopNest) -> dict[str, None]:
    """The buffers that statements store to, in the order of the text."""
    return dict.fromkeys(s.buffer for _, s in walk_nest(nest) if isinstance(s, Store))


def first_table(definitions: Iterable[Definition], plain: Plain, named: LoopNest) -> dict[str, dict[str, str]]:
    """The table of a plain nest whose loops have been given unique names, those of the nest in the order of the text."""
    unique = {
        id(old): new.index
        for (_, old), (_, new) in zip(walk_nest(plain.nest), walk_nest(named), strict=True)
        if isinstance(old, For) and isinstance(new, For)
    }
    found: dict[str, dict[str, str]] = {}
    taken_by_inner: set[int] = set()

    def visit(definition: Definition) -> None:
        name = definition.results[0][0]
        for inner in definition.body if isinstance(definition, Scan) else ():
            visit(inner)
        own = found[name] = {}
        for s in _loops(plain.blocks[name]):
            if id(s) not in taken_by_inner:
                taken_by_inner.add(id(s))
                own[fresh_name(s.index, set(own))] = unique[id(s)]

    for definition in definitions:
        visit(definition)
    return found


def _loops(block: Block) -> list[For]:
    return [s for _, s in walk_block(block) if isinstance(s, For)]


def apart_by_kernel(nest: LoopNest) -> tuple[LoopNest, dict[str, str]]:
    """The nest in which no loop of a kernel has the name of one in another kernel, so that a name is one of copies of one loop; and what
    those were called that have another name now."""
    seen: set[str] = set()
    old: dict[str, str] = {}
    kernels = []
    for kernel in nest.kernels:
        own = dict.fromkeys(s.index for _, s in walk_block(kernel.body) if isinstance(s, For))
        taken = seen | taken_names(nest)
        names = {name: fresh_name(name, taken) for name in own if name in seen}
        seen |= {names.get(name, name) for name in own}
        old.update((new, name) for name, new in names.items())
        kernels.append(replace(kernel, body=_renamed(kernel.body, names)) if names else kernel)
    return distinct(replace(nest, kernels=tuple(kernels))), old


def table_of(nest: LoopNest, buffers: Mapping[str, str], called: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The table of a nest that was not made of the plain one: for each definition the loops in which it is computed, by their names, or
    what they are `called`."""
    stored = buffers_stored(nest)
    found: dict[str, dict[str, str]] = {}
    for definition, buffer in buffers.items():
        own = found[definition] = {}
        for name in loops_around(nest, buffer) if buffer in stored else ():
            own[fresh_name(called.get(name, name), set(own))] = name
    return found


def _renamed(block: Block, names: Mapping[str, str]) -> Block:
    made = substituted(block, {old: Index(new) for old, new in names.items()})

    def one(s: Stmt) -> Stmt:
        s = replace(s, index=names[s.index]) if isinstance(s, For) and s.index in names else s
        return with_blocks(s, lambda body: tuple(map(one, body)))

    return tuple(map(one, made))


def in_order(nest: LoopNest, wanted: Iterable[str]) -> tuple[str, ...]:
    """Some loops of a nest, each after those around it (where two are around each other in turns, in the first place that has them so);
    else in the order of the text."""
    names = set(wanted)
    places: dict[str, list[tuple[int, ...]]] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, For) and s.index in names:
            places.setdefault(s.index, []).append(path)
    order: list[str] = []
    left = dict.fromkeys(places)

    def around(outer: str, inner: str) -> tuple[int, ...] | None:
        """The first place of a loop inside of another one."""
        return next((p for p in places[inner] if any(p[: len(q)] == q for q in places[outer] if len(q) < len(p))), None)

    def is_around(outer: str, inner: str) -> bool:
        found, turned = around(outer, inner), around(inner, outer)
        return found is not None and (turned is None or found < turned)

    while left:
        free = next((n for n in left if not any(is_around(o, n) for o in left if o != n)), next(iter(left)))
        del left[free]
        order.append(free)
    return tuple(order)


def followed(table: Table, before: LoopNest, after: LoopNest) -> Table:
    """The table behind a rewrite that knows no definitions: loops that are new belong to the definition from whose names theirs begin."""
    new = [name for name in loops_in(after) if name not in loops_in(before)]
    made = {definition: dict(own) for definition, own in table.items()}
    for name in new:
        whose = [(len(n), d, user) for d, own in made.items() for user, n in own.items() if name.startswith(f"{n}_")]
        if whose:
            length, definition, user = max(whose)
            made[definition][fresh_name(f"{user}{name[length:]}", set(made[definition]))] = name
    return made
