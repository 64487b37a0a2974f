"""What the functions of the prelude that a CPU does not see are to be, and what is wrong with their text.

`faults` looks at each statement of inline PTX twice: by the table of the PTX ISA (`tensorexpr.codegen.cuda.nvidia.ptx`), whether it is an
instruction whose operands are bound as that needs them; and by `WRAPPERS`, whether it is the one that the function is for, of its own
parameters. Atomics have their rows in the table and a rule here; what is left of CUDA's own words is in `WORDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tensorexpr.codegen.cuda.nvidia import ptx
from tests.codegen.cuda.inline_ptx import Asm, Function, calls, expanded, functions, statements, tokens_of

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
TEXTS = (80, 75)
"""The prelude has one text for each of these, and none for others."""
Bound = tuple[str, str, dict[str, str]]


def _matrices(count: int) -> tuple[Bound, ...]:
    registers = ", ".join(f"to[{k}]" for k in range(count))
    rows = ((condition, f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16")
            for condition, trans in (("TRANSPOSED", ".trans"), ("!(TRANSPOSED)", "")))  # fmt: skip
    return tuple((condition, name, {"r": registers, "p": "te_ptx_shared(row)"}) for condition, name in rows)


def _product(name: str) -> tuple[Bound, ...]:
    operands = {o.role: o for o in ptx.INSTRUCTIONS[name].operands if isinstance(o, ptx.Register)}
    c = ", ".join(f"c{k}" for k in range(operands["c"].count))
    a, b = (", ".join(f"{r}[{k}]" for k in range(operands[r].count)) for r in "ab")
    return (("", name, {"d": c, "a": a, "b": b, "c": c}),)


def _converted(name: str, result: str, given: str) -> tuple[Bound, ...]:
    return (("", name, {"d": result, "a": given}),)


def _group_product(name: str) -> tuple[Bound, ...]:
    """The sums of a lane in the order of the instruction: by eight columns, of row r and of row r + 8 in turn."""
    operands = {o.role: o for o in ptx.INSTRUCTIONS[name].operands}
    count = operands["d"].count
    d = ", ".join(f"c[{row * count // 2 + 2 * k + j}]" for k in range(count // 4) for row in range(2) for j in range(2))
    bound = {"d": d, "a-desc": "a", "b-desc": "b", "scale-d": "1", "imm-scale-a": "1", "imm-scale-b": "1"}
    return (("", name, bound | {"imm-trans-a": "A_TURNED", "imm-trans-b": "B_TURNED"}),)


_COPIED = {"dst": "te_ptx_shared(to)", "src": "from", "src-size": "filled"}
WRAPPERS: dict[str, tuple[Bound, ...]] = {
    "te_ptx_f32_of_f16": _converted("cvt.f32.f16", "x", "bits"),
    "te_ptx_f16_of_f32": _converted("cvt.rn.f16.f32", "bits", "x"),
    "te_ptx_f16_of_f64": _converted("cvt.rn.f16.f64", "bits", "x"),
    "te_bf16_bits": _converted("cvt.rn.bf16.f32", "near", "x"),
    "te_tf32": _converted("cvt.rna.tf32.f32", "bits", "x"),
    "te_copy_async": (
        ("B==16", "cp.async.cg.shared.global", _COPIED | {"cp-size": "16"}),
        ("!(B==16)", "cp.async.ca.shared.global", _COPIED | {"cp-size": "B"}),
    ),
    "te_copies_commit": (("", "cp.async.commit_group", {}),),
    "te_copies_wait": (("", "cp.async.wait_group", {"N": "N"}),),
    "te_copies_wait_all": (("", "cp.async.wait_all", {}),),
    "te_matrices[4]": _matrices(4),
    "te_matrices[2]": _matrices(2),
    "te_zero_bf16": (("", "fma.rn.bf16x2", {"d": "sum", "a": "x", "b": "zero", "c": "sum"}),),
    "te_zero_f16": (("", "fma.rn.f16x2", {"d": "sum", "a": "x", "b": "zero", "c": "sum"}),),
    "te_mma_f16[4][2]": _product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    "te_mma_bf16[4][2]": _product("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    "te_mma_tf32[4][2]": _product("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
    "te_mma_f64[1][1]": _product("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
    "te_ptx_group_fence": (("", "wgmma.fence.sync.aligned", {}),),
    "te_ptx_group_wait": (("", "wgmma.wait_group.sync.aligned", {"N": "N"}),),
    "te_group_commit": (("", "wgmma.commit_group.sync.aligned", {}),),
    "te_hand_over": (("", "fence.proxy.async.shared::cta", {}),),
    **{
        f"te_group_{t}[{n // 2}]": _group_product(f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{t}.{t}")
        for t in ("f16", "bf16")
        for n in ptx.GROUP_COLUMNS
    },
}
"""By function: the condition, the instruction and what its operands are, for every statement in order."""
PINNED = "te_pinned[N]"
"""The one function with inline assembly of no instruction: what it names, a compiler takes to be read and written there."""
BY_TARGET = ("te_matrices", "te_mma", "te_tf32", "te_zero", "te_group", "te_ptx_group", "te_hand_over")
"""Functions that kernels call only where the target multiplies so; the others must do without where a machine lacks the instruction."""
WORDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "te_float_of_bits": (("__uint_as_float", ("bits",)),),
    "te_bits_of_float": (("__float_as_uint", ("x",)),),
    "te_double_of_bits": (("__longlong_as_double", ("(long long)bits",)),),
    "te_bits_of_double": (("__double_as_longlong", ("x",)),),
    "te_shuffle_down": (("__shfl_down_sync", ("0xffffffffu", "x", "distance")),),
    "te_shuffle_from": (("__shfl_sync", ("0xffffffffu", "x", "lane")),),
    "te_ptx_shared": (("__cvta_generic_to_shared", ("place",)),),
    "te_fail": (("atomicCAS", ("(unsigned long long*)&error->check", "0ull", "(unsigned long long)(check+1)")),),
}
"""Words of CUDA in functions that are no updates of an element, with their arguments."""
_UPDATES = {"te_atomic_add": "atomicAdd", "te_atomic_maximum": "atomicMax", "te_atomic_minimum": "atomicMin"}
_BY_EXCHANGE = ("te_atomic_add", "te_atomic_mul", "te_atomic_maximum", "te_atomic_minimum")
_ELEMENTS = {"float": "float", "double": "double", "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long long",
             "uint64_t": "unsigned long long"}  # fmt: skip
DECLARING = {"__device__", "__forceinline__", "__align__", "__shared__", "__global__", "__launch_bounds__", "__restrict__"}
BARRIERS = {"__syncthreads", "__syncwarp", "__syncthreads_or", "__any_sync"}
"""What kernels may say of CUDA beside the functions of the prelude."""
WORD = re.compile(r"asm|atomic[A-Z]\w*|__[a-z]\w*")
KNOWN = {word for word, _ in ptx.NATIVES} | {*ptx.SHUFFLES} | {word for rows in WORDS.values() for word, _ in rows}


def faults(text: str, arch: int) -> list[str]:
    """What is wrong with the prelude for a machine, one sentence each."""
    return list(_faults(functions(expanded(text, arch)), arch))


def _faults(found: list[Function], arch: int) -> Iterator[str]:
    here = {f.key for f in found}
    for name in (*WRAPPERS, PINNED, *WORDS, *_BY_EXCHANGE, *_natives()):
        if name not in here:
            yield f"{name}: not there"
    for f in found:
        yield from function_faults(f, statements(f), arch)


def _natives() -> set[str]:
    """Specialisations of updates by an instruction of the machine."""
    return {f"{name}<{t}>" for name in _UPDATES for t in _ELEMENTS if name == "te_atomic_add" or t not in ("float", "double")}


def function_faults(f: Function, asm: list[Asm], arch: int) -> Iterator[str]:
    """What is wrong with a function that has these statements of inline PTX."""
    by_target = f.name.startswith(BY_TARGET)
    if f.key == PINNED:
        right = len(asm) == 1 and replace(asm[0], when="") == Asm("", (("+f", "c[k]"),), (), ("memory",), True, "")
        yield from [] if right else [f"{f.key}: {asm} does not pin what it is given"]
        return
    wanted = [row for row in WRAPPERS.get(f.key, ()) if ptx.INSTRUCTIONS[row[1]].sm <= arch or by_target]
    if len(asm) != len(wanted):
        yield f"{f.key}: sm_{arch}: {len(asm)} statements of PTX, not {len(wanted)}"
    for one, (condition, name, operands) in zip(asm, wanted, strict=False):
        for fault in [*asm_faults(one, f)] or _unwanted(one, condition, name, operands):
            yield f"{f.key}: {one.opcode}: {fault}"
    used = calls(f, KNOWN)
    if f.name.split("<")[0] in _UPDATES and "<" in f.name:
        yield from _update_faults(f, used)
    elif f.name in _BY_EXCHANGE:
        if used != [("atomicCAS", ("at", "(word)0", "(word)0")), ("atomicCAS", ("at", "seen", "next"))]:
            yield f"{f.key}: {used} is no exchange"
    elif tuple(used) != WORDS.get(f.name, ()):
        yield f"{f.key}: {used}, not {WORDS.get(f.name, ())}"


def _update_faults(f: Function, used: list[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    name, _, rest = f.name.partition("<")
    element = _ELEMENTS[rest[:-1]]
    if len(used) != 1 or used[0][0] != _UPDATES[name]:
        yield f"{f.name}: {used}, not one {_UPDATES[name]}"
        return
    word, arguments = used[0]
    cast = re.fullmatch(r"\(([\w ]+)\*\)place", arguments[0])
    kind = cast[1] if cast else ""
    if arguments != (f"({kind}*)place", f"({kind})value") or (word, kind) not in ptx.NATIVES:
        yield f"{f.name}: {word}{arguments} is in no row of the table"
    elif kind != element and not (word == "atomicAdd" and {kind, element} == {"long long", "unsigned long long"}):
        yield f"{f.name}: {word} of {kind}, not {element}"


def _unwanted(one: Asm, condition: str, name: str, operands: dict[str, str]) -> Iterator[str]:
    """Where a statement is an instruction, but not the one that its function is for."""
    if one.opcode != name:
        yield f"not {name}"
        return
    if one.when != condition:
        yield f"under {one.when or 'no condition'}, not {condition or 'none'}"
    bound = [expression for _, expression in (*one.outputs, *one.inputs)]
    for operand, written in zip(ptx.INSTRUCTIONS[name].operands, one.operands, strict=False):
        numbers = re.findall(r"%(\d+)", written)
        got = ", ".join(bound[int(n)] for n in numbers) if numbers else written
        if got != operands[operand.role]:
            yield f"{operand.role} is {got}, not {operands[operand.role]}"


def asm_faults(one: Asm, f: Function) -> Iterator[str]:
    """What is wrong with a statement by the table alone."""
    row = ptx.INSTRUCTIONS.get(one.opcode)
    if row is None:
        yield "in no row of the table"
        return
    if not re.fullmatch(r"[^;]+;", one.template):
        yield f"{one.template!r} is not one instruction"
    written, bound = one.operands, [*one.outputs, *one.inputs]
    if len(written) != len(row.operands):
        yield f"{len(written)} operands, not {len(row.operands)}"
        return
    if used := set(re.findall(r"%(\d+)", one.template)) ^ {str(k) for k in range(len(bound))}:
        yield f"operands {sorted(used)} are bound to nothing, or stand nowhere"
        return
    read = {n for o, w in zip(row.operands, written, strict=True) if not _is_result(o) or _is_kept(o) for n in re.findall(r"%(\d+)", w)}
    for operand, text in zip(row.operands, written, strict=True):
        yield from _operand_faults(operand, text, one, f, read)
    if row.memory and not (one.volatile and one.clobbers == ("memory",)):
        yield "it reads, writes or orders memory, which must be said: volatile, and a clobber of memory"
    if not row.memory and one.clobbers:
        yield f"a clobber of {one.clobbers}"


def _is_result(operand: ptx.Operand) -> bool:
    return isinstance(operand, ptx.Register) and operand.written


def _is_kept(operand: ptx.Operand) -> bool:
    return isinstance(operand, ptx.Register) and operand.kept


def _operand_faults(operand: ptx.Operand, text: str, one: Asm, f: Function, read: set[str]) -> Iterator[str]:
    """An operand as it is written, and what it is bound to."""
    bound, outputs = [*one.outputs, *one.inputs], len(one.outputs)
    numbers = re.findall(r"%(\d+)", text)
    registers = ",".join(f"%{n}" for n in numbers)
    if isinstance(operand, ptx.Immediate):
        if not numbers:
            fits = text.isdigit() and (not operand.values or int(text) in operand.values)
        else:
            fits = text == registers and bound[int(numbers[0])][0] == ptx.IMMEDIATE
        if not fits:
            yield f"{operand.role} is {text}, which is none of its constants"
        return
    if isinstance(operand, ptx.Address):
        form, count = f"[{registers}]", 1
    else:
        form, count = (f"{{{registers}}}" if operand.vector else registers), operand.count
    if text != form or len(numbers) != count:
        yield f"{operand.role} is {text}, not {count} of {operand}"
        return
    for n in numbers:
        constraint, expression = bound[int(n)]
        mode = ("+" if n in read else "=") if int(n) < outputs else ""
        if _is_result(operand) and not mode:
            yield f"{operand.role} is an input"
        if constraint != mode + operand.constraint:
            yield f"{operand.role}: {expression} by {constraint!r}, not {mode + operand.constraint!r}"
        kinds = next(letters for letters in ptx.CONSTRAINTS.values() if operand.constraint in letters)[operand.constraint]
        if (kind := _type_of(expression, f)) not in kinds:
            yield f"{operand.role}: {expression} is {kind}, not {' or '.join(kinds)}"
        if isinstance(operand, ptx.Address) and (operand.space == "shared") != expression.startswith("te_ptx_shared("):
            yield f"{operand.role}: {expression} is no address in {operand.space} memory"


def _type_of(expression: str, f: Function) -> str:
    """The C++ type of a parameter or variable, of an element of one, or of an address in shared memory."""
    if expression.startswith("te_ptx_shared("):
        return "uint32_t"
    found = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", expression)
    if found is None:
        return "no variable"
    base, _, length = f.types.get(found[1], "?").partition("[")
    if bool(found[2]) != bool(length) or (length and int(found[2]) >= int(length[:-1])):
        return f"beyond {found[1]}"
    return base


def unknown_words(text: str, arch: int = 0) -> set[str]:
    """Words of CUDA, and assembly, in a text that no table has: none in kernels but barriers, in the prelude those of its wrappers."""
    allowed = DECLARING | (KNOWN | {"asm"} if arch else BARRIERS)
    tokens = expanded(text, arch) if arch else tokens_of(re.sub(r"//[^\n]*", "", text))
    return {t for t in tokens if WORD.fullmatch(t)} - allowed


def names_of(text: str) -> set[str]:
    """What a text says of the prelude: its functions, macros and types."""
    return {t for t in tokens_of(re.sub(r"//[^\n]*", "", text)) if t.startswith(("te_", "TE_"))}


def only_on_gpu(text: str, arch: int) -> set[str]:
    """Names of functions that a machine has and the host has not, or not so."""
    host = {(f.key, f.parameters, f.body) for f in functions(expanded(text))}
    return {f.name.split("<")[0] for f in functions(expanded(text, arch)) if (f.key, f.parameters, f.body) not in host}
