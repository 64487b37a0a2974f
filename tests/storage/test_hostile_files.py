"""Files that were altered, by chance or on purpose: an error of ours or a valid result, in bounded memory; never a crash, never code.

Valid files of each kind are altered at random (`mutations`) and read, and what is read is run.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.tuning import records
from tensorexpr.errors import ArgumentError, DefinitionError, TensorExprError
from tensorexpr.graph.modules.tensor_files import read_tensors, write_tensors
from tensorexpr.parse import parse_program
from tensorexpr.text import print_program
from tests.codegen.tuning.test_records import RECORD, other
from tests.random_programs import random_program
from tests.seeds import share_of
from tests.storage.models import floats
from tests.storage.mutations import DEEP, altered, as_text, edited

ROOT = Path(__file__).resolve().parents[2]


# --------------------------------------------------------------------------------------------------------- safetensors


def parts(data: bytes) -> tuple[dict, bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def whole(header: bytes, body: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + body


@pytest.mark.parametrize("seed", share_of(range(12)))
def test_files_of_tensors(seed: int, tmp_path: Path) -> None:
    rng, file = random.Random(seed), tmp_path / "t.safetensors"
    given = {"a": floats(3, 4), "b": np.arange(5) % 2 == 0, "c": np.arange(6, dtype=np.int64), "d": floats(0, 2)}
    write_tensors(file, given, {"step": "3", "name": "größer"})
    data = file.read_bytes()
    header, body = parts(data)
    refused = 0
    for turn in range(120):
        file.write_bytes(altered(data, rng) if turn % 3 == 0 else whole(as_text(edited(header, rng), rng), body))
        try:
            found, texts = read_tensors(file)
        except ArgumentError as error:
            assert "t.safetensors: expected a whole safetensors file, got " in str(error)
            refused += 1
            continue
        assert sum(array.nbytes for array in found.values()) == len(file.read_bytes()) - 8 - int.from_bytes(file.read_bytes()[:8], "little")
        assert all(type(text) is str for text in texts.values())
        assert all(array.max(initial=False) <= 1 for array in (a.view(np.uint8) for a in found.values() if a.dtype == bool))
    assert refused > 50


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BROKEN: dict[str, tuple[bytes, str]] = {
    "deep": (b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}", "RecursionError|TypeError"),  # Python 3.14 reads lists of any depth
    "metadata as a list": (json.dumps({"__metadata__": [1], "a": GOOD}).encode(), "__metadata__ that is not texts by name"),
    "metadata of numbers": (json.dumps({"__metadata__": {"a": 1}, "a": GOOD}).encode(), "__metadata__ that is not texts by name"),
    "overlap": (json.dumps({"a": GOOD, "b": GOOD}).encode(), "b at bytes 0 to 8, where the tensors before it end at 8"),
    "hole": (json.dumps({"a": {**GOOD, "data_offsets": [0, 4], "shape": [1]}}).encode(), "tensors of 4 bytes, and 8 bytes for them"),
    "twice": (b'{"a": 0, "a": ' + json.dumps(GOOD).encode() + b"}", "a name stands there twice"),
    "axes": (json.dumps({"a": {**GOOD, "shape": [1] * 40 + [2]}}).encode(), "a of shape"),
    "bools as numbers": (json.dumps({"a": {**GOOD, "shape": [True, 2]}}).encode(), "a of shape"),
    "floats": (json.dumps({"a": {**GOOD, "data_offsets": [0.0, 8]}}).encode(), "bytes 0.0 to 8"),
    "large": (json.dumps({"a": {**GOOD, "shape": [2**62, 4]}}).encode(), r"a of shape \[4611686018427387904, 4\]"),
    "beyond": (json.dumps({"a": {**GOOD, "data_offsets": [2**63, 2**63 + 8]}}).encode(), "a at bytes 9223372036854775808|of 8"),
    "unknown": (json.dumps({"a": {**GOOD, "dtype": ["F32"]}}).encode(), "TypeError"),
    "flags": (json.dumps({"a": {"dtype": "BOOL", "shape": [8], "data_offsets": [0, 8]}}).encode(), "a of dtype BOOL with a byte of 56"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_the_format_does_not_allow_is_refused(case: str, tmp_path: Path) -> None:
    header, message = BROKEN[case]
    (tmp_path / "f").write_bytes(whole(header, b"12345678"))
    with pytest.raises(ArgumentError, match=f"expected a whole safetensors file, got .*(?:{message})"):
        read_tensors(tmp_path / "f")


def test_headers_of_any_length_and_files_that_never_end(tmp_path: Path) -> None:
    for length in (9, 2**31, 2**63, 2**64 - 1):
        (tmp_path / "f").write_bytes(length.to_bytes(8, "little") + b"{}      ")
        with pytest.raises(ArgumentError, match=f"got 16 bytes with a header of {length}"):
            read_tensors(tmp_path / "f")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ArgumentError, match="expected a whole safetensors file, got no plain file"):
            read_tensors(path)
    with pytest.raises(ArgumentError, match="expected a whole safetensors file, got a folder"):
        read_tensors(tmp_path)


# ----------------------------------------------------------------------------------------------------- saved functions


def saved(path: Path) -> np.ndarray:
    """A function with all kinds of nodes, in a file; gives its argument."""
    state, step = te.Variable(np.ones((3, 4), np.float32), name="state"), te.Variable(np.int64(0), name="step")

    @te.function
    def inner(x):
        return te.compute(x.shape, lambda i, j: te.tanh(x[i, j]) + x[i, 3 - j], name="inner")

    @te.function
    def f(x):
        y = inner(x) + state
        step.assign(step + 1)
        te.print("{} {}", step, y)
        te.check(te.compute((), lambda: y[0, 0] < 1e9), "too large")
        y = te.cond(te.compute((), lambda: y[0, 0] > 0), lambda a: a * 2, lambda a: inner(a), y)
        y, _ = te.while_loop(lambda a, k: k < 2, lambda a, k: (a * a, k + 1), (y, step * 0))
        state.assign(y)
        total = te.compute((3,), lambda i: te.sum(lambda k: y[i, k], 4), name="total")
        return {"total": total, "both": (y, [total, 3])}

    x = floats(3, 4)
    te.save_function(path, f, x)
    return x


class Stopped(Exception):
    pass


class Bounded(list):
    """A log that ends a run: an altered loop may go on for ever."""

    def append(self, identity: str) -> None:
        super().append(identity)
        if len(self) > 300:
            raise Stopped


@pytest.mark.parametrize("seed", share_of(range(18)))
def test_saved_functions(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """What is refused is refused when it is loaded; what is loaded runs, or fails with an error that says so."""
    rng, file = random.Random(seed), tmp_path / "f.safetensors"
    x = saved(file)
    tensors, metadata = read_tensors(file)
    about, refused, ran = json.loads(metadata["function"]), 0, 0
    for _ in range(30):
        text = (
            as_text(edited(about, rng), rng).decode()
            if rng.random() < 0.8
            else altered(metadata["function"].encode(), rng).decode("utf-8", "replace")
        )
        write_tensors(file, tensors, {"function": text})
        try:
            loaded = te.load_function(file)
        except ArgumentError as error:
            assert "te.load_function: expected a " in str(error)
            refused += 1
            continue
        try:
            loaded.strict(x, log=Bounded())
            ran += 1
        except (TensorExprError, Stopped):
            pass
    assert refused > 5 and ran


def test_texts_of_another_size_and_graphs_that_run_themselves_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.safetensors"
    saved(file)
    tensors, metadata = read_tensors(file)
    about = json.loads(metadata["function"])
    nodes = [(graph, node) for graph in about["graphs"] for node in graph["nodes"]]
    call = next(node for _, node in nodes if node["kind"] == "Call")
    compute = next(node for _, node in nodes if node["kind"] == "Compute" and "tanh" in node["definition"])
    printed = next(node for _, node in nodes if node["kind"] == "Print")
    text = compute["definition"]
    cases = (
        (compute, "definition", text.replace("4] = tanh", "4 + 1] = tanh"), r"expected results of f32\[3, 4 \+ 1\], got f32\[3, 4\]"),
        (compute, "definition", text.replace("4] = tanh", "5] = tanh"), r"expected results of f32\[3, 5\], got f32\[3, 4\]"),
        (compute, "definition", "-" * 50_000 + "x", "nests deeper than can be read"),
        (compute, "definition", text.replace("tanh", "undefined"), "expected an operation"),
        (call, "graph", len(about["graphs"]) - 1, "IndexError"),
        (call, "graph", -1, "expected a number from 0 on, got -1"),
        (call, "kind", "Native", "KeyError: 'Native'"),
        (call, "operands", ["nothing"], "expected a value given before, got 'nothing'"),
        (printed, "text", "{:>9999999999}", "expected a text with narrow fields, got '{:>9999999999}'"),
        (printed, "text", "{} {} {}", "expected a text for 2 arrays"),
        (about, "tree", {"tuple": [{"hole": None}]}, "4 results for 1 places"),
        (about["variables"][0], "dtype", "float64", "variable 0 of dtype float64, with values of float32"),
    )
    for holder, key, value, message in cases:
        old, holder[key] = holder[key], value
        write_tensors(file, tensors, {"function": json.dumps(about)})
        with pytest.raises(
            ArgumentError,
            match=f"te.load_function: expected a function as te.save_function writes it in f.safetensors, got another text: .*{message}",
        ):
            te.load_function(file)
        holder[key] = old


def test_arithmetic_that_somebody_wrote_wraps_around(tmp_path: Path) -> None:
    f = te.function(lambda x: te.compute((8,), lambda i: x[i] + i * 5 // 4, name="y"))
    file, x = tmp_path / "f.safetensors", np.arange(8)
    te.save_function(file, f, x)
    tensors, metadata = read_tensors(file)
    write_tensors(file, tensors, {"function": metadata["function"].replace("i * 5 // 4", f"i * {1 << 62} // 4")})
    np.testing.assert_array_equal(te.load_function(file)(x), x + x * np.int64(1 << 62) // 4)


@pytest.fixture(scope="module")
def differentiated(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], str]:
    """A step with a loop, a composite and their backward passes, as a file has it: its tensors and its text."""
    square = te.function(lambda x: x * x, implements="org.nn.square", attrs={"axes": (0,)})
    state = te.Variable(np.ones(3), name="state")

    @te.function
    def step(x):
        last, _ = te.while_loop(lambda a, k: k < 2, lambda a, k: (a * a, k + 1), (x, np.int64(0)))
        squares = square(last)
        loss = te.compute((), lambda: te.sum(lambda i: squares[i], 3))
        te.print("{}", loss)
        te.check(te.compute((), lambda: loss[()] < 1e9), "too large")
        (gradient,) = te.gradients(loss, [x])
        state.assign(gradient)
        return loss, gradient

    file = tmp_path_factory.mktemp("functions") / "step"
    te.save_function(file, step, np.ones(3))
    tensors, metadata = read_tensors(file)
    return tensors, metadata["function"]


MEANINGLESS: tuple[tuple[str, object, str], ...] = (
    ("step.Print.id", 3, "expected an id of its own for each node, got 3"),
    ("step.Print.id", "while", "expected an id of its own for each node, got 'while'"),
    ("step.Print.after", ["check"], "expected nodes to wait for nodes before them"),
    ("step.Print.scope", 3, "expected a scope and a device, got 3 and None"),
    ("step.Print.device", "tpu", "expected a scope and a device, got '' and 'tpu'"),
    ("step.Print.text", 3, "expected a text with narrow fields, got 3"),
    ("step.Check.text", 3, "expected a text, got 3"),
    ("step.While.history", False, "expected results for 2 parts of the state, got 3"),
    ("step.While.history", 1, "expected results for 2 parts of the state, got 3"),
    ("step.WhileGradient.saved", 6, "expected how much an iteration saved, got 6"),
    ("step.WhileGradient.saved", "4", "expected how much an iteration saved, got '4'"),
    ("step.inputs", [["x 0", ["float64", [3]]]], "expected an identifier for each value, once, got 'x 0'"),
    ("step.inputs", [["x0", ["float64", [3]]]] * 2, "expected an identifier for each value, once, got 'x0'"),
    ("step.inputs", [["x0", ["float64", ["-1"]]]], "expected extents from 0 on, got f64[-1] for x0"),
    ("step.outputs", ["t1", "t9"], "expected outputs among its values, got 't9'"),
    ("step.kept", None, "expected a text that says why it is kept, got None"),
    ("step.own", 3, "expected how many of 2 outputs are the function's, got 3"),
    ("<lambda>_forward.composite.role", "sideways", "expected what it implements, got Composite(name='org.nn.square'"),
    ("<lambda>_forward.composite.doc", 3, "expected what it implements, got Composite(name='org.nn.square'"),
    ("<lambda>_forward.composite.attributes", [["axes", {"set": [0]}]], "expected a tuple, list or dict, got 'set'"),
    ("<lambda>_backward.backward.inputs", -1, "expected numbers of inputs and outputs, got Backward(inputs=-1"),
    ("<lambda>_backward.backward.heads", [0.5], "expected numbers of inputs and outputs, got Backward(inputs=1"),
    ("<lambda>_backward.backward.heads", [1], "expected a backward pass of 3 inputs, got Backward(inputs=1"),
    ("<lambda>_backward.backward.wanted", [0, 0], "expected a backward pass of 3 inputs, got Backward(inputs=1"),
    ("<lambda>_backward.backward.outputs", 9, "expected a backward pass of 3 inputs, got Backward(inputs=1"),
    ("graphs", {}, "expected a list, got dict"),
    ("name", 3, "expected a text, got int"),
)
"""Places in the text (a key, or a graph or a node of a graph and a key of it), what is put there, and what is said of it."""


@pytest.mark.parametrize(("place", "value", "message"), MEANINGLESS)
def test_graphs_without_a_meaning_are_refused(place, value, message, differentiated, tmp_path: Path) -> None:
    tensors, text = differentiated
    holder = about = json.loads(text)
    *path, key = place.split(".")
    for name in path:
        if holder is about:
            holder = next(graph for graph in about["graphs"] if graph["name"] == name)
        elif name in holder:
            holder = holder[name]
        else:
            holder = next(node for node in holder["nodes"] if node["kind"] == name)
    assert holder.get(key) != value or type(holder[key]) is not type(value)
    holder[key] = value
    write_tensors(tmp_path / "step", tensors, {"function": json.dumps(about)})
    with pytest.raises(ArgumentError, match=rf"got another text: (\w+Error: )?{re.escape(message)}"):
        te.load_function(tmp_path / "step")


# ---------------------------------------------------------------------------------------------------- texts of programs


@pytest.mark.parametrize("seed", share_of(range(24)))
def test_texts_of_programs(seed: int) -> None:
    """What is read again prints and reads as the same."""
    rng = random.Random(seed)
    text = print_program(random_program(seed)).encode()
    refused = 0
    for _ in range(60):
        other_text = altered(text, rng)
        try:
            found = parse_program(other_text.decode("utf-8", "replace"))
        except DefinitionError:
            refused += 1
            continue
        assert parse_program(print_program(found)) == found
    assert refused > 10


DEEP_TEXTS = {
    "minuses": "y: f32 = " + "-" * 50_000 + "x",
    "not": "y: bool = " + "not " * 50_000 + "x",
    "parentheses": "y: f32 = " + "(" * 5_000 + "x" + ")" * 5_000,
    "brackets": "y: f32 = " + "x[" * 5_000 + "0" + "]" * 5_000,
    "calls": "y: f32 = " + "exp(" * 5_000 + "x" + ")" * 5_000,
    "sums": "y: f32 = x[0]" + " + x[0]" * 100_000,
    "powers": "y: f32 = x[0]" + " ** x[0]" * 50_000,
    "digits": "y: i64 = " + "9" * 100_000,
    "hexadecimal": "y: i64 = 0x" + "f" * 100_000,
    "shape": "y: f32[" + "2 * " * 20_000 + "2] = x[0]",
    "extents": "y[i]: f32[99999999999999999999] = x[0]",
    "scans": "".join(f"{'    ' * k}for t{k} in range(3):\n" for k in range(200)),
    "null": "y: f32 = x[0]\0",
    "constant": "c: f32[4294967296, 4294967296] = constant([])\ny: f32 = x[0]",
    "negative": "c: f32[-1, -1] = constant([1.0])\ny: f32 = x[0]",
}


@pytest.mark.parametrize("case", DEEP_TEXTS)
def test_texts_that_nest_deep_or_are_large(case: str) -> None:
    with pytest.raises(DefinitionError):
        parse_program(f"x: f32[4] = input()\n{DEEP_TEXTS[case]}\nreturn y")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return x", "'outputs': expected the name of a tensor of the program, got x"),
        ("y[i, i]: f32[4, 4] = x[i]", "'scope': expected an index that is not bound yet, got i again"),
        ("y[i]: f32[4] = x[i]\ny[i]: f32[4] = x[i]", "'names': expected each tensor to be named once, got y twice"),
        ("y: f32 = x", None),
    ],
)
def test_programs_without_a_meaning_are_not_compiled(line: str, message: str | None) -> None:
    text = line if line.startswith("return") else f"x: f32[4] = input()\n{line}\nreturn y"
    with pytest.raises(DefinitionError) as caught:
        te.compile(parse_program(text))
    assert message is None or f"te.compile: expected a program, got one that breaks the invariant {message}" in str(caught.value)


@pytest.mark.parametrize("index", ["i + 5", "i - 1", "1000000000 * i", "i64(x[i]) * 4"])
def test_reads_that_nobody_proved_are_checked(index: str) -> None:
    """A text need not come from definitions, whose accesses are proved when they are written."""
    f = te.compile(parse_program(f"x: f32[4] = input()\ny[i]: f32[4] = x[{index}]\nreturn y"))
    with pytest.raises(IndexError, match="y: expected an index of x from 0 to 3, got"):
        f(np.ones(4, np.float32))


# ------------------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("seed", share_of(range(6)))
def test_records_of_tuning(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng, path = random.Random(seed), tmp_path / "tuning.jsonl"
    records.write(path, [RECORD, other(1), other(2)])
    lines = path.read_bytes().splitlines()
    caplog.set_level(logging.CRITICAL)
    for _ in range(60):
        if rng.random() < 0.3:
            path.write_bytes(altered(b"\n".join(lines), rng))
        else:
            changed = as_text(edited(json.loads(lines[1]), rng), rng)
            path.write_bytes(b"\n".join([lines[0], changed, *lines[2:]]))
            found = records.read(path)
            assert other(1) in found and other(2) in found
        for record in records.read(path):
            assert record.key and record.digest and record.speedup > 0


# -------------------------------------------------------------------------------------------------------------- memory

LIMITED = """
import resource, sys
import numpy as np
import tensorexpr as te
from pathlib import Path
from tensorexpr.codegen.tuning import records
from tensorexpr.graph.modules.tensor_files import read_tensors
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
folder = Path(sys.argv[1])
for name in sorted(p.name for p in folder.iterdir()):
    try:
        if name.endswith(".jsonl"):
            print(name, len(records.read(folder / name)))
        elif name.endswith(".txt"):
            te.parse_program((folder / name).read_text())
        else:
            read_tensors(folder / name)
            te.load_function(folder / name)
    except te.TensorExprError as error:
        print(name, type(error).__name__)
"""


def test_what_is_read_takes_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    """Files of 1 MB, and sparse ones of a terabyte, in 96 MB beside what the interpreter has."""
    size = 1 << 20
    for name, unit in (("a", b"[],"), ("b", b'{"":{}},'), ("c", b"0,"), ("d", b"[[[[["), ("e", b'"",')):
        (tmp_path / f"{name}.safetensors").write_bytes(whole(b'{"a": [' + unit * (size // len(unit)), b""))
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"format": "tensorexpr tuning", "version": 1}\n' + b"[" + unit * (size // len(unit)))
    for name in ("huge.safetensors", "huge.jsonl"):
        with (tmp_path / name).open("wb") as file:
            file.write(whole(b'{"a": {"dtype": "U8", "shape": [1099511627776], "data_offsets": [0, 1099511627776]}}', b""))
            file.truncate(1 << 40)
    (tmp_path / "minuses.txt").write_text("x: f32 = input()\ny: f32 = " + "-" * 50_000 + "x\nreturn y")
    (tmp_path / "line.txt").write_text("x: f32[4] = input()\ny: f32 = " + "x[0] + " * 20_000 + "x[0]\nreturn y")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = dict(line.split() for line in done.stdout.splitlines())
    assert told.pop("line.txt", None) in ("DefinitionError", None)  # from Python 3.14 on a line of that length is read
    assert told == {
        **{f"{name}.safetensors": "ArgumentError" for name in (*"abcde", "huge")},
        **{f"{name}.jsonl": "0" for name in (*"abcde", "huge")},
        "minuses.txt": "DefinitionError",
    }
