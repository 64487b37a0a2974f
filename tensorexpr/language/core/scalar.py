"""Scalars of the language: an IR expression under Python's operators, promoted as NumPy promotes, but for integers and floats.

A `Scalar` is what indices, sizes, elements of tensors and everything computed from them are while a definition is being
written. Arithmetic follows NumPy: operands of different dtypes are cast to the promoted one, a Python number is weak (it
takes the other operand's dtype where its kind allows), integers divide to float64; but an integer never widens a float.
What operators make of sizes and Python numbers is weak, too, so dtypes are the same whether a size is open or a number. Comparisons,
`==` included, build comparisons; `&`, `|`, `~` combine them. A scalar has no Python truth value, number or length of its own.

Scalars carry the tensors that their expression reads (`sources`, by key), so a definition knows them without a registry.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError, is_users, user_location
from tensorexpr.hints import Offering, unknown_name
from tensorexpr.ir import Apply, Cast, Const, Expr, Size
from tensorexpr.language.core import habits, promotions
from tensorexpr.language.core.operators import Operators
from tensorexpr.language.core.printing import describe
from tensorexpr.ops import OPS, cast_value
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk

if TYPE_CHECKING:
    from tensorexpr.language.core.tensor import Tensor

Sources = Mapping[str, "Tensor"]
NO_SOURCES: Sources = {}

Weak = bool | int | float
"""A Python number: its kind counts in promotion, its width does not."""


_as_numbers: ContextVar[bool] = ContextVar("tensorexpr_as_numbers", default=False)


@contextmanager
def standing_for_numbers() -> Iterator[None]:
    """Scalars of the block stand for numbers of a function that was written for these: a dictionary that it looks one up in would hold the
    number, and not find the scalar, so this is refused as a condition is."""
    token = _as_numbers.set(True)
    try:
        yield
    finally:
        _as_numbers.reset(token)


class Scalar(Operators, Offering):
    """One value of the language: `expr` is its IR, `dtype` its element type, `sources` the tensors it reads. A `weak` one stands for a
    Python number that is known as the program runs: made of sizes and numbers.

    Never made by hand: indices come from `te.compute` and reductions, sizes from `te.dim`, elements from `A[i, j]`.
    """

    __slots__ = ("expr", "sources", "weak")
    offered = ("dtype",)

    def __init__(self, expr: Expr, sources: Sources = NO_SOURCES, weak: bool = False) -> None:
        self.expr = expr
        self.sources = sources
        self.weak = weak

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.expr.dtype

    def __repr__(self) -> str:
        return describe(self.expr, self.sources)

    def __hash__(self) -> int:  # that of the object, since `==` of scalars makes a scalar
        if _as_numbers.get() and is_users(sys._getframe(1)):
            raise _refusal(self, "a number that is looked up", "a size that is open has no value while the function is traced")
        return object.__hash__(self)

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _of_operator(self, name: str, left: Any, right: Any) -> Scalar:
        return _operated(name, left, right)

    def _compared(self, name: str, other: Any) -> Scalar:
        return binary(name, self, other)

    def __neg__(self) -> Scalar:
        return Scalar(unary("neg", self).expr, self.sources, self.weak)

    def __pos__(self) -> Scalar:
        return self

    def __abs__(self) -> Scalar:
        return self if self.dtype.is_bool else Scalar(unary("abs", self).expr, self.sources, self.weak)

    def __round__(self, digits: int | None = None) -> Scalar:
        if digits is not None:
            raise DefinitionError(
                f"expected to round to an integer value, got {digits} digits",
                term=repr(self),
                location=user_location(),
                hint="te.round(x * 100) / 100 keeps two digits",
            )
        return rounded("round", self)

    def __floor__(self) -> Scalar:
        return rounded("floor", self)

    def __ceil__(self) -> Scalar:
        return rounded("ceil", self)

    def __trunc__(self) -> Scalar:
        return rounded("trunc", self)

    def __invert__(self) -> Scalar:
        return unary("invert", self)

    # -- what a scalar is not ------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        known = _decided(self.expr)
        if known is not None:
            return known
        raise _refusal(
            self,
            "a Python truth value",
            "write te.where(condition, a, b) for a choice, & | ~ for and, or, not, and (a <= i) & (i < b) for a <= i < b",
        )

    def __int__(self) -> int:
        raise _refusal(self, "a Python int", "te.cast(x, dtype) converts within the language")

    def __index__(self) -> int:
        raise _refusal(self, "a Python int", "loops over indices are reductions: te.sum(lambda k: ..., n)")

    def __float__(self) -> float:
        raise _refusal(
            self, "a Python float", 'te.cast(x, "float32") converts within the language; te.exp, te.log, ... take the place of math'
        )

    def __matmul__(self, other: object) -> Any:
        raise _refusal(self, "a tensor to multiply by @", "a product of tensors is te.sum(lambda k: A[i, k] * B[k, j], n)")

    __rmatmul__ = __matmul__

    @classmethod
    def __torch_function__(cls, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise habits.with_torch(called)

    def __len__(self) -> int:
        raise _refusal(self, "something with a length", "a scalar is one element; tensors have a shape")

    def __iter__(self) -> Any:
        raise _refusal(self, "something to iterate over", "loops over indices are reductions: te.sum(lambda k: ..., n)")

    def __contains__(self, item: object) -> bool:
        raise _refusal(self, "something to look into", "use te.any(lambda k: A[k] == x, n)")

    def __getitem__(self, item: object) -> Any:
        raise _refusal(self, "a tensor to index", "give all indices at once: A[i, j]")

    def __format__(self, spec: str) -> str:
        if spec:
            raise _refusal(self, f"a number to write as {spec!r}", "without a format it is written as an expression")
        return repr(self)

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what Python and NumPy look for
                raise AttributeError(name)
            raise unknown_name(f"the scalar {self!r}", name, self.offered, habits.of_scalar(repr(self), name))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise _refusal(
            self, "an array", "te.evaluate or a compiled function gives arrays of tensors; an array is made a tensor by te.constant(array)"
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise habits.with_numpy(repr(self), function)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = _UFUNCS.get(ufunc.__name__)
        if name is None or method != "__call__" or options:
            raise DefinitionError(
                f"expected a function of the language, got numpy.{ufunc.__name__}",
                term=repr(self),
                location=user_location(),
                hint=habits.function(ufunc.__name__),
            )
        return unary(name, inputs[0]) if OPS[name].arity == 1 else binary(name, *inputs)


_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "floor_divide": "floordiv", "remainder": "mod",
    "power": "pow", "negative": "neg", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "shift_left",
    "right_shift": "shift_right",
}  # fmt: skip
"""NumPy's names of the operators: what `np.float32(2) * x` asks for."""


def _refusal(scalar: Scalar, wanted: str, hint: str) -> DefinitionError:
    met = habits.met()
    return DefinitionError(
        f"expected {wanted}, got an expression of the language, which has no value until it runs",
        term=repr(scalar) if met is None else met[0],
        location=user_location(),
        hint=hint if met is None else met[1],
    )


def _decided(expr: Expr) -> bool | None:
    """The truth of a comparison of sizes that holds, or fails, whatever the sizes are (`x.shape == y.shape`)."""
    if isinstance(expr, Const):
        return bool(expr.value)
    if not isinstance(expr, Apply) or expr.op.result != "bool" or any(a.dtype is not dtypes.int64 for a in expr.args):
        return None
    if not all(isinstance(node, Size | Const | Apply) for node in walk(expr)):
        return None
    left, right = (affine_of(a) for a in expr.args)
    if left is None or right is None or not (left - right).is_constant:
        return None
    return bool(expr.op.evaluate(np.int64((left - right).constant), np.int64(0)))


# ------------------------------------------------------------------------------------------------------- operands


def merged(scalars: tuple[Scalar, ...]) -> Sources:
    """The tensors that any of the scalars reads."""
    result = NO_SOURCES
    for scalar in scalars:
        if scalar.sources and scalar.sources is not result:
            result = {**result, **scalar.sources} if result else scalar.sources
    return result


def operand(value: Any) -> Scalar | Weak:
    """A scalar of the language or a Python number; NumPy scalars and 0-d arrays become literals of their dtype.

    Raises `DefinitionError` for anything else.
    """
    if isinstance(value, Scalar | bool | int | float):
        if isinstance(value, np.generic):  # np.float64 is a float and has a dtype all the same
            return Scalar(Const(value.item(), dtypes.dtype(value.dtype)))
        return value
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        kind = dtypes.dtype(value.dtype)
        return Scalar(Const(float(value) if kind.is_float else value.item(), kind))
    if isinstance(value, np.ndarray):
        raise DefinitionError(
            f"expected a scalar, got an array of shape {value.shape}",
            location=user_location(),
            hint="make it a tensor and index it: c = te.constant(array), then c[i, j]",
        )
    hint = getattr(value, "scalar_hint", None) or (
        "a complex number is a pair of scalars, its real and its imaginary part"
        if isinstance(value, complex)
        else "scalars are Python and NumPy numbers, indices, sizes, elements A[i, j] and what is computed from them"
    )
    raise DefinitionError(
        f"expected a scalar, got {_kind(value)}", term=None if value is None else _short(value), location=user_location(), hint=hint
    )


def _kind(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _short(value: object) -> str:
    text = repr(value).splitlines()[0]
    return text if len(text) <= 80 else text[:77] + "..."


def is_strong(value: Scalar | Weak) -> bool:
    """Whether a value has a dtype of its own: no Python number, nor a scalar that stands for one."""
    return isinstance(value, Scalar) and not value.weak


def weakly_promoted(dtype: DType, value: Scalar | Weak) -> DType:
    """The type of `dtype` combined with a weak value. Raises `DefinitionError` where a Python int does not fit."""
    if isinstance(value, Scalar):
        value = False if value.dtype.is_bool else 0.0 if value.dtype.is_float else 0
    return dtypes.promote_weak(dtype, value)


def default_dtype(value: Scalar | Weak) -> DType:
    """NumPy's dtype of a Python number alone, or that of a scalar."""
    if isinstance(value, Scalar):
        return value.dtype
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, float):
        return dtypes.float64
    for kind in (dtypes.int64, dtypes.uint64):
        if kind.least <= value <= kind.greatest:
            return kind
    raise DefinitionError(f"expected an integer of at most 64 bits, got {value}", location=user_location(), hint="write it as a float")


def literal(value: Weak, dtype: DType) -> Scalar:
    """The number in `dtype`, cast as `te.cast` does."""
    if dtype.is_float:
        try:
            return Scalar(Const(float(value), dtype))
        except OverflowError:
            raise DefinitionError(
                f"expected a number that fits float64, got an integer of {int(value).bit_length()} bits", location=user_location()
            ) from None
    if isinstance(value, float):
        return Scalar(Const(cast_value(np.float64(value), dtype), dtype))
    if dtype.is_bool:
        return Scalar(Const(value != 0, dtype))
    return Scalar(Const((int(value) - dtype.least) % (1 << dtype.bits) + dtype.least, dtype))


def strong(value: Any) -> Scalar:
    """The value as a scalar of the language: a Python number, and what stands for one, gets NumPy's dtype for it."""
    value = operand(value)
    if not isinstance(value, Scalar):
        return literal(value, default_dtype(value))
    return Scalar(value.expr, value.sources) if value.weak else value


def converted(value: Any, dtype: DType) -> Scalar:
    """The value in `dtype`: literals are converted in place, others get a cast."""
    value = operand(value)
    if not isinstance(value, Scalar):
        return literal(value, dtype)
    if value.dtype is dtype:
        return value
    if value.weak and isinstance(value.expr, Apply) and value.expr.op.name == "where":  # a choice of numbers is one of such numbers
        condition, *pair = value.expr.args
        branches = (converted(e.value if isinstance(e, Const) else Scalar(e, weak=True), dtype) for e in pair)
        return Scalar(Apply(value.expr.op, (condition, *(b.expr for b in branches))), value.sources)
    return Scalar(Cast(dtype, value.expr), value.sources)


# ------------------------------------------------------------------------------------------------------- promotion


def common_dtype(values: tuple[Scalar | Weak, ...]) -> DType:
    """The dtype in which one computes with these operands: strong ones promote, then each Python number is weak.

    Raises `DefinitionError` where a Python int does not fit.
    """
    strongs = [v.dtype for v in values if isinstance(v, Scalar) and not v.weak]
    if not strongs:
        result = default_dtype(values[0])
        for value in values[1:]:
            result = dtypes.promote(result, default_dtype(value))
        return result
    result = strongs[0]
    for other in strongs[1:]:
        result = dtypes.promote(result, other)
    # The kind of the highest Python number decides first, so that (uint8, 300, 0.5) is a float and 300 fits it.
    for value in sorted((v for v in values if not is_strong(v)), key=_kind_rank, reverse=True):
        try:
            result = weakly_promoted(result, value)
        except DefinitionError as error:
            raise DefinitionError(error.message, location=user_location(), hint=error.hint) from None
    return result


def _kind_rank(value: Scalar | Weak) -> int:
    kind = default_dtype(value) if isinstance(value, Scalar | bool | float) else dtypes.int64
    return 0 if kind.is_bool else 1 if kind.is_integer else 2


def float_of(dtype: DType) -> DType:
    """The floating type in which NumPy's float functions take an integer: the least that holds its values, at most float64."""
    if dtype.is_float:
        return dtype
    if dtype.bits <= 8:
        return dtypes.float16
    return dtypes.float32 if dtype.bits == 16 else dtypes.float64


def build(name: str, *args: Scalar) -> Scalar:
    """The operation on operands of one dtype; a `DefinitionError` with the user's line where the dtype has no such operation."""
    try:
        node = Apply(OPS[name], tuple(a.expr for a in args))
    except DefinitionError as error:
        shown = ", ".join(repr(a) for a in args)
        raise DefinitionError(error.message, term=f"{name}({shown})", location=user_location(), hint=error.hint) from None
    hash(node)  # now, while the operands have theirs: a long chain would else recurse too deep later
    return Scalar(node, merged(args))


_ON_BOOLS = {"add": "or", "mul": "and"}
_BYTES_FOR_BOOLS = ("floordiv", "mod", "pow", "shift_left", "shift_right")


def _operated(name: str, left: Any, right: Any) -> Scalar:
    """What an operator gives: a weak scalar of weak operands, as Python gives numbers of numbers."""
    made = binary(name, left, right)
    weak = all(value.weak if isinstance(value, Scalar) else not isinstance(value, np.generic | np.ndarray) for value in (left, right))
    return Scalar(made.expr, made.sources, True) if weak else made


def binary(name: str, left: Any, right: Any) -> Scalar:
    """A binary operation with the promotion of `common_dtype`."""
    pair = (operand(left), operand(right))
    op = OPS[name]
    if op.result == "bool":
        outside = _compared_outside(pair)
        dtype = outside or common_dtype(pair)
    else:
        dtype = common_dtype(pair)
    if dtype is dtypes.float64:
        _note_widening(pair)
    if name == "div":
        dtype = dtype if dtype.is_float else dtypes.float64
    elif name == "pow":
        exponent = pair[1]
        if dtype.is_integer and isinstance(exponent, int) and exponent < 0:
            raise DefinitionError(
                f"expected a power of an integer that is not negative, got {exponent}",
                term=repr(left),
                location=user_location(),
                hint='te.cast(x, "float64") ** -1 is a float',
            )
    if dtype.is_bool:
        if name in _BYTES_FOR_BOOLS:
            dtype = dtypes.int8
        elif name == "sub":
            raise DefinitionError(
                "expected numbers to subtract, got bools",
                term=f"({left!r}) - ({right!r})",
                location=user_location(),
                hint="a ^ b says where two bools differ",
            )
        name = _ON_BOOLS.get(name, name)
    return build(name, converted(pair[0], dtype), converted(pair[1], dtype))


def _note_widening(pair: tuple[Scalar | Weak, Scalar | Weak]) -> None:
    """Warns where data in fewer bits becomes float64 because of numbers: of NumPy, or made of indices and floats."""
    for value, other in (pair, pair[::-1]):
        if not (isinstance(value, Scalar) and isinstance(other, Scalar)) or value.weak or other.weak:
            continue
        if value.sources and value.dtype.is_float and value.dtype.bits < 64 and other.dtype is dtypes.float64 and not other.sources:
            if promotions.is_written_by_user():
                name, text = value.dtype.name, repr(other.expr.value) if isinstance(other.expr, Const) else repr(other)
                remedy = f"float({text})" if isinstance(other.expr, Const) else f'te.cast({text}, "{name}")'
                promotions.warn(f"{value!r} of {name} becomes float64, the dtype of the number {text}; {remedy} keeps {name}")


def _compared_outside(pair: tuple[Scalar | Weak, Scalar | Weak]) -> DType | None:
    """int64 for a comparison of a narrow integer with a Python int that does not, or may not, fit it: NumPy compares the values."""
    for value, other in (pair, pair[::-1]):
        if not isinstance(value, Scalar) or value.weak or not value.dtype.is_integer:
            continue
        if isinstance(other, Scalar) and other.weak and other.dtype.is_integer and value.dtype is not dtypes.uint64:
            return dtypes.int64
        if isinstance(other, int) and not isinstance(other, bool):
            fits = value.dtype.least <= other <= value.dtype.greatest
            wide = dtypes.int64
            if not fits and value.dtype is not dtypes.uint64 and wide.least <= other <= wide.greatest:
                return wide
    return None


def unary(name: str, value: Any) -> Scalar:
    """A unary operation that keeps the dtype."""
    return build(name, strong(value))


def rounded(name: str, value: Any) -> Scalar:
    """A function that rounds to integer values; integers are left as they are."""
    value = strong(value)
    return build(name, value) if value.dtype.is_float else value


def unary_float(name: str, value: Any) -> Scalar:
    """A function of a real number: integers go to the floating type that NumPy takes for them."""
    value = strong(value)
    return build(name, converted(value, float_of(value.dtype)))


def binary_float(name: str, left: Any, right: Any) -> Scalar:
    """A function of two real numbers."""
    pair = (operand(left), operand(right))
    if is_strong(pair[0]) and is_strong(pair[1]):
        dtype = common_dtype(pair)
        dtype = dtype if dtype.is_float else dtypes.promote(*(float_of(default_dtype(value)) for value in pair))
    else:
        dtype = float_of(common_dtype(pair))
    return build(name, converted(pair[0], dtype), converted(pair[1], dtype))
