"""The function that searches the rows nearest to each query of a frame, in workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.spark.cast import conform
from glaive.spark.jobs.worker import loads, opened_dataset
from glaive.spark.release import check_release

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["SearchedTexts", "SearchedVectors", "search_function", "take_function"]

Batches = Iterator[pa.RecordBatch]

_QUERIES = 1024
"""Queries of one search, at most."""
_NUMBER = "query_index"
"""The column of a search with the number of each row's query."""


@dataclass(frozen=True)
class SearchedVectors:
    """Find the nearest rows of vectors.

    Parameters
    ----------
    queries
        Column of the frame with the vectors.
    column, k
        The column that is searched, and the rows for each query.
    columns
        Columns of the dataset in the result.
    parameters
        Of the search, such as ``nprobes``.
    filter
        Which rows may be found.
    """

    score: ClassVar = "_distance"
    """The last column of the result."""

    queries: str
    column: str
    k: int
    columns: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    filter: str | None = None

    def found(self, dataset: LanceDataset, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Queries with a vector, one for each row found; and these rows."""
        at: Any
        batch = batch.filter(pc.is_valid(batch.column(self.queries)))
        vectors: Any = batch.column(self.queries)
        if not batch.num_rows:
            return batch, None
        lengths = pc.unique(pc.list_value_length(vectors)).to_pylist()
        if len(lengths) > 1:
            raise OptionError(
                f"column {self.queries!r}: expected vectors of one length, found {lengths[:5]}"
            )
        if batch.num_rows > 1 and _NUMBER in self.columns:
            alone = [self.found(dataset, batch.slice(at, 1)) for at in range(batch.num_rows)]
            rows = pa.concat_tables([found for _, found in alone])
            at = np.repeat(np.arange(batch.num_rows), [len(found) for _, found in alone])
            return batch.take(pa.array(at)), rows
        values = vectors.flatten().to_numpy(zero_copy_only=False)
        matrix = values.reshape(batch.num_rows, -1)
        # Alone, a query needs no number, which a column of the dataset may have the name of.
        one = len(matrix) == 1
        query = matrix[0] if one else matrix
        nearest = {"column": self.column, "q": query, "k": self.k, **self.parameters}
        rows = dataset.to_table(
            [*self.columns, self.score, *(() if one else (_NUMBER,))],
            nearest=nearest,
            filter=self.filter,
            prefilter=True,
        )
        at = np.zeros(len(rows), np.int64) if one else rows.column(_NUMBER).to_numpy()
        return batch.take(pa.array(at)), rows


@dataclass(frozen=True)
class SearchedTexts:
    """Find the rows whose texts match best; steps from query to query."""

    score: ClassVar = "_score"

    queries: str
    search_in: tuple[str, ...]
    k: int
    columns: tuple[str, ...]
    filter: str | None = None

    def found(self, dataset: LanceDataset, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Queries, one for each row found; and these rows."""
        parts, at = [], []
        for number, query in enumerate(batch.column(self.queries).to_pylist()):
            if query is None:
                continue
            text = {"query": query, "columns": list(self.search_in)}
            rows = dataset.to_table(
                [*self.columns, self.score],
                full_text_query=text,
                limit=self.k,
                filter=self.filter,
                prefilter=True,
            )
            parts.append(rows)
            at.append(np.full(rows.num_rows, number))
        if not parts:
            return batch.slice(0, 0), None
        return batch.take(pa.array(np.concatenate(at))), pa.concat_tables(parts)


def search_function(
    driver: str, dataset: bytes, work: bytes, schema: pa.Schema
) -> Callable[[Batches], Batches]:
    """What workers do with a partition of queries: columns of the query, then of the rows found."""

    def run(batches: Batches) -> Batches:
        check_release(driver)
        search, opened = loads(work), opened_dataset(dataset)
        for batch in batches:
            for start in range(0, batch.num_rows, _QUERIES):
                queries, rows = search.found(opened, batch.slice(start, _QUERIES))
                if rows is None:
                    continue
                names = [*queries.schema.names, *search.columns]
                whole = rows.select([*search.columns, search.score])
                for name in reversed(queries.schema.names):
                    whole = whole.add_column(0, name, queries.column(name))
                whole = whole.rename_columns([*names, search.score])
                for part in whole.to_batches():
                    yield conform(part, schema, writing=False)

    return run


def take_function(
    driver: str, dataset: bytes, columns: tuple[str, ...], schema: pa.Schema
) -> Callable[[Batches], Batches]:
    """What workers do with a partition of row positions: the rows."""

    def run(batches: Batches) -> Batches:
        check_release(driver)
        opened = opened_dataset(dataset)
        for batch in batches:
            rows = opened.take(batch.column(0).to_numpy(), columns=list(columns))
            for part in rows.to_batches():
                yield conform(part, schema, writing=False)

    return run
