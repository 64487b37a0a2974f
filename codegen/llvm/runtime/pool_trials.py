"""Whether a parallel loop goes by all hands or alone, as LLVM IR: the entry of the pool.

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


def trials_text() -> str:
    """te_parallel_for(function, environment, count, grain, site), for a module that has `wanted` and `together`."""
    text = _TRIED
    for word, value in {"LONG": _LONG, "LAST": _PERIOD - 1, "MOST": 2**63 - 1}.items():
        text = text.replace(word, str(value))
    return text


_TRIED = """
define internal i64 @nanoseconds() nounwind {
entry:
  %time = alloca [2 x i64], align 8
  %told = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %at, align 8
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}

define void @te_parallel_for(ptr %function, ptr %environment, i64 %count, i64 %grain, ptr %site) nounwind {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %look, label %exit
look:
  %stop = call i1 @interrupted()
  br i1 %stop, label %exit, label %size
size:
  %small = icmp sle i64 %count, %grain
  %want = load atomic i32, ptr @wanted monotonic, align 4
  %single = icmp eq i32 %want, 0
  %alone = or i1 %small, %single
  br i1 %alone, label %serial, label %several
several:
  %untried = icmp eq ptr %site, null
  br i1 %untried, label %shared, label %ask
serial:
  call void @by_itself(ptr %function, ptr %environment, i64 %count, i64 %grain)
  ret void
ask:
  %mixed = mul i64 %count, 1000003
  %key = xor i64 %mixed, %grain
  %calls.at = getelementptr i64, ptr %site, i64 1
  %alone.at = getelementptr i64, ptr %site, i64 2
  %together.at = getelementptr i64, ptr %site, i64 3
  %known = load atomic i64, ptr %site monotonic, align 8
  %calls = load atomic i64, ptr %calls.at monotonic, align 8
  %same = icmp eq i64 %known, %key
  %turn = select i1 %same, i64 %calls, i64 0
  %following = add i64 %turn, 1
  %next = and i64 %following, LAST
  store atomic i64 %key, ptr %site monotonic, align 8
  store atomic i64 %next, ptr %calls.at monotonic, align 8
  switch i64 %turn, label %decide [ i64 0, label %shared
                                    i64 1, label %timed.together
                                    i64 2, label %timed.alone
                                    i64 3, label %timed.together
                                    i64 4, label %timed.alone ]
decide:
  %a = load atomic i64, ptr %alone.at monotonic, align 8
  %t = load atomic i64, ptr %together.at monotonic, align 8
  %faster = icmp sle i64 %a, %t
  br i1 %faster, label %serial, label %followed
followed:
  %f.begin = call i64 @nanoseconds()
  call void @together(ptr %function, ptr %environment, i64 %count, i64 %grain)
  %f.end = call i64 @nanoseconds()
  %f.took = sub i64 %f.end, %f.begin
  %f.more = sub i64 %f.took, %t
  %f.eighth = ashr i64 %f.more, 3
  %f.mean = add i64 %t, %f.eighth
  store atomic i64 %f.mean, ptr %together.at monotonic, align 8
  ret void
shared:
  call void @together(ptr %function, ptr %environment, i64 %count, i64 %grain)
  ret void
timed.alone:
  %a.begin = call i64 @nanoseconds()
  call void %function(ptr %environment, i64 0, i64 %count)
  %a.end = call i64 @nanoseconds()
  %a.took = sub i64 %a.end, %a.begin
  %a.before = load atomic i64, ptr %alone.at monotonic, align 8
  %a.least = call i64 @llvm.smin.i64(i64 %a.took, i64 %a.before)
  store atomic i64 %a.least, ptr %alone.at monotonic, align 8
  ret void
timed.together:
  %t.begin = call i64 @nanoseconds()
  call void @together(ptr %function, ptr %environment, i64 %count, i64 %grain)
  %t.end = call i64 @nanoseconds()
  %t.took = sub i64 %t.end, %t.begin
  %first = icmp eq i64 %turn, 1
  %t.before = load atomic i64, ptr %together.at monotonic, align 8
  %t.known = select i1 %first, i64 MOST, i64 %t.before
  %t.least = call i64 @llvm.smin.i64(i64 %t.took, i64 %t.known)
  store atomic i64 %t.least, ptr %together.at monotonic, align 8
  br i1 %first, label %forget, label %exit
forget:
  store atomic i64 MOST, ptr %alone.at monotonic, align 8
  %long = icmp sgt i64 %t.took, LONG
  br i1 %long, label %settle, label %exit
settle:
  store atomic i64 5, ptr %calls.at monotonic, align 8
  br label %exit
exit:
  ret void
}
"""
