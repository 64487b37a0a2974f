"""The text of programs: `printing` says what is written, `layout` where lines are broken. `tensorexpr.parse` reads it back."""

from tensorexpr.text.printing import (
    WIDTH,
    digest,
    is_readable,
    literal,
    print_data,
    print_definition,
    print_expr,
    print_program,
    print_type,
    print_value,
)

__all__ = [
    "WIDTH", "digest", "is_readable", "literal", "print_data", "print_definition", "print_expr", "print_program", "print_type",
    "print_value",
]  # fmt: skip
