"""``glaive inspect``: the layout of a file or dataset, without decoding values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import storage_option, storage_pairs
from glaive.cli.output import examples, replacing, say

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout
    from glaive.file.layout_values import FileLayout


@click.command(
    "inspect",
    epilog=examples(
        "glaive inspect flights.lance --columns carrier",
        "glaive inspect flights.lance/data/0.lance --pages",
        "glaive inspect flights.lance --json | jq '.fragments[].files[].layout.size'",
        "glaive inspect flights.lance --html flights.html",
    ),
)
@click.argument("path", metavar="FILE_OR_DATASET")
@storage_option
@click.option("--columns", help="Columns to show, such as 'carrier,meta'; all when omitted.")
@click.option(
    "--largest",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Print only this many columns, the largest ones; 0 prints all.",
)
@click.option(
    "--pages/--no-pages",
    default=None,
    help="Print pages with encodings and buffers; by default if there are at most 24 pages.",
)
@click.option(
    "--files",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Read the metadata of this many data files of a dataset, the first ones; 0: none.",
)
@click.option("--version", type=int, help="The version of a dataset; the newest when omitted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with everything.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Write an HTML page that draws files to scale, instead of printing.",
)
def command(
    path: str,
    *,
    storage_options: tuple[str, ...],
    columns: str | None,
    largest: int,
    pages: bool | None,
    files: int,
    version: int | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Show the layout of FILE_OR_DATASET: columns, pages, encodings, buffers and their bytes.

    Reads only metadata. Positions and sizes are in bytes; a ratio is bytes in memory per byte
    in the file.
    """
    from glaive.cli.inspect_columns import with_columns

    if as_json and html is not None:
        raise click.UsageError("give one of --json and --html")
    storage = storage_pairs(storage_options)
    found, versions = _layout(path, version, files, storage, history=html is not None)
    layout = with_columns(found, columns.split(",") if columns else None)
    if html is not None:
        from glaive.cli.inspect_page import write_page

        with replacing(html, or_itself=True) as page:
            size = write_page(layout, page, versions)
        say(f"{html} written, {size:,} bytes; open it in a browser")
    elif as_json:
        say(json.dumps(layout.to_dict(), ensure_ascii=False))
    else:
        from glaive.cli.inspect_tree import print_tree

        print_tree(layout, largest=largest or None, pages=pages)


def _layout(
    path: str, version: int | None, files: int, storage: dict[str, str] | None, *, history: bool
) -> tuple[FileLayout | DatasetLayout, list[dict[str, Any]]]:
    """Describe a file, or else the dataset at this path, and with ``history`` its versions."""
    from glaive.dataset.layout import dataset_layout
    from glaive.dataset.open import dataset as open_dataset
    from glaive.errors import (
        DataFileMissingError,
        DatasetNotFoundError,
        OptionError,
        StoreError,
    )
    from glaive.file.files import LanceFileReader

    if "://" not in path and Path(path).is_file():
        if version is not None:
            raise OptionError(f"--version: {path} is a file; only datasets have versions")
        return LanceFileReader(path).layout(), []
    try:
        opened = open_dataset(path, version=version, storage_options=storage)
    except DatasetNotFoundError as no_dataset:
        if "://" not in path or version is not None:
            raise
        try:
            return LanceFileReader(path, storage_options=storage).layout(), []
        except (DataFileMissingError, StoreError):
            raise no_dataset from None
    return dataset_layout(opened, max_files=files), list(opened.versions()) if history else []
