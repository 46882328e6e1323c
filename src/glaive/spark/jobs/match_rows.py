"""Tasks that find the rows of a table with a key of a merge's source.

They look the keys up while key columns are decoded, by statistics and indices where there are
some, so that only rows that match pass through Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.merging.matches import Matches, SourceKeys, find_matches
from glaive.dataset.merging.old_values import OldValues
from glaive.dataset.tasks import FragmentRange
from glaive.scan.metrics import Meter
from glaive.spark.cast import conform
from glaive.spark.jobs.merge_rows import ADDRESS, ROW_ID

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.version import OpenedVersion

__all__ = ["MatchTask"]

_BATCH_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class MatchTask:
    """Find the rows of some fragments that have a key of the source; can be pickled.

    Parameters
    ----------
    fragments
        Where to look.
    schema
        Of the rows: columns of the table, :data:`ADDRESS`, perhaps :data:`ROW_ID`.
    """

    fragments: FragmentRange
    schema: pa.Schema

    def rows(self, dataset: LanceDataset, shared: pa.Table) -> Iterator[pa.RecordBatch]:
        """The matching rows; ``shared`` has the keys, in columns with the names of the table's.

        Memory: the keys, and 24 bytes per match.
        """
        opened = self.fragments.opened(dataset)
        columns = [column.combine_chunks() for column in shared.columns]
        keys = SourceKeys(shared.column_names, columns)
        ids = self.fragments.ids(opened)
        found = find_matches(opened, keys, Meter(), fragments=ids)
        for start in range(0, len(found.source), _BATCH_ROWS):
            part = found.only(slice(start, start + _BATCH_ROWS))
            yield self._batch(opened, keys, part)

    def _batch(self, opened: OpenedVersion, keys: SourceKeys, part: Matches) -> pa.RecordBatch:
        """Rows with equal keys have the values of the source in these columns; others are read."""
        given = dict(zip(keys.names, keys.columns, strict=True))
        rows: Any = pa.array(part.source)
        arrays = {name: column.take(rows) for name, column in given.items()}
        others = [n for n in self.schema.names if n not in (*given, ADDRESS, ROW_ID)]
        if others:
            read = OldValues(opened, others).take(part.addresses)
            arrays |= {name: read.column(name).combine_chunks() for name in others}
        arrays[ADDRESS] = pa.array(part.addresses.view(np.int64))
        arrays[ROW_ID] = pa.array(part.ids.view(np.int64))
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
        return conform(batch, self.schema, writing=False)
