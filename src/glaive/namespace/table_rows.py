"""Rows of the tables of a directory namespace: counted, queried, inserted, merged, changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import lance_namespace as interface
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.arrow.dictionaries import has_dictionary
from glaive.arrow.invalid_values import check_arrays
from glaive.namespace.errors import InvalidInputError, as_namespace_errors
from glaive.namespace.identifiers import id_of, mode_of, text_of, value

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["TableRows", "read_rows"]

_SEARCH = {
    "distance_type": "metric",
    "refine_factor": "refine_factor",
    "minimum_nprobes": "minimum_nprobes",
    "maximum_nprobes": "maximum_nprobes",
    "nprobes": "nprobes",
    "ef": "ef",
}
"""Fields of a query, and what the options of a search call them."""

_MOST_ROWS = 1 << 32
"""Rows that are inserted by one request."""


class TableRows(ABC):
    """Operations on rows; a part of :class:`DirectoryNamespace`. All but queries commit."""

    @abstractmethod
    def _open(self, request: object) -> LanceDataset:
        """Implemented by the namespace of which this is a part."""

    def count_table_rows(self, request: Any) -> interface.CountTableRowsResponse:
        """The number of rows, or of those that a predicate is true for."""
        with as_namespace_errors(_name(request)):
            rows = self._open(request).count_rows(value(request, "predicate"))
        return interface.CountTableRowsResponse(count=rows)

    def insert_into_table(
        self, request: Any, request_data: bytes
    ) -> interface.InsertIntoTableResponse:
        """Append the rows of an Arrow IPC stream, or replace all rows by them.

        A table that was declared is created.
        """
        mode = mode_of(request, "append", "overwrite")
        rows = read_rows(request_data).read_all()
        with as_namespace_errors(_name(request)):
            written = self._insert(request, rows.to_reader(), mode)
        return interface.InsertIntoTableResponse(
            num_inserted_rows=rows.num_rows, version=written.version
        )

    @abstractmethod
    def _insert(self, request: object, reader: Any, mode: Any) -> LanceDataset:
        """Implemented by the namespace of which this is a part."""

    def merge_insert_into_table(
        self, request: Any, request_data: bytes
    ) -> interface.MergeInsertIntoTableResponse:
        """Merge the rows of an Arrow IPC stream by keys."""
        keys = value(request, "on")
        if not keys:
            raise InvalidInputError("on: merge_insert_into_table needs the key columns")
        if isinstance(keys, str):  # the REST interface has one key as text
            keys = [keys]
        reader = read_rows(request_data)
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            merge = opened.merge_insert(list(keys))
            if value(request, "when_matched_update_all"):
                merge = merge.when_matched_update_all(
                    value(request, "when_matched_update_all_filt")
                )
            if value(request, "when_not_matched_insert_all"):
                merge = merge.when_not_matched_insert_all()
            if value(request, "when_not_matched_by_source_delete"):
                merge = merge.when_not_matched_by_source_delete(
                    value(request, "when_not_matched_by_source_delete_filt")
                )
            counts = merge.execute(reader)
        return interface.MergeInsertIntoTableResponse(
            num_updated_rows=counts["num_updated_rows"],
            num_inserted_rows=counts["num_inserted_rows"],
            num_deleted_rows=counts["num_deleted_rows"],
            version=opened.version,
        )

    def update_table(self, request: Any) -> interface.UpdateTableResponse:
        """Set columns to expressions over the old values, where a predicate is true."""
        updates: dict[str, str] = dict(value(request, "updates", []))
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            counts = opened.update(updates, value(request, "predicate"))
        return interface.UpdateTableResponse(
            updated_rows=counts["num_rows_updated"], version=opened.version
        )

    def delete_from_table(self, request: Any) -> interface.DeleteFromTableResponse:
        """Delete the rows that a predicate is true for."""
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            opened.delete(value(request, "predicate", ""))
        return interface.DeleteFromTableResponse(version=opened.version)

    def query_table(self, request: Any) -> interface.QueryTableResponse:
        """Rows that pass a filter, or are nearest, or whose text matches: an Arrow IPC file."""
        with as_namespace_errors(_name(request)):
            rows = _with_one_dictionary(self._open(request).to_table(**_scan_of(request)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return interface.QueryTableResponse(data=sink.getvalue().to_pybytes())

    def explain_table_query_plan(self, request: Any) -> str:
        """What a query would read."""
        with as_namespace_errors(_name(request)):
            scan = self._open(request).scanner(**_scan_of(value(request, "query")))
            return scan.explain_plan(bool(value(request, "verbose", False)))

    def analyze_table_query_plan(self, request: Any) -> str:
        """Run a query and say what it read."""
        with as_namespace_errors(_name(request)):
            return self._open(request).scanner(**_scan_of(request)).analyze_plan()


def read_rows(data: bytes) -> pa.RecordBatchReader:
    """The rows of an Arrow IPC stream or file.

    Raises
    ------
    InvalidInputError
        The bytes are neither.
    """
    try:
        whole = bytes(data[:6]) == b"ARROW1"
        table = (pa.ipc.open_file if whole else pa.ipc.open_stream)(data).read_all()
        if table.num_rows > _MOST_ROWS:  # nulls take no bytes
            raise InvalidInputError(
                f"request_data: {table.num_rows} rows, at most {_MOST_ROWS} are taken at once"
            )
        check_arrays(table)
    except (pa.ArrowException, OSError, TypeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"request_data: expected an Arrow IPC stream: {error}") from None
    return table.to_reader()


def _with_one_dictionary(rows: pa.Table) -> pa.Table:
    """The rows with one dictionary for each column: a file of Arrow has no more."""
    for at, field in enumerate(rows.schema):
        if has_dictionary(field.type):
            rows = rows.set_column(at, field, one_array(rows.column(at)))
    return rows


def _name(request: object) -> str:
    return f"table {text_of(id_of(request, of_table=True))}"


def _scan_of(query: object) -> dict[str, Any]:
    """Options of a scan, from a query of the interface."""
    options: dict[str, Any] = {"filter": value(query, "filter")}
    columns = value(query, "columns")
    if columns is not None:
        names = value(columns, "column_names")
        options["columns"] = names if names is not None else value(columns, "column_aliases")
        if isinstance(columns, list):  # as the interface had it before
            options["columns"] = columns
    if value(query, "offset"):
        options["offset"] = value(query, "offset")
    options["with_row_id"] = bool(value(query, "with_row_id", False))
    vector = _vector_of(query)
    if vector is not None:
        nearest = {"q": vector, "k": value(query, "k", 10)}
        nearest |= {
            mine: value(query, theirs)
            for theirs, mine in _SEARCH.items()
            if value(query, theirs) is not None
        }
        column = value(query, "vector_column")
        if column is None:
            raise InvalidInputError("vector_column: a search for vectors needs their column")
        nearest["column"] = column
        bounds = value(query, "lower_bound"), value(query, "upper_bound")
        if any(bound is not None for bound in bounds):
            nearest["distance_range"] = bounds
        if value(query, "bypass_vector_index"):
            nearest["use_index"] = False
        options["nearest"] = nearest
    elif value(query, "k"):
        options["limit"] = value(query, "k")
    text = _text_query(value(query, "full_text_query"))
    if text is not None:
        options["full_text_query"] = text
    if vector is not None or text is not None:
        options["prefilter"] = value(query, "prefilter", True)
        options["fast_search"] = bool(value(query, "fast_search", False))
    return options


def _vector_of(query: object) -> Any:
    vector = value(query, "vector")
    if vector is None or isinstance(vector, list):
        return vector or None
    if value(vector, "multi_vector"):
        return value(vector, "multi_vector")
    return value(vector, "single_vector") or None


def _text_query(query: object) -> Any:
    if query is None:
        return None
    text = value(query, "string_query")
    if text is None:
        raise InvalidInputError(
            "full_text_query: only string_query is supported here. Open the table and pass a query "
            "of glaive.query to scanner(full_text_query=…)"
        )
    found = {"query": value(text, "query", ""), "columns": value(text, "columns")}
    return {key: part for key, part in found.items() if part is not None}
