"""Tensors in pickles: the same in each process, never one of another process, at any depth; and copies, which are themselves."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np

import tensorexpr as te

ROOT = Path(__file__).resolve().parents[2]
OTHER = """
import pickle, sys
import numpy as np
import tensorexpr as te
c = te.placeholder((4,), name="c")
d = te.compute((4,), lambda i: c[i] * 10.0, name="b")  # as the tensor that comes is called, and numbered
(a, b), again, plans = (pickle.loads(text) for text in pickle.load(sys.stdin.buffer))
assert again[0] is b and again[1] is a
e = te.compute((4,), lambda i: b[i] + d[i])
(by,) = te.gradient([te.compute((), lambda: te.sum(lambda i: e[i], 4))], [a])
found = te.build([e, by], [a, c])(np.ones(4, "f"), np.ones(4, "f"))
made, x, ids = plans
pickle.dump([*found, te.build(made, [x, ids])(np.arange(5, dtype="f"), np.array([2, 0, 2, 1, 2]))], sys.stdout.buffer)
"""


def doubled(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: x[i] * 2.0, name="b")


def halved(y: te.Tensor, inputs: list[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [te.compute(head.shape, lambda i: head[i] * 0.5)]


def test_another_process_takes_them_for_none_of_its_own() -> None:
    a = te.placeholder((4,), name="a")
    b = doubled(a)
    x, ids = te.placeholder((5,), name="x"), te.placeholder((5,), "int64", name="ids")
    sent = te.scatter((3,), lambda i: (ids[i], x[i]), 5)
    zero = te.compute((), lambda: te.cast(0.0, "float32"))
    running = te.scan(lambda t, s: te.compute((), lambda: s[()] * 0.5 + sent[t], name="next"), zero, 3)
    given = [pickle.dumps((a, b)), pickle.dumps((b, a)), pickle.dumps((running, x, ids))]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", OTHER], input=pickle.dumps(given), capture_output=True, env={**os.environ, "PYTHONPATH": path}, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    total, slope, steps = pickle.loads(done.stdout)
    np.testing.assert_array_equal(total, np.full(4, 12.0))
    np.testing.assert_array_equal(slope, np.full(4, 2.0))
    inputs = {x: np.arange(5, dtype=np.float32), ids: np.array([2, 0, 2, 1, 2])}
    np.testing.assert_allclose(np.asarray(steps).ravel(), te.evaluate(running, inputs).ravel(), rtol=1e-6)


def test_a_tensor_comes_back_as_itself() -> None:
    a = te.placeholder((4,), name="a")
    b = doubled(a)
    again = pickle.loads(pickle.dumps({"both": [b, a], "constant": te.constant([1.0, 2.0])}))
    assert again["both"][0] is b and again["both"][1] is a
    assert copy.copy(b) is b and copy.deepcopy([b])[0] is b
    np.testing.assert_array_equal(te.evaluate(again["constant"], {}), [1.0, 2.0])


def test_what_is_gone_is_made_anew_with_its_rule() -> None:
    def text() -> bytes:
        x = te.placeholder((4,), name="x")
        return pickle.dumps((te.op(doubled, gradient=halved)(x), x))

    y, x = pickle.loads(text())
    (x_bar,) = te.gradient([te.compute((), lambda: te.sum(lambda i: y[i], 4))], [x])
    np.testing.assert_array_equal(te.evaluate(x_bar, {x: np.ones(4, np.float32)}), np.full(4, 0.5))


def test_a_chain_is_as_long_as_it_likes() -> None:
    def text() -> bytes:
        x = y = te.placeholder((4,), name="x")
        for _ in range(3000):
            y = te.compute((4,), lambda i, y=y: y[i] * 0.5 + y[3 - i])
        return pickle.dumps((y, x))

    y, x = pickle.loads(text())
    assert len(te.program_of([y], [x]).definitions) == 3000
    assert copy.deepcopy(y) is y


def test_processes_that_are_forked_give_keys_of_their_own() -> None:
    if not hasattr(os, "fork"):
        return
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, te.placeholder((1,), name="k").key.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100).decode() != te.placeholder((1,), name="k").key
