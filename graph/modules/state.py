"""The state of a module by path, in memory and in files: `layers.0.w` to an array.

The paths are those of `Module.flatten(with_path=True)`. Loading changes values, not which variables there are, so compiled functions see
the new values. Everything is checked before anything changes: missing, unexpected and wrong-shaped entries are named together, by
path, and nothing was loaded. On request, entries for variables that are made later (in a first call) wait in the module that will hold
them, and are given to the variable when it is assigned; the module knows of this only that something waits.

A variable with several paths is written to a file once, under the first; the file's metadata says which paths are the same variable, and
loading makes them the same again: where a model has variables of their own at such paths, the attribute is set to the first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path as File
from typing import Any

import numpy as np

from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.modules.module import Module, Path, dotted, is_variable
from tensorexpr.graph.modules.tensor_files import read_tensors, write_tensors
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.hints import article, checked

_TIED = "tensorexpr.tied"


@checked()
def state_dict(module: Module) -> dict[str, np.ndarray]:
    """The values of all variables by path, as copies; a variable with several paths has one array under all of them.

    Raises `ArgumentError` where two variables have one path, of which one would be lost.

    >>> class Scale(te.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = te.Variable(np.array(2.0), name="w")
    >>> model = Scale()
    >>> state = te.state_dict(model)
    >>> loaded = te.load_state_dict(model, {"w": np.array(5.0)})
    >>> float(state["w"]), float(model.w.value)
    (2.0, 5.0)
    """
    variables = by_path(module)
    copies = {variable: variable.value.copy() for variable in variables.values()}
    return {path: copies[variable] for path, variable in variables.items()}


@checked()
def load_state_dict(module: Module, state: Mapping[str, Any], strict: bool = True) -> Loaded:
    """Gives the variables of a module the values of `state`, by path: all of them or, with an `ArgumentError` that says why, none.

    Entries must have the variable's shape and dtype. `strict`: every variable has an entry and every entry a variable. Otherwise variables
    without an entry keep their values, and entries without a variable wait for one that is made later; the result says which.

    >>> class Scale(te.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = te.Variable(np.array(2.0), name="w")
    >>> model = Scale()
    >>> te.load_state_dict(model, {"w": np.array(5.0)})
    <loaded scale: 0 variables without an entry, 0 entries waiting>
    >>> float(model.w.value)
    5.0
    """
    if not isinstance(state, Mapping):
        raise _error(f"te.load_state_dict: expected values by path, got {article(state)}", "te.state_dict(module) gives some")
    for path in state:
        if not isinstance(path, str):
            raise _error(f"te.load_state_dict: expected values by path, got one by {path!r}", "te.state_dict(module) gives some")
    return _load(module, {path: np.asarray(value) for path, value in state.items()}, {}, strict, {})


@checked()
def save_state(module: Module, file: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Writes the values of all variables to a safetensors file, with `metadata` (texts by name); the file is whole or as before.

    Raises `ArgumentError` for what is no module, and for metadata that are no texts by name.

    >>> import tempfile, pathlib
    >>> class Scale(te.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = te.Variable(np.array(2.0), name="w")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     te.save_state(Scale(), pathlib.Path(folder, "scale.safetensors"), {"step": "100"})
    ...     te.load_state(Scale(), pathlib.Path(folder, "scale.safetensors")).metadata
    {'step': '100'}
    """
    texts = dict(metadata or {})
    for key, text in texts.items():
        if not isinstance(key, str) or not isinstance(text, str) or key == _TIED:
            raise _error(f"metadata: expected texts by name, got {text!r} for {key!r}", "json.dumps makes a text of anything")
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    tensors: dict[str, np.ndarray] = {}
    for path, variable in by_path(module).items():
        if first.setdefault(id(variable), path) == path:
            tensors[path] = variable.value
        else:
            tied[path] = first[id(variable)]
    if tied:
        texts[_TIED] = json.dumps(tied, sort_keys=True)
    write_tensors(File(file), tensors, texts)


@checked()
def load_state(module: Module, file: str | os.PathLike[str], strict: bool = True) -> Loaded:
    """Gives the variables of a module the values in a safetensors file, as `load_state_dict` does, and ties what was tied there.

    Raises `ArgumentError`, with the module as it was, for a file that is damaged or does not fit the module.

    >>> import tempfile, pathlib
    >>> class Scale(te.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = te.Variable(np.array(2.0), name="w")
    >>> trained, fresh = Scale(), Scale()
    >>> trained.w.assign(np.array(7.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     te.save_state(trained, pathlib.Path(folder, "scale.safetensors"))
    ...     te.load_state(fresh, pathlib.Path(folder, "scale.safetensors"))
    <loaded scale: 0 variables without an entry, 0 entries waiting>
    >>> float(fresh.w.value)
    7.0
    """
    tensors, metadata = read_tensors(File(file))
    try:
        tied = {path: other for path, other in json.loads(metadata.pop(_TIED, "{}")).items() if other in tensors}
    except (AttributeError, TypeError, ValueError, RecursionError):
        raise _error(f"{File(file).name}: expected the paths of tied variables by path in {_TIED}, got another text") from None
    return _load(module, tensors | {path: tensors[other] for path, other in tied.items()}, tied, strict, metadata)


class Loaded:
    """What loading found: `missing`, paths of variables without an entry; the file's `metadata`; `waiting`, entries still to be taken."""

    def __init__(self, module: Module, missing: tuple[str, ...], metadata: dict[str, str]) -> None:
        self.module = module
        self.missing = missing
        self.metadata = metadata

    def __repr__(self) -> str:
        return f"<loaded {self.module.name}: {len(self.missing)} variables without an entry, {len(self.waiting)} entries waiting>"

    @property
    def waiting(self) -> tuple[str, ...]:
        """The paths of entries whose variables have not been made yet."""
        found: list[str] = []
        for path, module in [((), self.module), *self.module.flatten(predicate=_is_module, with_path=True)]:
            waiting = vars(module).get("_waiting")
            if waiting is not None:
                waiting(module)  # containers may have got what they wait for
                found += [dotted((*path, entry)) for entry in waiting.entries]
        return tuple(found)

    def finish(self) -> None:
        """Raises `ArgumentError` if an entry still waits for its variable: what a strict load says when everything has been made."""
        waiting = self.waiting
        if waiting:
            raise _error(f"{self.module.name}: expected a variable for every entry, got none for {', '.join(waiting)}")


# --------------------------------------------------------------------------------------------------------- paths


def _error(message: str, hint: str | None = None) -> ArgumentError:
    return ArgumentError(message, location=user_location(), hint=hint)


def _paths(module: Module) -> Iterator[tuple[Path, Variable]]:
    return module.flatten(predicate=is_variable, with_path=True)


def by_path(module: Module) -> dict[str, Variable]:
    """The variables by dotted path. Raises `ArgumentError` where two variables have the same path as text, and for what is no module."""
    if not isinstance(module, Module):
        raise _error(f"expected a module, for its variables by path, got {article(module)}")
    found: dict[str, Variable] = {}
    for path, variable in _paths(module):
        if found.setdefault(dotted(path), variable) is not variable:
            raise _error(
                f"{module.name}: expected one variable at the path {dotted(path)}, got two",
                "keys of a dict have a dot in them, or are 1 and '1'",
            )
    return found


# ------------------------------------------------------------------------------------------------------- loading


def _load(module: Module, entries: dict[str, np.ndarray], tied: Mapping[str, str], strict: bool, metadata: dict[str, str]) -> Loaded:
    variables = by_path(module)
    for variable in variables.values():
        variable.check()
    covered = {id(variables[path]) for path in entries if path in variables}
    missing = tuple(path for path, variable in variables.items() if id(variable) not in covered)
    unexpected = [path for path in entries if path not in variables]
    wrong = [path + misfit for path, entry in entries.items() if path in variables and (misfit := _misfit(variables[path], entry))]
    found = [("missing", missing if strict else ()), ("unexpected", unexpected if strict else ()), ("of another type", wrong)]
    found.append(("different though one variable", () if wrong else _contradictions(variables, entries)))
    reasons = "; ".join(f"{what}: {', '.join(paths)}" for what, paths in found if paths)
    if reasons:
        hint = "strict=False keeps what is missing, and lets what is unexpected wait for variables made later" if strict else None
        raise _error(f"{module.name}: expected an entry that fits each of its variables, got {reasons}", hint)
    there = [(path, other) for path, other in tied.items() if path in variables and other in variables]
    ties = [(_holder(module, path), variables[other]) for path, other in there if variables[path] is not variables[other]]
    for path, entry in entries.items():
        if path in variables:
            variables[path].put(np.array(entry, order="C"))
    for (holder, step), variable in ties:
        if isinstance(holder, Module):
            setattr(holder, step, variable)
        else:
            holder[step] = variable
    _wait(module, {path: entries[path] for path in unexpected})
    return Loaded(module, missing, metadata)


def _misfit(variable: Variable, entry: np.ndarray) -> str:
    """What is wrong with an entry for a variable, as text behind its path; nothing where it fits."""
    wanted, got = _type_text(variable.shape, variable.dtype.name), _type_text(entry.shape, entry.dtype.name)
    return "" if wanted == got else f" (expected {wanted}, got {got})"


def _type_text(shape: Any, name: str) -> str:
    return f"{name}[{', '.join(map(str, shape))}]"


def _contradictions(variables: Mapping[str, Variable], entries: Mapping[str, np.ndarray]) -> list[str]:
    """Paths of one variable whose entries differ."""
    first: dict[int, str] = {}
    paths = [(path, first.setdefault(id(variables[path]), path)) for path in entries if path in variables]
    return [f"{other} and {path}" for path, other in paths if entries[path].tobytes() != entries[other].tobytes()]


def _holder(module: Module, path: str) -> tuple[Any, Any]:
    """The module, list or dict that holds what is at a path, and under which name, position or key."""
    steps = next(steps for steps, _ in _paths(module) if dotted(steps) == path)
    holder: Any = module
    for step in steps[:-1]:
        holder = getattr(holder, step) if isinstance(step, str) and not isinstance(holder, dict) else holder[step]
    if isinstance(holder, tuple):
        raise _error(f"{path}: expected an attribute, or an item of a list or dict, to tie again, got an item of a tuple")
    return holder, steps[-1]


# ------------------------------------------------------------------------------------------------------- waiting


class Waiting:
    """Entries that wait in a module for variables, by their paths from it; called when an attribute of that module was set."""

    def __init__(self) -> None:
        self.entries: dict[str, np.ndarray] = {}

    def __call__(self, module: Module) -> None:
        """Gives entries to the variables that are there now; what waits for a variable of a submodule that is there now waits in that."""
        variables = by_path(module)
        ready = [path for path in self.entries if path in variables]
        for path in ready:
            misfit = _misfit(variables[path], self.entries[path])
            if misfit:
                raise _error(f"{path}: expected the variable that an entry was waiting for, got one of another type{misfit}")
        for path in ready:
            variables[path].put(np.array(self.entries.pop(path), order="C"))
        inner = [(dotted(path) + ".", value) for path, value in module.flatten(predicate=_is_module, with_path=True)]
        for path in list(self.entries):
            places = [place for place in inner if path.startswith(place[0])]
            if places:
                prefix, nearest = max(places, key=lambda place: len(place[0]))
                _wait(nearest, {path.removeprefix(prefix): self.entries.pop(path)})
        if not self.entries:
            del vars(module)["_waiting"]


def _wait(module: Module, entries: Mapping[str, np.ndarray]) -> None:
    if entries:
        waiting = vars(module).setdefault("_waiting", Waiting())
        waiting.entries.update(entries)
        waiting(module)


def _is_module(value: object) -> bool:
    return isinstance(value, Module)
