"""Operations: what `@te.op` makes of a function on tensors, and the transforms of it.

`operation` is the class; the other modules are its parts: what the signature says (`signatures`), what it is traced for (`specs`,
`arguments`, `conventions`), how arguments nest (`trees`), what is compiled for many lengths (`lengths`), names and rules of its own;
`transforms` derives ops from ops, `check` compares derivatives with finite differences, `hosts` says who computes an op on arrays of
another library."""

from tensorexpr.op.operation import Op, op

__all__ = ["Op", "op"]
