"""Random programs as users write index notation: few definitions, deep terms in one expression each.

`writer` draws many small definitions of every construct; here reductions stand inside of products, choices and other reductions, reads go
beyond borders in every way (`outside=`), and axes are short, long and open. Rewrites meet each other in such terms.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.random_programs.sample import Sample

SHORT = (2, 3, 4, 8)
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 17, 17, 24, 31, 33, 40, 64, 65)
OPEN = (1, 2, 3, 5, 8, 9, 16, 17, 24, 33)
DEEPEST = 5
"""Loops around a term, those of its definition among them."""

Loops = tuple[tuple[str, str], ...]
"""Indices with the text of their extents."""


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[str, ...]


class _Notation:
    """A program as it is written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.sizes: dict[str, int] = {}
        self.names: list[str] = []
        self.tensors: list[_Tensor] = []
        self.reductions = 0

    def text(self) -> str:
        rng = self.rng
        is_open = rng.random() < 0.5
        for name in "nmk"[: rng.randint(1, 3)]:
            self.names.append(name)
            if is_open and rng.random() < 0.75:
                self.sizes[name] = rng.choice(OPEN)
                self.lines.append(f'{name} = te.dim("{name}")')
            else:
                self.lines.append(f"{name} = {rng.choice(LENGTHS)}")
        self._input(tuple(self.names), "float32")  # tells all open sizes
        for _ in range(rng.randint(1, 3)):
            self._input(tuple(self._extent() for _ in range(rng.randint(1, 3))), rng.choice(("float32", "float32", "float64")))
        inputs = [t.name for t in self.tensors]
        made = [self._definition(place) for place in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        outputs = [made[-1], *(name for name in made[:-1] if rng.random() < 0.3)]
        return "\n".join([*self.lines, f"inputs = [{', '.join(inputs)}]", f"outputs = [{', '.join(outputs)}]"])

    def _extent(self) -> str:
        return self.rng.choice((*self.names, str(self.rng.choice(SHORT))))

    def _input(self, shape: tuple[str, ...], dtype: str) -> None:
        name = f"X{len(self.tensors)}"
        self.lines.append(f'{name} = te.placeholder(({", ".join(shape)},), "{dtype}", name="{name}")')
        self.tensors.append(_Tensor(name, shape))

    def _definition(self, place: int) -> str:
        name, rng = f"T{place}", self.rng
        shape = tuple(self._extent() for _ in range(rng.choice((1, 1, 2, 2, 2, 2, 3, 3))))
        loops = tuple(zip("ijp", shape, strict=False))
        arguments = ", ".join(index for index, _ in loops)
        body = self._term(loops, rng.randint(1, 3))
        self.lines.append(f'{name} = te.compute(({", ".join(shape)},), lambda {arguments}: {body}, name="{name}")')
        self.tensors.append(_Tensor(name, shape))
        return name

    def _index(self, extent: str, loops: Loops) -> tuple[str, bool]:
        """An index of an axis, and whether it is one of its elements for certain."""
        rng, roll = self.rng, self.rng.random()
        same = [index for index, own in loops if own == extent]
        if same and roll < 0.75:
            return rng.choice(same), True
        if same and roll < 0.83:
            return f"({extent} - 1 - {rng.choice(same)})", True
        first = rng.choice(loops)[0]
        if roll < 0.9:
            return f"({first} + {rng.randint(-2, 2)})", False
        if roll < 0.97:
            return f"({first} {rng.choice('+-')} {rng.choice(loops)[0]})", False
        return f"({first} * {rng.choice((2, 3))} + {rng.randint(-1, 1)})", False

    def _read(self, loops: Loops) -> str:
        tensor = self.rng.choice(self.tensors[-5:])
        indices = [self._index(extent, loops) for extent in tensor.shape]
        text = ", ".join(index for index, _ in indices)
        if all(inside for _, inside in indices):
            return f"{tensor.name}[{text}]"
        beyond = self.rng.choice(("0.0", "0.0", '"clamp"', '"wrap"', '"reflect"', "1.0"))
        return f"{tensor.name}.read({text}, outside={beyond})"

    def _term(self, loops: Loops, depth: int) -> str:
        if depth <= 0:
            return self._read(loops)
        forms: tuple[tuple[float, Callable[[], str]], ...] = (
            (0.30, lambda: self._read(loops)),
            (0.20, lambda: f"{again()} * {again()}"),
            (0.12, lambda: f"({again()} {self.rng.choice('+-')} {again()})"),
            (0.12, lambda: f"te.where({self._condition(loops)}, {again()}, {self.rng.choice(('0.0', '-1.0', again()))})"),
            (0.04, lambda: f"te.tanh({again()})"),
            (0.03, lambda: f"te.maximum({again()}, {self.rng.choice(('0.0', again()))})"),
            (0.03, lambda: f"te.exp(-te.abs({again()}))"),
            (0.11, lambda: self._reduction(loops, depth - 1)),
            (0.02, lambda: f"{again()} / (1.5 + te.abs({again()}))"),
            (0.03, lambda: f"{again()} * {self.rng.choice(('0.25', '2.0', '-1.0'))}"),
        )

        def again() -> str:
            return self._term(loops, depth - 1)

        (form,) = self.rng.choices([form for _, form in forms], [weight for weight, _ in forms])
        return form()

    def _reduction(self, loops: Loops, depth: int) -> str:
        if len(loops) >= DEEPEST:
            return self._read(loops)
        kind = self.rng.choice(("sum", "sum", "sum", "sum", "sum", "sum", "max", "min"))
        more = "" if kind == "sum" else " + 1"  # of no element there is no maximum
        own = []
        for _ in range(self.rng.randint(1, 2)):
            self.reductions += 1
            own.append((f"r{self.reductions}", self._extent() + more))
        body = self._term((*loops, *own), depth)
        return f"te.{kind}(lambda {', '.join(i for i, _ in own)}: {body}, ({', '.join(e for _, e in own)},))"

    def _condition(self, loops: Loops) -> str:
        rng, roll = self.rng, self.rng.random()
        one, other = rng.choice(loops)[0], rng.choice(loops)[0]
        if one != other and roll < 0.35:
            return f"{one} {rng.choice(('<=', '<', '>=', '==', '!='))} {other}"
        if one != other and roll < 0.45:
            return f"te.abs({one} - {other}) <= {rng.randint(0, 3)}"
        if roll < 0.6:
            return f"{one} {rng.choice(('<', '>=', '=='))} {rng.randint(0, 4)}"
        if roll < 0.7:
            return f"{one} % {rng.choice((2, 3))} == {rng.randint(0, 1)}"
        if roll < 0.8:
            return f"{one} < {rng.choice(self.names)} - 1"
        return f"{self._read(loops)} > 0.0"


def notation_sample(seed: int) -> Sample:
    """A random program in index notation; the same for the same seed."""
    made = _Notation(random.Random(f"notation {seed}"))
    text = made.text()
    return Sample(text, made.sizes, frozenset(("notation", *(("open",) if made.sizes else ()))), seed)
