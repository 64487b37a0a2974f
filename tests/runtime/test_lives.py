"""Nothing is left of what was compiled, run and dropped: no objects, no code, next to no memory.

`cycles.py` runs as many cycles as it is asked for. A run to 3,000: 183 MiB after 1,000 cycles, 197 after 3,000, nothing alive, as many
maps all the while; the objects that grow in number (70 a cycle) are definitions in tables of simplifying, which are emptied when full.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# In a process of its own; with room for few executables in memory, so that it is full after a few cycles.
SCRIPT = """
import json
from tensorexpr.codegen import executable
from tests.runtime.cycles import run
executable._executables._bound = 8
before, _ = run(24)
after, alive = run(60, 24)
print(json.dumps([before.memory, after.memory, before.maps, after.maps, alive]))
"""


def test_what_was_compiled_and_dropped_is_gone():
    result = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after, maps_before, maps_after, alive = json.loads(result.stdout)
    assert alive == 0
    # Maps of memory come with linked code, 2 for each executable: what was unloaded is unmapped.
    assert maps_after <= maps_before + 20
    # 120 programs: what LLVM kept of each was 75 KiB once (its passes, and the libraries of its linker), 9 MiB in all.
    assert after - before < 3, f"{after - before:.1f} MiB"
