"""Nothing is left of what was compiled, run and dropped: no objects, no code, next to no memory.

`cycles.py` runs as many cycles of two programs as it is asked for. A run of 10,000: 178.1 MiB after 1,000 cycles (the code of the
last 1,024 programs is kept), 180.6 after 4,000, 183.4 after 7,000, 185.6 at the end; 93,400 objects of Python after 1,000, 93,500 at
the end, 1,510 maps all the while, nothing alive. What still grows, 0.85 KiB a cycle, is outside of Python's objects.
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
before, _ = run(84)
after, alive = run(60, 84)
print(json.dumps([before.memory, after.memory, before.maps, after.maps, alive]))
"""


def test_what_was_compiled_and_dropped_is_gone():
    result = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after, maps_before, maps_after, alive = json.loads(result.stdout)
    assert alive == 0
    # Maps of memory come with linked code, 2 for each executable: what was unloaded is unmapped.
    assert maps_after <= maps_before + 20
    # The first programs make the heap as large as what waits for the collector of cycles (6 MiB, see `building.collecting`); then it
    # stays. Of 120 programs what LLVM kept of each was 75 KiB once (its passes, and the libraries of its linker), 9 MiB in all.
    assert after - before < 3, f"{after - before:.1f} MiB"
