"""An index that leaves its tensor as a derivative runs is reported at the user's line of the read it stems from."""

import numpy as np
import pytest

import tensorexpr as te

F64 = "float64"
table, ids = te.placeholder((5, 3), F64, name="table"), te.placeholder((4,), "int64", name="ids")
values, start = te.placeholder((4, 3), F64, name="values"), te.placeholder((5,), F64, name="start")
read = te.compute((4, 3), lambda t, d: table[ids[t], d] * 2.0, name="read")
sent = te.scatter((5, 3), lambda t, d: ((ids[t], d), values[t, d]), (4, 3), name="sent")
highest = te.scatter((5, 3), lambda t, d: ((ids[t], d), values[t, d]), (4, 3), combine="max", name="highest")
state = te.scan(lambda t, s: te.compute((5,), lambda j: s[ids[t]] * s[j]), start, 4, name="state")
HEADS = {y: te.placeholder(y.shape, F64, name="H") for y in (read, sent, highest, state)}


def line_of(tensor) -> int:
    return tensor.location.line


@pytest.mark.parametrize("lowering", [None, "segments", "atomics"])
@pytest.mark.parametrize(("output", "wrt"), [(read, table), (sent, values), (highest, values), (state, start)], ids=lambda t: t.name)
def test_gradients(output, wrt, lowering):
    check(te.gradient(output, wrt, HEADS[output], lowering=lowering)[0], [wrt, ids, HEADS[output]], line_of(output))


@pytest.mark.parametrize(("output", "wrt"), [(read, table), (sent, values), (highest, values), (state, start)], ids=lambda t: t.name)
def test_tangents(output, wrt):
    check(te.jvp(output, wrt, wrt), [wrt, ids], line_of(output))


def check(derived, inputs, line):
    arrays = {t: np.array([0, 1, 7, 2]) if t is ids else np.ones(t.shape) for t in inputs}
    for run in (lambda: te.evaluate(derived, arrays), lambda: te.build(derived, inputs)(*arrays.values())):
        with pytest.raises(te.OutOfBoundsError, match="got 7") as caught:
            run()
        assert isinstance(caught.value, IndexError)
        assert f"{__file__}:{line})" in str(caught.value)
