"""Writes a random program as the text that a user would write, statement by statement, each tried as it is written.

The text is plain Python on `te`: extents first (`a, b = 64, te.dim("b")`), then placeholders and definitions, so that it can be pasted
into a test, and made smaller by changing its syntax tree. What the language refuses (an access that it cannot prove, a maximum over
nothing) is drawn again. `Writer` knows names, extents and how many points the program may still have; `values` and `patterns`
write the bodies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tensorexpr as te
from tests.random_programs.sample import Sample

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
_LETTERS = "ijklpqrsuvwxyz"
_SMALL = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 12)
_MEDIUM = (4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97)
_LARGE = (
    3,
    8,
    16,
    17,
    64,
    100,
    127,
    128,
    129,
    191,
    255,
    256,
    257,
    383,
    512,
    1000,
    1021,
    1024,
    1025,
    2049,
    4096,
    10007,
    65537,
    250_007,
    1_000_000,
)


class Refused(Exception):
    """What was drawn does not fit: no tensor of that kind, too many points, or the language says no."""


class Tensor(NamedTuple):
    """A tensor of the program: its name, the texts of its extents, its dtype; `below` is the extent that indices in it stay below."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    below: str | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


class Loop(NamedTuple):
    """An index in scope, with the text of what it runs to (None: that depends on others) and how many points it may have."""

    name: str
    stop: str | None
    most: int


class Options(NamedTuple):
    """What a program may have. `points` bounds what its definitions visit; `without` leaves out features by name."""

    points: int = 2_000
    floats: bool = False
    """Floats alone as values (there are index arrays all the same)."""
    dtypes: tuple[str, ...] = ()
    """The dtypes that values are drawn from, else any mix."""
    open_sizes: float = 0.25
    without: frozenset[str] = frozenset()
    most: int = 4
    """Patterns in a row."""
    tag: str = ""
    """What the names of index arrays end with."""


class Writer:
    """The program so far: statements, tensors, extents."""

    def __init__(self, rng: random.Random, options: Options) -> None:
        self.rng, self.options = rng, options
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"te": te, "np": np}
        self.tensors: list[Tensor] = []
        self.inputs: list[str] = []
        self.below: dict[str, str] = {}
        self.defined: list[str] = []
        self.extents: dict[str, int] = {}
        self.open: set[str] = set()
        self.features: set[str] = set()
        self.room = options.points
        self.serial = 0
        self.refused = 0
        self.dtypes = self.drawn_dtypes()
        self.draw_extents()

    # ------------------------------------------------------------------------------------------------- what is drawn

    def chance(self, feature: str, probability: float) -> bool:
        """Whether a feature is drawn, unless it is left out."""
        return feature not in self.options.without and self.rng.random() < probability

    def note(self, *features: str) -> None:
        self.features.update(features)

    def need(self, feature: str) -> None:
        """Notes a feature without which what is being written makes no sense. Raises `Refused` where it is left out."""
        if feature in self.options.without:
            raise Refused(feature)
        self.features.add(feature)

    def drawn_dtypes(self) -> tuple[str, ...]:
        """Few dtypes in one program, so that its tensors read each other; the first is the main one."""
        rng = self.rng
        if self.options.dtypes:
            return self.options.dtypes
        main = rng.choice(
            ("float32",) * 9
            + ("float64",) * 4
            + ("float16", "bfloat16")
            + (() if self.options.floats else ("int64", "int32", rng.choice(INTEGERS), "bool"))
        )
        others = FLOATS if self.options.floats else (*FLOATS, *INTEGERS, "bool")
        return (main, main, main, rng.choice(others)) if rng.random() < 0.3 and "casts" not in self.options.without else (main,)

    def dtype(self) -> str:
        return self.rng.choice(self.dtypes)

    def draw_extents(self) -> None:
        """Extents by name, such that any three of them are within the budget."""
        rng, points = self.rng, self.options.points
        pool = _SMALL if points <= 5_000 else _MEDIUM if points <= 100_000 else _LARGE
        for name in "abcd"[: rng.choice((1, 2, 2, 3, 3, 4))]:
            value = 0 if self.chance("zero", 0.02) else rng.choice(pool)
            while value > 1 and math.prod(sorted([value, *self.extents.values()])[-3:]) > points:
                value = rng.choice(_SMALL) if value in pool and pool is not _SMALL else value // 2
            if rng.random() < 0.15 and value > 2:
                value += rng.choice((-1, 1))
            self.extents[name] = value
        for name in self.extents:
            if self.chance("open", self.options.open_sizes):
                self.open.add(name)
        for name, value in self.extents.items():
            self.statement(f'{name} = te.dim("{name}")' if name in self.open else f"{name} = {value}")
        if self.open:
            self.note("open")
        if 0 in self.extents.values():
            self.note("zero")

    # --------------------------------------------------------------------------------------------------- statements

    def statement(self, text: str) -> None:
        """Runs a statement and keeps it. Raises `Refused` where the language refuses it."""
        try:
            exec(text, self.names)
        except ZeroDivisionError:  # Python's own, of two numbers
            raise Refused("a remainder by nothing") from None
        except te.TensorExprError as error:
            if isinstance(error, te.InternalError):
                raise
            self.refused += 1
            raise Refused(error.message) from None
        self.lines.append(text)

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def size(self, extent: str) -> int:
        """The number that an extent is, at the drawn sizes."""
        return int(eval(extent, {}, dict(self.extents)))

    def points(self, *extents: str) -> int:
        return math.prod(max(1, self.size(e)) for e in extents)

    def spend(self, points: int) -> None:
        if points > self.room:
            raise Refused("too many points")
        self.room -= points

    def extent(self) -> str:
        """An extent by name, or something made of one."""
        rng = self.rng
        name = rng.choice(list(self.extents))
        kind = rng.random()
        if kind < 0.8:
            return name
        text = rng.choice(
            (f"{name} + 1", f"2 * {name}", f"({name} + 1) // 2", f"{name} + 2", "3", "2", "1", "4", f"{name} - 1", f"2 * {name} + 1")
        )
        return text if self.size(text) >= 0 else name

    def shape(self, rank: int | None = None) -> tuple[str, ...]:
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3)) if rank is None else rank
        shape = tuple(self.extent() for _ in range(rank))
        if self.points(*shape) > max(self.options.points, 1):
            raise Refused("too many points")
        return shape

    def placeholder(self, shape: tuple[str, ...], dtype: str | None = None, below: str | None = None) -> Tensor:
        """A new input; `below` makes it one of indices."""
        if dtype is None:
            dtype = self.rng.choice(("int32", "int64", "int64", "uint8", "int16")) if below else self.dtype()
        if below is not None and (dtype == "uint8" or dtype == "int16") and self.size(below) > 255:
            dtype = "int32"
        name = self.fresh("K") + self.options.tag if below else self.fresh("X")
        self.spend(min(self.room, self.points(*shape) // 8))
        self.statement(f'{name} = te.placeholder({tuple_text(shape)}, "{dtype}", name="{name}")')
        self.inputs.append(name)
        if below is not None:
            self.below[name] = below
        tensor = Tensor(name, shape, dtype, below)
        self.tensors.append(tensor)
        return tensor

    def constant(self, dtype: str) -> Tensor:
        """A small tensor that has its data."""
        self.need("constant")
        rng = self.rng
        shape = rng.choice(((3,), (2, 3), (4, 4), (1,), (5, 2)))
        low, high = (0, 1) if dtype == "bool" else (0 if dtype.startswith("u") else -3, 3)
        rows = [rng.randint(low, high) for _ in range(math.prod(shape))]
        name = self.fresh("W")
        self.statement(f"{name} = te.constant(np.array({rows}).reshape({shape}).astype(te.dtype({dtype!r}).numpy), name={name!r})")
        tensor = Tensor(name, tuple(map(str, shape)), dtype)
        self.tensors.append(tensor)
        return tensor

    def define(self, shape: tuple[str, ...], body: str, names: str, dtype: str, points: int | None = None) -> Tensor:
        """A definition by `te.compute`; `names` are the parameters of its body."""
        self.spend(self.points(*shape) if points is None else points)
        name = self.fresh("T")
        self.statement(f'{name} = te.compute({tuple_text(shape)}, lambda {names}: {body}, name="{name}")'.replace("lambda :", "lambda:"))
        return self.made(name, shape, dtype)

    def made(self, name: str, shape: tuple[str, ...], dtype: str | None = None) -> Tensor:
        """A tensor that a statement has defined."""
        tensor = Tensor(name, shape, self.names[name].dtype.name)
        self.tensors.append(tensor)
        self.defined.append(name)
        return tensor

    # ------------------------------------------------------------------------------------------------------ tensors

    def tensor(self, rank: int, dtype: str | None = None, new: float = 0.4) -> Tensor:
        """A tensor of this rank, of those that are there (the latest first more often than not) or a new input."""
        found = [
            t for t in self.tensors if t.rank == rank and t.below is None and (dtype is None or t.dtype == dtype) and t.dtype != "bool"
        ]
        if found and self.rng.random() >= new:
            return found[-1] if self.rng.random() < 0.6 else self.rng.choice(found)
        return self.placeholder(self.shape(rank), dtype or self.number())

    def number(self) -> str:
        """A dtype that is not bool."""
        return next((d for d in (self.dtype(), *self.dtypes) if d != "bool"), "float32")

    def floating(self) -> str:
        return next((d for d in (self.dtype(), *self.dtypes) if d in FLOATS), "float32")

    def picks(self, shape: tuple[str, ...], below: str) -> Tensor:
        """An array of indices below an extent."""
        self.need("data")
        found = [t for t in self.tensors if t.below == below and t.shape == shape]
        return self.rng.choice(found) if found and self.rng.random() < 0.7 else self.placeholder(shape, None, below)

    def letters(self, count: int, scope: tuple[Loop, ...] = ()) -> list[str]:
        taken = {loop.name for loop in scope} | set(self.extents)
        return [letter for letter in _LETTERS if letter not in taken][:count]

    def loops(self, shape: tuple[str, ...], scope: tuple[Loop, ...] = ()) -> tuple[Loop, ...]:
        names = self.letters(len(shape), scope)
        return tuple(Loop(n, e, max(1, self.size(e))) for n, e in zip(names, shape, strict=True))

    # -------------------------------------------------------------------------------------------------------- whole

    def tries(self, makers: list[Callable[[], None]], weights: list[int], count: int) -> int:
        """Runs makers drawn by weight until `count` of them went well; gives how many did."""
        done = 0
        for _ in range(4 * count + 4):
            if done == count:
                break
            (maker,) = self.rng.choices(makers, weights)
            kept = (len(self.lines), len(self.tensors), len(self.inputs), len(self.defined), set(self.features), self.room)
            try:
                maker()
                done += 1
            except Refused:
                lines, tensors, inputs, defined, features, _ = kept
                if len(self.defined) == defined:  # nothing was made of the inputs of this attempt
                    del self.lines[lines:], self.tensors[tensors:], self.inputs[inputs:]
                    self.below = {k: v for k, v in self.below.items() if k in self.inputs}
                    self.features, self.room = features, kept[5]
        return done

    def sample(self, seed: int) -> Sample:
        """The program, its last definition and perhaps others as outputs."""
        rng = self.rng
        if not self.defined:
            raise Refused("no definition")
        told = {extent for tensor in self.tensors if tensor.name in self.inputs for extent in tensor.shape}
        for name in sorted(self.open - told):  # what no input tells, the program cannot be run with
            self.placeholder((name,), "int8")
        outputs = [n for n in self.defined[:-1] if rng.random() < 0.3] + self.defined[-1:]
        if len(outputs) > 1:
            self.note("several outputs")
        lines = [
            *self.lines,
            f"inputs = [{', '.join(self.inputs)}]",
            f"outputs = [{', '.join(outputs)}]",
        ]
        if self.below:
            lines.append(f"below = {{{', '.join(f'{n!r}: {e}' for n, e in self.below.items())}}}")
        for tensor in self.tensors:
            self.note(tensor.dtype)
        return Sample("\n".join(lines), {name: self.extents[name] for name in sorted(self.open)}, frozenset(self.features), seed)


def tuple_text(items: tuple[str, ...]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
