"""Loops over a few neighboring elements in one thread: their loads and stores as one access of up to sixteen bytes.

A loop of 2 to 16 lanes whose elements lie side by side, from an address that is a multiple of their size together, loads all of
them before it and stores all of them after it. That addresses are such multiples follows from the affine form of the position, and
from arguments that begin at multiples of sixteen bytes (`ALIGNMENT`), which every call sees to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tensorexpr.codegen.cuda.thread.expressions import row_major
from tensorexpr.codegen.nest import Buffer, For, If, Store
from tensorexpr.integers import Affine
from tensorexpr.ir import TRUE, Access, Apply, Const, Expr, Index, conjuncts, const, integer
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import bottom_up, children, free_names, tensors_read

ALIGNMENT = 16
"""Bytes of the widest access, of which every argument's address is a multiple."""
ALONE = (4, 8)
"""Bytes of an element that may be copied asynchronously by itself."""
_NONE: Mapping[Expr, int] = MappingProxyType({})


@record
class Pack:
    """Elements of a buffer that are accessed at once: the indices of the first, and the name of the array that holds them in the
    thread."""

    buffer: str
    first: tuple[Expr, ...]
    name: str


@record
class Packed:
    """A loop with its accesses taken out: what to load before, the loop over arrays of the thread, what to store after. What is read under
    a test of indices is loaded before, too, one by one where it holds: loads behind branches would wait for each other."""

    loads: tuple[Pack, ...]
    body: tuple[Store, ...]
    stores: tuple[Pack, ...]
    guarded: tuple[tuple[Pack, Access, Expr], ...] = ()


def packed(loop: For, buffers: dict[str, Buffer], fresh: Iterator[str], multiples: Mapping[Expr, int] = _NONE) -> Packed | None:
    """The loop with packs; None where nothing in it can be one."""
    lanes = integer(loop.stop)
    if not isinstance(loop.start, Const) or loop.start.value != 0 or lanes not in (2, 4, 8, 16):
        return None
    stores = [s for s in loop.body if isinstance(s, Store)]
    written = {s.buffer for s in stores}
    if len(stores) != len(loop.body) or len(written) != len(stores):
        return None
    # What is local goes element by element, in order.
    arrays = {name for name in written if buffers[name].memory != "local"}
    loads: dict[Access, Pack] = {}
    asked: dict[Access, set[Expr | None]] = {}
    for store in stores:
        for access, test in _under(store.value, TRUE):
            if access.tensor in arrays:
                return None
            asked.setdefault(access, set()).add(test)
    guarded: list[tuple[Pack, Access, Expr]] = []
    for access, tests in asked.items():
        if not is_pack(access.tensor, access.indices, loop.index, lanes, buffers, multiples):
            continue
        if TRUE in tests:
            loads[access] = Pack(access.tensor, _first(access.indices, loop.index), next(fresh))
        elif len(tests) == 1 and (test := tests.pop()) is not None:
            loads[access] = Pack(access.tensor, access.indices, next(fresh))
            guarded.append((loads[access], access, test))
    lane = Index(loop.index)

    def moved(e: Expr) -> Expr:
        def visit(n: Expr) -> Expr:
            if not isinstance(n, Access) or n not in loads:
                return n
            return replace(n, tensor=loads[n].name, indices=(lane,))

        return bottom_up(e, visit)

    kept: list[Pack] = []
    body = []
    for store in stores:
        if is_pack(store.buffer, store.indices, loop.index, lanes, buffers, multiples):
            kept.append(Pack(store.buffer, _first(store.indices, loop.index), next(fresh)))
            body.append(Store(kept[-1].name, (lane,), moved(store.value)))
        else:
            body.append(Store(store.buffer, store.indices, moved(store.value)))
    apart = {made.name for made, *_ in guarded}
    whole = tuple(made for made in loads.values() if made.name not in apart)
    return Packed(whole, tuple(body), tuple(kept), tuple(guarded)) if whole or kept else None


def _under(e: Expr, test: Expr | None) -> Iterator[tuple[Access, Expr | None]]:
    """The accesses of an expression with the one test of indices under which each is evaluated; None where there are others."""
    if isinstance(e, Access):
        yield e, test
    if isinstance(e, Apply) and e.op.name == "where":
        condition, taken, other = e.args
        yield from _under(condition, test)
        yield from _under(taken, condition if test == TRUE and not any(tensors_read(condition)) else None)
        yield from _under(other, None)
        return
    for child in children(e):
        yield from _under(child, test)


def copied(
    loop: For, buffers: dict[str, Buffer], shared: dict[str, int], multiples: Mapping[Expr, int] = _NONE
) -> tuple[Store, Access, int] | None:
    """The first store of a loop that copies neighbors (or one element) to shared memory as they are, what it reads, and how many bytes
    that is: as many as one asynchronous copy takes. `shared` gives how far apart the rows of a buffer lie, `multiples` as in `is_pack`."""
    lanes = int(loop.stop.value)  # type: ignore[attr-defined]  # loops over lanes stop at literals
    (store,) = loop.body if len(loop.body) == 1 else (None,)
    if not isinstance(store, Store) or store.buffer not in shared or not isinstance(store.value, Access):
        return None
    value, size = store.value, lanes * store.value.dtype.itemsize
    if not isinstance(loop.start, Const) or loop.start.value != 0 or buffers[value.tensor].memory == "local":
        return None
    if lanes > 1 or size not in ALONE:
        last = affine_of(store.indices[-1])
        if size not in (ALIGNMENT, *ALONE) or last is None or not _from_aligned(last, loop.index, lanes) or shared[store.buffer] % lanes:
            return None
        if any(loop.index in free_names(i) for i in store.indices[:-1]):
            return None
        if not is_pack(value.tensor, value.indices, loop.index, lanes, buffers, multiples):
            return None
    first = replace(value, indices=_first(value.indices, loop.index))
    return Store(store.buffer, _first(store.indices, loop.index), first), first, size


def copied_or_zero(
    s: If, buffers: dict[str, Buffer], shared: dict[str, int], multiples: Mapping[Expr, int] = _NONE
) -> tuple[Store, Access, int] | None:
    """The same of a condition under which neighbors are copied, where zeros are stored in their place else: such a copy fills up itself."""
    (then,), (otherwise,) = (block if len(block) == 1 else (None,) for block in (s.then, s.otherwise))
    if not isinstance(then, For) or then.kind != "vectorize" or not isinstance(otherwise, For | Store):
        return None
    found = copied(then, buffers, shared, multiples)
    (zero,) = otherwise.body if isinstance(otherwise, For) and len(otherwise.body) == 1 else (otherwise,)
    if found is None or not isinstance(zero, Store) or zero.value != Const(0, zero.value.dtype) or zero.buffer != found[0].buffer:
        return None
    if isinstance(otherwise, For) and (otherwise.start, otherwise.stop) != (then.start, then.stop):
        return None
    lane = otherwise.index if isinstance(otherwise, For) else then.index
    return found if _first(zero.indices, lane) == found[0].indices else None


def loaded_or_zero(s: If, buffers: Mapping[str, Buffer], multiples: Mapping[Expr, int] = _NONE) -> tuple[Store, Access, str, int] | None:
    """The store of a condition under which neighbors (or one element) are loaded into the thread, and zeros taken in their place else: it,
    what it reads first, the loop over the neighbors (none: "") and how many they are. Which they are says no data."""
    (then,), (otherwise,) = (block if len(block) == 1 else (None,) for block in (s.then, s.otherwise))
    store, zero, lane, lanes = then, otherwise, "", 1
    if isinstance(then, For) and isinstance(otherwise, For) and then.kind == "vectorize" and len(then.body) == len(otherwise.body) == 1:
        if then.start != const(0) or (then.start, then.stop, then.index) != (otherwise.start, otherwise.stop, otherwise.index):
            return None
        (store,), (zero,), lane, lanes = then.body, otherwise.body, then.index, integer(then.stop)
    if not isinstance(store, Store) or not isinstance(zero, Store) or not isinstance(store.value, Access):
        return None
    read, kinds = store.value, (buffers[store.buffer].memory, buffers[store.value.tensor].memory)
    if (zero.buffer, zero.indices, zero.value) != (store.buffer, store.indices, Const(0, zero.value.dtype)):
        return None
    if kinds[0] != "local" or kinds[1] == "local":
        return None
    if any(map(tensors_read, read.indices)) or not (lanes == 1 or is_pack(read.tensor, read.indices, lane, lanes, buffers, multiples)):
        return None
    return store, replace(read, indices=_first(read.indices, lane)), lane, lanes


def is_pack(
    name: str, indices: tuple[Expr, ...], lane: str, lanes: int, buffers: Mapping[str, Buffer], multiples: Mapping[Expr, int] = _NONE
) -> bool:
    """Whether the lanes ask for neighboring elements from an aligned place on, where some extents are multiples of numbers."""
    buffer = buffers[name]
    if buffer.memory == "local" or buffer.dtype.itemsize * lanes > ALIGNMENT:
        return False
    in_row = indices and multiples.get(buffer.shape[-1], 1) % lanes == 0 and not any(lane in free_names(i) for i in indices[:-1])
    position = indices[-1] if in_row else row_major(indices, buffer.shape)  # rows begin at such places
    form = None if position is None else affine_of(position)
    return form is not None and _from_aligned(form, lane, lanes)


def multiples_of(condition: Expr) -> dict[Expr, int]:
    """What a condition says are multiples, and of what."""
    tests = [c for c in conjuncts(condition) if isinstance(c, Apply) and c.op.name == "eq" and c.args[1] == const(0)]
    found = [t.args[0] for t in tests if isinstance(t.args[0], Apply) and t.args[0].op.name == "mod"]
    return {e.args[0]: integer(e.args[1]) for e in found if isinstance(e.args[1], Const)}


def _from_aligned(form: Affine, lane: str, lanes: int) -> bool:
    """Whether a position goes along with the lane from a multiple of the lanes on."""
    if form.coefficient(lane) != 1 or form.constant % lanes:
        return False
    for atom, factor in form.terms:
        if atom == lane:
            continue
        if factor % lanes or (not isinstance(atom, str) and lane in atom.numerator.names()):
            return False
    return True


def _first(indices: tuple[Expr, ...], lane: str) -> tuple[Expr, ...]:
    return tuple(bottom_up(i, lambda n: const(0) if isinstance(n, Index) and n.name == lane else n) for i in indices)
