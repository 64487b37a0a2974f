"""The memory of results as LLVM IR: blocks that are handed out, given back when their array dies, and handed out again.

New memory costs as much as many a kernel: the system clears every page of it at first touch. So blocks that come back are kept,
the latest on top, up to a bound in bytes; those kept longest go when it is passed. A block fits a request that is not much
smaller. In front of it stand 64 bytes that tell its capacity and what it is made of: pages mapped for it (of the large
kind, where the system has them to give) or the C library's memory. Blocks are aligned to 64 bytes, a whole vector.

Blocks of mapped pages begin in the middle of a page. Processors compare loads with stores under way by the place in a page alone, and
a load waits for a store that seems to overlap it. Large arrays of other libraries begin right behind a page's start (16 bytes in the C
library, 64 in most others): were ours there as well, each load would wait for the store of the step before it (softmax takes 1.7 times
as long then on Zen 4).

The list is guarded by a lock that nobody waits for: who finds it taken goes to the system instead. So it can be used from any
thread, and a child that was forked while it was held does without until it is reset.

`te_memory_handler` has the signatures of NumPy's protocol of memory handlers (NEP 49), by which an array gives its memory back.
"""

from __future__ import annotations

SYMBOLS = ("mmap", "munmap", "madvise", "malloc", "free")
SLOTS = 64
_MAPPED = 1 << 20  # bytes from which pages are mapped
_PAGE, _LARGE_PAGE = 4096, 2 << 20
_BEGIN = _PAGE // 2  # where in its page a mapped block begins
_LIMIT = 1 << 46  # no process has more


def memory_text(is_linux: bool) -> str:
    """te_memory_{take,give,bound,kept,reset} and the handler's te_memory_{malloc,calloc,realloc,free}."""
    fresh = _FRESH_MAPPED if is_linux else _FRESH_PLAIN
    text = _TEXT + (fresh + _RELEASE_MAPPED if is_linux else fresh + _RELEASE_PLAIN)
    around = _BEGIN + _PAGE - 1
    values = {"SLOTS": SLOTS, "BEGIN": _BEGIN, "AROUND": around, "MAPPED": _MAPPED, "LARGE": _LARGE_PAGE, "PAGE": _PAGE, "LIMIT": _LIMIT}
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text


_TEXT = """
@te.kept = internal global [$SLOTS$ x ptr] zeroinitializer, align 64
@te.kept.count = internal global i64 0, align 8
@te.kept.bytes = internal global i64 0, align 8
@te.kept.bound = internal global i64 0, align 8
@te.kept.lock = internal global i32 0, align 4
declare ptr @malloc(i64)
declare void @free(ptr)

; Words in front of a block: its capacity in bytes, the bytes of pages mapped for it (0: none), where its memory begins.
define internal i64 @te.capacity(ptr %block) alwaysinline nounwind {
  %at = getelementptr i8, ptr %block, i64 -64
  %value = load i64, ptr %at, align 8
  ret i64 %value
}
define internal i64 @te.mapped(ptr %block) alwaysinline nounwind {
  %at = getelementptr i8, ptr %block, i64 -56
  %value = load i64, ptr %at, align 8
  ret i64 %value
}
define internal ptr @te.raw(ptr %block) alwaysinline nounwind {
  %at = getelementptr i8, ptr %block, i64 -48
  %value = load ptr, ptr %at, align 8
  ret ptr %value
}
define internal void @te.describe(ptr %block, i64 %capacity, i64 %mapped, ptr %raw) alwaysinline nounwind {
  %capacity.at = getelementptr i8, ptr %block, i64 -64
  store i64 %capacity, ptr %capacity.at, align 8
  %mapped.at = getelementptr i8, ptr %block, i64 -56
  store i64 %mapped, ptr %mapped.at, align 8
  %raw.at = getelementptr i8, ptr %block, i64 -48
  store ptr %raw, ptr %raw.at, align 8
  ret void
}

define internal i1 @te.lock() alwaysinline nounwind {
  %pair = cmpxchg ptr @te.kept.lock, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue { i32, i1 } %pair, 1
  ret i1 %mine
}
define internal void @te.unlock() alwaysinline nounwind {
  store atomic i32 0, ptr @te.kept.lock release, align 4
  ret void
}

; Takes the block in a slot out of the list, under the lock.
define internal ptr @te.remove(i64 %slot) nounwind {
entry:
  %at = getelementptr ptr, ptr @te.kept, i64 %slot
  %block = load ptr, ptr %at, align 8
  %capacity = call i64 @te.capacity(ptr %block)
  %bytes = load i64, ptr @te.kept.bytes, align 8
  %fewer = sub i64 %bytes, %capacity
  store i64 %fewer, ptr @te.kept.bytes, align 8
  %count = load i64, ptr @te.kept.count, align 8
  %last = sub i64 %count, 1
  store i64 %last, ptr @te.kept.count, align 8
  br label %next
next:
  %k = phi i64 [ %slot, %entry ], [ %k.next, %move ]
  %more = icmp slt i64 %k, %last
  br i1 %more, label %move, label %done
move:
  %k.next = add i64 %k, 1
  %from = getelementptr ptr, ptr @te.kept, i64 %k.next
  %to = getelementptr ptr, ptr @te.kept, i64 %k
  %moved = load ptr, ptr %from, align 8
  store ptr %moved, ptr %to, align 8
  br label %next
done:
  ret ptr %block
}

; Lets go of the blocks kept longest, under the lock, until there is a slot and not more than some bytes are kept.
define internal void @te.shrink(i64 %most) nounwind {
entry:
  br label %look
look:
  %count = load i64, ptr @te.kept.count, align 8
  %bytes = load i64, ptr @te.kept.bytes, align 8
  %some = icmp sgt i64 %count, 0
  %full = icmp sge i64 %count, $SLOTS$
  %much = icmp sgt i64 %bytes, %most
  %over = or i1 %full, %much
  %go = and i1 %some, %over
  br i1 %go, label %drop, label %done
drop:
  %block = call ptr @te.remove(i64 0)
  call void @te.release(ptr %block)
  br label %look
done:
  ret void
}

; A block of at least `size` bytes, null where memory does not hold it.
define ptr @te_memory_take(i64 %size) nounwind {
entry:
  %absurd = icmp ugt i64 %size, $LIMIT$
  br i1 %absurd, label %none, label %try
try:
  %locked = call i1 @te.lock()
  br i1 %locked, label %search, label %anew
search:
  %count = load i64, ptr @te.kept.count, align 8
  %eighth = lshr i64 %size, 3
  %slack = add i64 %eighth, $PAGE$
  %most = add i64 %size, %slack
  br label %next
next:
  %k = phi i64 [ %count, %search ], [ %slot, %look ]
  %more = icmp sgt i64 %k, 0
  br i1 %more, label %look, label %missed
look:
  %slot = sub i64 %k, 1
  %at = getelementptr ptr, ptr @te.kept, i64 %slot
  %candidate = load ptr, ptr %at, align 8
  %capacity = call i64 @te.capacity(ptr %candidate)
  %enough = icmp sge i64 %capacity, %size
  %near = icmp sle i64 %capacity, %most
  %fits = and i1 %enough, %near
  br i1 %fits, label %found, label %next
found:
  %block = call ptr @te.remove(i64 %slot)
  call void @te.unlock()
  ret ptr %block
missed:
  call void @te.unlock()
  br label %anew
anew:
  %fresh = call ptr @te.fresh(i64 %size)
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %relieve, label %made
relieve:
  ; What is kept may be what is missing.
  %again.locked = call i1 @te.lock()
  br i1 %again.locked, label %empty, label %none
empty:
  call void @te.shrink(i64 -1)
  call void @te.unlock()
  %again = call ptr @te.fresh(i64 %size)
  ret ptr %again
made:
  ret ptr %fresh
none:
  ret ptr null
}

; Takes back a block (null: nothing).
define void @te_memory_give(ptr %block) nounwind {
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %ask
ask:
  %capacity = call i64 @te.capacity(ptr %block)
  %bound = load i64, ptr @te.kept.bound, align 8
  %small = icmp sle i64 %capacity, %bound
  br i1 %small, label %try, label %drop
try:
  %locked = call i1 @te.lock()
  br i1 %locked, label %keep, label %drop
keep:
  %most = sub i64 %bound, %capacity
  call void @te.shrink(i64 %most)
  %count = load i64, ptr @te.kept.count, align 8
  %at = getelementptr ptr, ptr @te.kept, i64 %count
  store ptr %block, ptr %at, align 8
  %count.next = add i64 %count, 1
  store i64 %count.next, ptr @te.kept.count, align 8
  %bytes = load i64, ptr @te.kept.bytes, align 8
  %bytes.next = add i64 %bytes, %capacity
  store i64 %bytes.next, ptr @te.kept.bytes, align 8
  call void @te.unlock()
  ret void
drop:
  call void @te.release(ptr %block)
  br label %done
done:
  ret void
}

; Sets how many bytes may be kept, and lets go of what is beyond.
define void @te_memory_bound(i64 %bytes) nounwind {
entry:
  store i64 %bytes, ptr @te.kept.bound, align 8
  %locked = call i1 @te.lock()
  br i1 %locked, label %shrink, label %done
shrink:
  call void @te.shrink(i64 %bytes)
  call void @te.unlock()
  br label %done
done:
  ret void
}

; Bytes that are kept now.
define i64 @te_memory_kept() nounwind {
  %bytes = load i64, ptr @te.kept.bytes, align 8
  ret i64 %bytes
}

; In a child process: whoever held the lock is not here.
define void @te_memory_reset() nounwind {
  call void @te.unlock()
  ret void
}

define ptr @te_memory_malloc(ptr %context, i64 %size) nounwind {
  %block = call ptr @te_memory_take(i64 %size)
  ret ptr %block
}
define ptr @te_memory_calloc(ptr %context, i64 %count, i64 %each) nounwind {
entry:
  %pair = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue { i64, i1 } %pair, 0
  %beyond = extractvalue { i64, i1 } %pair, 1
  br i1 %beyond, label %none, label %take
take:
  %block = call ptr @te_memory_take(i64 %size)
  %refused = icmp eq ptr %block, null
  br i1 %refused, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %size, i1 false)
  ret ptr %block
none:
  ret ptr null
}
define ptr @te_memory_realloc(ptr %context, ptr %block, i64 %size) nounwind {
entry:
  %larger = call ptr @te_memory_take(i64 %size)
  %refused = icmp eq ptr %larger, null
  %nothing = icmp eq ptr %block, null
  %alone = or i1 %refused, %nothing
  br i1 %alone, label %done, label %move
move:
  %capacity = call i64 @te.capacity(ptr %block)
  %both = call i64 @llvm.umin.i64(i64 %capacity, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %larger, ptr %block, i64 %both, i1 false)
  call void @te_memory_give(ptr %block)
  br label %done
done:
  ret ptr %larger
}
define void @te_memory_free(ptr %context, ptr %block, i64 %size) nounwind {
  call void @te_memory_give(ptr %block)
  ret void
}

; A block of the C library's memory.
define internal ptr @te.plain(i64 %size) nounwind {
entry:
  %raised = add i64 %size, 63
  %capacity = and i64 %raised, -64
  %room = add i64 %capacity, 128
  %raw = call ptr @malloc(i64 %room)
  %refused = icmp eq ptr %raw, null
  br i1 %refused, label %none, label %made
made:
  %raw.word = ptrtoint ptr %raw to i64
  %behind = add i64 %raw.word, 127
  %aligned = and i64 %behind, -64
  %block = inttoptr i64 %aligned to ptr
  call void @te.describe(ptr %block, i64 %capacity, i64 0, ptr %raw)
  ret ptr %block
none:
  ret ptr null
}
"""

_FRESH_PLAIN = """
define internal ptr @te.fresh(i64 %size) nounwind {
  %block = call ptr @te.plain(i64 %size)
  ret ptr %block
}
"""

_RELEASE_PLAIN = """
define internal void @te.release(ptr %block) nounwind {
  %raw = call ptr @te.raw(ptr %block)
  call void @free(ptr %raw)
  ret void
}
"""

# Linux: mmap(null, length, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0), madvise(..., HUGEPAGE).
_FRESH_MAPPED = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)

define internal ptr @te.fresh(i64 %size) nounwind {
entry:
  %large = icmp sge i64 %size, $MAPPED$
  br i1 %large, label %map, label %plain
plain:
  %small = call ptr @te.plain(i64 %size)
  ret ptr %small
map:
  ; Begins where a large page does: more is mapped than needed, and both ends go back.
  %with.header = add i64 %size, $AROUND$
  %length = and i64 %with.header, -4096
  %reserved = add i64 %length, $LARGE$
  %raw = call ptr @mmap(ptr null, i64 %reserved, i32 3, i32 34, i32 -1, i64 0)
  %raw.word = ptrtoint ptr %raw to i64
  %refused = icmp eq i64 %raw.word, -1
  br i1 %refused, label %none, label %trim
trim:
  %raised = add i64 %raw.word, 2097151
  %begin.word = and i64 %raised, -2097152
  %begin = inttoptr i64 %begin.word to ptr
  %before = sub i64 %begin.word, %raw.word
  %some.before = icmp ne i64 %before, 0
  br i1 %some.before, label %trim.before, label %trim.after
trim.before:
  %unused.before = call i32 @munmap(ptr %raw, i64 %before)
  br label %trim.after
trim.after:
  %end.word = add i64 %begin.word, %length
  %end = inttoptr i64 %end.word to ptr
  %after = sub i64 $LARGE$, %before
  %unused.after = call i32 @munmap(ptr %end, i64 %after)
  %unused.advice = call i32 @madvise(ptr %begin, i64 %length, i32 14)
  %block = getelementptr i8, ptr %begin, i64 $BEGIN$
  %capacity = sub i64 %length, $BEGIN$
  call void @te.describe(ptr %block, i64 %capacity, i64 %length, ptr %begin)
  ret ptr %block
none:
  ret ptr null
}
"""

_RELEASE_MAPPED = """
define internal void @te.release(ptr %block) nounwind {
entry:
  %raw = call ptr @te.raw(ptr %block)
  %length = call i64 @te.mapped(ptr %block)
  %pages = icmp ne i64 %length, 0
  br i1 %pages, label %unmap, label %free
unmap:
  %unused = call i32 @munmap(ptr %raw, i64 %length)
  ret void
free:
  call void @free(ptr %raw)
  ret void
}
"""
