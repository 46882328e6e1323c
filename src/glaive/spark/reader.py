"""Read a dataset in Spark tasks: plan on the driver, record batches in the workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from glaive.arrow.capacity import batch_parts
from glaive.errors import FilterError
from glaive.spark.cast import conform
from glaive.spark.frame import frame_schema, open_dataset, places
from glaive.spark.options import Options
from glaive.spark.plan import FragmentSize, Part, batch_rows, row_bytes, split
from glaive.spark.types import as_spark_sends

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["LancePartition", "LanceReader", "PushingReader", "fragment_sizes"]

_log = logging.getLogger(__name__)

LARGEST_BATCH = 256 << 20
"""Bytes at which a batch is cut in two: Spark counts the bytes of a column in 31 bits."""


class LancePartition(InputPartition):
    """What one task reads, in plain numbers: rows per batch, fragments, and which of their rows."""

    def __init__(self, batch_size: int, part: Part) -> None:
        super().__init__((batch_size, *part))


class LanceReader(DataSourceReader):
    """Reads some columns and rows of one version of a dataset.

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
        self.pushed: tuple[str, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts to read; none for an empty dataset, or a filter no row can pass."""
        dataset = open_dataset(self.options)
        if self._matches_nothing(dataset):
            return []
        sizes = fragment_sizes(dataset)
        shown = frame_schema(dataset, self.options)
        chosen = pa.schema([shown.field(name) for name in self.schema.names])
        width = row_bytes(chosen, dataset.scanner().projected_schema, sizes)
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
            columns=self._columns(),
            filter=self.filter,
            fragments=fragments,
            range_before=(offset, offset + rows),
            batch_size=batch_size,
        )
        truncate = self.options.allow_truncation
        cast = partial(conform, schema=expected, allow_truncation=truncate, writing=False)
        for batch in scanner.to_batches():
            for piece in _pieces(batch):
                yield from batch_parts(cast, piece)

    @property
    def filter(self) -> str | None:
        """What rows must pass: the filter of the options, and those that Spark gave away."""
        given = () if self.options.filter is None else (self.options.filter,)
        return _both((*given, *self.pushed))

    def _columns(self) -> list[str] | dict[str, str]:
        """The columns of the schema, as a scan takes them."""
        computed = self.options.columns
        if not isinstance(computed, Mapping):
            return list(self.schema.names)
        return {name: computed.get(name, f"`{name}`") for name in self.schema.names}

    def _matches_nothing(self, dataset: LanceDataset) -> bool:
        from glaive.expr.filters import bind_filter
        from glaive.scan.system_columns import SYSTEM_COLUMNS

        text = self.filter
        if text is None:
            return False
        return bind_filter(text, dataset.lance_schema, system=SYSTEM_COLUMNS).never


class PushingReader(LanceReader):
    """Takes filters over from Spark.

    A class of its own: Spark refuses to read through one that can, where the session does not
    have ``spark.sql.python.filterPushdown.enabled``. And only on request: Spark 4.3 keeps what
    a reader planned for one query over a frame for all queries over it, whatever their filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Keep the filters that give the very rows they would in Spark; return the others."""
        from glaive.spark.filters import MOST_TEXT, Frame, push

        dataset = open_dataset(self.options)
        frame = Frame(
            self.schema,
            places(dataset, self.options),
            dataset.lance_schema,
            dataset.scanner().projected_schema,
        )
        room = MOST_TEXT - len(self.options.filter or "")
        pushed = push(filters, frame, room)
        self.pushed = pushed.texts
        try:
            self._matches_nothing(dataset)
        except FilterError as error:  # too deep or too large together with that of the options
            _log.debug("all filters are left to Spark: %s", error)
            self.pushed = ()
            return filters
        return pushed.rest


def _both(texts: Sequence[str]) -> str | None:
    """One filter of several; each stands for itself, whatever operators it has."""
    if len(texts) < 2:
        return texts[0] if texts else None
    from glaive.expr.parse import parse
    from glaive.expr.render import render
    from glaive.expr.tree import both

    return render(both(*map(parse, texts)))


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
