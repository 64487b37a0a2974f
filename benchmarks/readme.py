"""What README.md and docs/performance.md say of speed: exactly what the newest files of `benchmarks/results` hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorexpr.benchmarks import plot, report
from tensorexpr.benchmarks.peers import PACKAGES
from tensorexpr.benchmarks.run import FORMAT
from tensorexpr.benchmarks.subjects import products

PEER_NAMES = {
    "numpy": "NumPy", "torch": "PyTorch", "torch.compile": "`torch.compile`", "jax": "JAX",
    "numba": "Numba", "keops": "KeOps", "halide": "Halide",
}  # fmt: skip
"""How the peers are called in a sentence."""
RESULTS = Path(__file__).resolve().parent / "results"


def newest(folder: Path = RESULTS) -> tuple[Path, dict[str, Any]] | None:
    """The last results, by their date, of the form that `run` writes today, among those with the most numbers of threads: a run on one
    thread does not take the place of the whole table."""
    kept = _kept(folder)
    return max(kept, key=lambda item: (len(item[1]["runs"]), item[1]["date"])) if kept else None


def _beside_more(document: dict[str, Any], folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The last results beside peers that those of a document are not beside, for what they say of these."""
    found = [item for item in _kept(folder) if _timed(item[1]) - _timed(document)]
    return max(found, key=lambda item: (len(_timed(item[1])), item[1]["date"])) if found else None


def _kept(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return [(path, document) for path, document in found if document.get("format") == FORMAT and "runs" in document]


def _timed(document: dict[str, Any]) -> set[str]:
    """Who was timed in any row."""
    return {name for run in document["runs"] for row in run["rows"] for name in row["timings"]}


def text(folder: Path = RESULTS) -> str:
    """Machine, versions, how many workloads are ahead, the table, and what is paid before the first call."""
    found = newest(folder)
    if found is None:
        return "Not measured yet beside its peers: `benchmarks/measure.sh` does it, and writes this paragraph."
    path, document = found
    timed = _timed(document)
    versions = ", ".join(f"{peer} {document['peers'][package]}" for peer, package in PACKAGES.items() if peer in timed)
    cpu = document["machine"]["cpu"]
    lines = [
        f"Measured on {document['date'][:10]} on a {cpu['name']} (vectors of {cpu['vector_bits']} bits), float32, beside {versions}:",
        f"medians of up to {document['rounds']} interleaved rounds, caches warm, a process per workload",
        f"([all figures](../benchmarks/results/{path.name}); `benchmarks/measure.sh`). Gradients are of `sum(output * head)` by every",
        "input, with the output. A ratio is the time of the fastest peer over ours.",
        "",
    ]
    lines += [*_peers(document), ""]
    lines += [f"- {_threads(run)}: {report.headline(run)}; {report.roof_text(run)}." for run in document["runs"]]
    more = _beside_more(document, folder)
    if more is not None:
        others = [PEER_NAMES[name] for name in PACKAGES if name in _timed(more[1]) - timed]
        were = f"{_listed(others)} {'was' if len(others) == 1 else 'were'}"
        lines += ["", f"{were} measured last on {more[1]['date'][:10]}, with the others and the code of that day"]
        lines += [f"([all figures](../benchmarks/results/{more[0].name})):", ""]
        lines += [f"- {_threads(run)}: {report.headline(run)}." for run in more[1]["runs"]]
    lines += ["", report.markdown(document["runs"]), ""]
    if document["startup_ms"]:
        lines.append("; ".join(f"{name} {value:.0f} ms" for name, value in document["startup_ms"].items()) + ".")
    return "\n".join(lines).strip()


def figures(folder: Path = RESULTS) -> str:
    """Three figures for the README: operations beside their peers, training steps beside PyTorch, what compiling takes."""
    found, steps = newest(folder), sorted((folder / "training").glob("*.json"))
    if found is None or not steps:
        return "Not measured yet beside its peers: `benchmarks/measure.sh` does it, and writes this paragraph."
    _, document = found
    rows = json.loads(steps[-1].read_text())["rows"]
    gains = [row["torch"] / row["ours"] for row in rows if row["torch"] is not None]
    startup = document["startup_ms"]
    name = document["machine"]["cpu"]["name"]
    peers = _listed([PEER_NAMES[peer] for peer in PACKAGES if peer in _timed(document)])
    lines = [f"On a {name}, float32, {document['date'][:10]}, beside the fastest of {peers} in each row:", ""]
    told = (f"{report.headline(run).replace('; ', ', ')} ({_threads(run)})" for run in document["runs"])
    lines.append(f"- Operations: {'; '.join(told)}.")
    spread = f"{min(gains):.1f} to {max(gains):.1f} over {len(gains)} rows"
    lines.append(f"- Training steps (loss, gradients, update), {steps[-1].name[:10]}: PyTorch eager / ours {spread}.")
    cold, warm = ([value for key, value in startup.items() if key.startswith(f"build {state}")] for state in ("cold", "warm"))
    if cold and warm:
        lines.append(
            f"- Compiling an operation with its gradient: {min(cold):.0f} to {max(cold):.0f} ms over {len(cold)} of them, and"
            f" {min(warm):.0f} to {max(warm):.0f} ms with the code in the cache on disk."
        )
    return "\n".join(lines)


def plots(folder: Path = RESULTS) -> dict[str, str]:
    """The pictures of the performance page: what `text` and `training` have as tables, by the names of their files."""
    found, steps = newest(folder), sorted((folder / "training").glob("*.json"))
    pictures: dict[str, str] = {}
    for run in found[1]["runs"] if found is not None else ():
        rows: dict[str, dict[str, float]] = {}
        for row in run["rows"]:
            times = report.ratio(row)
            if times is not None:
                rows.setdefault(row["workload"], {})[row["direction"]] = times
        pictures[f"speed-{run['threads']}"] = plot.ratios(f"Time of the fastest peer / ours, {_threads(run)}", rows)
    if steps:
        gains: dict[str, dict[str, float]] = {}
        for row in json.loads(steps[-1].read_text())["rows"]:
            if row["torch"] is not None:
                name = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
                gains.setdefault(row["case"], {})[name] = row["torch"] / row["ours"]
        pictures["training"] = plot.ratios("Training steps: time of PyTorch (eager) / ours", gains)
    return pictures


def training(folder: Path = RESULTS / "training") -> str:
    """The steps of the newest results of `bench training`, the last by the dates that their names begin with."""
    found = sorted(folder.glob("*.json"))
    if not found:
        return "Training steps have not been measured yet: `python -m tensorexpr bench training --json FILE`."
    document, link = json.loads(found[-1].read_text()), f"[figures](../benchmarks/results/training/{found[-1].name})"
    heads = ("training step", "threads", "ms", "PyTorch ms", "PyTorch / ours", "traced and compiled in s")
    lines: list[tuple[str, ...]] = [heads, ("---",) * len(heads)]
    for row in document["rows"]:
        torch = ("-", "-") if row["torch"] is None else (f"{row['torch']:.2f}", f"{row['torch'] / row['ours']:.2f}")
        lines.append((row["case"], str(row["threads"]), f"{row['ours']:.3f}", *torch, f"{row['trace'] + row['compile']:.1f}"))
    return "\n".join([
        f"Whole training steps (loss, all gradients, update) beside the same models in PyTorch eager, on {found[-1].name[:10]} on a",
        f"{document['machine']['cpu']['name']} (`python -m tensorexpr bench training`; {link}):",
        "",
        *(f"| {' | '.join(line)} |" for line in lines),
    ])  # fmt: skip


def odd_products(folder: Path = RESULTS / "products") -> str:
    """What the newest results of `bench products` say, the last by the dates that their names begin with."""
    found = sorted(folder.glob("*.json"))
    if not found:
        return "Products of odd shapes have not been measured yet: `python -m tensorexpr bench products --json FILE`."
    document, link = json.loads(found[-1].read_text()), f"[figures](../benchmarks/results/products/{found[-1].name})"
    rows = [products.Row(**row) for row in document["rows"]]
    return "\n".join([
        "Products of odd shapes (primes, few rows, few columns, long and thin, transposed) beside NumPy and PyTorch in one process, on",
        f"{found[-1].name[:10]} on a {document['machine']['cpu']['name']} (`python -m tensorexpr bench products`; {link}):",
        "",
        *(f"- {line}." for line in products.headlines(rows)),
    ])  # fmt: skip


def interop(folder: Path = RESULTS / "interop") -> str:
    """What calls cost by the newest results of `bench interop`, how threads scale, and what a bundle is."""
    found = sorted(folder.glob("*.json"))
    if not found:
        return "Not measured yet: `python -m tensorexpr bench interop --json FILE`."
    document = json.loads(found[-1].read_text())
    lines: list[tuple[str, ...]] = [("library", "call", "us", "times its own"), ("---", "---", "---", "---")]
    for row in document["rows"]:
        lines.append((row["host"], f"`{row['call']}`", f"{row['microseconds']:.2f}", f"{row['ratio']:.2f}"))
    scaling = ", ".join(f"{row['scaling']:.2f} (`{row['workload']}`)" for row in document["threads"] if row["threads"] == 2)
    bundle = document["bundle"]
    return "\n".join([
        f"Measured on {found[-1].name[:10]} on a {document['info']['cpu']['name']}:",
        "",
        *(f"| {' | '.join(line)} |" for line in lines),
        "",
        f"Calls of one function by two threads together, times those by one: {scaling}.",
        f"A bundle of {bundle['function']} is {bundle['kilobytes']:.0f} KB, loaded in {bundle['load']:.2f} ms.",
    ])  # fmt: skip


def _peers(document: dict[str, Any]) -> list[str]:
    """In how many rows each peer stands, and which were not asked."""
    counts = [report.counts(run) for run in document["runs"]]
    rows = max(len(run["rows"]) for run in document["runs"])
    timed = [name for name in PACKAGES if any(name in found for found in counts)]
    parts = [f"{name} in {max(found.get(name, 0) for found in counts)}" for name in timed]
    lines = [
        f"Timed in so many of the {rows} rows (in the others a peer does not have the operation, or is not for it): {', '.join(parts)}."
    ]
    absent = document.get("skipped") or {name: "" for name in PACKAGES if name not in timed}
    if absent:
        why = ", ".join(f"{name} ({reason})" if reason else name for name, reason in absent.items())
        lines.append(f"Not measured: {why}.")
    return lines


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _threads(run: dict[str, Any]) -> str:
    return f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
