"""``glaive verify``: check all files of all versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_bytes, print_json, say

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


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

    Files that have checksums are read and compared with them. Lists files that no version
    uses. Changes nothing. Exit code 1 if something is damaged.
    """
    at = opened(dataset, None, storage_options)
    problems = 0
    for found in _found(at, deep=deep, newest=newest):
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


def _found(newest_version: LanceDataset, *, deep: bool, newest: bool) -> Iterator[dict[str, Any]]:
    compared: set[str] = set()
    numbers = [one["version"] for one in newest_version.versions()]
    for number in numbers[-1:] if newest else numbers:
        problem = problem_of(newest_version, number, deep=deep, compared=compared)
        if problem is None:
            yield {"state": "sound", "version": number}
        else:
            remedy = "see `glaive repair`, which makes the newest sound version the current one"
            yield {"state": "damaged", "version": number, "problem": problem, "remedy": remedy}
    if newest:
        return
    used = set(newest_version.tracked_files().read_all()["path"].to_pylist())
    listed = newest_version.all_files().read_all()
    paths, sizes = listed["path"].to_pylist(), listed["size_bytes"].to_pylist()
    unused = [
        size
        for path, size in zip(paths, sizes, strict=True)
        if path not in used and str(path).startswith("data/")
    ]
    if unused:
        yield {"state": "unused", "files": len(unused), "bytes": sum(unused)}


def problem_of(
    at: LanceDataset, number: int, *, deep: bool, compared: set[str] | None = None
) -> str | None:
    """What is wrong with a version; None if it is sound.

    Files in ``compared`` are not compared with their checksums again.
    """
    from glaive.dataset.versions.checksums import compare_checksums
    from glaive.errors import GlaiveError

    try:
        version = at.checkout_version(number)
        version.validate()
        compare_checksums(version.snapshot, set() if compared is None else compared)
        if deep:
            rows = sum(batch.num_rows for batch in version.to_batches())
            if rows != version.count_rows():
                return f"{rows} rows can be read, the manifest counts {version.count_rows()}"
    except GlaiveError as error:
        return str(error)
    return None
