"""One worker of the fuzzer: runs the plans of its seeds and says so line by line, so that who listens knows where it died.

`python -m tests.fuzz.worker FIRST STEP` runs the seeds FIRST, FIRST + STEP, ... and writes `begin SEED`, then `end SEED JSON`. It ends
by itself after some thousand programs or when its memory has grown: a fresh process takes over.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
import traceback

from tensorexpr.codegen.memo import forget
from tests.fuzz.checks import Failure, Skipped, check
from tests.fuzz.plan import planned

_PROGRAMS = 3_000
_FORGET = 40
_MEMORY = 2 << 20
"""KiB of memory at which a worker gives way to a fresh one."""


def run(seed: int) -> dict[str, object]:
    """What came of one seed: features that were reached, and how it failed, if it did."""
    start = time.process_time()
    found: dict[str, object] = {}
    notes: set[str] = set()
    try:
        plan = planned(seed)
        notes |= plan.sample.features
        check(plan, notes)
    except Failure as failure:
        found["kind"], found["message"] = failure.kind, failure.message[:2000]
    except Skipped as skipped:
        found["skipped"] = str(skipped).splitlines()[0][:60]
    except Exception as error:
        found["kind"], found["message"] = f"checks: {type(error).__name__}", traceback.format_exc(limit=-6)
    found["features"], found["seconds"] = sorted(notes), round(time.process_time() - start, 4)
    return found


def main(first: int, step: int) -> None:
    """Runs seeds until this process has done its share."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    for number in range(_PROGRAMS):
        seed = first + number * step
        print(f"begin {seed}", flush=True)
        print(f"end {seed} {json.dumps(run(seed))}", flush=True)
        if number % _FORGET == _FORGET - 1:
            forget()
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MEMORY:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
