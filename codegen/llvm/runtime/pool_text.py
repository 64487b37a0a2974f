"""The thread pool as LLVM IR: no compiler and no run-time library is needed to have it.

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

from tensorexpr.codegen.llvm.runtime.pool_trials import trials_text
from tensorexpr.codegen.llvm.runtime.pool_watch import watch_text
from tensorexpr.codegen.llvm.text.machine import Machine

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


def pool_text(machine: Machine) -> str:
    """The module of the pool: te_parallel_for(function, environment, count, grain, site) and te_pool_{set,stop,reset,started}.

    Where there is no futex that we know of (not Linux, or another architecture) every loop runs on its caller.
    """
    number = _FUTEX.get(machine.architecture)
    if not machine.is_linux or number is None:
        return _SERIAL
    pause = _PAUSE[machine.architecture]
    words = {"FUTEX": number, "PAUSE": pause, "SPINS": _SPINS, "OPEN": _OPEN}
    text = _POOL
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text + watch_text() + trials_text()


_SERIAL = """define void @te_parallel_for(ptr %function, ptr %environment, i64 %count, i64 %grain, ptr %site) nounwind {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %go, label %exit
go:
  call void %function(ptr %environment, i64 0, i64 %count)
  br label %exit
exit:
  ret void
}
define void @te_watch_by(ptr %look) nounwind {
  ret void
}
define void @te_watch() nounwind {
  ret void
}
define i64 @te_watched() nounwind {
  ret i64 0
}
define void @te_watch_clear() nounwind {
  ret void
}
define void @te_pool_set(i32 %workers) nounwind {
  ret void
}
define void @te_pool_stop() nounwind {
  ret void
}
define void @te_pool_reset() nounwind {
  ret void
}
define i32 @te_pool_started() nounwind {
  ret i32 0
}
"""

_POOL = """@state = internal global i64 0, align 64
@next = internal global i64 0, align 64
@wake = internal global i32 0, align 64
@lock = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@stopping = internal global i32 0, align 64
@apart = internal global i32 -1, align 64
@all = internal global [128 x i8] zeroinitializer, align 64
@function = internal global ptr null, align 64
@environment = internal global ptr null, align 8
@count = internal global i64 0, align 8
@chunk = internal global i64 0, align 8
@wanted = internal global i32 0, align 64
@started = internal global i32 0, align 4
@threads = internal global [256 x i64] zeroinitializer, align 64
@cancelled = internal global i32 0, align 64
@grain = internal global i64 0, align 8

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)

define internal void @take_chunks(ptr %function, ptr %environment, i64 %count, i64 %chunk) nounwind {
entry:
  %grain = load i64, ptr @grain, align 8
  %first = call i64 @first_chunk(i64 %chunk, i64 %grain)
  br label %take
take:
  %size = phi i64 [ %first, %entry ], [ %following, %look ]
  %begin = atomicrmw add ptr @next, i64 %size monotonic, align 8
  %some = icmp slt i64 %begin, %count
  br i1 %some, label %run, label %exit
run:
  %reach = add i64 %begin, %size
  %end = call i64 @llvm.smin.i64(i64 %reach, i64 %count)
  %following = call i64 @run_chunk(ptr %function, ptr %environment, i64 %begin, i64 %end, i64 %size, i64 %chunk)
  %cut = load atomic i32, ptr @cancelled monotonic, align 4
  %ends = icmp ne i32 %cut, 0
  br i1 %ends, label %exit, label %look
look:
  %stop = call i1 @interrupted()
  br i1 %stop, label %cancel, label %take
cancel:
  store atomic i32 1, ptr @cancelled monotonic, align 4
  br label %exit
exit:
  ret void
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %generation, %work ], [ %seen, %slept ]
  br label %spin
spin:
  %turns = phi i64 [ 0, %idle ], [ %turned, %again ]
  %word = load atomic i64, ptr @state acquire, align 8
  %generation = lshr i64 %word, 32
  %new = icmp ne i64 %generation, %seen
  %bit = and i64 %word, OPEN
  %open = icmp ne i64 %bit, 0
  %ready = and i1 %new, %open
  br i1 %ready, label %enter, label %wait
enter:
  %entered = add i64 %word, 1
  %exchange = cmpxchg ptr @state, i64 %word, i64 %entered acq_rel acquire, align 8
  %in = extractvalue { i64, i1 } %exchange, 1
  br i1 %in, label %work, label %again
work:
  %f = load ptr, ptr @function, align 8
  %e = load ptr, ptr @environment, align 8
  %n = load i64, ptr @count, align 8
  %c = load i64, ptr @chunk, align 8
  call void @take_chunks(ptr %f, ptr %e, i64 %n, i64 %c)
  %left = atomicrmw sub ptr @state, i64 1 acq_rel, align 8
  br label %idle
wait:
  %stop = load atomic i32, ptr @stopping acquire, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %exit, label %pause
pause:
  PAUSE
  br label %again
again:
  %turned = add i64 %turns, 1
  %more = icmp slt i64 %turned, SPINS
  br i1 %more, label %spin, label %sleep
sleep:
  %ticket = load atomic i32, ptr @wake seq_cst, align 4
  %counted = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 4
  %look = load atomic i64, ptr @state seq_cst, align 8
  %look.generation = lshr i64 %look, 32
  %look.new = icmp ne i64 %look.generation, %seen
  %look.bit = and i64 %look, OPEN
  %look.open = icmp ne i64 %look.bit, 0
  %look.ready = and i1 %look.new, %look.open
  %look.stop = load atomic i32, ptr @stopping seq_cst, align 4
  %look.leave = icmp ne i32 %look.stop, 0
  %stay.up = or i1 %look.ready, %look.leave
  br i1 %stay.up, label %slept, label %doze
doze:
  %expected = zext i32 %ticket to i64
  %waited = call i64 (i64, ...) @syscall(i64 FUTEX, ptr @wake, i64 128, i64 %expected, ptr null, ptr null, i64 0)
  br label %slept
slept:
  %uncounted = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 4
  br label %idle
exit:
  ret ptr null
}

define internal void @keep_apart(i1 %fresh) nounwind noinline {
entry:
  %was = alloca [128 x i8], align 16
  %now = alloca [128 x i8], align 16
  %mask = alloca [128 x i8], align 16
  %cpu = call i32 @sched_getcpu()
  %before = load i32, ptr @apart, align 4
  %other = icmp ne i32 %cpu, %before
  %known = icmp ult i32 %cpu, 1024
  %due = or i1 %other, %fresh
  %needed = and i1 %due, %known
  br i1 %needed, label %ask, label %exit
ask:
  store i32 %cpu, ptr @apart, align 4
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %was, ptr align 16 @all, i64 128, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %now, ptr align 16 @all, i64 128, i1 false)
  call void @without(ptr %now, i32 %cpu)
  %first = icmp slt i32 %before, 0
  br i1 %first, label %begin, label %again
again:
  call void @without(ptr %was, i32 %before)
  br label %begin
begin:
  %had = load i1024, ptr %was, align 16
  %born = load i1024, ptr @all, align 16
  %workers = load i32, ptr @started, align 4
  br label %next
next:
  %at = phi i32 [ 0, %begin ], [ %on, %more ]
  %some = icmp slt i32 %at, %workers
  br i1 %some, label %each, label %exit
each:
  %slot = getelementptr i64, ptr @threads, i32 %at
  %thread = load i64, ptr %slot, align 8
  call void @llvm.memset.p0.i64(ptr align 16 %mask, i8 0, i64 128, i1 false)
  %code = call i32 @pthread_getaffinity_np(i64 %thread, i64 128, ptr %mask)
  %has = load i1024, ptr %mask, align 16
  %kept = icmp eq i1024 %has, %had
  %free = icmp eq i1024 %has, %born
  %ours = or i1 %kept, %free
  br i1 %ours, label %set, label %more
set:
  %done = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %now)
  br label %more
more:
  %on = add i32 %at, 1
  br label %next
exit:
  ret void
}

define internal void @without(ptr %mask, i32 %cpu) nounwind {
entry:
  %byte = lshr i32 %cpu, 3
  %slot = getelementptr i8, ptr %mask, i32 %byte
  %bits = load i8, ptr %slot, align 1
  %place = and i32 %cpu, 7
  %wide = shl i32 1, %place
  %bit = trunc i32 %wide to i8
  %others = xor i8 %bit, -1
  %rest = and i8 %bits, %others
  store i8 %rest, ptr %slot, align 1
  ret void
}

define internal void @start_workers() nounwind noinline {
entry:
  %signals = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr align 16 %signals, i8 -1, i64 128, i1 false)
  %blocked = call i32 @pthread_sigmask(i32 2, ptr %signals, ptr %old)
  %some = load i32, ptr @started, align 4
  %first = icmp eq i32 %some, 0
  br i1 %first, label %new, label %next
new:
  store i32 -1, ptr @apart, align 4
  call void @llvm.memset.p0.i64(ptr align 64 @all, i8 0, i64 128, i1 false)
  %size = call i32 @sched_getaffinity(i32 0, i64 128, ptr @all)
  br label %next
next:
  %have = load i32, ptr @started, align 4
  %want = load i32, ptr @wanted, align 4
  %few = icmp slt i32 %have, %want
  br i1 %few, label %make, label %exit
make:
  %place = sext i32 %have to i64
  %slot = getelementptr i64, ptr @threads, i64 %place
  %code = call i32 @pthread_create(ptr %slot, ptr null, ptr @worker, ptr null)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %made, label %refused
made:
  %more = add i32 %have, 1
  store i32 %more, ptr @started, align 4
  br label %next
refused:
  store i32 %have, ptr @wanted, align 4
  br label %exit
exit:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}

define internal void @together(ptr %function, ptr %environment, i64 %count, i64 %grain) nounwind noinline {
entry:
  br label %try
try:
  %exchange = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %mine, label %locked, label %serial
serial:
  call void @by_itself(ptr %function, ptr %environment, i64 %count, i64 %grain)
  ret void
locked:
  %have = load i32, ptr @started, align 4
  %wanted.now = load i32, ptr @wanted, align 4
  %missing = icmp slt i32 %have, %wanted.now
  br i1 %missing, label %start, label %publish
start:
  call void @start_workers()
  call void @keep_apart(i1 true)
  br label %publish
publish:
  %workers = load i32, ptr @started, align 4
  %hands = add i32 %workers, 1
  %hands.wide = sext i32 %hands to i64
  %pieces = mul i64 %hands.wide, 8
  %share = sdiv i64 %count, %pieces
  %chunk = call i64 @llvm.smax.i64(i64 %share, i64 %grain)
  store ptr %function, ptr @function, align 8
  store ptr %environment, ptr @environment, align 8
  store i64 %count, ptr @count, align 8
  store i64 %chunk, ptr @chunk, align 8
  store i64 %grain, ptr @grain, align 8
  store atomic i64 0, ptr @next monotonic, align 8
  store atomic i32 0, ptr @cancelled monotonic, align 4
  %word = load atomic i64, ptr @state monotonic, align 8
  %later = add i64 %word, 4294967296
  %opened = or i64 %later, OPEN
  store atomic i64 %opened, ptr @state seq_cst, align 8
  %bumped = atomicrmw add ptr @wake, i32 1 seq_cst, align 4
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %rouse, label %run
rouse:
  call void @keep_apart(i1 false)
  %least = sub i64 %count, 1
  %chunks = sdiv i64 %least, %chunk
  %useful = call i64 @llvm.smin.i64(i64 %chunks, i64 2147483647)
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr @wake, i64 129, i64 %useful, ptr null, ptr null, i64 0)
  br label %run
run:
  call void @take_chunks(ptr %function, ptr %environment, i64 %count, i64 %chunk)
  %closing = xor i64 OPEN, -1
  %closed = atomicrmw and ptr @state, i64 %closing acq_rel, align 8
  br label %join
join:
  %turns = phi i64 [ 0, %run ], [ %turned, %again ]
  %now = load atomic i64, ptr @state acquire, align 8
  %inside = and i64 %now, 65535
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %unlock, label %wait
wait:
  %patient = icmp slt i64 %turns, SPINS
  br i1 %patient, label %pause, label %yield
pause:
  PAUSE
  br label %again
yield:
  %yielded = call i32 @sched_yield()
  br label %again
again:
  %turned = add i64 %turns, 1
  br label %join
unlock:
  store atomic i32 0, ptr @lock release, align 4
  br label %exit
exit:
  ret void
}

define internal void @take_lock() nounwind {
entry:
  br label %try
try:
  %exchange = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %mine, label %exit, label %wait
wait:
  %yielded = call i32 @sched_yield()
  br label %try
exit:
  ret void
}

define internal void @stop_workers() nounwind {
entry:
  store atomic i32 1, ptr @stopping seq_cst, align 4
  %bumped = atomicrmw add ptr @wake, i32 1 seq_cst, align 4
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr @wake, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %next
next:
  %have = load i32, ptr @started, align 4
  %some = icmp sgt i32 %have, 0
  br i1 %some, label %join, label %exit
join:
  %last = sub i32 %have, 1
  %place = sext i32 %last to i64
  %slot = getelementptr i64, ptr @threads, i64 %place
  %thread = load i64, ptr %slot, align 8
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  store i32 %last, ptr @started, align 4
  br label %next
exit:
  store atomic i32 0, ptr @stopping seq_cst, align 4
  ret void
}

define void @te_pool_set(i32 %workers) nounwind {
entry:
  call void @take_lock()
  store atomic i32 %workers, ptr @wanted monotonic, align 4
  %have = load i32, ptr @started, align 4
  %many = icmp sgt i32 %have, %workers
  br i1 %many, label %stop, label %exit
stop:
  call void @stop_workers()
  br label %exit
exit:
  store atomic i32 0, ptr @lock release, align 4
  ret void
}

define void @te_pool_stop() nounwind {
entry:
  call void @take_lock()
  call void @stop_workers()
  store atomic i32 0, ptr @lock release, align 4
  ret void
}

define void @te_pool_reset() nounwind {
entry:
  store i32 0, ptr @started, align 4
  store i32 0, ptr @sleepers, align 4
  store i32 0, ptr @stopping, align 4
  store i64 0, ptr @state, align 8
  store atomic i32 0, ptr @lock seq_cst, align 4
  ret void
}

define i32 @te_pool_started() nounwind {
entry:
  %have = load atomic i32, ptr @started monotonic, align 4
  ret i32 %have
}
"""
