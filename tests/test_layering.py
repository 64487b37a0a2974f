"""Each room imports only from rungs above it, by its installed name, at the top of the file."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("tensorexpr", "autodiff", "codegen", "kernels", "graph", "interop", "benchmarks", "examples")
LADDER = (
    "records", "errors", "hints", "building", "markup", "dtypes", "ops",
    "integers.forms", "integers.solving", "integers.counting", "integers.sets", "integers", "ir", "traversal",
    "regions", "text", "parse", "verify", "positions", "interpret", "rewrite", "bounds", "initial", "constants",
    "language.core", "language.definitions", "language", "latex", "simplify", "algebra.keyed", "algebra.layouts", "algebra", "sharding",
    "autodiff.local", "autodiff.invert", "autodiff.data", "autodiff.scan", "autodiff.sweep", "autodiff.api", "autodiff",
    "codegen.memo", "codegen.target", "codegen.nest", "codegen.facts", "codegen.dependence", "codegen.nest_proofs",
    "codegen.schedule.analysis", "codegen.schedule.legal", "codegen.schedule.loops", "codegen.schedule.definitions",
    "codegen.schedule.scatters", "codegen.schedule",
    "codegen.planners.tiles", "codegen.planners.programs", "codegen.planners.steps", "codegen.planners.gpu", "codegen.planners",
    "codegen.lowering.context", "codegen.lowering.scatters", "codegen.lowering.stage", "codegen.lowering.kernels", "codegen.lowering",
    "codegen.plain", "codegen.rewrites",
    "codegen.disk",
    "codegen.llvm.text", "codegen.llvm.runtime", "codegen.llvm.math", "codegen.llvm.emitter", "codegen.llvm.process", "codegen.llvm",
    "codegen.auto", "codegen.cuda.nvidia.ptx", "codegen.cuda.thread", "codegen.cuda.block", "codegen.cuda.emitter", "codegen.cuda.nvidia",
    "codegen.cuda.host",
    "codegen.cuda.launch", "codegen.cuda.model", "codegen.cuda",
    "codegen.tuning.operation", "codegen.tuning.order",
    "codegen.tuning.records", "codegen.tuning.lookup", "codegen.pieces", "codegen.handle",
    "codegen.stages", "codegen", "codegen.nest.picture", "codegen.tuning",
    "op", "tuning", "__init__",
    "kernels.conventions", "kernels.elementwise", "kernels.reductions", "kernels.rearranging", "kernels.windowed", "kernels.products",
    "kernels.losses", "kernels", "graph.nodes", "graph.trace", "graph.run", "graph.rates", "graph.modules", "graph.files", "graph",
    "interop", "cli", "__main__", "examples",
    "benchmarks",
)  # fmt: skip
STRANGERS = [("autodiff", "codegen"), ("codegen", "autodiff"), ("language", "autodiff"), ("integers", "dtypes")]
LAZY = {  # what may be imported inside a function: how a node, a schedule or a module is shown, a bundle of the function, the compiler
    ("tensorexpr.op.operation", "tensorexpr.codegen.compile"),
    ("tensorexpr.ir.program", "tensorexpr.text"),
    ("tensorexpr.ir.program", "tensorexpr.latex"),
    ("tensorexpr.language.core.tensor", "tensorexpr.latex"),
    ("tensorexpr.graph.modules.module", "tensorexpr.graph.modules.summary"),
    ("tensorexpr.codegen.nest.program", "tensorexpr.codegen.nest.text"),
    ("tensorexpr.codegen.nest.program", "tensorexpr.codegen.nest.picture"),
    ("tensorexpr.codegen.schedule.schedule", "tensorexpr.codegen.auto.search.memory"),
    ("tensorexpr.codegen.compiled.function", "tensorexpr.codegen.bundle.export"),
}


def modules() -> dict[str, Path]:
    found = {}
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if room == "tensorexpr" else ("tensorexpr", *parts)).removesuffix(".__init__")
            found[name] = file
    return found


MODULES = modules()


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def parsed(module: str) -> ast.Module:
    return tree_of(MODULES[module])


def imported(tree: ast.AST) -> list[str]:
    """Modules that a tree imports; not those for type checkers alone."""
    if isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING":
        return []
    if isinstance(tree, ast.Import):
        return [alias.name for alias in tree.names]
    if isinstance(tree, ast.ImportFrom):
        assert tree.level == 0, f"expected absolute imports, got one relative to {tree.module}"
        inner = [f"{tree.module}.{alias.name}" for alias in tree.names]
        return [name if name in MODULES else str(tree.module) for name in inner]
    return [name for child in ast.iter_child_nodes(tree) for name in imported(child)]


def rung(module: str) -> str:
    """The longest entry of the ladder that a module is or is in; `__init__` is the front door."""
    inner = module.removeprefix("tensorexpr").removeprefix(".") or "__init__"
    fitting = [entry for entry in LADDER if inner == entry or inner.startswith((f"{entry}.", f"{entry}_"))]
    assert fitting, f"expected {module} on a rung of the ladder in tests/test_layering.py"
    return max(fitting, key=len)


def test_imports_climb_the_ladder():
    for module in MODULES:
        climbs(module)


def climbs(module: str) -> None:
    own = rung(module)
    for name in imported(parsed(module)):
        assert name.split(".")[0] not in set(ROOMS) - {"tensorexpr"}, f"{module}: expected tensorexpr.{name}, got {name}"
        if name.split(".")[0] != "tensorexpr" or (module, name) in LAZY:
            continue
        other = rung(name)
        assert LADDER.index(other) <= LADDER.index(own), f"{module} imports {name}, which stands lower on the ladder"
        assert (own.split(".")[0], other.split(".")[0]) not in STRANGERS, f"{module} imports {name}, which it must not know"


def test_our_own_modules_are_imported_at_the_top():
    for module, node in ((name, node) for name in MODULES for node in ast.walk(parsed(name))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = {name for name in imported(node) if name.split(".")[0] == "tensorexpr"}
            assert all((module, name) in LAZY for name in inside), f"{module}.{node.name} imports {', '.join(inside)} inside"


def test_every_room_is_in_the_list_of_packages():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    rooms = {name for name, file in MODULES.items() if file.name == "__init__.py"}
    assert sorted(set(listed) - {"tensorexpr_runtime"}) == sorted(rooms), "packages of pyproject.toml and rooms are not the same"


def test_a_room_has_at_most_a_dozen_modules():
    rooms = Counter(name.rpartition(".")[0] for name, file in MODULES.items() if file.name not in ("__init__.py", "__main__.py"))
    found = {name: count for name, count in rooms.items() if count > 12}
    assert not found, f"expected at most a dozen modules in a room, got {found}"


def named(node: ast.AST) -> list[str]:
    """Modules that a statement imports, and what it takes from a room that the room does not speak of."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or not node.module:
        return []
    room = MODULES.get(node.module)
    if room is None or room.name != "__init__.py":
        return [node.module]
    spoken = set(re.findall(r"\w+", room.read_text())) | bound(node.module)
    return [node.module if alias.name == "*" else f"{node.module}.{alias.name}" for alias in node.names if alias.name not in spoken]


@cache
def bound(module: str) -> frozenset[str]:
    """Names that a module gives a meaning to outside of its functions and classes."""
    found, todo = set(), [*parsed(module).body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*":
            found |= bound(node.module)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.ExceptHandler)]
        elif isinstance(node, ast.ExceptHandler):
            todo += node.body
        else:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(found)


@pytest.mark.parametrize("folder", (*ROOMS, "scripts"))
def test_a_type_that_is_not_checked_has_a_reason(folder):
    bare = re.compile(r"# type: ignore(\[[\w, -]+\])?\s*$")
    for file in sorted((ROOT / folder).rglob("*.py")):
        found = [line for line, text in enumerate(file.read_text().splitlines(), 1) if bare.search(text)]
        assert not found, f"{file.relative_to(ROOT)}: expected a reason behind the comment on lines {found}"


@pytest.mark.parametrize("folder", (*ROOMS, "tests", "docs", "scripts"))
def test_what_is_imported_of_ours_is_there(folder):
    """Rooms move while branches are open: what imports a module by an old name is found here, with the name that it has now."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(tree_of(file)):
            for name in named(node):
                if name.startswith("tensorexpr.") and name not in MODULES:
                    now = " or ".join(m for m in MODULES if m.rpartition(".")[2] == name.rpartition(".")[2])
                    raise AssertionError(f"{file.relative_to(ROOT)}:{node.lineno}: expected a module of ours, got {name}, now {now}")
            if isinstance(node, ast.ImportFrom) and node.module in MODULES and "__getattr__" not in bound(node.module):
                wanted = [alias.name for alias in node.names if alias.name != "*"]
                lost = [name for name in wanted if f"{node.module}.{name}" not in MODULES and name not in bound(node.module)]
                assert not lost, f"{file.relative_to(ROOT)}:{node.lineno}: expected names of {node.module}, got {', '.join(lost)}"


def test_each_import_that_may_be_inside_a_function_is_there():
    for module, name in sorted(LAZY):
        functions = [n for n in ast.walk(parsed(module)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert any(name in imported(f) for f in functions), f"{module} imports {name} no longer inside a function"
