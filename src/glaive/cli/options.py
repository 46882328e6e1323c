"""Arguments and options of commands, most of them from option sets, and opening of the dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import partial, wraps
from inspect import Parameter, unwrap
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints

import click

from glaive.cli.output import examples
from glaive.errors import OptionError
from glaive.options import (
    NAMES,
    SWITCH,
    TEXT,
    Kind,
    defaults_of,
    entries_of,
    integer,
    kind_of,
    kinds_of,
)

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

F = TypeVar("F", bound=Callable[..., Any])

SCAN: Final = "glaive.scan.options:ScanOptions"
SESSION: Final = "glaive.spark.launch:session"

_MAX_DIGITS = 20
"""Digits of the largest number of 64 bits."""

storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help=(
        "An option of the object store, such as region=eu-west-1, or a permission to read other "
        "locations, such as allow_external_blobs=s3://media; may be repeated."
    ),
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON objects, one per line."
)
version_option = click.option(
    "--version",
    metavar="NUMBER|TAG",
    help="The version: a number, a tag, or branch:number. Default: the newest.",
)


# --- Options of commands from option sets -----------------------------------------------


class _Text(click.ParamType):
    """A value of an option set, given as a string on the command line."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.expected = re.sub(r"^(an?|one of) ", "", kind.expected)
        self.name = self.expected.partition(" ")[0]

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the allowed values, or the kind of value."""
        values = re.findall(r"'(\w+)'(?:,|$| or)", self.expected)
        return f"[{'|'.join(values)}]" if len(values) > 1 else self.name.upper()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that Python functions take."""
        if not isinstance(value, str):  # a default
            return value
        try:
            self.kind.parse("", value)
        except OptionError as error:
            self.fail(f"{error}".removeprefix(": "), param, ctx)
        return self.kind.text(value.strip())


class Command(click.Command):
    """A command that imports option sets, and makes its options of them, on first use."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all arguments and options."""
        given: list[Any] = self.params
        self.params = [one() if isinstance(one, partial) else one for one in given]
        return super().get_params(ctx)


def options_of(
    described: str, *names: str, flags: Sequence[str] = (), **settings: Any
) -> Callable[[F], F]:
    """Give a command options of an option set or a function: type, bounds, default and help.

    Parameters
    ----------
    described
        Option set or function, as ``module:name``.
    names
        Options to add. The arguments of the command have the same names.
    flags
        Spellings on the command line, for a single option; by default its name.
    settings
        Settings that differ from the option set, as for ``click.option``.
    """

    def add(function: F) -> F:
        given = function.__dict__.setdefault("__click_params__", [])  # of click's own decorators
        given += [partial(_made, described, name, flags, settings) for name in reversed(names)]
        return function

    return add


def _made(where: str, name: str, flags: Sequence[str], settings: dict[str, Any]) -> click.Option:
    described = resolve_name(where)
    kind = _kind_in(described, name)
    default = defaults_of(described)[name]
    default = None if default is Parameter.empty or default == () else default
    text = " ".join(entries_of(described).get(name, "").partition("\n")[2].split())
    text = re.sub(r"; in Python .*?(?=[.] |[.]$)", "", text)
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    made: dict[str, Any] = {"default": default, "help": text}
    if kind is SWITCH:
        made["is_flag"] = True
    else:
        made |= {"type": _Text(kind), "show_default": default is not None}
        words = made["type"].expected
        made["help"] += f" [{words}]" * (
            words[0] != "'" and " " in words and "type" not in settings
        )
    flags = flags or [f"--{name.replace('_', '-')}"]
    return click.Option([*flags, name], **made | settings)


def _kind_in(described: Any, name: str) -> Kind:
    """Return the kind of an option of a set, or of a parameter of a function."""
    if is_dataclass(described):
        return kinds_of(described)[name]  # type: ignore[arg-type]  # a class
    function = unwrap(described)
    hint = function.__annotations__[name]
    plain = {"str": TEXT, "int": integer(None), "bool": SWITCH}
    names = Kind("names such as 'id,text'", NAMES.of, NAMES.text)
    for arm in sorted(hint.split(" | ")):
        if arm in plain or arm.startswith("Sequence["):
            return plain.get(arm, names)
    hints: Any = SimpleNamespace(__annotations__={name: hint})
    return kind_of(get_type_hints(hints, function.__globals__)[name])


def command(
    *lines: str, opens: bool | None = True, versioned: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function, with ``--json``, DATASET and ``--storage-option``.

    Parameters
    ----------
    lines
        Examples.
    opens
        Whether the function gets the opened dataset. False: it gets the location and the options of
        the store. ``None``: the command lacks DATASET.
    versioned
        Whether the command has ``--version``, at which it opens the dataset.
    """

    def made(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def call(**given: Any) -> None:
            if opens:
                place, version = given.pop("dataset"), given.pop("version", None)
                function(opened(place, version, given.pop("storage_options")), **given)
            else:
                function(**given)

        call = json_option(version_option(call) if versioned else call)
        if opens is not None:
            call = click.argument("dataset")(storage_option(call))
        made = click.command(function.__name__, Command, epilog=examples(*lines))
        return made(call)

    return made


def opened(
    dataset: str, version: str | None = None, storage_options: Sequence[str] = ()
) -> LanceDataset:
    """Open a dataset at a version.

    Raises
    ------
    click.BadParameter
        A storage option differs from the form KEY=VALUE.
    """
    from glaive.dataset.open import dataset as open_dataset

    given = storage_pairs(storage_options)
    return open_dataset(dataset, version=_reference(version), storage_options=given)


def storage_pairs(storage_options: Sequence[str]) -> dict[str, str] | None:
    """Return the values of ``--storage-option``; ``None`` if empty.

    Raises
    ------
    click.BadParameter
        A value differs from the form KEY=VALUE.
    """
    return pairs_of("--storage-option", storage_options) or None


def pairs_of(option: str, texts: Sequence[str], form: str = "KEY=VALUE") -> dict[str, str]:
    """Return the values of a repeatable option.

    Raises
    ------
    click.BadParameter
        A value differs from the form KEY=VALUE. The message omits it: it may be a password.
    """
    pairs = {}
    for number, text in enumerate(texts, 1):
        key, mark, value = text.partition("=")
        if not mark or not key:
            which = f"in number {number} of {len(texts)}" if len(texts) > 1 else "in it"
            raise click.BadParameter(
                f"expected {form}, found no {'key' if mark else 'equals sign'} {which}",
                param_hint=option,
            )
        pairs[key] = value
    return pairs


def _reference(version: str | None) -> Any:
    if version is None:
        return None
    branch, mark, number = version.rpartition(":")
    if len(number) > _MAX_DIGITS and number.isdecimal():  # Python refuses to read far more of them
        raise click.BadParameter(f"no version has {len(number)} digits", param_hint="--version")
    if not mark:
        return int(version) if version.isdecimal() else version
    if number and not number.isdecimal():
        raise click.BadParameter(
            f"expected branch:number, found {version!r}", param_hint="--version"
        )
    return branch, int(number) if number else None
