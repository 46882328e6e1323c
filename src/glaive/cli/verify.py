"""``glaive verify``: check all files of all versions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_bytes, print_json, say

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.layout import Problem

_FOLDERS = ("_deletions", "_indices", "data")
"""Where files lie that a version must name to use them."""


@click.command(
    "verify",
    epilog=examples(
        "glaive verify flights.lance",
        "glaive verify flights.lance --deep",
        "glaive verify flights.lance --newest --json",
    ),
)
@dataset_argument
@click.option("--deep", is_flag=True, help="Decode all values, too.")
@click.option("--newest", is_flag=True, help="Only the newest version, not all that are kept.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    deep: bool,
    newest: bool,
    as_json: bool,
) -> None:
    """Check DATASET: of every version its manifest, data files, deletions, row ids and indices.

    Versions of branches, too. Files that have checksums are read and compared with them. Lists
    files that no version uses. Changes nothing. Exit code 1 if something is damaged.
    """
    at = opened_newest(dataset, storage_options)
    problems = 0
    for found in _found(at, dataset, deep=deep, newest=newest):
        problems += found["state"] == "damaged"
        if as_json:
            print_json(found)
        elif found["state"] == "unused":
            say(
                f"{found['files']} files ({human_bytes(found['bytes'])}) are used by no version: "
                "see `glaive cleanup --dry-run`"
            )
        elif found["state"] == "damaged":
            say(f"version {found['version']}: {found['problem']}")
            say(f"    {found['remedy']}")
        else:
            say(f"version {found['version']}: sound")
    if problems:
        context.exit(1)


def opened_newest(dataset: str, storage_options: tuple[str, ...]) -> LanceDataset:
    """The newest version; what to do if its manifest cannot be read."""
    from glaive.errors import CorruptFileError, NotLanceError

    try:
        # All is compared by the check itself, which then tells of each version.
        return opened(dataset, None, ("verify_checksums=false", *storage_options))
    except (CorruptFileError, NotLanceError) as error:
        remedy = "Move this manifest to another folder: the version before it is the newest then"
        raise click.ClickException(f"{error} {remedy}.") from error


def _found(at: LanceDataset, uri: str, *, deep: bool, newest: bool) -> Iterator[dict[str, Any]]:
    from glaive.dataset.layout import VersionCheck

    check = VersionCheck(deep=deep)
    numbers = [one["version"] for one in at.versions()]
    for number in numbers[-1:] if newest else numbers:
        yield from _described(check.problems(at, number), number, uri)
    if newest:
        return
    tips = {name: at.checkout_version((name, None)) for name in sorted(at.branches.list())}
    for name, tip in tips.items():
        for number in [one["version"] for one in tip.versions()]:
            yield from _described(check.problems(tip, number), f"{name}:{number}", uri)
    unused = _unused([at, *tips.values()])
    if unused:
        yield {"state": "unused", "files": len(unused), "bytes": sum(unused)}


def _unused(branches: list[LanceDataset]) -> list[int]:
    """Sizes of the files that no version of any branch names, and versions must name."""
    names = ["base_uri", "path"]
    used = {
        tuple(row.values())
        for one in branches
        for row in one.tracked_files().read_all().select(names).to_pylist()
    }
    return [
        row["size_bytes"]
        for one in branches
        for row in one.all_files().read_all().to_pylist()
        if row["path"].partition("/")[0] in _FOLDERS and (row["base_uri"], row["path"]) not in used
    ]


def _described(problems: list[Problem], version: int | str, uri: str) -> Iterator[dict[str, Any]]:
    if not problems:
        yield {"state": "sound", "version": version}
    for one in problems:
        remedy = "see `glaive repair`, which makes the newest sound version the current one"
        facts: dict[str, Any] = {"state": "damaged", "version": version, "problem": one.message}
        if one.fragment is not None:
            facts["fragment"] = one.fragment
            remedy = "restore the file from a copy, or see `glaive repair`, which saves the rest"
        elif one.index is not None:
            facts["index"] = one.index
            # Made to be pasted into a shell, where a name may be anything.
            drop = shlex.join(["glaive", "index", uri, "--drop", one.index])
            remedy = f"no rows are lost: `{drop}`, then build it again"
        yield facts | {"remedy": remedy}
