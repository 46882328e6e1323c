"""Read a dataset in Spark tasks: plan on the driver, record batches in the workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from glaive.spark.cast import conform
from glaive.spark.options import Options
from glaive.spark.plan import FragmentSize, Part, batch_rows, row_bytes, split
from glaive.spark.types import as_spark_sends

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["LancePartition", "LanceReader", "fragment_sizes", "open_dataset", "readable_schema"]

LARGEST_BATCH = 256 << 20
"""Bytes at which a batch is cut in two: Spark counts the bytes of a column in 31 bits."""


class LancePartition(InputPartition):
    """What one task reads, in plain numbers: rows per batch, fragments, and which of their rows."""

    def __init__(self, batch_size: int, part: Part) -> None:
        super().__init__((batch_size, *part))


class LanceReader(DataSourceReader):
    """Reads some columns of one version of a dataset.

    Travels to the tasks pickled, so it holds settings only; each task opens the dataset itself.

    Parameters
    ----------
    options
        With the version pinned.
    schema
        What Spark expects: the columns to read, by name, and their types.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts to read; none for an empty dataset."""
        dataset = open_dataset(self.options)
        sizes = fragment_sizes(dataset)
        width = row_bytes(self._columns_of(dataset), readable_schema(dataset), sizes)
        parts = split(
            sizes,
            width,
            split_bytes=self.options.split_bytes,
            parallelism=self.options.parallelism,
        )
        batch_size = self.options.batch_size or batch_rows(width)
        return [LancePartition(batch_size, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in order, as batches of exactly the schema Spark expects."""
        if partition.value is None:  # Spark's stand-in where there was nothing to plan
            return
        dataset = open_dataset(self.options)
        expected = as_spark_sends(self.schema)
        batch_size, fragments, offset, rows = partition.value
        scanner = dataset.scanner(
            columns=self.schema.names,
            fragments=fragments,
            offset=offset,
            limit=rows,
            batch_size=batch_size,
        )
        for batch in scanner.to_batches():
            for piece in _pieces(batch):
                yield conform(
                    piece,
                    expected,
                    allow_truncation=self.options.allow_truncation,
                    writing=False,
                )

    def _columns_of(self, dataset: LanceDataset) -> pa.Schema:
        schema = readable_schema(dataset)
        return pa.schema([schema.field(name) for name in self.schema.names])


def open_dataset(options: Options) -> LanceDataset:
    """Open the dataset the options name, at their version."""
    from glaive.dataset.open import dataset

    return dataset(
        options.uri,
        version=options.version,
        storage_options=dict(options.storage) or None,
    )


def readable_schema(dataset: LanceDataset) -> pa.Schema:
    """Return the columns as a scan gives them: blobs as where their values are."""
    return dataset.scanner().projected_schema


def fragment_sizes(dataset: LanceDataset) -> list[FragmentSize]:
    """Return rows and file bytes of all fragments, as the manifest tells them."""
    manifest = dataset.manifest
    file_bytes = [
        sum(file.size or 0 for file in fragment.files) for fragment in manifest.fragments()
    ]
    return [
        FragmentSize(*facts)
        for facts in zip(
            manifest.fragment_ids.tolist(),
            dataset.snapshot.live_counts.tolist(),
            file_bytes,
            strict=True,
        )
    ]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= LARGEST_BATCH or batch.num_rows <= 1:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
