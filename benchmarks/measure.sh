#!/usr/bin/env bash
# The whole table, on one core and on all, for benchmarks/results/: fills the peers' caches first (up to an hour, once), then measures
# on a machine that should do nothing else (some ten minutes for each number of threads). Usage: benchmarks/measure.sh PYTHON NAME-OF-THE-CPU, from the root of a checkout.
set -euo pipefail
python=${1:?expected the Python to use} cpu=${2:?expected a name for the CPU}
name=benchmarks/results/$(date -u +%Y-%m-%d)-$cpu
"$python" -m tensorexpr bench --prepare --threads 1 --threads all
"$python" -m tensorexpr bench --threads 1 --threads all --rounds 5 --limit 3 --json "$name.json" --html "build/benchmarks/$(basename "$name").html"
"$python" docs/generate.py
