"""The part of the handlers that runs kernels on this CPU: see `handler_text`.

A block of workspace is kept per record for the next call; calls that meet have blocks of their own.
"""

from __future__ import annotations

OWN = ("block",)
"""A block of memory of the workspace's size that is free, or 0."""
STRINGS: dict[str, str] = {}
TEXT = """
def clear(record: ptr):
    free(atomic_swap(record.ptr[word.block], None, seq_cst))

def run(frame: ptr, record: ptr, buffers: ptr, constants: ptr) -> ptr:
    errors = stack(i64, 2)
    memcpy(constants, record.ptr[word.pointers], 8 * record.i64[word.constants])
    size = record.i64[word.workspace]
    block = None
    if size != 0:
        # The block that the record has free, or a new one.
        block = atomic_swap(record.ptr[word.block], None, seq_cst)
        if block == None:
            block = malloc(size + 64)
        if block == None:
            return said(frame, code.RESOURCE_EXHAUSTED, said_memory, size, 0)
    status = call(i64, record.ptr[word.entry], buffers, None, ptr(i64(block) + 63 & -64), errors)
    if size != 0:
        free(atomic_swap(record.ptr[word.block], block, seq_cst))
    return None if status == 0 else failed(frame, record, status, errors)
"""
