"""Arguments and options that commands share, and opening the dataset they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


_DIGITS = 20
"""Of the largest number of 64 bits."""

F = TypeVar("F", bound=Callable[..., Any])


def dataset_argument(function: F) -> F:
    """The argument DATASET, and options for its store."""
    return storage_option(click.argument("dataset")(function))


def storage_option(function: F) -> F:
    """The option ``--storage-option``."""
    return click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        metavar="KEY=VALUE",
        help=(
            "An option of the object store, such as region=eu-west-1, or what a dataset may read "
            "elsewhere, such as allow_external_blobs=s3://media; may be repeated."
        ),
    )(function)


def json_option(function: F) -> F:
    """The option ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON objects, one per line."
    )(function)


def version_option(function: F) -> F:
    """The option ``--version``: a number, a tag, or a branch with a number."""
    return click.option(
        "--version",
        metavar="NUMBER|TAG",
        help="The version: its number, a tag, or branch:number; the newest when omitted.",
    )(function)


def columns_option(function: F) -> F:
    """The option ``--columns``."""
    return click.option("--columns", help="Columns, such as 'carrier,flight'; all when omitted.")(
        function
    )


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
