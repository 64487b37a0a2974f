"""Versions of a function of open sizes: beside the code for all sizes, code for the sizes of a call, taken by calls of these sizes.

Code for all sizes tests what code for fixed ones knows: where blocks end, whether rows follow each other, what a remainder by an extent
is. So a call is also looked at as one of fixed sizes, and the program with numbers for them is built as any other, kept on disk
as any other, and run by all calls whose sizes are these. The fact that is checked at the call is the look-up of its sizes.
What a search found for some sizes others like them (`NEAR`) take, too, where it is as good there (`auto.search.earlier`): a search takes
up to some seconds.

Which sizes: the first ones with enough data or statements to be worth a build (`WORTH`), decided when they are first met, so that equal
calls give equal bits. So many of them that what is built in addition is bounded: a few of a kernel, one of a network (`MOST`,
`DEFINITIONS`). All others run the code for all sizes: a function that meets new sizes with each call is built no more often than that.
There are no versions of functions whose schedule was tuned for open sizes, nor of those that a user scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from tensorexpr.building.environment import number_of
from tensorexpr.building.fallback import strict
from tensorexpr.codegen.auto.search.earlier import Earlier
from tensorexpr.codegen.compiled.arguments import Layout, Signature, address
from tensorexpr.codegen.llvm.process.call import empty
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import record_for
from tensorexpr.constants.freezing import with_sizes
from tensorexpr.errors import TensorExprError
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Program

WORTH = 1 << 18
"""Bytes of arguments and results from which on sizes may have a version: less takes some ten microseconds however it is computed."""
STATEMENTS = 4
"""Statements that count as much as a byte: 16 lanes of them take less than a nanosecond."""
MOST = 4
"""Versions of a function, where `TENSOREXPR_VERSIONS` does not say how many: the lengths that batches are padded to, a last batch."""
DEFINITIONS = 64
"""Definitions of all versions together, so that a network has one: each takes as long to build as the code for all sizes."""
NEAR = 4
"""How many times larger or smaller each size may be where what a search found is taken again: tiles for a batch of 64 do for one of 17, and
not for one row."""
_VARIABLE = "TENSOREXPR_VERSIONS"
_KEPT = 1024
_BYTES = np.dtype(np.uint8)


class Entry(Protocol):
    """Runs on the addresses of the inputs in calling order, of the results and of a workspace."""

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int = 0) -> None: ...


class Fixed(Protocol):
    """What a version is to a function of open sizes: a function without."""

    def layout(self, shapes: tuple[tuple[int, ...], ...]) -> Layout: ...

    def entry(self, layout: Layout) -> Entry: ...


class Version(NamedTuple):
    """A function for one choice of sizes, and how it is entered; none where these have no version."""

    function: Fixed | None = None
    entry: Entry | None = None
    workspace: int = 0

    def enter(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int, held: int) -> None:
        """Runs it in a workspace of `held` bytes, or in one of its own where it needs more."""
        assert self.entry is not None
        block = empty((self.workspace + ALIGNMENT,), _BYTES) if self.workspace > held else None
        self.entry(inputs, outputs, workspace if block is None else address(block))

    def within(self, held: int) -> Entry:
        """`enter` with a workspace of `held` bytes."""

        def enter(inputs: Sequence[int], outputs: Sequence[int], workspace: int = 0) -> None:
            self.enter(inputs, outputs, workspace, held)

        return enter if self.entry is None or self.workspace > held else self.entry


class Versions:
    """The versions of a function: `program` gives what it was built of, `build` a function of a program, `statements` about how many a call
    of some sizes runs, where that is known."""

    def __init__(
        self,
        signature: Signature,
        program: Callable[[], Program],
        build: Callable[[Program], Fixed],
        statements: Callable[[tuple[int, ...]], int | None],
    ) -> None:
        self.signature, self._program, self._build, self._statements = signature, program, build, statements
        self._known: Memo[Version] = Memo(_KEPT)
        self._begun, self._made = 0, dict[tuple[int, ...], Version]()
        self._earlier = dict[tuple[int, ...], Earlier]()

    def at(self, layout: Layout) -> Version:
        """The version for the sizes of a layout, which is made where they are worth it; an empty one where there is none."""
        made = self._made.get(layout.sizes)  # not among those that many other sizes drive out: equal calls give equal bits
        return made or self._known.find(layout.sizes) or self._known.get(layout.sizes, lambda: self._decided(layout))

    def find(self, sizes: tuple[int, ...]) -> Fixed | None:
        """The function for these sizes, where calls had it made."""
        found = self._made.get(sizes)
        return None if found is None else found.function

    def _decided(self, layout: Layout) -> Version:
        sizes = dict(zip(self.signature.sizes, layout.sizes, strict=True))
        shapes = tuple(tuple(extent_value(e, sizes) for e in p.shape) for p in self.signature.inputs)
        given = sum(prod(shape) * p.dtype.itemsize for shape, p in zip(shapes, self.signature.inputs, strict=True))
        moved = given + sum(prod(shape) * type_.itemsize for shape, type_ in layout.outputs)
        if max(moved, (self._statements(layout.sizes) or 0) // STATEMENTS) < WORTH:
            return Version()
        program = self._program()
        most = _most()
        if (
            self._begun >= min(most, max(1, DEFINITIONS // max(1, len(program.definitions))))
            or record_for(program, host_target()) is not None
        ):
            return Version()
        self._begun += 1
        found = self._made[layout.sizes] = self._version(program, sizes, shapes)
        return found

    def _version(self, program: Program, sizes: Mapping[str, int], shapes: tuple[tuple[int, ...], ...]) -> Version:
        try:
            with self._found_near(tuple(sizes.values())).taken():
                function = self._build(with_sizes(program, sizes))
        except TensorExprError:  # the code for all sizes does as well
            if strict():
                raise
            return Version()
        layout = function.layout(shapes)
        return Version(function, function.entry(layout), layout.workspace)

    def _found_near(self, sizes: tuple[int, ...]) -> Earlier:
        """What searches found for the first sizes that are like these."""
        for first, found in self._earlier.items():
            if all(a <= NEAR * b and b <= NEAR * a for a, b in zip(first, sizes, strict=True)):
                found.where = f"as at {first}"
                return found
        return self._earlier.setdefault(sizes, Earlier())


def _most() -> int:
    """How many versions a function may have."""
    said = number_of(_VARIABLE, "a number of versions", hint=f"{_VARIABLE}=0 has functions of open sizes built once, for all sizes")
    return MOST if said is None else said
