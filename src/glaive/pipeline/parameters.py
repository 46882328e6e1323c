"""Parameters of a pipeline: ``${name}`` in its texts."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from glaive.errors import GlaiveError, OptionError
from glaive.pipeline.keys import close_names, shown

__all__ = ["chosen_parameters", "hidden_parameters_in", "parameters_in", "substituted"]

_PARAMETER: Final = re.compile(r"\$(\$|\{([^{}]*)\})")


def chosen_parameters(
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    where: str,
    credentials: Container[str] = (),
) -> dict[str, Any]:
    """The defaults of a file with the values of a run; texts become the type of the default.

    Messages do not show the values of ``credentials``.

    Raises
    ------
    OptionError
        The file has no such parameter, or the value is of another type.
    """
    chosen = dict(defaults)
    for name, default in defaults.items():
        if not isinstance(default, str | int | float | bool):
            raise OptionError(
                f"{where}, key parameters.{name}: expected a text, a number, true or false, found "
                f"{shown(default, hidden=name in credentials)}"
            )
    for name, value in given.items():
        if name not in defaults:
            raise OptionError(
                f"{where}: there is no parameter {name!r}{close_names(name, defaults)}"
            )
        at, hidden = f"{where}, parameter {name}", name in credentials
        chosen[name] = _typed(value, defaults[name], at, hidden=hidden)
    return chosen


def _typed(value: Any, default: Any, where: str, *, hidden: bool) -> Any:
    kind = type(default)
    if isinstance(value, kind):
        return value
    words = {"true": True, "false": False}
    try:
        made = words[value.lower()] if kind is bool else kind(value)
        if kind is str or isinstance(value, str) or made == value:
            return made
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        pass  # reported below
    found = shown(value, hidden=hidden)
    raise OptionError(f"{where}: expected {kind.__name__}, found {found}")


def substituted(value: Any, parameters: Mapping[str, Any], where: str) -> Any:
    """A value of a file with parameters filled in, at any depth; ``$$`` is a dollar sign.

    A text that is nothing but ``${name}`` becomes the value with its type.

    Raises
    ------
    OptionError
        There is no such parameter.
    """
    if isinstance(value, dict):
        return {
            key: substituted(one, parameters, f"{where}, key {key}") for key, one in value.items()
        }
    if isinstance(value, list):
        return [substituted(one, parameters, where) for one in value]
    if not isinstance(value, str):
        return value

    def filled(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else str(_parameter(match[2], parameters, where))

    whole = _PARAMETER.fullmatch(value)
    if whole and whole[2] is not None:
        return _parameter(whole[2], parameters, where)
    return _PARAMETER.sub(filled, value)


def parameters_in(value: Any) -> frozenset[str]:
    """Names of the parameters in a value of a file, at any depth."""
    return frozenset[str]().union(*map(_names_in, _texts_in(value)))


def hidden_parameters_in(value: Any, parameters: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Names of the parameters that are part of a password or a key of a URL, at any depth.

    With ``parameters``, their values, also of those that bring such a part along: one may be a URL.
    """
    hidden = frozenset[str]().union(*map(_hidden_in, _texts_in(value)))
    if parameters is None:
        return hidden
    brought = (_brought_by(text, parameters) for text in (*_texts_in(value), *_each(parameters)))
    return hidden.union(*brought)


def _hidden_in(text: str) -> frozenset[str]:
    """Names in a text whose places are not shown, whatever the values."""
    return _names_in(text) - _names_in(GlaiveError.without_secrets(text))


def _brought_by(text: str, parameters: Mapping[str, Any]) -> frozenset[str]:
    """Names in a text whose values are not shown as a whole, once it is filled in."""
    filled = _PARAMETER.sub(lambda found: str(parameters.get(found[2], "$")), text)
    seen = GlaiveError.without_secrets(filled)
    if seen == filled:
        return frozenset()
    return frozenset(name for name in _names_in(text) if str(parameters.get(name, "")) not in seen)


def _each(parameters: Mapping[str, Any]) -> Iterator[str]:
    """A text for each parameter that is nothing else."""
    return (f"${{{name}}}" for name in parameters)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(one)
    elif isinstance(value, str):
        yield value


def _names_in(text: str) -> frozenset[str]:
    return frozenset(match[2] for match in _PARAMETER.finditer(text) if match[2] is not None)


def _parameter(name: str, parameters: Mapping[str, Any], where: str) -> Any:
    if name not in parameters:
        raise OptionError(
            f"{where}: there is no parameter {name!r}{close_names(name, parameters)}. Add it to "
            "the table [parameters], or write $$ for a dollar sign"
        )
    return parameters[name]
