"""The operators of Python on scalars, by the names of the scalar operations: what a scalar inherits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorexpr.language.core.scalar import Scalar


class Operators:
    """Arithmetic, bits and comparisons; a scalar says what they give."""

    __slots__ = ()

    def _of_operator(self, name: str, left: Any, right: Any) -> Scalar:
        """What an operator of arithmetic or bits gives; each class that has operators says it."""
        raise NotImplementedError

    def _compared(self, name: str, other: Any) -> Scalar:
        """What a comparison gives; each class that has operators says it."""
        raise NotImplementedError

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Scalar:
        return self._of_operator("add", self, other)

    def __radd__(self, other: Any) -> Scalar:
        return self._of_operator("add", other, self)

    def __sub__(self, other: Any) -> Scalar:
        return self._of_operator("sub", self, other)

    def __rsub__(self, other: Any) -> Scalar:
        return self._of_operator("sub", other, self)

    def __mul__(self, other: Any) -> Scalar:
        return self._of_operator("mul", self, other)

    def __rmul__(self, other: Any) -> Scalar:
        return self._of_operator("mul", other, self)

    def __truediv__(self, other: Any) -> Scalar:
        return self._of_operator("div", self, other)

    def __rtruediv__(self, other: Any) -> Scalar:
        return self._of_operator("div", other, self)

    def __floordiv__(self, other: Any) -> Scalar:
        return self._of_operator("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Scalar:
        return self._of_operator("floordiv", other, self)

    def __mod__(self, other: Any) -> Scalar:
        return self._of_operator("mod", self, other)

    def __rmod__(self, other: Any) -> Scalar:
        return self._of_operator("mod", other, self)

    def __divmod__(self, other: Any) -> tuple[Scalar, Scalar]:
        return self._of_operator("floordiv", self, other), self._of_operator("mod", self, other)

    def __rdivmod__(self, other: Any) -> tuple[Scalar, Scalar]:
        return self._of_operator("floordiv", other, self), self._of_operator("mod", other, self)

    def __pow__(self, other: Any) -> Scalar:
        return self._of_operator("pow", self, other)

    def __rpow__(self, other: Any) -> Scalar:
        return self._of_operator("pow", other, self)

    # -- bits and logic ------------------------------------------------------------------------------------------------

    def __and__(self, other: Any) -> Scalar:
        return self._of_operator("and", self, other)

    def __rand__(self, other: Any) -> Scalar:
        return self._of_operator("and", other, self)

    def __or__(self, other: Any) -> Scalar:
        return self._of_operator("or", self, other)

    def __ror__(self, other: Any) -> Scalar:
        return self._of_operator("or", other, self)

    def __xor__(self, other: Any) -> Scalar:
        return self._of_operator("xor", self, other)

    def __rxor__(self, other: Any) -> Scalar:
        return self._of_operator("xor", other, self)

    def __lshift__(self, other: Any) -> Scalar:
        return self._of_operator("shift_left", self, other)

    def __rlshift__(self, other: Any) -> Scalar:
        return self._of_operator("shift_left", other, self)

    def __rshift__(self, other: Any) -> Scalar:
        return self._of_operator("shift_right", self, other)

    def __rrshift__(self, other: Any) -> Scalar:
        return self._of_operator("shift_right", other, self)

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Scalar:  # type: ignore[override]  # a condition of the program
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Scalar:  # type: ignore[override]  # a condition of the program
        return self._compared("ne", other)

    def __lt__(self, other: Any) -> Scalar:
        return self._compared("lt", other)

    def __le__(self, other: Any) -> Scalar:
        return self._compared("le", other)

    def __gt__(self, other: Any) -> Scalar:
        return self._compared("gt", other)

    def __ge__(self, other: Any) -> Scalar:
        return self._compared("ge", other)
