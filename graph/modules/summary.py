"""What is in a module, as a table: a row for the module itself and for each submodule, with the variables that it holds itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from tensorexpr.graph.modules.module import Module, dotted, is_variable
from tensorexpr.graph.modules.state import by_path
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.hints import checked
from tensorexpr.markup import amount, listed, page, paragraph, table

_HEADINGS = ("path", "class", "variables", "bytes", "trainable")


class Row(NamedTuple):
    """A module: its path (empty for the whole), its class, the variables that it holds itself, their bytes and trainable elements.

    A variable that stands in a row before is written `w = encoder.w` and counts nothing.
    """

    path: str
    kind: str
    variables: tuple[str, ...]
    bytes: int
    trainable: int


@dataclass(frozen=True)
class Summary:
    """The rows of a module and, over its distinct variables, their number, elements, bytes and trainable elements; prints as a table."""

    rows: tuple[Row, ...]
    variables: int
    elements: int
    bytes: int
    trainable: int

    def __str__(self) -> str:
        lines = [_HEADINGS] + [
            (row.path or "(self)", row.kind, ", ".join(row.variables), f"{row.bytes:,}", f"{row.trainable:,}") for row in self.rows
        ]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
        texts = ["  ".join((*map(str.ljust, line[:3], widths), *map(str.rjust, line[3:], widths[3:]))).rstrip() for line in lines]
        return "\n".join([*texts, self._total])

    @property
    def _total(self) -> str:
        held = f"{amount(self.elements, 'element')} ({self.trainable:,} trainable)"
        return f"{amount(self.variables, 'variable')}, {held}, {amount(self.bytes, 'byte')}"

    def __repr__(self) -> str:
        return f"<summary of {amount(len(self.rows), 'module')}: {self._total}>"

    def _repr_html_(self) -> str:
        shown = table(_HEADINGS, self.rows, lambda row: (row.path or "(self)", row.kind, listed(row.variables), row.bytes, row.trainable))
        return page(shown, paragraph(self._total))


@checked()
def summary(module: Module) -> Summary:
    """A table of the module and its submodules: path, class, own variables with their types, bytes, trainable elements.

    >>> from tensorexpr.graph import layers
    >>> print(te.summary(layers.Linear(2, 3, np.random.default_rng(0))))
    path    class   variables                        bytes  trainable
    (self)  Linear  bias: f32[3], weight: f32[3, 2]     36          9
    2 variables, 9 elements (9 trainable), 36 bytes

    Raises `ArgumentError` for what is no module.
    """
    by_path(module)
    modules: dict[int, tuple[str, Module]] = {id(module): ("", module)}
    for path, inner in module.flatten(predicate=lambda value: isinstance(value, Module), with_path=True):
        modules.setdefault(id(inner), (dotted(path), inner))
    first: dict[int, str] = {}
    rows = tuple(_row(path, inner, first) for path, inner in modules.values())
    distinct = module.variables
    return Summary(rows, len(distinct), _elements(distinct), sum(row.bytes for row in rows), sum(row.trainable for row in rows))


def _row(path: str, module: Module, first: dict[int, str]) -> Row:
    own: list[Variable] = []
    texts = []
    for steps, variable in module.flatten(recursive=False, predicate=is_variable, with_path=True):
        name, whole = dotted(steps), dotted((path, *steps) if path else steps)
        if first.setdefault(id(variable), whole) == whole:
            own.append(variable)
            texts.append(f"{name}: {variable.dtype.short}[{', '.join(map(str, variable.shape))}]")
        else:
            texts.append(f"{name} = {first[id(variable)]}")
    trainable = _elements([variable for variable in own if variable.trainable])
    return Row(path, type(module).__name__, tuple(texts), sum(variable.value.nbytes for variable in own), trainable)


def _elements(variables: list[Variable] | tuple[Variable, ...]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
