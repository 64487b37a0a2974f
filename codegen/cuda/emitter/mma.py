"""Products of matrices on tensor cores: which loops are one, found in a nest, and how its operands are spread over a warp.

    for k in 0..15, rh in 0..1, ch in 0..1, lane: acc[..., rh, ..., ch, lane] += f32(A[f(k, rh, lane)] * B[g(k, ch, lane)])

is `mma.m16n8k16` of every warp, where A does not depend on the lane's column (`lane % 4`) nor B on its row (`lane // 4 % 8`): a
warp holds a tile of 16 rows and 8 columns, lane `4 * r + c` the elements in rows r and r + 8 (`rh`) and columns 2 c and 2 c + 1 (`ch`),
which is how the instruction spreads its accumulators. Rows and columns have no other meaning, so whatever the accesses ask for, the
operand of row `8 rh + r` or column `2 c + ch` is the access at that `rh`, `ch` and lane. What is required is decided exactly, by
evaluating the indices at all points of the loops.

Products of 16-bit floats are added up as they are, without a rounding between: the liberty of a fused multiply-add. float64 goes by
`mma.m8n8k4`, without `rh`. float32 goes by `mma.m16n8k8` only where a nest says that its `precision` is "tf32": the instruction wants
factors of ten bits of fraction, so each is rounded to the nearest, away from zero in the middle. Operands of 16 bits come from shared
memory by `ldmatrix` where they lie side by side along k (or, transposed, along rows or columns), and so do those of float32 along k, each
as two of 16 bits; else element by element.

A factor of float32 beside one of bf16 goes as three of bf16, eight bits of its fraction each: three instructions, whose products are exact.

A condition around the sum, such as that of a window, may depend on the row or on the column: lanes then take in those that count. Where it
depends on k, too, as a triangle does, the operand of that side has zeros where it fails; and where it says no more than that an operand
is not one of the zeros that fill up its tile (`Filled`), these are there. All may then be taken in as long as the other operand is finite,
which a product with zero tells; else points of k come one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Block, Filled, For, If, Store
from tensorexpr.dtypes import DType
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, apply, conjunction, const
from tensorexpr.regions import affine_of, constraints_of, expression_of
from tensorexpr.traversal import free_names, substitute

WARP = 32
ROWS = 8
"""Rows of lanes of a warp, four to a row."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An instruction: its wrapper in the prelude, the dtype of its operands, points of the sum, elements of k in a register of an
    operand, the function that makes such a register ("": it is the element), registers of either operand and whether a lane has a
    second row (`rh`)."""

    word: str
    operand: DType
    depth: int
    together: int
    packs: str
    a_registers: int
    b_registers: int
    halves: bool


KINDS = (
    Kind("te_mma_bf16", dtypes.bfloat16, 16, 2, "te_pair", 4, 2, True),
    Kind("te_mma_f16", dtypes.float16, 16, 2, "te_pair", 4, 2, True),
    Kind("te_mma_f64", dtypes.float64, 4, 1, "", 1, 1, False),
)
KIND_SPLIT = KINDS[0]
"""The one for a factor of float32 in pieces, beside one that is its operand."""
PIECES = 3
KIND_TF32 = Kind("te_mma_tf32", dtypes.float32, 8, 1, "te_tf32", 4, 2, True)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: its access; the unrolled loops that it depends on, `rh` and `ch` aside; and how ldmatrix may load it: "rows" side by
    side along k, "columns" side by side across, or not ("")."""

    access: Access
    loops: tuple[For, ...]
    load: str


@dataclass(frozen=True, slots=True)
class Product:
    """A nest of loops as instructions: the loop over k, over lanes, the two rows and the two columns of a lane, the accumulator."""

    kind: Kind
    k: For
    lane: For
    row: For | None
    column: For
    a: Operand
    b: Operand
    target: Access
    where: Expr | None = None
    side: str = "b"
    """The operand whose rows ("a") or columns ("b") the condition is one of."""
    zeros: bool = False
    """Whether that operand is zero where the condition fails."""
    masked: bool = False
    """Whether it is made so, as the condition depends on k."""
    split: str = ""
    """The operand that is one of float32 in pieces, "a" or "b", if one is."""

    def element(self, operand: Operand, register: int, part: int, start: Expr) -> Access:
        """What a lane holds of an operand in one part of a register, k from `start`."""
        return _moved(operand.access, self._at(operand, register, part, start), self.lane)

    def holds(self, operand: Operand, register: int, part: int, start: Expr) -> Expr:
        """The condition on that."""
        assert self.where is not None
        return substitute(self.where, self._at(operand, register, part, start))

    def _at(self, operand: Operand, register: int, part: int, start: Expr) -> dict[str, Expr]:
        """Where that is: of the first operand, in the lane's row; of the second, in column lane // 4 % 8."""
        further, lane = register // 2 if operand is self.a else register, Index(self.lane.index)
        moved: dict[str, Expr] = {self.k.index: _sum(start, self._k(), const(part + further * 4 * self.kind.together))}
        if operand is self.b:
            row = apply("mod", apply("floordiv", lane, const(4)), const(ROWS))
            return moved | {
                self.lane.index: _sum(_warp(lane), apply("floordiv", row, const(2))),
                self.column.index: apply("mod", row, const(2)),
            }
        return moved if self.row is None else moved | {self.row.index: const(register % 2)}

    def operand(self, side: str) -> Operand:
        return self.a if side == "a" else self.b

    def asked(self) -> list[Operand]:
        """The operands that must be finite for products with zeros of the other, or with later pieces of it, to be of no account."""
        sides = {"b" if side == "a" else "a" for side in ([self.side] if self.zeros or self.masked else []) + [*self.split]}
        return [self.operand(side) for side in sorted(sides)]

    def a_row(self, start: Expr) -> Access:
        """The row whose address a lane gives to ldmatrix for four matrices of the first operand."""
        lane = Index(self.lane.index)
        number, later = apply("mod", lane, const(8)), apply("mod", apply("floordiv", lane, const(16)), const(2))
        assert self.row is not None
        moved: dict[str, Expr] = {self.row.index: apply("mod", apply("floordiv", lane, const(8)), const(2))}
        if self.a.load == "rows":
            moved[self.lane.index] = _sum(_warp(lane), apply("mul", number, const(4)))
            moved[self.k.index] = _sum(start, apply("mul", later, const(self.kind.depth // 2)))
        else:
            moved[self.lane.index] = _warp(lane)
            moved[self.k.index] = _sum(start, number, apply("mul", later, const(8)))
        return _moved(self.a.access, moved, self.lane)

    def b_row(self, start: Expr, pairs: str = "") -> Access:
        """The same for two matrices of the second operand; or for four, those of a tile and of the next along the loop `pairs`."""
        lane = Index(self.lane.index)
        number, later = apply("mod", lane, const(8)), apply("mod", apply("floordiv", lane, const(8)), const(2))
        if self.b.load == "rows":
            moved: dict[str, Expr] = {
                self.lane.index: _sum(_warp(lane), apply("floordiv", number, const(2))),
                self.column.index: apply("mod", lane, const(2)),
                self.k.index: _sum(start, apply("mul", later, const(self.kind.depth // 2))),
            }
        else:
            moved = {self.lane.index: _warp(lane), self.column.index: const(0), self.k.index: _sum(start, apply("mod", lane, const(16)))}
        if pairs:
            moved[pairs] = _sum(Index(pairs), apply("mod", apply("floordiv", lane, const(16)), const(2)))
        return _moved(self.b.access, moved, self.lane)

    def accumulators(self) -> list[Access]:
        """The elements of the accumulator that a lane has of one tile, in the order of the instruction."""
        rows = [0, 1] if self.row is not None else [0]
        found = []
        for row in rows:
            for column in (0, 1):
                moved: dict[str, Expr] = {self.column.index: const(column)}
                if self.row is not None:
                    moved[self.row.index] = const(row)
                found.append(_moved(self.target, moved, self.lane))
        return found

    def counted(self, k: Expr | None = None) -> list[Expr]:
        """The conditions on the two columns of a lane, or on its rows, at a point of k if they depend on that; none where all count."""
        if self.where is None:
            return []
        where = self.where if k is None else substitute(self.where, {self.k.index: k})
        twice = self.row if self.side == "a" else self.column
        return [where] if twice is None else [substitute(where, {twice.index: const(n)}) for n in (0, 1)]

    def _k(self) -> Expr:
        """Where along k the elements of a lane begin."""
        return apply("mul", apply("mod", Index(self.lane.index), const(4)), const(self.kind.together))


def _sum(*terms: Expr) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = apply("add", total, term)
    return total


def _warp(lane: Expr) -> Expr:
    return apply("mul", apply("floordiv", lane, const(WARP)), const(WARP))


def _moved(access: Access, moved: Mapping[str, Expr], lane: For) -> Access:
    return replace(access, indices=tuple(_sums(substitute(i, dict(moved)), lane) for i in access.indices))


def _sums(index: Expr, lane: For) -> Expr:
    """An index as a sum in normal form, quotients of quotients of lanes as the one quotient, or number, that they are for all lanes."""
    form = affine_of(index)
    if form is None:
        return index
    numbers = range(_length(lane) or 1)
    total = Affine([], form.constant)
    for atom, factor in form.terms:
        if isinstance(atom, FloorDiv) and set(atom.numerator.names()) == {lane.index}:
            values = [Affine.of(atom).evaluate({lane.index: n}) for n in numbers]
            whole = next((d for d in (n for n in numbers if n) if d & (d - 1) == 0 and values == [n // d for n in numbers]), None)
            total += Affine.of(lane.index) // whole * factor if whole else Affine.of(atom) * factor if any(values) else Affine([])
        else:
            total += Affine.of(atom) * factor
    return expression_of(total)


# ---------------------------------------------------------------------------------------------------------------- matching


def product_of(loop: For, homes: Mapping[str, str], pitch: Mapping[str, tuple[int, ...]], precision: str) -> Product | None:
    """The product that a loop over k is, if it is one. `homes` says where local buffers are kept, `pitch` how far apart the elements
    of shared ones lie along each axis, `precision` whether factors of float32 may be rounded."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    k, *unrolled, lane = chain if len(chain) > 2 else (loop, loop)
    store, where, zeros = _only_store(lane.body)
    if store is None or lane.kind != "vectorize" or any(f.kind != "unroll" for f in unrolled):
        return None
    factors = _factors(store)
    if factors is None or homes.get(store.buffer) != "lane" or not all(homes.get(f.tensor) == "shared" for f in factors):
        return None
    lengths = {f.index: _length(f) for f in chain}
    kinds = (*KINDS, KIND_TF32) if precision == "tf32" else KINDS
    both = {f.dtype for f in factors}
    pieces = both == {KIND_SPLIT.operand, dtypes.float32}
    kind = KIND_SPLIT if pieces else next((found for found in kinds if both == {found.operand}), None)
    if kind is None or None in lengths.values() or lengths[k.index] % kind.depth or lengths[lane.index] % WARP:  # type: ignore[operator]  # None was asked for before
        return None
    own = {f.index for f in unrolled}
    for a, b in (factors, factors[::-1]):
        mine = [{n for i in x.indices for n in free_names(i)} & own for x in (a, b)]
        if (
            mine[0] & mine[1]
            or mine[0] | mine[1] != own
            or not all(k.index in {n for i in x.indices for n in free_names(i)} for x in (a, b))
        ):
            continue
        if not (_is_constant(a, lane, lengths, column=True) and _is_constant(b, lane, lengths, column=False)):
            continue
        side, masked = "a" if zeros == a.tensor else "b", False
        known = zeros in (a.tensor, b.tensor)
        if where is not None and not known:
            free = [x for x, others in (("b", mine[0]), ("a", mine[1])) if _is_of(x, where, lane, lengths, others)]
            masked = k.index in free_names(where)
            if not free or (masked and kind.together != 2):
                continue
            side = free[0]
        rows = [f for f in unrolled if f.index in mine[0] and lengths[f.index] == 2]
        columns = [f for f in unrolled if f.index in mine[1] and lengths[f.index] == 2]
        if not columns or (kind.halves and not rows):
            continue
        # The innermost of each: any would do.
        row, column = rows[-1] if kind.halves else None, columns[-1]
        found = [tuple(f for f in unrolled if f.index in names and f not in (row, column)) for names in mine]
        made = Product(
            kind,
            k,
            lane,
            row,
            column,
            Operand(a, found[0], ""),
            Operand(b, found[1], ""),
            Access(store.buffer, store.indices, store.value.dtype),
            where,
            side,
            known,
            masked,
            next((side for side, x in (("a", a), ("b", b)) if x.dtype is not kind.operand), ""),
        )
        return replace(made, a=replace(made.a, load=_load(made, a, lengths, pitch)), b=replace(made.b, load=_load(made, b, lengths, pitch)))
    return None


def _only_store(body: Block) -> tuple[Store | None, Expr | None, str]:
    """The store that statements are, the condition that it is under, and the one tile that is known to be zero where that fails."""
    conditions: list[Expr] = []
    tiles: set[str] = set()
    while len(body) == 1 and isinstance(body[0], If) and not body[0].otherwise:
        conditions.append(body[0].condition)
        tiles.add(body[0].tile if isinstance(body[0], Filled) else "")
        body = body[0].then
    (store,) = body if len(body) == 1 else (None,)
    zeros = tiles.pop() if len(tiles) == 1 else ""
    return (store if isinstance(store, Store) else None), (conjunction(tuple(conditions)) if conditions else None), zeros


def _is_of(side: str, condition: Expr, lane: For, lengths: Mapping[str, int | None], others: set[str]) -> bool:
    """Whether what a condition says depends on the row ("a") or the column ("b") of a lane, on k and on the loops over that side, and not
    on those of the other, `others`, besides loops further out."""
    found, exact = constraints_of(condition)
    if not exact:
        return False
    for constraint in found:
        names = [set(Affine.of(atom).names()) for atom, _ in constraint.expr.terms]
        inner = Affine([term for term, mine in zip(constraint.expr.terms, names, strict=True) if mine & set(lengths)])
        if any(mine & set(lengths) and (mine & others or not mine <= set(lengths)) for mine in names):
            return False
        if not _is_constant(Access("", (expression_of(inner),), dtypes.int64), lane, lengths, column=side == "a"):
            return False
    return True


def _length(loop: For) -> int | None:
    start, stop = loop.start, loop.stop
    return int(stop.value) if isinstance(start, Const) and isinstance(stop, Const) and start.value == 0 else None


def _factors(store: Store) -> tuple[Access, Access] | None:
    """The factors of a product that a store adds to its element."""
    value = store.value
    if not isinstance(value, Apply) or value.op.name != "add":
        return None
    old, new = value.args
    if not isinstance(old, Access) or (old.tensor, old.indices) != (store.buffer, store.indices):
        return None
    new = new.arg if isinstance(new, Cast) and new.dtype is dtypes.float32 else new
    if not isinstance(new, Apply) or new.op.name != "mul":
        return None
    a, b = (x.arg if isinstance(x, Cast) and x.dtype is dtypes.float32 else x for x in new.args)
    right = dtypes.float64 if isinstance(a, Access) and a.dtype is dtypes.float64 else dtypes.float32
    return (a, b) if isinstance(a, Access) and isinstance(b, Access) and store.value.dtype is right else None


def _points(access: Access, lengths: Mapping[str, int | None]) -> tuple[list[str], list[np.ndarray] | None]:
    """The loops that an access depends on and its indices at all points of them; None where they are more than sums and quotients."""
    # An index of loops further out alone (the stage of a tile) is the same at all points.
    inner = [i if any(n in lengths for n in free_names(i)) else const(0) for i in access.indices]
    names = list(dict.fromkeys(n for i in inner for n in free_names(i)))
    if any(n not in lengths for n in names):
        return names, None
    axes = dict(zip(names, np.ix_(*(np.arange(lengths[n] or 0) for n in names)), strict=True))
    values = [evaluated(i, axes) for i in inner]
    shape = tuple(lengths[n] or 0 for n in names)
    return names, None if any(v is None for v in values) else [np.broadcast_to(v, shape) for v in values]  # type: ignore[arg-type]  # no value is None here


_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod}


def evaluated(e: Expr, axes: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """An index at all points of some axes; None where it is more than sums and quotients."""
    match e:
        case Const():
            return np.asarray(int(e.value))
        case Index():
            return axes[e.name]
        case Apply() if e.op.name in _ARITHMETIC:
            left, right = (evaluated(a, axes) for a in e.args)
            return None if left is None or right is None else np.asarray(_ARITHMETIC[e.op.name](left, right))
    return None


def _is_constant(access: Access, lane: For, lengths: Mapping[str, int | None], column: bool) -> bool:
    """Whether an access does not depend on the column, or on the row, of a lane."""
    names, values = _points(access, lengths)
    if values is None:
        return False
    if lane.index not in names:
        return True
    along = names.index(lane.index)
    numbers = np.arange(lengths[lane.index] or 0)
    same = numbers // 4 * 4 if column else numbers // WARP * WARP + numbers % 4
    return all(np.array_equal(v, np.take(v, same, along)) for v in values)


def _load(made: Product, access: Access, lengths: Mapping[str, int | None], pitch: Mapping[str, tuple[int, ...]]) -> str:
    """How ldmatrix may load an operand."""
    if made.kind.operand.bits not in (16, 32) or access.dtype is not made.kind.operand:
        return ""
    # Sixteen bytes of neighbors from a multiple of sixteen: along k, or along the rows (columns) of the tile.
    together = 128 // made.kind.operand.bits
    first = access is made.a.access
    distance = pitch[access.tensor]
    names, values = _points(access, lengths)
    outside = [(i, d) for i, d in zip(access.indices, distance, strict=True) if not any(n in lengths for n in free_names(i))]
    if values is None or any(d * (int(i.value) if isinstance(i, Const) else 1) % together for i, d in outside):
        return ""
    place = sum(v * d for v, d in zip(values, distance, strict=True))
    k = names.index(made.k.index)
    along_k = np.moveaxis(np.asarray(place), k, -1)
    if _in_packs(along_k, together):
        return "rows"
    if made.lane.index not in names or together != 8:
        return ""
    lanes = np.moveaxis(np.asarray(place), names.index(made.lane.index), -1)
    lanes = lanes.reshape(*lanes.shape[:-1], -1, ROWS, 4)
    if first:
        return "columns" if _in_packs(lanes[..., 0], together) else ""
    others = [n for n in names if n != made.lane.index]
    halves = np.moveaxis(lanes[..., 0, :], others.index(made.column.index), -1)
    return "columns" if _in_packs(halves.reshape(*halves.shape[:-2], -1), together) else ""


def _in_packs(places: np.ndarray, count: int) -> bool:
    if places.shape[-1] % count:
        return False
    packs = places.reshape(*places.shape[:-1], -1, count)
    return bool((packs[..., 0] % count == 0).all() and (np.diff(packs, axis=-1) == 1).all())
