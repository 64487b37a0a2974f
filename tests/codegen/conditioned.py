"""Random programs about conditions: what may fault (an access, an index from data) stands under guards that are placed anywhere around it.

Extents are open, and below zero at some sizes; sums stand in sums, with bounds and conditions of their own; accesses leave their tensors
wherever the conditions do not hold that the writer puts around them, at the access, at a sum around it or at the root. A few have none:
those programs must fail as the interpreter does. Values are small integers in float64, so that any order of a sum gives the same bits.
"""

from __future__ import annotations

import random

from tensorexpr.interpret import extent_value
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program

TENSORS = {"A": ("m", "n"), "X": ("n",), "W": ("3", "4"), "V": ("20",)}
SIZES = (0, 1, 2, 3, 4, 5)
"""Open sizes: below, at and above every constant of an extent and every block of a schedule."""


def conditioned_program(seed: int) -> Program:
    """The program of a seed; `K` and `L` are integers from -3 to 3, the sizes are `m` and `n`."""
    rng = random.Random(seed)
    writer = _Writer(rng)
    lines = [f"{name}: f64[{', '.join(shape)}] = input()" for name, shape in TENSORS.items()]
    lines += ["K: i64[n] = input()", "L: i64[4] = input()"]
    names: list[str] = []
    rank = rng.choice((1, 1, 2))
    extents = [writer.extent() for _ in range(rank)]
    for number in range(rng.choice((1, 1, 2, 3))):
        name = "TUZ"[number]
        if rng.random() < 0.4:
            rank = rng.choice((1, 1, 2))
            extents = [writer.extent() for _ in range(rank)]
        axes = ["i", "j"][:rank]
        value = writer.root(dict(zip(axes, extents, strict=True)))
        lines.append(f"{name}[{', '.join(axes)}]: f64[{', '.join(extents)}] = {value}")
        writer.tensors[name] = tuple(extents)
        names.append(name)
    outputs = [n for n in names if rng.random() < 0.5 or not any(f"{n}[" in line for line in lines if not line.startswith(f"{n}["))]
    return parse_program("\n".join(["sizes(m, n)", *lines, f"return {', '.join(outputs)}"]) + "\n")


def conditioned_sizes(program: Program, seed: int) -> dict[str, int]:
    """Values of the sizes at which no result has an extent below zero."""
    rng = random.Random(seed)
    while True:
        sizes = {"m": rng.choice(SIZES), "n": rng.choice(SIZES)}
        if all(extent_value(e, sizes) >= 0 for name in program.outputs for e in program.types[name].shape):
            return sizes


class _Writer:
    """Writes values; `needs` are conditions that must hold around what was written, with the indices in them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tensors = dict(TENSORS)
        self.sums = 0

    def extent(self) -> str:
        return self.rng.choice(("m", "n", "n", "n - 1", "n - 2", "m - n", "minimum(m, n) - 2", "n + 1", "6", "5", "2", "17"))

    def root(self, axes: dict[str, str]) -> str:
        value, needs = self.value(axes, 3)
        return self.guarded(value, needs if self.rng.random() > 0.1 else [])

    def guarded(self, value: str, needs: list[str]) -> str:
        """The value under conditions; one on data stands inside of those on indices, which it needs itself."""
        for read in (True, False):
            mine = [c for c in dict.fromkeys(needs) if ("[" in c) is read]
            if mine:
                value = f"where({' and '.join(mine)}, {value}, {self.rng.choice(('0.0', '1.0', 'V[2]'))})"
        return value

    def value(self, axes: dict[str, str], depth: int) -> tuple[str, list[str]]:
        """A value, and the conditions that it still needs."""
        rng = self.rng
        kind = rng.choice(("access", "access", "sum", "sum", "sum", "both", "where")) if depth else "access"
        if kind == "sum" and self.sums < 4:
            return self.reduced(axes, depth)
        if kind == "both":
            (a, first), (b, second) = (self.value(axes, depth - 1) for _ in range(2))
            return f"({a} {rng.choice('+*-+')} {b})", first + second
        if kind == "where":
            a, needs = self.value(axes, depth - 1)
            condition, asked = self.condition(axes)
            if rng.random() < 0.5:
                chosen = f"where({condition}, {self.guarded(a, needs)}, {rng.choice(('0.0', '2.0'))})"
                return self.guarded(chosen, asked), []
            return f"where({condition}, {a}, {rng.choice(('0.0', '2.0'))})", asked + needs
        text, needs = self.access(axes)
        return (text, needs) if rng.random() < 0.6 else (self.guarded(text, needs), [])

    def reduced(self, axes: dict[str, str], depth: int) -> tuple[str, list[str]]:
        rng = self.rng
        self.sums += 1
        name = "kqrstu"[self.sums - 1]
        needs: list[str] = []
        start, stop = "0", self.extent()
        choice = rng.random()
        if axes and choice < 0.25:
            stop = f"{rng.choice(list(axes))} + {rng.randint(-1, 2)}"
        elif axes and choice < 0.35:
            start, stop = rng.choice(list(axes)), rng.choice(("4", "n", "6"))
        elif axes and choice < 0.45:
            stop, needs = self.index(axes, "4")
            stop = f"L[{stop}]"
        value, inner = self.value({**axes, name: stop}, depth - 1)
        mine = [c for c in inner if f"{name} " in c or f"{name})" in c or f"{name}]" in c]
        outer = [c for c in inner if c not in mine]
        if rng.random() < 0.2:
            condition, asked = self.condition({**axes, name: stop})
            if asked:
                value = self.guarded(f"where({condition}, {value}, 0.0)", asked)
            else:
                mine.append(condition)
        if outer and rng.random() < 0.2:
            mine, outer = outer + mine, []
        if rng.random() < 0.5 or any("[" in c for c in mine):
            value, mine = self.guarded(value, mine), []
        where = f" if {' and '.join(dict.fromkeys(mine))}" if mine else ""
        over = f"range({stop})" if start == "0" else f"range({start}, {stop})"
        combine = rng.choice(("sum", "sum", "sum", "max", "prod"))
        text = f"{combine}({value} for {name} in {over}{where})"
        if combine != "sum":
            text = f"maximum(minimum({text}, 9.0), -9.0)"
        needs += outer
        return (text, needs) if rng.random() < 0.6 else (self.guarded(text, needs), [])

    def access(self, axes: dict[str, str]) -> tuple[str, list[str]]:
        tensor = self.rng.choice([*self.tensors, *[t for t in self.tensors if t not in TENSORS] * 2])
        needs: list[str] = []
        indices: list[str] = []
        for length in self.tensors[tensor]:
            index, asked = self.index(axes, length)
            indices.append(index)
            needs += asked
        return f"{tensor}[{', '.join(indices)}]", needs

    def index(self, axes: dict[str, str], length: str) -> tuple[str, list[str]]:
        """An index, and what it needs to be one of the tensor."""
        rng = self.rng
        names = list(axes)
        kind = rng.choice(("own", "own", "own", "moved", "constant", "data", "mirrored", "half")) if names else "constant"
        name = rng.choice(names) if names else ""
        needs: list[str] = []
        if kind == "data":
            table, entries = rng.choice((("K", "n"), ("L", "4")))
            index = f"{table}[{name}]"
            needs += [f"{name} >= 0", f"{name} < {entries}"]
        else:
            index = {
                "own": name,
                "moved": f"{name} + {rng.choice((-2, -1, 1, 2))}",
                "constant": rng.choice(("0", "1", "2")),
                "mirrored": f"{length} - 1 - {name}",
                "half": f"{name} // 2",
            }[kind].replace("+ -", "- ")
        return index, [*needs, f"{index} >= 0", f"{index} < {length}"]

    def condition(self, axes: dict[str, str]) -> tuple[str, list[str]]:
        """A condition, and what it needs to be evaluated."""
        rng = self.rng
        if rng.random() < 0.35:
            text, needs = self.access(axes)
            return f"{text} > {rng.choice(('0.0', '1.0', '-1.0'))}", needs
        left = rng.choice([*axes, "n", "m"])
        right = rng.choice([*axes, "n", "2", "3", "n - 1", "5"])
        return f"{left} {rng.choice(('<', '<=', '>', '>='))} {right}", []
