"""All obligations of a nest, one after the other."""

from __future__ import annotations

from collections import Counter

from tensorexpr.codegen.facts.places import Places, Touch
from tensorexpr.codegen.facts.questions import MOST_STEPS, Answer, Questions, steps_for
from tensorexpr.codegen.facts.scope import Checked, Scope
from tensorexpr.codegen.nest import If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.text import print_block
from tensorexpr.codegen.nest.walks import expressions_of, statements
from tensorexpr.codegen.nest_proofs.races import close, meet
from tensorexpr.codegen.nest_proofs.sorts import sorts_of
from tensorexpr.codegen.nest_proofs.verdict import Finding, Verdict
from tensorexpr.codegen.nest_proofs.written import Written
from tensorexpr.ir import Access, Expr
from tensorexpr.records import replace
from tensorexpr.text import print_expr
from tensorexpr.traversal import walk


def _work(kernel: Kernel) -> int:
    """The statements of a kernel, with what they read: an element of a long formula is compiled, and asked about, as a statement is."""
    return sum(1 + sum(isinstance(n, Access) for e in expressions_of(s) for n in walk(e)) for s in statements(kernel.body))


def prove(nest: LoopNest, effort: int = 1, quick: bool = False, launched: bool = False) -> Verdict:
    """Whether every obligation of a nest holds (see the package); what does not, or is not decided, is a finding.

    Questions take so many steps, counted, at most; `effort` times as many are allowed. A `quick` proof asks the integer sets nothing about
    elements between definitions that some store may have written, and takes fewer steps: it refutes nothing that the whole one does not
    refute, and leaves more undecided. `launched` says that kernels are launched one by one, as on a GPU: those behind one with a failed
    check run all the same. Requires: a nest that `verify_nest` accepts. Pure: the same nest gives the same verdict.
    """
    return _Proof(nest, effort, quick, launched).verdict()


class _Proof:
    def __init__(self, nest: LoopNest, effort: int, quick: bool, launched: bool) -> None:
        self.nest, self.quick, self.launched = nest, quick, launched
        self.claims = {b.name: b.within for b in (*nest.parameters, *nest.workspace) if b.within is not None}
        most = steps_for(sum(map(_work, nest.kernels))) if quick else MOST_STEPS
        self.questions = Questions(nest.sizes, self.claims, effort, most)
        self.findings: list[Finding] = []
        self.decided: Counter[str] = Counter()
        self._lines: dict[int, str] = {}
        self._texts: dict[Expr, str] = {}

    def verdict(self) -> Verdict:
        written = Written(self.nest, self.questions, 0 if self.quick else self.questions.effort)

        unplaced: list[tuple[Touch, Expr, Expr, list[Checked]]] = []

        def seen(touch: Touch) -> None:
            for index, extent in zip(touch.indices, touch.shape, strict=True):
                answer = self.questions.inside_by_forms(index, extent, touch.scope)
                if answer is not None:
                    self.decided[answer.how] += 1
                else:
                    unplaced.append((touch, index, extent, list(places.checks)))
            written.seen(touch)

        places = Places(self.nest, self.held(), seen, self.launched)
        places.run()
        self.questions.checks = places.all_checks  # nobody sees the results of a run in which one failed
        # What forms show is asked of everything before the sets are asked of anything.
        pairs = list(close(self.nest, places.all_loops, self.questions))
        results = [(end, written.covered_by_forms(end, 1)) for end in written.results(places.homes, places.start)]
        sorts = sorts_of(written, self.questions, places.start) if self.claims else []
        placing, ordered = {sort.placing for sort in sorts}, {sort.order: sort.placing.number for sort in sorts}
        for touch, index, extent, checks in unplaced:
            if touch in placing and index == touch.indices[-1]:
                self.decided["sorts"] += 1
                continue
            self.questions.checks = checks
            answer = self.questions.inside_by_sets(index, extent, touch.scope)
            if self.kept(answer):
                about = f"0 <= {self.text(index)} < {self.text(extent)}"
                self.report("bounds", touch.statement, touch.home.buffer.name, about, answer)
        self.questions.checks = places.all_checks
        proved = {home.buffer.name for sort in sorts for home in (sort.keys, sort.offsets, sort.order)}
        self.claimed(written, proved)
        for loop, write, other in pairs:
            answer = meet(loop, write, other, self.questions)
            if answer.holds:
                self.decided[answer.how] += 1
                continue
            places_ = " and ".join(dict.fromkeys(self.place(touch) for touch in (write, other)))
            self.report("race", write.statement, write.home.buffer.name, f"iterations of {loop.statement.index} meet at {places_}", answer)
        for touch, answer in written.answers():
            if not answer.holds and touch.number > ordered.get(touch.home, touch.number):
                self.decided["sorts"] += 1
            elif self.kept(answer):
                self.report("initial", touch.statement, touch.home.buffer.name, f"{self.place(touch)} is written before it is read", answer)
        for touch, found in results:
            answer = found or written.covered_by_sets(touch, max(written.effort, 1))
            if not answer.holds and touch.home in ordered:
                self.decided["sorts"] += 1
            elif self.kept(answer):
                self.report("coverage", touch.statement, touch.home.buffer.name, f"all of {touch.home.buffer.name} is written", answer)
        return Verdict(tuple(self.findings), tuple(sorted(self.decided.items())))

    def held(self) -> dict[str, tuple[float, float]]:
        """Ranges of what buffers of integers hold: as claimed, and constants as they are."""
        start = Scope((), {}, {})
        found = {name: (float(low), start.interval(high)[1]) for name, (low, high) in self.claims.items()}
        for constant in self.nest.constants:
            if constant.type.dtype.is_integer and constant.data.size:
                found[constant.name] = (int(constant.data.min()), int(constant.data.max()))
        return found

    def claimed(self, written: Written, proved: set[str]) -> None:
        """What is stored lies in the range that is claimed of the buffer, where no sort has shown it."""
        for home, stores in written.stores.items():
            if home.buffer.name in proved or home.buffer.within is None:
                continue
            low, high = home.buffer.within
            for store in stores:
                assert store.value is not None
                answer = self.questions.between(low, store.value, high, store.scope)
                if self.kept(answer):
                    about = f"{low} <= {home.buffer.name} <= {print_expr(high)}"
                    self.report("claim", store.statement, home.buffer.name, about, Answer(None, answer.how))

    def kept(self, answer: Answer) -> bool:
        """Counts an answer; whether it is a finding."""
        if answer.holds:
            self.decided[answer.how] += 1
        return not answer.holds

    def report(self, kind: str, statement: Stmt, buffer: str, about: str, answer: Answer) -> None:
        line = self._lines.get(id(statement))
        if line is None:
            line = self._lines[id(statement)] = self.first_line(statement)
        finding = Finding(kind, line, buffer, about, answer.holds is False, answer.at)
        self.decided["refuted" if finding.refuted else "undecided"] += 1
        if finding not in self.findings:
            self.findings.append(finding)

    def first_line(self, statement: Stmt) -> str:
        """A statement without the value that it stores, which may be long."""
        if isinstance(statement, Store):
            return f"{self.element(statement.buffer, statement.indices)} = ..."
        return next(iter(print_block((replace(statement, then=()) if isinstance(statement, If) else statement,))))

    def place(self, touch: Touch) -> str:
        """The element that is touched."""
        return self.element(touch.home.buffer.name, touch.indices)

    def element(self, buffer: str, indices: tuple[Expr, ...]) -> str:
        """An element of a buffer."""
        return f"{buffer}[{', '.join(map(self.text, indices)) or '()'}]"

    def text(self, expr: Expr) -> str:
        """An expression as it is printed; the same indices are in many findings."""
        found = self._texts.get(expr)
        if found is None:
            found = self._texts[expr] = print_expr(expr)
        return found
