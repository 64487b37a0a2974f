"""The onnx package's own suite through `tensorexpr.interop.onnx.backend`, with its tolerances: every case of 1.23.2 but those named here.

`make test-peers` runs all of them, in parts that processes share. `DRAWN` are random numbers, of which the suite has what NumPy drew once.
`NEARER` differ from the expected data, which was computed in the type itself or in another order: they must be nearer to what ONNX's
reference gives in float64 than that is. `LIGHT` are whole networks with constant weights.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorexpr as te

onnx = pytest.importorskip("onnx", reason="onnx is not installed (make test-peers installs it)")

from onnx import TensorProto, numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tensorexpr.interop.onnx import backend  # noqa: E402

PARTS = 32
UNKNOWN = ("test_image_decoder_",)
"""Cases of operators that there are no rows for: decoders of image files."""
DRAWN = tuple(f"test_bernoulli{kind}{how}" for kind in ("", "_double", "_seed") for how in ("", "_expanded"))
NEARER = (
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded", "test_attention_4d_gqa_with_past_and_present_fp16",
    "test_attention_4d_gqa_with_past_and_present_fp16_expanded", "test_causal_conv_with_state_silu_fp16",
    "test_causal_conv_with_state_silu_fp16_expanded", "test_dft_inverse", "test_dft_inverse_opset19",
)  # fmt: skip
LIGHT = sorted(Path(onnx.__file__).parent.joinpath("backend/test/data/light").glob("*.onnx"))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The suite computes its data while it is loaded, and overflows on purpose."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@functools.cache
def cases() -> list[Any]:
    with quiet():
        return [case for kind in ("node", "simple", "pytorch-converted", "pytorch-operator") for case in load_model_tests(kind=kind)]


def data_of(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """The model of a case, and its inputs and outputs."""
    if case.model is not None:
        return case.model, [tuple([_array(item) for item in side] for side in sides) for sides in case.data_sets]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set_*"))
    return model, [(_read(each, "input", model.graph.input), _read(each, "output", model.graph.output)) for each in sets]


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, TensorProto) else item


def _read(folder: Path, stem: str, about: Any) -> list[Any]:
    found = []
    for k in range(len(list(folder.glob(f"{stem}_*.pb")))):
        kind = about[k].type.WhichOneof("value")
        proto, read = {
            "sequence_type": (onnx.SequenceProto, numpy_helper.to_list), "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
        }.get(kind, (TensorProto, numpy_helper.to_array))  # fmt: skip
        message = proto()
        message.ParseFromString((folder / f"{stem}_{k}.pb").read_bytes())
        found.append(read(message))
    return found


def difference(found: Any, expected: Any, case: Any) -> str:
    """What is wrong with a result; the suite's own rule, which it has for lists of arrays with axes alone."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"a {type(found).__name__} for {len(expected)} items"
        return "; ".join(filter(None, (difference(a, b, case) for a, b in zip(found, expected, strict=True))))
    expected = np.asarray(expected)
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"{found.dtype}{found.shape} for {expected.dtype}{expected.shape}"
    if expected.dtype == object:
        return "" if (found == expected).all() else "other strings"
    relative = max(case.rtol, 2.0**-6) if expected.dtype.name == "bfloat16" else case.rtol
    a, b = (array.astype(np.float64) if array.dtype.kind in "fV" else array for array in (found, expected))
    try:
        np.testing.assert_allclose(a, b, rtol=relative, atol=case.atol)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def verdict(case: Any) -> str:
    """Nothing where a case passes, else what is wrong."""
    model, sets = data_of(case)
    prepared = backend.prepare(model)
    for inputs, expected in sets:
        found = list(prepared.run(inputs))
        wrong = difference(found, expected, case)
        if case.name in DRAWN:
            wrong = "" if all(a.dtype == b.dtype and np.isin(a, (0, 1)).all() for a, b in zip(found, expected, strict=True)) else wrong
        elif wrong and case.name in NEARER:
            wrong = farther(model, inputs, expected, found)
        if wrong:
            return wrong
    return ""


def farther(model: Any, inputs: list[Any], expected: list[Any], found: list[Any]) -> str:
    """Nothing where results are at least as near to the model in float64 as the expected ones."""
    wide = ReferenceEvaluator(in_float64(model))
    names = [item.name for item in model.graph.input]
    given = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in zip(names, inputs, strict=True)}
    true = wide.run(None, given)
    ours, theirs = (
        max(float(np.abs(a.astype(np.float64) - t).max()) for a, t in zip(side, true, strict=True)) for side in (found, expected)
    )
    return "" if ours <= theirs else f"{ours} from float64, expected data {theirs}"


def in_float64(model: Any) -> Any:
    """A model whose narrow floats are float64."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    narrow = (TensorProto.FLOAT, TensorProto.FLOAT16)
    del made.graph.value_info[:]
    for item in (*made.graph.input, *made.graph.output):
        if item.type.tensor_type.elem_type in narrow:
            item.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in narrow:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("t") and attribute.t.data_type in narrow:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float64)))
    return made


@pytest.mark.parametrize("part", range(PARTS))
def test_cases_of_the_suite(part: int) -> None:
    wrong = {}
    with quiet():
        for case in cases()[part::PARTS]:
            if case.name.startswith(UNKNOWN):
                with pytest.raises(te.TargetError, match="expected an operator that is known"):
                    backend.prepare(data_of(case)[0])
                continue
            try:
                found = verdict(case)
            except Exception as error:  # every case is to be named
                found = f"{type(error).__name__}: {error}"
            if found:
                wrong[case.name] = found
    assert wrong == {}


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_networks_of_the_suite(path: Path) -> None:
    model = onnx.load(path)
    held = {item.name for item in model.graph.initializer}
    (given,) = (item for item in model.graph.input if item.name not in held)
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    x = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
    (found,) = backend.prepare(model).run([x])
    expected = numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7)


def test_so_many_cases_pass() -> None:
    """2,033 cases on a CPU, of which 2,010 have the expected data, 8 are nearer to float64, 6 are drawn, 9 are refused."""
    names = [case.name for case in cases()]
    unknown = [name for name in names if name.startswith(UNKNOWN)]
    assert (len(names) + len(LIGHT), len(unknown), len(set(names) & set(DRAWN)), len(set(names) & set(NEARER))) == (2033, 9, 6, 8)
