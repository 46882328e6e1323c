"""Option sets: a dataclass for each, which defines how its options are read and displayed.

The type of a field says which values an option accepts. A :class:`Kind` says so if the option has
bounds or a special type. The docstring of the class explains the options. Keyword arguments and
tables of TOML are checked (:meth:`Kind.check`, :func:`read_table`). Strings of Spark and
configurations are parsed (:meth:`Kind.parse`). Functions that take the options display them
(:func:`shows`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache, wraps
from inspect import Parameter, cleandoc, signature
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError, OptionRangeError
from glaive.types import integer_of

if TYPE_CHECKING:
    from typing import TypedDict as TypedDict  # noqa: PLC0414  # for others to import
else:

    class TypedDict(dict):
        """``TypedDict`` as in the standard library; annotations stay strings."""

        def __init_subclass__(cls, **_total: bool) -> None:
            own = dict(vars(cls).get("__annotations__", {}))
            cls.__annotations__ = {**getattr(cls.__base__, "__annotations__", {}), **own}


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """Accepted values of an option.

    Parameters
    ----------
    expected
        Description of the values, for messages.
    of
        Function that converts a value of Python or TOML. It raises ``OverflowError`` for a value
        out of bounds, ``ValueError`` or ``TypeError`` for other values, or ``OptionError`` with its
        own message.
    text
        Function that converts a string to such a value.
    range_message
        Start of pylance's message about a value out of bounds, with ``{}`` for the value.
    """

    expected: str
    of: Callable[[Any], Any]
    text: Callable[[str], Any] = str
    range_message: str = ""

    def check(self, name: str, given: Any, *, hidden: bool = False) -> Any:
        """Convert a value; messages omit a ``hidden`` value."""
        try:
            return self.of(given)
        except GlaiveError:
            raise
        except UnfitError as error:
            raise OptionError(f"{name}: {error}") from None
        except _InsideError as error:
            item, key, value = error.args
            return item.check(f"{name}{key}", value, hidden=hidden)  # which raises an error
        except (OverflowError, TypeError, ValueError) as error:
            text = f"{name}: expected {self.expected}, found {shown(given, hidden=hidden)}"
            if isinstance(error, OverflowError):
                raise OptionRangeError(self.range_message.format(given) + text) from None
            raise OptionError(text) from None

    def parse(self, name: str, text: str) -> Any:
        """Convert a string."""
        try:
            return self.of(self.text(text.strip()))
        except GlaiveError:
            raise
        except UnfitError as error:
            raise OptionError(f"{name}: {error}") from None
        except (ArithmeticError, TypeError, ValueError):
            words = self.expected.replace("True or False", "true or false")
            expected = words.replace("a table", "a JSON object")
            raise OptionError(f"{name}: expected {expected}, found {text!r:.200}") from None


class _InsideError(ValueError):
    """An item of a list or a mapping is invalid: its kind, its key in the option, and the item."""


class UnfitError(ValueError):
    """A value is invalid for a reason other than its kind."""


def option(kind: Kind, default: Any = None, spelled: str = "") -> Any:
    """Define a field of an option set; ``spelled`` is its name in strings, if it differs."""
    return field(default=default, metadata={"kind": kind, "spelled": spelled})


def shown(value: object, *, hidden: bool) -> str:
    """Return a value for a message; only its kind if it may be secret."""
    if not hidden:
        return f"{value!r:.80}"
    kinds = {str: "a string", bool: "true or false", list: "a list", dict: "a table"}
    return next((kinds[kind] for kind in kinds if isinstance(value, kind)), "a number or a time")


# --- Kinds ------------------------------------------------------------------------------


@cache
def integer(minimum: int | None = 0, maximum: int | None = None, range_message: str = "") -> Kind:
    """Return the kind of integers between two bounds, of Python or NumPy."""

    def of(given: Any) -> int:
        number = integer_of(given)
        if number is None:
            raise TypeError(given)
        if number.bit_length() > 64:  # Python refuses to convert very long integers to strings
            raise UnfitError(f"expected {words}, found one of {number.bit_length()} bits")
        if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
            raise OverflowError(number)
        return number

    bounds = f" ≥ {minimum}" if maximum is None else f" from {minimum} to {maximum}"
    if minimum is None:
        bounds = ""
    words = f"an integer{bounds}"
    return Kind(words, of, _digits, range_message)


def number(low: float = float("-inf"), high: float = float("inf")) -> Kind:
    """Return the kind of numbers between two bounds, both included."""

    def of(given: Any) -> float:
        if isinstance(given, bool | str):
            raise TypeError(given)
        value = float(given)
        if not (unbounded or low <= value <= high):
            raise OverflowError(given)
        return value

    unbounded = low == -high == float("-inf")
    return Kind("a number" if unbounded else f"a number from {low} to {high}", of, float)


def one_of(*values: Any) -> Kind:
    """Return the kind of some values of one type."""
    by_text = {str(value).lower(): value for value in values}

    def of(given: Any) -> Any:
        given = getattr(given, "item", lambda: given)()  # of NumPy, too
        if type(given) is not type(values[0]) or given not in values:
            raise ValueError(given)
        return given

    words = " or ".join(map(repr, values)) if len(values) < 3 else f"one of {_listed(values)}"
    return Kind(words, of, lambda text: by_text.get(text.lower()))


def listed(item: Kind) -> Kind:
    """Return the kind of lists; a single value becomes a list. Strings: with commas, or JSON."""

    def text(given: str) -> Any:
        if given.startswith(("[", "{")):
            return _json(given)
        return [item.text(one) if one else one for one in map(str.strip, given.split(","))]

    def of(given: Any) -> tuple[Any, ...]:
        values = given if isinstance(given, list | tuple) else [given]
        return tuple(_inside(item, "", value) for value in values)

    return Kind(f"a list of {item.expected.removeprefix('a ')}s", of, text)


def table(item: Kind) -> Kind:
    """Return the kind of mappings with string keys; strings are JSON objects."""

    def of(given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise TypeError(given)
        return {key: _inside(item, f".{key}", value) for key, value in given.items()}

    return Kind("a table", of, _json)


def _inside(item: Kind, key: str, value: Any) -> Any:
    try:
        return item.of(value)
    except GlaiveError:
        raise
    except (OverflowError, TypeError, ValueError):
        raise _InsideError(item, key, value) from None


def _json(text: str) -> Any:
    """Parse JSON. It may contain credentials, so messages omit it."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # includes huge numbers and deep nesting
        raise UnfitError(f"not JSON ({error})") from None


def _digits(text: str) -> int:
    if not (text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20):
        raise ValueError(text)
    return int(text)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(given)
    return given


def _filled(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _listed(values: Collection[object]) -> str:
    return ", ".join(map(repr, values))


SWITCH: Final = one_of(True, False)
TEXT: Final = Kind("a string", _text, _filled)
SIZE: Final = Kind("an integer ≥ 0", lambda size: None if size is None else integer().of(size))
NAMES: Final = listed(TEXT)
ANYTHING: Final = Kind("a value", lambda given: given, _json)
_PLAIN: Final[dict[Any, Kind]] = {
    str: TEXT, int: integer(None), float: number(), bool: SWITCH, Any: ANYTHING,
}  # fmt: skip


def kind_of(hint: Any, special: Mapping[Any, Kind] = _PLAIN) -> Kind:
    """Return the kind of a type; ``None`` counts as an omitted option."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in special or origin is None:
        return special.get(hint) or _PLAIN[hint]
    if origin is Literal:
        return one_of(*arguments)
    if origin is tuple:
        return listed(kind_of(arguments[0], special))
    if origin is Mapping:
        return table(kind_of(arguments[1], special))
    kinds = [kind_of(one, special) for one in arguments if one is not NoneType]

    def of(given: Any) -> Any:
        for kind in kinds:
            try:
                return kind.of(given)
            except _InsideError:
                raise
            except (TypeError, ValueError):
                continue
        raise TypeError(given)

    return kinds[0] if len(kinds) == 1 else Kind(" or ".join(one.expected for one in kinds), of)


def kinds_of(made: type, special: Mapping[Any, Kind] = _PLAIN) -> dict[str, Kind]:
    """Return the kind of each option of a set, by the name of its field."""
    known = {entry.name: entry.metadata.get("kind") for entry in fields(made)}
    hints = {} if all(known.values()) else get_type_hints(made)
    return {name: kind or kind_of(hints[name], special) for name, kind in known.items()}


def check_fields(made: Any) -> None:
    """Check the options of a set that have a kind; ``None`` is valid if it is the default.

    Raises
    ------
    OptionError
        An option has an invalid value.
    """
    for entry in fields(made):
        value, kind = getattr(made, entry.name), entry.metadata.get("kind")
        if kind is not None and (value is not None or entry.default is not None):
            kind.check(entry.name, value)


def read_table(
    made: type[T], given: Mapping[str, Any], where: str, special: Mapping[Any, Kind] = _PLAIN
) -> T:
    """Make an option set from a table of a file.

    Messages omit the values of fields that ``repr`` of the set omits.

    Parameters
    ----------
    where
        The file and the table, for messages.
    special
        Kinds of types that only this file has.

    Raises
    ------
    OptionError
        A key is unknown or missing, or has an invalid value.
    """
    known: dict[str, Any] = {entry.name: entry for entry in fields(made)}  # type: ignore[arg-type]  # a dataclass
    for key in given:
        if key not in known:
            raise OptionError(f"{where}: unknown key {key!r}{OptionError.did_you_mean(key, known)}")
    kinds = kinds_of(made, special)
    for name, entry in known.items():
        if name not in given and entry.default is entry.default_factory is MISSING:
            raise OptionError(f"{where}: the key {name!r} is missing: {kinds[name].expected}")
    return made(
        **{
            name: kinds[name].check(f"{where}, key {name}", value, hidden=not known[name].repr)
            for name, value in given.items()
        }
    )


# --- Signatures and docstrings ----------------------------------------------------------


def shows(
    keywords: Any,
    *described: Any,
    positional: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    **values: Any,
) -> Callable[[F], F]:
    """Make a function with ``**options: Unpack[keywords]`` display each option.

    Type checkers read the annotation. At run time ``inspect.signature`` and ``help`` ignore it.
    This function also allows some options by position, as in pylance.

    Parameters
    ----------
    keywords
        The typed dictionary: names and types.
    described
        Option sets, functions or typed dictionaries with the defaults and docstrings.
    positional
        Options that may be given by position, after the function's own parameters.
    leave_out
        Options that the function sets itself.
    **values
        Other defaults than ``None`` that are missing in the option sets.
    """

    def showing(function: F) -> F:
        own = signature(function)
        named = [one for one in own.parameters.values() if one.kind != Parameter.VAR_KEYWORD]
        first = [one.name for one in named if one.kind == Parameter.POSITIONAL_OR_KEYWORD]
        defaults = {name: value for one in described for name, value in defaults_of(one).items()}
        defaults |= values
        parameters = {one.name: one for one in named} | {
            name: Parameter(
                name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=hint
            )
            for name, hint in keywords.__annotations__.items()
            if name not in own.parameters and name not in leave_out
        }
        kind = Parameter.POSITIONAL_OR_KEYWORD
        order = {name: parameters[name].replace(kind=kind) for name in (*first, *positional)}
        others = [parameters[name] for name in parameters if name not in order]
        others += [one for one in own.parameters.values() if one.name == "kwargs"]
        texts = {name: text for one in described for name, text in entries_of(one).items()}
        mine = entries_of(function)
        wanted = [texts[name] for name in parameters if name in texts and name not in mine]
        doc = _documented(function.__doc__, wanted)

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if len(args) <= len(first):
                return function(*args, **options)
            more = dict(zip(positional, args[len(first) :], strict=False))
            if twice := more.keys() & options.keys():
                raise OptionError(
                    f"arguments of {function.__name__}: {min(twice)!r} is given twice"
                )
            return function(*args[: len(first)], *args[len(order) :], **options, **more)

        made: Any = call if positional else function
        made.__signature__ = own.replace(parameters=[*order.values(), *others])
        made.__doc__ = doc
        shown_as: F = made
        return shown_as

    return showing


@cache
def defaults_of(described: Any) -> dict[str, Any]:
    """Return the defaults of an option set's fields, or of a function's parameters."""
    if is_dataclass(described):
        return {
            entry.name: None if entry.default is MISSING else entry.default
            for entry in fields(described)
        }
    if isinstance(described, type):
        return {}
    return {name: one.default for name, one in signature(described).parameters.items()}


@cache
def entries_of(described: Any) -> dict[str, str]:
    """Return the entries of a docstring by parameter; several parameters may share an entry."""
    doc = described.__doc__ or ""
    if "Parameters\n" not in doc:
        return {}
    rest = cleandoc(doc).partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\n\w+\n---", rest, maxsplit=1)[0]
    entries = re.findall(r"^(\S.*)\n((?:(?:    .*)?(?:\n|$))*)", section, re.MULTILINE)
    return {
        name.strip(): f"{names}\n{text.rstrip()}"
        for names, text in entries
        for name in names.split(",")
    }


def _documented(doc: str | None, entries: Sequence[str]) -> str | None:
    """Return a docstring with entries of more parameters in place of ``**options``."""
    if not doc:  # under -OO
        return doc
    text = cleandoc(doc)
    if "\n**" in text:
        text = re.sub(r"\n\*\*\w+(?:\n    .*)+", "", text)
    before, *after = re.split(r"(?=\n\n(?:Returns|Raises|Notes)\n---)", text, maxsplit=1)
    if "Parameters\n---" not in before:
        before += "\n\nParameters\n----------"
    return "".join(["\n".join([before.rstrip(), *dict.fromkeys(entries)]), *after])
