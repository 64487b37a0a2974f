"""Units whose texts differ in whole numbers alone are one: the numbers are read from a table that each call hands over.

A convolution of 96 channels and one of 128 have the same loops; what differs are ends of loops, strides, and multiples of strides.

    %t9 = mul i64 %k, 3136                         %number..0 = load i64, ptr %numbers        at the entry of the function
    %t10 = add i64 %t9, 6272            becomes    %number..0..2 = mul i64 %number..0, 2
                                                   %t9 = mul i64 %k, %number..0
                                                   %t10 = add i64 %t9, %number..0..2

- The first text of a *family* (equal but for numbers) is compiled as it is. The second one shows which numbers differ; numbers that are the
  same multiple of one of them in all texts follow from it. What equals in all members stays a constant.
- A text that does not fit brings a new form for all that came so far. Members whose own code LLVM has not begun go over to it.
- Numbers are replaced only where they are operands of whole-number arithmetic, comparisons, addresses, stores and calls of the pool. Lanes,
  masks, alignments, divisors and lengths of what is copied out are the text itself: so code is what it was, with registers for constants.
- What the pool finds out about a loop is kept for each call by itself: its place is in the table, too.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from typing import NamedTuple

from tensorexpr.codegen import disk
from tensorexpr.codegen.llvm.emitter.module import NUMBERS
from tensorexpr.codegen.llvm.process.background import Job, taken_back
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.memo import Memo

UNIT = "te.unit"
"""What a unit is called in the text that it is told by."""
MOST_VALUES = 8
"""Numbers of a form that do not follow from each other: each takes a register."""
MOST_TIMES = 4096
"""The greatest multiple that two numbers are not by chance."""
MOST_MEMBERS = 64
"""Members that a new form is made to fit."""
_KEPT = 1024
_NUMBER = re.compile(
    r"((?:add|sub|mul)(?: nsw)? i64 [^,\n]+, "
    r"|icmp \w+ i64 [^,\n]+, "
    r"|sub i64 (?=-?\d+, %)"
    r"|getelementptr(?: inbounds)? \w+, ptr [^,\n]+, i64 "
    r"|store i64 (?=-?\d+, ptr)"
    r"|@llvm\.s(?:min|max)\.i64\(i64 [^,\n]+, i64 "
    r"|@te\.turned[\w.]*\(ptr [^,\n]+, i64 |, ptr [^,\n]+, i64 (?=-?\d+\)\n)"
    r"|@te_parallel_for\(ptr [^,\n]+, ptr [^,\n]+, i64 "
    r"|, i64 (?=-?\d+, ptr @[\w.]*site\)))(-?\d+)(?=[,)\n])"
)
_WORD = "i64 "
"""What stands in front of all numbers."""
_SITE = re.compile(r"ptr (@[\w.]*site)\)$", re.MULTILINE)

Numbers = tuple[int, ...]


class Code(NamedTuple):
    """What is called for a kernel: a symbol, the work of LLVM, the values of its table and how many places of the pool follow there."""

    symbol: str
    job: Job
    values: Numbers = ()
    sites: int = 0


class Unit:
    """A kernel that is compiled by itself: its code, which another may take the place of, what is linked to it, and whether it may fail."""

    __slots__ = ("beside", "checked", "code", "numbers")

    def __init__(self, checked: bool, code: Code, numbers: Numbers, beside: tuple[Job, ...]) -> None:
        self.checked, self.code, self.numbers, self.beside = checked, code, numbers, beside


class _Form:
    """Code of several members: `terms` says of places of numbers which value of the table stands there, and how many times."""

    def __init__(self, code: Code, first: Numbers, terms: dict[int, tuple[int, int]]) -> None:
        self.code, self.terms = code, terms
        self.first = [None if place in terms else number for place, number in enumerate(first)]
        self.single = sorted((value, place) for place, (value, times) in terms.items() if times == 1)

    def of(self, numbers: Numbers) -> Code | None:
        """This code for other numbers, if it fits them."""
        if any(want is not None and want != number for want, number in zip(self.first, numbers, strict=True)):
            return None
        values = tuple({value: numbers[place] for value, place in self.single}.values())
        if any(numbers[place] != values[value] * times for place, (value, times) in self.terms.items()):
            return None
        return self.code._replace(values=values)


class _Family:
    """Texts that are equal but for numbers: their units, and the forms that were made for several."""

    def __init__(self) -> None:
        self.units: dict[Numbers, Unit] = {}
        self.forms: list[_Form] = []


_families: Memo[_Family] = Memo(_KEPT)
_lock = threading.RLock()


def unit_of(text: str, checked: bool, machine: Machine, passes: str, beside: tuple[Job, ...] = ()) -> Unit:
    """The unit of a text, whose symbol is `UNIT` there; `beside` is what it calls."""
    numbers, others = _taken_apart(text)
    key = disk.digest(passes, repr(machine), others)
    family = _families.get(key, _Family)
    with _lock:
        unit = family.units.get(numbers)
        if unit is None:
            code = None if passes == "loops" else _shared(family, text, numbers, machine, passes)
            unit = Unit(checked, code or _code(text, disk.digest(passes, repr(machine), text), machine, passes), numbers, beside)
            while len(family.units) >= MOST_MEMBERS:
                del family.units[next(iter(family.units))]
            family.units[numbers] = unit
        return unit


def _taken_apart(text: str) -> tuple[Numbers, str]:
    """The numbers of a text, and what tells it from all that differ in more: the lines that have none, the others with one word for all
    numbers. Looking for them takes longer than all else that is done with a text, so it is done in the third that may have some."""
    lines = text.split("\n")
    parts = _NUMBER.split("\n".join([line for line in lines if _WORD in line]))
    numbers = tuple(map(int, parts[2::3]))
    parts[2::3] = ["#"] * len(numbers)
    return numbers, "\n".join(["#" if _WORD in line else line for line in lines]) + "".join(parts)


def _code(text: str, digest: str, machine: Machine, passes: str) -> Code:
    symbol = f"{UNIT}.{digest[:32]}"
    return Code(symbol, Job(text.replace(f"@{UNIT}", f"@{symbol}"), machine, passes))


def _shared(family: _Family, text: str, numbers: Numbers, machine: Machine, passes: str) -> Code | None:
    """Code of the family that fits other numbers as well; made where several texts show which ones differ."""
    for form in reversed(family.forms):
        found = form.of(numbers)
        if found is not None:
            return found
    if not family.units:
        return None
    terms = _terms([*family.units, numbers])
    general = None if terms is None else _general(text, terms)
    if terms is None or general is None:
        return None
    words, sites = general
    form = _Form(_code(words, disk.digest(passes, repr(machine), words), machine, passes)._replace(sites=sites), numbers, terms)
    family.forms.append(form)
    for unit in family.units.values():
        code = form.of(unit.numbers)
        if code is not None and taken_back(unit.code.job):
            unit.code = code
    return form.of(numbers)


def _terms(members: Sequence[Numbers]) -> dict[int, tuple[int, int]] | None:
    """For each place whose numbers differ a value and how many times it stands there; None where there are too many values."""
    places: dict[Numbers, list[int]] = {}
    for place, column in enumerate(zip(*members, strict=True)):
        if column.count(column[0]) < len(column):
            places.setdefault(column, []).append(place)
    values: list[Numbers] = []
    terms = {}
    for column in sorted(places, key=lambda column: [abs(number) for number in column]):
        known = ((value, _times(column, other)) for value, other in enumerate(values))
        term = next(((value, times) for value, times in known if times), None)
        if term is None:
            term = len(values), 1
            values.append(column)
        terms.update(dict.fromkeys(places[column], term))
    return terms if len(values) <= MOST_VALUES else None


def _times(column: Numbers, other: Numbers) -> int:
    """How many times the numbers of a column are those of another; 0 where they are not."""
    times = column[0] // other[0] if other[0] else 0
    return times if abs(times) <= MOST_TIMES and all(a == times * b for a, b in zip(column, other, strict=True)) else 0


def _general(text: str, terms: dict[int, tuple[int, int]]) -> tuple[str, int] | None:
    """The text with values of a table for some of its numbers, and how many places of the pool follow in that; None where a function that
    has no table needs one."""
    count = 1 + max(value for value, _ in terms.values())
    sites: dict[str, int] = {}
    place = -1
    made = []
    for chunk in re.split(r"(?<=\n)(?=define )", text):
        needed: dict[str, str] = {}

        def number(found: re.Match[str], needed: dict[str, str] = needed) -> str:
            nonlocal place
            place += 1
            if place not in terms:
                return found[0]
            value, times = terms[place]
            name = _loaded(needed, value, "i64")
            if times != 1:
                single, name = name, f"{name}..{times}".replace("-", "m")
                needed[name] = f"mul i64 {single}, {times}"
            return found[1] + name

        def site(found: re.Match[str], needed: dict[str, str] = needed) -> str:
            return f"ptr {_loaded(needed, count + sites.setdefault(found[1], len(sites)), 'ptr')})"

        words = _SITE.sub(site, _NUMBER.sub(number, chunk))
        if needed and NUMBERS not in words[: words.index("\n")]:
            return None
        lines = "".join(f"  {name} = {value}\n" for name, value in needed.items())
        made.append(words.replace("\nentry:\n", f"\nentry:\n{lines}", 1))
    return "".join(made), len(sites)


def _loaded(needed: dict[str, str], place: int, type_: str) -> str:
    """The name of an entry of the table."""
    name = f"%number..{place}"
    needed[f"{name}.at"] = f"getelementptr i64, ptr {NUMBERS}, i64 {place}"
    needed[name] = f"load {type_}, ptr {name}.at, align 8"
    return name


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
