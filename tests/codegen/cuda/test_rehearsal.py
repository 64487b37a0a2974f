"""The tests of first contact, before there is a GPU to meet: on a stand-in for CuPy that keeps no more than CUDA promises."""

from __future__ import annotations

from typing import Any

import pytest

from tensorexpr.codegen.cuda.launch import device as devices
from tests.codegen.cuda import test_contact as contact
from tests.codegen.cuda.cupy import Rehearsed, stand_in
from tests.codegen.cuda.device import needs_compiler

pytestmark = needs_compiler
TESTS = (
    contact.test_a_call_from_a_new_thread,
    contact.test_the_current_stream_is_launched_on,
    contact.test_a_function_is_collected_while_its_kernels_run,
    contact.test_checks_do_not_stop_the_stream_and_are_raised,
    contact.test_checked_kernels_in_a_graph,
    contact.test_calls_beside_the_capture_of_another_stream,
    contact.test_constants_are_there_for_all_streams,
    contact.test_a_graph_has_numbers_and_memory_of_its_own,
    contact.test_arrays_of_the_host_are_refused_in_a_capture,
)


@pytest.mark.parametrize("at_once", [False, True], ids=["late", "at once"])
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_contact(test: Any, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    with stand_in(at_once) as cupy:
        device = Rehearsed(cupy)
        monkeypatch.setattr(devices, "_host", lambda: device)
        monkeypatch.setattr(devices, "_devices", {0: device})
        test(cupy)
