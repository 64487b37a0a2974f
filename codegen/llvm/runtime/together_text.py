"""Parallel loops that run together as one range for the pool: LLVM IR that finds what a chunk of it is.

The pool is handed a table: the number of loops, then of each its part (see `emit`), the environment of that, the weight of an iteration
and the weight of all loops before it; at the end the weight of all. A chunk has the iterations of each loop whose weight begins in it,
so every iteration is in one chunk, and chunks are about as long as each other, whatever an iteration of a loop takes.
"""

from __future__ import annotations

ROW = 4
"""Words of a loop in the table."""
WEIGHT = 64.0
"""Units of `Op.cost` that weigh 1."""
TOGETHER = """define internal void @te.together(ptr %table, i64 %begin, i64 %end) nounwind {
entry:
  %count = load i64, ptr %table, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %after ]
  %before = mul i64 %k, 4
  %place = add i64 %before, 1
  %row = getelementptr i64, ptr %table, i64 %place
  %first.at = getelementptr i64, ptr %row, i64 3
  %last.at = getelementptr i64, ptr %row, i64 7
  %first = load i64, ptr %first.at, align 8
  %last = load i64, ptr %last.at, align 8
  %from = call i64 @llvm.smax.i64(i64 %begin, i64 %first)
  %to = call i64 @llvm.smin.i64(i64 %end, i64 %last)
  %some = icmp slt i64 %from, %to
  br i1 %some, label %run, label %after
run:
  %part = load ptr, ptr %row, align 8
  %environment.at = getelementptr i64, ptr %row, i64 1
  %environment = load ptr, ptr %environment.at, align 8
  %weight.at = getelementptr i64, ptr %row, i64 2
  %weight = load i64, ptr %weight.at, align 8
  %up = sub i64 %weight, 1
  %low = sub i64 %from, %first
  %low.up = add i64 %low, %up
  %low.iteration = sdiv i64 %low.up, %weight
  %high = sub i64 %to, %first
  %high.up = add i64 %high, %up
  %high.iteration = sdiv i64 %high.up, %weight
  call void %part(ptr %environment, i64 %low.iteration, i64 %high.iteration)
  br label %after
after:
  %next = add i64 %k, 1
  %all = icmp sge i64 %next, %count
  %beyond = icmp sge i64 %last, %end
  %done = or i1 %all, %beyond
  br i1 %done, label %exit, label %loop
exit:
  ret void
}
"""
