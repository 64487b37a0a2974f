"""Costly terms in the steps of a scan that depend on no state, and on fewer indices than they are computed for, are computed before it.

    for t in range(n): s[b, i] = maximum(s[b, i], k[b] - exp(c[t, i]))
    -->   s_exp[t, i] = exp(c[t, i]);   for t in range(n): s[b, i] = maximum(s[b, i], k[b] - s_exp[t, i])

So is what is the same in all steps. As in `terms`: the tensor is computed everywhere, so only where each element that it reads is proved
to exist, and where computing the term in all steps costs `STORED` more for each element than computing it once.
"""

from __future__ import annotations

from tensorexpr.ir import Access, Apply, Axis, Define, Definition, Expr, Program, Reduce, Scan, Scatter, const
from tensorexpr.records import replace
from tensorexpr.simplify.passes.amounts import cost, points
from tensorexpr.simplify.passes.definitions import form_of, with_definitions
from tensorexpr.simplify.passes.terms import NEAR, bytes_of_ends, named_term, pays_alone, saves, stem_of
from tensorexpr.simplify.passes.terms.found import Term, is_marked, term_of
from tensorexpr.simplify.rules.floats import FUNCTION
from tensorexpr.traversal import children, fresh_name, map_children, tensors_read

SMALLER = 4
"""How many times smaller a tensor inside of a term is that is kept in place of it."""


def keep_terms_of_steps(program: Program) -> Program:
    """The program with a tensor for each costly term in steps of its scans that depends on no state, where that saves time.

    Requires: nothing. Ensures: every value is kept bit for bit, and so is every check of an index.
    """
    if not any(isinstance(d, Scan) for d in program.definitions):
        return program
    return _Keeping(program).run()


class _Keeping:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.types = program.types
        self.taken = {*self.types, *program.sizes, *(n for d in program.definitions for n in _names(d))}
        self.most = max(NEAR, bytes_of_ends(program))
        self.made: dict[object, str] = {}
        self.definitions: list[Definition] = []

    def run(self) -> Program:
        for definition in self.program.definitions:
            self.definitions.append(self._scan(definition, ()) if isinstance(definition, Scan) else definition)
        return with_definitions(self.program, self.definitions)

    def _scan(self, scan: Scan, around: tuple[Axis, ...]) -> Scan:
        inner = (*around, Axis(scan.step, const(0), scan.length))
        body = tuple(self._definition(d, inner) for d in scan.body)
        return scan if all(a is b for a, b in zip(body, scan.body, strict=True)) else replace(scan, body=body)

    def _definition(self, definition: Definition, around: tuple[Axis, ...]) -> Definition:
        if isinstance(definition, Scan):
            return self._scan(definition, around)
        if not isinstance(definition, Define | Scatter):
            return definition
        value = self._value(definition.value, (*around, *definition.axes))
        return definition if value is definition.value else replace(definition, value=value)

    def _value(self, value: Expr, axes: tuple[Axis, ...]) -> Expr:
        """A value in which tensors are read in place of the largest terms that pay."""
        if isinstance(value, Access) or is_marked(value) or not children(value):
            return value
        access = self._read(value, axes)
        if access is not None:
            return access
        return map_children(value, lambda child: self._value(child, self._around(value, axes)))

    def _read(self, value: Expr, axes: tuple[Axis, ...]) -> Access | None:
        term = self._term(value, axes)
        if term is None:
            return None
        size = points(term.define.axes)
        left = cost(value) - sum(self._apart(child, self._around(value, axes), size) for child in children(value))
        if left < FUNCTION or not saves(left, points(axes), size):
            return None  # but for smaller tensors inside: reading it in each step is no faster
        form = form_of(term.define)
        if form not in self.made:
            self.made[form] = fresh_name(stem_of(term.define.value), self.taken)
            self.definitions.append(named_term(term, self.made[form], {*self.program.sizes}))
        return Access(self.made[form], term.subscripts, value.dtype)

    def _term(self, value: Expr, axes: tuple[Axis, ...]) -> Term | None:
        """A value as a tensor, where that pays."""
        if not isinstance(value, Apply | Reduce) or not value.dtype.is_float or cost(value) < FUNCTION:
            return None
        if not self.types.keys() >= set(tensors_read(value)):
            return None  # of a state
        term = term_of(value, axes, self.types)
        return term if term is not None and pays_alone(term, value, axes, self.types, self.most) else None

    def _apart(self, value: Expr, axes: tuple[Axis, ...], size: float) -> float:
        """What the parts of a value cost that are far smaller tensors than one of this size, for each of its points."""
        if isinstance(value, Access) or is_marked(value) or cost(value) < FUNCTION:
            return 0.0
        term = self._term(value, axes)
        if term is not None and points(term.define.axes) * SMALLER <= size:
            return cost(value)
        turns = points(value.axes) if isinstance(value, Reduce) else 1.0
        return turns * sum(self._apart(child, self._around(value, axes), size) for child in children(value))

    def _around(self, value: Expr, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """The axes around what stands in a value."""
        return (*axes, *value.axes) if isinstance(value, Reduce) else axes


def _names(definition: Definition) -> list[str]:
    """The names that a definition makes, inside of a scan as well."""
    found = [name for name, _ in definition.results]
    if isinstance(definition, Scan):
        found += [name for name, _ in definition.states]
        found += [name for d in definition.body for name in _names(d)]
    return found
