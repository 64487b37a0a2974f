"""How much of a cold compile the proof takes: `python -m tests.codegen.proofs.share random|library|benchmark [COUNT]`.

Time of the process, of everything from the program to native code, with no cache of code: of the first build of a process (forked for
each program, behind the imports), then of the same build after those of other programs, where LLVM stands ready: there programs
compile in a few milliseconds, and err by a few hundredths. One line per program above a tenth, then the median, 95 % and the worst.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks import workloads
from tensorexpr.codegen import stages
from tensorexpr.codegen.compile import build_program
from tensorexpr.errors import TensorExprError
from tensorexpr.language import placeholder, program_of
from tensorexpr.op.trees import leaves
from tests.fuzz import checks
from tests.fuzz.plan import planned
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, placed


def random_programs(count):
    for seed in range(90_000_000, 90_000_000 + count):
        try:
            yield str(seed), checks.traced_of(planned(seed)).program
        except TensorExprError:
            continue


def of_library(count):
    for case in ALL[:: max(1, len(ALL) // count)]:
        inputs, result, wrt = placed(case)
        yield case.name, program_of(list(leaves(result)), inputs)
        if case.differentiable and wrt:
            yield f"{case.name} gradient", derived(case)[1]


def of_benchmark(count):
    for spec in workloads.specs()[:count]:
        arrays = spec.placeholders()
        results = list(leaves(spec.op(*arrays, **spec.static)))
        yield spec.name, program_of(results, arrays)
        if spec.differentiable:
            heads = [placeholder(t.shape, t.dtype.name, name=f"head_{k}") for k, t in enumerate(results)]
            wrt = [a for a in arrays if a.dtype.is_float]
            yield f"{spec.name} gradient", program_of(list(te.gradient(results, wrt, heads)), [*arrays, *heads])


def share(program):
    """The share of the proof in the time of the process that building a program takes, and that time in milliseconds."""
    spent, inner = 0.0, stages.prove

    def timed(*args, **options):
        nonlocal spent
        begin = time.process_time()
        try:
            return inner(*args, **options)
        finally:
            spent += time.process_time() - begin

    stages.prove = timed
    gc.collect()
    gc.freeze()  # what earlier programs left is not gone through again, by chance within a proof
    begin = time.process_time()
    try:
        build_program(program)
    finally:
        stages.prove = inner
    whole = time.process_time() - begin
    return spent / whole, whole * 1e3


def first_share(program):
    """The same of the first build of a process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps(share(program)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def main(kind, count=300):
    os.environ["TENSOREXPR_CACHE_DIR"] = ""
    programs = {"random": random_programs, "library": of_library, "benchmark": of_benchmark}[kind]
    named = list(programs(int(count)))
    for how, ask in (("first builds", first_share), ("builds after others", share)):
        found = [(*ask(program), name) for name, program in named]
        for part, whole, name in sorted(found):
            if part > 0.1:
                print(f"{part:.3f} of {whole:.0f} ms: {name}")
        parts = [part for part, _, _ in found]
        ends = f"median {np.median(parts):.3f}, 95 % {np.quantile(parts, 0.95):.3f}, worst {max(parts):.3f}"
        print(f"{how} of {len(parts)} programs ({kind}): {ends}")


if __name__ == "__main__":
    main(*sys.argv[1:])
