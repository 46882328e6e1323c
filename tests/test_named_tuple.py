"""Our ``NamedTuple`` makes the same classes as that of the standard library."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from glaive.dataclass import NamedTuple


class Ours(NamedTuple):
    """Three members."""

    number: int
    text: str = "a"
    items: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        """Twice the number."""
        return 2 * self.number

    @classmethod
    def of(cls, number: int) -> Ours:
        """One with a number."""
        return cls(number, "b")


class Theirs(typing.NamedTuple):
    """Three members."""

    number: int
    text: str = "a"
    items: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        """Twice the number."""
        return 2 * self.number

    @classmethod
    def of(cls, number: int) -> Theirs:
        """One with a number."""
        return cls(number, "b")


class Derived(Ours):
    """A class derived from one."""

    __slots__ = ()


BOTH: list[Any] = [Ours, Theirs]

READ: list[Callable[[Any], object]] = [
    lambda kind: kind(1),
    lambda kind: kind(1, items=(2,)),
    lambda kind: kind.of(5),
    lambda kind: kind._make([1, "x", ()]),
    lambda kind: kind(1)._replace(text="y"),
    lambda kind: kind(1)._asdict(),
    lambda kind: repr(kind(1)).partition("(")[2],
    lambda kind: hash(kind(1)),
    lambda kind: kind(3).double,
    lambda kind: kind(1).items,
    lambda kind: kind(1) < kind(2),
    lambda kind: kind(1) == (1, "a", ()),
    lambda kind: [*kind(1)],
    lambda kind: len(kind(1)),
    lambda kind: kind._fields,
    lambda kind: kind._field_defaults,
    lambda kind: kind.__match_args__,
    typing.get_type_hints,
    lambda kind: kind.__doc__,
    lambda kind: kind.__slots__,
    lambda kind: [(one.name, one.default) for one in inspect.signature(kind).parameters.values()],
    lambda kind: hasattr(kind(1), "__dict__"),
    lambda kind: pickle.loads(pickle.dumps(kind(1))) == kind(1),  # made here
    lambda kind: copy.deepcopy(kind(1)),
]


@pytest.mark.parametrize("read", READ, ids=[str(at) for at in range(len(READ))])
def test_classes_are_those_of_the_standard_library(read: Callable[[Any], object]) -> None:
    ours, theirs = [read(kind) for kind in BOTH]
    assert ours == theirs


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kind: kind(),
        lambda kind: kind(1, other=2),
        lambda kind: kind(1, "a", (), 4),
        lambda kind: kind._make([1]),
    ],
    ids=["none", "unknown", "too many", "made of one"],
)
def test_members_that_are_missing_or_too_many_are_type_errors(wrong: Callable[[Any], Any]) -> None:
    for kind in BOTH:
        with pytest.raises(TypeError):
            wrong(kind)
    with pytest.raises(TypeError, match="no members"):
        Ours(1)._replace(other=3)  # type: ignore[call-arg]  # on purpose


def test_members_cannot_be_assigned() -> None:
    for one in (Ours(1), Theirs(1)):
        with pytest.raises(AttributeError):
            one.number = 2  # type: ignore[misc]  # on purpose


def test_objects_of_derived_classes_are_of_these() -> None:
    made = Derived(1)._replace(number=4)
    assert type(made) is Derived
    assert made == Derived(4)
    assert made.double == 8
    assert isinstance(Derived.of(3), Derived)


def test_a_derived_class_keeps_its_own_new() -> None:
    class Base(NamedTuple):
        number: int

    class Doubled(Base):
        __slots__ = ()

        def __new__(cls, number: int) -> typing.Self:
            return super().__new__(cls, 2 * number)

    assert [Doubled(1), Doubled(1), Base(1)] == [(2,), (2,), (1,)]


def test_members_match_patterns() -> None:
    match Ours(7, "z"):
        case Ours(number, text):
            assert (number, text) == (7, "z")


@pytest.mark.parametrize("members", ["a: int = 1\n b: int", "_a: int", "a: int\n __new__ = None"])
@pytest.mark.parametrize("module", ["glaive.dataclass", "typing"])
def test_definitions_that_make_no_sense_are_refused(module: str, members: str) -> None:
    source = f"from {module} import NamedTuple\nclass Wrong(NamedTuple):\n {members}"
    with pytest.raises((TypeError, ValueError, AttributeError)):
        exec(source, {})  # written here
