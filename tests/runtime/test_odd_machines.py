"""A machine with no place to write to: no home, no folder for temporary files, none for the cache, a working folder that takes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda import host
from tensorexpr.codegen.cuda.nvidia import nvrtc

PROGRAM = """
import os, pwd, sys, tempfile, warnings
sys.path.insert(0, os.getcwd())
import numpy as np, tensorexpr as te
from tensorexpr.codegen import stages
tempfile._candidate_tempdir_list = lambda: ["/nonexistent/temporary"]
pwd.getpwuid = {}.__getitem__
for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR", "TENSOREXPR_STRICT"):
    os.environ.pop(name, None)
os.chdir("/proc/self")
x = te.placeholder((4,), name="x")
ones = np.ones(4, np.float32)
double = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * 2))
step = te.function(lambda x: double(x) + 1)
print(te.build(te.compute((4,), lambda i: x[i] * 3), [x])(ones)[0], double(ones)[0], te.vjp(double)(ones, ones)[0][0], step(ones)[0])
stages.scheduled = lambda *_: 1 / 0  # the plain form is built, and there is no place for a report
print(te.build(te.compute((4,), lambda i: x[i] * 5), [x])(ones)[0])
os.environ["TENSOREXPR_CUDA"] = "host"
for what, run in (
    ("cuda", lambda: te.build(te.compute((4,), lambda i: x[i] * 7), [x], "cuda")),
    ("tune", lambda: te.tune(te.compute((4,), lambda i: x[i] * 2))),
):
    try:
        print(what, run())
    except te.TensorExprError as error:
        print(what, type(error).__name__, str(error).splitlines()[0])
"""


@pytest.mark.parametrize("cache", [None, "/proc/self/cache", "~nosuchuser/cache"])
def test_it_costs_a_warning_for_each_place_that_is_wanted(cache: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("TENSOREXPR_CACHE_DIR", "TENSOREXPR_TUNING")}
    environment |= {"TENSOREXPR_CACHE_DIR": cache} if cache is not None else {}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results, plain, *refused = done.stdout.splitlines()
    assert results.split() == ["3.0", "2.0", "2.0", "3.0"] and plain == "5.0"
    assert done.stderr.count("CacheWarning: ") == 1, done.stderr
    assert done.stderr.count("FallbackWarning: ") == 1 and "please report it." in done.stderr, done.stderr
    if host.compiler() is not None:
        assert refused[0].startswith("cuda TargetError expected a folder for temporary files that only this user can write to"), refused
    told = "expected a file that can be written, got" if cache == "/proc/self/cache" else "# not kept in a file"
    assert any(told in line for line in refused), refused


def test_machine_code_wants_a_folder_to_be_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvrtc, "_cuobjdump", lambda: "cuobjdump")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(
        te.TargetError, match=r"expected a folder for temporary files, for cuobjdump to print machine code, got .*No such file"
    ):
        nvrtc.Compiled("sm_90", b"", "", "", {}).sass()
