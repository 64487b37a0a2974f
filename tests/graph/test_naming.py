"""Scopes of names: what is current, and what the name of a class makes as the name of an instance."""

import threading

import pytest

from tensorexpr.errors import DefinitionError, InvalidNameError
from tensorexpr.graph.trace.naming import current_scope, name_scope, scoped, snake_case, valid_name

CLASSES = {"MyModule": "my_module", "HTTPServer2": "http_server2", "LSTMCell": "lstm_cell", "_Private": "private", "A": "a", "__": "module"}


@pytest.mark.parametrize("name", CLASSES)
def test_class_names_in_snake_case(name):
    assert snake_case(name) == CLASSES[name]


def test_the_current_scope_is_the_one_entered_last():
    assert (current_scope(), scoped("v")) == ("", "v")
    with name_scope("foo") as prefix:
        assert prefix == current_scope() == "foo/"
        with name_scope("bar"):
            assert scoped("v") == "foo/bar/v"
        assert current_scope() == "foo/"
    assert current_scope() == ""


def test_a_scope_stays_what_it_was_when_made():
    with name_scope("foo"):
        bar = name_scope("bar")
    with name_scope("elsewhere"), bar, bar:
        assert current_scope() == "foo/bar/"
    assert current_scope() == ""


def test_threads_have_scopes_of_their_own():
    seen = []
    with name_scope("foo"):
        thread = threading.Thread(target=lambda: seen.append(current_scope()))
        thread.start()
        thread.join()
    assert seen == [""]


@pytest.mark.parametrize("name", ["a/b", "$Foo", "1x", "", None, 3])
def test_names_that_are_no_identifiers(name):
    with pytest.raises(InvalidNameError, match=r"expected a name that is a Python identifier, got ") as caught:
        valid_name(name)
    assert repr(name) in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, DefinitionError)
