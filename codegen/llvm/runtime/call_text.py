"""The call path from Python as LLVM IR: one function that every compiled function of this process is called through.

It has CPython's vectorcall signature. It reads a table of 64-bit words (see `call`) that says what the callable takes and gives,
compares every argument with it by loads from the array objects (type, dtype, rank, flags, extents; for `out` also that it may be
written and overlaps no input), allocates results, takes workspace, and enters the kernel, without the interpreter's lock where
the kernel is long. Arguments that do not match are compared with the next table, one per signature; what matches none is handed
to the callable's method `call`, in Python, which copies, converts or refuses. Nothing has happened by then.

Small results are NumPy's, large ones arrays around a block of `memory_text`, to which the array gives it back: it owns its data,
with our memory handler in its field. Small workspace is one block per callable that is kept between calls, large workspace
a block for this call.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.runtime.memory_text import memory_text
from tensorexpr.records import record

SYMBOLS = (
    "Py_IncRef",
    "Py_DecRef",
    "PyObject_GetAttr",
    "PyObject_Vectorcall",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyErr_Clear",
    "PyErr_NoMemory",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyMem_RawMalloc",
    "PyMem_RawFree",
)


@record
class Layouts:
    """Where things lie in memory, in bytes, found and proved by `call`: fields of array objects, tuples and callables."""

    type: int
    data: int
    rank: int
    extents: int
    descr: int
    flags: int
    handler: int
    tuple_size: int
    tuple_items: int
    table: int


WORDS = (
    "entry", "inputs", "outputs", "single", "release", "workspace", "block", "constants", "pointers", "sizes", "arguments", "order", "next",
)  # fmt: skip
ARGUMENT_WORDS = ("descr", "rank", "bytes", "extents")


def call_text(layouts: Layouts, triple: str, pooled: int) -> str:
    """The module: `te_call` and `te_array`, beside the functions of `memory_text`; blocks of ours begin at `pooled` bytes."""
    values = {name.upper(): str(getattr(layouts, name)) for name in Layouts.__match_args__}
    values |= {f"AT_{name.upper()}": str(8 * position) for position, name in enumerate(WORDS)}
    values |= {f"OF_{name.upper()}": str(8 * position) for position, name in enumerate(ARGUMENT_WORDS)}
    values["POOLED"] = str(pooled)
    text = _TEXT
    for name in sorted(values, key=len, reverse=True):
        text = text.replace(f"${name}$", values[name])
    return f'target triple = "{triple}"\n{memory_text("linux" in triple)}{text}'


_TEXT = """
@te_ndarray = external constant i8
@te_out = external constant i8
@te_call_name = external constant i8
@te_none = external constant i8
@te_handler = external constant i8
declare ptr @te_new_array(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare void @te_watch()
declare i64 @te_watched()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyMem_RawMalloc(i64)
declare void @PyMem_RawFree(ptr)

; The word at a byte offset.
define internal i64 @word(ptr %base, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; Whether an array is as a row of the table says; READY is C-contiguous and aligned, and for results writeable.
define internal i1 @fits(ptr %array, ptr %row, i32 %ready) alwaysinline nounwind {
entry:
  %type = call i64 @word(ptr %array, i64 $TYPE$)
  %type.good = icmp eq i64 %type, ptrtoint (ptr @te_ndarray to i64)
  br i1 %type.good, label %array.known, label %bad
array.known:
  %descr = call i64 @word(ptr %array, i64 $DESCR$)
  %wanted = call i64 @word(ptr %row, i64 $OF_DESCR$)
  %descr.good = icmp eq i64 %descr, %wanted
  %rank.at = getelementptr i8, ptr %array, i64 $RANK$
  %rank32 = load i32, ptr %rank.at, align 4
  %rank = sext i32 %rank32 to i64
  %rank.wanted = call i64 @word(ptr %row, i64 $OF_RANK$)
  %rank.good = icmp eq i64 %rank, %rank.wanted
  %flags.at = getelementptr i8, ptr %array, i64 $FLAGS$
  %flags = load i32, ptr %flags.at, align 4
  %flags.set = and i32 %flags, %ready
  %flags.good = icmp eq i32 %flags.set, %ready
  %both = and i1 %descr.good, %rank.good
  %all = and i1 %both, %flags.good
  br i1 %all, label %extents, label %bad
extents:
  %mine.word = call i64 @word(ptr %array, i64 $EXTENTS$)
  %mine = inttoptr i64 %mine.word to ptr
  %theirs.word = call i64 @word(ptr %row, i64 $OF_EXTENTS$)
  %theirs = inttoptr i64 %theirs.word to ptr
  br label %axis
axis:
  %k = phi i64 [ 0, %extents ], [ %k.next, %compare ]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %compare, label %good
compare:
  %byte = shl i64 %k, 3
  %one = call i64 @word(ptr %mine, i64 %byte)
  %other = call i64 @word(ptr %theirs, i64 %byte)
  %same = icmp eq i64 %one, %other
  %k.next = add i64 %k, 1
  br i1 %same, label %axis, label %bad
good:
  ret i1 true
bad:
  ret i1 false
}

; A new array around a block of ours: null, with Python's error set, where memory does not hold it.
define ptr @te_array(ptr %descr, i32 %rank, ptr %extents, i64 %bytes) {
entry:
  %block = call ptr @te_memory_take(i64 %bytes)
  %refused = icmp eq ptr %block, null
  br i1 %refused, label %refuse, label %make
refuse:
  %error = call ptr @PyErr_NoMemory()
  br label %none
make:
  call void @Py_IncRef(ptr %descr)
  ; C-contiguous, aligned, writeable
  %array = call ptr @te_new_array(ptr @te_ndarray, ptr %descr, i32 %rank, ptr %extents, ptr null, ptr %block, i32 1281, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %back, label %own
own:
  %flags.at = getelementptr i8, ptr %array, i64 $FLAGS$
  %flags = load i32, ptr %flags.at, align 4
  %flags.owner = or i32 %flags, 4
  store i32 %flags.owner, ptr %flags.at, align 4
  call void @Py_IncRef(ptr @te_handler)
  %handler.at = getelementptr i8, ptr %array, i64 $HANDLER$
  store ptr @te_handler, ptr %handler.at, align 8
  ret ptr %array
back:
  call void @te_memory_give(ptr %block)
  br label %none
none:
  ret ptr null
}

define internal ptr @slow(ptr %self, ptr %arguments, i64 %count, ptr %names) noinline {
entry:
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr @te_call_name)
  %none = icmp eq ptr %method, null
  br i1 %none, label %failed, label %go
go:
  ; Without the flag that would let the callee write into the slot before the arguments.
  %plain = and i64 %count, 9223372036854775807
  %result = call ptr @PyObject_Vectorcall(ptr %method, ptr %arguments, i64 %plain, ptr %names)
  call void @Py_DecRef(ptr %method)
  ret ptr %result
failed:
  ret ptr null
}

define ptr @te_call(ptr %self, ptr %arguments, i64 %count.flagged, ptr %names) {
start:
  %table.first = call i64 @word(ptr %self, i64 $TABLE$)
  br label %entry
entry:
  %table.word = phi i64 [ %table.first, %start ], [ %table.next, %other ]
  %table = inttoptr i64 %table.word to ptr
  %count = and i64 %count.flagged, 9223372036854775807
  %inputs = call i64 @word(ptr %table, i64 $AT_INPUTS$)
  %outputs = call i64 @word(ptr %table, i64 $AT_OUTPUTS$)
  %constants = call i64 @word(ptr %table, i64 $AT_CONSTANTS$)
  %rows.word = call i64 @word(ptr %table, i64 $AT_ARGUMENTS$)
  %rows = inttoptr i64 %rows.word to ptr
  %order.word = call i64 @word(ptr %table, i64 $AT_ORDER$)
  %order = inttoptr i64 %order.word to ptr
  %single = call i64 @word(ptr %table, i64 $AT_SINGLE$)
  %count.good = icmp eq i64 %count, %inputs
  br i1 %count.good, label %prepare, label %other

prepare:
  %some = add i64 %inputs, %outputs
  %buffers.count = add i64 %some, %constants
  %buffers = alloca ptr, i64 %buffers.count, align 8
  %results = alloca ptr, i64 %outputs, align 8
  %error = alloca [2 x i64], align 8
  br label %input

input:
  %i = phi i64 [ 0, %prepare ], [ %i.next, %input.good ]
  %i.more = icmp slt i64 %i, %inputs
  br i1 %i.more, label %input.check, label %named
input.check:
  %i.place.byte = shl i64 %i, 3
  %i.place = call i64 @word(ptr %order, i64 %i.place.byte)
  %i.at = getelementptr ptr, ptr %arguments, i64 %i.place
  %array = load ptr, ptr %i.at, align 8
  %i.row = getelementptr [4 x i64], ptr %rows, i64 %i.place
  %i.fits = call i1 @fits(ptr %array, ptr %i.row, i32 257)
  br i1 %i.fits, label %input.good, label %other
input.good:
  %data = call i64 @word(ptr %array, i64 $DATA$)
  %i.slot = getelementptr ptr, ptr %buffers, i64 %i
  store i64 %data, ptr %i.slot, align 8
  %i.next = add i64 %i, 1
  br label %input

named:
  %bare = icmp eq ptr %names, null
  br i1 %bare, label %allocate, label %keyword
keyword:
  %names.count = call i64 @word(ptr %names, i64 $TUPLE_SIZE$)
  %one.name = icmp eq i64 %names.count, 1
  %is.single = icmp ne i64 %single, 0
  %could = and i1 %one.name, %is.single
  br i1 %could, label %keyword.name, label %other
keyword.name:
  %name = call i64 @word(ptr %names, i64 $TUPLE_ITEMS$)
  %is.out = icmp eq i64 %name, ptrtoint (ptr @te_out to i64)
  br i1 %is.out, label %given, label %other
given:
  %out.at = getelementptr ptr, ptr %arguments, i64 %inputs
  %out = load ptr, ptr %out.at, align 8
  %out.none = icmp eq ptr %out, @te_none
  br i1 %out.none, label %allocate, label %given.array
given.array:
  %out.row = getelementptr [4 x i64], ptr %rows, i64 %inputs
  %out.fits = call i1 @fits(ptr %out, ptr %out.row, i32 1281)
  br i1 %out.fits, label %given.good, label %other
given.good:
  %out.data = call i64 @word(ptr %out, i64 $DATA$)
  %out.bytes = call i64 @word(ptr %out.row, i64 $OF_BYTES$)
  %out.end = add i64 %out.data, %out.bytes
  br label %overlap
overlap:
  %v = phi i64 [ 0, %given.good ], [ %v.next, %overlap.check ]
  %v.more = icmp slt i64 %v, %inputs
  br i1 %v.more, label %overlap.check, label %given.done
overlap.check:
  %v.slot = getelementptr ptr, ptr %buffers, i64 %v
  %v.data = load i64, ptr %v.slot, align 8
  %v.place.byte = shl i64 %v, 3
  %v.place = call i64 @word(ptr %order, i64 %v.place.byte)
  %v.row = getelementptr [4 x i64], ptr %rows, i64 %v.place
  %v.bytes = call i64 @word(ptr %v.row, i64 $OF_BYTES$)
  %v.end = add i64 %v.data, %v.bytes
  %v.before = icmp ult i64 %v.data, %out.end
  %v.after = icmp ult i64 %out.data, %v.end
  %v.meets = and i1 %v.before, %v.after
  %v.next = add i64 %v, 1
  br i1 %v.meets, label %other, label %overlap
given.done:
  store ptr %out, ptr %results, align 8
  call void @Py_IncRef(ptr %out)
  br label %link

allocate:
  %a = phi i64 [ 0, %named ], [ 0, %given ], [ %a.next, %allocate.good ]
  %a.more = icmp slt i64 %a, %outputs
  br i1 %a.more, label %allocate.one, label %link
allocate.one:
  %a.row.number = add i64 %a, %inputs
  %a.row = getelementptr [4 x i64], ptr %rows, i64 %a.row.number
  %a.descr.word = call i64 @word(ptr %a.row, i64 $OF_DESCR$)
  %a.descr = inttoptr i64 %a.descr.word to ptr
  %a.rank64 = call i64 @word(ptr %a.row, i64 $OF_RANK$)
  %a.rank = trunc i64 %a.rank64 to i32
  %a.extents.word = call i64 @word(ptr %a.row, i64 $OF_EXTENTS$)
  %a.extents = inttoptr i64 %a.extents.word to ptr
  %a.bytes = call i64 @word(ptr %a.row, i64 $OF_BYTES$)
  %a.pooled = icmp sge i64 %a.bytes, $POOLED$
  br i1 %a.pooled, label %allocate.block, label %allocate.small
allocate.small:
  call void @Py_IncRef(ptr %a.descr)
  %made.small = call ptr @te_new_array(ptr @te_ndarray, ptr %a.descr, i32 %a.rank, ptr %a.extents, ptr null, ptr null, i32 0, ptr null)
  br label %allocated
allocate.block:
  %made.block = call ptr @te_array(ptr %a.descr, i32 %a.rank, ptr %a.extents, i64 %a.bytes)
  br label %allocated
allocated:
  %made = phi ptr [ %made.small, %allocate.small ], [ %made.block, %allocate.block ]
  %a.slot = getelementptr ptr, ptr %results, i64 %a
  store ptr %made, ptr %a.slot, align 8
  %made.not = icmp eq ptr %made, null
  br i1 %made.not, label %allocate.failed, label %allocate.good
allocate.good:
  %a.next = add i64 %a, 1
  br label %allocate
allocate.failed:
  call void @PyErr_Clear()
  br label %drop

link:
  %l = phi i64 [ 0, %given.done ], [ 0, %allocate ], [ %l.next, %link.one ]
  %l.more = icmp slt i64 %l, %outputs
  br i1 %l.more, label %link.one, label %constants.first
link.one:
  %l.from = getelementptr ptr, ptr %results, i64 %l
  %l.array = load ptr, ptr %l.from, align 8
  %l.data = call i64 @word(ptr %l.array, i64 $DATA$)
  %l.number = add i64 %l, %inputs
  %l.slot = getelementptr ptr, ptr %buffers, i64 %l.number
  store i64 %l.data, ptr %l.slot, align 8
  %l.next = add i64 %l, 1
  br label %link

constants.first:
  %pointers.word = call i64 @word(ptr %table, i64 $AT_POINTERS$)
  %pointers = inttoptr i64 %pointers.word to ptr
  br label %constant
constant:
  %c = phi i64 [ 0, %constants.first ], [ %c.next, %constant.one ]
  %c.more = icmp slt i64 %c, %constants
  br i1 %c.more, label %constant.one, label %space
constant.one:
  %c.byte = shl i64 %c, 3
  %c.data = call i64 @word(ptr %pointers, i64 %c.byte)
  %c.number = add i64 %c, %some
  %c.slot = getelementptr ptr, ptr %buffers, i64 %c.number
  store i64 %c.data, ptr %c.slot, align 8
  %c.next = add i64 %c, 1
  br label %constant

space:
  %block.at = getelementptr i8, ptr %table, i64 $AT_BLOCK$
  %bytes = call i64 @word(ptr %table, i64 $AT_WORKSPACE$)
  %needs = icmp ne i64 %bytes, 0
  %pooled = icmp sge i64 %bytes, $POOLED$
  br i1 %needs, label %take.any, label %run
take.any:
  br i1 %pooled, label %borrow, label %take
borrow:
  %borrowed = call ptr @te_memory_take(i64 %bytes)
  %borrowed.not = icmp eq ptr %borrowed, null
  br i1 %borrowed.not, label %drop.all, label %run
take:
  ; The block that the last call left; while another call has it, one of our own.
  %kept.word = atomicrmw xchg ptr %block.at, i64 0 acquire
  %kept = inttoptr i64 %kept.word to ptr
  %has = icmp ne i64 %kept.word, 0
  br i1 %has, label %run, label %request
request:
  %padded = add i64 %bytes, 64
  %fresh = call ptr @PyMem_RawMalloc(i64 %padded)
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %drop.all, label %run

run:
  %block = phi ptr [ null, %space ], [ %borrowed, %borrow ], [ %kept, %take ], [ %fresh, %request ]
  %block.word = ptrtoint ptr %block to i64
  %raised = add i64 %block.word, 63
  %aligned = and i64 %raised, -64
  %workspace = inttoptr i64 %aligned to ptr
  %kernel.word = call i64 @word(ptr %table, i64 $AT_ENTRY$)
  %kernel = inttoptr i64 %kernel.word to ptr
  %sizes.word = call i64 @word(ptr %table, i64 $AT_SIZES$)
  %sizes = inttoptr i64 %sizes.word to ptr
  %release = call i64 @word(ptr %table, i64 $AT_RELEASE$)
  %long = icmp ne i64 %release, 0
  br i1 %long, label %unlocked, label %locked
locked:
  %status.locked = call i64 %kernel(ptr %buffers, ptr %sizes, ptr %workspace, ptr %error)
  br label %ran
unlocked:
  %state = call ptr @PyEval_SaveThread()
  call void @te_watch()
  %status.own = call i64 %kernel(ptr %buffers, ptr %sizes, ptr %workspace, ptr %error)
  %interrupted = call i64 @te_watched()
  call void @PyEval_RestoreThread(ptr %state)
  ; What was interrupted has failed: the slow way raises what there is to raise.
  %status.unlocked = or i64 %status.own, %interrupted
  br label %ran
ran:
  %status = phi i64 [ %status.locked, %locked ], [ %status.unlocked, %unlocked ]
  br i1 %needs, label %give.any, label %judge
give.any:
  br i1 %pooled, label %return, label %give
return:
  call void @te_memory_give(ptr %block)
  br label %judge
give:
  %older.word = atomicrmw xchg ptr %block.at, i64 %block.word release
  %older = inttoptr i64 %older.word to ptr
  call void @PyMem_RawFree(ptr %older)
  br label %judge
judge:
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %answer, label %drop.all

answer:
  %is.one = icmp ne i64 %single, 0
  br i1 %is.one, label %answer.one, label %answer.tuple
answer.one:
  %only = load ptr, ptr %results, align 8
  ret ptr %only
answer.tuple:
  %tuple = call ptr @PyTuple_New(i64 %outputs)
  %tuple.not = icmp eq ptr %tuple, null
  br i1 %tuple.not, label %tuple.failed, label %fill
tuple.failed:
  call void @PyErr_Clear()
  br label %drop.all
fill:
  %f = phi i64 [ 0, %answer.tuple ], [ %f.next, %fill.one ]
  %f.more = icmp slt i64 %f, %outputs
  br i1 %f.more, label %fill.one, label %filled
fill.one:
  %f.from = getelementptr ptr, ptr %results, i64 %f
  %f.array = load ptr, ptr %f.from, align 8
  %f.set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %f, ptr %f.array)
  %f.next = add i64 %f, 1
  br label %fill
filled:
  ret ptr %tuple

drop.all:
  br label %drop
drop:
  ; Results made so far are given up: the slow way starts from the arguments again, and says what is wrong.
  %made.count = phi i64 [ %a, %allocate.failed ], [ %outputs, %drop.all ]
  br label %drop.next
drop.next:
  %d = phi i64 [ 0, %drop ], [ %d.next, %drop.one ]
  %d.more = icmp slt i64 %d, %made.count
  br i1 %d.more, label %drop.one, label %other
drop.one:
  %d.from = getelementptr ptr, ptr %results, i64 %d
  %d.array = load ptr, ptr %d.from, align 8
  call void @Py_DecRef(ptr %d.array)
  %d.next = add i64 %d, 1
  br label %drop.next

other:
  %table.next = call i64 @word(ptr %table, i64 $AT_NEXT$)
  %last = icmp eq i64 %table.next, 0
  br i1 %last, label %leave, label %entry
leave:
  %slowly = call ptr @slow(ptr %self, ptr %arguments, i64 %count, ptr %names)
  ret ptr %slowly
}
"""
