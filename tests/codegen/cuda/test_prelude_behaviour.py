"""Each function of the prelude that a CPU does not see against a reference: on a GPU, first of all; and on a CPU twice, as the shim has
it, and as the text of the GPU itself has it, where each instruction is a call of what the table of the PTX ISA says that it does."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.emitter.source import PRELUDE, Launch, Source
from tensorexpr.codegen.cuda.host import HostKernels, compiler
from tensorexpr.codegen.cuda.nvidia import nvrtc, ptx
from tensorexpr.ir import Const
from tests.codegen.cuda.behaviours import BEHAVIOURS, FRAGMENTS, Behaviour
from tests.codegen.cuda.device import gpu
from tests.codegen.cuda.inline_ptx import asm_at, expanded, tokens_of
from tests.codegen.cuda.test_prelude_text import AUDITED
from tests.codegen.cuda.wrappers import ARCHITECTURES, TEXTS
from tests.seeds import is_campaign

TEXT = PRELUDE.read_text()
AS_CALLS = Path(__file__).with_name("as_calls.h").read_text()
on_gpu = pytest.mark.skipif(gpu() is None, reason="no GPU to run the instructions of the prelude")
on_cpu = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA kernels")
ARENA = tokens_of("extern __shared__ __align__(1024) unsigned char te_arena_bytes[];")


def launch_of(behaviour: Behaviour, name: str) -> Launch:
    return Launch(name, (), (), False, (behaviour.threads, 1, 1), (Const(1, dtypes.int64),), False, behaviour.shared)


def text_for_cpu(text: str, arch: int) -> str:
    """The prelude of a machine with its instructions as calls."""
    tokens, made, k = expanded(text, arch), [], 0
    while k < len(tokens):
        if tokens[k : k + len(ARENA)] == ARENA:
            k += len(ARENA)
        elif tokens[k] == "asm":
            one, k = asm_at(tokens, k)
            bound = [expression for _, expression in (*one.outputs, *one.inputs)]
            operands = [t for written in one.operands for t in written.strip("{}[]").split(",")]
            given = ", ".join(bound[int(t[1:])] if t.startswith("%") else t for t in operands)
            made.append(f"te_asm_{re.sub('[.:]', '_', one.opcode)}({given})")
        else:
            made.append(tokens[k] + ("\n" if tokens[k] in ";{}" else ""))
            k += 1
    return " ".join(made).replace(": :", "::")


def extremes() -> str:
    """The native extremes of the table in C++."""
    found = [n for n in ptx.NATIVES.values() if n.word in ("atomicMax", "atomicMin")]
    return "\n".join(
        f"static inline void {n.word}({n.type} *at, {n.type} x) {{ if (x {'>' if n.word == 'atomicMax' else '<'} *at) *at = x; }}"
        for n in found
    )


def in_space(text: str, name: str, arch: int, behaviours: dict[str, Behaviour]) -> str:
    """The kernels of behaviours on the prelude of a machine, in a namespace, so that several are compiled as one."""
    kernels = "\n".join(b.text.replace(" x_", f" {name}_") for b in behaviours.values())
    uses = "\n".join(f"using te_{name}::{name}_{one};" for one in behaviours)
    return f"namespace te_{name} {{\n{text_for_cpu(text, arch)}\n{kernels}\n}}\n{uses}"


def made_for_cpu(spaces: dict[str, tuple[str, int]], names: tuple[str, ...] = tuple(BEHAVIOURS)) -> HostKernels:
    """Kernels on the shim, and on each of some texts of the prelude for a machine, compiled together."""
    chosen = {name: BEHAVIOURS[name] for name in names}
    parts = [b.text for b in chosen.values()]
    parts += [AS_CALLS, extremes(), *(in_space(text, name, arch, chosen) for name, (text, arch) in spaces.items())]
    launches = [launch_of(b, f"{space}_{name}") for space in ("x", *spaces) for name, b in chosen.items()]
    return HostKernels(Source("\n".join(parts), tuple(launches)))


@cache
def cpu(shim: bool) -> HostKernels:
    """The kernels on the shim; on the texts of all machines as well where another one than the shim is asked for."""
    return made_for_cpu({} if shim else {f"sm_{arch}": (TEXT, arch) for arch in TEXTS})


def assert_same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """Bit for bit; a NaN is a NaN."""
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
        if want.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


def run_on_cpu(kernels: HostKernels, space: str, name: str, order: int = 0, late: bool = True) -> None:
    read, written, wanted = BEHAVIOURS[name].case()
    arrays = [np.ascontiguousarray(a) for a in (*read, *written)]
    addresses = [a.ctypes.data for a in arrays]
    kernels.launch(launch_of(BEHAVIOURS[name], f"{space}_{name}"), (1, 1, 1), addresses, order, late)
    assert_same([a.view(w.dtype) for a, w in zip(arrays[len(read) :], wanted, strict=True)], wanted)


@on_gpu
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_on_a_gpu(name: str) -> None:
    device, behaviour = gpu(), BEHAVIOURS[name]
    assert device is not None and device.arch is not None
    if not behaviour.is_for(device.arch):
        pytest.skip(f"{name}: expected a GPU of sm_{behaviour.sm}{'' if behaviour.alone else ' or later'}, got one of {device.arch}")
    launch = launch_of(behaviour, f"x_{name}")
    kernels = device.load(Source(behaviour.text, (launch,)), nvrtc.compile_text(behaviour.text, device.arch))
    read, written, wanted = behaviour.case()
    held = [device.upload(np.ascontiguousarray(a)) for a in (*read, *written)]
    kernels.launch(launch, (1, 1, 1), [device.address(a) for a in held])
    assert_same([device.read(a).view(w.dtype) for a, w in zip(held[len(read) :], wanted, strict=True)], wanted)


@on_cpu
@pytest.mark.parametrize("name", BEHAVIOURS)
@pytest.mark.parametrize("space", ["x", *(f"sm_{arch}" for arch in TEXTS)], ids=lambda space: "shim" if space == "x" else space)
def test_on_a_cpu(space: str, name: str) -> None:
    for order, late in ((0, True), (1, False)):
        run_on_cpu(cpu(space == "x"), space, name, order, late)


def test_there_are_two_texts() -> None:
    texts = {arch: expanded(TEXT, arch) for arch in ARCHITECTURES}
    assert texts[75] != texts[80] and all(texts[arch] == texts[80] for arch in ARCHITECTURES[1:])


@on_cpu
@pytest.mark.skipif(not is_campaign(), reason="in a campaign: eight preludes to compile")
def test_the_mutants_of_the_audit_do_something_else() -> None:
    """The text that each changes is found by `test_prelude_text`; this is that what they do is wrong, too."""
    texts = {name: TEXT.replace(*change, 1) for name, change in AUDITED.items() if name != "bf16 rounding"}  # no function rounds so
    shown = {
        "b swapped": "te_mma_bf16", ".trans lost": "matrices", "wait_group dropped": "copies_8", "half copies": "copies_8",
        "half copies of sixteen bytes": "copies_16", "atomicMax for Min": "updates_int32_t", "shuffle lane": "lanes",
    }  # fmt: skip
    assert shown.keys() == texts.keys()
    kernels = made_for_cpu({f"m{k}": (text, 80) for k, text in enumerate(texts.values())}, tuple(dict.fromkeys(shown.values())))
    for k, name in enumerate(texts):
        with pytest.raises(AssertionError, match="not equal"):
            run_on_cpu(kernels, f"m{k}", shown[name])


@pytest.mark.parametrize("shape", FRAGMENTS)
def test_the_table_has_the_layouts_of_the_manual(shape: str) -> None:
    assert ptx.FRAGMENTS.keys() == FRAGMENTS.keys()
    for operand, (count, place) in FRAGMENTS[shape].items():
        layout = ptx.FRAGMENTS[shape][operand]
        assert layout.elements == count
        found = [layout.place(lane, i) for lane in range(ptx.WARP) for i in range(count)]
        assert found == [place(lane, i) for lane in range(ptx.WARP) for i in range(count)]
        rows, columns, depth = (int(n) for n in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
        extents = {"a": (rows, depth), "b": (depth, columns), "c": (rows, columns)}[operand]
        assert sorted(found) == [(i, j) for i in range(extents[0]) for j in range(extents[1])]  # each element once
        instructions = [i for i in ptx.INSTRUCTIONS.values() if f".{shape}." in i.name]
        assert instructions and all({o.role: o.count for o in i.operands}[operand] == layout.registers for i in instructions)
