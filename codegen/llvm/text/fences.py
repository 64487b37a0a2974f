"""Masked loads that stay masked, stores as wide as they are: fences in the text of a module, put in when LLVM's passes over it are done.

LLVM's code for x86 folds a masked load into the arithmetic that has the same mask (`vfmadd (mem), zmm {k}`, which touches no lane that is
off). Where an operand that this instruction overwrites is needed later, its two-address pass takes load and arithmetic apart again, and
forgets the mask of the load: whole vectors are read behind the end of a buffer. `llvm.arithmetic.fence` takes no instruction, and nothing
is folded across it, so the load keeps its mask. It comes last: until then loops and simplifications see plain masked loads,
those that LLVM's vectorizer makes too.

Integers that are cut to fewer bits are stored in one instruction, under a mask, too, which LLVM makes of a choice between new and old
elements as well. Where such a mask is known to have a single lane (the last of a tail), LLVM up to 22.1 stores that element uncut, four
bytes for two (llvm-project, issue 179489). Behind a fence the numbers that are stored are not known to be cut.

Products of int32 that were widened to int64 are multiplied by their lower halves. Where a part of such a vector is wanted and its int32
are the bits of floats, as behind a fence, LLVM 22.1 has no instruction for what it makes of it and ends the process ("Cannot select:
zero_extend_vector_inreg"): its choice is of instructions for floats only. What is joined with a zero that it does not know is integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LOAD = re.compile(
    r'^ +(?P<name>%(?:"[^"]*"|\S+)) = (?P<call>[a-z ]*call .*?'
    r"<(?P<lanes>\d+) x (?P<element>float|double|half|bfloat|i\d+)> @llvm\.masked\.load\..*)$",
    re.MULTILINE,
)
_BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16}


_CHOSEN = re.compile(r'^ +(%(?:"[^"]*"|\S+)) = (?:select|shufflevector) ', re.MULTILINE)
_STORE = re.compile(
    r"^ +(?P<before>(?:[a-z]+ )*call void @llvm\.masked\.store\.[^(]*\(|store )"
    r"<(?P<lanes>\d+) x (?P<element>i8|i16|i32)>(?P<attributes>(?: [a-z]+)*) "
    r'(?P<value>%(?:"[^"]*"|[-\w$.]+)), (?P<rest>.*)$',
    re.MULTILINE,
)


_WIDENED = re.compile(r"= [sz]ext(?: nneg)? <(?:8|16|32|64) x i32> .* to <\d+ x i64>")
_FROM_FLOATS = re.compile(
    r'^ +(?P<name>%(?:"[^"]*"|\S+)) = (?P<cast>bitcast <\d+ x (?:float|double|half|bfloat)> \S+ to <(?P<lanes>8|16|32|64) x i32>)$',
    re.MULTILINE,
)


_MASKED = re.compile(r"llvm\.masked\.(load\.|store\.v\d+i)")


def may_need_fences(text: str, names: Iterable[str]) -> bool:
    """Whether a module of this text may have such loads or stores; the names are those of the functions that it calls in the end."""
    return "trunc " in text or any(map(_MASKED.match, names)) or (_FROM_FLOATS.search(text) is not None and _multiplies_widened(text))


def fenced(text: str) -> str:
    """The text of a module with a fence behind every masked load of numbers, and before the stores that take short integers by a mask."""
    declarations: set[str] = set()
    count = 0

    def fence(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        stem = f"te.masked{count}"
        lines = [f"%{stem} = {found['call']}"]
        lines += _fence(found["name"], f"%{stem}", int(found["lanes"]), found["element"], declarations)
        return "\n".join(f"  {line}" for line in lines)

    chosen = set(_CHOSEN.findall(text))

    def before(found: re.Match[str]) -> str:
        nonlocal count
        if found["before"] == "store " and found["value"] not in chosen:
            return found[0]
        count += 1
        name, lanes, element = f"%te.stored{count}", int(found["lanes"]), found["element"]
        # Frozen, since lanes that are off may be poison, which would be that of the others in one word of the fence.
        lines = [f"%te.masked{count} = freeze <{lanes} x {element}> {found['value']}"]
        lines += _fence(name, f"%te.masked{count}", lanes, element, declarations)
        lines.append(f"{found['before']}<{lanes} x {element}>{found['attributes']} {name}, {found['rest']}")
        return "\n".join(f"  {line}" for line in lines)

    def as_integers(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        full, held = f"<{found['lanes']} x i32>", f"<{found['lanes']} x float>"
        callee = f"{held} @llvm.arithmetic.fence.v{found['lanes']}f32"
        declarations.add(f"declare {callee}({held})")
        given, none = f"%te.bits{count}", f"%te.none{count}"
        lines = [f"{given} = {found['cast']}", f"{none} = call {callee}({held} zeroinitializer)"]
        lines += [f"{none}.bits = bitcast {held} {none} to {full}", f"{found['name']} = or {full} {given}, {none}.bits"]
        return "\n".join(f"  {line}" for line in lines)

    there = text  # which may have fences of its own
    text = _STORE.sub(before, _LOAD.sub(fence, text))
    if _multiplies_widened(text):
        text = _FROM_FLOATS.sub(as_integers, text)
    missing = [line for line in sorted(declarations) if line not in there]
    return "\n".join([text, *missing, ""]) if missing else text


def _multiplies_widened(text: str) -> bool:
    return " mul " in text and _WIDENED.search(text) is not None


def _fence(name: str, value: str, lanes: int, element: str, declarations: set[str]) -> list[str]:
    """Lines that give a vector a new name. Fences hold floats: other elements pass as the bits of as many as they fill."""
    bits = _BITS.get(element) or int(element[1:])
    unit, tag, width = ("double", "f64", 64) if bits == 64 else ("float", "f32", 32)
    given, whole = f"<{lanes} x {element}>", -(-lanes * bits // width) * width // bits
    lines = []
    if whole != lanes:  # lanes that nobody reads fill up the last float
        order = ", ".join(f"i32 {min(lane, lanes)}" for lane in range(whole))
        lines.append(f"{value}.whole = shufflevector {given} {value}, {given} poison, <{whole} x i32> <{order}>")
        value = f"{value}.whole"
    full, count = f"<{whole} x {element}>", whole * bits // width
    held = f"<{count} x {unit}>"
    callee = f"{held} @llvm.arithmetic.fence.v{count}{tag}"
    declarations.add(f"declare {callee}({held})")
    if element == unit:
        return [*lines, f"{name} = call {callee}({held} {value})"]
    lines += [f"{value}.bits = bitcast {full} {value} to {held}", f"{value}.fence = call {callee}({held} {value}.bits)"]
    if whole == lanes:
        return [*lines, f"{name} = bitcast {held} {value}.fence to {full}"]
    order = ", ".join(f"i32 {lane}" for lane in range(lanes))
    lines.append(f"{value}.back = bitcast {held} {value}.fence to {full}")
    return [*lines, f"{name} = shufflevector {full} {value}.back, {full} poison, <{lanes} x i32> <{order}>"]
