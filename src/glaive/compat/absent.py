"""Stand-ins for names of pylance that glaive does not have.

A program may import them, annotate with them, ask ``isinstance`` for them, and derive from them.
The first use raises an error with the reason and the way round: a script that only mentions such
a name runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from glaive.errors import GlaiveError, MissingDependencyError, UnsupportedFeatureError
from glaive.named_tuple import NamedTuple

__all__ = [
    "Absence",
    "AbsentName",
    "absent_names",
    "absent_property",
    "names_of",
    "needs_package",
    "refuse_members",
]


C = TypeVar("C", bound=type)


class Absence(NamedTuple):
    """Why names are not there.

    Parameters
    ----------
    reason
        Why; a sentence without a full stop.
    instead
        The way round; a sentence without a full stop.
    names
        The names in a module, separated by spaces; of a member as ``Class.member``.
    """

    reason: str
    instead: str
    names: str


class AbsentName(type):
    """The class of stand-ins. Using one raises; naming it does not."""

    __absence__: str
    __error__: type[GlaiveError]

    def __call__(cls, *args: object, **options: object) -> NoReturn:
        """Raise the error that says why the name is not there."""
        raise cls.__error__(cls.__absence__)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__") or name == "_abc_impl":
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        raise cls.__error__(f"{cls.__absence__} (asked for its attribute {name!r})")

    def __iter__(cls) -> Iterator[NoReturn]:
        raise cls.__error__(cls.__absence__)

    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__name__}: not supported>"


def _absent(module: str, name: str, message: str, error: type[GlaiveError]) -> AbsentName:
    body = {
        "__absence__": message,
        "__error__": error,
        "__module__": module,
        "__qualname__": name,
        "__doc__": f"Not supported. {message}",
    }
    return AbsentName(name, (), body)


def _message(name: str, absence: Absence) -> str:
    return f"{name} is not supported: {absence.reason}. {absence.instead}."


def names_of(table: Sequence[Absence]) -> dict[str, Absence]:
    """The absence of each name of a table."""
    return {name: absence for absence in table for name in absence.names.split()}


def absent_names(
    module: str, table: Sequence[Absence], cache: dict[str, Any]
) -> Callable[[str], Any]:
    """``__getattr__`` of a module: stand-ins for the names of a table.

    Parameters
    ----------
    module
        The module's ``__name__``.
    table
        What it does not have.
    cache
        The module's ``globals()``; a stand-in is made once and kept there.
    """
    known = names_of(table)

    def find(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = _message(name, known[name])
        return cache.setdefault(name, _absent(module, name, message, UnsupportedFeatureError))

    return find


def needs_package(module: str, name: str, package: str, extra: str) -> AbsentName:
    """A stand-in for what an installed package would bring; use raises MissingDependencyError."""
    message = f"{module}.{name} needs {package}, which is not installed. Install it: {extra}"
    return _absent(module, name, message, MissingDependencyError)


def absent_property(name: str, absence: Absence) -> property:
    """A property that raises."""

    def refuse(_self: object) -> NoReturn:
        raise UnsupportedFeatureError(_message(name, absence))

    refuse.__doc__ = f"Not supported: {absence.reason}. {absence.instead}."
    return property(refuse)


def refuse_members(table: Sequence[Absence], properties: Sequence[str] = ()) -> Callable[[C], C]:
    """Class decorator: methods, and properties, that the class does not have raise.

    The table names them as ``Class.member``. What the class has already stays.
    """
    known: Mapping[str, Absence] = names_of(table)

    def add(cls: C) -> C:
        for name, absence in known.items():
            owner, _, member = name.partition(".")
            if owner != cls.__name__ or not member or member in vars(cls):
                continue
            wanted = (
                absent_property(name, absence)
                if member in properties
                else _refusing(cls, member, _message(name, absence))
            )
            setattr(cls, member, wanted)
        return cls

    return add


def _refusing(cls: type, member: str, message: str) -> Callable[..., NoReturn]:
    def refuse(_self: object, *_args: object, **_options: object) -> NoReturn:
        raise UnsupportedFeatureError(message)

    refuse.__dict__["__refused__"] = message
    refuse.__name__ = member
    refuse.__qualname__ = f"{cls.__qualname__}.{member}"
    refuse.__doc__ = f"Not supported. {message}"
    return refuse
