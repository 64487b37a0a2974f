"""Records: what `dataclasses` says of a class of the same fields is what they say, made lazily."""

import copy
import dataclasses
import pickle
import weakref
from functools import cached_property  # noqa: TID251 - a class of the standard library is tested as it is
from typing import Any

import pytest

from tensorexpr.records import as_dict, field, fields, record, replace


@record
class Point:
    """A point with a name that does not count."""

    x: int
    y: int = 2
    name: str = field(default="", compare=False, repr=False)


@record
class Place(Point):
    """With what is derived, and a table of its own."""

    near: tuple[Point, ...] = ()
    table: dict[str, int] = field(default_factory=dict, compare=False)
    total: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


@record(slots=False)
class Cached:
    """Keeps what it computed."""

    n: int

    @cached_property
    def square(self) -> int:
        return self.n**2


@record(frozen=False)
class Counter:
    """May be changed, so it has no hash."""

    n: int = 0


@record(eq=False, weakrefs=True)
class Apart:
    """Equal to itself alone."""

    n: int


@dataclasses.dataclass(frozen=True, slots=True)
class StandardPlace:
    """As `Place`, by the standard library."""

    x: int
    y: int = 2
    name: str = dataclasses.field(default="", compare=False, repr=False)
    near: tuple[Any, ...] = ()
    table: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
    total: int = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


def arguments():
    for x in (0, 1):
        for rest in ({}, {"y": 5}, {"name": "a"}, {"near": (Point(1),)}, {"table": {"k": 1}}, {"y": 5, "near": (Point(2), Point(3))}):
            yield x, rest


def test_equality_hash_and_text_are_those_of_dataclasses():
    ours = [Place(x, **rest) for x, rest in arguments()]
    theirs = [StandardPlace(x, **rest) for x, rest in arguments()]
    for a, b in zip(ours, theirs, strict=True):
        assert repr(a) == repr(b).replace("StandardPlace", "Place") and hash(a) == hash(b) and a.total == b.total
        assert [f.name for f in fields(a)] == [
            f.name for f in dataclasses.fields(b)
        ] and Place.__match_args__ == StandardPlace.__match_args__
        for c, d in zip(ours, theirs, strict=True):
            assert (a == c) == (b == d)
    assert Place.__match_args__ == StandardPlace.__match_args__
    assert Point(1) != Place(1) and Apart(1) != Apart(1) and Counter(1) == Counter(1)


def test_copies_keep_every_field():
    for x, rest in arguments():
        made = Place(x, **rest)
        for twin in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made), replace(made), dataclasses.replace(made)):
            assert twin == made and twin.name == made.name and twin.table == made.table and twin.total == made.total
        assert replace(made, y=9) == dataclasses.replace(made, y=9) and replace(made, y=9).total == x + 9
        assert as_dict(made) == {**dataclasses.asdict(made)}
    assert Place.__dataclass_fields__ is Place.__dataclass_fields__  # made for the first that asks: `dataclasses.replace` asks each time
    assert Place(0).table is not Place(0).table
    match Place(3, 4):
        case Place(x, y):
            assert (x, y) == (3, 4)


def test_what_is_frozen_stays_and_what_is_not_changes():
    point = Point(1)
    with pytest.raises(AttributeError, match="expected no assignment to the frozen Point, got one to 'x'"):
        point.x = 2
    with pytest.raises(AttributeError, match="expected no deletion from the frozen Point, got one of 'x'"):
        del point.x
    assert not hasattr(point, "__dict__") and point.x == 1
    counter = Counter()
    counter.n += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable type: 'Counter'"):
        hash(counter)
    apart = Apart(1)
    assert weakref.ref(apart)() is apart and pickle.loads(pickle.dumps(apart)).n == 1
    with pytest.raises(TypeError, match="cannot create weak reference to 'Point' object"):
        weakref.ref(point)
    assert Cached(3).square == 9 and Cached(3) == Cached(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Place(), r"Place.__init__\(\) missing 1 required positional argument: 'x'"),
        (lambda: Place(1, z=1), r"Place.__init__\(\) got an unexpected keyword argument 'z'"),
        (lambda: replace(Place(1), total=1), r"Place.__init__\(\) got an unexpected keyword argument 'total'"),
    ],
)
def test_wrong_fields_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_dataclasses_are_no_bases_of_records():
    with pytest.raises(TypeError, match="expected records as bases of Further, got the dataclass StandardPlace"):

        @record
        class Further(StandardPlace):
            pass
