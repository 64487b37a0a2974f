"""Reading the text of programs through Python's own parser; `scalars` has what loop nests read, too."""

from tensorexpr.parse.programs import parse_expr, parse_program

__all__ = ["parse_expr", "parse_program"]
