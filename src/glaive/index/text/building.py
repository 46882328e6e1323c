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
from glaive.index.text.partition_write import PartitionContent, write_partition
from glaive.index.text.text_format import METADATA, TextFormat
from glaive.index.text.tokenizers.tokenizer import Tokenizer

__all__ = ["build_partitions", "collect_partitions", "write_metadata"]

_IGNORED = "deleted_fragments"

_TEXT_BYTES = 4 << 20
"""Bytes of text that are tokenized at a time, at most, or one document."""

_TEXTS_OF_MEMORY = 32
"""Tokens of a text take several times its memory: so many such texts make up the limit."""


def build_partitions(
    source: IndexSource, form: TextFormat, out: SegmentWriter, first: int = 0
) -> list[int]:
    """Write partitions with the rows of a source; their numbers, from ``first`` on."""
    numbers: list[int] = []
    for content in collect_partitions(source, form):
        numbers.append(first + len(numbers))
        write_partition(out, numbers[-1], content, form)
    return numbers


def collect_partitions(source: IndexSource, form: TextFormat) -> Iterator[PartitionContent]:
    """The rows of a source as partitions.

    There is one, unless that would need more than half the memory that the source allows, and
    none without documents.
    """
    tokenizer = Tokenizer.of(form.params)
    collector = Collector(tokenizer, form)
    for part in _parts(source):
        if collector.nbytes > source.memory_limit // 2 and collector.documents:
            yield collector.content()
            collector = Collector(tokenizer, form)
        collector.add(documents_of(part, by_element=form.by_element))
    if collector.documents:
        yield collector.content()


def write_metadata(
    out: SegmentWriter, form: TextFormat, partitions: list[int], name: str = METADATA
) -> None:
    """Write how the index was made; last, because an index without it is none."""
    schema = pa.schema([pa.field(_IGNORED, pa.binary(), nullable=False)])
    ignored = pa.table([pa.array([BitMap().serialize()], pa.binary())], schema=schema)
    out.write(name, ignored, metadata=form.metadata(partitions))


def _parts(source: IndexSource) -> Iterator[ValueBatch]:
    """The rows of a source, little text at a time."""
    limit = max(1024, min(_TEXT_BYTES, source.memory_limit // _TEXTS_OF_MEMORY))
    for batch in source.batches():
        count = len(batch.values)
        step = max(1, count * limit // max(limit, batch.values.nbytes))
        for start in range(0, count, step):
            stop = min(count, start + step)
            yield ValueBatch(batch.values.slice(start, stop - start), batch.rows[start:stop])
