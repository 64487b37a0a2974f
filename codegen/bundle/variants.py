"""The CPUs that a bundle has code for, and how the code finds out at run time which of them it is on.

A variant is the host as LLVM names it, or a level of the x86-64 ABI (x86-64-v2, -v3, -v4). What a CPU can is asked with the
instruction `cpuid`; the table says where it tells each feature that LLVM may use on its own account (those that take an
intrinsic of ours to be used are not asked for). Bits are those of the manuals of Intel and AMD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorexpr.codegen.llvm import Machine, host
from tensorexpr.codegen.target import Target, host_target
from tensorexpr.errors import TargetError, user_location

WORDS = ("leaf 1 ecx", "leaf 1 edx", "leaf 7 ebx", "leaf 7 ecx", "leaf 7 edx", "leaf 7.1 eax", "leaf 0x80000001 ecx", "xcr0")
_BITS: dict[str, tuple[tuple[int, int], ...]] = {
    **{name: ((0, bit),) for name, bit in {
        "sse3": 0, "pclmul": 1, "ssse3": 9, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22, "popcnt": 23, "aes": 25,
    }.items()},
    **{name: ((1, bit),) for name, bit in {"cx8": 8, "cmov": 15, "mmx": 23, "fxsr": 24, "sse": 25, "sse2": 26}.items()},
    **{name: ((2, bit),) for name, bit in {"fsgsbase": 0, "bmi": 3, "bmi2": 8, "adx": 19, "sha": 29}.items()},
    **{name: ((6, bit),) for name, bit in {"sahf": 0, "lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16, "tbm": 21}.items()},
    # What has registers of 256 bits needs a system that saves them, and those of 512 bits likewise (xcr0).
    **{name: ((word, bit), (7, 1), (7, 2)) for name, (word, bit) in {
        "fma": (0, 12), "avx": (0, 28), "f16c": (0, 29), "avx2": (2, 5), "vaes": (3, 9), "vpclmulqdq": (3, 10), "gfni": (3, 8),
        "avxvnni": (5, 4), "avxifma": (5, 23),
    }.items()},
    **{name: ((word, bit), (7, 1), (7, 2), (7, 5), (7, 6), (7, 7)) for name, (word, bit) in {
        "avx512f": (2, 16), "avx512dq": (2, 17), "avx512ifma": (2, 21), "avx512cd": (2, 28), "avx512bw": (2, 30), "avx512vl": (2, 31),
        "avx512vbmi": (3, 1), "avx512vbmi2": (3, 6), "avx512vnni": (3, 11), "avx512bitalg": (3, 12), "avx512vpopcntdq": (3, 14),
        "avx512vp2intersect": (4, 8), "avx512fp16": (4, 23), "avx512bf16": (5, 5),
    }.items()},
}  # fmt: skip
_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
LEVELS = {"x86-64-v4": (_V4, 512, 32), "x86-64-v3": (_V3, 256, 16), "x86-64-v2": (_V2, 128, 16)}


@dataclass(frozen=True, slots=True)
class Variant:
    """A CPU that code is made for: its name, the machine as LLVM knows it, what schedules are made for, and the features it needs."""

    name: str
    machine: Machine
    target: Target
    needs: tuple[str, ...]

    @property
    def masks(self) -> tuple[int, ...]:
        """The bits that must be set in each of `WORDS`."""
        masks = [0] * len(WORDS)
        for feature in self.needs:
            for word, bit in _BITS[feature]:
                masks[word] |= 1 << bit
        return tuple(masks)


def variants_of(names: Sequence[str]) -> tuple[Variant, ...]:
    """Variants by name, "host" for this machine, in the order in which they are tried. Raises `TargetError` for unknown ones."""
    machine = host()
    if machine.architecture != "x86_64" or not machine.is_linux:
        raise TargetError(f"export: expected a Linux machine of the architecture x86-64, got {machine.triple}", location=user_location())
    found = []
    for name in dict.fromkeys(names):
        if name == "host":
            needs = tuple(f[1:] for f in machine.features.split(",") if f[0] == "+" and f[1:] in _BITS)
            found.append(Variant(f"host ({machine.cpu})", machine, host_target(), needs))
        elif name in LEVELS:
            needs, bits, registers = LEVELS[name]
            level = Machine(machine.triple, name, ",".join(f"+{f}" for f in sorted(needs)), bits)
            flags = tuple(sorted(f for f in needs if f.startswith("avx")))
            target = replace(host_target(), vector_bits=bits, registers=registers, features=flags, multiplies=Target(name).multiplies)
            found.append(Variant(name, level, target, needs))
        else:
            known = ", ".join(("host", *LEVELS))
            raise TargetError(f"export: expected CPUs among {known}, got {name!r}", location=user_location())
    return tuple(found)


def detection_text(triple: str, variants: Sequence[Variant]) -> str:
    """LLVM IR of te_bundle_variant(): the number of the first variant that this CPU can run, or -1; asked once."""
    tests = []
    for number, variant in enumerate(variants):
        lines = [f"try{number}:"]
        last = "true"
        for word, mask in enumerate(variant.masks):
            if mask:
                lines += [
                    f"  %m{number}.{word} = and i32 %w{word}, {mask - (1 << 32) if mask >= 1 << 31 else mask}",
                    f"  %e{number}.{word} = icmp eq i32 %m{number}.{word}, {mask - (1 << 32) if mask >= 1 << 31 else mask}",
                    f"  %a{number}.{word} = and i1 {last}, %e{number}.{word}",
                ]
                last = f"%a{number}.{word}"
        after = f"try{number + 1}" if number + 1 < len(variants) else "none"
        lines.append(f"  br i1 {last}, label %found{number}, label %{after}")
        lines += [f"found{number}:", "  br label %done"]
        tests.append("\n".join(lines))
    cases = ", ".join([*(f"[ {number}, %found{number} ]" for number in range(len(variants))), "[ -1, %none ]"])
    return _DETECTION.replace("TRIPLE", triple).replace("TESTS", "\n".join(tests)).replace("CASES", cases)


_ASK = """call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}\""""
_DETECTION = (
    """target triple = "TRIPLE"
@known = internal global i32 -2, align 4

define i32 @te_bundle_variant() nounwind {
entry:
  %have = load atomic i32, ptr @known monotonic, align 4
  %new = icmp eq i32 %have, -2
  br i1 %new, label %ask, label %told
told:
  ret i32 %have
ask:
  %l0 = ASK(i32 0, i32 0)
  %highest = extractvalue { i32, i32, i32, i32 } %l0, 0
  %l1 = ASK(i32 1, i32 0)
  %w0 = extractvalue { i32, i32, i32, i32 } %l1, 2
  %w1 = extractvalue { i32, i32, i32, i32 } %l1, 3
  %saves = and i32 %w0, 134217728
  %some = icmp ne i32 %saves, 0
  br i1 %some, label %state, label %more
state:
  %xcr = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)
  %xcr0 = extractvalue { i32, i32 } %xcr, 0
  br label %more
more:
  %w7 = phi i32 [ 0, %ask ], [ %xcr0, %state ]
  %seven = icmp uge i32 %highest, 7
  br i1 %seven, label %extended, label %rest
extended:
  %l7 = ASK(i32 7, i32 0)
  %e2 = extractvalue { i32, i32, i32, i32 } %l7, 1
  %e3 = extractvalue { i32, i32, i32, i32 } %l7, 2
  %e4 = extractvalue { i32, i32, i32, i32 } %l7, 3
  %l71 = ASK(i32 7, i32 1)
  %e5 = extractvalue { i32, i32, i32, i32 } %l71, 0
  br label %rest
rest:
  %w2 = phi i32 [ 0, %more ], [ %e2, %extended ]
  %w3 = phi i32 [ 0, %more ], [ %e3, %extended ]
  %w4 = phi i32 [ 0, %more ], [ %e4, %extended ]
  %w5 = phi i32 [ 0, %more ], [ %e5, %extended ]
  %l8 = ASK(i32 -2147483647, i32 0)
  %w6 = extractvalue { i32, i32, i32, i32 } %l8, 2
  br label %try0
TESTS
none:
  br label %done
done:
  %number = phi i32 CASES
  store atomic i32 %number, ptr @known monotonic, align 4
  ret i32 %number
}
"""
).replace("ASK", _ASK)
