"""What `show` calls an operation on: shapes and dtypes from the command line, from annotations, or found by trying.

A spec is written `f32[8, 3, 3]`; an extent that is a name (`f32[n, 3]`) is a `te.dim` that stays open. A parameter
annotated with such a string needs no spec on the command line. Where nothing is said, ranks are tried in order of
their sum with every extent `DEFAULT_EXTENT`, until one traces.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import Any

from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, DefinitionError, TensorExprError
from tensorexpr.language import Tensor, dim, placeholder
from tensorexpr.op import Op

DEFAULT_EXTENT = 8
_MOST_TRIES = 3000
_GREATEST_RANK = 5
_SPEC = re.compile(r"^\s*(?P<dtype>\w+)\s*\[(?P<shape>[^\]]*)\]\s*$")


def parse_spec(text: str, name: str) -> Tensor:
    """The placeholder that a spec like `f32[n, 3]` describes. Raises `DefinitionError` for any other text."""
    match = _SPEC.match(text)
    if match is None:
        raise DefinitionError(
            f"{name}: expected a spec like f32[8, 3], got {text!r}",
            hint="a dtype, then extents in brackets, numbers or names for open ones: f32[n, 3], f32[] for a scalar",
        )
    extents: list[Any] = []
    for part in filter(None, (p.strip() for p in match["shape"].split(","))):
        if part.isdigit():
            extents.append(int(part))
        elif part.isidentifier():
            extents.append(dim(part))
        else:
            hint = "a name makes the extent open: f32[n, 3]"
            raise DefinitionError(f"{name}: expected an extent that is a number or a name, got {part!r}", term=text, hint=hint)
    return placeholder(tuple(extents), dtype(match["dtype"]).name, name=name)


def parse_static(text: str) -> tuple[str, Any]:
    """`name=value` with a Python literal as value (anything else is taken as a string)."""
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise DefinitionError(f"expected a static argument like stride=2, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def parse_size(text: str) -> tuple[str, int]:
    """`name=number`, a number for an open extent."""
    name, separator, number = text.partition("=")
    if not separator or not name.isidentifier() or not (number.isascii() and number.isdecimal()):
        raise DefinitionError(
            f"expected a size like n=1000, got {text!r}", hint="a number for an extent that a spec names: f32[n, 3] --size n=1000"
        )
    return name, int(number)


def specs_for(op: Op, texts: list[str], static: dict[str, Any]) -> tuple[list[Tensor], bool]:
    """The placeholders to trace `op` with, and whether they were found by trying.

    Raises `DefinitionError` where the number of specs is wrong or no shapes that were tried trace.
    """
    parameters = op.parameters
    if texts:
        if len(texts) != len(parameters):
            wanted = ", ".join(parameters)
            raise DefinitionError(f"expected {len(parameters)} specs ({wanted}), got {len(texts)}", hint="one per argument: f32[8, 3]")
        return [parse_spec(text, name) for text, name in zip(texts, parameters, strict=True)], False
    annotations = getattr(op.function, "__annotations__", {})
    annotated = [str(annotations.get(name, "")).strip("'\"") for name in parameters]
    if parameters and all(_SPEC.match(text) for text in annotated):
        return [parse_spec(text, name) for text, name in zip(annotated, parameters, strict=True)], False
    for shapes, kinds in itertools.islice(_guesses(len(parameters)), _MOST_TRIES):
        specs = [placeholder((DEFAULT_EXTENT,) * rank, kind, name=name) for rank, kind, name in zip(shapes, kinds, parameters, strict=True)]
        try:
            op.trace(*specs, **static)
        except ArgumentError:  # of the static arguments: no shape helps
            raise
        except (TensorExprError, ValueError, IndexError, TypeError):
            continue
        return specs, True
    wanted = ", ".join(parameters)
    raise DefinitionError(f"no shapes that were tried fit {op.name}", hint=f"give one spec like f32[8, 3] for each of {wanted}")


def _guesses(count: int) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Ranks in order of their sum, all float32 first, then with the last or any one argument as int64 (labels, ids)."""
    ranks = sorted(itertools.product(range(_GREATEST_RANK + 1), repeat=count), key=lambda r: (sum(r), r))
    for shape in ranks:
        yield shape, ("float32",) * count
    for position in reversed(range(count)):
        kinds = tuple("int64" if p == position else "float32" for p in range(count))
        for shape in ranks:
            yield shape, kinds
