"""The onnx package's own test suite through `from_onnx`: a case passes or is refused, none is wrong. Skipped by name without onnx.

`make test-peers` takes every twelfth case, `TENSOREXPR_TEST_SEEDS=all` all of them. Tolerances are those of the suite, but float16 may be
off by two units in the last place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tests.seeds import share_of

onnx = pytest.importorskip("onnx", reason="onnx is not installed (make test-peers installs it)")

from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

from tensorexpr.interop.onnx import from_onnx  # noqa: E402

RELATIVE = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
Case = tuple[str, Any, list[Any], list[Any]]


def cases() -> Iterator[Case]:
    """Name, model, inputs and results of every case that has data here."""
    for case in collect_testcases(None):
        if case.model is not None and case.data_sets:
            yield case.name, case.model, *([_array(item) for item in side] for side in case.data_sets[0])
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            folder = Path(case.model_dir) / "test_data_set_0"
            if folder.is_dir():
                yield case.name, onnx.load(folder.parent / "model.onnx"), _read(folder, "input"), _read(folder, "output")


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _read(folder: Path, stem: str) -> list[Any]:
    count = len(list(folder.glob(f"{stem}_*.pb")))
    return [numpy_helper.to_array(onnx.load_tensor(folder / f"{stem}_{k}.pb")) for k in range(count)]


def computed(model: Any, inputs: list[Any]) -> tuple[Any, ...] | None:
    """The results; None where the model is refused, also with what may say shapes and options given as constants."""
    initialized = {item.name for item in model.graph.initializer}
    named = dict(zip([item.name for item in model.graph.input if item.name not in initialized], inputs, strict=False))
    short = {name: item for name, item in named.items() if isinstance(item, np.ndarray) and item.ndim <= 1}
    whole = {name: item for name, item in short.items() if item.dtype.kind in "iub"}
    for constants in ({}, whole, dict(list(short.items())[1:])):
        try:
            found = from_onnx(model, constants)(*(item for name, item in named.items() if name not in constants))
        except te.TensorExprError:
            continue
        return found if isinstance(found, tuple) else (found,)
    return None


def wrong(found: tuple[Any, ...], expected: list[Any]) -> str:
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for one, other in zip(found, map(np.asarray, expected), strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype}{one.shape} for {other.dtype}{other.shape}"
        a, b = (array if array.dtype.kind in "biu" else array.astype(np.float64) for array in (one, other))
        if not np.allclose(a, b, rtol=RELATIVE.get(other.dtype.name, 1e-3), atol=1e-7, equal_nan=True):
            return f"values off by {np.abs(a.astype(float) - b.astype(float)).max():.3g}"
    return ""


def test_no_case_of_the_suite_is_wrong():
    everything = list(cases())
    share: Any = share_of(range(len(everything)))
    chosen = [everything[k] for k in (share if len(share) == len(everything) else share[::4])]
    results = {name: (expected, computed(model, inputs)) for name, model, inputs, expected in chosen}
    passed = {name: wrong(found, expected) for name, (expected, found) in results.items() if found is not None}
    assert {name: why for name, why in passed.items() if why} == {}
    assert len(passed) >= 0.58 * len(chosen)
