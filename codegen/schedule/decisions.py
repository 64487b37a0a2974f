"""The decisions of the default schedule, each with a name, so that another answer than the model's can be asked for.

Where the model chooses, it puts what could be done in order, best first, and asks `Decisions`: it gets the order back as it is,
or with what `Choices` name in front. So the default schedule is a function of program, machine and choices; no choices give the
model's own. Choices are words (`{"C: tile": "6 i, 32 j"}`): they can be kept, read, and asked for again at other extents. A word
that is not among the options then is passed over, so choices never make a schedule illegal. Which decisions there are may
depend on those before; `Decisions.made` tells what came up on the way, which is the space that a search walks through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from tensorexpr.records import record

Option = TypeVar("Option")

YES, NO = "yes", "no"
MOST_OPTIONS = 64
"""Options of one decision that are looked at beside the model's own."""


class Choices(Mapping[str, str]):
    """What is asked for, by the names of decisions. A value: equal ones have the same words in any order."""

    __slots__ = ("_words",)

    def __init__(self, words: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        self._words = dict(sorted(dict(words).items()))

    def __getitem__(self, name: str) -> str:
        return self._words[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)

    def __hash__(self) -> int:
        return hash(tuple(self._words.items()))

    def __repr__(self) -> str:
        return f"Choices({self._words})"

    def with_choice(self, name: str, word: str | None) -> Choices:
        """The choices with another word for one decision; None leaves it to the model."""
        rest = {n: w for n, w in self._words.items() if n != name}
        return Choices(rest if word is None else {**rest, name: word})


@record
class Decision:
    """A decision that came up: its options as words, the model's first, and which one was asked for (the first, where none was)."""

    name: str
    options: tuple[str, ...]
    taken: str


class Decisions:
    """What a run of the default schedule asks: gives what `choices` name, else what the model holds best.

    With `noting`, `made` tells afterwards what was asked (which keeps what the options were made from).
    """

    def __init__(self, choices: Choices | None = None, noting: bool = False) -> None:
        self.choices = Choices() if choices is None else choices
        self._noting = noting
        self._noted: dict[str, Callable[[], Decision]] = {}

    def ranked(
        self,
        name: str,
        options: Sequence[Option],
        *,
        others: Callable[[], Iterable[Option]] | None = None,
        word: Callable[[Option], str] = str,
    ) -> list[Option]:
        """The options, best first: the model's order, behind what was asked for.

        `others` are options that the model would not try by itself. Words must tell options apart.
        """
        found = list(options)

        def all_options() -> dict[str, Option]:
            table: dict[str, Option] = {}
            for option in (*found, *(() if others is None else others())):
                table.setdefault(word(option), option)
            return dict(list(table.items())[: max(MOST_OPTIONS, len(found))])

        asked = self.choices.get(name)
        if self._noting:
            self._noted[name] = lambda: _decision(name, tuple(all_options()), asked)
        if asked is None:
            return found
        table = all_options()
        return found if asked not in table else [table[asked], *(o for o in found if word(o) != asked)]

    def choose(
        self,
        name: str,
        options: Sequence[Option],
        *,
        others: Callable[[], Iterable[Option]] | None = None,
        word: Callable[[Option], str] = str,
    ) -> Option:
        """The first of `ranked`."""
        return self.ranked(name, options, others=others, word=word)[0]

    def wanted(self, name: str, model: bool = True) -> bool:
        """A decision between yes and no."""
        return self.choose(name, (YES, NO) if model else (NO, YES)) == YES

    @property
    def made(self) -> tuple[Decision, ...]:
        """The decisions that came up, in order; those with one option alone are none."""
        return tuple(d for d in (note() for note in self._noted.values()) if len(d.options) > 1)


def _decision(name: str, words: tuple[str, ...], asked: str | None) -> Decision:
    return Decision(name, words, asked if asked in words else words[0] if words else "")
