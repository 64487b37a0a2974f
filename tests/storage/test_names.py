"""Names: placeholders that are bound by their path and by their name, functions that C has words for, what is no name at all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tests.messages import said
from tests.storage.models import dense, dense_program, floats


def test_a_placeholder_bound_by_its_path_and_by_its_name():
    x, w, y = dense()
    f, a, b = te.compile(y, [x, w]), floats(5, 6), floats(6, 4)
    context = te.Context({"layers.0.w": b, "layers_0_w": 2 * b})  # it does not know yet that these are one
    message = "context: expected layers.0.w to be bound once, got arrays for layers.0.w and layers_0_w, which is the same"
    for use in (lambda: f.run(context, x=a), lambda: context.declare(f), lambda: te.freeze(dense_program(), context)):
        assert said(te.ArgumentError, use)[0] == message
    context["more"] = a  # what was refused has told it nothing
    del context["more"], context["layers_0_w"]
    assert f.run(context.declare(f), x=a).tobytes() == f(a, b).tobytes()


TAKEN = (("dynamic", "cast"), ("static", "assert"), ("uint8", "t"), ("INT64", "C"), ("pthread", "create"), ("co", "await"))


@pytest.mark.parametrize(("bundle", "name"), TAKEN)
def test_names_that_c_has_are_refused(bundle, name, tmp_path):
    f = te.compile(dense()[2])
    lines = said(te.ArgumentError, lambda: te.export(tmp_path / bundle, **{name: f}))
    symbol = f"{bundle}_{name}"
    assert lines[0] == (
        f"export: expected functions whose names in C are free, got {name}, whose {symbol} is a word of C, C++ or the system's library"
    )
    assert not (tmp_path / bundle).exists()


def test_headers_of_strange_names_compile(tmp_path):
    """As C and as C++: words of C, numbers, letters that C does not have, nothing at all."""
    f = te.compile(dense()[2])
    headers = [
        te.export(tmp_path / bundle, **dict.fromkeys(("int", "class", "größe", "9", ""), f)) for bundle in ("9-x", "int", "größe", ".x")
    ]
    text = "".join(f'#include "{header}"\n' for folder in headers for header in folder.glob("*.h"))
    assert text.count("#include") == 4
    for compiler, suffix in (("gcc", "c"), ("g++", "cpp")):
        if shutil.which(compiler) is None:
            pytest.skip(f"no {compiler} to read headers with")
        (tmp_path / f"all.{suffix}").write_text(text)
        command = [compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(tmp_path / f"all.{suffix}")]
        subprocess.run(command, check=True)


def test_what_is_no_path_and_no_name(tmp_path: Path):
    f = te.compile(dense()[2])
    assert said(te.ArgumentError, lambda: te.export(3, f=f))[0] == "export: expected the path of a folder, got 3"
    for use in (tensorexpr_runtime.load, te.load):
        with pytest.raises(tensorexpr_runtime.ArgumentError) as caught:
            use(3)
        assert str(caught.value) == "load: expected the path of a bundle, got 3"
    cases = (
        ({"cpus": 3}, "export: expected the names of CPUs, got 3"),
        ({"cpus": ["host", None]}, "export: expected the names of CPUs, got ['host', None]"),
        ({"gpus": 90}, "export: expected the names of GPUs, got 90"),
    )
    for given, text in cases:
        assert said(te.TargetError, lambda: te.export(tmp_path / "a", f=f, **given))[0] == text  # noqa: B023


def test_integers_that_no_array_holds():
    @te.op
    def added(x, y):
        return te.compute(x.shape, lambda i: x[i] + y[()])

    message = f"added: argument y: expected an integer that int64 or uint64 holds, got {2**70}"
    assert said(te.ArgumentError, lambda: added(np.ones(3), 2**70))[0] == message
    assert added(np.zeros(3), 2**64 - 1)[0] == 2.0**64
    lines = said(te.ArgumentError, lambda: added(np.ones(3), np.array(2**70)))
    assert lines[0] == "added: argument y: expected a dtype of the language, got object"
