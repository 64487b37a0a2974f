"""Runs of the main thread that can be interrupted, as routines: a part of the pool (`interrupts` says what for).

    te_watch_by(look)   the thread that calls this is the main thread; `look` says whether its run is to end
    te_watch()          its run, if it is in this thread, is watched from now on
    te_watched()        the run is over: whether it was interrupted
    te_watch_clear()    what was interrupted has been told

Nobody knows before how long an iteration takes, so loops of watched runs begin with short chunks. A run that is not watched pays for two
loads in each parallel loop.
"""

from __future__ import annotations

PERIOD = 50_000_000
"""Nanoseconds between two looks."""
SHARE = 256
"""The first chunk of a loop that is watched is so many times shorter than it would be, but no shorter than pays; they grow."""
SHORT = 10_000_000
"""Nanoseconds that a chunk takes up to which the next one is twice as long."""


WATCH = {"PERIOD": PERIOD, "SHARE": SHARE, "SHORT": SHORT}
WATCHED = """
look: ptr = None
main: i64 = 0
watching: line(i32) = 0
hit: i32 = 0
looked: i64 = 0

def pthread_self() -> i64: ...

def te_watch_by(callback: ptr):
    main = pthread_self()
    look = callback
    atomic_store(hit, 0, seq_cst)
    atomic_store(watching, 0, seq_cst)

def te_watch():
    if pthread_self() == main:
        looked = nanoseconds()
        atomic_store(watching, 1, monotonic)

def te_watched() -> i64:
    if pthread_self() != main:
        return 0
    atomic_store(watching, 0, monotonic)
    return u64(atomic_load(hit, monotonic))

def te_watch_clear():
    atomic_store(hit, 0, seq_cst)

def interrupted() -> i1:
    if atomic_load(watching, monotonic) == 0 or pthread_self() != main:
        return False
    if atomic_load(hit, monotonic) != 0:
        return True
    if nanoseconds() - looked <= PERIOD:
        return False
    said = call(i32, look)
    looked = nanoseconds()
    if said == 0:
        return False
    atomic_store(hit, 1, monotonic)
    return True

def first_chunk(chunk: i64, grain: i64) -> i64:
    if atomic_load(watching, monotonic) == 0:
        return chunk
    return min(chunk, max(chunk // SHARE, grain))

def run_chunk(function: ptr, environment: ptr, begin: i64, end: i64, size: i64, most: i64) -> i64:
    if size >= most:
        call(None, function, environment, begin, end)
        return size
    before = nanoseconds()
    call(None, function, environment, begin, end)
    return min(size << 1, most) if nanoseconds() - before < SHORT else size

def by_itself(function: ptr, environment: ptr, count: i64, grain: i64):
    begin = 0
    size = first_chunk(count, grain)
    while True:
        end = min(begin + size, count)
        size = run_chunk(function, environment, begin, end, size, count)
        if end >= count or interrupted():
            return
        begin = end
"""
"""The functions, for a module that has `nanoseconds`."""
