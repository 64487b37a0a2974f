"""Graphs of torch that another process made: programs that are saved and loaded, Inductor's caches. Skipped by name without PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

OPERATION = """
import tensorexpr as te

@te.op
def pooled(x, w, *, stride=2, border=0.0, taps=(1, 2)):
    window = lambda i: te.sum(lambda k: FACTOR * x.read(i * stride + k, outside=border) * w[k], w.shape[0])
    return te.compute((x.shape[0] // stride,), window)

def plain(x):
    return te.compute(x.shape, lambda i: te.cos(x[i]))

def loss(x, w):
    return te.compute((), lambda: te.sum(lambda i: x[i] ** 2 * w[i % w.shape[0]], x.shape[0]))
"""

MAKE = """
import torch
import tensorexpr as te
from tensorexpr.interop.torch import as_torch
import {module} as operations
pooled, slope, plain = as_torch(operations.pooled), as_torch(te.grad(operations.loss, wrt="x")), as_torch(operations.plain)

class Model(torch.nn.Module):
    def forward(self, x, w):
        return pooled(x, w, stride={first}, border=0.5).sum() + pooled(x, w, stride={second}, taps=(1, 2)).sum() + slope(x, w) + plain(x)

model, x, w = Model(), torch.arange(24.0), torch.ones(3)
"""

SAVE = """
example = (torch.arange(16.0), w)
program = torch.export.export(model, example, dynamic_shapes=({0: 4 * torch.export.Dim("n", max=100)}, {}))
torch.export.save(program, "program.pt2")
"""

LOAD = """
import sys
loaded = torch.export.load("program.pt2").module()
torch.testing.assert_close(loaded(x, w), model(x, w))
graph = [n for n in torch.export.load("program.pt2").graph.nodes if "pooled" in str(n.target)]
assert len(graph) == 2 and all(n.target is torch.ops.tensorexpr.pooled.default for n in graph)
x.requires_grad_()
found, = torch.autograd.grad(loaded(x, w).sum(), x)
expected, = torch.autograd.grad(model(x, w).sum(), x)
torch.testing.assert_close(found, expected)
"""


REFUSE = """
import torch, tensorexpr as te
import tensorexpr.interop.torch
model = torch.export.load("program.pt2").module()

def refused(text):
    try:
        model(torch.ones(8), torch.ones(3))
    except te.DefinitionError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

refused("pooled: expected the operation that a graph names, pooled in the module operations, got no such module among those that are imp")
import operations
refused("pooled: expected the operation that the graph was made with, got one that has changed since")
"""


def run(folder, text, **environment):
    (folder / "script.py").write_text(text)
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), **environment}
    return subprocess.run([sys.executable, "script.py"], cwd=folder, env=given, capture_output=True, text=True, timeout=300)


def test_a_program_that_is_loaded_computes_what_was_saved(tmp_path):
    """Overloads of one op that differ in static arguments, made here in another order than there."""
    (tmp_path / "operations.py").write_text(OPERATION.replace("FACTOR", "1.5"))
    saved = run(tmp_path, MAKE.format(module="operations", first=2, second=4) + SAVE)
    assert saved.returncode == 0, saved.stderr
    there = MAKE.format(module="operations", first=2, second=4)
    before = "pooled(torch.ones(8), torch.ones(3), stride=4); torch.func.vmap(lambda x: pooled(x, torch.ones(3)))(torch.ones(2, 8))\n"
    loaded = run(tmp_path, there + before + LOAD)
    assert loaded.returncode == 0, loaded.stderr

    (tmp_path / "operations.py").write_text(OPERATION.replace("FACTOR", "2.5"))
    refused = run(tmp_path, REFUSE)
    assert refused.returncode == 0, refused.stderr


COMPILED = """
import torch, tensorexpr as te
from tensorexpr.interop.torch import as_torch
STRIDE, FACTOR = {stride}, {factor}

@te.op
def thinned(x):
    return te.compute((x.shape[0] // STRIDE,), lambda i: FACTOR * x[i * STRIDE] * x[0])

function = as_torch(thinned)
x = torch.arange(1.0, 9.0, requires_grad=True)
y = torch.compile(lambda x: function(x) + 1, fullgraph=True)(x)
y.sum().backward()
z = x.detach().clone().requires_grad_()
(FACTOR * z[: 8 // STRIDE * STRIDE : STRIDE] * z[0] + 1).sum().backward()
torch.testing.assert_close(y.detach(), FACTOR * z.detach()[:: STRIDE] * z.detach()[0] + 1)
torch.testing.assert_close(x.grad, z.grad)
"""


def test_caches_of_inductor_know_what_an_operation_computes(tmp_path):
    for stride, factor in ((1, 2.0), (2, 3.0)):
        done = run(tmp_path, COMPILED.format(stride=stride, factor=factor), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
