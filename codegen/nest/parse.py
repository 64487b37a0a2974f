"""Reading the text of loop nests (see `text`) through Python's own parser.

One walk over Python's syntax tree, in the manner of `tensorexpr.parse`: expressions are those of programs, a literal takes the dtype of
the place where it stands. The instructions at the end of the text are read first. Whatever is no nest is a `DefinitionError` with
line, column and the line's text. Reading does not verify: `verify` does. What is read is no larger than its text, and no deeper than
Python's parser and its limit of recursion allow.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.nest import (
    LOOP_KINDS,
    Ahead,
    Alloc,
    Block,
    Buffer,
    Call,
    Check,
    CheckSite,
    Filled,
    For,
    If,
    Kernel,
    LoopNest,
    Stmt,
    Store,
)
from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.ir import Access, Const, Constant, TensorType
from tensorexpr.parse.scalars import ScalarReader, items_of, shown, syntax

_WORDS: dict[str, tuple[str, ...]] = {
    "parameter": ("written", "streamed", "atomic", "prefetched=n", "within=(low, high)"),
    "constant": (),
    "workspace": ("atomic", "prefetched=n", "within=(low, high)"),
    "local": ("within=(low, high)",),
}
"""What may be said of a buffer beside its type, by its memory."""
_HEAD = "main(n, x, y)"
_LOOP = "for i in parallel(range(0, n)):"
_PLACE = re.compile("(.*):([0-9]{1,18})", re.DOTALL)
"""A line of a file."""
_CALL = "instruction(dot(c, a, b), body=..., declarations={...})"


def parse_nest(text: str, constants: Mapping[str, np.ndarray] | None = None) -> LoopNest:
    """The nest that `print_nest` printed as `text`.

    `constants` gives, by name, the data of those whose text has only a digest. Raises `DefinitionError` with line and
    column for text that is not a nest, or where the data does not have the digest.
    """
    if not isinstance(text, str):
        raise DefinitionError(
            f"parse_nest: expected the text of a loop nest, got {type(text).__name__}", location=user_location(), hint="str(nest)"
        )
    reader = _Reader(text, constants or {})
    try:
        return reader.nest(syntax(text, "exec", "a loop nest"))
    except (RecursionError, MemoryError):
        at = None if reader.place is None else f"line {reader.place.lineno}, column {reader.place.col_offset + 1}"
        raise DefinitionError("expected the text of a loop nest, got one that nests deeper than can be read", at=at) from None


class _Reader(ScalarReader):
    """`instructions` are those that the text defines, without operands; `said` gives the names of the buffers of which a word is said;
    `place` is the statement that is read now, None before the first."""

    function = "parse_nest"

    def __init__(self, text: str, data: Mapping[str, np.ndarray]) -> None:
        super().__init__(text, data)
        self.instructions: dict[str, Call] = {}
        self.said: dict[str, list[str]] = {"written": [], "streamed": [], "atomic": []}
        self.ahead: list[tuple[str, int]] = []
        self.place: ast.stmt | None = None

    # ---------------------------------------------------------------------------------------------------- the whole

    def nest(self, module: ast.Module) -> LoopNest:
        if not module.body:
            self.unlike(module, _HEAD)
        head, *rest = module.body
        for statement in rest:
            if isinstance(statement, ast.Expr):
                self.instruction(statement.value)
        buffers: dict[str, list[Buffer]] = {memory: [] for memory in _WORDS}
        constants: list[Constant] = []
        kernels: list[Kernel] = []
        sites: list[CheckSite] = []
        for statement in rest:
            self.place = statement
            match statement:
                case ast.AnnAssign(annotation=ast.Name(id="size"), value=None):
                    self.sizes[self.new_name(statement.target)] = None
                case ast.AnnAssign(annotation=ast.Call(func=ast.Name(id="constant"))):
                    constants.append(self.data_of(statement, self.buffer(statement, ("constant",))))
                case ast.AnnAssign(value=None):
                    buffer = self.buffer(statement, ("parameter", "workspace"))
                    buffers[buffer.memory].append(buffer)
                case ast.FunctionDef():
                    kernels.append(self.kernel(statement, len(kernels)))
                case ast.Assign():
                    sites.append(self.site(statement, len(sites)))
                case ast.Expr():
                    pass
                case _:
                    self.fail(statement, f"expected a declaration, a kernel, a site or an instruction, got {shown(statement)}")
        self.place = head
        parameters = tuple(buffers["parameter"])
        name, options = self.head(head, [*self.sizes, *(b.name for b in parameters)])
        return LoopNest(
            name,
            parameters,
            tuple(constants),
            tuple(buffers["workspace"]),
            tuple(kernels),
            tuple(self.said["written"]),
            tuple(self.sizes),
            tuple(sites),
            tuple(self.said["streamed"]),
            tuple(self.ahead),
            options.get("precision", "float32"),
            tuple(self.said["atomic"]),
            options.get("tensor_cores", True),
            options.get("warpgroups", False),
        )

    def head(self, statement: ast.stmt, declared: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """The name of the nest and the options of its first line."""
        call = statement.value if isinstance(statement, ast.Expr) else statement
        name, arguments = self.named(call, _HEAD)
        given = [self.name(a) for a in arguments]
        if given != declared:
            self.fail(statement, f"expected the sizes and parameters {', '.join(declared)}, got {', '.join(given)}")
        return name, self.options(
            call, {"precision": str, "tensor_cores": bool, "warpgroups": bool}, 'main(n, x, y, precision="tf32", tensor_cores=False)'
        )

    def buffer(self, statement: ast.AnnAssign, memories: Sequence[str]) -> Buffer:
        """The buffer that is declared; what is said of it beside its type is kept."""
        match statement.annotation:
            case ast.Call(func=ast.Name(id=memory), args=[type_, *words], keywords=keywords) if memory in memories:
                if len({word.arg for word in keywords}) != len(keywords):
                    self.unlike(statement, f"x: {memories[0]}(f32[4])")
            case _:
                self.unlike(statement, f"x: {memories[0]}(f32[4])")
        made, within = self.type(type_), None
        name = self.new_name(statement.target)
        allowed = {word.partition("=")[0] for word in _WORDS[memory]}
        for word in (*words, *keywords):
            match word:
                case ast.Name(id="written" | "streamed" | "atomic" as said) if said in allowed:
                    self.said[said].append(name)
                case ast.keyword(arg="prefetched", value=distance) if "prefetched" in allowed:
                    self.ahead.append((name, self.whole(distance)))
                case ast.keyword(arg="within", value=ast.Tuple(elts=[low, high])) if "within" in allowed:
                    within = self.whole(low), self.expr(high, dtypes.int64)
                case _:
                    known = " or ".join(_WORDS[memory]) or "nothing"
                    self.fail(statement, f"expected {known} beside the type of a {memory}, got {shown(word)}")
        self.tensors[name] = made.dtype
        return Buffer(name, made.dtype, made.shape, memory, within)

    def new_name(self, node: ast.expr) -> str:
        """A name that nothing has in this place."""
        name = self.name(node)
        if name in self.tensors or name in self.sizes:
            self.fail(node, f"expected distinct names of buffers and sizes, got {name} twice")
        return name

    def whole(self, node: ast.expr) -> int:
        """A whole number."""
        value = self.expr(node, dtypes.int64)
        if not isinstance(value, Const) or value.dtype is not dtypes.int64:
            self.fail(node, f"expected a whole number, got {shown(node)}")
        return int(value.value)

    def data_of(self, statement: ast.AnnAssign, buffer: Buffer) -> Constant:
        if statement.value is None or not all(isinstance(e, Const) for e in buffer.shape):
            self.unlike(statement, "W: constant(f32[2]) = [1.0, 2.0]")
        return self.constant(statement.value, buffer.name, TensorType(buffer.shape, buffer.dtype))

    def kernel(self, function: ast.FunctionDef, number: int) -> Kernel:
        match function.returns:
            case None:
                items, together = [], False
            case ast.Call(func=ast.Name(id="together"), args=items, keywords=[]):
                together = True
            case made:
                items, together = items_of(made), False
        names = [n.id if isinstance(n, ast.Name) else n.value if isinstance(n, ast.Constant) else None for n in items]
        head = shown(function.args), function.decorator_list, function.name
        if not names or not all(isinstance(name, str) for name in names) or head != ("", [], f"kernel_{number}"):
            self.unlike(function, f"def kernel_{number}() -> y:")
        return Kernel(" ".join(map(str, names)), self.block(function.body), together)

    def site(self, statement: ast.Assign, number: int) -> CheckSite:
        """What the failed check of a number is to say."""
        example = f'check_{number} = site("x[t[i]]", tensor="x", axis=0, definition="y", location="file:1", unsigned=False)'
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="site"), args=[ast.Constant(str() as access)])):
                kinds = {"tensor": str, "axis": int, "definition": str, "location": str, "unsigned": bool}
                said = self.options(statement.value, kinds, example)
                place = _PLACE.fullmatch(said.get("location", ":0"))
                if name == f"check_{number}" and {"tensor", "axis", "definition"} <= set(said) and place is not None:
                    location = Location(place[1], int(place[2])) if "location" in said else None
                    return CheckSite(access, said["tensor"], said["axis"], said["definition"], location, said.get("unsigned", False))
        self.unlike(statement, example)

    def instruction(self, node: ast.expr) -> None:
        """Adds an instruction that the text defines."""
        match node:
            case ast.Call(func=ast.Name(id="instruction"), args=[call]):
                name, arguments = self.named(call, "dot(c, a, b)")
                pointers = tuple(a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else self.name(a) for a in arguments)
                said = self.options(node, {"body": str, "declarations": dict}, _CALL)
                declarations = tuple(said.get("declarations", {}).items())
                if "body" in said and all(isinstance(part, str) for pair in declarations for part in pair):
                    if name in self.instructions:
                        self.fail(node, f"expected one instruction of the name {name}, got two")
                    self.instructions[name] = Call(name, pointers, (), said["body"], declarations)
                    return
        self.unlike(node, _CALL)

    def named(self, node: ast.AST, example: str) -> tuple[str, list[ast.expr]]:
        """The name that a call calls, also one that is no identifier, and its arguments."""
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Constant(value=str() as name), keywords=options) if example == _HEAD or not options:
                return name, node.args
        self.unlike(node, example)

    def options(self, call: Any, kinds: Mapping[str, type], example: str) -> dict[str, Any]:
        """The keyword arguments of a call, which are literals of these types."""
        found: dict[str, Any] = {}
        for keyword in call.keywords:
            try:
                value = ast.literal_eval(keyword.value)
            except (ValueError, TypeError):
                value = None
            if type(value) is not kinds.get(keyword.arg) or keyword.arg in found:
                self.unlike(call, example)
            found[keyword.arg] = value
        return found

    def unlike(self, node: ast.AST, example: str) -> NoReturn:
        """Refuses what does not look like an example."""
        self.fail(node, f"expected what looks like {example}, got {shown(node) or 'nothing'}")

    # ---------------------------------------------------------------------------------------------------- statements

    def block(self, body: Sequence[ast.stmt]) -> Block:
        """The statements of a block; a local buffer has those up to its `del`, or to the end."""
        open_: list[Buffer] = []
        blocks: list[list[Stmt]] = [[]]

        def close() -> str:
            buffer = open_.pop()
            del self.tensors[buffer.name]
            made = Alloc(buffer, tuple(blocks.pop()))
            blocks[-1].append(made)
            return buffer.name

        for statement in body:
            self.place = statement
            match statement:
                case ast.Pass():
                    pass
                case ast.AnnAssign(value=None):
                    open_.append(self.buffer(statement, ("local",)))
                    blocks.append([])
                case ast.Delete(targets=[ast.Name(id=name)]) if any(b.name == name for b in open_):
                    while close() != name:
                        pass
                case ast.Delete():
                    self.fail(statement, f"expected del of a local buffer of this block, got {shown(statement)}")
                case _:
                    blocks[-1].append(self.statement(statement))
        while open_:
            close()
        return tuple(blocks[0])

    def statement(self, statement: ast.stmt) -> Stmt:
        match statement:
            case ast.For(orelse=[]):
                return self.loop(statement)
            case ast.If(test=ast.Call(func=ast.Call(func=ast.Name(id="filled"), args=[ast.Name(id=tile)]), args=[condition], keywords=[])):
                return Filled(self.expr(condition, dtypes.bool_), self.block(statement.body), self.block(statement.orelse), tile)
            case ast.If(test=ast.Call(func=ast.Name(id="ahead"), args=[condition], keywords=[])):
                return Ahead(self.expr(condition, dtypes.bool_), self.block(statement.body), self.block(statement.orelse))
            case ast.If(test=condition):
                return If(self.expr(condition, dtypes.bool_), self.block(statement.body), self.block(statement.orelse))
            case ast.Assign(targets=[ast.Subscript() as target]):
                element = self.element(target)
                value = self.expr(statement.value, element.dtype)
                if value.dtype is not element.dtype:
                    self.fail(statement.value, f"expected a value of {element.dtype.name}, got {value.dtype.name}")
                return Store(element.tensor, element.indices, value)
            case ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[index, extent, number], keywords=[])):
                return Check(self.expr(index, dtypes.int64), self.expr(extent, dtypes.int64), self.whole(number))
        self.fail(statement, f"expected a loop, a condition, a store, a local buffer or a check, got {shown(statement)}")

    def element(self, node: ast.expr) -> Access:
        """An element of a buffer."""
        element = self.expr(node, None)
        if not isinstance(element, Access):
            self.fail(node, f"expected an element such as c[0], got {shown(node)}")
        return element

    def loops(self, generators: list[ast.comprehension], also: str = "range") -> NoReturn:
        self.fail(generators[0].target, "expected a loop as a statement of its own, got a reduction")

    def loop(self, loop: ast.For) -> For:
        calls: list[ast.expr] = []
        match loop.iter:
            case ast.Call(func=ast.Name(id="range"), args=[first, last], keywords=[]):
                kind = "serial"
            case ast.Call(
                func=function, args=[ast.Call(func=ast.Name(id="range"), args=[first, last], keywords=[]), *calls], keywords=[]
            ) if len(calls) < 2:
                kind = shown(function)
            case _:
                self.unlike(loop, _LOOP)
        if kind not in LOOP_KINDS:
            self.fail(loop, f"expected a kind of loop, got {kind}", f"kinds are {', '.join(LOOP_KINDS)}")
        start, stop = self.expr(first, dtypes.int64), self.expr(last, dtypes.int64)
        index = self.name(loop.target)
        with self.binding([index]):
            call = self.call_of(calls[0]) if calls else None
            return For(index, start, stop, self.block(loop.body), kind, call)

    def call_of(self, node: ast.expr) -> Call:
        """The instruction of a loop, with its operands."""
        name, arguments = self.named(node, "dot(c[0], a[0], b[0])")
        made = self.instructions.get(name)
        if made is None:
            self.fail(node, f"expected an instruction that the text defines, got {name}", f"behind the kernels: {_CALL}")
        if len(arguments) != len(made.names):
            self.fail(node, f"expected {len(made.names)} operands of {name}, got {len(arguments)}")
        return Call(name, made.names, tuple(map(self.element, arguments)), made.body, made.declarations)
