"""Tables of a file as dataclasses: each key is checked against the type of its field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from glaive.errors import OptionError
from glaive.pipeline.step import DatasetName

__all__ = ["close_names", "read_keys", "shown"]

T = TypeVar("T")

_TYPES: dict[Any, str] = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


def read_keys(made: type[T], table: Mapping[str, Any], datasets: Collection[str], where: str) -> T:
    """An object from a table of a file.

    Parameters
    ----------
    made
        A dataclass; its fields are the keys. Of those that its ``repr`` leaves out, messages do not
        show values, either.
    datasets
        Names that the file gives to datasets.
    where
        The file and the table, for messages.

    Raises
    ------
    OptionError
        A key is unknown, missing, or has a value of another type.
    """
    known: dict[str, Field[Any]] = {entry.name: entry for entry in fields(made)}  # type: ignore[arg-type]  # a dataclass
    for key in table:
        if key not in known:
            raise OptionError(f"{where}: unknown key {key!r}{close_names(key, known)}")
    hints = get_type_hints(made)
    values: dict[str, Any] = {}
    for name, entry in known.items():
        if name in table:
            at = f"{where}, key {name}"
            values[name] = _value(table[name], hints[name], datasets, at, hidden=not entry.repr)
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise OptionError(f"{where}: the key {name!r} is missing: {_expected(hints[name])}")
    return made(**values)


def close_names(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: the closest one, and all."""
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{hint} There are: {', '.join(sorted(known)) or 'none'}"


def shown(value: object, *, hidden: bool) -> str:
    """A value of TOML in a message; only of which kind it is, if it may be secret."""
    if not hidden:
        return f"{value!r:.60}"
    kinds = {str: "a text", bool: "true or false", list: "a list", dict: "a table"}
    return next((kinds[kind] for kind in kinds if isinstance(value, kind)), "a number or a time")


def _value(value: Any, hint: Any, datasets: Collection[str], where: str, *, hidden: bool) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not NoneType]
        for option in options:
            if len(options) == 1 or _is(value, option):
                return _value(value, option, datasets, where, hidden=hidden)
        raise _wrong(where, hint, value, hidden=hidden)
    if hint is DatasetName:
        if not isinstance(value, str):
            raise _wrong(where, str, value, hidden=hidden)
        if value not in datasets:
            hint_text = close_names(value, datasets)
            raise OptionError(f"{where}: {value!r} is no name in the table [datasets]{hint_text}")
        return value
    if origin is tuple:
        parts = value if isinstance(value, list) else [value]
        (item, _) = get_args(hint)
        return tuple(_value(part, item, datasets, where, hidden=hidden) for part in parts)
    if not _is(value, hint):
        raise _wrong(where, hint, value, hidden=hidden)
    if origin is Mapping and get_args(hint)[1] is not Any:
        part = get_args(hint)[1]
        return {
            key: _value(one, part, datasets, f"{where}.{key}", hidden=hidden)
            for key, one in value.items()
        }
    return float(value) if hint is float else value


def _is(value: Any, hint: Any) -> bool:
    """Whether a value of TOML is of a type, without looking into it."""
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint) and isinstance(value, str)
    if origin is Mapping:
        return isinstance(value, dict)
    if origin is tuple:
        return isinstance(value, list)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _expected(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not NoneType]
        return " or ".join(_expected(option) for option in options)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin is tuple:
        return "a list of texts"
    if origin is Mapping:
        return "a table"
    return "the name of a dataset" if hint is DatasetName else _TYPES[hint]


def _wrong(where: str, hint: Any, value: Any, *, hidden: bool) -> OptionError:
    found = shown(value, hidden=hidden)
    return OptionError(f"{where}: expected {_expected(hint)}, found {found}")
