"""``NamedTuple`` as in the standard library, which compiles nothing while a module loads.

The standard library compiles ``__new__`` of each class, and each annotation that is a text: 0.1 ms,
most of it for classes of which a process makes no object. Here ``__new__`` is compiled when it is
first looked up. Members, defaults and behaviour are the same.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple

__all__ = ["NamedTuple"]

_MEMBERS: list[Any] = []
"""Descriptors of the first member of a tuple, the second, and so on: they serve every class."""


class _New:
    """``__new__`` of a class until somebody looks it up: compiled then, and put in its place."""

    __slots__ = ()

    def __get__(self, instance: object, owner: Any) -> Callable[..., Any]:
        # Threads that come at the same time compile the same.
        names = {f"_default_{name}": value for name, value in owner._field_defaults.items()}
        parameters = [
            f"{name}=_default_{name}" if name in owner._field_defaults else name
            for name in owner._fields
        ]
        values = "".join(f"{name}, " for name in owner._fields)
        source = f"lambda {', '.join(['_cls', *parameters])}: _tuple_new(_cls, ({values}))"
        made: Any = eval(source, {"_tuple_new": tuple.__new__, **names})  # noqa: S307  # made of names of members, which Python checked
        made.__name__, made.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
        made.__annotations__ = {**owner.__annotations__, "return": None}
        # A subclass may have one of its own, which looked this one up.
        for holder in owner.__mro__:
            if vars(holder).get("__new__") is self:
                holder.__new__ = made
        return made  # type: ignore[no-any-return]  # what is evaluated has no type


class _Tuple(tuple[Any, ...]):
    """What all classes have."""

    __slots__ = ()

    _fields = tuple[str, ...]()  # an annotation would make it a member

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} members, not {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise TypeError(f"{type(self).__name__} has no members {sorted(changes)}")
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        members = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in members)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _Maker(type):
    """Makes the class of a definition, whose own class is ``type`` as in the standard library."""

    def __new__(cls, name: str, _bases: tuple[type, ...], members: dict[str, Any]) -> Any:
        fields = tuple(members.get("__annotations__", ()))
        if "__new__" in members or any(field.startswith("_") for field in fields):
            raise TypeError(f"{name}: members begin with a letter, and __new__ is made of them")
        defaults = {field: members.pop(field) for field in fields if field in members}
        if list(defaults) != list(fields[len(fields) - len(defaults) :]):
            raise TypeError(f"{name}: a member without a default after one with a default")
        if len(fields) > len(_MEMBERS):
            widest = namedtuple("widest", [f"f{at}" for at in range(2 * len(fields))])  # type: ignore[misc]  # noqa: PYI024  # of so many
            _MEMBERS[:] = [vars(widest)[field] for field in getattr(widest, "_fields")]  # noqa: B009  # of tuples
        members |= zip(fields, _MEMBERS, strict=False)
        members |= {
            "__slots__": (), "__match_args__": fields, "__new__": _New(),
            "_fields": fields, "_field_defaults": defaults,
        }  # fmt: skip
        return type(name, (_Tuple,), members)


if not TYPE_CHECKING:
    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})
