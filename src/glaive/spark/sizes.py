"""The size of a frame, estimated on the driver from the manifest: for tasks and for joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from glaive.format.field import BLOB
from glaive.spark.frame import frame_schema
from glaive.spark.options import Options
from glaive.spark.plan import FragmentSize, row_bytes

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["fragment_sizes", "frame_bytes", "frame_row_bytes"]

BLOB_BYTES = 256 << 10
"""Estimate for a blob, whose size the manifest does not tell."""


def fragment_sizes(dataset: LanceDataset) -> list[FragmentSize]:
    """Return the rows of all fragments according to the manifest, in order."""
    ids, rows = dataset.manifest.fragment_ids, dataset.snapshot.live_counts
    return list(map(FragmentSize, ids.tolist(), rows.tolist()))


def frame_row_bytes(dataset: LanceDataset, options: Options, names: Sequence[str]) -> float:
    """Estimate the bytes in memory of a row of some columns of the frame."""
    available = frame_schema(dataset, options)
    chosen = pa.schema([available.field(name) for name in names])
    blobs = 0
    if options.blobs == "bytes":
        blobs = sum(
            BLOB in field.metadata or field.is_blob_v2 for field in dataset.lance_schema.fields
        )
    stored = dataset.scanner().projected_schema
    rows, file_bytes = dataset.count_rows(), dataset.manifest.stated.file_bytes
    return row_bytes(chosen, stored, rows, file_bytes) + blobs * BLOB_BYTES


def frame_bytes(dataset: LanceDataset, options: Options) -> float:
    """Estimate the bytes in memory of a whole frame, as if all rows passed its filter."""
    rows = dataset.count_rows()
    if options.limit is not None:
        rows = min(rows, options.limit)
    return rows * frame_row_bytes(dataset, options, frame_schema(dataset, options).names)
