"""What is kept while streams work on it, on the stand-in for CuPy: code and constants of collected functions, arrays of other libraries."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.launch import device as devices
from tensorexpr.codegen.cuda.launch.captures import Captures
from tensorexpr.codegen.cuda.launch.lifetimes import MOST_STREAMS, Kept, Uses
from tests.codegen.cuda.cupy import Driver, Rehearsed, Stream, Tensor, silent, stand_in, told
from tests.codegen.cuda.device import needs_compiler

N = 256


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    with stand_in(False) as cupy:
        device = Rehearsed(cupy)
        monkeypatch.setattr(devices, "_host", lambda: device)
        monkeypatch.setattr(devices, "_devices", {0: device})
        yield cupy


class Held:
    """Anything."""


def kept_for(cupy: Any, *streams: Stream) -> tuple[Kept, Any]:
    """What was used on streams by a function that is collected, and whether it is there."""
    captures = Captures(Driver(), cupy.cuda.runtime)
    uses, kept, held = Uses(cupy, captures), Kept(captures), Held()
    for stream in streams:
        with stream:
            stream.put(lambda: None)
            uses.on(stream.ptr)
    kept.add(uses, held)
    kept.sweep()
    return kept, weakref.ref(held)


@pytest.mark.parametrize("count", [0, 1, 3, MOST_STREAMS + 2])
def test_it_is_kept_until_all_streams_have_come_past(cupy: Any, count: int) -> None:
    streams = [Stream(non_blocking=True) for _ in range(count)]
    kept, held = kept_for(cupy, *streams)
    for stream in streams:
        assert held() is not None
        kept.sweep()
        stream.run()
    kept.sweep()
    assert held() is None


def test_what_graphs_have_is_kept_for_good(cupy: Any) -> None:
    stream = Stream(non_blocking=True)
    stream.begin_capture()
    kept, held = kept_for(cupy, stream)
    stream.end_capture().launch(stream)
    stream.synchronize()
    kept.sweep()
    assert held() is not None


def test_a_stream_that_is_captured_is_asked_later(cupy: Any) -> None:
    stream, captures = Stream(non_blocking=True), Captures(Driver(), cupy.cuda.runtime)
    uses, kept, held = Uses(cupy, captures), Kept(captures), Held()
    there = weakref.ref(held)
    with stream:
        uses.on(stream.ptr)
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    kept.add(uses, held)
    del held
    kept.sweep()
    assert there() is not None and stream.captured == []
    stream.end_capture()
    kept.sweep()
    stream.run()
    kept.sweep()
    assert there() is None


def test_a_stream_that_is_gone_keeps_it(cupy: Any) -> None:
    stream = Stream(non_blocking=True)
    captures = Captures(Driver(), cupy.cuda.runtime)
    uses, kept, held = Uses(cupy, captures), Kept(captures), Held()
    with stream:
        uses.on(stream.ptr)
    del Stream.all[stream.ptr]
    kept.add(uses, held)
    there = weakref.ref(held)
    del held
    kept.sweep()
    assert there() is not None


def squares() -> te.CompiledFunction:
    x = te.placeholder((N,), name="x")
    return te.build(te.compute((N,), lambda i: x[i] * x[i], name="y"), [x], target="cuda")


@needs_compiler
@pytest.mark.parametrize("library", [told, silent])
def test_a_library_reads_what_was_written_to_its_array(cupy: Any, library: Any) -> None:
    f, stream = squares(), Stream(non_blocking=True)
    make = library(stream)
    given, out = make(N, 3.0), make(N, 0.0)
    f(given, out=out)
    stream.run()  # the stream of the library, and no other
    assert (np.asarray(out.array) == 9.0).all()


@needs_compiler
@pytest.mark.parametrize("library", [told, silent])
def test_a_library_does_not_take_back_what_is_read(cupy: Any, library: Any) -> None:
    f, stream = squares(), Stream(non_blocking=True)
    given: Tensor | None = library(stream)(N, 3.0)
    with Stream(non_blocking=True):
        found = f(given)
        given = None
        gc.collect()
        stream.run()
        assert (found.get() == 9.0).all()


@needs_compiler
def test_a_library_that_says_its_stream_writes_behind_a_call(cupy: Any) -> None:
    f, stream = squares(), Stream(non_blocking=True)
    given = told(stream)(N, 3.0)
    with Stream(non_blocking=True):
        found = f(given)
        with stream:
            given.array[...] = 5.0
        stream.run()
        assert (found.get() == 9.0).all()


@needs_compiler
def test_a_collected_function_is_let_go_of_by_a_later_call(cupy: Any) -> None:
    x, table = te.placeholder((N,), name="x"), te.constant(np.arange(N, dtype=np.float32), name="table")
    f, given = te.build(te.compute((N,), lambda i: x[i] * table[i], name="y"), [x], target="cuda"), cupy.ones(N, np.float32)
    other, constant = squares(), weakref.ref(f._constants[0])
    cupy.cuda.runtime.deviceSynchronize()
    with Stream(non_blocking=True) as stream:
        found = f(given)
        del f
        gc.collect()
        other(given)
        assert constant() is not None
        stream.run()
        other(given)
        gc.collect()
        assert constant() is None
        np.testing.assert_array_equal(found.get(), np.arange(N, dtype=np.float32))
