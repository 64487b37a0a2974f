"""Programs that nest deeper than can be read are refused, as text and as a value."""

from __future__ import annotations

import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.ir import Access, Axis, Define, Index, Input, Program, TensorType, apply, const
from tensorexpr.parse import parse_program

DEPTH = 50_000


def test_a_text() -> None:
    text = f"x: f32[3] = input()\ny[i]: f32[3] = {'-' * DEPTH}x[i]\nreturn y\n"
    with pytest.raises(te.DefinitionError, match="expected the text of a program, got one that nests deeper than can be read"):
        parse_program(text)


def test_a_value() -> None:
    value = Access("x", (Index("i"),), dtypes.float32)
    for _ in range(DEPTH):
        value = apply("neg", value)
    shape = TensorType((const(3),), dtypes.float32)
    program = Program((Input("x", shape),), (), (Define("y", (Axis("i", const(0), const(3)),), value),), ("y",), ())
    with pytest.raises(te.DefinitionError, match=r"te\.compile: expected a program, got one that nests deeper than can be read"):
        te.compile(program)
