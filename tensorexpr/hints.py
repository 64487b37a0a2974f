"""What a mistaken name may have meant, and calls that do not fit a public function.

One mechanism for "did you mean": `suggestion` looks among the names that are known for the same letters in another case, then for the word
of ours for what another library calls so (`WORDS`), then for the nearest spelling. `checked` makes of Python's bare TypeError of a
call that does not fit (an unknown keyword, an argument missing) an error that says what is taken; one that fits pays for one more frame.
`Explained` says of an attribute that an object does not have what may have been meant. `user_expression` reads what the user's line is
evaluating, so that a hint can be about it. All of it runs when something has failed.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import itertools
import linecache
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from tensorexpr.errors import CallError, UnknownNameError, user_frame, user_location

F = TypeVar("F", bound=Callable[..., Any])

WORDS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis"), "axis": ("axes",), "axes": ("axis",), "keepdim": ("keepdims",),
    "device": ("target",), "backend": ("target",), "gpu": ("cuda",), "nvidia": ("cuda",), "llvm": ("cpu",), "ptr": ("ptx",),
    "grad_outputs": ("head",), "cotangent": ("head",), "argnums": ("wrt",), "argnum": ("wrt",), "mode": ("outside",),
    "fill": ("outside",), "type": ("dtype",), "size": ("shape",), "label": ("name",), "fn": ("body",), "f": ("body",),
    "reduce": ("combine",), "op": ("combine",), "range": ("extents", "extent"), "mask": ("where",), "iters": ("trials",),
    "unbiased": ("correction",), "ddof": ("correction",), "add": ("sum",), "mul": ("prod",), "multiply": ("prod",), "product": ("prod",),
    "amax": ("max",), "maximum": ("max",), "amin": ("min",), "minimum": ("min",), "edge": ("clamp",), "nearest": ("clamp",),
    "replicate": ("clamp",), "border": ("clamp",), "mirror": ("reflect",), "reflection": ("reflect",), "periodic": ("wrap",),
    "circular": ("wrap",), "half": ("float16",), "fp16": ("float16",), "fp32": ("float32",), "fp64": ("float64",), "bf16": ("bfloat16",),
    "long": ("int64",), "pow": ("power",), "fabs": ("abs",), "absolute": ("abs",), "array": ("constant",), "asarray": ("constant",),
    "tensor": ("constant", "placeholder"), "jit": ("op",), "var": ("placeholder",), "permute": ("reorder",), "vectorise": ("vectorize",),
    "parallelize": ("parallel",), "parallelise": ("parallel",), "astype": ("cast",), "ternary": ("where",), "select": ("where",),
    "if_then_else": ("where",), "fori_loop": ("scan",), "custom_vjp": ("op",), "stop_grad": ("stop_gradient",),
    "arcsinh": ("asinh",), "arccosh": ("acosh",), "arctanh": ("atanh",), "save": ("export",), "input": ("placeholder",),
    "param": ("placeholder",), "parameter": ("Variable",), "rint": ("round",), "fmax": ("maximum",), "fmin": ("minimum",),
}  # fmt: skip
"""Words of other libraries, and ours for the same; a word of ours counts where it is among the names that are known."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that was probably meant by `name`; None where none is near."""
    names = list(known)
    lower = name.lower()
    for candidate in names:
        if candidate.lower() == lower:
            return candidate
    for candidate in WORDS.get(lower, ()):
        if candidate in names:
            return candidate
    folded = {candidate.lower(): candidate for candidate in sorted(reversed(names), key=str.islower)}
    parts = [part for part in lower.split("_") if len(part) > 3 and part in folded]
    least = 0.6 if len(names) <= _FEW else 0.7
    found = difflib.get_close_matches(lower, folded, 1, 0.8) or parts or difflib.get_close_matches(lower, folded, 1, least)
    return folded[found[0]] if found else None


def article(value: object) -> str:
    """The type of a value as messages name it: "a list", "an int", None."""
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def described(value: Any) -> str:
    """A value that does not belong where it is, for messages: as it prints where that is short and says more than an address."""
    if hasattr(value, "__array__") and getattr(value, "shape", None):
        return f"an array of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= _SHORT and "\n" not in text and " at 0x" not in text else article(value)


def suggestion(name: object, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The hint ``did you mean X?``, before `otherwise` where that is given; `otherwise` alone where no name is near."""
    known = list(known)
    ranks = [one for one in known if isinstance(name, str) and one.startswith(name) and one[len(name) :] in ("1d", "2d", "3d")]
    found = " or ".join(ranks) if ranks else nearest(name, known) if isinstance(name, str) else None
    if found is None:
        return otherwise
    return f"did you mean {found}?" if otherwise is None else f"did you mean {found}? {otherwise}"


def unknown_name(what: str, name: str, known: Iterable[str], hint: str | None = None) -> UnknownNameError:
    """The error for an attribute `name` that `what` does not have: `hint`, or the nearest of the `known` ones, and their list."""
    names = [one for one in known if not one.startswith("_")]
    if hint is None:
        few = f"{what} has {', '.join(names)}" if len(names) <= _FEW else None
        hint = suggestion(name, names, few)
    return UnknownNameError(f"expected an attribute of {what}, got {name}", location=user_location(), hint=hint)


class Offering:
    """A class whose objects offer `offered` where an editor or a notebook completes a name: what users take of them, and no more."""

    __slots__ = ()
    offered: ClassVar[tuple[str, ...]]

    def __dir__(self) -> list[str]:
        return [*(name for name in dir(type(self)) if name.startswith("__")), *self.offered]


class Explained(Offering):
    """A class whose objects say, for an attribute that they do not have, what may have been meant.

    `noun` is what messages call its objects, `habits` has what is written here for attributes that they have in other libraries.
    """

    __slots__ = ()
    noun: ClassVar[str]
    habits: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what Python and editors look for
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            meant = nearest(name, [*self.habits, *self.offered])
            raise unknown_name(self.noun, name, self.offered, None if meant is None else self.habits.get(meant))


def made_by(hint: str) -> Callable[..., NoReturn]:
    """What `checked` asks about a class whose objects other functions make: the error that says which."""

    def refuse(name: str, *_: Any) -> NoReturn:
        raise CallError(f"{name}: expected an object that a function made, got a call of its class", location=user_location(), hint=hint)

    return refuse


def user_expression() -> ast.expr | None:
    """The expression at which the user's line stands: the call, or the subscript, that led here. None where its source is not known."""
    frame = user_frame()
    if frame is None:
        return None
    where = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if where is None or None in where:
        return None
    first, last, begin, end = cast(tuple[int, int, int, int], where)
    lines = [linecache.getline(frame.f_code.co_filename, line).encode() for line in range(first, last + 1)]  # columns count bytes
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        found = ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
        if isinstance(found, ast.Name):  # Python 3.14 stands at the `any` of `any(... for ...)`
            whole = ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename))))
            calls = (node for node in whole if isinstance(node, ast.Call) and (node.lineno, node.col_offset) == (first, begin))
            return next((node for node in calls if ast.unparse(node.func) == found.id), found)
        return found
    except (SyntaxError, UnicodeDecodeError):
        return None


def checked(explain: Callable[..., None] | None = None, instead: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """Decorates a public function: a call that its parameters do not fit raises a `CallError` in place of a bare TypeError.

    `explain(name, *arguments)` may raise an error that says more, knowing what came by position; `instead` has hints for keywords of other
    libraries that have no counterpart.
    """

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                return function(*arguments, **keywords)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # the function ran
            if explain is not None:
                explain(_name(function), *arguments)
            raise _misfit(function, arguments, keywords, instead or {})

        return cast(F, call)

    return decorated


def _name(function: Callable[..., Any]) -> str:
    """How users call it: `te.build`, `te.Variable`, and `split` for the method of a class."""
    owner = function.__qualname__.removesuffix(".__init__")
    return function.__name__ if "." in owner else f"te.{owner}"


def _example(function: Callable[..., Any], name: str) -> str | None:
    """The first call of a public function in the examples of its docstring."""
    lines = re.findall(r"^\s*(?:>>>|\.\.\.) ?(.*)$", inspect.getdoc(function) or "", re.MULTILINE)
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return None
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and f".{ast.unparse(node.func)}".endswith(f".{name}"))
    return next((text for text in map(ast.unparse, calls) if len(text) <= _LONGEST), None)


_LONGEST = 90
"""Characters of an example in a hint."""
_FEW = 12
"""Names that are listed, and of which a less similar one is taken to be meant."""
_SHORT = 60
"""Characters of a value in a message."""


def _misfit(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any], instead: Mapping[str, str]) -> CallError:
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
    if "." in function.__qualname__:
        parameters, arguments = parameters[1:], arguments[1:]
    name = _name(function)
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = {*by_position[: len(arguments)], *keywords}
    unknown = next((key for key in keywords if key not in known), None)
    twice = next((key for key in keywords if key in by_position[: len(arguments)]), None)
    hint = None
    if unknown is not None:
        message = f"{name}: expected keywords among {', '.join(known) or 'none'}, got {unknown}"
        hint = instead.get(unknown) or suggestion(unknown, known) or instead.get(nearest(unknown, instead) or "")
    elif twice is not None:
        message = f"{name}: expected one value for {twice}, got two"
    elif len(arguments) > len(by_position) and not many:
        message = f"{name}: expected at most {len(by_position)} arguments by position, got {len(arguments)}"
        rest = ", ".join(known[len(by_position) :])
        hint = f"given by name: {rest}" if rest else None
    else:
        missing = next(p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.name not in given)
        message = f"{name}: expected a value for {missing}, got none"
    if hint is None and (example := _example(function, name)) is not None:
        hint = f"for instance {example}"
    return CallError(message, term=f"{name}{inspect.Signature(parameters)}", location=user_location(), hint=hint)
