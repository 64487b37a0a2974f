"""The part of the handlers that runs kernels on this CPU: see `handler_text`.

A block of workspace is kept per record for the next call; calls that meet have blocks of their own.
"""

from __future__ import annotations

OWN = ("block",)
"""A block of memory of the workspace's size that is free, or 0."""
STRINGS: dict[str, str] = {}
TEXT = """
define internal void @te.clear(ptr %record) nounwind {
  %block.at = getelementptr i8, ptr %record, i64 $record.block$
  %block = atomicrmw xchg ptr %block.at, i64 0 seq_cst, align 8
  %pointer = inttoptr i64 %block to ptr
  call void @free(ptr %pointer)
  ret void
}

; A workspace: the block that the record has free, or a new one.
define internal ptr @te.take(ptr %record, i64 %size) nounwind {
  %block.at = getelementptr i8, ptr %record, i64 $record.block$
  %kept = atomicrmw xchg ptr %block.at, i64 0 seq_cst, align 8
  %none = icmp eq i64 %kept, 0
  br i1 %none, label %new, label %have
have:
  %pointer = inttoptr i64 %kept to ptr
  ret ptr %pointer
new:
  %whole = add i64 %size, 64
  %made = call ptr @malloc(i64 %whole)
  ret ptr %made
}
define internal void @te.give(ptr %record, ptr %block) nounwind {
  %value = ptrtoint ptr %block to i64
  %block.at = getelementptr i8, ptr %record, i64 $record.block$
  %before = atomicrmw xchg ptr %block.at, i64 %value seq_cst, align 8
  %pointer = inttoptr i64 %before to ptr
  call void @free(ptr %pointer)
  ret void
}

define internal ptr @te.run(ptr %frame, ptr %record, ptr %buffers, ptr %constants.at) nounwind {
entry:
  %errors = alloca [2 x i64], align 8
  %constants = call i64 @te.word(ptr %record, i64 $record.constants$)
  %addresses = call ptr @te.field(ptr %record, i64 $record.pointers$)
  %bytes = shl i64 %constants, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %constants.at, ptr align 8 %addresses, i64 %bytes, i1 false)
  %kernel = call ptr @te.field(ptr %record, i64 $record.entry$)
  %workspace = call i64 @te.word(ptr %record, i64 $record.workspace$)
  %needs = icmp ne i64 %workspace, 0
  br i1 %needs, label %take, label %run
take:
  %block = call ptr @te.take(ptr %record, i64 %workspace)
  %full = icmp eq ptr %block, null
  br i1 %full, label %memory, label %enter
memory:
  %full.error = call ptr @te.said(ptr %frame, i32 $code.RESOURCE_EXHAUSTED$, ptr @te.memory, i64 %workspace, i64 0)
  ret ptr %full.error
enter:
  %address = ptrtoint ptr %block to i64
  %up = add i64 %address, 63
  %aligned = and i64 %up, -64
  %space = inttoptr i64 %aligned to ptr
  %status.space = call i64 %kernel(ptr %buffers, ptr null, ptr %space, ptr %errors)
  call void @te.give(ptr %record, ptr %block)
  br label %judge
run:
  %status.run = call i64 %kernel(ptr %buffers, ptr null, ptr null, ptr %errors)
  br label %judge
judge:
  %status = phi i64 [ %status.space, %enter ], [ %status.run, %run ]
  %well = icmp eq i64 %status, 0
  br i1 %well, label %fine, label %failed
failed:
  %error = call ptr @te.failed(ptr %frame, ptr %record, i64 %status, ptr %errors)
  ret ptr %error
fine:
  ret ptr null
}
"""
