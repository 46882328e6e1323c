"""``dataclass`` and ``NamedTuple`` as in the standard library, but modules with them load faster.

The decorator of the standard library compiles six methods of each class. This takes 0.3 ms, mostly
for unused classes and methods. Here ``__init__`` and comparisons are compiled when they are first
looked up; all classes share the other methods. Fields, parameters and
behaviour are the same; ``fields``, ``replace``, ``asdict`` and pickling work.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Iterable
from functools import partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import NamedTuple

__all__ = ["NamedTuple", "dataclass"]

_Names = dict[str, Any]
_Source = Callable[[Any], tuple[str, _Names]]
"""Makes the code of a class's method, and the values of the names in it."""


def _dataclass(
    cls: type | None = None,
    /,
    *,
    repr: bool = True,  # noqa: A002  # the name in the standard library
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    **options: bool,
) -> Any:
    if cls is None:
        return partial(_dataclass, repr=repr, eq=eq, order=order, frozen=frozen, **options)
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # the standard library would put the signature there
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    methods: dict[str, Any] = {"__init__": _Compiled(made, partial(_init, frozen=frozen))}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods["__eq__"] = _Compiled(made, partial(_comparison, name="__eq__", sign="=="))
        methods["__hash__"] = _Compiled(made, _hash) if frozen else None
    if order:
        for name, sign in _ORDER.items():
            methods[name] = _Compiled(made, partial(_comparison, name=name, sign=sign))
    if frozen:
        methods["__setattr__"] = _refusal(made, "__setattr__", "assign to")
        methods["__delattr__"] = _refusal(made, "__delattr__", "delete")
        if options.get("slots"):
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    own = vars(made)
    for name, method in methods.items():
        # Members of the class itself stay; ``__hash__`` is ``None`` if the class has ``__eq__``.
        if own.get(name) is None:
            setattr(made, name, method)
    return made


if not TYPE_CHECKING:
    dataclass = _dataclass

_ORDER = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


class _Absent:
    """Default of an argument for which a new object is made."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


class _Compiled:
    """A method of a class until its first lookup, which compiles it and puts it in its place."""

    __slots__ = ("_owner", "_source")

    def __init__(self, owner: type, source: _Source) -> None:
        self._owner = owner
        self._source = source

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        # Threads that look it up at the same time compile the same code.
        source, names = self._source(self._owner)
        names["__name__"] = self._owner.__module__
        exec(source, names)  # noqa: S102  # consists of names of fields, which Python checked
        name, method = names.popitem()
        method.__qualname__ = f"{self._owner.__qualname__}.{name}"
        method.__annotations__ = names.get("__annotations__", {})
        setattr(self._owner, name, method)
        bound: Callable[..., Any] = method if instance is None else method.__get__(instance)
        return bound


def _init(owner: Any, *, frozen: bool) -> tuple[str, _Names]:
    """Make the code of ``__init__``, which assigns its arguments or defaults to the fields."""
    names: _Names = {"_absent": _ABSENT, "_assign": object.__setattr__, "__annotations__": {}}
    positional: list[str] = ["self"]
    keywords: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(owner):
        name, value, default = field.name, field.name, ""
        if field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            default = "=_absent"
            value = f"_make_{name}()"
            if field.init:
                value += f" if {name} is _absent else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
            value = name if field.init else f"_default_{name}"
        if field.init:
            names["__annotations__"][name] = field.type
            (keywords if field.kw_only else positional).append(name + default)
        elif not default:
            continue  # ``__post_init__`` gives it a value
        slot = getattr(owner, name, None)
        if not frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(slot, MemberDescriptorType):
            names[f"_assign_{name}"] = slot.__set__  # takes half of the time of ``_assign``
            body.append(f"_assign_{name}(self, {value})")
        else:
            body.append(f"_assign(self, {name!r}, {value})")
    if hasattr(owner, "__post_init__"):
        body.append("self.__post_init__()")
    names["__annotations__"]["return"] = None
    parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    return f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names


def _comparison(owner: Any, *, name: str, sign: str) -> tuple[str, _Names]:
    """Make the code that compares two objects as the tuples of their fields."""
    compared = [field.name for field in dataclasses.fields(owner) if field.compare]
    source = (
        f"def {name}(self, other):\n"
        " if other.__class__ is self.__class__:\n"
        f"  return {_values('self', compared)} {sign} {_values('other', compared)}\n"
        " return NotImplemented"
    )
    return source, {}


def _hash(owner: Any) -> tuple[str, _Names]:
    fields = dataclasses.fields(owner)
    hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
    return f"def __hash__(self):\n return hash({_values('self', hashed)})", {}


def _values(of: str, names: list[str]) -> str:
    return "(" + "".join(f"{of}.{name}, " for name in names) + ")"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refusal(owner: Any, method: str, verb: str) -> Callable[..., None]:
    """Return a method that refuses changes, except of attributes that a subclass adds."""

    def refuse(self: Any, name: str, *value: object) -> None:
        if type(self) is owner or name in owner.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
        getattr(super(owner, self), method)(name, *value)

    return refuse


def _getstate(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


# --- ``NamedTuple``, which compiles ``__new__`` on first lookup ---------------------------
# The standard library compiles ``__new__`` of each class, and each annotation that is a string.
# This takes 0.1 ms, mostly for unused classes. Members and behaviour are the same.

_MEMBERS: list[Any] = []
"""Descriptors of the first member of a tuple, the second, and so on, for all classes."""


class _New:
    """``__new__`` of a class until its first lookup, which compiles it and puts it in its place."""

    __slots__ = ()

    def __get__(self, instance: object, owner: Any) -> Callable[..., Any]:
        # Threads that look it up at the same time compile the same code.
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
        # A subclass may have its own ``__new__``, which looked this one up.
        for holder in owner.__mro__:
            if vars(holder).get("__new__") is self:
                holder.__new__ = made
        return made  # type: ignore[no-any-return]  # what is evaluated has no type


class _Tuple(tuple[Any, ...]):
    """Common members of all classes."""

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
    """Metaclass that makes a class of type ``type``, as in the standard library."""

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
