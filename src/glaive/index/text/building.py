"""Build partitions of documents within a limit of memory.

Specification: "Building" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyroaring import BitMap

from glaive.index.segment import SegmentWriter
from glaive.index.source import IndexSource, ValueBatch
from glaive.index.text.collecting import Collector
from glaive.index.text.documents import documents_of
from glaive.index.text.partition_write import write_partition
from glaive.index.text.text_format import TextFormat
from glaive.index.text.tokenizers.tokenizer import Tokenizer

__all__ = ["METADATA", "build_partitions", "write_metadata"]

METADATA = "metadata.lance"
_IGNORED = "deleted_fragments"

_TEXT_BYTES = 4 << 20
"""Bytes of text that are tokenized at a time, or one document."""


def build_partitions(
    source: IndexSource, form: TextFormat, out: SegmentWriter, first: int = 0
) -> list[int]:
    """Write partitions with the rows of a source, numbered from ``first`` on; their numbers.

    There is one, unless that would need more memory than the source allows, and none
    without documents.
    """
    tokenizer = Tokenizer.of(form.params)
    numbers: list[int] = []
    collector = Collector(tokenizer, form)
    for part in _parts(source):
        if collector.nbytes > source.memory_limit // 2 and collector.documents:
            numbers.append(first + len(numbers))
            write_partition(out, numbers[-1], collector.content(), form)
            collector = Collector(tokenizer, form)
        collector.add(documents_of(part, by_element=form.by_element))
    if collector.documents:
        numbers.append(first + len(numbers))
        write_partition(out, numbers[-1], collector.content(), form)
    return numbers


def write_metadata(out: SegmentWriter, form: TextFormat, partitions: list[int]) -> None:
    """Write how the index was made; last, because an index without it is none."""
    schema = pa.schema([pa.field(_IGNORED, pa.binary(), nullable=False)])
    ignored = pa.table([pa.array([BitMap().serialize()], pa.binary())], schema=schema)
    out.write(METADATA, ignored, metadata=form.metadata(partitions))


def _parts(source: IndexSource) -> Iterator[ValueBatch]:
    """The rows of a source, a few MiB of text at a time."""
    for batch in source.batches():
        count = len(batch.values)
        size = max(1, batch.values.nbytes)
        step = max(1, count * _TEXT_BYTES // size) if size > _TEXT_BYTES else max(1, count)
        for start in range(0, count, step):
            stop = min(count, start + step)
            yield ValueBatch(batch.values.slice(start, stop - start), batch.rows[start:stop])
