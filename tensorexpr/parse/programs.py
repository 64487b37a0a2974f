"""Reading the text of programs (see `tensorexpr.text`) through Python's own parser.

One walk over Python's syntax tree; expressions are read by `tensorexpr.parse.scalars`. Whatever is not the language is a
`DefinitionError` with line and column. Reading does not verify: `tensorexpr.verify` does.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Axis, Const, Constant, Define, Definition, Expr, Input, Program, Scan, Scatter, Segments, TensorType, const
from tensorexpr.parse.scalars import ScalarReader, arguments_of, called, items_of, shown, syntax


@checked()
def parse_program(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Program:
    """The program that `print_program` printed as `text`.

    `constants` gives, by name, the data of those whose text has only a digest. Raises `DefinitionError` with line and
    column for text that is not a program, or where the data does not have the digest.

    >>> A = te.placeholder((2, 3), name="A")
    >>> text = str(te.program_of([te.compute((2,), lambda i: A[i, 0], name="first")]))
    >>> str(te.parse_program(text)) == text
    True
    """
    if not isinstance(text, str):
        raise DefinitionError(
            f"te.parse_program: expected the text of a program, got {type(text).__name__}", location=user_location(), hint="str(program)"
        )
    try:
        return _Reader(text, constants or {}).program(syntax(text, "exec"))
    except (RecursionError, MemoryError):
        raise DefinitionError("expected the text of a program, got one that nests deeper than can be read") from None


def parse_expr(
    text: str,
    tensors: Mapping[str, DType] | None = None,
    dtype: DType | None = None,
    sizes: tuple[str, ...] = (),
) -> Expr:
    """One expression, with `tensors` giving the dtypes of what it reads and `dtype` that of its literals where nothing else does.

    Any bare name that is not in `sizes` is an index.
    """
    reader = ScalarReader(text, {})
    reader.tensors = dict(tensors or {})
    reader.sizes = dict.fromkeys(sizes)
    reader.free_indices = True
    body = syntax(text, "eval").body
    reader.refuse_unread(body)
    return reader.expr(body, dtype)


class _Reader(ScalarReader):
    def program(self, module: ast.Module) -> Program:
        inputs: list[Input] = []
        constants: list[Constant] = []
        definitions: list[Definition] = []
        outputs: tuple[str, ...] | None = None
        self.refuse_unread(module)
        for statement in module.body:
            if outputs is not None:
                self.fail(statement, f"expected nothing after the return, got {shown(statement)}")
            call = called(statement.value) if isinstance(statement, (ast.AnnAssign, ast.Expr)) else None
            if isinstance(statement, ast.Return):
                outputs = self.outputs(statement.value)
            elif call == "sizes" and isinstance(statement, ast.Expr):
                self.sizes.update((self.name(a), None) for a in arguments_of(statement.value, "sizes"))
            elif call == "input" and isinstance(statement, ast.AnnAssign):
                inputs.append(Input(self.declare(statement), self.type(statement.annotation)))
            elif call == "constant" and isinstance(statement, ast.AnnAssign):
                constants.append(self.data_of(statement))
            else:
                definitions.append(self.definition(statement))
        if outputs is None:
            raise DefinitionError("expected a return with the outputs, got the end of the text", at=f"line {len(self.lines) + 1}, column 1")
        return Program(tuple(inputs), tuple(constants), tuple(definitions), outputs, tuple(self.sizes))

    def outputs(self, value: ast.expr | None) -> tuple[str, ...]:
        if value is None:
            return ()
        return tuple(self.name(v) for v in (value.elts if isinstance(value, ast.Tuple) else [value]))

    def declare(self, statement: ast.AnnAssign) -> str:
        name = self.name(statement.target)
        self.tensors[name] = self.type(statement.annotation).dtype
        return name

    def data_of(self, statement: ast.AnnAssign) -> Constant:
        name, type_ = self.declare(statement), self.type(statement.annotation)
        call = statement.value
        if not isinstance(call, ast.Call) or len(call.args) != 1 or not all(isinstance(e, Const) for e in type_.shape):
            self.fail(statement, f"expected constant(data) of a fixed shape, got {shown(statement)}")
        return self.constant(call.args[0], name, type_)

    def definition(self, statement: ast.stmt) -> Definition:
        location = Location("<program>", statement.lineno)
        if isinstance(statement, ast.For):
            return self.scan(statement, location)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            return self.segments(statement, location)
        if not isinstance(statement, ast.AnnAssign) or statement.value is None:
            self.fail(statement, f"expected a definition such as C[i]: f32[4] = A[i] + 1.0, got {shown(statement)}")
        target, type_ = statement.target, self.type(statement.annotation)
        if isinstance(target, ast.Subscript):
            name, names = self.name(target.value), [self.name(e) for e in items_of(target.slice)]
        else:
            name, names = self.name(target), []
        if called(statement.value) == "scatter" and not names:
            found: Definition = self.scatter(statement.value, name, type_, location)
        else:
            if len(names) != len(type_.shape):
                self.fail(statement, f"expected {len(type_.shape)} indices for the axes of {name}, got {len(names)}")
            with self.binding(names):
                value = self.expr(statement.value, type_.dtype)
            if value.dtype is not type_.dtype:
                self.fail(statement.value, f"expected a value of {type_.dtype.name}, got {value.dtype.name}")
            axes = tuple(Axis(i, const(0), stop) for i, stop in zip(names, type_.shape, strict=True))
            found = Define(name, axes, value, location)
        self.tensors[name] = type_.dtype
        return found

    def scatter(self, call: Any, name: str, type_: TensorType, location: Location) -> Scatter:
        if len(call.args) != 1 or not isinstance(call.args[0], ast.DictComp):
            self.fail(call, f"expected scatter({{indices: value for ...}}), got {shown(call)}")
        comprehension = call.args[0]
        options = {
            k.arg: str(k.value.value) for k in call.keywords if k.arg in ("combine", "lowering") and isinstance(k.value, ast.Constant)
        }
        if len(options) != len(call.keywords):
            self.fail(call, f"expected only the options combine and lowering, got {shown(call)}")
        with self.loops(comprehension.generators) as (axes, where):
            indices = tuple(self.expr(e, dtypes.int64) for e in items_of(comprehension.key))
            value = self.expr(comprehension.value, type_.dtype)
        return Scatter(
            name, type_, axes, indices, value, where, options.get("combine", "sum"), options.get("lowering", "segments"), location
        )

    def segments(self, statement: ast.Assign, location: Location) -> Segments:
        match statement:
            case ast.Assign(
                targets=[ast.Tuple(elts=[offsets, order])],
                value=ast.Call(func=ast.Subscript(value=ast.Name(id="segments"), slice=shape), args=[ast.GeneratorExp() as generator]),
            ):
                names = (self.name(offsets), self.name(order))
            case _:
                self.fail(statement, f"expected offsets, order = segments[extent](key for ...), got {shown(statement)}")
        extents = tuple(self.expr(e, dtypes.int64) for e in items_of(shape))
        count = sum(1 for part in generator.generators if called(part.iter) == "batch")
        with self.loops(generator.generators, "batch") as (axes, where):
            keys = tuple(self.expr(e, dtypes.int64) for e in items_of(generator.elt))
        self.tensors.update(dict.fromkeys(names, dtypes.int64))
        return Segments(names, extents, axes[:count], axes[count:], keys, where, location)

    def scan(self, statement: ast.For, location: Location) -> Scan:
        step = self.name(statement.target)
        given = arguments_of(statement.iter, "range")
        if len(given) != 1:
            self.fail(statement.iter, f"expected a scan over range(length), got {shown(statement.iter)}")
        length = self.expr(given[0], dtypes.int64)
        states: list[tuple[str, TensorType]] = []
        inits: list[str] = []
        body: list[Definition] = []
        results: list[tuple[str, str, str]] = []
        with self.binding([step]):
            for inner in statement.body:
                if isinstance(inner, ast.AnnAssign) and isinstance(inner.value, ast.Call) and called(inner.value) == "state":
                    if len(inner.value.args) != 1:
                        self.fail(inner, f"expected state(tensor), got {shown(inner)}")
                    states.append((self.declare(inner), self.type(inner.annotation)))
                    inits.append(self.name(inner.value.args[0]))
                elif isinstance(inner, ast.Assign) and not isinstance(inner.targets[0], ast.Tuple):
                    results.append(self.result(inner))
                else:
                    body.append(self.definition(inner))
        if [state for _, state, _ in results] != [state for state, _ in states]:
            self.fail(statement, "expected one line X[t] = state = next for each state, in their order")
        names, nexts = tuple(r[0] for r in results), tuple(r[2] for r in results)
        self.tensors.update((name, type_.dtype) for name, (_, type_) in zip(names, states, strict=True))
        return Scan(names, length, step, tuple(states), tuple(inits), tuple(body), nexts, location)

    def result(self, statement: ast.Assign) -> tuple[str, str, str]:
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=name), state], value=following):
                return self.name(name), self.name(state), self.name(following)
        self.fail(statement, f"expected X[t] = state = next, got {shown(statement)}")
