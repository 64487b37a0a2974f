"""Habits of NumPy, PyTorch and JAX, and what index notation writes in their place: the hints of errors, by name.

A scalar meets them as an operand of Python's and NumPy's functions, a tensor as a whole. `met` reads the user's expression, so that an
array indexed by a loop index is told from a function that was called.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tensorexpr.errors import DefinitionError, OutOfBoundsError, user_frame, user_location
from tensorexpr.hints import user_expression

if TYPE_CHECKING:
    from tensorexpr.language.core.tensor import Tensor


class Shape(tuple[Any, ...]):
    """The extents of a tensor, as a tuple that says what it has where it is asked for another axis."""

    __slots__ = ()

    def __getitem__(self, axis: Any) -> Any:
        try:
            return tuple.__getitem__(self, axis)
        except IndexError:
            axes = f"an axis between {-len(self)} and {len(self) - 1} of the shape" if self else "no axis of the shape"
            raise OutOfBoundsError(f"expected {axes} ({', '.join(map(str, self))}), got {axis}", location=user_location()) from None


FUNCTIONS = frozenset((
    "abs", "acos", "arccos", "arcsin", "arctan", "arctan2", "asin", "atan", "atan2", "ceil", "clip", "cos", "cosh", "erf", "exp", "exp2",
    "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor",
    "maximum", "minimum", "negative", "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
    "where",
))  # fmt: skip
"""Functions of scalars that are called the same elsewhere: `te.exp` for `np.exp`."""

SPELLED = {"absolute": "abs", "fabs": "abs", "rint": "round", "pow": "power", "fmax": "maximum", "fmin": "minimum", "true_divide": "/"}
"""Functions of scalars that are called otherwise elsewhere."""

REDUCTIONS = ("sum", "prod", "max", "min", "all", "any", "argmax", "argmin")

KERNELS = {
    "T": "transpose", "mT": "transpose", "expand_dims": "unsqueeze", "concat": "concatenate", "swapaxes": "transpose",
} | {name: name for name in (
    "all", "any", "argmax", "argmin", "broadcast_to", "concatenate", "cumsum", "diagonal", "dot", "einsum", "flatten", "flip", "matmul",
    "mean", "norm", "outer", "permute", "prod", "relu", "repeat", "reshape", "roll", "softmax", "sort", "squeeze", "stack", "std", "sum",
    "take", "tile", "trace", "transpose", "unsqueeze", "var",
)}  # fmt: skip
"""What whole tensors have elsewhere, and the function of `tensorexpr.kernels` for it."""

_ARRAYS = ("numpy", "item", "tolist", "detach", "cpu", "cuda", "block_until_ready", "data_ptr")
_CASTS = ("astype", "to", "type", "float", "double", "half", "int", "long", "bool")
_SIZES = ("size", "dim", "numel", "nelement", "nbytes", "strides", "stride")
_WRITES = ("at", "fill", "fill_", "copy_", "add_", "scatter_", "index_put_")

MODULES = {name: "te.constant(numpy array) has data; te.compute(shape, lambda i, j: ...) says each element" for name in (
    "zeros", "ones", "full", "empty", "arange", "linspace", "eye", "zeros_like", "ones_like", "rand", "randn",
)} | dict.fromkeys(("var", "size_var", "symbol", "symbols"), 'te.dim("n") is a size, te.placeholder(shape) an input') | {
    "add": "a + b, of scalars", "subtract": "a - b, of scalars", "multiply": "a * b, of scalars", "divide": "a / b, of scalars",
    "mod": "a % b, of scalars", "remainder": "a % b, of scalars", "fmod": "a % b, of scalars, has the sign of b",
    "mean": "te.sum(lambda k: A[i, k], n) / n; tensorexpr.kernels.mean takes whole tensors and arrays",
    "reduce_axis": "a reduction has indices of its own: te.sum(lambda k: A[i, k], n)",
    "thread_axis": "s[C].bind(loop, axis) binds a loop to an axis of a GPU",
    "create_schedule": "te.schedule(C)",
    "lower": 'print(te.schedule(C)) shows the loops, te.build(C, [A]).source("llvm") the code',
    "vmap": "in a definition a batch is one more index; torch.func.vmap and jax.vmap take ops, too (tensorexpr.interop)",
    "optim": "from tensorexpr.graph import optimizers", "nn": "from tensorexpr.graph import layers",
    "optimizers": "from tensorexpr.graph import optimizers", "layers": "from tensorexpr.graph import layers",
}  # fmt: skip
"""What the modules of other libraries have, and what is written here."""


def indices(tensor: Tensor) -> str:
    """Index names for the axes of a tensor: ``i, j``."""
    letters = "ijklmnpq"
    return ", ".join(letters[: tensor.ndim] if tensor.ndim <= len(letters) else [f"i{axis}" for axis in range(tensor.ndim)])


def element(tensor: Tensor) -> str:
    """An element of a tensor as it is written: ``A[i, j]``, and ``s[()]`` of one without axes."""
    return f"{tensor.name}[{indices(tensor) or '()'}]"


def elementwise(tensor: Tensor, body: str) -> str:
    """A definition of the shape of a tensor, as it is written."""
    lead = f"lambda {indices(tensor)}" if tensor.ndim else "lambda"
    return f"te.compute({tensor.name}.shape, {lead}: {body})"


def of_tensor(tensor: Tensor, name: str) -> str | None:
    """What to write in place of the attribute `name` of a whole tensor; None where no habit is known."""
    kernel = f"tensorexpr.kernels.{KERNELS[name]} takes whole tensors" if name in KERNELS else None
    if name in REDUCTIONS:
        lead = f"lambda {indices(tensor)}" if tensor.ndim else "lambda"
        own = f"te.{name}({lead}: {element(tensor)}, {tensor.name}.shape) is that of all elements"
        return own if kernel is None else f"{own}; {kernel}"
    if name in ("T", "transpose") and tensor.ndim == 2:
        shape = f"({tensor.name}.shape[1], {tensor.name}.shape[0])"
        return f"te.compute({shape}, lambda i, j: {tensor.name}[j, i]) is the transpose; {kernel}"
    if kernel is not None:
        return kernel
    if name in FUNCTIONS:
        return elementwise(tensor, f"te.{name}({element(tensor)})")
    if name in _CASTS:
        return elementwise(tensor, f"te.cast({element(tensor)}, dtype)")
    if name in _ARRAYS:
        return "a tensor has no elements until it runs: te.evaluate or a compiled function gives arrays"
    if name in _SIZES:
        return f"{tensor.name}.shape has the extents, {tensor.name}.ndim their number"
    if name in _WRITES:
        return "tensors are never written: te.compute defines all elements of a new one, te.scatter sends values to places"
    return None


def whole(tensor: Tensor, what: str) -> str:
    """What to write in place of an operator or a function of NumPy, `what`, on a whole tensor."""
    name = what.removeprefix("numpy.")
    kernel = KERNELS.get("matmul" if what == "@" else name)
    if kernel is not None:
        return f"tensorexpr.kernels.{kernel} takes whole tensors; with indices, te.compute says it element by element"
    one = element(tensor)
    if name in FUNCTIONS:
        return f"{elementwise(tensor, f'te.{name}({one})')} says it for each element"
    body = "..." if name != what else f"{one} {what} ..."
    return f"{elementwise(tensor, body)} says it for each element; tensorexpr.kernels has functions of whole tensors"


def of_scalar(text: str, name: str) -> str | None:
    """What to write in place of the attribute `name` of the scalar that prints as `text`; None where no habit is known."""
    if name in FUNCTIONS:
        return f"te.{name}({text})"
    if name in _CASTS:
        return f"te.cast({text}, dtype)"
    if name in _ARRAYS:
        return "a scalar has no value until it runs: te.evaluate or a compiled function gives arrays of tensors"
    if name in (*REDUCTIONS, *KERNELS, *_SIZES, "shape", "ndim"):
        return "a scalar is one element of a tensor; te.sum(lambda k: A[k], n) and its kin reduce"
    return None


def function(name: str) -> str:
    """What to write in place of a function of another library on scalars."""
    if name in FUNCTIONS:
        return f"te.{name} takes scalars of the language"
    if name in SPELLED:
        return f"here it is {'' if SPELLED[name] == '/' else 'te.'}{SPELLED[name]}"
    if name in REDUCTIONS or name in ("amax", "amin", "mean"):
        return f"a scalar is one element; te.{name if name in REDUCTIONS else 'sum'}(lambda k: A[k], n) reduces a tensor"
    return "scalars are computed with operators and the functions of te; an array is made a tensor by te.constant(array)"


def with_numpy(text: str, called: Callable[..., Any]) -> DefinitionError:
    """The error for a function of NumPy called on the scalar that prints as `text`."""
    return DefinitionError(
        f"numpy.{called.__name__}: expected arrays, got the scalar {text}, which has no value until it runs",
        location=user_location(),
        hint=function(called.__name__),
    )


def with_torch(called: Callable[..., Any], kernel: str | None = None) -> DefinitionError:
    """The error for a function of PyTorch called on what is being defined; `kernel` is the one of ours that takes whole tensors."""
    name = called.__name__
    return DefinitionError(
        f"expected a function of the language, got torch.{name}",
        location=user_location(),
        hint=function(name) if kernel is None else f"tensorexpr.kernels.{kernel} takes whole tensors, te.compute says it by element",
    )


# ------------------------------------------------------------------------------------------------- what the user wrote


def met() -> tuple[str, str] | None:
    """Term and hint where the user's expression is one that a scalar cannot stand in: an array or a list indexed by it, Python's `max`,
    a function of `math`. None for others."""
    expression = user_expression()
    if isinstance(expression, ast.Subscript):
        return _indexed(expression)
    if isinstance(expression, ast.Call):
        called = expression.func
        text = ast.unparse(expression)
        if isinstance(called, ast.Name) and called.id in _BUILTINS:
            return text, _BUILTINS[called.id]
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in ("math", "np", "numpy"):
            return text, function(called.attr)
    return None


_BUILTINS = {
    "max": "te.maximum(a, b) is the greater of two scalars, te.max(lambda k: A[k], n) the greatest of a tensor's",
    "min": "te.minimum(a, b) is the lesser of two scalars, te.min(lambda k: A[k], n) the least of a tensor's",
    "any": "te.any(lambda k: A[k] > 0, n) says whether one holds, | is the or of two",
    "all": "te.all(lambda k: A[k] > 0, n) says whether all hold, & is the and of two",
    "sorted": "tensorexpr.kernels.sort takes whole tensors; te.minimum and te.maximum order two scalars",
    "range": "loops over indices are reductions: te.sum(lambda k: ..., n)",
}


def _indexed(expression: ast.Subscript) -> tuple[str, str]:
    text, base = ast.unparse(expression), ast.unparse(expression.value)
    frame = user_frame()
    if frame is not None and hasattr(frame.f_locals.get(base), "weak"):
        return text, f"{base} is a scalar, which has no elements; te.scan calls its body with the step, then the state"
    owner = next(_owners(base), None)
    if owner is not None:
        return text, f"{base} is an argument of {owner}: decorate {owner} with @te.op to call it on arrays (a table is te.constant({base}))"
    name = base if base.isidentifier() else "c"
    again = ast.unparse(ast.Subscript(ast.Name(name), expression.slice))
    return text, f"make it a tensor: {name} = te.constant({base}), then {again}"


def _owners(name: str) -> Iterator[str]:
    """Named functions of the user's, innermost first, around the line, that have a positional parameter `name`."""
    frame = user_frame()
    while frame is not None:
        code = frame.f_code
        if name in code.co_varnames[: code.co_argcount] and code.co_name.isidentifier():
            yield code.co_name
        frame = frame.f_back
