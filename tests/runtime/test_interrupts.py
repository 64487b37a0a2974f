"""Ctrl-C during a compilation and during a run: it comes at once, and everything stays usable. Progress of long compilations."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading

import pytest

import tensorexpr as te
from tensorexpr.building import progress

pytestmark = pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread")


@te.op
def slow(x):
    """Several seconds of functions, in loops of many iterations."""
    return te.compute(x.shape, lambda i: te.sum(lambda k: te.sin(x[i] * k + te.cos(x[k])), x.shape[0]))


HEARS = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell starts what runs behind it with interrupts ignored."""


def run_script(text: str, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", HEARS + textwrap.dedent(text)], capture_output=True, text=True, timeout=120, env=os.environ | environment
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_run_ends_soon_and_the_function_can_be_called_again(threads):
    text = run_script(
        """
        import os, signal, threading, time
        import numpy as np
        import tensorexpr as te
        from tests.runtime.test_interrupts import slow as op

        x = np.linspace(0, 1, 150_000, dtype=np.float32)
        out = np.empty_like(x)
        f = op.compile(x)
        g = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * 2)).compile(x)
        g(x)
        sent = []
        def send():
            time.sleep(0.2)
            sent.append(time.process_time())  # what is worked on after it: other tests may have the cores
            os.kill(os.getpid(), signal.SIGINT)
        for name, way in {"f": lambda: f(x), "out": lambda: f(x, out=out), "copied": lambda: f(x[::-1]), "op": lambda: op(x)}.items():
            thread = threading.Thread(target=send)
            thread.start()
            try:
                way()
            except KeyboardInterrupt:
                worked = time.process_time() - sent[-1]
                assert worked < 0.5, (name, worked)
                print(name)
            thread.join()
            assert (g(x) == x * 2).all()
        small = x[:2000].copy()
        expected = np.sin(small[:, None] * np.arange(2000) + np.cos(small)).sum(1)
        np.testing.assert_allclose(op(small), expected, rtol=1e-3, atol=0.05)
        """,
        TENSOREXPR_NUM_THREADS=threads,
    )
    assert text.split() == ["f", "out", "copied", "op"]


def test_a_handler_that_raises_nothing_lets_the_run_go_on():
    text = run_script(
        """
        import os, signal, threading, time
        import numpy as np
        from tests.runtime.test_interrupts import slow

        x = np.linspace(0, 1, 30_000, dtype=np.float32)
        expected = slow(x)
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(time.perf_counter()))
        begin = time.perf_counter()
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        found = slow(x)
        assert (found == expected).all() and time.perf_counter() - begin > 0.15 and seen and seen[0] - begin < 0.4
        """
    )
    assert text == ""


def test_runs_of_other_threads_are_not_ended():
    text = run_script(
        """
        import os, signal, threading, time
        import numpy as np
        from tests.runtime.test_interrupts import slow

        x = np.linspace(0, 1, 40_000, dtype=np.float32)
        f = slow.compile(x)
        expected = f(x)
        found = []
        other = threading.Thread(target=lambda: found.append(f(x)))
        other.start()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            f(x)
            f(x)
        except KeyboardInterrupt:
            print("interrupted")
        other.join()
        assert (found[0] == expected).all()
        """
    )
    assert text.split() == ["interrupted"]


def test_a_compilation_ends_at_once_and_can_be_made_again():
    text = run_script(
        """
        import os, signal, threading, time
        import numpy as np
        import tensorexpr as te
        from tests.codegen.test_pieces import layers

        outputs, inputs = layers(60, 24)
        te.build(*layers(2))
        for delay in (0.2, 0.4):
            sent = []
            def send():
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)
            timer = threading.Timer(delay, send)
            timer.start()
            try:
                te.build(outputs, inputs)
            except KeyboardInterrupt:
                print("interrupted", time.perf_counter() - sent[0] < 0.5)
            timer.join()
        f = te.build(outputs, inputs)
        arrays = [np.zeros([int(n) for n in t.shape], np.float32) for t in inputs]
        assert all((array == 0).all() for array in f(*arrays))
        """,
        TENSOREXPR_CACHE_DIR="",
    )
    assert text.split()[:2] == ["interrupted", "True"] and "False" not in text


def test_progress_is_told_to_a_callback_and_a_logger(monkeypatch, caplog):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    seen = []
    assert te.on_progress(seen.append) is None
    try:
        a = te.placeholder((3,), name="a")
        with caplog.at_level(logging.INFO, "tensorexpr.progress"):
            te.build(te.compute((3,), lambda i: a[i] * 3.25 + 0.125, name="quick"), [a])
    finally:
        assert te.on_progress(None) is not None
    assert [p.step for p in seen] == [
        "simplified", "scheduled: quick", "lowered: quick", "searched: quick", "proved: quick", "text of its code", "machine code", None,
    ]  # fmt: skip
    assert {p.operation for p in seen} == {"quick"} and all(p.seconds >= 0 for p in seen)
    assert caplog.messages[0].startswith("quick: simplified after 0.0 s") and caplog.messages[-1].startswith("quick: done after")


def test_nothing_is_told_of_what_is_quick():
    seen = []
    te.on_progress(seen.append)
    try:
        a = te.placeholder((3,), name="a")
        te.build(te.compute((3,), lambda i: a[i] * 4.25 + 0.125, name="quicker"), [a])
    finally:
        te.on_progress(None)
    assert not seen


def test_a_line_on_a_terminal_is_erased(monkeypatch):
    class Terminal:
        text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    terminal = Terminal()
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.task("y"):
        progress.step("scheduled: a long name")
        progress.step("lowered")
        with progress.task("inner"):
            progress.step("inside")
    assert terminal.text.startswith("\rtensorexpr: compiling y: scheduled: a long name (0 s)\rtensorexpr: compiling y: lowered (0 s)")
    assert "compiling y: inside" in terminal.text and terminal.text.endswith(" \r")
