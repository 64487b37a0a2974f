"""Makes a failing program smaller as long as it fails in the same way: by its syntax tree, its extents and its plan.

Every candidate runs in a child process, so that one which crashes or hangs is an answer like any other. What the language refuses,
what the reference cannot tell and what fails in another way is not taken.
"""

from __future__ import annotations

import ast
import copy
import faulthandler
import os
import pickle
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.fuzz.checks import Failure, Skipped, check
from tests.fuzz.plan import Plan, planned
from tests.fuzz.report import pasteable
from tests.random_programs.sample import Sample

_PATIENCE = 30
"""Seconds of one candidate; one that takes longer hangs."""


def outcome(plan: Plan, patience: float = _PATIENCE) -> Failure | None:
    """How a plan fails, found in a child process; None where it does not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(plan, writer)
    os.close(writer)
    data = b""
    until = time.monotonic() + patience
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if data:
        found: Failure | None = pickle.loads(data)
        return found
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            return Failure("hangs", f"expected an end within {patience:.0f} s, got none")
        return Failure(f"crash: {signal.Signals(number).name}", f"the process ended with {signal.Signals(number).name}")
    return Failure(f"crash: exit {os.WEXITSTATUS(status)}", f"the process ended with status {os.WEXITSTATUS(status)}")


def _answer(plan: Plan, writer: int) -> None:
    """The child: writes how the plan fails, and ends."""
    faulthandler.disable()  # how it dies is told by whoever waits
    found: Failure | None = None
    try:
        check(plan)
    except Failure as failure:
        found = failure
    except Skipped:
        pass
    except BaseException as error:  # a candidate that makes no sense
        found = Failure(f"checks: {type(error).__name__}", str(error) or repr(error))
    os.write(
        writer,
        pickle.dumps(found)[: 1 << 16]
        if len(pickle.dumps(found)) < 1 << 16
        else pickle.dumps(found and Failure(found.kind, found.message[:1000])),
    )
    os._exit(0)


def minimised(plan: Plan, failure: Failure, seconds: float = 90.0) -> tuple[Plan, Failure]:
    """A smaller plan that fails in the same way, and how it does."""
    until = time.monotonic() + seconds
    patience = 6.0 if failure.kind != "hangs" else _PATIENCE
    found = True
    while found and time.monotonic() < until:
        found = False
        for candidate in _candidates(plan):
            if time.monotonic() > until:
                break
            now = outcome(candidate, patience)
            if now is not None and _same(now.kind, failure.kind):
                plan, failure, found = candidate, now, True
                break
    return plan, failure


def _same(one: str, other: str) -> bool:
    """Whether two failures are of one kind, on whatever schedule they were found."""
    ends = [kind.rsplit(": ", 1)[-1].replace("SIGBUS", "SIGSEGV").replace("SIGABRT", "SIGSEGV") for kind in (one, other)]
    return ends[0] == ends[1] and ("gradient" in one) == ("gradient" in other)


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Smaller plans, those first that cut most."""
    yield from plan.smaller()
    for text in _texts(plan.sample.text):
        yield replace(plan, sample=replace(plan.sample, text=text))
    for name, value in plan.sample.sizes.items():
        for other in _lesser(value):
            yield replace(plan, sample=replace(plan.sample, sizes={**plan.sample.sizes, name: other}))
    for name, value in plan.sample.sizes.items():
        yield replace(plan, sample=_fixed(plan.sample, name, value))


def _lesser(value: int) -> list[int]:
    return [n for n in dict.fromkeys((1, 2, 3, 4, 8, 16, 17, 32, 33, value // 2, value - 16, value - 1)) if 0 <= n < value]


def _fixed(sample: Sample, name: str, value: int) -> Sample:
    text = sample.text.replace(f'{name} = te.dim("{name}")', f"{name} = {value}").replace(f"{name} = te.dim('{name}')", f"{name} = {value}")
    return replace(sample, text=text, sizes={n: v for n, v in sample.sizes.items() if n != name})


def _texts(text: str) -> Iterator[str]:
    """Smaller texts: fewer outputs, definitions as inputs, smaller extents, parts of expressions."""
    tree = ast.parse(text)
    statements = {s.targets[0].id: s for s in tree.body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}
    outputs = statements["outputs"].value
    assert isinstance(outputs, ast.List)
    if len(outputs.elts) > 1:
        for k in range(len(outputs.elts)):
            yield _pruned(_with(tree, "outputs", ast.List([outputs.elts[k]], ast.Load())))
        for k in range(len(outputs.elts)):
            yield _pruned(_with(tree, "outputs", ast.List([e for j, e in enumerate(outputs.elts) if j != k], ast.Load())))
    for name, statement in statements.items():
        if _is_call(statement.value, "compute") or _is_call(statement.value, "scatter"):
            call = statement.value
            assert isinstance(call, ast.Call)
            for dtype in ("float32", "float64", "int64"):
                given = ast.parse(f'te.placeholder({ast.unparse(call.args[0])}, "{dtype}", name="{name}")', mode="eval").body
                candidate = _with(tree, name, given)
                inputs = statements["inputs"].value
                assert isinstance(inputs, ast.List)
                candidate = _with(candidate, "inputs", ast.List([*inputs.elts, ast.Name(name, ast.Load())], ast.Load()))
                if not any(isinstance(e, ast.Name) and e.id == name for e in outputs.elts):
                    yield _pruned(candidate)
    for name, statement in statements.items():
        if isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, int):
            for value in _lesser(statement.value.value):
                yield _pruned(_with(tree, name, ast.Constant(value)))
    yield from _smaller_expressions(tree)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _with(tree: ast.Module, name: str, value: ast.expr) -> ast.Module:
    body = []
    for s in tree.body:
        own = isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and s.targets[0].id == name
        body.append(ast.Assign([ast.Name(name, ast.Store())], value, lineno=1) if own else s)
    return ast.Module(body, [])


def _pruned(tree: ast.Module) -> str:
    """The text without what the outputs do not need."""
    needed = {"outputs"}
    kept: list[ast.stmt] = []
    for s in reversed(tree.body):
        assert isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
        name = s.targets[0].id
        if name in ("inputs", "below"):
            kept.append(s)
        elif name in needed:
            needed |= {n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)}
            kept.append(s)
    body: list[ast.stmt] = []
    for s in reversed(kept):
        assert isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
        value = s.value
        if s.targets[0].id == "inputs" and isinstance(value, ast.List):
            seen = dict.fromkeys(e.id for e in value.elts if isinstance(e, ast.Name) and e.id in needed)
            value = ast.List([ast.Name(n, ast.Load()) for n in seen], ast.Load())
        if s.targets[0].id == "below" and isinstance(value, ast.Dict):
            pairs = [(k, v) for k, v in zip(value.keys, value.values, strict=True) if isinstance(k, ast.Constant) and k.value in needed]
            if not pairs:
                continue
            value = ast.Dict([k for k, _ in pairs], [v for _, v in pairs])
            needed |= {n.id for _, v in pairs for n in ast.walk(v) if isinstance(n, ast.Name)}
        body.append(ast.Assign(s.targets, value, lineno=1))
    extents = [
        s
        for s in tree.body
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and s.targets[0].id in needed and s.targets[0].id in "abcd"
    ]
    there = {s.targets[0].id for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}
    missing = [s for s in extents if isinstance(s.targets[0], ast.Name) and s.targets[0].id not in there]
    return "\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in [*missing, *body])


def _smaller_expressions(tree: ast.Module) -> Iterator[str]:
    """The text with one expression in place of a larger one around it, or a literal."""
    places: list[tuple[int, ast.expr]] = []
    for number, statement in enumerate(tree.body):
        assert isinstance(statement, ast.Assign)
        if isinstance(statement.value, ast.Call):
            places += [(number, n) for n in ast.walk(statement.value) if isinstance(n, ast.expr)]
    places.sort(key=lambda p: -len(ast.unparse(p[1])))
    for number, node in places:
        for new in _instead(node):
            yield _pruned(_replaced(tree, number, node, new))


def _instead(node: ast.expr) -> list[ast.expr]:
    found: list[ast.expr] = []
    match node:
        case ast.BinOp(left=left, right=right):
            found += [left, right]
        case ast.UnaryOp(operand=operand):
            found.append(operand)
        case ast.Compare(left=left, comparators=[right]) if len(ast.unparse(node)) > 12:
            found += [ast.Constant(True)]
        case ast.Call(func=ast.Attribute(attr=attr, value=owner), args=args, keywords=keywords):
            if attr in ("sum", "prod", "max", "min", "all", "any", "argmax", "argmin"):
                bare = copy.copy(node)
                if any(k.arg == "where" for k in keywords):
                    bare.keywords = [k for k in keywords if k.arg != "where"]
                    found.append(bare)
                found += [ast.Constant(1.0), ast.Constant(1)]
                if attr in ("prod", "max", "min"):
                    found.append(ast.Call(ast.Attribute(ast.Name("te", ast.Load()), "sum", ast.Load()), args, keywords))
            elif attr == "where" and len(args) == 3:
                found += [args[1], args[2]]
            elif attr == "read":
                found.append(ast.Constant(1.0))
            elif attr in ("compute", "scatter", "scan", "placeholder", "dim", "reduce"):
                if attr in ("scatter", "scan") and keywords:
                    for k in keywords:
                        if k.arg in ("where", "checkpoint"):
                            bare = copy.copy(node)
                            bare.keywords = [other for other in keywords if other is not k]
                            found.append(bare)
            else:
                found += [a for a in args if not isinstance(a, ast.Constant | ast.Lambda)]
            del owner
        case ast.Subscript():
            found += [ast.Constant(1.0), ast.Constant(1)]
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(value)) if value > 1:
            found += [ast.Constant(n) for n in (1, value // 2, value - 1) if n < value]
    return found


def _replaced(tree: ast.Module, number: int, old: ast.expr, new: ast.expr) -> ast.Module:
    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else super().visit(node)

    statement = tree.body[number]
    assert isinstance(statement, ast.Assign)
    changed = Replace().visit(_shallow(statement.value, old))
    return ast.Module([*tree.body[:number], ast.Assign(statement.targets, changed, lineno=1), *tree.body[number + 1 :]], [])


def _shallow(node: ast.expr, kept: ast.expr) -> ast.expr:
    """A copy of a tree in which one node is the same object."""
    return copy.deepcopy(node, {id(kept): kept})


def report(seed: int, seconds: float) -> int:
    """Runs one seed; where it fails, prints it made smaller, as a test to paste. Gives the exit status."""
    plan = planned(seed)
    failure = outcome(plan, 180)
    if failure is None:
        print(f"seed {seed}: all is well")
        return 0
    print(f"seed {seed}: {failure.kind}: {failure.message[:600]}", flush=True)
    plan, failure = minimised(plan, failure, seconds)
    print(f"{pasteable(plan, failure)}\n# {plan!r}\n# {failure.kind}: {failure.message[:600]}\n", flush=True)
    return 1
