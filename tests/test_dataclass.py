"""Our ``dataclass`` makes the same classes as that of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from functools import cached_property
from types import FunctionType
from typing import Any, ClassVar

import pytest

from glaive.dataclass import dataclass

OPTIONS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
    {"slots": True, "repr": False},
    {"frozen": True, "slots": True, "order": True},
    {"slots": True, "weakref_slot": True},
]


def make(decorate: Callable[..., Any], options: dict[str, bool]) -> tuple[type, type]:
    """Make a class with every kind of field, and one derived from it."""

    @decorate(**options)
    class Base:
        """A base."""

        number: int
        shared: ClassVar[int] = 7
        text: str = "a"
        items: list[int] = field(default_factory=list, hash=False)
        note: str = field(default="", compare=False, repr=False)
        fixed: float = field(default=1.5, init=False)
        total: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.number + len(self.items))

    @decorate(**options)
    class Derived(Base):
        """Another."""

        more: tuple[int, ...] = ()
        text: str = "b"

    return Base, Derived


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classes_are_those_of_the_standard_library(options: dict[str, bool]) -> None:
    for ours, theirs in zip(
        make(dataclass, options), make(dataclasses.dataclass, options), strict=True
    ):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert [f.name for f in fields(ours)] == [f.name for f in fields(theirs)]
        assert vars(ours).get("__slots__") == vars(theirs).get("__slots__")
        assert ours.__match_args__ == theirs.__match_args__
        assert (ours.__hash__ is None) == (theirs.__hash__ is None)
        arguments: list[dict[str, Any]] = [
            {"number": 1},
            {"number": 1, "note": "n"},
            {"number": 1, "items": [5]},
            {"number": 2, "text": "x"},
        ]
        mine = [ours(**given) for given in arguments]
        expected = [theirs(**given) for given in arguments]
        assert list(map(asdict, mine)) == list(map(asdict, expected))
        assert [mine[0] == other for other in mine] == [expected[0] == e for e in expected]
        assert mine[0] != expected[0]
        if options.get("repr", True):
            assert list(map(repr, mine)) == list(map(repr, expected))
        if options.get("frozen") and options.get("eq", True):
            assert list(map(hash, mine)) == list(map(hash, expected))
        if options.get("order"):
            assert mine[0] < mine[3] > mine[0]
            assert mine[0] <= mine[1] >= mine[0]
            with pytest.raises(TypeError):
                _ = mine[0] < expected[1]
        assert asdict(replace(mine[0], number=9)) == asdict(replace(expected[0], number=9))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fields_of_frozen_objects_cannot_be_changed(options: dict[str, bool]) -> None:
    for cls in make(dataclass, options):
        value = cls(number=3)
        if options.get("frozen"):
            with pytest.raises(dataclasses.FrozenInstanceError, match="'number'"):
                value.number = 4
            with pytest.raises(dataclasses.FrozenInstanceError, match="'number'"):
                del value.number
        else:
            value.number = 4
            assert value.number == 4


def test_a_list_made_for_one_object_is_not_shared() -> None:
    base, _ = make(dataclass, {"slots": True})
    assert base(1).items is not base(1).items


def test_wrong_arguments_are_refused_by_the_name_of_the_class() -> None:
    base, derived = make(dataclass, {"frozen": True})
    with pytest.raises(TypeError, match=r"Base\.__init__\(\) .* 'number'"):
        base()
    with pytest.raises(TypeError, match=r"Derived\.__init__\(\) got an unexpected .* 'colour'"):
        derived(1, colour=2)


@dataclass(frozen=True, slots=True)
class Point:
    """What can be pickled, as it is in a module."""

    x: int
    y: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Lazy:
    x: int

    @cached_property
    def double(self) -> int:
        return self.x * 2


class Named(Lazy):
    """Derived without the decorator."""


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_objects_can_be_pickled_and_copied(protocol: int) -> None:
    for value in Point(3, [4]), Lazy(5):
        assert pickle.loads(pickle.dumps(value, protocol)) == value
        assert copy.deepcopy(value) == value == copy.copy(value)


def test_properties_are_cached_and_derived_classes_may_have_attributes() -> None:
    assert Lazy(4).double == 8
    named = Named(4)
    named.label = "four"  # type: ignore[attr-defined]  # on purpose
    assert (named.label, named.double) == ("four", 8)  # type: ignore[attr-defined]  # same
    with pytest.raises(dataclasses.FrozenInstanceError):
        named.x = 5  # type: ignore[misc]  # on purpose


def test_what_a_class_defines_itself_stays() -> None:
    @dataclass(frozen=True)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 12

    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1))) == ("own", True, 12)


def test_an_object_that_holds_itself_can_be_shown() -> None:
    point = Point(1)
    point.y.append(point)  # type: ignore[arg-type]  # on purpose
    assert repr(point) == "Point(x=1, y=[...])"


def test_methods_are_compiled_when_they_are_looked_up() -> None:
    @dataclass(frozen=True, slots=True)
    class Unused:
        x: int

    assert not isinstance(vars(Unused)["__init__"], FunctionType)
    assert Unused(1).x == 1
    assert isinstance(vars(Unused)["__init__"], FunctionType)
    assert not isinstance(vars(Unused)["__eq__"], FunctionType)
    assert sys.modules[Unused.__init__.__module__].__name__ == __name__
