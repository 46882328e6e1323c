"""Arguments and options that commands share, and opening the dataset they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.output import examples

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


_DIGITS = 20
"""Of the largest number of 64 bits."""

storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help=(
        "An option of the object store, such as region=eu-west-1, or what a dataset may read "
        "elsewhere, such as allow_external_blobs=s3://media; may be repeated."
    ),
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON objects, one per line."
)
version_option = click.option(
    "--version",
    metavar="NUMBER|TAG",
    help="The version: its number, a tag, or branch:number; the newest when omitted.",
)
columns_option = click.option("--columns", help="Columns, as 'carrier,flight'; all when omitted.")
filter_option = click.option(
    "--filter", "condition", help="Rows for which this SQL expression is true."
)


def command(
    *lines: str, opens: bool | None = True, versioned: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function: it gets ``--json``, DATASET and ``--storage-option``.

    Parameters
    ----------
    lines
        Examples.
    opens
        Whether the function gets the dataset opened, and not its place and the options of its
        store. None: there is no DATASET.
    versioned
        Whether it is opened at a ``--version``.
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
        return click.command(function.__name__, epilog=examples(*lines))(call)

    return made


def names_of(columns: str | None) -> list[str] | None:
    """The names in ``--columns``."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def opened(
    dataset: str, version: str | None = None, storage_options: Sequence[str] = ()
) -> LanceDataset:
    """The dataset at a version.

    Raises
    ------
    click.BadParameter
        A storage option is no KEY=VALUE.
    """
    from glaive.dataset.open import dataset as open_dataset

    given = storage_pairs(storage_options)
    return open_dataset(dataset, version=_reference(version), storage_options=given)


def storage_pairs(storage_options: Sequence[str]) -> dict[str, str] | None:
    """What ``--storage-option`` was given; None if it was not.

    Raises
    ------
    click.BadParameter
        One is no KEY=VALUE.
    """
    return pairs_of("--storage-option", storage_options) or None


def pairs_of(option: str, texts: Sequence[str], form: str = "KEY=VALUE") -> dict[str, str]:
    """What an option that may be repeated was given.

    Raises
    ------
    click.BadParameter
        One is no KEY=VALUE. It is not shown: it may be a password.
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
    if len(number) > _DIGITS and number.isdecimal():  # Python refuses to read far more of them
        raise click.BadParameter(f"no version has {len(number)} digits", param_hint="--version")
    if not mark:
        return int(version) if version.isdecimal() else version
    if number and not number.isdecimal():
        raise click.BadParameter(
            f"expected branch:number, found {version!r}", param_hint="--version"
        )
    return branch, int(number) if number else None
