"""ONNX: graphs of `te.function` as models, composites as model-local functions, and back.

    model = to_onnx(f, x, y)        # a ModelProto; composites are FunctionProtos (domain org.semantic, name op)
    f = from_onnx(model)            # or a path: a function of arrays, or of tensors in a trace; functions of the model are composites
    g = f.gradient(["x", "w"])      # its gradients, by inputs and by weights

What goes out is the graph without effects, variables as initializers; definitions are written in ONNX's operators (`expressions`),
whatever their indices. What comes in is read (`reading`) by a table of operators (`table`); an operator that ONNX defines
by a function body is a composite, `ai.onnx.Softmax`: done by our kernel where there is one, else from its body. What shapes do not say
is asked of the arguments of a call (`values`, `function`). `backend` is ONNX's own interface to it. A model that is damaged ends in an
error that says what ONNX's own checker finds in it. Needs the package `onnx` (`pip install 'tensorexpr[onnx]'`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

import tensorexpr.interop.onnx.layers
import tensorexpr.interop.onnx.operators  # noqa: F401  (these two fill the table)
from tensorexpr.errors import ArgumentError, TargetError, TensorExprError, user_location
from tensorexpr.hints import article
from tensorexpr.interop.onnx.export import to_onnx
from tensorexpr.interop.onnx.function import Imported
from tensorexpr.interop.onnx.model import Model

__all__ = ["Imported", "from_onnx", "to_onnx"]


def from_onnx(
    model: ModelProto | str | os.PathLike[str], constants: Mapping[str, Any] | None = None, *, weights: str = "constants"
) -> Imported:
    """The function of a model, or of the model in a file: one array or tensor per input, in order; a tuple of results, or one bare.

    Sizes that the model leaves open are open. `constants` fixes inputs by name; they are no arguments then. With `weights="arguments"`
    floating initializers are arguments behind the inputs. `.gradient(names)` is the function of the gradients by inputs and initializers.
    Raises `ArgumentError` for what is no model, and `TargetError` for one that is damaged or beyond what we know: operators that
    there is neither a row, a function nor a body for, attributes and versions that are not known, data in other files, and where the
    model asks for far more than it holds to be computed while it is read.
    """
    if weights not in ("constants", "arguments"):
        raise ArgumentError(f"from_onnx: expected weights to be 'constants' or 'arguments', got {weights!r}", location=user_location())
    found = model if isinstance(model, ModelProto) else _read(model)
    try:
        made = Model(found, {name: np.asarray(value) for name, value in (constants or {}).items()})
        return Imported(made.with_weights() if weights == "arguments" else made)
    except TensorExprError:
        raise
    except Exception as error:  # of NumPy, of ours: whatever a graph leads to that no exporter writes
        raise TargetError(
            f"from_onnx: expected a model that can be read, got one that fails by {type(error).__name__}: {error}",
            at=_checked(found),
            location=user_location(),
        ) from error


def _read(path: object) -> ModelProto:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"from_onnx: expected a ModelProto or the path of one, got {article(path)}", location=user_location())
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise ArgumentError(
            f"from_onnx: expected the file of a model, got {os.fspath(path)}, which is no plain file", location=user_location()
        )
    try:
        return onnx.load(os.fspath(path))
    except Exception as error:  # of protobuf, whose class is not public, of files, of data beside the file
        raise ArgumentError(
            f"from_onnx: expected the file of a model, got {os.fspath(path)}: {type(error).__name__}: {error}", location=user_location()
        ) from error


def _checked(model: ModelProto) -> str:
    """What ONNX's checker says of a model."""
    try:
        onnx.checker.check_model(model)
    except Exception as error:
        return f"ONNX's checker: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
    return "ONNX's checker takes it"
