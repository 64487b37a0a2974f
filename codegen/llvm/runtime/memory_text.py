"""The memory of results as routines: blocks that are handed out, given back when their array dies, and handed out again.

New memory costs as much as many a kernel: the system clears every page of it at first touch. So blocks that come back are kept,
the latest on top, up to a bound in bytes; those kept longest go when it is passed. A block fits a request that is not much
smaller. In front of it stand 64 bytes that tell its capacity and what it is made of: pages mapped for it (of the large
kind, where the system has them to give) or the C library's memory. Blocks are aligned to 64 bytes, a whole vector. What is not kept goes
back to the system: blocks of the C library's memory, which leaves holes between those that live longer, are small ones only.

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
SLOTS = 512
_MAPPED = 128 << 10  # bytes from which pages are mapped
_PAGE, _LARGE_PAGE = 4096, 2 << 20
_BEGIN = _PAGE // 2  # where in its page a mapped block begins
_LIMIT = 1 << 46  # no process has more


VALUES = {
    "SLOTS": SLOTS,
    "BEGIN": _BEGIN,
    "AROUND": _BEGIN + _PAGE - 1,
    "MAPPED": _MAPPED,
    "LARGE": _LARGE_PAGE,
    "PAGE": _PAGE,
    "LIMIT": _LIMIT,
}


def memory_text(is_linux: bool) -> str:
    """te_memory_{take,give,bound,kept,reset} and the handler's te_memory_{malloc,calloc,realloc,free}, with the names of `VALUES`."""
    return _TEXT + (_MAPPED_PAGES if is_linux else _NO_PAGES)


_TEXT = """
kept: array(ptr, SLOTS)
capacities: array(i64, SLOTS)
kept_count: i64 = 0
kept_bytes: i64 = 0
bound: i64 = 0
lock: i32 = 0

def malloc(size: i64) -> ptr: ...
def free(block: ptr): ...

# In front of a block stand its capacity in bytes (-64), the bytes of pages mapped for it (-56; 0: none), where its memory begins (-48).
@alwaysinline
def described(block: ptr, capacity: i64, mapped: i64, raw: ptr) -> ptr:
    (block - 64).i64 = capacity
    (block - 56).i64 = mapped
    (block - 48).ptr = raw
    return block

@alwaysinline
def take_lock() -> i1:
    return atomic_exchange(lock, 0, 1, acquire, monotonic)

@alwaysinline
def unlock():
    atomic_store(lock, 0, release)

# Takes the block in a slot out of the list, under the lock.
def remove(slot: i64) -> ptr:
    block = kept.ptr[slot]
    kept_bytes = kept_bytes - capacities.i64[slot]
    kept_count = kept_count - 1
    k = slot
    while k < kept_count:
        kept.ptr[k] = kept.ptr[k + 1]
        capacities.i64[k] = capacities.i64[k + 1]
        k += 1
    return block

# Lets go of the blocks kept longest, under the lock, until there is a slot and not more than some bytes are kept.
def shrink(most: i64):
    while kept_count > 0 and (kept_count >= SLOTS or kept_bytes > most):
        release_block(remove(0))

# A block of at least `size` bytes, null where memory does not hold it.
def te_memory_take(size: i64) -> ptr:
    if ugt(size, LIMIT):
        return None
    if take_lock():
        most = size + lshr(size, 3) + PAGE
        k = kept_count
        while k > 0:
            k -= 1
            capacity = capacities.i64[k]
            if capacity >= size and capacity <= most:
                block = remove(k)
                unlock()
                return block
        unlock()
    fresh = new_block(size)
    if fresh == None and take_lock():
        # What is kept may be what is missing.
        shrink(-1)
        unlock()
        return new_block(size)
    return fresh

# Takes back a block (null: nothing).
def te_memory_give(block: ptr):
    if block == None:
        return
    capacity = (block - 64).i64
    if capacity > bound or not take_lock():
        release_block(block)
        return
    shrink(bound - capacity)
    kept.ptr[kept_count] = block
    capacities.i64[kept_count] = capacity
    kept_count = kept_count + 1
    kept_bytes = kept_bytes + capacity
    unlock()

# Sets how many bytes may be kept, and lets go of what is beyond.
def te_memory_bound(size: i64):
    bound = size
    if take_lock():
        shrink(size)
        unlock()

# Bytes that are kept now.
def te_memory_kept() -> i64:
    return kept_bytes

# In a child process: whoever held the lock is not here.
def te_memory_reset():
    unlock()

def te_memory_malloc(context: ptr, size: i64) -> ptr:
    return te_memory_take(size)

def te_memory_calloc(context: ptr, count: i64, each: i64) -> ptr:
    if each != 0 and ugt(count, udiv(i64(LIMIT), each)):
        return None
    block = te_memory_take(count * each)
    if block != None:
        memset(block, 0, count * each)
    return block

def te_memory_realloc(context: ptr, block: ptr, size: i64) -> ptr:
    larger = te_memory_take(size)
    if larger != None and block != None:
        memcpy(larger, block, umin((block - 64).i64, size))
        te_memory_give(block)
    return larger

def te_memory_free(context: ptr, block: ptr, size: i64):
    te_memory_give(block)

# A block of the C library's memory.
def plain(size: i64) -> ptr:
    capacity = size + 63 & -64
    raw = malloc(capacity + 128)
    return None if raw == None else described(ptr(i64(raw) + 127 & -64), capacity, 0, raw)
"""

_NO_PAGES = """
def new_block(size: i64) -> ptr:
    return plain(size)

def release_block(block: ptr):
    free((block - 48).ptr)
"""

# Linux: mmap(null, length, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0), madvise(..., HUGEPAGE).
_MAPPED_PAGES = """
def mmap(address: ptr, size: i64, protection: i32, flags: i32, file: i32, offset: i64) -> ptr: ...
def munmap(address: ptr, size: i64) -> i32: ...
def madvise(address: ptr, size: i64, advice: i32) -> i32: ...

def new_block(size: i64) -> ptr:
    if size < MAPPED:
        return plain(size)
    length = size + AROUND & -4096
    around = LARGE if length >= LARGE else 0
    raw = mmap(None, length + around, 3, 34, -1, 0)
    if i64(raw) == -1:
        return None
    if around == 0:
        return described(raw + BEGIN, length - BEGIN, length, raw)
    # Begins where a large page does: more is mapped than needed, and both ends go back.
    begin = ptr(i64(raw) + 2097151 & -2097152)
    before = i64(begin) - i64(raw)
    if before != 0:
        munmap(raw, before)
    munmap(begin + length, LARGE - before)
    madvise(begin, length, 14)
    return described(begin + BEGIN, length - BEGIN, length, begin)

def release_block(block: ptr):
    length = (block - 56).i64
    if length != 0:
        munmap((block - 48).ptr, length)
    else:
        free((block - 48).ptr)
"""
