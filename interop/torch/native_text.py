"""Calls of kernels on torch tensors as LLVM IR: from the tensors of a call to its results, where a signature fits.

`te_torch(self, args, count)` is a function of CPython's (METH_FASTCALL). It looks at the tensors through torch's functions of the
DLPack exchange (`dltensor_from_py_object_no_sync`: no capsule, no copy), compares them with the tables in the chain that `self` leads
to, has the results made by torch after models of theirs, and runs the kernel. It gives a tuple of results, or None where nothing
fits or the kernel found an index out of bounds: whoever called then goes the long way, which says what is wrong.
"""

from __future__ import annotations

SYMBOLS = (
    "PyLong_AsVoidPtr",
    "PyErr_Clear",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyObject_CallOneArg",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "Py_IncRef",
    "Py_DecRef",
)
"""What the text calls of CPython, beside the addresses te_view (torch's), te_like (a function after whose argument results are made),
te_none."""

WORDS = ("next", "entry", "inputs", "outputs", "release", "workspace", "take", "give", "constants", "pointers", "order", "rows", "models")
"""A table: the one behind it, the entry point, numbers of inputs and outputs, whether Python's lock is given up during the kernel, bytes
of workspace, the functions that take and give it back, the number of constants and their addresses, for each input of the kernel its
place in the call, a row per input (the words of ROW), the models of the results."""

ROW = ("device", "type", "rank", "shape", "strides")
"""An input: device and dtype as a DLTensor has them, rank, extents, strides (-1: any)."""

VIEW = {"data": 0, "device": 8, "rank": 16, "dtype": 20, "shape": 24, "strides": 32, "offset": 40}
"""Where the fields of a DLTensor lie; it has 48 bytes."""


def native_text(triple: str) -> str:
    """The text, of a module that exports te_torch."""
    text = _TEXT
    values = {f"$table.{name}$": str(8 * k) for k, name in enumerate(WORDS)}
    values |= {f"$row.{name}$": str(8 * k) for k, name in enumerate(ROW)}
    values |= {f"$view.{name}$": str(at) for name, at in VIEW.items()}
    values |= {"$row$": str(8 * len(ROW))}
    for name, value in values.items():
        text = text.replace(name, value)
    return f'target triple = "{triple}"\n{text}'


_TEXT = """
@te_none = external global i8
@te_like = external global i8
declare i32 @te_view(ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare void @PyErr_Clear()
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

define internal ptr @te.field(ptr %base, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load ptr, ptr %at, align 8
  ret ptr %value
}
define internal i64 @te.word(ptr %base, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load i64, ptr %at, align 8
  ret i64 %value
}
define internal i32 @te.half(ptr %base, i64 %offset) alwaysinline nounwind {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load i32, ptr %at, align 4
  ret i32 %value
}
; Where the elements of a tensor begin.
define internal i64 @te.start(ptr %view) alwaysinline nounwind {
  %data = call i64 @te.word(ptr %view, i64 $view.data$)
  %offset = call i64 @te.word(ptr %view, i64 $view.offset$)
  %start = add i64 %data, %offset
  ret i64 %start
}

; Whether views fit the rows of a table, and have memory if they have elements (a tensor of zeros may have none).
define internal i1 @te.fit(ptr %views, i64 %count, ptr %rows) nounwind {
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %seen ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %yes
look:
  %view.at = mul i64 %k, 48
  %view = getelementptr i8, ptr %views, i64 %view.at
  %row.at = mul i64 %k, $row$
  %row = getelementptr i8, ptr %rows, i64 %row.at
  %device = call i64 @te.word(ptr %view, i64 $view.device$)
  %device.own = call i64 @te.word(ptr %row, i64 $row.device$)
  %device.fits = icmp eq i64 %device, %device.own
  %type = call i32 @te.half(ptr %view, i64 $view.dtype$)
  %type.own = call i32 @te.half(ptr %row, i64 $row.type$)
  %type.fits = icmp eq i32 %type, %type.own
  %rank = call i32 @te.half(ptr %view, i64 $view.rank$)
  %rank.own = call i32 @te.half(ptr %row, i64 $row.rank$)
  %rank.fits = icmp eq i32 %rank, %rank.own
  %data = call ptr @te.field(ptr %view, i64 $view.data$)
  %stored = icmp ne ptr %data, null
  %two = and i1 %device.fits, %type.fits
  %three = and i1 %two, %rank.fits
  %shape = call ptr @te.field(ptr %view, i64 $view.shape$)
  %shape.own = call ptr @te.field(ptr %row, i64 $row.shape$)
  %strides = call ptr @te.field(ptr %view, i64 $view.strides$)
  %strides.own = call ptr @te.field(ptr %row, i64 $row.strides$)
  %rank.64 = sext i32 %rank to i64
  %k.next = add i64 %k, 1
  br i1 %three, label %axes, label %no
axes:
  %a = phi i64 [ 0, %look ], [ %a.next, %stride ]
  %sound = phi i1 [ %stored, %look ], [ %sound.next, %stride ]
  %left = icmp slt i64 %a, %rank.64
  br i1 %left, label %extent, label %seen
seen:
  br i1 %sound, label %test, label %no
extent:
  %extent.at = getelementptr i64, ptr %shape, i64 %a
  %extent.value = load i64, ptr %extent.at, align 8
  %extent.own.at = getelementptr i64, ptr %shape.own, i64 %a
  %extent.own = load i64, ptr %extent.own.at, align 8
  %none = icmp eq i64 %extent.value, 0
  %sound.next = or i1 %sound, %none
  %same = icmp eq i64 %extent.value, %extent.own
  %stride.at = getelementptr i64, ptr %strides, i64 %a
  %stride.own.at = getelementptr i64, ptr %strides.own, i64 %a
  %a.next = add i64 %a, 1
  br i1 %same, label %stride, label %no
stride:
  %stride.value = load i64, ptr %stride.at, align 8
  %stride.own = load i64, ptr %stride.own.at, align 8
  %step.fits = icmp eq i64 %stride.value, %stride.own
  %any = icmp eq i64 %stride.own, -1
  %fine = or i1 %step.fits, %any
  br i1 %fine, label %axes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

define internal ptr @te.nothing() nounwind {
  call void @Py_IncRef(ptr @te_none)
  ret ptr @te_none
}

; Runs what a table says on tensors that fit it.
define internal ptr @te.run(ptr %table, ptr %views) nounwind {
entry:
  %errors = alloca [2 x i64], align 8
  %view = alloca [48 x i8], align 8
  %inputs = call i64 @te.word(ptr %table, i64 $table.inputs$)
  %outputs = call i64 @te.word(ptr %table, i64 $table.outputs$)
  %constants = call i64 @te.word(ptr %table, i64 $table.constants$)
  %parameters = add i64 %inputs, %outputs
  %count = add i64 %parameters, %constants
  %buffers = alloca i64, i64 %count, align 8
  %order = call ptr @te.field(ptr %table, i64 $table.order$)
  br label %input.test
input.test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %input ]
  %input.left = icmp slt i64 %i, %inputs
  br i1 %input.left, label %input, label %made
input:
  %place.at = getelementptr i64, ptr %order, i64 %i
  %place = load i64, ptr %place.at, align 8
  %from.at = mul i64 %place, 48
  %from = getelementptr i8, ptr %views, i64 %from.at
  %start = call i64 @te.start(ptr %from)
  %to = getelementptr i64, ptr %buffers, i64 %i
  store i64 %start, ptr %to, align 8
  %i.next = add i64 %i, 1
  br label %input.test
made:
  %results = call ptr @PyTuple_New(i64 %outputs)
  %full = icmp eq ptr %results, null
  br i1 %full, label %raised, label %models
raised:
  ret ptr null
models:
  %model.list = call ptr @te.field(ptr %table, i64 $table.models$)
  br label %output.test
output.test:
  %o = phi i64 [ 0, %models ], [ %o.next, %seen ]
  %output.left = icmp slt i64 %o, %outputs
  br i1 %output.left, label %output, label %memory
output:
  %model.at = getelementptr ptr, ptr %model.list, i64 %o
  %model = load ptr, ptr %model.at, align 8
  %result = call ptr @PyObject_CallOneArg(ptr @te_like, ptr %model)
  %refused = icmp eq ptr %result, null
  br i1 %refused, label %lost, label %keep
lost:
  call void @Py_DecRef(ptr %results)
  ret ptr null
keep:
  %set = call i32 @PyTuple_SetItem(ptr %results, i64 %o, ptr %result)
  %seen.code = call i32 @te_view(ptr %result, ptr %view)
  %visible = icmp eq i32 %seen.code, 0
  br i1 %visible, label %seen, label %hidden
hidden:
  call void @PyErr_Clear()
  br label %give.up
give.up:
  call void @Py_DecRef(ptr %results)
  %nothing = call ptr @te.nothing()
  ret ptr %nothing
seen:
  %result.start = call i64 @te.start(ptr %view)
  %position = add i64 %inputs, %o
  %result.to = getelementptr i64, ptr %buffers, i64 %position
  store i64 %result.start, ptr %result.to, align 8
  %o.next = add i64 %o, 1
  br label %output.test
memory:
  %constants.to = getelementptr i64, ptr %buffers, i64 %parameters
  %constants.from = call ptr @te.field(ptr %table, i64 $table.pointers$)
  %bytes = shl i64 %constants, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %constants.to, ptr align 8 %constants.from, i64 %bytes, i1 false)
  %workspace = call i64 @te.word(ptr %table, i64 $table.workspace$)
  %needs = icmp ne i64 %workspace, 0
  br i1 %needs, label %take, label %ready
take:
  %whole = add i64 %workspace, 64
  %takes = call ptr @te.field(ptr %table, i64 $table.take$)
  %taken = call ptr %takes(i64 %whole)
  %none = icmp eq ptr %taken, null
  br i1 %none, label %give.up, label %ready
ready:
  %block = phi ptr [ null, %memory ], [ %taken, %take ]
  %address = ptrtoint ptr %block to i64
  %up = add i64 %address, 63
  %aligned = and i64 %up, -64
  %space = inttoptr i64 %aligned to ptr
  %kernel = call ptr @te.field(ptr %table, i64 $table.entry$)
  %releases = call i64 @te.word(ptr %table, i64 $table.release$)
  %long = icmp ne i64 %releases, 0
  br i1 %long, label %release, label %hold
release:
  %thread = call ptr @PyEval_SaveThread()
  %status.long = call i64 %kernel(ptr %buffers, ptr null, ptr %space, ptr %errors)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
hold:
  %status.short = call i64 %kernel(ptr %buffers, ptr null, ptr %space, ptr %errors)
  br label %done
done:
  %status = phi i64 [ %status.long, %release ], [ %status.short, %hold ]
  %gives = call ptr @te.field(ptr %table, i64 $table.give$)
  call void %gives(ptr %block)
  %well = icmp eq i64 %status, 0
  br i1 %well, label %give, label %give.up
give:
  ret ptr %results
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @te_torch(ptr %self, ptr %args, i64 %count) nounwind {
entry:
  %size = mul i64 %count, 48
  %views = alloca i8, i64 %size, align 8
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %view ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %search
look:
  %object.at = getelementptr ptr, ptr %args, i64 %k
  %object = load ptr, ptr %object.at, align 8
  %to.at = mul i64 %k, 48
  %to = getelementptr i8, ptr %views, i64 %to.at
  %code = call i32 @te_view(ptr %object, ptr %to)
  %seen = icmp eq i32 %code, 0
  br i1 %seen, label %view, label %hidden
hidden:
  call void @PyErr_Clear()
  br label %other
view:
  %k.next = add i64 %k, 1
  br label %test
search:
  %head.at = call ptr @PyLong_AsVoidPtr(ptr %self)
  %head = load atomic ptr, ptr %head.at acquire, align 8
  br label %next
next:
  %table = phi ptr [ %head, %search ], [ %behind, %misfit ], [ %behind.rows, %misfit.rows ]
  %end = icmp eq ptr %table, null
  br i1 %end, label %other, label %compare
compare:
  %inputs = call i64 @te.word(ptr %table, i64 $table.inputs$)
  %same = icmp eq i64 %inputs, %count
  br i1 %same, label %rows, label %misfit
misfit:
  %behind = load ptr, ptr %table, align 8
  br label %next
rows:
  %row.list = call ptr @te.field(ptr %table, i64 $table.rows$)
  %fits = call i1 @te.fit(ptr %views, i64 %count, ptr %row.list)
  br i1 %fits, label %run, label %misfit.rows
misfit.rows:
  %behind.rows = load ptr, ptr %table, align 8
  br label %next
run:
  %results = call ptr @te.run(ptr %table, ptr %views)
  ret ptr %results
other:
  %nothing = call ptr @te.nothing()
  ret ptr %nothing
}
"""
