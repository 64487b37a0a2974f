"""The statements of one kernel as lines of CUDA C++, and the names in them."""

from __future__ import annotations

from math import prod

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.block.barriers import Barrier, stages_ahead, stages_filled
from tensorexpr.codegen.cuda.block.lanes import is_lanes
from tensorexpr.codegen.cuda.block.leaving import has_check, may_leave
from tensorexpr.codegen.cuda.block.shuffles import Shuffle, Warps
from tensorexpr.codegen.cuda.block.threads import Team, idle_axes
from tensorexpr.codegen.cuda.emitter.groups import PATTERN, Group, all_sums, group_of, group_text, swizzled_shape
from tensorexpr.codegen.cuda.emitter.mma import WARP, Product, product_of
from tensorexpr.codegen.cuda.emitter.products import may_rotate, write_product, write_rotated
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.expressions import Emitter, Surroundings, is_narrow, wanted_names
from tensorexpr.codegen.cuda.thread.operations import RESERVED, stored
from tensorexpr.codegen.cuda.thread.packs import (
    ALIGNMENT,
    Packed,
    copied,
    copied_or_zero,
    loaded_or_zero,
    packed,
)
from tensorexpr.codegen.cuda.thread.selects import under_condition
from tensorexpr.codegen.cuda.thread.values import Value, memory_type
from tensorexpr.codegen.nest import THREADS, Ahead, Alloc, Block, Buffer, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import loops_in
from tensorexpr.ir import TRUE, Access, Apply, Const, Expr, Index, const, integer
from tensorexpr.records import replace

LONGEST = 8
"""Letters of a name beyond which the index of many loops in one is called by what it is."""
BANKS = 128
"""Bytes of one row of the banks of shared memory."""
ATOMICS = ("add", "mul", "maximum", "minimum")
"""Updates of an element in one piece, as the prelude has them."""
_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue default delete do"
    " double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not not_eq nullptr"
    " operator or or_eq private protected public register return short signed sizeof static struct switch template this throw true try"
    " typedef typeid typename union unsigned using virtual void volatile while xor xor_eq warpSize threadIdx blockIdx blockDim gridDim"
    " error main j0 j1 jn y0 y1 yn gamma exp log sin cos tan pow abs floor ceil sqrt erf div index time signal"
)
_KEYWORDS = frozenset(_WORDS.split())


class Statements:
    """Statements of a kernel: names in C++ for buffers and indices, the indices in scope, and who runs what."""

    def __init__(self, nest: LoopNest, buffers: dict[str, Buffer]) -> None:
        self.nest = nest
        self.buffers = dict(buffers)
        self.taken: set[str] = {*_KEYWORDS, *RESERVED}
        self.words: dict[str, str] = {}
        self.scope: dict[str, Value] = {}
        self.temporaries = 0
        self.team: Team | None = None
        self.in_lanes = False
        self.copies = False
        self.leaves = False
        """Whether the threads of the team leave together where one of them fails a check in its lanes."""
        self.left = 0
        """Loops over lanes so far behind which they may."""
        self.unmet = False
        """Whether a copy stands behind the last barrier."""
        self.arena: dict[str, int] = {}
        """Where shared buffers begin in the memory that the launch asks for, where there are more than may be declared."""
        self.under_way = 0
        """Groups of copies, of the last ones, that barriers here do not wait for: those of iterations to come of the loop `ahead_of`."""
        self.ahead_of = ""
        self.in_group = False
        self.multiples: dict[Expr, int] = {}
        """Extents that are multiples of numbers, where the kernel is for such alone."""
        self.swizzled: frozenset[str] = frozenset()
        """Tiles that products of warpgroups read: all products of the kernel are such."""
        self.under_product = False
        """Whether a product is under way behind its place in the loop that is here, until the next iteration has begun its own."""

    def word(self, name: str, role: str = "") -> str:
        """An identifier of C++ for a name of the nest, the same each time: its own, or its `role` where that of many loops is long."""
        found = self.words.get(name)
        if found is None:
            readable = role if role and len(name) > LONGEST else name
            base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in readable)
            base = f"v{base}" if not base or base[0].isdigit() or base.startswith(("te_", "TE_", "__")) else base
            found, number = base, 0
            while found in self.taken:
                number += 1
                found = f"{base}_{number}"
            self.taken.add(found)
            self.words[name] = found
        return found

    def temporary(self) -> str:
        """A new name."""
        while True:
            name = f"t{self.temporaries}"
            self.temporaries += 1
            if name not in self.taken:
                self.taken.add(name)
                return name

    def emitter(self, names: frozenset[Expr], lines: list[str]) -> Emitter:
        homes = {} if self.team is None else self.team.homes
        own = frozenset(name for name, home in homes.items() if home == "lane")
        slot = self.slot()
        slots = {name: slot for name, home in homes.items() if home == "shared"} if slot else {}
        return Emitter(Surroundings(self.buffers, self.scope, self.word, self.temporary, own, slots, self.swizzled), names, lines)

    def slot(self) -> str:
        """The index of a warp among those of its block, where each has shared memory of its own."""
        if self.team is None or not self.team.warps:
            return ""
        _, y, z = self.team.shape
        parts = [f"threadIdx.z * {y}u" if y > 1 else "threadIdx.z"] if z > 1 else []
        return f"[{' + '.join([*parts, *(['threadIdx.y'] if y > 1 else [])])}]" if y * z > 1 else ""

    def block(self, block: Block, lines: list[str], margin: str) -> None:
        """The lines of statements."""
        for statement in block:
            self.statement(statement, lines, margin)

    def enclosed(self, block: Block, lines: list[str], margin: str) -> None:
        """The lines of statements that always run, once, in braces where they have buffers of their own."""
        if any(isinstance(s, Alloc) for s in block):
            lines.append(f"{margin}{{")
            self.block(block, lines, margin + "  ")
            lines.append(f"{margin}}}")
        else:
            self.block(block, lines, margin)

    def statement(self, s: Stmt, lines: list[str], margin: str) -> None:
        before: list[str] = []
        match s:
            case Barrier():
                self.unmet = False
                if self.copies:  # a warp that is a block of its own, too
                    lines.append(f"{margin}te_copies_wait<{self.under_way}>();" if self.under_way else f"{margin}te_copies_wait_all();")
                lines += [f"{margin}te_hand_over();"] if self.swizzled else []
                lines.append(f"{margin}{'__syncwarp' if s.warp else '__syncthreads'}();")
            case Shuffle():
                source, into = self.emitter(frozenset(), before).place(s.source.tensor, s.source.indices), self.word(s.into.name)
                lines.append(f"{margin}{into} = te_shuffle_{f'down({source}, {s.distance})' if s.distance else f'from({source}, 0)'};")
            case For() if self.team is not None and self.team.warps and s.kind in THREADS:
                self.warps(s, lines, margin)
            case For() if self.team is not None and self.in_lanes and s.kind in THREADS:
                self.lanes(s, self.team, lines, margin)
            case For() if self.team is not None and not self.in_lanes and is_lanes(s):
                idle = [f"threadIdx.{'xyz'[k]}" for k in idle_axes(s, self.team)]
                asked = self.leaves and has_check(s.body)
                lines += [f"{margin}bool te_left_{self.left} = false;"] if asked else []
                if idle:
                    lines.append(f"{margin}if ({' + '.join(idle)} == 0) {{")
                self.lanes(s, self.team, lines, margin + "  " if idle else margin)
                lines += [f"{margin}}}"] if idle else []
                if asked:
                    self.leave(lines, margin)
            case For() if self.team is not None and not self.in_lanes and (made := self.product(s)) is not None:
                self.in_lanes = True
                self.multiplied(made, lines, margin)
                self.in_lanes = False
            case For():
                self.loop(s, lines, margin)
            case Ahead():
                self.ahead(s, lines, margin)
            case If() if (choice := self.choice(s)) is not None:
                test, store = choice
                emitter = self.emitter(wanted_names((*store.indices, store.value, test)), before)
                place, text, name = emitter.place(store.buffer, store.indices), emitter.value(store.value).text, self.temporary()
                before.append(f"const {memory_type(store.value.dtype)} {name} = {text};")
                chosen = f"{place} = {emitter.value(test).inside(v.OR)} ? {name} : {place};"
                lines += [margin + line for line in (*before, chosen)]
            case If() if self.copies_here() and (filled := copied_or_zero(s, self.buffers, self.rows(), self.multiples)) is not None:
                self.copy(*filled, lines, margin, s.condition)
            case If() if (loaded := loaded_or_zero(s, self.buffers, self.multiples)) is not None:
                self.load(*loaded, s.condition, lines, margin)
            case If():
                condition = self.emitter(wanted_names((s.condition,)), before).value(s.condition)
                lines += [margin + line for line in before]
                if condition.text in ("true", "false"):
                    self.enclosed(s.then if condition.text == "true" else s.otherwise, lines, margin)
                    return
                lines.append(f"{margin}if ({condition.text}) {{")
                self.block(s.then, lines, margin + "  ")
                if s.otherwise:
                    lines.append(f"{margin}}} else {{")
                    self.block(s.otherwise, lines, margin + "  ")
                lines.append(f"{margin}}}")
            case Store() if (update := self.update(s)) is not None:
                word, added = update
                emitter = self.emitter(wanted_names((*s.indices, added)), before)
                place, text = emitter.place(s.buffer, s.indices), emitter.value(added).text
                lines += [margin + line for line in before]
                lines.append(f"{margin}{self.by_first(s)}te_atomic_{word}<{memory_type(added.dtype)}>(&{place}, {text});")
            case Store():
                emitter = self.emitter(wanted_names((*s.indices, s.value)), before)
                place = emitter.place(s.buffer, s.indices)
                if isinstance(s.value, Access) and s.value.dtype.is_float and s.value.dtype.bits == 16:
                    text = emitter.place(s.value.tensor, s.value.indices)  # as it is, without a way by float32
                else:
                    text = stored(emitter.value(s.value))
                lines += [margin + line for line in before]
                lines.append(f"{margin}{self.by_first(s)}{place} = {text};")
            case Alloc():
                lines.append(f"{margin}{self.declaration(s.buffer)};")
                self.block(s.body, lines, margin)
            case Check():
                emitter = self.emitter(wanted_names((s.index, s.extent)), before)
                index, extent = emitter.value(s.index), emitter.value(s.extent)
                lines += [margin + line for line in before]
                arguments = f"{index.text}, {extent.text}"
                # Others wait for a thread of a team: it leaves the loop alone, or all of them leave behind it.
                leave = "return" if not self.in_lanes else "break"
                if self.in_lanes and self.leaves:
                    leave = f"te_left_{self.left} = true; goto te_behind_{self.left}"
                lines.append(f"{margin}if (te_outside({arguments})) {{ te_fail(error, {s.check}, {arguments}); {leave}; }}")

    def leave(self, lines: list[str], margin: str) -> None:
        """The lines behind a loop over lanes in which a check may have failed: all threads, or those of the warp, leave."""
        of_warp = self.team is not None and self.team.warps
        vote = f"__any_sync(0xffffffffu, te_left_{self.left})" if of_warp else f"__syncthreads_or(te_left_{self.left})"
        # Copies of this thread may be under way to memory that the next block gets.
        lines += [f"te_behind_{self.left}:", f"{margin}if ({vote}) {{ te_copies_wait_all(); return; }}"]
        self.left += 1

    def choice(self, s: If) -> tuple[Expr, Store] | None:
        """The update of what a thread holds that statements are, and its condition, where all that it reads may be read anyway."""
        found = under_condition(s) if self.team is not None and self.in_lanes else None
        if found is None or self.team is None or self.team.homes.get(found[1].buffer) != "lane":
            return None
        condition, store, read = found
        if store.value.dtype.bits == 16 or not any(self.team.homes.get(a.tensor) == "shared" for a in read):
            return None
        emitter = self.emitter(frozenset(), [])
        for access in read:
            buffer = self.buffers[access.tensor]
            if buffer.memory != "local":
                return None
            for index, extent in zip(access.indices, buffer.shape, strict=True):
                at = emitter.value(index)
                if at.low is None or at.high is None or at.low < 0 or at.high >= integer(extent):
                    return None
        return condition, store

    def by_first(self, s: Store) -> str:
        """What lets the first thread of a team alone store where all come by: outside of loops over lanes, but to what each has."""
        if self.team is None or self.in_lanes or self.team.homes.get(s.buffer) == "uniform":
            return ""
        return f"if ({self.team.first}) "

    def update(self, s: Store) -> tuple[str, Expr] | None:
        """How a store updates its element in one piece, and with what; None for one that need not or that only sets it."""
        if s.buffer not in self.nest.atomics or not isinstance(s.value, Apply) or s.value.op.name not in ATOMICS:
            return None
        own = Access(s.buffer, s.indices, s.value.dtype)
        others = [a for a in s.value.args if a != own]
        return (s.value.op.name, others[0]) if len(others) == 1 else None

    def ahead(self, s: Ahead, lines: list[str], margin: str) -> None:
        """Copies for an iteration to come: a group of their own, also where there are none, so that loops count groups."""
        condition = self.emitter(frozenset(), []).value(s.condition).text
        self.in_group = True
        if condition == "true":
            self.block(s.then, lines, margin)
        elif condition != "false":
            lines.append(f"{margin}if ({condition}) {{")
            self.block(s.then, lines, margin + "  ")
            lines.append(f"{margin}}}")
        self.in_group = False
        if self.copies:
            lines.append(f"{margin}te_copies_commit();")
        # Behind its own copies a loop has one group more ahead. Behind others, of a loop inside that may be a single iteration and no
        # longer there, the last group may be what is read next.
        self.under_way = max(0, stages_filled(s, self.ahead_of) - 1) if self.ahead_of else 0

    def product(self, s: For) -> Product | None:
        """What a loop is on tensor cores, if anything."""
        if not self.nest.tensor_cores or self.team is None or self.team.warps:
            return None
        if self.team.shape[0] % WARP or any(n > 1 for n in self.team.shape[1:]):
            return None
        shared = {name: self.extents(self.buffers[name]) for name, home in self.team.homes.items() if home == "shared"}
        shared |= {name: self.lengths(self.buffers[name]) for name in self.swizzled}  # whose axes these are
        pitch = {name: tuple(prod(extents[k + 1 :]) for k in range(len(extents))) for name, extents in shared.items()}
        found = product_of(s, self.team.homes, pitch, self.nest.precision)
        return found if found is not None and integer(found.lane.stop) == self.team.shape[0] else None

    def find_groups(self, body: Block) -> None:
        """Finds the products of warpgroups: all of a kernel are, or none, as tiles lie otherwise for those of warps."""
        if not self.nest.warpgroups or has_check(body):
            return
        made = [product for s in loops_in(body) if (product := self.product(s)) is not None]
        groups = [self.group(product) for product in made]
        if None not in groups:
            self.swizzled = frozenset(tile for group in groups if group is not None for tile in group.tiles)

    def group(self, made: Product) -> Group | None:
        """The product of warpgroups that one of warps is, if it is one."""
        assert self.team is not None
        return group_of(made, {name: tuple(self.lengths(self.buffers[name])) for name in self.team.homes})

    def multiplied(self, made: Product, lines: list[str], margin: str) -> None:
        """The lines of a product."""
        group = self.group(made) if self.swizzled else None
        if group is None:
            write_product(self, made, lines, margin)
            return
        group_text(self, group, lines, margin)
        if self.under_product:  # tiles of the iteration before are nobody's from here on
            lines += [f"{margin}te_group_wait_before();", f"{margin}__syncthreads();"]
        else:
            lines.append(f"{margin}te_group_wait({all_sums(self, group, lines, margin)});")

    def step(self, s: For) -> Product | None:
        """The product of a loop that does nothing but wait for tiles, fill others, some stages ahead, and multiply."""
        if s.kind != "serial" or len(s.body) != 3 or stages_ahead(s) < 2:
            return None
        wait, fill, work = s.body
        return self.product(work) if isinstance(wait, Barrier) and isinstance(fill, Ahead) and isinstance(work, For) else None

    def rotated(self, s: For) -> Product | None:
        """The product of such a loop, if its fragments are loaded ahead: each iteration must have tiles, also one behind the last,
        which are read there without use: with no more iterations than stages, an iteration's own stage is its number, and behind the last
        there is none."""
        if self.swizzled or not (isinstance(s.start, Const) and isinstance(s.stop, Const)):
            return None
        made = self.step(s) if stages_ahead(s) < integer(s.stop) - integer(s.start) else None
        return made if made is not None and may_rotate(made) else None

    def outside_of_lanes(self, statements: Block, lines: list[str], margin: str) -> None:
        """The lines of statements of all threads, within those of lanes; they may be written again for the next iteration."""
        inside, under_way, self.in_lanes = self.in_lanes, self.under_way, False
        self.block(statements, lines, margin)
        self.in_lanes, self.under_way = inside, under_way

    def fragment(self, name: str) -> str:
        """A new name for what a lane holds of a buffer."""
        return self.word(f"{name} fragment {self.temporaries}".replace(" ", "_"))

    def lengths(self, buffer: Buffer) -> list[int]:
        """How long the axes of a local buffer are; what each lane has of one has no last axis."""
        extents = [int(extent.value) for extent in buffer.shape if isinstance(extent, Const)]
        return extents[:-1] if self.team is not None and self.team.homes.get(buffer.name) == "lane" else extents

    def extents(self, buffer: Buffer) -> list[int]:
        """How long the axes of a local buffer are kept."""
        extents = self.lengths(buffer)
        if buffer.name in self.swizzled:
            return swizzled_shape(extents)
        home = None if self.team is None else self.team.homes.get(buffer.name)
        row = extents[-1] * buffer.dtype.itemsize if extents else 0
        cores = buffer.dtype.itemsize == 2 or (buffer.dtype is dtypes.float32 and self.nest.precision == "tf32")
        if home == "shared" and len(extents) > 1 and (row % BANKS == 0 or (cores and row % 32 == 0)):
            # Threads that go down a column meet different banks; of single numbers of four bytes, so do those that go across four rows.
            alone = cores and buffer.dtype.itemsize == 4 and extents[-1] > WARP // 2
            extents[-1] += (2 if alone else 1) * ALIGNMENT // buffer.dtype.itemsize
        if home == "shared" and extents and self.slot():
            extents[-1] += -extents[-1] % max(1, ALIGNMENT // buffer.dtype.itemsize)  # that of the next warp begins aligned
        return extents

    def declaration(self, buffer: Buffer) -> str:
        """A local buffer: an array of a thread or of the block."""
        self.buffers[buffer.name] = buffer
        aligned = PATTERN if buffer.name in self.swizzled else ALIGNMENT
        shared = f"__shared__ __align__({aligned}) " if self.team is not None and self.team.homes.get(buffer.name) == "shared" else ""
        slots = [prod(self.team.shape[1:])] if shared and self.team is not None and self.slot() else []
        shape = "".join(f"[{n}]" for n in (*slots, *self.extents(buffer)))
        if buffer.name in self.arena:
            type_ = memory_type(buffer.dtype)
            return f"{type_} (&{self.word(buffer.name)}){shape} = te_arena<{type_}{shape}>({self.arena[buffer.name]})"
        type_ = "int" if is_narrow(buffer) and not shared else memory_type(buffer.dtype)
        return f"{shared}{type_} {self.word(buffer.name)}{shape}"

    def lanes(self, s: For, team: Team, lines: list[str], margin: str) -> None:
        """A loop over lanes, which are the threads of the block: those beyond the last leave it out, or each runs several."""
        start, stop = integer(s.start), integer(s.stop)
        name, axis = self.word(s.index, "thread"), THREADS.index(s.kind) if s.kind in THREADS else 0
        threads = team.shape[axis]
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, True, start, stop - 1)
        first = f"(int)threadIdx.{'xyz'[axis]}" + (f" + {start}" if start else "")
        if isinstance(s, Warps):
            lines += [f"{margin}{{", f"{margin}  const int {name} = (int)(threadIdx.x % {WARP}u);"]
        elif stop - start > threads or may_leave(s.body):
            lines.append(f"{margin}for (int {name} = {first}; {name} < {stop}; {name} += {threads}) {{")
        elif stop - start == threads:
            lines += [f"{margin}{{", f"{margin}  const int {name} = {first};"]
        else:
            lines.append(f"{margin}if (const int {name} = {first}; {name} < {stop}) {{")
        outermost, self.in_lanes = not self.in_lanes, True
        self.block(s.body, lines, margin + "  ")
        lines.append(f"{margin}}}")
        self.in_lanes = not outermost

    def warps(self, s: For, lines: list[str], margin: str) -> None:
        """A loop over the warps of a block."""
        start, stop = integer(s.start), integer(s.stop)
        name, axis = self.word(s.index, "warp"), THREADS.index(s.kind)
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, True, start, stop - 1)
        first = f"const int {name} = (int)threadIdx.{'xyz'[axis]}" + (f" + {start}" if start else "")
        whole = stop - start == self.team.shape[axis] if self.team is not None else True
        lines += [f"{margin}{{", f"{margin}  {first};"] if whole else [f"{margin}if ({first}; {name} < {stop}) {{"]
        self.block(s.body, lines, margin + "  ")
        lines.append(f"{margin}}}")

    def pack(self, s: For, made: Packed, lines: list[str], margin: str) -> None:
        """A loop over neighboring elements with their loads before and their stores after it."""
        lanes = integer(s.stop)
        for one in (*made.loads, *(pack for pack, *_ in made.guarded), *made.stores):
            dtype = self.buffers[one.buffer].dtype
            self.words[one.name] = one.name
            self.buffers[one.name] = Buffer(one.name, dtype, (s.stop,), "local")
            lines.append(f"{margin}{memory_type(dtype)} {one.name}[{lanes}];")
        for one in made.loads:
            before: list[str] = []
            place = self.emitter(frozenset(), before).place(one.buffer, one.first)
            lines += [*(margin + line for line in before), f"{margin}te_load({one.name}, &{place});"]
        name = self.word(s.index)
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, True, 0, lanes - 1)
        loop = [f"{margin}#pragma unroll", f"{margin}for (int {name} = 0; {name} < {lanes}; ++{name}) {{"]
        for one, access, test in made.guarded:
            before = []
            emitter = self.emitter(wanted_names((*access.indices, test)), before)
            holds, place = emitter.value(test), emitter.place(access.tensor, access.indices)
            lines += [*loop, *(f"{margin}  {line}" for line in before)]
            lines += [f"{margin}  {one.name}[{name}] = {{}};", f"{margin}  if ({holds.text}) {one.name}[{name}] = {place};", f"{margin}}}"]
        lines += loop
        self.block(made.body, lines, margin + "  ")
        lines.append(f"{margin}}}")
        for one in made.stores:
            place = self.emitter(frozenset(), lines).place(one.buffer, one.first)
            lines.append(f"{margin}te_store(&{place}, {one.name});")

    def load(self, store: Store, first: Access, lane: str, lanes: int, under: Expr, lines: list[str], margin: str) -> None:
        """Neighbors that are loaded where a condition holds; else they are zeros."""
        before: list[str] = []
        emitter, name = self.emitter(wanted_names((*first.indices, under)), before), self.temporary()
        place, holds = emitter.place(first.tensor, first.indices), emitter.value(under)
        self.words[name], self.buffers[name] = name, Buffer(name, first.dtype, (const(lanes),), "local")
        condition = "" if holds.text == "true" else f", {holds.text}"
        lines += [*(margin + line for line in before), f"{margin}{memory_type(first.dtype)} {name}[{lanes}];"]
        lines.append(f"{margin}te_load({name}, &{place}{condition});")
        body = (replace(store, value=replace(first, tensor=name, indices=(Index(lane) if lane else const(0),))),)
        self.block((For(lane, const(0), const(lanes), body, "vectorize"),) if lane else body, lines, margin)

    def copies_here(self) -> bool:
        """Whether what is copied here to shared memory may arrive by itself: where a loop counts groups, copies of no group would not be
        waited for."""
        return self.team is not None and self.in_lanes and not self.team.warps and (self.in_group or not self.ahead_of)

    def rows(self) -> dict[str, int]:
        """How far apart the rows of buffers in shared memory lie."""
        homes = {} if self.team is None else self.team.homes
        return {name: self.extents(self.buffers[name])[-1] for name, home in homes.items() if home == "shared"}

    def copy(self, store: Store, source: Access, size: int, lines: list[str], margin: str, under: Expr = TRUE) -> None:
        """Some bytes to shared memory, or zeros where a condition does not hold, which arrive by themselves: every barrier waits for them
        first."""
        self.copies = self.unmet = True
        before: list[str] = []
        emitter = self.emitter(wanted_names((*store.indices, *source.indices, under)), before)
        to, from_, holds = emitter.place(store.buffer, store.indices), emitter.place(source.tensor, source.indices), emitter.value(under)
        filled = "" if holds.text == "true" else f", {holds.inside(v.OR)} ? {size} : 0"
        lines += [*(margin + line for line in before), f"{margin}te_copy_async<{size}>(&{to}, &{from_}{filled});"]

    def loop(self, s: For, lines: list[str], margin: str) -> None:
        before: list[str] = []
        emitter = self.emitter(frozenset(), before)
        start, stop = emitter.value(s.start), emitter.value(s.stop)
        lines += [margin + line for line in before]
        low, high = start.low, None if stop.high is None else stop.high - 1
        if (made := self.rotated(s)) is not None:
            outside = self.entered_ahead(s)
            write_rotated(self, s, s.body[:-1], made, lines, margin)
            self.under_way, self.ahead_of = outside
            return
        # The index ends at its stop, which it must also hold.
        narrow = start.narrow and stop.narrow and v.fits(low, None if high is None else high + 1)
        name = self.word(s.index)
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, narrow, low, high)
        if s.kind == "vectorize" and self.copies_here() and (copy := copied(s, self.buffers, self.rows(), self.multiples)) is not None:
            self.copy(*copy, lines, margin)
            return
        found = packed(s, self.buffers, iter(self.temporary, None), self.multiples) if s.kind == "vectorize" else None
        if found is not None:
            self.pack(s, found, lines, margin)
            return
        if start.constant is not None and stop.constant == start.constant + 1 and not (self.in_lanes and may_leave(s.body)):
            self.scope[s.index] = v.integer(start.constant)
            self.enclosed(s.body, lines, margin)
            return
        if s.kind in ("unroll", "vectorize"):
            lines.append(f"{margin}#pragma unroll")
        type_ = "int" if narrow else "int64_t"
        lines.append(f"{margin}for ({type_} {name} = {start.text}; {name} < {stop.inside(v.ORDER + 1)}; ++{name}) {{")
        body, group = s.body, self.group(made) if self.swizzled and (made := self.step(s)) is not None else None
        if group is not None:  # begun before the filling, which goes on beside it
            body, self.under_product = (body[0], body[2], body[1]), True
        outside, copies, begun = self.entered_ahead(s), self.copies, len(lines)
        self.block(body, lines, margin + "  ")
        if self.unmet and not copies:
            # Copies that nothing here waits for: the barriers before them do, in the next iteration. Once more, now that this is known.
            del lines[begun:]
            self.under_way, self.ahead_of = outside
            self.entered_ahead(s)
            self.block(body, lines, margin + "  ")
        self.under_way, self.ahead_of = outside
        lines.append(f"{margin}}}")
        if group is not None:
            lines.append(f"{margin}te_group_wait({all_sums(self, group, lines, margin)});")
            self.under_product = False

    def entered_ahead(self, s: For) -> tuple[int, str]:
        """Takes over which groups of copies the barriers of a loop do not wait for: in a step those of all steps behind the next. Gives
        what it was outside. A loop that fills nothing is part of the step around it."""
        outside, stages = (self.under_way, self.ahead_of), stages_ahead(s)
        if stages:
            self.under_way, self.ahead_of = max(0, stages - 2), s.index
        return outside
