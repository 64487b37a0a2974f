"""The machine that code is made for: target triple, CPU, features, and the few facts that the emitter asks for.

The emitter itself never loads LLVM; `host()` does (and `load.py`), so that text can be made and tested for any machine.
"""

from __future__ import annotations

from functools import cache

from tensorexpr.dtypes import DType
from tensorexpr.records import record


@record
class Machine:
    """A CPU: LLVM's `triple`, `cpu` name and `features` ("+avx2,-avx512f,..."), and the width of its vectors in bits."""

    triple: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def architecture(self) -> str:
        """The first part of the triple: "x86_64", "aarch64", ..."""
        return self.triple.split("-", 1)[0]

    @property
    def is_linux(self) -> bool:
        return "linux" in self.triple

    @property
    def scales(self) -> bool:
        """Whether it has AVX-512's scalef for vectors of every width."""
        return self.vector_bits == 512 and {"+avx512f", "+avx512vl"} <= set(self.features.split(","))

    @property
    def fuses(self) -> bool:
        """Whether x * y + z, rounded once, is an instruction: without one it is a call of a library for each number."""
        return not self.architecture.startswith(("x86", "i386", "i686")) or ",+fma," in f",{self.features},"

    @property
    def spread(self) -> int:
        """Bytes up to which the neighbours of a vector may lie apart to be loaded as whole vectors and sorted by shuffles: a vector of
        every ninth float takes nine loads and eight shuffles, which others of the same rows share. Zen 4 needs as long for a gather of
        16 floats as for 18 loads (Fog's instruction tables); elsewhere it is about half of that."""
        return (36 if self.cpu.startswith("znver") else 16) if self.vector_bits >= 256 else 0

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector register."""
        return max(1, self.vector_bits // (8 * dtype.itemsize))


@cache
def host() -> Machine:
    """The machine of this process, with all features that its CPU has."""
    from llvmlite import binding  # noqa: PLC0415

    features = binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl") and features.get("avx512bw"):
        bits = 512
    elif features.get("avx2"):
        bits = 256
    else:
        bits = 128
    # Sorted, since the order of the map is LLVM's own affair and the text must not depend on it.
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    return Machine(binding.get_process_triple(), binding.get_host_cpu_name(), text, bits)
