"""``dataclass`` as in the standard library, which compiles nothing while a module loads.

The decorator of the standard library compiles six methods of each class: 0.3 ms, most of it for
classes and methods that a process never uses. Here ``__init__`` and comparisons are compiled when
they are first looked up; the others need no code of their own. Fields, parameters and behaviour are
the same; ``fields``, ``replace``, ``asdict`` and pickling work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_Names = dict[str, Any]
_Source = Callable[[Any], tuple[str, _Names]]
"""Makes the code of a method of a class, and what names in it stand for."""


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
        # What the class itself has stays; ``__hash__`` is None where it has ``__eq__``.
        if own.get(name) is None:
            setattr(made, name, method)
    return made


if not TYPE_CHECKING:
    dataclass = _dataclass

_ORDER = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


class _Absent:
    """Stands for an argument for which a new object is made."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


class _Compiled:
    """A method of a class, until somebody looks it up: compiled then, and put in its place."""

    __slots__ = ("_owner", "_source")

    def __init__(self, owner: type, source: _Source) -> None:
        self._owner = owner
        self._source = source

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        # Threads that come at the same time compile the same.
        source, names = self._source(self._owner)
        names["__name__"] = self._owner.__module__
        exec(source, names)  # noqa: S102  # made of names of fields, which Python checked
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
    """Return a method that refuses changes, but of attributes that a class derived from it adds."""

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
