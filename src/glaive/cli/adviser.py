"""``glaive adviser``: what each column would take, and how fast it would be read, per encoding."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import (
    columns_option,
    dataset_argument,
    json_option,
    names_of,
    opened,
    version_option,
)
from glaive.cli.output import examples, human_bytes, number_of, print_json, print_table, say

if TYPE_CHECKING:
    import pyarrow as pa

TRIALS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("default", {}),
    ("none", {"compression": "none"}),
    ("fsst", {"compression": "fsst"}),
    ("lz4", {"compression": "lz4"}),
    ("zstd", {"compression": "zstd"}),
)
BAR = 20


@click.command(
    "adviser",
    epilog=examples(
        "glaive adviser flights.lance",
        "glaive adviser flights.lance --columns carrier --rows 1000000 --json",
    ),
)
@dataset_argument
@columns_option
@click.option(
    "--rows", default=100_000, show_default=True, type=click.IntRange(min=1), help="Rows to try."
)
@version_option
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    columns: str | None,
    rows: int,
    version: str | None,
    as_json: bool,
) -> None:
    """Write the first rows of each column of DATASET with each encoding, and read them back.

    In a temporary folder; the dataset stays as it is. Times are of this machine, the best of three.
    Set an encoding with `lance-encoding:compression` in the metadata of a field.
    """
    from glaive.io.failures import spilling

    at = opened(dataset, version, storage_options)
    table = at.scanner(columns=names_of(columns), limit=rows).to_table()
    found: list[dict[str, Any]] = []
    with (
        spilling("trials of encodings"),
        tempfile.TemporaryDirectory(prefix="glaive-adviser-") as folder,
    ):
        for name in table.schema.names:
            tried = [
                one
                for encoding, options in TRIALS
                if (one := _tried(table.select([name]), encoding, options, Path(folder)))
                is not None
            ]
            if not tried:  # a type that only datasets hold
                continue
            smallest = min(tried, key=lambda one: one["bytes"])
            found += [{**one, "smallest": one is smallest} for one in tried]
    if as_json:
        for one in found:
            print_json(one)
        return
    largest = max((one["bytes"] for one in found), default=1)
    print_table(
        ["column", "encoding", "bytes", "read ms", "size"],
        [
            [
                one["column"],
                one["encoding"] + (" *" if one["smallest"] else ""),
                human_bytes(one["bytes"]),
                f"{one['read_ms']:.2f}",
                "█" * round(BAR * one["bytes"] / largest),
            ]
            for one in found
        ],
    )
    say(
        "* the smallest of the column; bytes and times are of the first "
        f"{len(table):,} of {number_of(at.count_rows(), 'row')}"
    )


def _tried(
    column: pa.Table, encoding: str, options: dict[str, Any], folder: Path
) -> dict[str, Any] | None:
    """Bytes and time of one column with one encoding; None if the column cannot have it."""
    from glaive.errors import GlaiveError
    from glaive.file import LanceFileReader, LanceFileWriter

    (name,) = column.schema.names
    path = folder / "column.lance"
    try:
        given = {name: options} if options else None
        with LanceFileWriter(path, column.schema, encoding_options=given) as writer:
            writer.write_batch(column)
    except GlaiveError:
        return None
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        LanceFileReader(path).read_all(batch_size=65_536).to_table()
        seconds.append(time.perf_counter() - start)
    return {
        "column": name,
        "encoding": encoding,
        "bytes": path.stat().st_size,
        "read_ms": round(min(seconds) * 1000, 3),
    }
