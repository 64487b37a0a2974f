"""The benchmark of products of odd shapes: it measures what it says, compares results, and prints a table."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensorexpr.benchmarks.harness import Effort
from tensorexpr.benchmarks.subjects import products
from tensorexpr.cli.main import main

QUICK = Effort(rounds=2, sample=1e-4, settle=0.0, limit=1.0)


@pytest.mark.parametrize("product", [("", 5, 3, 7), ("At ", 5, 3, 7), ("Bt ", 5, 3, 7)])
def test_a_product_is_compared_and_timed(product):
    row = products.measured(product, 1, QUICK, torch=None)
    assert row.product == f"{product[0]}5x3x7" and row.torch is None and row.ratio == row.numpy / row.ours
    assert min(row.ours, row.numpy) > 0 and row.difference < products.CLOSE


class Wrong:
    """A peer with other results."""

    from_numpy = staticmethod(np.asarray)

    @staticmethod
    def matmul(a, b):
        return a @ b + 1


def test_another_result_is_told():
    row = products.measured(("", 5, 3, 7), 1, QUICK, torch=Wrong)
    assert row.difference > products.CLOSE and row.torch > 0 and row.ratio == min(row.numpy, row.torch) / row.ours


def test_the_sixty_are_different_and_chosen_by_name():
    assert len({products.name_of(p) for p in products.PRODUCTS}) == len(products.PRODUCTS) == 60
    assert products.chosen(["At 8x", "17x17x17"]) == [("", 17, 17, 17), ("At ", 8, 1024, 1024)]
    assert products.chosen([]) == products.PRODUCTS


def test_a_run_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(products.peers, "missing", lambda names: names)
    file = tmp_path / "products.json"
    assert main(["bench", "products", "--rounds", "2", "--filter", "17x17x17", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "skipped: torch" in out and "17x17x17" in out and "in the geometric mean of 1, worst" in out
    (row,) = json.loads(file.read_text())["rows"]
    assert row["threads"] == 1 and row["torch"] is None
    assert main(["bench", "products", "--filter", "no such"]) == 1
    assert "no product with no such in its name" in capsys.readouterr().out
