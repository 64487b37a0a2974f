"""The part of the prelude that a CPU does not see, instruction by instruction, by the table of the PTX ISA; and that faults are found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import PRELUDE
from tensorexpr.codegen.cuda.nvidia import nvrtc, ptx
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.parse import parse_program
from tests.codegen.cuda.behaviours import BEHAVIOURS
from tests.codegen.cuda.inline_ptx import Asm, Function, expanded, functions, statements, tokens_of
from tests.codegen.cuda.test_atomics import TEXT as UPDATES
from tests.codegen.cuda.wrappers import (
    ARCHITECTURES,
    PINNED,
    TEXTS,
    WRAPPERS,
    asm_faults,
    faults,
    function_faults,
    names_of,
    only_on_gpu,
    unknown_words,
)

T = TypeVar("T")
TEXT = PRELUDE.read_text()
AUDITED = {
    "b swapped": ('"r"(b[0]), "r"(b[1])', '"r"(b[1]), "r"(b[0])'),
    ".trans lost": ("m8n8.x4.trans.shared", "m8n8.x4.shared"),
    "wait_group dropped": ('  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");\n', ""),
    "half copies": ('"n"(B)', '"n"(B / 2)'),
    "half copies of sixteen bytes": ("[%1], 16, %2", "[%1], 8, %2"),
    "atomicMax for Min": ("te_atomic_minimum, atomicMin, int32_t", "te_atomic_minimum, atomicMax, int32_t"),
    "shuffle lane": ("__shfl_sync(0xffffffffu, x, lane)", "__shfl_sync(0xffffffffu, x, lane ^ 1)"),
    "bf16 rounding": ("cvt.rn.bf16.f32", "cvt.rz.bf16.f32"),
}
"""Planted by the audit of the backend; nothing saw them without a GPU."""
PLANTED = {
    "an extreme without its sign": ("atomicMax, int64_t, long long", "atomicMax, int64_t, unsigned long long"),
    "half of an element": ("atomicAdd, int64_t, unsigned long long", "atomicAdd, int64_t, unsigned int"),
    "a generic address": ('"r"(te_ptx_shared(row))', '"l"(row)'),
    "no address of its space": ("__cvta_generic_to_shared(place)", "__cvta_generic_to_shared(0)"),
    "a mask of half the lanes": ("__shfl_down_sync(0xffffffffu", "__shfl_down_sync(0xffffu"),
    "shuffles the other way": ("__shfl_down_sync(0xffffffffu, x", "__shfl_up_sync(0xffffffffu, x"),
    "no memory": ('"cp.async.commit_group;" ::: "memory"', '"cp.async.commit_group;" :::'),
    "no order": ('asm volatile("cp.async.wait_all', 'asm("cp.async.wait_all'),
    "another group": ('::"n"(N)', '::"n"(N + 1)'),
    "the wrong way around": ("if (TRANSPOSED)", "if (!TRANSPOSED)"),
    "for older machines": ("#if !defined(TE_HOST) && __CUDA_ARCH__ >= 800", "#if !defined(TE_HOST) && __CUDA_ARCH__ >= 750"),
    "for none": ("#if !defined(TE_HOST) && __CUDA_ARCH__ >= 800", "#if !defined(TE_HOST) && __CUDA_ARCH__ >= 900"),
    "a specialisation lost": ("TE_NATIVE(te_atomic_add, atomicAdd, double, double)\n", ""),
    "no exchange": ("atomicCAS(at, seen, next)", "atomicCAS(at, next, seen)"),
    "terms for columns": ('"n"(A_TURNED), "n"(B_TURNED)', '"n"(B_TURNED), "n"(A_TURNED)'),
    "a sum elsewhere": ('"+f"(c[16]), "+f"(c[17]), "+f"(c[2])', '"+f"(c[17]), "+f"(c[16]), "+f"(c[2])'),
    "sums that nothing pins": ('asm volatile("" : "+f"(c[k]) :: "memory")', 'asm volatile("" : "=f"(c[k]) :: "memory")'),
    "no fence of the proxies": ("fence.proxy.async.shared::cta;", "fence.acq_rel.cta;"),
    "the second failure": ("0ull, (unsigned long long)(check + 1)", "1ull, (unsigned long long)(check + 1)"),
}
"""More of that kind."""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_instruction_is_what_the_table_says(arch):
    assert faults(TEXT, arch) == []
    assert unknown_words(TEXT, arch) == set()


def test_every_row_of_the_table_is_used():
    used = {one.opcode for f, asm in wrapped() for one in asm}
    assert used == set(ptx.INSTRUCTIONS) == {name for rows in WRAPPERS.values() for _, name, _ in rows}


def test_what_only_a_gpu_sees_has_a_behaviour():
    only = set.union(*(only_on_gpu(TEXT, arch) for arch in TEXTS))
    assert only == {name for b in BEHAVIOURS.values() for name in b.shows}, "each wants a kernel in tests/codegen/cuda/behaviours.py"
    bodies: dict[str, set[str]] = {}
    for f in functions(expanded(TEXT, 80)):
        bodies.setdefault(f.name.split("<")[0], set()).update(f.body)
    for name, b in BEHAVIOURS.items():
        reached, new = set(), set(tokens_of(b.text)) | {"te_f16_bits", "te_bf16_bits"} & {f"te{w[5:]}_bits" for w in tokens_of(b.text)}
        while new:
            reached |= new
            new = set().union(*(bodies.get(word, set()) for word in new)) - reached
        assert reached >= set(b.shows), name


@pytest.mark.parametrize("name", [*AUDITED, *PLANTED])
def test_a_planted_fault_is_found(name):
    good, bad = (AUDITED | PLANTED)[name]
    assert good in TEXT
    text = TEXT.replace(good, bad, 1)
    assert any(faults(text, arch) or unknown_words(text, arch) for arch in TEXTS)


# ------------------------------------------------------------------------------------------------ mutants from the table


def _some(items: list[T]) -> list[T]:
    """Of many operands, which are all alike, the first and the last."""
    return items if len(items) <= 16 else items[:4] + items[-4:]


def mutants(one: Asm) -> Iterator[tuple[str, Asm | None]]:
    """A statement with one thing wrong: none, another instruction, operands in another order, other constraints, no clobber."""
    yield "dropped", None
    head, parts = one.opcode, one.opcode.split(".")
    rest = one.template.removeprefix(head)
    for name in {".".join(parts[:k] + parts[k + 1 :]) for k in range(1, len(parts))} | set(ptx.INSTRUCTIONS) - {head}:
        yield f"for {name}", replace(one, template=name + rest)
    for k, left in enumerate(parts):
        for right in {p for i in ptx.INSTRUCTIONS for p in i.split(".")} - {left}:
            yield f"{right} for {left}", replace(one, template=".".join([*parts[:k], right, *parts[k + 1 :]]) + rest)
    written = re.findall(r"%\d+|\b\d+\b", rest)
    for a, b in _some(list(pairwise(written))):
        swapped = rest.replace(a, "\0").replace(b, a).replace("\0", b)
        if swapped != rest and a != b:
            yield f"{a} for {b}", replace(one, template=head + swapped)
    for number in re.findall(r"(?<![%\d])\b\d+\b", rest):
        yield "another constant", replace(one, template=head + rest.replace(f" {number}", f" {int(number) // 2}"))
    for side in ("outputs", "inputs"):
        bound = getattr(one, side)
        for k, (constraint, expression) in _some(list(enumerate(bound))):
            others = {mode + letter for mode in ("", "=", "+") for letter in "hrlfdn"} - {constraint}
            for other in others:
                yield f"{other} for {constraint}", replace(one, **{side: (*bound[:k], (other, expression), *bound[k + 1 :])})
            yield "another group", replace(one, **{side: (*bound[:k], (constraint, f"{expression}+1"), *bound[k + 1 :])})
            yield "unbound", replace(one, **{side: bound[:k] + bound[k + 1 :]})
            for j in _some(list(range(k))):
                turned = list(bound)
                turned[j], turned[k] = (bound[j][0], bound[k][1]), (bound[k][0], bound[j][1])
                if turned[j] != bound[j]:
                    yield "turned", replace(one, **{side: tuple(turned)})
    if one.volatile:
        yield "not volatile", replace(one, volatile=False)
    if one.clobbers:
        yield "no clobber", replace(one, clobbers=())
    yield "another condition", replace(one, when="" if one.when else "TRANSPOSED")
    yield "twice", replace(one, template=one.template * 2)


@cache
def wrapped() -> tuple[tuple[Function, list[Asm]], ...]:
    found = ((f, statements(f)) for f in functions(expanded(TEXT, 80)))
    return tuple((f, asm) for f, asm in found if asm and f.key != PINNED)


def test_every_mutant_is_found():
    count = 0
    for f, asm in wrapped():
        assert not list(function_faults(f, asm, 80))
        for k, one in enumerate(asm):
            for what, mutant in mutants(one):
                count += 1
                changed = [*asm[:k], *([mutant] if mutant else []), *asm[k + 1 :]]
                assert any(function_faults(f, changed, 80)), f"{f.key}: {one.opcode}: {what}"
    assert count > 1500


def test_the_table_alone_finds_what_no_machine_takes():
    """Without what the functions are for: forms, constraints, directions, address spaces, order of memory."""
    found = {what: 0 for what in ("not volatile", "no clobber", "unbound", "twice", "r for h", "=f for +f", "r for l", "another constant")}
    for f, asm in wrapped():
        for one in asm:
            for what, mutant in mutants(one):
                if what in found:
                    assert mutant is not None and list(asm_faults(mutant, f)), f"{f.key}: {one.opcode}: {what}"
                    found[what] += 1
    assert all(found.values()), found


# ------------------------------------------------------------------------------------------------------------ kernels

PROGRAMS = {
    "updates": UPDATES.format("f32", "sum"),
    "checked": "x: f32[9] = input()\nids: i64[700] = input()\ny[i]: f32[700] = x[ids[i]]\nreturn y\n",
}


@cache
def kernels() -> dict[str, str]:
    """Texts of kernels: the goldens, and some programs more."""
    small = replace(H200, cores=1)  # a GPU for which small tensors are large
    texts = {p.stem: p.read_text() for p in sorted(Path(__file__).with_name("golden").iterdir())}
    for name, text in PROGRAMS.items():
        texts[name] = emit(verify_nest(lower(autoschedule(parse_program(text), small)))).text
    return texts


def test_kernels_say_nothing_of_cuda_but_by_the_prelude():
    said = names_of(TEXT)
    spoken = set()
    for name, text in kernels().items():
        assert unknown_words(text) == set(), name
        own = set(re.findall(r"\bte_(?:left|behind)_\d+\b", text))
        assert names_of(text) <= said | own, name
        assert {int(n) for n in re.findall(r"te_copy_async<(\d+)>", text)} <= set(ptx.COPY_SIZES["ca"]), name
        spoken |= names_of(text)
    for word in (
        "te_copy_async",
        "te_matrices",
        "te_mma_bf16",
        "te_group_bf16",
        "te_hand_over",
        "te_atomic_add",
        "te_shuffle_down",
        "te_fail",
    ):
        assert word in spoken


@pytest.mark.parametrize("line", ['asm volatile("bar.sync 0;");', "atomicAdd(&y[0], 1.0f);", "__threadfence();", "y[0] = __ldg(&x[0]);"])
def test_a_kernel_that_does_is_found(line):
    text = kernels()["elementwise"]
    assert unknown_words(text + line)


# ------------------------------------------------------------------------------------------------------ machine code


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_the_compiler_makes_the_instructions_of_the_table(arch):
    machine = int(arch[3:].rstrip("a"))
    there = {name: b for name, b in BEHAVIOURS.items() if b.is_for(arch)}
    made = nvrtc.compile_text("\n".join(b.text for b in there.values()), arch).ptx
    version = tuple(map(int, re.search(r"\.version (\d+)\.(\d+)", made).groups()))
    entries = {re.match(r"\s*(\w+)", part)[1]: part for part in made.split(".visible .entry")[1:]}
    assert set(entries) == {f"x_{name}" for name in there}
    asked = set()
    for part in entries.values():
        for line in re.findall(r"// begin inline asm(.*?)// end inline asm", part, re.S):
            name = re.split(r"[ ;]", line.strip())[0]
            # CUDA's own shuffles of 64 bits are made of the one; no text of the prelude has it. The other pins sums.
            if name in ("mov.b64", ""):
                continue
            row = ptx.INSTRUCTIONS[name]
            assert row.sm <= machine and row.isa <= version, line
            asked.add(row.name)
    assert asked == {name for name, row in ptx.INSTRUCTIONS.items() if row.sm <= machine}
    natives = {n.instruction.split(".", 1)[1] for n in ptx.NATIVES.values()}
    atomics = set(re.findall(r"\b(?:atom|red)(?:\.\w+)*?\.((?:add|min|max|cas)\.\w+)", made))
    assert atomics == natives
    assert set(re.findall(r"shfl\.\S+", made)) == set(ptx.SHUFFLES.values())
