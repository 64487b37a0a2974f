"""One definition run twice, by the interpreter and compiled, with the rule that both must agree."""

import numpy as np

import tensorexpr as te


def both(outputs, arrays, rtol=1e-6, atol=1e-9):
    """The compiled results, after comparing them (values, shapes, dtypes) with those of the interpreter."""
    single = isinstance(outputs, te.Tensor)
    meant = te.evaluate(outputs, arrays)
    found = te.build(outputs, list(arrays))(*arrays.values())
    for a, b in zip((meant,) if single else meant, (found,) if single else found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(np.asarray(b, np.float64), np.asarray(a, np.float64), rtol=rtol, atol=atol)
    return found
