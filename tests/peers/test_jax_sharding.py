"""Ops on arrays that lie on several devices: the tests of `jax_sharding`, in a process whose CPU is four devices to JAX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")


def test_programs_that_stay_split():
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__).with_name("jax_sharding.py"))]
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
