"""The element types of the language, their NumPy counterparts, and promotion: NumPy's, but that no integer widens a float.

A `DType` is one of the thirteen objects of this module; `is` compares them, and `==` with names and NumPy dtypes too. Its
long name is NumPy's; the short name is what programs print. bfloat16 comes from ml_dtypes, which is imported only when a
bfloat16 array is met.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked, suggestion
from tensorexpr.records import field, record

_BFLOAT16_NAME = "bfloat16"


@record(eq=False)
class DType:
    """An element type: `name` as in NumPy, `short` as printed, `kind` one of bool, int, uint, float, width in `bits`."""

    name: str
    short: str
    kind: str
    bits: int
    is_float: bool = field(init=False)
    is_integer: bool = field(init=False)
    """Signed or unsigned integer (bool is not one)."""
    is_bool: bool = field(init=False)
    is_signed: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind == "float")
        object.__setattr__(self, "is_integer", self.kind in ("int", "uint"))
        object.__setattr__(self, "is_bool", self.kind == "bool")
        object.__setattr__(self, "is_signed", self.kind in ("int", "float"))

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"te.{self.name}"

    def __eq__(self, other: object) -> bool:
        """Identity among dtypes; a name or a NumPy dtype is equal to the dtype it means (`x.dtype == "float32"`)."""
        if self is other or isinstance(other, DType):
            return self is other
        try:
            return other is not None and dtype(other) is self
        except DefinitionError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))

    @property
    def itemsize(self) -> int:
        """Bytes of one element (a bool takes one)."""
        return 1 if self.kind == "bool" else self.bits // 8

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of the same name (ml_dtypes' for bfloat16)."""
        return _numpy_dtype(self.name)

    @property
    def dtype(self) -> np.dtype:
        """The same: NumPy asks what it takes for a dtype for it, so that `np.dtype(t.dtype)` and `np.zeros(3, t.dtype)` work."""
        return _numpy_dtype(self.name)

    __numpy_dtype__ = dtype
    """The name under which NumPy 2.4 and later ask."""

    @property
    def least(self) -> bool | int | float:
        """The least value: what a maximum over nothing gives (minus infinity for floating types)."""
        if self.is_float:
            return -np.inf
        if self.is_bool:
            return False
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def greatest(self) -> bool | int | float:
        """The greatest value: what a minimum over nothing gives (infinity for floating types)."""
        if self.is_float:
            return np.inf
        if self.is_bool:
            return True
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1


@cache
def _numpy_dtype(name: str) -> np.dtype:
    if name == _BFLOAT16_NAME:
        import ml_dtypes  # noqa: PLC0415

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


bool_ = DType("bool", "bool", "bool", 1)
int8 = DType("int8", "i8", "int", 8)
int16 = DType("int16", "i16", "int", 16)
int32 = DType("int32", "i32", "int", 32)
int64 = DType("int64", "i64", "int", 64)
uint8 = DType("uint8", "u8", "uint", 8)
uint16 = DType("uint16", "u16", "uint", 16)
uint32 = DType("uint32", "u32", "uint", 32)
uint64 = DType("uint64", "u64", "uint", 64)
float16 = DType("float16", "f16", "float", 16)
bfloat16 = DType(_BFLOAT16_NAME, "bf16", "float", 16)
float32 = DType("float32", "f32", "float", 32)
float64 = DType("float64", "f64", "float", 64)

DTYPES: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
)  # fmt: skip
_BY_NAME = {d.name: d for d in DTYPES} | {d.short: d for d in DTYPES}


@checked()
def dtype(value: object) -> DType:
    """The `DType` meant by a name ("float32" or "f32"), a NumPy dtype or scalar type, or a Python type.

    Raises `DefinitionError` for any other type.

    >>> te.dtype("float32") == te.float32, te.dtype(np.int8).name
    (True, 'int8')
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    name: str | None = None
    if isinstance(value, str | type | np.dtype):
        try:
            name = np.dtype(value).name
        except (TypeError, ValueError):
            name = getattr(value, "__name__", None)
    if name in _BY_NAME:
        return _BY_NAME[name]
    known = "use one of " + ", ".join(d.name for d in DTYPES)
    if name is not None and name.startswith("complex"):
        known = "a complex number is a pair of floats: one tensor of real parts, one of imaginary parts"
    raise DefinitionError(
        f"expected a dtype of the language, got {value.name if isinstance(value, np.dtype) else repr(value)}",
        location=user_location(),
        hint=suggestion(str(value).rpartition(".")[2], (d.name for d in DTYPES), known),
    )


@cache
def promote(a: DType, b: DType) -> DType:
    """The type of two operands: of a float and an integer (or bool) the float's, else NumPy's; bfloat16 with float16 gives float32."""
    if a is b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if bfloat16 in (a, b):
        other = b if a is bfloat16 else a
        return float32 if other is float16 else other
    return dtype(np.promote_types(a.numpy, b.numpy))


def promote_weak(a: DType, scalar: bool | int | float) -> DType:
    """The type of `a` combined with a Python scalar, which is weak: it raises the kind if it must, never the width.

    Raises `DefinitionError` where a Python int does not fit the integer type `a` (as NumPy's OverflowError).
    """
    if isinstance(scalar, bool):
        return a
    if isinstance(scalar, int):
        if a.is_bool:
            return int64
        if a.is_integer and not (a.least <= scalar <= a.greatest):
            raise DefinitionError(
                f"expected a Python integer that fits {a.name}, got {scalar}", hint="cast the tensor to a wider type first: te.cast"
            )
        return a
    return a if a.is_float else float64


def accumulator(a: DType) -> DType:
    """The type in which sums and products of `a` are carried: float32 for the 16-bit floats, else `a` itself."""
    return float32 if a in (float16, bfloat16) else a
