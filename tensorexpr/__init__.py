"""tensorexpr: operations written as index mathematics, compiled, with their gradients derived by exact integer algebra.

    import numpy as np
    import tensorexpr as te

    @te.op
    def matmul(a, b):
        (n, k), (_, m) = a.shape, b.shape
        return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))

    c = matmul(a, b)                            # NumPy arrays in and out, compiled on the first call
    a_bar, b_bar = te.vjp(matmul)(a, b, c_bar)  # gradients, compiled operations themselves

This module hands on the public names; each lives in the room that it is imported from. Importing it does not load LLVM:
that happens on first use.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from tensorexpr import initial
from tensorexpr.autodiff import Gradient, gradient, jacobian
from tensorexpr.autodiff.api.report import how_scattered
from tensorexpr.building.progress import on_progress
from tensorexpr.dtypes import (
    DType,
    bfloat16,
    bool_,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tensorexpr.errors import (
    ArgumentError,
    CacheWarning,
    CallError,
    DefinitionError,
    DifferentiationError,
    FailedCheckError,
    FallbackWarning,
    GradientCheckError,
    InternalError,
    InvalidNameError,
    OutOfBoundsError,
    PromotionWarning,
    ReplacementError,
    ScheduleError,
    TargetError,
    TensorExprError,
    UnknownNameError,
)
from tensorexpr.hints import WORDS, unknown_name
from tensorexpr.ir import Program
from tensorexpr.language import (
    Scalar,
    Tensor,
    all,
    any,
    argmax,
    argmin,
    checkpoint,
    compute,
    constant,
    dim,
    evaluate,
    let,
    lift,
    max,
    min,
    names_of,
    placeholder,
    planned,
    prod,
    program_of,
    reduce,
    scan,
    scatter,
    sort_plan,
    stop_gradient,
    sum,
    training,
)
from tensorexpr.language.core.habits import MODULES
from tensorexpr.language.definitions import functions as _functions
from tensorexpr.language.definitions import special as _special
from tensorexpr.language.definitions.functions import *  # noqa: F403  # the list of scalar functions is theirs
from tensorexpr.language.definitions.special import *  # noqa: F403
from tensorexpr.latex import latex
from tensorexpr.op import Op, op
from tensorexpr.op.check import check_gradient
from tensorexpr.op.transforms import grad, jvp, value_and_grad, vjp
from tensorexpr.parse import parse_program

if TYPE_CHECKING:  # what type checkers and editors see of the names in LATER
    from tensorexpr.codegen.bundle.export import export
    from tensorexpr.codegen.compile import autoschedule, build, schedule
    from tensorexpr.codegen.compiled.context import Context
    from tensorexpr.codegen.compiled.function import CompiledFunction
    from tensorexpr.codegen.compiled.storage import compile, freeze
    from tensorexpr.codegen.cuda.launch.device import synchronize
    from tensorexpr.codegen.handle import Schedule
    from tensorexpr.codegen.rewrites.intrinsics import intrinsic
    from tensorexpr.graph.files.saving import load_function, save_function
    from tensorexpr.graph.modules.methods import compile_method
    from tensorexpr.graph.modules.module import Module
    from tensorexpr.graph.modules.random import Generator
    from tensorexpr.graph.modules.state import load_state, load_state_dict, save_state, state_dict
    from tensorexpr.graph.modules.summary import summary
    from tensorexpr.graph.modules.variable import Variable
    from tensorexpr.graph.run.composites import list_composites
    from tensorexpr.graph.run.function import function
    from tensorexpr.graph.run.replace import register_replacement
    from tensorexpr.graph.trace.control import cond, while_loop
    from tensorexpr.graph.trace.gradients import gradients
    from tensorexpr.graph.trace.host import check, print
    from tensorexpr.graph.trace.naming import name_scope
    from tensorexpr.graph.trace.tracing import control_dependencies, device
    from tensorexpr.tuning import tune
    from tensorexpr_runtime import load

__version__ = "0.1.0"
how_scattered.append(lambda program: _later("tensorexpr.codegen.planners.steps.scatters", "form_of")(program))

__all__ = [
    "__version__", "ArgumentError", "CacheWarning", "CallError", "CompiledFunction", "Context", "DType", "DefinitionError",
    "DifferentiationError", "FailedCheckError", "FallbackWarning", "Generator", "Gradient", "GradientCheckError", "InternalError",
    "InvalidNameError", "Module", "Op", "OutOfBoundsError", "Program", "PromotionWarning", "ReplacementError", "Scalar", "Schedule",
    "ScheduleError", "TargetError", "Tensor", "TensorExprError", "UnknownNameError", "Variable", "all", "any", "argmax", "argmin",
    "autoschedule", "bfloat16", "bool_", "build", "check", "check_gradient", "checkpoint", "compile", "compile_method", "compute", "cond",
    "constant", "control_dependencies", "device", "dim", "dtype", "evaluate", "export", "float16", "float32", "float64", "freeze",
    "function", "grad", "gradient", "gradients", "initial", "int16", "int32", "int64", "int8", "intrinsic", "jacobian", "jvp", "latex",
    "let", "lift", "list_composites", "load", "load_function", "load_state", "load_state_dict", "max", "min", "name_scope", "names_of",
    "on_progress", "op", "parse_program", "placeholder", "planned", "print", "prod", "program_of", "reduce", "register_replacement",
    "save_function", "save_state", "scan", "scatter", "schedule", "sort_plan", "state_dict", "stop_gradient", "sum", "summary",
    "synchronize", "training", "tune", "uint16", "uint32", "uint64", "uint8", "value_and_grad", "vjp", "while_loop",
]  # fmt: skip
__all__ += _functions.__all__
__all__ += _special.__all__

LATER: dict[str, str] = {  # public names that load their room on first use, and the room: the compiler is half of all modules
    "autoschedule": "tensorexpr.codegen.compile",
    "build": "tensorexpr.codegen.compile",
    "schedule": "tensorexpr.codegen.compile",
    "CompiledFunction": "tensorexpr.codegen.compiled.function",
    "Schedule": "tensorexpr.codegen.handle",
    "intrinsic": "tensorexpr.codegen.rewrites.intrinsics",
    "tune": "tensorexpr.tuning",
    "Variable": "tensorexpr.graph.modules.variable",
    "Generator": "tensorexpr.graph.modules.random",
    "save_function": "tensorexpr.graph.files.saving",
    "load_function": "tensorexpr.graph.files.saving",
    "function": "tensorexpr.graph.run.function",
    "cond": "tensorexpr.graph.trace.control",
    "while_loop": "tensorexpr.graph.trace.control",
    "print": "tensorexpr.graph.trace.host",
    "check": "tensorexpr.graph.trace.host",
    "gradients": "tensorexpr.graph.trace.gradients",
    "device": "tensorexpr.graph.trace.tracing",
    "control_dependencies": "tensorexpr.graph.trace.tracing",
    "list_composites": "tensorexpr.graph.run.composites",
    "register_replacement": "tensorexpr.graph.run.replace",
    "Context": "tensorexpr.codegen.compiled.context",
    "export": "tensorexpr.codegen.bundle",
    "load": "tensorexpr_runtime",
    "compile": "tensorexpr.codegen.compiled.storage",
    "freeze": "tensorexpr.codegen.compiled.storage",
    "Module": "tensorexpr.graph.modules.module",
    "compile_method": "tensorexpr.graph.modules.methods",
    "load_state": "tensorexpr.graph.modules.state",
    "load_state_dict": "tensorexpr.graph.modules.state",
    "name_scope": "tensorexpr.graph.trace.naming",
    "save_state": "tensorexpr.graph.modules.state",
    "state_dict": "tensorexpr.graph.modules.state",
    "summary": "tensorexpr.graph.modules.summary",
    "synchronize": "tensorexpr.codegen.cuda.launch.device",
}


def _later(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _instead(name: str) -> str | None:
    """What to use for a name of other libraries that is none of this module; None where a name of it may have been meant."""
    if name.isidentifier() and importlib.util.find_spec(f"tensorexpr.{name}") is not None:
        return f"it is a module: import tensorexpr.{name}"
    if name in MODULES:
        return MODULES[name]
    if name not in WORDS and name in importlib.import_module("tensorexpr.kernels").__all__:
        return f"tensorexpr.kernels.{name} takes whole tensors and arrays"
    return None


if not TYPE_CHECKING:  # type checkers know what there is

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # what Python and editors look for
            raise AttributeError(f"module 'tensorexpr' has no attribute {name!r}")
        if name not in LATER:
            raise unknown_name("tensorexpr", name, __all__, _instead(name))
        value = globals()[name] = _later(LATER[name], name)
        return value


def __dir__() -> list[str]:
    """What is public: what completion in a notebook offers."""
    return sorted(__all__)
