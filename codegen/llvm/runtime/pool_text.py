"""The thread pool as routines: no compiler and no run-time library is needed to have it.

One 64-bit word tells all: generation (high half), an open bit, and how many workers are inside. A caller takes the lock if
it is free (if not, it is nested or another thread is at it: then it runs its loop alone), publishes the job, opens a new
generation, wakes sleepers if there are any, takes chunks itself, closes, and waits for those workers that entered. A
worker that comes late finds the word closed and costs nobody anything. Workers spin for some microseconds, then sleep on
a futex. The order of the three sequentially consistent steps (caller: open, bump `wake`, look for sleepers; worker: read
`wake`, count as sleeper, look at the word again) makes a lost wake-up impossible.

A worker that is woken on its caller's CPU (where the system puts it when it shares no cache with an idle one) could only take
turns with it, and does not run before the caller has had its time slice, some milliseconds. So who wakes workers first keeps them off
the CPU it is on: they may use all those with which they were started but that one. It takes system calls only where the caller is on
another CPU than the last time. A worker that was given other CPUs by somebody else is left alone.

A run of the main thread may be watched (`interrupts`): between chunks it calls back from time to time, and where that says so, the job
is cancelled: nobody takes further chunks, and all loops of this run end at once until `te_watch_clear`.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.runtime.pool_trials import TRIALS, TRIED
from tensorexpr.codegen.llvm.runtime.pool_watch import WATCH, WATCHED
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.llvm.text.routines import Routines

SYMBOLS = (
    "pthread_create",
    "pthread_self",
    "pthread_join",
    "pthread_sigmask",
    "pthread_getaffinity_np",
    "pthread_setaffinity_np",
    "sched_yield",
    "sched_getcpu",
    "sched_getaffinity",
    "syscall",
    "clock_gettime",
)
LIMIT = 256  # workers
_SPINS = 3000  # pauses before a worker goes to sleep
_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_OPEN = 1 << 16
_FOREVER = (1 << 31) - 1  # sleepers woken at most
_CPUS = 1024  # that a mask of the system has


def pool_routines(machine: Machine, more: str = "") -> Routines:
    """The module of the pool: te_parallel_for(function, environment, count, grain, site) and te_pool_{set,stop,reset,started}; with `more`
    functions.

    Where there is no futex that we know of (not Linux, or another architecture) every loop runs on its caller.
    """
    number = _FUTEX.get(machine.architecture)
    values = {"LIMIT": LIMIT}
    if not machine.is_linux or number is None:
        return Routines(_SERIAL + more, values)
    words: dict[str, int | str] = {
        "FUTEX": number,
        "PAUSE": _PAUSE[machine.architecture],
        "SPINS": _SPINS,
        "OPEN": _OPEN,
        "ALL": _FOREVER,
        "CPUS": _CPUS,
    }
    return Routines(_POOL + WATCHED + TRIED + more, {**values, **words, **WATCH, **TRIALS})


_SERIAL = """
def te_parallel_for(function: ptr, environment: ptr, count: i64, grain: i64, site: ptr):
    if count > 0:
        call(None, function, environment, i64(0), count)

def te_watch_by(look: ptr):
    return
def te_watch():
    return
def te_watched() -> i64:
    return 0
def te_watch_clear():
    return
def te_pool_set(workers: i32):
    return
def te_pool_stop():
    return
def te_pool_reset():
    return
def te_pool_started() -> i32:
    return 0
"""

_POOL = """
state: line(i64) = 0
next: line(i64) = 0
wake: line(i32) = 0
lock: line(i32) = 0
sleepers: line(i32) = 0
stopping: line(i32) = 0
apart: line(i32) = -1
born: array(i8, 128)
job: line(ptr) = None
job_environment: ptr = None
job_count: i64 = 0
job_chunk: i64 = 0
job_grain: i64 = 0
wanted: line(i32) = 0
started: i32 = 0
threads: array(i64, LIMIT)
cancelled: line(i32) = 0

def pthread_create(thread: ptr, attributes: ptr, function: ptr, argument: ptr) -> i32: ...
def pthread_join(thread: i64, result: ptr) -> i32: ...
def pthread_sigmask(how: i32, signals: ptr, old: ptr) -> i32: ...
def pthread_getaffinity_np(thread: i64, size: i64, mask: ptr) -> i32: ...
def pthread_setaffinity_np(thread: i64, size: i64, mask: ptr) -> i32: ...
def sched_yield() -> i32: ...
def sched_getcpu() -> i32: ...
def sched_getaffinity(thread: i32, size: i64, mask: ptr) -> i32: ...
def syscall(number: i64, *arguments) -> i64: ...
def clock_gettime(clock: i32, time: ptr) -> i32: ...

def take_chunks(function: ptr, environment: ptr, count: i64, chunk: i64):
    size = first_chunk(chunk, job_grain)
    while True:
        begin = atomic_add(next, size, monotonic)
        if begin >= count:
            return
        size = run_chunk(function, environment, begin, min(begin + size, count), size, chunk)
        if atomic_load(cancelled, monotonic) != 0:
            return
        if interrupted():
            atomic_store(cancelled, 1, monotonic)
            return

# Whether a state is an open job of another generation.
@alwaysinline
def is_new(word: i64, seen: i64) -> i1:
    return lshr(word, 32) != seen and word & OPEN != 0

def worker(argument: ptr) -> ptr:
    seen = 0
    turns = 0
    while True:
        word = atomic_load(state, acquire)
        if is_new(word, seen):
            if atomic_exchange(state, word, word + 1, acq_rel, acquire):
                seen = lshr(word, 32)
                take_chunks(job, job_environment, job_count, job_chunk)
                atomic_sub(state, 1, acq_rel)
                turns = 0
                continue
        elif atomic_load(stopping, acquire) != 0:
            return None
        else:
            ir(PAUSE)
        turns += 1
        if turns >= SPINS:
            ticket = atomic_load(wake, seq_cst)
            atomic_add(sleepers, 1, seq_cst)
            stays = is_new(atomic_load(state, seq_cst), seen)
            if atomic_load(stopping, seq_cst) == 0 and not stays:
                syscall(FUTEX, at(wake), i64(128), u64(ticket), None, None, i64(0))
            atomic_sub(sleepers, 1, seq_cst)
            turns = 0

@noinline
def keep_apart(fresh: i1):
    cpu = sched_getcpu()
    before = apart
    if not (cpu != before or fresh) or uge(cpu, CPUS):
        return
    apart = cpu
    was = stack(i1024, 1)
    now = stack(i1024, 1)
    mask = stack(i1024, 1)
    memcpy(was, born, 128)
    memcpy(now, born, 128)
    without(now, cpu)
    if before >= 0:
        without(was, before)
    for k in range(started):
        thread = threads.i64[k]
        memset(mask, 0, 128)
        pthread_getaffinity_np(thread, 128, mask)
        if mask.i1024 == was.i1024 or mask.i1024 == born.i1024:
            pthread_setaffinity_np(thread, 128, now)

def without(mask: ptr, cpu: i32):
    mask.i8[lshr(cpu, 3)] = mask.i8[lshr(cpu, 3)] & ~i8(i32(1) << (cpu & 7))

@noinline
def start_workers():
    signals = stack(i1024, 1)
    old = stack(i1024, 1)
    memset(signals, -1, 128)
    pthread_sigmask(2, signals, old)
    if started == 0:
        apart = -1
        memset(born, 0, 128)
        sched_getaffinity(0, 128, born)
    while started < wanted:
        have = started
        if pthread_create(threads + 8 * i64(have), None, worker, None) == 0:
            started = have + 1
        else:
            wanted = have
    pthread_sigmask(2, old, None)

@noinline
def together(function: ptr, environment: ptr, count: i64, grain: i64):
    if not atomic_exchange(lock, 0, 1, acquire, monotonic):
        by_itself(function, environment, count, grain)
        return
    if started < wanted:
        start_workers()
        keep_apart(True)
    chunk = max(count // (8 * (i64(started) + 1)), grain)
    job = function
    job_environment = environment
    job_count = count
    job_chunk = chunk
    job_grain = grain
    atomic_store(next, 0, monotonic)
    atomic_store(cancelled, 0, monotonic)
    atomic_store(state, (atomic_load(state, monotonic) + 4294967296) | OPEN, seq_cst)
    atomic_add(wake, 1, seq_cst)
    if atomic_load(sleepers, seq_cst) != 0:
        keep_apart(False)
        syscall(FUTEX, at(wake), i64(129), min((count - 1) // chunk, ALL), None, None, i64(0))
    take_chunks(function, environment, count, chunk)
    atomic_and(state, ~OPEN, acq_rel)
    turns = 0
    while atomic_load(state, acquire) & 65535 != 0:
        if turns < SPINS:
            ir(PAUSE)
        else:
            sched_yield()
        turns += 1
    atomic_store(lock, 0, release)

def take_lock():
    while not atomic_exchange(lock, 0, 1, acquire, monotonic):
        sched_yield()

def stop_workers():
    atomic_store(stopping, 1, seq_cst)
    atomic_add(wake, 1, seq_cst)
    syscall(FUTEX, at(wake), i64(129), i64(ALL), None, None, i64(0))
    while started > 0:
        last = started - 1
        pthread_join(threads.i64[last], None)
        started = last
    atomic_store(stopping, 0, seq_cst)

def te_pool_set(workers: i32):
    take_lock()
    atomic_store(wanted, workers, monotonic)
    if started > workers:
        stop_workers()
    atomic_store(lock, 0, release)

def te_pool_stop():
    take_lock()
    stop_workers()
    atomic_store(lock, 0, release)

def te_pool_reset():
    started = 0
    sleepers = 0
    stopping = 0
    state = 0
    atomic_store(lock, 0, seq_cst)

def te_pool_started() -> i32:
    return atomic_load(started, monotonic)
"""
