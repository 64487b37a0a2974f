"""Runs of the main thread that can be interrupted, as LLVM IR: a part of the pool (`interrupts` says what for).

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


def watch_text() -> str:
    """The functions, for a module that has `nanoseconds`."""
    return _WATCH.replace("PERIOD", str(PERIOD)).replace("SHARE", str(SHARE)).replace("SHORT", str(SHORT))


_WATCH = """
@watch.look = internal global ptr null, align 8
@watch.main = internal global i64 0, align 8
@watch.on = internal global i32 0, align 64
@watch.hit = internal global i32 0, align 4
@watch.last = internal global i64 0, align 8

declare i64 @pthread_self()

define void @te_watch_by(ptr %look) nounwind {
entry:
  %self = call i64 @pthread_self()
  store i64 %self, ptr @watch.main, align 8
  store ptr %look, ptr @watch.look, align 8
  store atomic i32 0, ptr @watch.hit seq_cst, align 4
  store atomic i32 0, ptr @watch.on seq_cst, align 4
  ret void
}

define void @te_watch() nounwind {
entry:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @watch.main, align 8
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %go, label %exit
go:
  %now = call i64 @nanoseconds()
  store i64 %now, ptr @watch.last, align 8
  store atomic i32 1, ptr @watch.on monotonic, align 4
  br label %exit
exit:
  ret void
}

define i64 @te_watched() nounwind {
entry:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @watch.main, align 8
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %go, label %no
go:
  store atomic i32 0, ptr @watch.on monotonic, align 4
  %hit = load atomic i32, ptr @watch.hit monotonic, align 4
  %wide = zext i32 %hit to i64
  ret i64 %wide
no:
  ret i64 0
}

define void @te_watch_clear() nounwind {
entry:
  store atomic i32 0, ptr @watch.hit seq_cst, align 4
  ret void
}

define internal i1 @interrupted() nounwind {
entry:
  %on = load atomic i32, ptr @watch.on monotonic, align 4
  %watched = icmp ne i32 %on, 0
  br i1 %watched, label %whose, label %no
whose:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @watch.main, align 8
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %known, label %no
known:
  %hit = load atomic i32, ptr @watch.hit monotonic, align 4
  %over = icmp ne i32 %hit, 0
  br i1 %over, label %yes, label %time
time:
  %now = call i64 @nanoseconds()
  %last = load i64, ptr @watch.last, align 8
  %past = sub i64 %now, %last
  %due = icmp sgt i64 %past, PERIOD
  br i1 %due, label %ask, label %no
ask:
  %look = load ptr, ptr @watch.look, align 8
  %said = call i32 %look()
  %after = call i64 @nanoseconds()
  store i64 %after, ptr @watch.last, align 8
  %end = icmp ne i32 %said, 0
  br i1 %end, label %note, label %no
note:
  store atomic i32 1, ptr @watch.hit monotonic, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i64 @first_chunk(i64 %chunk, i64 %grain) nounwind {
entry:
  %on = load atomic i32, ptr @watch.on monotonic, align 4
  %watched = icmp ne i32 %on, 0
  %share = sdiv i64 %chunk, SHARE
  %least = call i64 @llvm.smax.i64(i64 %share, i64 %grain)
  %small = call i64 @llvm.smin.i64(i64 %chunk, i64 %least)
  %first = select i1 %watched, i64 %small, i64 %chunk
  ret i64 %first
}

define internal i64 @run_chunk(ptr %function, ptr %environment, i64 %begin, i64 %end, i64 %size, i64 %most) nounwind {
entry:
  %grows = icmp slt i64 %size, %most
  br i1 %grows, label %timed, label %plain
plain:
  call void %function(ptr %environment, i64 %begin, i64 %end)
  ret i64 %size
timed:
  %before = call i64 @nanoseconds()
  call void %function(ptr %environment, i64 %begin, i64 %end)
  %after = call i64 @nanoseconds()
  %took = sub i64 %after, %before
  %quick = icmp slt i64 %took, SHORT
  %double = shl i64 %size, 1
  %larger = call i64 @llvm.smin.i64(i64 %double, i64 %most)
  %following = select i1 %quick, i64 %larger, i64 %size
  ret i64 %following
}

define internal void @by_itself(ptr %function, ptr %environment, i64 %count, i64 %grain) nounwind {
entry:
  %first = call i64 @first_chunk(i64 %count, i64 %grain)
  br label %next
next:
  %begin = phi i64 [ 0, %entry ], [ %end, %more ]
  %size = phi i64 [ %first, %entry ], [ %following, %more ]
  %reach = add i64 %begin, %size
  %end = call i64 @llvm.smin.i64(i64 %reach, i64 %count)
  %following = call i64 @run_chunk(ptr %function, ptr %environment, i64 %begin, i64 %end, i64 %size, i64 %count)
  %left = icmp slt i64 %end, %count
  br i1 %left, label %look, label %exit
look:
  %stop = call i1 @interrupted()
  br i1 %stop, label %exit, label %more
more:
  br label %next
exit:
  ret void
}
"""
