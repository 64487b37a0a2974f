"""Valid files, altered at random: bits, lengths, and what JSON says."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

DEEP = 20_000
_STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**62, 2**63, 2**64 - 1, -(2**63), 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "",
    "x", "../x", "/etc/passwd", "a\0b", "f32", "int64", "sum", "n", [], {}, [[]], [0], {"a": 0}, [1, 2, 3], {"list": []}, {"hole": None},
)  # fmt: skip


def altered(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut, put in, doubled."""
    at = rng.randrange(len(data) + 1)
    match rng.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        case 2:
            return data[:at] + data[at + rng.randrange(1, 9) :]
        case 3:
            stop = min(len(data), at + rng.randrange(1, 65))
            return data[:stop] + data[at:]
    at = min(at, len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def edited(value: Any, rng: random.Random) -> Any:
    """A value of JSON with one place of it changed: another value, another number near by, a part left out, doubled or moved."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    holder, key = rng.choice(places)
    old = holder[key]
    match rng.randrange(7):
        case 0:
            holder[key] = copy.deepcopy(rng.choice(_STRANGE))
        case 1 if isinstance(holder, dict):
            del holder[key]
        case 1 | 2 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old)) if rng.random() < 0.5 else holder.pop(key)
        case 3:
            other, name = rng.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case _ if isinstance(old, bool):
            holder[key] = not old
        case _ if isinstance(old, int):
            holder[key] = old + rng.choice((-1, 1, 7, -old - 1, 2**40))
        case _ if isinstance(old, str) and old:
            holder[key] = altered(old.encode(), rng).decode("utf-8", "replace")
        case _:
            holder[key] = copy.deepcopy(rng.choice(_STRANGE))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def as_text(value: Any, rng: random.Random) -> bytes:
    """JSON of a value, now and then with a key given twice, or with nests that are deeper than any reader is."""
    text = json.dumps(value)
    match rng.randrange(12):
        case 0 if isinstance(value, dict) and value:
            name = rng.choice(list(value))
            text = f"{text[:-1]}, {json.dumps(name)}: {json.dumps(edited([value[name]], rng))}}}"
        case 1:
            nest = rng.choice(("[", '{"a":'))
            text = text.replace(rng.choice([c for c in text if c in "0123456789[{"] or ["0"]), nest * DEEP, 1)
    return text.encode()
