"""The whole suite compiles what it tests: no code from disk, and nothing left in the user's folder; an optimisation that fails is an error.

What a file of tests compiled is forgotten at its end: a process that runs thousands of tests would carry gigabytes of programs, and every
collection of garbage would walk through them. What is there before the first test is left out of these walks, which are made less often,
and so is what a file leaves behind.

Generators of random numbers that a file's tests share are set back before each test: what one draws depends on no other one, nor on which
of them run.

Tests start some hundred interpreters, which take six times as long where they compile all they import. Who wants no bytecode beside the
sources has it in the folder of builds.

The largest laws have many cases: with TENSOREXPR_TEST_THIRD "first" a run takes every third one of them (`make test`), with "second" and
"third" the others (`make test-peers`, `make test-nvrtc`), so that each takes less than ten minutes; without it, all.

What is skipped is counted by its reason at the end: a library that is not found takes no test away in silence.
"""

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorexpr.codegen.memo import forget

_TESTS = Path(__file__).resolve().parent
os.environ["TENSOREXPR_CACHE_DIR"] = ""
os.environ["TENSOREXPR_STRICT"] = "1"
os.environ["TENSOREXPR_MEASURE"] = "0"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(_TESTS.parent / "build" / "bytecode")
    sys.dont_write_bytecode = False

IN_THIRDS = {
    "autodiff/test_pieces.py", "autodiff/test_ragged.py", "autodiff/test_scans.py", "autodiff/test_segments.py",
    "codegen/auto/test_search.py", "codegen/auto/test_tiles.py", "contract/test_gradient.py", "fuzz/test_fuzz.py", "kernels/test_laws.py",
}  # fmt: skip
"""Files of which a run may take half: of the cases, so that what several tests of one case share is made once."""
YOUNG_OBJECTS = 10_000
"""As many new objects as bring about a collection: programs are trees of small tuples that live for long. More leave the caches."""


_generators: list[tuple[np.random.Generator, object]] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    third = os.environ.get("TENSOREXPR_TEST_THIRD")
    if third is None:
        return
    cases: dict[Path, dict[str, int]] = {}
    left_out = []
    for item in items:
        if item.path.relative_to(_TESTS).as_posix() in IN_THIRDS:
            callspec = getattr(item, "callspec", None)
            own = cases.setdefault(item.path, {})
            number = own.setdefault(item.name if callspec is None else callspec.id, len(own))
            if number % 3 != ("first", "second", "third").index(third):
                left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    away = set(map(id, left_out))
    items[:] = [item for item in items if id(item) not in away]


def pytest_collection_finish() -> None:
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "tests"]
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, np.random.Generator)}
    _generators[:] = [(generator, generator.bit_generator.state) for generator in found.values()]
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def pytest_runtest_setup() -> None:
    """Each test draws what it draws alone: generators of its file, and of what it imports, are as they were before the first test."""
    for generator, state in _generators:
        generator.bit_generator.state = state


@pytest.fixture(scope="module", autouse=True)
def compiled_code() -> Iterator[None]:
    """Kept in memory for one file."""
    yield
    forget()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats.get("skipped", [])
    for reason, count in Counter(r.longrepr[2].removeprefix("Skipped: ") for r in reports if isinstance(r.longrepr, tuple)).most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
