"""`torch.compile(..., backend="tensorexpr")`: every core operator of ATen, forward and backward, beside eager PyTorch."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.interop.torch.backend import TABLE, backend, lowering  # noqa: E402
from tensorexpr.interop.torch.backend.lists import decompositions  # noqa: E402
from tests.peers.compile_cases import BACKWARD, DRAWN, GROUPS, OUTSIDE, Given  # noqa: E402

STRICT = {"fallback": False}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}


def flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in flat(part)] if isinstance(value, (tuple, list)) else []


def run(function, cases, kind):
    """The results of cases, and the gradients of the sum of their squares."""
    given = Given(kind)
    results = function(given)
    total = sum((one.square().sum().to(kind) for one in results if one.requires_grad), torch.zeros((), dtype=kind))
    floats = [one for one in vars(given).values() if one.requires_grad]
    return results, torch.autograd.grad(total, floats, allow_unused=True) if total.requires_grad else ()


def agree(cases, kind):
    names = list(vars(Given(kind)))

    def whole(*tensors):
        given = object.__new__(Given)
        vars(given).update(zip(names, tensors, strict=True))
        return [one for case in cases.values() for one in flat(case(given))]

    def of(function):
        return lambda given: function(*vars(given).values())

    torch._dynamo.reset()
    torch.manual_seed(3)
    compiled = run(of(torch.compile(whole, backend=backend, fullgraph=True, options=STRICT)), cases, kind)
    torch.manual_seed(3)
    eager = run(of(whole), cases, kind)
    tolerance = TOLERANCE[kind]
    for found, wanted in zip([*compiled[0], *compiled[1]], [*eager[0], *eager[1]], strict=True):
        if wanted is None:
            assert found is None or not found.any()
            continue
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.stride() == wanted.stride() or 1 in wanted.shape
        close = 1e-3 if found.dtype == torch.float16 else tolerance
        torch.testing.assert_close(found, wanted, rtol=close, atol=close, equal_nan=True)


COMPOSITE = {
    "avg_pool1d.default", "adaptive_avg_pool1d.default", "upsample_bilinear2d.vec", "upsample_nearest2d.vec", "var.dim",
    "_native_batch_norm_legit.default",
}  # fmt: skip
"""Core operators that torch makes others of before a backend sees them."""


@pytest.mark.parametrize("group", GROUPS)
def test_core_operators_and_their_gradients(group, monkeypatch):
    """Beside eager mode; every operator that a case is named after comes to a definition, and so do those of backward graphs."""
    met = set()

    def found(target):
        met.add(str(target).removeprefix("aten."))
        return definition_of(target)

    definition_of = lowering.definition_of
    monkeypatch.setattr(lowering, "definition_of", found)
    agree(GROUPS[group], torch.float64)
    assert {name for name in GROUPS[group] if "." in name} - COMPOSITE <= met
    assert {name for name, home in BACKWARD.items() if home == group} <= met


@pytest.mark.parametrize("group", ["real", "networks", "norms"])
def test_in_float32(group):
    agree(GROUPS[group], torch.float32)


def test_random_numbers_are_those_of_eager_mode():
    agree(DRAWN, torch.float64)


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_what_is_no_tensor_of_the_language(name, caplog):
    """Forward and backward beside eager mode with open extents; what PyTorch has to run is in one line of log, and nothing else is."""
    case, named = OUTSIDE[name]
    given = Given(torch.float64)
    floats = [given.x, given.y, given.row, given.number]

    def whole(x, y, row, number):
        vars(given).update(x=x, y=y, row=row, number=number)
        return case(given)

    def both(function):
        result = function(*floats)
        return result, *torch.autograd.grad(result.square().sum(), floats, allow_unused=True)

    torch._dynamo.reset()
    sizes = torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
    with caplog.at_level(logging.WARNING, logger="tensorexpr.torch"), sizes:
        found = both(torch.compile(whole, backend=backend, dynamic=True, options=STRICT if named is None else {}))
    for one, wanted in zip(found, both(whole), strict=True):
        assert (one is None) == (wanted is None)
        torch.testing.assert_close(one, wanted, rtol=1e-10, atol=1e-10)
    said = [record.getMessage() for record in caplog.records]
    assert any("are run by PyTorch: " in line and f"{named} (no definition)" in line for line in said) if named is not None else not said


def test_no_core_operator_is_missing():
    core = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                core.add(f"{name}.{overload}")
    tried = {name for cases in GROUPS.values() for name in cases}
    assert core - tried - set(DRAWN) - set(BACKWARD) - set(OUTSIDE) == set()
    missing = [name for name in tried | set(BACKWARD) if "." in name and f"aten.{name}" not in TABLE]
    assert missing == ["_native_batch_norm_legit.default"]  # AOTAutograd makes a functional one of it


def test_the_table_names_what_torch_has():
    for name in TABLE:
        room, packet, overload = name.split(".")
        if room == "aten":
            assert overload in getattr(torch.ops.aten, packet).overloads(), name


def test_operators_on_lists():
    """Every overload that is taken apart, in one program."""
    lists = [[0.1 + 0.8 * torch.rand(shape, dtype=torch.float64) for shape in ((3, 2), (4,))] for _ in range(3)]
    made = {"List[Tensor]": lists, "List[number]": [[0.75, 0.5]], "number": [0.25], "Tensor": [torch.tensor(0.5, dtype=torch.float64)]}

    calls = []
    for target in decompositions():
        rest = {kind: iter(values) for kind, values in made.items()}
        calls.append((target, [next(rest[kind]) for p in target._schema.arguments if (kind := str(p.type)) in rest and not p.kwarg_only]))

    def results():
        return [each for target, given in calls for each in target(*given)]

    assert len(calls) > 70
    torch._dynamo.reset()
    compiled = torch.compile(results, backend=backend, fullgraph=True, options=STRICT)()
    for found, wanted in zip(compiled, results(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
