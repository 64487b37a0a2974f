"""What interpreters call for one scalar is what operations mean on arrays: every operation and cast, every dtype, pairs of values."""

import numpy as np
import pytest

from tensorexpr.dtypes import DTYPES
from tensorexpr.ops import OPS, cast_value, scalar_cast, scalar_evaluate


def values(dtype):
    """Scalars at the ends, around zero, and in between."""
    if dtype.is_bool:
        return [np.False_, np.True_]
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.5, 2.75, 1e-3, -65503.0, 126.9, 127.5, -0.5, -128.5, 2.0**31, 2.0**63, 1e30, np.inf, -np.inf, np.nan]
        with np.errstate(all="ignore"):
            return list(np.array(special).astype(dtype.numpy))
    kinds = np.iinfo(dtype.numpy)
    drawn = np.random.default_rng(5).integers(kinds.min, kinds.max, 6, dtype.numpy, endpoint=True)
    return [dtype.numpy.type(n) for n in (0, 1, 3, kinds.max, kinds.max - 1, kinds.min)] + list(drawn)


def bits(value):
    return (np.asarray(value).dtype, np.asarray(value).tobytes())


def same(found, expected):
    """Equal in type and bits; any NaN is a NaN."""
    if np.asarray(expected).dtype == np.asarray(found).dtype and found != found and expected != expected:
        return True
    return bits(found) == bits(expected)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.name != "where"])
def test_operations_on_scalars(name):
    op = OPS[name]
    evaluate = scalar_evaluate(op)
    for dtype in filter(op.accepts, DTYPES):
        for a in values(dtype):
            for b in values(dtype) if op.arity == 2 else [None]:
                operands = (a,) if b is None else (a, b)
                with np.errstate(all="ignore"):
                    assert same(evaluate(*operands), op.evaluate(*operands)), (dtype.name, operands)


@pytest.mark.parametrize("source", DTYPES, ids=lambda dtype: dtype.name)
def test_casts_of_scalars(source):
    for target in DTYPES:
        for value in values(source):
            with np.errstate(all="ignore"):
                assert same(scalar_cast(source, target)(value), cast_value(value, target)), (target.name, value)
