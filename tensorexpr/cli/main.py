"""The commands and their options; each command's work is in a file of its own."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tensorexpr.cli import info, onnx, output, profile, show, tune
from tensorexpr.codegen.compile import PRECISIONS, TARGETS
from tensorexpr.errors import InternalError, TensorExprError
from tensorexpr.hints import suggestion

MEASURES = ("regret", "model", "spellings", "sweep")
"""What `bench` takes that is measured row by row, and kept."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors say what may have been meant; `of` has those of the commands."""

    of: Mapping[str, _Parser]

    def error(self, message: str) -> NoReturn:
        met = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        options = [text for action in self._actions for text in action.option_strings]
        wrong = re.search(r"unrecognized arguments: (--?[\w-]+)", message)
        hint = None
        if met is not None:
            hint = suggestion(met[1], [choice.strip("' ") for choice in met[2].split(",")])
        elif wrong is not None:
            hint = suggestion(wrong[1], options, f"{self.prog} --help shows what there is")
        elif "required: FILE:OP" in message:
            hint = "for instance examples/train_digits.py:conv2d: a file, and an operation in it"
        super().error(message if hint is None else f"{message}\n  hint: {hint}")


def _parser() -> _Parser:
    parser = _Parser(prog="tensorexpr", description="Index mathematics in, compiled operations and their gradients out.")
    parser.add_argument("--version", action="version", version=f"tensorexpr {importlib.metadata.version('tensorexpr')}")
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="train a small network on handwritten digits (examples/train_digits.py)", add_help=False)
    demo.set_defaults(arguments=[])

    shown = commands.add_parser("show", help="print an operation of a file, or its gradient, at any stage")
    shown.add_argument("reference", metavar="FILE:OP", help="a te.op (or tensor) in a Python file, e.g. examples/train_digits.py:conv2d")
    shown.add_argument("specs", nargs="*", metavar="SPEC", help="shape and dtype of each argument, e.g. 'f32[8, 1, 28, 28]'")
    shown.add_argument("--static", action="append", default=[], metavar="NAME=VALUE", help="a static argument, e.g. stride=2")
    shown.add_argument("--gradient", action="store_true", help="the gradient with respect to every floating argument")
    shown.add_argument("--stage", choices=show.STAGES, default="program", help="what to print (default: program)")
    shown.add_argument("--latex", dest="stage", action="store_const", const="latex", help="formulas in LaTeX: --stage latex")
    shown.add_argument("--precision", choices=PRECISIONS, default="float32", help="of products of float32 on a GPU (default: float32)")
    shown.add_argument("--explain", action="store_true", help="with --stage cuda: how long kernels are likely to take on an H200, and why")
    shown.add_argument("--json", action="store_true", help="one JSON object instead of text")

    tuned = commands.add_parser("tune", help="measure schedules of an operation, or of its gradient, and keep the best for later builds")
    tuned.add_argument("reference", metavar="FILE:OP", nargs="?", help="a te.op (or tensor) in a Python file")
    tuned.add_argument("specs", nargs="*", metavar="SPEC", help="shape and dtype of each argument, e.g. 'f32[1000, 777]'")
    tuned.add_argument("--static", action="append", default=[], metavar="NAME=VALUE", help="a static argument, e.g. stride=2")
    tuned.add_argument("--size", action="append", default=[], metavar="NAME=NUMBER", help="a number for an open extent, to measure with")
    tuned.add_argument("--gradient", action="store_true", help="tune the gradient (te.vjp of the op) instead of the operation")
    tuned.add_argument("--budget", type=_seconds, default=20.0, metavar="SECONDS", help="how long to search (default: 20)")
    tuned.add_argument("--target", choices=TARGETS, default="cpu", help="what to tune for (default: cpu)")
    tuned.add_argument("--precision", choices=PRECISIONS, default="float32", help="of products of float32 on a GPU (default: float32)")
    tuned.add_argument("--allow-reassociation", action="store_true", help="sums may be added up in another order, which changes last bits")
    tuned.add_argument("--output", metavar="FILE", help="where to keep the record (default: the first file of TENSOREXPR_TUNING)")
    tuned.add_argument("--merge", nargs="+", metavar="FILE", help="only put the records of these files into the output")
    tuned.add_argument("--seed", type=int, default=0, help="of the made-up values and the search (default: 0)")
    tuned.add_argument("--json", action="store_true", help="one JSON object instead of text")

    profiled = commands.add_parser("profile", help="where the time of an operation goes, or of its gradient: by kernel, definition, line")
    profiled.add_argument("reference", metavar="FILE:OP", help="a te.op (or tensor) in a Python file")
    profiled.add_argument("specs", nargs="*", metavar="SPEC", help="shape and dtype of each argument, e.g. 'f32[1000, 777]'")
    profiled.add_argument("--static", action="append", default=[], metavar="NAME=VALUE", help="a static argument, e.g. stride=2")
    profiled.add_argument("--size", action="append", default=[], metavar="NAME=NUMBER", help="a number for an open extent")
    profiled.add_argument("--gradient", action="store_true", help="the gradient with respect to every floating argument")
    profiled.add_argument("--seconds", type=_seconds, default=0.5, metavar="S", help="how long to measure (default: 0.5)")
    profiled.add_argument("--seed", type=int, default=0, help="of the made-up values (default: 0)")
    profiled.add_argument("--save", action="append", default=[], metavar="FILE", help="also write a page (.html) or a trace (.json)")
    profiled.add_argument("--json", action="store_true", help="one JSON object instead of text")

    model = commands.add_parser("onnx", help="show a model of an ONNX file, or its gradient, time it, make a bundle of it")
    model.add_argument("model", metavar="MODEL.onnx")
    model.add_argument("--gradient", action="store_true", help="the gradient by all floating inputs and initializers")
    model.add_argument("--bench", action="store_true", help="time it, beside onnxruntime where that is installed")
    model.add_argument("--bundle", metavar="DIR", help="write it as a bundle, with its gradient where that is asked for")
    model.add_argument("--size", action="append", default=[], metavar="NAME=NUMBER", help="a number for an open dimension (default: 1)")
    model.add_argument("--json", action="store_true", help="one JSON object instead of text")

    _bench_options(commands)
    facts = commands.add_parser("info", help="versions, CPU features, threads, GPU")
    facts.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.of = dict(commands.choices)
    return parser


def _bench_options(commands: argparse._SubParsersAction[_Parser]) -> None:
    bench = commands.add_parser(
        "bench",
        help="time workloads, odd products, training steps, whole networks or calls beside their peers, or the derivation of gradients; "
        "measure regret, the model of cost, spellings, or the whole library; or predict what kernels take of a GPU, without one",
    )
    kinds = ("speed", "products", "training", "models", "interop", "threads", "derivation", "cuda-resources", *MEASURES)
    bench.add_argument("what", nargs="?", choices=kinds, default="speed", help="default: speed")
    bench.add_argument("--filter", action="append", default=[], metavar="PART", help="workloads with this in their name (may be repeated)")
    bench.add_argument("--threads", action="append", type=_threads, metavar="N", help="how many, or 'all' (may be repeated; default: 1)")
    bench.add_argument("--peers", metavar="A,B,..", help="peers to measure beside (default: all that are installed)")
    bench.add_argument("--rounds", type=_count, default=9, help="interleaved rounds per workload (default: 9)")
    bench.add_argument("--limit", type=_seconds, default=10.0, metavar="S", help="seconds of timing a row after three rounds (default: 10)")
    bench.add_argument("--quick", action="store_true", help="three rounds, and only peers that need no compiler of their own")
    bench.add_argument("--prepare", action="store_true", help="fill the peers' caches of compiled code, and time nothing")
    bench.add_argument("--memory", action="store_true", help="of models: the peak of memory in place of the time")
    bench.add_argument("--first", action="store_true", help="of models: what backends add to the first call, with empty caches")
    bench.add_argument("--onnx", action="store_true", help="of models: exported to ONNX, beside onnxruntime")
    bench.add_argument("--json", metavar="FILE", help="also write the results as JSON to this file")
    bench.add_argument("--html", metavar="FILE", help="also write a page, and pictures of the rooflines beside it")
    measured = bench.add_argument_group(f"of {', '.join(MEASURES)}")
    measured.add_argument("--rows", action="append", default=[], metavar="PART", help="rows with this in their name (may be repeated)")
    measured.add_argument("--sample", type=_count, metavar="N", help="so many rows, drawn by --seed")
    measured.add_argument(
        "--seconds", type=_seconds, metavar="S", help="no row starts after so many seconds; rows come in an order by --seed"
    )
    measured.add_argument("--row-limit", type=_seconds, default=120.0, metavar="S", help="seconds that a row may take (default: 120)")
    measured.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    measured.add_argument("--again", action="store_true", help="measure rows once more that the file of --json has")
    measured.add_argument("--budget", type=_seconds, default=20.0, metavar="S", help="seconds of search for a row of regret (default: 20)")
    measured.add_argument("--tries", type=_count, default=200, metavar="N", help="schedules of a row of regret at most (default: 200)")
    measured.add_argument("--predictor", metavar="MODULE:NAME", help="of model: a function from a loop nest to nanoseconds")
    measured.add_argument("--markdown", metavar="FILE", help="also write a page")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return value


def _tune(options: argparse.Namespace) -> int:
    if options.merge:
        path, number = tune.merge(options.merge, options.output)
        print(json.dumps({"file": str(path), "records": number}) if options.json else f"{path}: {number} records")
        return 0
    result = tune.tune_reference(
        options.reference,
        options.specs,
        options.static,
        options.size,
        with_gradient=options.gradient,
        budget=options.budget,
        reassociate=options.allow_reassociation,
        output=options.output,
        seed=options.seed,
        target=options.target,
        precision=options.precision,
    )
    if options.json:
        print(json.dumps(tune.as_data(result)))
    else:
        output.print_code(str(result), "calls")
    return 0


def _demo(arguments: list[str]) -> int:
    try:
        example = importlib.import_module("tensorexpr.examples.train_digits")
    except ModuleNotFoundError as error:
        print(f"the demo needs {error.name}: pip install 'tensorexpr[examples]'", file=sys.stderr)
        return 1
    return _status(example.main, arguments)


def _show(options: argparse.Namespace) -> int:
    text, notes = show.show(
        options.reference, options.specs, options.static, options.gradient, options.stage, options.precision, options.explain
    )
    if options.json:
        print(json.dumps({"reference": options.reference, "stage": options.stage, "notes": notes, "text": text}))
        return 0
    for note in notes:
        for line in note.splitlines():
            output.print_heading(line, options.stage)
    output.print_code(text, options.stage)
    return 0


def _profile(options: argparse.Namespace) -> int:
    found = profile.profile_reference(
        options.reference,
        options.specs,
        options.static,
        options.size,
        with_gradient=options.gradient,
        seconds=options.seconds,
        seed=options.seed,
    )
    for file in options.save:
        found.save(file)
    print(json.dumps(profile.as_data(found)) if options.json else str(found).rstrip())
    return 0


def _onnx(options: argparse.Namespace) -> int:
    facts = onnx.run(
        options.model,
        gradient=options.gradient,
        bench=options.bench,
        bundle=options.bundle,
        sizes=options.size,
        as_json=options.json,
    )
    if options.json:
        print(json.dumps(facts))
    return 0


def _status(command: Callable[..., int], *arguments: Any) -> int:
    """The exit status of a command whose module is imported only where it is asked for."""
    return command(*arguments)


def _subject(name: str, *arguments: Any) -> int:
    """One of the subjects of the benchmark that are commands of their own."""
    return _status(importlib.import_module(f"tensorexpr.benchmarks.subjects.{name}").main, *arguments)


def _bench(options: argparse.Namespace) -> int:
    if options.what in MEASURES:
        return _measure(options)
    run = importlib.import_module("tensorexpr.benchmarks.run")
    counts = [run.cores() if count is None else count for count in options.threads or [1]]
    if options.what == "training":
        return _subject("training", counts, options.rounds, options.json)
    if options.what == "models":
        if options.memory:
            return _subject("networks.memory", counts, options.json, options.filter, options.quick)
        if options.first:
            return _subject("networks.first", counts, options.json, options.filter, options.quick, options.row_limit)
        if options.onnx:
            return _subject("networks.onnx", counts, options.rounds, options.json, options.filter, options.quick)
        return _subject("networks.times", counts, options.rounds, options.json, options.filter, options.quick, options.prepare)
    if options.what == "products":
        return _subject("products", counts, options.rounds, options.json, options.filter)
    return _status(
        run.main,
        run.Options(
            filter=tuple(options.filter),
            threads=tuple(dict.fromkeys(counts)),
            peers=tuple(options.peers.split(",")) if options.peers is not None else run.peers.PEERS,
            rounds=options.rounds,
            limit=options.limit,
            quick=options.quick,
            prepare=options.prepare,
            json=options.json,
            html=options.html,
        ),
    )


def _measure(options: argparse.Namespace) -> int:
    command = importlib.import_module("tensorexpr.benchmarks.measures.command")
    cores = importlib.import_module("tensorexpr.benchmarks.run").cores
    return _status(
        command.main,
        command.Options(
            options.what,
            parts=(*options.rows, *options.filter),
            sample=options.sample,
            seconds=options.seconds,
            seed=options.seed,
            threads=tuple(dict.fromkeys(cores() if count is None else count for count in options.threads or [1])),
            rounds=options.rounds,
            budget=options.budget,
            tries=options.tries,
            limit=options.row_limit,
            again=options.again,
            peers=None if options.peers is None else tuple(options.peers.split(",")),
            predictor=options.predictor,
            json=options.json,
            markdown=options.markdown,
        ),
    )


def _threads(text: str) -> int | None:
    """A number, or None for all cores."""
    return None if text == "all" else _count(text)


def _info(options: argparse.Namespace) -> int:
    facts = info.collect()
    print(json.dumps(facts) if options.json else info.as_text(facts))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; gives the exit status: 0, 1 for an error of the user's side (printed plainly), 2 for bad options."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if options.command == "demo":
        options.arguments = rest  # the example has options of its own, --help among them
    elif options.command in ("show", "tune", "profile") and not any(r.startswith("-") for r in rest):
        options.specs += rest  # specs may follow options
    elif rest:
        parser.of[options.command].error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "tune" and (options.reference is None) != bool(options.merge):
        parser.error("tune: expected either FILE:OP or --merge FILE ...")
    try:
        match options.command:
            case "tune":
                return _tune(options)
            case "demo":
                return _demo(options.arguments)
            case "show":
                return _show(options)
            case "profile":
                return _profile(options)
            case "onnx":
                return _onnx(options)
            case "bench":
                if options.what == "derivation":
                    return _subject("derivation", options.json)
                if options.what == "threads":
                    return _subject("threads", options.json)
                if options.what == "interop":
                    return _subject("interop", options.json, options.rounds)
                if options.what == "cuda-resources":
                    listed = importlib.import_module("tensorexpr.benchmarks.gpu.resources").listed
                    return _status(listed, ["sm_90"], options.filter, options.json)
                return _bench(options)
            case _:
                return _info(options)
    except InternalError:
        raise
    except TensorExprError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 0
