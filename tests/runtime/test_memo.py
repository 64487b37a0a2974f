"""The in-memory table: one value per key, made once, by whoever comes first."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tensorexpr.codegen.memo import Memo
from tensorexpr.errors import DefinitionError


def test_a_value_is_made_once_even_when_many_threads_ask():
    memo, made = Memo(8), []

    def make():
        time.sleep(0.02)
        made.append(threading.get_ident())
        return len(made)

    found = []
    threads = [threading.Thread(target=lambda: found.append(memo.get("key", make))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 16 and len(made) == 1


def test_different_keys_do_not_wait_for_each_other():
    memo, barrier = Memo(8), threading.Barrier(2, timeout=10)
    threads = [threading.Thread(target=lambda k=k: memo.get(k, lambda: barrier.wait() or 1)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(memo) == 2


def test_a_failure_reaches_its_caller_and_the_next_one_tries_again():
    memo = Memo(8)
    with pytest.raises(ZeroDivisionError):
        memo.get("key", lambda: 1 / 0)
    assert memo.get("key", lambda: 7) == 7


def test_the_oldest_entry_goes_first():
    memo = Memo(2)
    for key in "abc":
        memo.get(key, lambda key=key: key)
    assert memo.find("a") is None and memo.find("b") == "b" and len(memo) == 2


def test_a_value_that_needs_itself_is_an_error():
    memo = Memo(2)
    with pytest.raises(DefinitionError, match="expected a definition that ends, got an operation that calls itself"):
        memo.get("key", lambda: memo.get("key", lambda: 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_wait_for_what_its_parent_was_making():
    memo, started, finish = Memo(8), threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: memo.get("key", lambda: started.set() or finish.wait() or 1))
    thread.start()
    started.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if memo.get("key", lambda: 5) == 5 else 1)
    finish.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
