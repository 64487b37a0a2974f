"""Whether a parallel loop goes by all hands or alone, as routines: the entry of the pool.

Whether a short loop gains by other hands depends on the machine and on where its data lies, so it is tried: each loop in the code has a
place of its own for what was found (`SITE`), where two calls alone and two together are timed, once the workers run, and the faster
way is taken from then on, until the number of iterations is another or some thousand calls have passed. Calls together are timed on:
where the workers sleep between them, as they did not while they were tried, the mean rises, and the loop goes alone. Longer loops are
not tried alone, those without such a place neither.
"""

from __future__ import annotations

SITE = "[4 x i64]"  # what a loop knows: for which iterations, calls since, nanoseconds alone, nanoseconds together
_LONG = 50_000  # nanoseconds together from which on a loop is never tried alone
_PERIOD = 4096  # calls after which it is tried again


TRIALS = {"LONG": _LONG, "LAST": _PERIOD - 1, "MOST": 2**63 - 1}
TRIED = """
def nanoseconds() -> i64:
    time = stack(i64, 2)
    clock_gettime(1, time)
    return time.i64[0] * 1000000000 + time.i64[1]

def te_parallel_for(function: ptr, environment: ptr, count: i64, grain: i64, site: ptr):
    if count <= 0 or interrupted():
        return
    if count <= grain or atomic_load(wanted, monotonic) == 0:
        by_itself(function, environment, count, grain)
        return
    if site == None:
        together(function, environment, count, grain)
        return
    key = count * 1000003 ^ grain
    calls = atomic_load(site.i64[1], monotonic)
    turn = calls if atomic_load(site.i64[0], monotonic) == key else 0
    atomic_store(site.i64[0], key, monotonic)
    atomic_store(site.i64[1], (turn + 1) & LAST, monotonic)
    if turn == 0:
        together(function, environment, count, grain)
        return
    alone = atomic_load(site.i64[2], monotonic)
    known = atomic_load(site.i64[3], monotonic)
    if turn > 4 and alone <= known:
        by_itself(function, environment, count, grain)
        return
    begin = nanoseconds()
    if turn == 2 or turn == 4:
        call(None, function, environment, i64(0), count)
        atomic_store(site.i64[2], min(nanoseconds() - begin, alone), monotonic)
        return
    together(function, environment, count, grain)
    took = nanoseconds() - begin
    if turn > 4:
        atomic_store(site.i64[3], known + (took - known >> 3), monotonic)
        return
    atomic_store(site.i64[3], took if turn == 1 else min(took, known), monotonic)
    if turn == 1:
        atomic_store(site.i64[2], MOST, monotonic)
        if took > LONG:
            atomic_store(site.i64[1], 5, monotonic)
"""
"""nanoseconds() and te_parallel_for(function, environment, count, grain, site), for a module that has `wanted` and `together`."""
