"""Read a plan into a table: column by column and page by page, each page once.

The pages become the chunks of its columns, so that those which need no decoding are views of
the file.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from glaive.scan.plan import plan_scan
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import plan_parts
from glaive.scan.views import BoundProjection

__all__ = ["as_table", "read_table"]


def read_table(run: ScanRun) -> pa.Table:
    """The whole result as a table; its chunks are pages, or windows of fetched files."""
    plan = plan_scan(run.source.snapshot, run.options)
    if not run.source.projection.outputs:
        return run.source.rows_alone(plan.rows)
    chunks: list[list[pa.Array]] = [[] for _ in run.source.schema]
    for part in plan_parts(run, plan.ranges):
        for at, arrays in part.columns(run):
            chunks[at] += [array for array in arrays if len(array)]
    return as_table(run.source, chunks)


def as_table(source: BoundProjection, chunks: Sequence[Sequence[pa.Array]]) -> pa.Table:
    """A table of the chunks of each column; without any, one without rows."""
    if not chunks:
        return source.empty()
    columns = [
        pa.chunked_array(list(arrays), field.type)
        for arrays, field in zip(chunks, source.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=source.schema)
