"""The examples that need torch, and the page about it. Skipped by name where PyTorch is not installed."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.examples import attention_torch, correlation_torch  # noqa: E402
from tests.docs.blocks import ROOT, blocks, run  # noqa: E402


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_attention_learns_where_to_look(capsys):
    assert attention_torch.main([]) == 0
    said = capsys.readouterr().out
    assert float(re.search(r"differ by at most (\S+)", said)[1]) < 1e-12
    assert float(re.search(r"([\d.]+) % of the answers are right", said)[1]) > 99
    assert sorted(map(int, re.findall(r"head \d looks (\d) places back", said))) == [2, 5]


def test_correlation_finds_the_motion(capsys):
    assert correlation_torch.main([]) == 0
    said = capsys.readouterr().out
    assert float(re.search(r"differ by at most (\S+)", said)[1]) < 1e-12
    assert float(re.search(r"off by ([\d.]+) pixels", said)[1]) < 0.1


def test_the_page_about_other_libraries_runs():
    names: dict[str, object] = {"__name__": "page"}
    page = ROOT / "docs" / "interop.md"
    end = page.read_text().splitlines().index("## JAX")  # the section on PyTorch comes before
    found = [block for block in blocks(page) if block.language == "python" and block.line <= end]
    assert len(found) == 5 and not "".join(run(block, names, "interop.md") for block in found)
    assert names["x"].grad is not None and names["w"].grad is not None
