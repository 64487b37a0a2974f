"""Laws of modules on random ones: what the walk finds, and what a checkpoint keeps."""

import numpy as np
import pytest

import tensorexpr as te
from tests.graph.models import holding
from tests.seeds import share_of

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool")


def random_module(seed, filled=True):
    """A module of nested containers, modules and ties that depend on the seed alone; zeros instead of values unless `filled`."""
    choices, values = np.random.default_rng(seed), np.random.default_rng([seed, filled])
    made = []

    def variable():
        if made and choices.random() < 0.2:
            return made[choices.integers(len(made))]
        shape = tuple(int(n) for n in choices.integers(0, 4, choices.integers(0, 3)))
        array = np.asarray(100 * values.random(shape) * filled)
        made.append(te.Variable(array.astype("int64"), dtype=DTYPES[choices.integers(len(DTYPES))], trainable=bool(choices.random() < 0.7)))
        return made[-1]

    def thing(depth):
        kind = choices.integers(5) if depth else 0
        count = int(choices.integers(0, 4))
        if kind == 0:
            return variable()
        if kind == 1:
            return [thing(depth - 1) for _ in range(count)]
        if kind == 2:
            return tuple(thing(depth - 1) for _ in range(count))
        if kind == 3:
            return {f"key{k}": thing(depth - 1) for k in range(count)}
        return holding(**{name: thing(depth - 1) for name in choices.permutation(list("abcd"))[:count]})

    return holding(**{f"item{k}": thing(4) for k in range(4)})


SEEDS = share_of(range(60))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_walk_with_paths_and_without_find_the_same(seed):
    model = random_module(seed)
    pairs = list(model.flatten(predicate=lambda value: isinstance(value, te.Variable), with_path=True))
    assert tuple(dict.fromkeys(variable for _, variable in pairs)) == model.variables
    assert len({path for path, _ in pairs}) == len(pairs)
    for path, variable in pairs:
        found = model
        for step in path:
            found = getattr(found, step) if isinstance(found, te.Module) else found[step]
        assert found is variable
    assert set(model.trainable_variables) == {v for v in model.variables if v.trainable}
    below = [v for module in (model, *model.submodules) for v in module.flatten(False, lambda value: isinstance(value, te.Variable))]
    assert set(below) == set(model.variables)
    table = te.summary(model)
    assert (table.variables, table.bytes) == (len(model.variables), sum(v.value.nbytes for v in model.variables))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_checkpoint_keeps_every_bit_and_every_tie(seed, tmp_path):
    model, empty = random_module(seed), random_module(seed, filled=False)
    te.save_state(model, tmp_path / "model.safetensors")
    before = empty.variables
    te.load_state(empty, tmp_path / "model.safetensors")
    assert empty.variables == before
    ours, theirs = te.state_dict(model), te.state_dict(empty)
    assert list(ours) == list(theirs)
    assert all(ours[path].dtype == theirs[path].dtype and ours[path].tobytes() == theirs[path].tobytes() for path in ours)
    te.save_state(empty, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_with_one_fault_changes_nothing(seed):
    model, other = random_module(seed), random_module(seed, filled=False)
    state, before = te.state_dict(model), te.state_dict(other)
    if not state:
        return
    path = list(state)[seed % len(state)]
    owner = dict(zip(before, [v for _, v in other.flatten(predicate=lambda x: isinstance(x, te.Variable), with_path=True)], strict=True))
    faults = {
        "unexpected: nowhere": state | {"nowhere": np.zeros(1)},
        "of another type: ": state | {path: np.zeros((7, 7, 7))},
        "missing: ": {p: value for p, value in state.items() if owner[p] is not owner[path]},
    }
    for message, wrong in faults.items():
        with pytest.raises(te.ArgumentError, match=message):
            te.load_state_dict(other, wrong)
        after = te.state_dict(other)
        assert all(before[p].tobytes() == after[p].tobytes() for p in before)
