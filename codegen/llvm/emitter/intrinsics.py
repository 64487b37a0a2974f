"""Instructions that stand for loops of a nest: functions of pointers, copied into the code around their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorexpr.codegen.llvm.text.builder import INTRINSIC
from tensorexpr.codegen.nest import Call
from tensorexpr.ir import Access

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.statements import Statements


def call(emitter: Statements, s: Call) -> None:
    """The call of an instruction, with pointers to the first elements of its operands."""
    module, b = emitter.b.module, emitter.b
    name = f"{INTRINSIC}{s.name}"

    def text() -> str:
        for function, signature in s.declarations:
            result, arguments = signature.split(" (", 1)  # a vector type has blanks in it
            module.declarations[function] = f"declare {result} @{function}({arguments}"
        parameters = ", ".join(f"ptr %{n}" for n in s.names)
        return f"define internal void @{name}({parameters}) alwaysinline {{\n{s.body}\n  ret void\n}}"

    module.helper(name, text)
    pointers = ", ".join(f"ptr {_pointer(emitter, operand)}" for operand in s.operands)
    b.line(f"call void @{name}({pointers})")


def _pointer(emitter: Statements, operand: Access) -> str:
    binding = emitter.buffers[operand.tensor]
    offset = emitter.offset(binding, operand.indices)
    if offset.const == 0:
        return binding.pointer
    return emitter.b.emit(f"getelementptr inbounds {binding.element}, ptr {binding.pointer}, i64 {offset.text}", "ptr").text
