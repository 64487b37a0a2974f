"""What an access of all threads of a block costs, from its addresses: sectors of 32 bytes and lines of 128 of each warp, and how often
shared memory must be asked because several of a warp's words lie in one bank.

Addresses are rows of 32, one for each warp; lanes that take no part are below zero. Shared memory has 32 banks of four bytes. A warp's
access of eight bytes a lane is made by halves, one of sixteen by quarters, as `ldmatrix` takes eight rows at a time (CUDA C++ Best
Practices Guide; the quarters are what is measured, the guide does not say them).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
LANES, BANKS, WORD, SECTOR, LINE = 32, 32, 4, 32, 128


def distinct(rows: Numbers, unit: int) -> Numbers:
    """How many different units of memory each row has."""
    ordered = np.sort(np.where(rows < 0, -1, rows // unit), axis=1)
    first = np.ones_like(ordered, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return np.asarray((first & (ordered >= 0)).sum(axis=1))


def sectors(rows: Numbers) -> int:
    """Sectors of all warps."""
    return int(distinct(rows, SECTOR).sum())


def lines(rows: Numbers) -> int:
    """Lines of all warps: as many accesses of the first cache."""
    return int(distinct(rows, LINE).sum())


def least_sectors(rows: Numbers, size: int) -> int:
    """Sectors that as many bytes of a warp have where they lie side by side."""
    return int((-(-(rows >= 0).sum(axis=1) * size // SECTOR)).sum())


def wavefronts(rows: Numbers, size: int) -> int:
    """Accesses of shared memory of all warps, each of which takes a word of every bank; a word for several lanes is one."""
    parts = max(1, size // WORD)
    groups = rows.reshape(len(rows) * parts, LANES // parts) if parts > 1 else rows
    words = np.where(groups[..., None] < 0, -1, groups[..., None] // WORD + np.arange(parts)).reshape(len(groups), -1)
    ordered = np.sort(words, axis=1)
    first = np.ones_like(ordered, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first &= ordered >= 0
    counts = np.zeros((len(groups), BANKS), int)
    np.add.at(counts, (np.nonzero(first)[0], ordered[first] % BANKS), 1)
    return int(counts.max(axis=1).sum())


def least_wavefronts(rows: Numbers, size: int) -> int:
    """The same without conflicts."""
    parts = max(1, size // WORD)
    groups = rows.reshape(len(rows) * parts, LANES // parts) if parts > 1 else rows
    return int((groups >= 0).any(axis=1).sum())
