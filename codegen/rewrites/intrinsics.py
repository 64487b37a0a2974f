"""Instructions of a machine that do the work of a small nest of loops, each with what it means as a definition.

An `Intrinsic` says in index notation what it computes, over operands that lie in memory as the shapes say, row-major:

    c[l]: i32[16] = sum(i32(a[q]) * i32(b[l, q]) for q in range(4))      # added to c; without a sum, stored to it

and in LLVM IR how: the body of a function of pointers to the first elements, named as in the definition. `match` compares the
definition with a nest of loops around one store: the same operations on elements of the same types, which lie as far apart
along each loop as the operands say. Distances are exact integers, so what matches computes the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import permutations

from tensorexpr.codegen.schedule.analysis.strides import FAR, reach
from tensorexpr.errors import ScheduleError
from tensorexpr.hints import article, checked
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Expr, Index, Program, Reduce
from tensorexpr.language import Tensor, program_of
from tensorexpr.parse import parse_program
from tensorexpr.records import record
from tensorexpr.text import print_expr, print_program
from tensorexpr.traversal import children

COMMUTES = ("add", "mul", "maximum", "minimum")


@record(slots=False)
class Intrinsic:
    """`program` is what it means (one definition), `body` the LLVM IR, `declarations` the functions that it calls, `features` what
    the CPU needs, by the names of the operating system; `remark` says in what results differ from the definition's, if in anything."""

    name: str
    program: Program
    body: str
    declarations: tuple[tuple[str, str], ...] = ()
    features: tuple[str, ...] = ()
    remark: str = ""

    @property
    def definition(self) -> Define:
        """What it computes."""
        (definition,) = self.program.definitions
        assert isinstance(definition, Define)
        return definition

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of its pointers: the result, then the inputs."""
        return self.definition.name, *(i.name for i in self.program.inputs)

    @property
    def value(self) -> Expr:
        """What is added to the result, or stored to it, at one point of all axes."""
        value = self.definition.value
        return value.values[0] if isinstance(value, Reduce) else value

    @property
    def adds(self) -> bool:
        """Whether it adds to the result what it computes."""
        return isinstance(self.definition.value, Reduce)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the result, then those of the sum."""
        value = self.definition.value
        return (*self.definition.axes, *(value.axes if isinstance(value, Reduce) else ()))

    @property
    def extents(self) -> dict[str, int]:
        """The extents of the axes along which it has more than one point."""
        return {a.index: int(a.stop.value) for a in self.axes if isinstance(a.stop, Const) and a.stop.value != 1}

    @property
    def digest(self) -> str:
        """Tells it from another of the same name."""
        parts = (self.name, print_program(self.program), self.body, repr(self.declarations))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


_known: dict[str, Intrinsic] = {}


@checked()
def intrinsic(
    name: str,
    result: Tensor | Program,
    body: str,
    *,
    declarations: Mapping[str, str] | None = None,
    features: tuple[str, ...] = (),
    remark: str = "",
) -> Intrinsic:
    """Declares an instruction under a name, for `tensorize`.

    `result` is a tensor computed from placeholders: what it means. `body` is LLVM IR with `%name` for the pointer to the first
    element of each tensor; `declarations` gives the functions that it calls as {name: "result (arguments)"}. Raises
    `ScheduleError` where the definition is none that could be matched, or the name is that of another.

    >>> a = te.placeholder((4,), name="a")
    >>> c = te.compute((4,), lambda l: a[l] * 2.0, name="c")
    >>> body = '''
    ...   %x = load <4 x float>, ptr %a, align 4
    ...   %y = fmul <4 x float> %x, splat (float 2.0)
    ...   store <4 x float> %y, ptr %c, align 4
    ... '''
    >>> te.intrinsic("twice_of_four", c, body).extents
    {'l': 4}
    >>> x = te.placeholder((8,), name="x")
    >>> s = te.schedule(te.compute((8,), lambda i: x[i] * 2.0, name="y"))
    >>> _, inner = s["y"].split("i", 4)
    >>> s["y"].tensorize(inner, "twice_of_four")
    >>> te.build(s)(np.arange(8, dtype=np.float32))
    array([ 0.,  2.,  4.,  6.,  8., 10., 12., 14.], dtype=float32)
    """
    if not isinstance(result, Tensor | Program):
        hint = "what the instruction means: te.compute((4,), lambda l: a[l] * 2.0) of placeholders"
        raise ScheduleError(f"intrinsic {name}: expected a tensor or a program, got {article(result)}", hint=hint)
    program = program_of([result]) if isinstance(result, Tensor) else result
    made = Intrinsic(name, program, body, tuple((declarations or {}).items()), features, remark)
    reason = _unfit(program)
    if reason is not None:
        raise ScheduleError(f"intrinsic {name}: expected {reason}", term=str(program).strip())
    if _known.setdefault(name, made).digest != made.digest:
        raise ScheduleError(f"expected a new name for an intrinsic, got {name}, which is another one")
    return _known[name]


def _unfit(program: Program) -> str | None:
    """What a definition lacks to be that of an instruction."""
    if len(program.definitions) != 1 or not isinstance(program.definitions[0], Define):
        return f"one definition, got {len(program.definitions)}"
    definition = program.definitions[0]
    value = definition.value
    if isinstance(value, Reduce):
        if value.combiner.name != "sum" or value.where is not None:
            return f"a sum without conditions, got {print_expr(value)}"
    inner = value.values[0] if isinstance(value, Reduce) else value
    axes = (*definition.axes, *(value.axes if isinstance(value, Reduce) else ()))
    if not all(isinstance(e, Const) for a in axes for e in (a.start, a.stop)):
        return "constant extents, got ones known only when it runs"
    if _holds(inner, Reduce) or not _plain(inner):
        return f"operations on elements alone, got {print_expr(inner)}"
    return None


def _holds(expr: Expr, kind: type[Expr]) -> bool:
    return isinstance(expr, kind) or any(_holds(child, kind) for child in children(expr))


def _plain(expr: Expr) -> bool:
    """Whether an expression uses indices in subscripts alone."""
    return isinstance(expr, Access) or (not isinstance(expr, Index) and all(_plain(child) for child in children(expr)))


def known_intrinsics() -> tuple[Intrinsic, ...]:
    """All instructions that are declared, in order."""
    _ours()
    return tuple(_known.values())


def intrinsic_named(name: str) -> Intrinsic:
    """The instruction of this name. Raises `ScheduleError` where none is declared."""
    _ours()
    if name not in _known:
        raise ScheduleError(f"expected an intrinsic, got {name!r}", hint=f"declared: {', '.join(_known)}; te.intrinsic declares one")
    return _known[name]


# ------------------------------------------------------------------------------------------------------------ matching


def match(
    found: Intrinsic,
    loops: tuple[tuple[str, int], ...],
    target: Access,
    value: Expr,
    shapes: Mapping[str, tuple[Expr, ...]],
) -> Mapping[str, Access] | str:
    """The operands with which an instruction does what loops (with their extents) around a store of `value` to `target` do (where it adds:
    around `target = target + value`); else the reason why there are none."""
    definition = found.definition
    own = Access(definition.name, tuple(Index(a.index) for a in definition.axes), definition.value.dtype)
    options = _choices(found, value)
    if isinstance(options, str):
        return options
    if own.dtype is not target.dtype:
        return f"a result of {own.dtype}, got {target.dtype}"
    loops = tuple((x, n) for x, n in loops if n != 1)
    extents = found.extents
    if sorted(extents.values()) != sorted(n for _, n in loops):
        return f"loops of extent {', '.join(map(str, extents.values()))}, got {', '.join(f'{n} along {x}' for x, n in loops) or 'none'}"
    declared = {definition.name: tuple(a.stop for a in definition.axes), **{i.name: i.type.shape for i in found.program.inputs}}
    reasons: list[tuple[int, str]] = []
    for accesses in options:
        pairs = [*((a, accesses[a.tensor]) for a in _accesses(found.value)), (own, target)]
        for order in permutations(loops):
            if any(extents[a] != n for a, (_, n) in zip(extents, order, strict=True)):
                continue
            names = {a: x for a, (x, _) in zip(extents, order, strict=True)}
            wrong = [r for mine, other in pairs if (r := _apart(mine, other, names, declared, shapes)) is not None]
            if not wrong:
                return accesses
            reasons.append((len(wrong), wrong[0]))
    return min(reasons)[1]  # of what fits best


def _choices(found: Intrinsic, value: Expr) -> list[dict[str, Access]] | str:
    """The accesses in a value that may stand for the inputs of an instruction, in every order of operations that commute; else the
    reason why it is not the value of one of its points."""
    reasons: list[str] = []
    options = list(_unified(found.value, value, {}, reasons))
    return options or reasons[0]


def _accesses(expr: Expr) -> list[Access]:
    return [expr] if isinstance(expr, Access) else [a for child in children(expr) for a in _accesses(child)]


def _apart(
    mine: Access, other: Access, names: Mapping[str, str], declared: Mapping[str, tuple[Expr, ...]], shapes: Mapping[str, tuple[Expr, ...]]
) -> str | None:
    """Where elements do not lie as far apart along the loops as an operand says: the reason."""
    want, have = reach(mine, declared[mine.tensor]), reach(other, shapes[other.tensor])
    for axis, loop in names.items():
        if want.stride(axis) != have.stride(loop):
            got = "no fixed distance" if have.stride(loop) >= FAR else f"{have.stride(loop)} apart"
            return f"elements of {mine.tensor} that lie {want.stride(axis)} apart along {loop}, got {print_expr(other)}: {got}"
    return None


def _unified(mine: Expr, other: Expr, known: dict[str, Access], reasons: list[str]) -> Iterator[dict[str, Access]]:
    """The ways in which two expressions are the same but for the accesses that operands stand for; `reasons` why others are none."""
    if isinstance(mine, Access):
        if not isinstance(other, Access) or mine.dtype is not other.dtype:
            reasons.append(f"an element of {mine.dtype} for {mine.tensor}, got {print_expr(other)} of {other.dtype}")
        elif known.get(mine.tensor, other) != other:
            reasons.append(f"{print_expr(known[mine.tensor])} for {mine.tensor} again, got {print_expr(other)}")
        else:
            yield {**known, mine.tensor: other}
        return
    match mine, other:
        case (Const(), Const()) if mine == other:
            yield known
        case (Cast(), Cast()) if mine.dtype is other.dtype:
            yield from _unified(mine.arg, other.arg, known, reasons)
        case (Apply(), Apply()) if mine.op.name == other.op.name:
            orders = [other.args, other.args[::-1]] if mine.op.name in COMMUTES and other.args[0] != other.args[1] else [other.args]
            for order in orders:
                yield from _all_unified(mine.args, order, known, reasons)
        case _:
            reasons.append(f"{print_expr(mine)}, got {print_expr(other)}")


def _all_unified(
    mine: tuple[Expr, ...], other: tuple[Expr, ...], known: dict[str, Access], reasons: list[str]
) -> Iterator[dict[str, Access]]:
    if not mine:
        yield known
        return
    for found in _unified(mine[0], other[0], known, reasons):
        yield from _all_unified(mine[1:], other[1:], found, reasons)


# ---------------------------------------------------------------------------------------------------------------- ours


@cache
def _ours() -> None:
    """Declares those that come with us."""
    intrinsic(
        "vpdpbusd",
        parse_program(
            "a: u8[4] = input()\nb: i8[16, 4] = input()\nc[l]: i32[16] = sum(i32(a[q]) * i32(b[l, q]) for q in range(4))\nreturn c\n"
        ),
        """  %old = load <16 x i32>, ptr %c, align 4
  %four = load i32, ptr %a, align 1
  %one = insertelement <16 x i32> poison, i32 %four, i64 0
  %all = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %lanes = load <16 x i32>, ptr %b, align 1
  %new = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %old, <16 x i32> %all, <16 x i32> %lanes)
  store <16 x i32> %new, ptr %c, align 4""",
        declarations={"llvm.x86.avx512.vpdpbusd.512": "<16 x i32> (<16 x i32>, <16 x i32>, <16 x i32>)"},
        features=("avx512_vnni",),
    )
    intrinsic(
        "vdpbf16ps",
        parse_program(
            "a: bf16[2] = input()\nb: bf16[16, 2] = input()\nc[l]: f32[16] = sum(f32(a[q]) * f32(b[l, q]) for q in range(2))\nreturn c\n"
        ),
        """  %old = load <16 x float>, ptr %c, align 4
  %two = load i32, ptr %a, align 2
  %one = insertelement <16 x i32> poison, i32 %two, i64 0
  %all = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %pairs = bitcast <16 x i32> %all to <32 x bfloat>
  %lanes = load <32 x bfloat>, ptr %b, align 2
  %new = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %old, <32 x bfloat> %pairs, <32 x bfloat> %lanes)
  store <16 x float> %new, ptr %c, align 4""",
        declarations={"llvm.x86.avx512bf16.dpbf16ps.512": "<16 x float> (<16 x float>, <32 x bfloat>, <32 x bfloat>)"},
        features=("avx512_bf16",),
        remark="the second product of a pair is added before the first, and subnormal numbers count as zero",
    )
