"""Ops on DTensors, in processes of their own: results, gradients, placements and bytes. Skipped by name without PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")


@pytest.mark.parametrize(
    "count, cases",
    [
        (2, ("products", "dispatched", "halos", "around", "tables", "tensor_parallel", "data_parallel", "least")),
        (4, ("around", "two_dimensions", "both_kinds")),
    ],
)
def test_shards_compute_what_one_device_does(count, cases, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TENSOREXPR_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.peers.sharded_torch"]
    outputs = [(tmp_path / f"{rank}.txt").open("w+") for rank in range(count)]
    processes = [
        subprocess.Popen([*command, str(rank), str(count), str(tmp_path / "store"), *cases], stdout=file, stderr=file, env=environment)
        for rank, file in enumerate(outputs)
    ]
    try:
        codes = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    texts = []
    for file in outputs:
        file.seek(0)
        texts.append(file.read())
        file.close()
    assert codes == [0] * count, "\n".join(texts)
    assert [line for line in texts[0].splitlines() if line.endswith(" done")] == [f"{case} done" for case in cases]
