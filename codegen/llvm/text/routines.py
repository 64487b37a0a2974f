"""Routines of a process (its pool of threads, the memory of results, how functions are called) as LLVM IR, of text in Python's syntax.

    bound: i64 = 0
    lock: line(i32) = 0
    kept: array(ptr, SLOTS)

    def malloc(size: i64) -> ptr: ...

    def te_first(size: i64, words: ptr) -> i64:
        for k in range(size):
            if (words + 8 * k).i64 > bound or words.i64[k] == LIMIT:
                return k
        return -1

Numbers have the types i1 to i64, are signed, and a literal has the type of what it stands beside; `ptr` is an address, to which bytes are
added. `p.i32` is what lies at an address, `p.i32[k]` the k-th one from there on; both are read and assigned to, as are variables of the
module. `at(...)` is where they lie; atomic operations take them: `atomic_add(lock, 1, acquire)`. Names in capitals, and some with dots, are
given values. A function without a body is another module's; others may call those whose names begin with
`te_`, and those that are `@exported`.

Locals are values: text becomes SSA form as it is read, since no loop or branch is left but at its end, by `break`, `continue` or `return`.
Of `and`, `or` and `if ... else` only that side is worked out that counts, as in Python.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tensorexpr.errors import InternalError
from tensorexpr.records import record

_TYPE = re.compile(r"i\d+|ptr")
_NUMBER = "number"
"""The type of a literal until it stands beside something."""
_OPERATIONS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "sdiv", ast.LShift: "shl", ast.RShift: "ashr", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.Eq: "eq", ast.NotEq: "ne", ast.Is: "eq", ast.IsNot: "ne", ast.Lt: "slt", ast.LtE: "sle",
    ast.Gt: "sgt", ast.GtE: "sge",
}  # fmt: skip
_OF_LITERALS: dict[str, Callable[[int, int], int]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "xor": operator.xor}
_UNSIGNED = {"lshr": "lshr", "udiv": "udiv", "ult": "icmp ult", "ule": "icmp ule", "ugt": "icmp ugt", "uge": "icmp uge"}
_INTRINSICS = {"min": "smin", "max": "smax", "umin": "umin"}
_COPIES = {"memcpy": ("llvm.memcpy.p0.p0.i64", "ptr"), "memset": ("llvm.memset.p0.i64", "i8")}
_ATOMIC = {"atomic_swap": "xchg", "atomic_add": "add", "atomic_sub": "sub", "atomic_and": "and"}


class Value(NamedTuple):
    """What an operand of an instruction is, and its type."""

    text: str
    type: str


class Signature(NamedTuple):
    """What a function takes and gives ("void": nothing); whether it takes more."""

    parameters: tuple[str, ...]
    result: str
    takes_more: bool


@record
class Routines:
    """A module in Python's syntax, with the values of its names in capitals, and lines of IR that stand in front of it."""

    source: str
    values: Mapping[str, int | str]
    head: str = ""

    def text(self) -> str:
        """The module as LLVM IR."""
        return self.head + _Module(self).text()


def typed(node: ast.AST | None) -> str:
    """The type that an annotation names; that of no result, where there is none."""
    if node is None:
        return "void"
    if isinstance(node, ast.Name) and _TYPE.fullmatch(node.id):
        return node.id
    raise _wrong("a type", node)


def _wrong(expected: str, node: ast.AST) -> InternalError:
    return InternalError(f"routines: expected {expected}, got {ast.unparse(node)} in line {getattr(node, 'lineno', 0)}")


def _bytes(type_: str) -> int:
    """What an address of a type is a multiple of."""
    return 8 if type_ == "ptr" else min(16, max(1, int(type_[1:]) // 8))


class _Module:
    """The names of a module: its variables with their types (none for what is known by its address), and its functions."""

    def __init__(self, routines: Routines) -> None:
        self.values = routines.values
        self.body = ast.parse(routines.source).body
        self.variables: dict[str, str | None] = {}
        self.functions: dict[str, Signature] = {}
        for s in self.body:
            if isinstance(s, ast.FunctionDef):
                parameters = tuple(typed(a.annotation) for a in s.args.args)
                self.functions[s.name] = Signature(parameters, typed(s.returns), s.args.vararg is not None)

    def text(self) -> str:
        return "\n".join(line for s in self.body for line in self.statement(s)) + "\n"

    def statement(self, s: ast.stmt) -> Iterator[str]:
        match s:
            case ast.AnnAssign(ast.Name(name), ast.Name("here")):
                self.variables[name] = None
            case ast.AnnAssign(ast.Name(name), annotation, value):
                yield f"@{name} = {self.variable(name, annotation, value)}"
            case ast.FunctionDef(body=[ast.Expr(ast.Constant(value)), *_]) if value is Ellipsis:
                taken, result, more = self.functions[s.name]
                yield f"declare {result} @{s.name}({', '.join([*taken, *(['...'] if more else [])])})"
            case ast.FunctionDef():
                yield from _Routine(self, s).text()
            case _:
                raise _wrong("a variable or a function", s)

    def variable(self, name: str, annotation: ast.expr, value: ast.expr | None) -> str:
        """What stands behind the name of a variable; it is known from here on."""
        self.variables[name] = None
        match annotation:
            case ast.Name("extern"):
                return "external global i8"
            case ast.Name("text"):
                words = self.values[name.upper()] if value is None else ast.literal_eval(value)
                return f'internal constant [{len(str(words)) + 1} x i8] c"{words}\\00"'
            case ast.Call(ast.Name("array"), [element, count]):
                return f"internal global [{self.number(count)} x {typed(element)}] zeroinitializer, align 64"
            case ast.Call(ast.Name("line"), [element]):
                type_, place = typed(element), 64
            case _:
                type_ = typed(annotation)
                place = _bytes(type_)
        self.variables[name] = type_
        start = "null" if type_ == "ptr" else "0" if value is None else self.number(value)
        return f"internal global {type_} {start}, align {place}"

    def number(self, node: ast.expr) -> str:
        """A literal, or the value of a name."""
        return str(self.values[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node))


_ORDERS = ("monotonic", "acquire", "release", "acq_rel", "seq_cst")
Locals = dict[str, Value]


class _Routine:
    """One function: the lines so far, the block that is being written (none behind a jump), what locals are there, and by label the blocks
    that lead to it with their locals."""

    def __init__(self, module: _Module, node: ast.FunctionDef) -> None:
        self.module, self.node = module, node
        self.signature = module.functions[node.name]
        self.lines: list[str] = []
        self.stack: list[str] = []
        self.here: str | None = "entry"
        self.locals = {a.arg: Value(f"%{a.arg}", t) for a, t in zip(node.args.args, self.signature.parameters, strict=True)}
        self.edges: dict[str, list[tuple[str, Locals]]] = {}
        self.loops: list[tuple[str, str]] = []
        self.made = 0

    def text(self) -> Iterator[str]:
        node = self.node
        words = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
        kind = "" if node.name.startswith("te_") or "exported" in words else "internal "
        attributes = [word for word in ("alwaysinline", "noinline") if word in words] + ["nounwind"] * ("unwinds" not in words)
        taken = ", ".join(f"{value.type} {value.text}" for value in self.locals.values())
        self.block(node.body)
        if self.here is not None:
            if self.signature.result != "void":
                raise _wrong("a result at the end", node)
            self.lines.append("  ret void")
        yield f"define {kind}{self.signature.result} @{node.name}({taken}) {' '.join(attributes)} {{"
        yield from ("entry:", *self.stack, *self.lines, "}")

    # ---------------------------------------------------------------------------------------------------------- blocks

    def label(self, word: str) -> str:
        self.made += 1
        return f"{word}{self.made}"

    def new(self, instruction: str, type_: str) -> Value:
        """The result of an instruction."""
        self.made += 1
        self.lines.append(f"  %v.{self.made} = {instruction}")
        return Value(f"%v.{self.made}", type_)

    def jump(self, label: str) -> None:
        assert self.here is not None
        self.lines.append(f"  br label %{label}")
        self.edges.setdefault(label, []).append((self.here, dict(self.locals)))
        self.here = None

    def branch(self, condition: str, yes: str, no: str) -> None:
        assert self.here is not None
        self.lines.append(f"  br i1 {condition}, label %{yes}, label %{no}")
        for label in (yes, no):
            self.edges.setdefault(label, []).append((self.here, dict(self.locals)))
        self.here = None

    def open(self, label: str, changing: Sequence[str] = ()) -> None:
        """Begins a block with the locals that all have that lead to it; those that are `changing` where more will."""
        edges = self.edges.get(label)
        if edges is None:
            return
        self.here = label
        self.lines.append(f"{label}:")
        first, *others = (known for _, known in edges)
        self.locals = {}
        for name, value in first.items():
            if name in changing:
                self.locals[name] = self.new(f"phi {name}", value.type)
            elif all(name in known and known[name].type == value.type for known in others):
                same = all(known[name] == value for known in others)
                self.locals[name] = value if same else self.joined(value.type, [(known[name], at) for at, known in edges])

    def joined(self, type_: str, values: Sequence[tuple[Value, str]]) -> Value:
        """The one of several values that belongs to the block that was left."""
        return self.new(f"phi {type_} {', '.join(f'[ {value.text}, %{at} ]' for value, at in values)}", type_)

    def close(self, label: str, first: int) -> None:
        """Writes what the locals of a loop that begins with a label are, where the lines from `first` on left that open."""
        for number in range(first, len(self.lines)):
            head, found, name = self.lines[number].partition(" = phi ")
            if found and name.isidentifier():
                edges = self.edges[label]
                values = ", ".join(f"[ {known[name].text}, %{at} ]" for at, known in edges)
                self.lines[number] = f"{head} = phi {edges[0][1][name].type} {values}"

    # ------------------------------------------------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        for s in body:
            if self.here is None:
                raise _wrong("nothing behind a jump", s)
            self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        match s:
            case ast.Assign([target], value):
                self.assign(target, value)
            case ast.AnnAssign(ast.Name(name), annotation, value) if value is not None:
                self.locals[name] = self.value(value, typed(annotation))
            case ast.AugAssign(target, op, value):
                self.assign(target, ast.copy_location(ast.BinOp(target, op, value), s))
            case ast.If(test, body, orelse):
                yes, no, after = self.label("then"), self.label("else"), self.label("after")
                self.condition(test, yes, no)
                for label, part in ((yes, body), (no, orelse)):
                    self.open(label)
                    if self.here is not None:
                        self.block(part)
                    if self.here is not None:
                        self.jump(after)
                self.open(after)
            case ast.While(test, body):
                self.loop(s, test, body, [])
            case ast.For(ast.Name(name) as index, ast.Call(ast.Name("range"), [count]), body):
                most = self.value(count)
                most = Value(most.text, "i64") if most.type == _NUMBER else most
                self.locals[name] = Value("0", most.type)
                self.locals[f"{name} below"] = most  # no name of Python's
                more = ast.copy_location(ast.Compare(index, [ast.Lt()], [ast.Name(f"{name} below")]), s)
                step = ast.copy_location(ast.AugAssign(index, ast.Add(), ast.Constant(1)), s)
                self.loop(s, more, body, [step])
            case ast.Break():
                self.jump(self.loops[-1][1])
            case ast.Continue():
                self.jump(self.loops[-1][0])
            case ast.Return(value):
                result = self.signature.result
                self.lines.append("  ret void" if value is None else f"  ret {result} {self.value(value, result).text}")
                self.here = None
            case ast.Expr(ast.Call(ast.Name("ir"), [line])):
                self.lines.append(f"  {self.module.number(line)}")
            case ast.Expr(ast.Call() as call):
                self.call(call)
            case _:
                raise _wrong("a statement of routines", s)

    def loop(self, s: ast.stmt, test: ast.expr, body: Sequence[ast.stmt], step: Sequence[ast.stmt]) -> None:
        top, inside, following, after = map(self.label, ("top", "body", "next", "after"))
        self.jump(top)
        first = len(self.lines)
        stored = {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.open(top, sorted(stored))
        self.condition(test, inside, after)
        self.open(inside)
        self.loops.append((following, after))
        self.block(body)
        self.loops.pop()
        if self.here is not None:
            self.jump(following)
        self.open(following)
        if self.here is not None:
            self.block(step)
            self.jump(top)
        self.close(top, first)
        self.open(after)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and target.id not in self.module.variables:
            known = self.locals.get(target.id)
            found = self.value(value, None if known is None else known.type)
            self.locals[target.id] = Value(found.text, "i64") if found.type == _NUMBER else found
            return
        address, type_ = self.place(target)
        self.lines.append(f"  store {type_} {self.value(value, type_).text}, ptr {address}, align {_bytes(type_)}")

    def condition(self, test: ast.expr, yes: str, no: str) -> None:
        """Goes to one of two labels."""
        match test:
            case ast.BoolOp(op, [*firsts, last]):
                for first in firsts:
                    more = self.label("more")
                    self.condition(first, *((more, no) if isinstance(op, ast.And) else (yes, more)))
                    self.open(more)
                self.condition(last, yes, no)
            case ast.UnaryOp(ast.Not(), operand):
                self.condition(operand, no, yes)
            case ast.Constant(True):
                self.jump(yes)
            case _:
                self.branch(self.value(test, "i1").text, yes, no)

    # ----------------------------------------------------------------------------------------------------- expressions

    def place(self, node: ast.expr) -> Value:
        """Where something lies that is read or assigned to, with its type."""
        match node:
            case ast.Name(name) if (type_ := self.module.variables.get(name)) is not None:
                return Value(f"@{name}", type_)
            case ast.Attribute(base, type_) if _TYPE.fullmatch(type_):
                return Value(self.value(base, "ptr").text, type_)
            case ast.Subscript(ast.Attribute(base, type_), index) if _TYPE.fullmatch(type_):
                start, k = self.value(base, "ptr"), self.value(index)
                if k.text == "0":
                    return Value(start.text, type_)
                of = "i64" if k.type == _NUMBER else k.type
                return Value(self.new(f"getelementptr {type_}, ptr {start.text}, {of} {k.text}", "ptr").text, type_)
        raise _wrong("something that lies in memory", node)

    def value(self, node: ast.expr, wanted: str | None = None) -> Value:
        """The value of an expression, which has the type that is wanted."""
        found = self.any_value(node)
        if wanted is None or found.type == wanted:
            return found
        if found.type == _NUMBER and wanted != "ptr":
            return Value(found.text, wanted)
        raise _wrong(f"a value of type {wanted}", node)

    def any_value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(None):
                return Value("null", "ptr")
            case ast.Constant(bool() as truth):
                return Value(str(truth).lower(), "i1")
            case ast.Constant(int() as number):
                return Value(str(number), _NUMBER)
            case ast.Name(name) if name in self.locals:
                return self.locals[name]
            case ast.Name(name) if name in self.module.values:
                return Value(str(self.module.values[name]), _NUMBER)
            case ast.Name(name) if name in self.module.functions or (name in self.module.variables and self.module.variables[name] is None):
                return Value(f"@{name}", "ptr")
            case ast.Attribute() if (word := ast.unparse(node)) in self.module.values:
                return Value(str(self.module.values[word]), _NUMBER)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                address, type_ = self.place(node)
                return self.new(f"load {type_}, ptr {address}, align {_bytes(type_)}", type_)
            case ast.UnaryOp(ast.USub(), operand):
                return self.binary(ast.Sub(), Value("0", _NUMBER), self.value(operand), node)
            case ast.UnaryOp(ast.Invert(), operand):
                return self.binary(ast.BitXor(), self.value(operand), Value("-1", _NUMBER), node)
            case ast.BinOp(left, op, right):
                return self.binary(op, self.value(left), self.value(right), node)
            case ast.Compare(left, [op], [right]):
                return self.binary(op, self.value(left), self.value(right), node)
            case ast.UnaryOp(ast.Not(), operand):
                return self.new(f"xor i1 {self.value(operand, 'i1').text}, true", "i1")
            case ast.BoolOp():
                return self.chosen(node, ast.Constant(True), ast.Constant(False))
            case ast.IfExp(test, body, orelse):
                return self.chosen(test, body, orelse)
            case ast.Call():
                found = self.call(node)
                if found is not None:
                    return found
        raise _wrong("a value", node)

    def binary(self, op: ast.AST, left: Value, right: Value, node: ast.expr) -> Value:
        """An operation on two values of one type; bytes added to an address; that of literals is one."""
        word = _OPERATIONS.get(type(op))
        if word is None:
            raise _wrong("an operation of routines", node)
        if left.type == right.type == _NUMBER and word in _OF_LITERALS:
            return Value(str(_OF_LITERALS[word](int(left.text), int(right.text))), _NUMBER)
        if left.type == "ptr" and word in ("add", "sub"):
            moved = right if word == "add" else self.binary(op, Value("0", _NUMBER), right, node)
            return self.new(f"getelementptr i8, ptr {left.text}, i64 {moved.text}", "ptr")
        type_ = right.type if left.type == _NUMBER else left.type
        if _NUMBER != right.type != type_ or type_ == "ptr" != right.type:
            raise _wrong("operands of one type", node)
        if isinstance(op, ast.cmpop):
            return self.new(f"icmp {word} {type_} {left.text}, {right.text}", "i1")
        return self.new(f"{word} {type_} {left.text}, {right.text}", type_)

    def chosen(self, test: ast.expr, one: ast.expr, other: ast.expr) -> Value:
        """One of two values, of which only that one is worked out."""
        yes, no, after = map(self.label, ("then", "else", "after"))
        self.condition(test, yes, no)
        found = []
        for label, arm in ((yes, one), (no, other)):
            self.open(label)
            value = self.value(arm)
            assert self.here is not None
            found.append((value, self.here))
            self.jump(after)
        self.open(after)
        return self.joined(next((value.type for value, _ in found if value.type != _NUMBER), "i64"), found)

    def call(self, node: ast.Call) -> Value | None:
        """The result of a call, if there is one: of a function of the module, or of one that is known here."""
        if not isinstance(node.func, ast.Name):
            raise _wrong("the name of a function", node)
        name, arguments = node.func.id, node.args
        signature = self.module.functions.get(name)
        if signature is not None:
            kinds = [*signature.parameters, *([None] * (len(arguments) - len(signature.parameters)))]
            types = f"({', '.join(signature.parameters)}, ...) " if signature.takes_more else ""
            return self.called(signature.result, f"{types}@{name}", [self.value(a, t) for a, t in zip(arguments, kinds, strict=True)])
        if name.startswith("atomic_"):
            return self.atomic(name, arguments)
        match name, arguments:
            case "at", [place]:
                return Value(self.place(place).text, "ptr")
            case "stack", [ast.Name(type_), count]:
                many = self.value(count)
                align = max(8, _bytes(type_))
                if many.type != _NUMBER:
                    return self.new(f"alloca {type_}, i64 {many.text}, align {align}", "ptr")
                self.made += 1
                self.stack.append(f"  %s.{self.made} = alloca [{many.text} x {type_}], align {align}")
                return Value(f"%s.{self.made}", "ptr")
            case "call", [result, function, *rest]:
                return self.called(
                    "void" if isinstance(result, ast.Constant) else typed(result), self.value(function, "ptr").text, map(self.value, rest)
                )
            case "memcpy" | "memset", [to, source, count]:
                intrinsic, type_ = _COPIES[name]
                values = [self.value(to, "ptr"), self.value(source, type_), self.value(count, "i64"), Value("false", "i1")]
                return self.called("void", f"@{intrinsic}", values)
            case _, [wide] if _TYPE.fullmatch(name.replace("u", "i")):
                return self.cast(self.value(wide), name.replace("u", "i"), name[0] == "u")
            case _, [one, other] if name in _UNSIGNED or name in _INTRINSICS:
                left, right = self.value(one), self.value(other)
                type_ = right.type if left.type == _NUMBER else left.type
                if name in _INTRINSICS:
                    return self.called(type_, f"@llvm.{_INTRINSICS[name]}.{type_}", [Value(left.text, type_), Value(right.text, type_)])
                return self.new(
                    f"{_UNSIGNED[name]} {type_} {left.text}, {right.text}", "i1" if name[0] == "u" and name != "udiv" else type_
                )
        raise _wrong("a function that routines know", node)

    def called(self, result: str, function: str, values: Iterable[Value]) -> Value | None:
        """The result of a function with its types in front, if it gives one."""
        taken = ", ".join(f"{'i64' if value.type == _NUMBER else value.type} {value.text}" for value in values)
        if result != "void":
            return self.new(f"call {result} {function}({taken})", result)
        self.lines.append(f"  call void {function}({taken})")
        return None

    def cast(self, value: Value, type_: str, unsigned: bool) -> Value:
        """A value in another type."""
        if value.type in (type_, _NUMBER):
            return Value(value.text, type_)
        if "ptr" in (type_, value.type):
            word = "inttoptr" if type_ == "ptr" else "ptrtoint"
        elif int(type_[1:]) < int(value.type[1:]):
            word = "trunc"
        else:
            word = "zext" if unsigned or value.type == "i1" else "sext"
        return self.new(f"{word} {value.type} {value.text} to {type_}", type_)

    def atomic(self, name: str, arguments: Sequence[ast.expr]) -> Value | None:
        """An atomic operation on a place, in an order of memory that the last argument names."""
        address, type_ = self.place(arguments[0])
        values = [self.value(a, type_).text for a in arguments[1:] if not (isinstance(a, ast.Name) and a.id in _ORDERS)]
        order = " ".join(a.id for a in arguments[1:] if isinstance(a, ast.Name) and a.id in _ORDERS)
        end = f"{order}, align {_bytes(type_)}"
        match name, values:
            case "atomic_load", []:
                return self.new(f"load atomic {type_}, ptr {address} {end}", type_)
            case "atomic_store", [value]:
                self.lines.append(f"  store atomic {type_} {value}, ptr {address} {end}")
                return None
            case "atomic_exchange", [old, new]:
                pair = self.new(f"cmpxchg ptr {address}, {type_} {old}, {type_} {new} {end}", "")
                return self.new(f"extractvalue {{ {type_}, i1 }} {pair.text}, 1", "i1")
            case _, [value] if name in _ATOMIC:
                return self.new(f"atomicrmw {_ATOMIC[name]} ptr {address}, {type_} {value} {end}", type_)
        raise _wrong("an atomic operation", ast.Tuple(list(arguments)))


def addressed(words: Sequence[str], size: int = 1) -> dict[str, int]:
    """Values for the names of the words of a table, in capitals: where each stands, in steps of a size."""
    return {word.upper(): size * position for position, word in enumerate(words)}
