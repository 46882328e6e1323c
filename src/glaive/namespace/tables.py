"""Operations on the tables of a directory namespace: rows, columns, indices, tags, versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, get_args

import lance_namespace as interface
import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import has_dictionary, one_array
from glaive.dataset.keywords import ScalarKeywords, VectorKeywords
from glaive.errors import (
    CorruptFileError,
    FormatError,
    GlaiveError,
    ObjectExistsError,
    ObjectNotFoundError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.format.extension import json_to_schema, schema_to_json
from glaive.format.paths import (
    DETACHED,
    VERSIONS,
    NamingScheme,
    is_staged_manifest_name,
    manifest_path,
)
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.namespace import folders
from glaive.namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
    UnsupportedOperationError,
    as_namespace_errors,
)
from glaive.namespace.folders import id_of, index_name_of, mode_of, page_of, text_of, value
from glaive.table.manifest_registers import manifest_key
from glaive.table.manifest_steps import refuse_others
from glaive.table.refs import MAIN, TREE, is_branch_name
from glaive.table.root import confine
from glaive.table.versions import ManifestLocation, list_manifests
from glaive.types import integer_of

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.namespace.manifest_table import Place


_OPTIONS: dict[bool, tuple[str, ...]] = {
    True: (
        "num_partitions",
        "num_sub_vectors",
        "target_partition_size",
        *VectorKeywords.__annotations__,
    ),
    False: tuple(ScalarKeywords.__annotations__),
}
"""Options of vector indices (``True``), and of full-text indices."""


class TableOperations(ABC):
    """Operations on tables; a part of :class:`DirectoryNamespace`. All but queries commit."""

    store: ObjectStore

    @abstractmethod
    def _find(self, path: tuple[str, ...]) -> Place:
        """Find the table of an id."""

    @abstractmethod
    def _open(self, request: object) -> LanceDataset:
        """Open the dataset of a request's table."""

    @abstractmethod
    def _insert(self, request: object, reader: Any, mode: Any) -> LanceDataset:
        """Insert rows into a table, which is created if it was only declared."""

    @contextmanager
    def _table(self, request: object) -> Iterator[LanceDataset]:
        """Open a request's table; convert errors in the block to errors of the interface."""
        with as_namespace_errors(_name(request)):
            yield self._open(request)

    # ------------------------------------------------------------ columns

    def alter_table_add_columns(self, request: Any) -> interface.AlterTableAddColumnsResponse:
        """Add columns from SQL expressions."""
        columns: dict[str, str] = {}
        for entry in value(request, "new_columns", []):
            name, expression = value(entry, "name", ""), value(entry, "expression")
            if expression is None:
                raise UnsupportedOperationError(
                    f"new_columns: the column {name!r} has no expression; virtual and computed "
                    "columns are not supported. Give an SQL expression"
                )
            columns[name] = expression
        with self._table(request) as opened:
            if columns:
                opened.add_columns(columns)
        return interface.AlterTableAddColumnsResponse(version=opened.version)

    def alter_table_alter_columns(self, request: Any) -> interface.AlterTableAlterColumnsResponse:
        """Change names, types and nullability of columns."""
        changes = [_alteration(entry) for entry in value(request, "alterations", [])]
        with self._table(request) as opened:
            if changes:
                opened.alter_columns(*changes)
        return interface.AlterTableAlterColumnsResponse(version=opened.version)

    def alter_table_drop_columns(self, request: Any) -> interface.AlterTableDropColumnsResponse:
        """Drop columns."""
        columns = list(value(request, "columns", []))
        with self._table(request) as opened:
            if columns:
                opened.drop_columns(columns)
        return interface.AlterTableDropColumnsResponse(version=opened.version)

    # ------------------------------------------------------------ metadata, versions

    def update_table_schema_metadata(
        self, request: Any
    ) -> interface.UpdateTableSchemaMetadataResponse:
        """Replace the metadata of the schema."""
        with self._table(request) as opened:
            opened.update_schema_metadata(value(request, "metadata", {}), replace=True)
            now = opened.schema_metadata
        return interface.UpdateTableSchemaMetadataResponse(metadata=dict(now))

    def update_field_metadata(self, request: Any) -> interface.UpdateFieldMetadataResponse:
        """Set metadata entries of fields; ``None`` removes an entry. One commit."""
        changes: dict[str, dict[str, str | None]] = {}
        replaced: set[str] = set()
        for entry in value(request, "updates", []):
            path, given = value(entry, "path", ""), dict(value(entry, "metadata", {}))
            if value(entry, "replace", False):
                replaced.add(path)
                changes[path] = given
            else:
                changes[path] = changes.get(path, {}) | given
        with self._table(request) as opened:
            if changes:
                opened.update_field_metadata(changes, replace=replaced)
        return interface.UpdateFieldMetadataResponse(version=opened.version)

    def restore_table(self, request: Any) -> interface.RestoreTableResponse:
        """Make an older version the newest version."""
        with self._table(request) as opened:
            opened.restore()
        return interface.RestoreTableResponse()

    # ------------------------------------------------------------ indices

    def create_table_index(self, request: Any) -> interface.CreateTableIndexResponse:
        """Build a vector index, or an index of another type."""
        self._create_index(request)
        return interface.CreateTableIndexResponse()

    def create_table_scalar_index(self, request: Any) -> interface.CreateTableScalarIndexResponse:
        """Build an index of values or strings."""
        self._create_index(request)
        return interface.CreateTableScalarIndexResponse()

    def _create_index(self, request: object) -> None:
        kind = str(value(request, "index_type", "")).upper()
        of_vectors = kind.startswith("IVF") or kind == "VECTOR"
        names = _OPTIONS[of_vectors] if of_vectors or kind in ("FTS", "INVERTED") else ()
        options: Any = {
            name: given for name in names if (given := value(request, name)) is not None
        }
        with self._table(request) as opened:
            opened.create_index(
                value(request, "column", ""),
                "IVF_PQ" if kind == "VECTOR" else kind,
                name=value(request, "name"),
                metric=value(request, "distance_type", "l2"),
                replace=False,
                **options,
            )

    def drop_table_index(self, request: Any) -> interface.DropTableIndexResponse:
        """Drop an index."""
        with self._table(request) as opened:
            opened.drop_index(index_name_of(request))
        return interface.DropTableIndexResponse()

    # ------------------------------------------------------------ tags and branches

    def create_table_tag(self, request: Any) -> interface.CreateTableTagResponse:
        """Create a tag of a version."""
        with as_namespace_errors(_name(request)):
            self._tagged(request).tags.create(value(request, "tag", ""), _reference(request))
        return interface.CreateTableTagResponse()

    def update_table_tag(self, request: Any) -> interface.UpdateTableTagResponse:
        """Move a tag to another version."""
        with as_namespace_errors(_name(request)):
            self._tagged(request).tags.update(value(request, "tag", ""), _reference(request))
        return interface.UpdateTableTagResponse()

    def delete_table_tag(self, request: Any) -> interface.DeleteTableTagResponse:
        """Delete a tag."""
        with as_namespace_errors(_name(request)):
            self._confined(request).tags.delete(value(request, "tag", ""))
        return interface.DeleteTableTagResponse()

    def create_table_branch(self, request: Any) -> interface.CreateTableBranchResponse:
        """Create a branch from a version."""
        start = value(request, "from_branch"), value(request, "from_version")
        reference: Any = start[1] if start[0] in (None, "main") else start
        name = value(request, "name", "")
        try:
            with as_namespace_errors(_name(request)):
                self._tagged(request).create_branch(name, reference)
        except RefExistsError as error:
            raise TableBranchAlreadyExistsError(str(error)) from error
        return interface.CreateTableBranchResponse()

    def delete_table_branch(self, request: Any) -> interface.DeleteTableBranchResponse:
        """Delete a branch."""
        try:
            with as_namespace_errors(_name(request)):
                self._confined(request).branches.delete(value(request, "name", ""))
        except RefNotFoundError as error:
            raise TableBranchNotFoundError(str(error)) from error
        return interface.DeleteTableBranchResponse()

    def _tagged(self, request: object) -> LanceDataset:
        """Open the newest version of a table: the request's version is the tag's."""
        return self._open({"id": id_of(request, of_table=True)})

    def _confined(self, request: object) -> LanceDataset:
        """Open the newest version of a table to delete its files; refuse symlinks to it."""
        folders.refuse_links(self.store, self._find(id_of(request, of_table=True)).folder)
        dataset = self._tagged(request)
        confine(dataset.opened.store, self.store)
        return dataset

    def _facts(self, opened: LanceDataset) -> dict[str, Any]:
        """Return version, schema and counts of a table for ``describe_table``."""
        stats = opened.stats.dataset_stats()
        metadata = {key: str(text) for key, text in opened.get_version()["metadata"].items()}
        return {
            "version": opened.version,
            "var_schema": schema_to_json(opened.schema),
            "stats": {key: stats[key] for key in ("num_deleted_rows", "num_fragments")},
            "metadata": metadata,
        }

    def get_table_stats(self, request: Any) -> interface.GetTableStatsResponse:
        """Return rows, bytes, indices, and the distribution of the sizes of fragments."""
        with self._table(request) as opened:
            rows = [fragment.count_rows() for fragment in opened.get_fragments()]
            size = sum(field.bytes_on_disk for field in opened.stats.data_stats().fields)
            indices = len(opened.describe_indices())
        lengths = np.asarray(rows or [0], np.int64)
        points = np.percentile(lengths, [25, 50, 75, 99], method="lower").astype(int).tolist()
        summary = dict(zip(("p25", "p50", "p75", "p99"), points, strict=True))
        summary |= {
            "min": int(lengths.min()),
            "max": int(lengths.max()),
            "mean": int(lengths.mean()),
        }
        fragments = {
            "num_fragments": len(rows),
            "num_small_fragments": sum(count < _SMALL_ROWS for count in rows),
            "lengths": summary,
        }
        answer: dict[str, Any] = {
            "total_bytes": size,
            "num_rows": sum(rows),
            "num_indices": indices,
            "fragment_stats": fragments,
        }
        return interface.GetTableStatsResponse(**answer)

    # ------------------------------------------------------------ indices

    def list_table_indices(self, request: Any) -> interface.ListTableIndicesResponse:
        """Return all indices."""
        with self._table(request) as opened:
            rows = opened.count_rows()
            found: list[Any] = [
                {
                    "index_name": index.name,
                    "index_uuid": index.segments[0].uuid,
                    "columns": index.field_names,
                    "status": "SUCCEEDED",
                    "index_type": index.index_type,
                    "type_url": index.type_url,
                    "num_indexed_rows": index.num_rows_indexed,
                    "num_unindexed_rows": max(0, rows - index.num_rows_indexed),
                    "size_bytes": index.total_size_bytes,
                    "num_segments": len(index.segments),
                }
                for index in opened.describe_indices()
            ]
        names, token = page_of([index["index_name"] for index in found], request)
        listed = [index for index in found if index["index_name"] in names]
        return interface.ListTableIndicesResponse(indexes=listed, page_token=token)

    def describe_table_index_stats(self, request: Any) -> interface.DescribeTableIndexStatsResponse:
        """Return the covered and uncovered rows of an index."""
        with self._table(request) as opened:
            stats = opened.stats.index_stats(index_name_of(request), 0)
        names = ("index_type", "num_indexed_rows", "num_unindexed_rows", "num_indices")
        facts: dict[str, Any] = {name: stats.get(name) for name in names}
        return interface.DescribeTableIndexStatsResponse(**facts)

    # ------------------------------------------------------------ tags and branches

    def list_table_tags(self, request: Any) -> interface.ListTableTagsResponse:
        """Return all tags with their versions."""
        with self._table(request) as opened:
            found = opened.tags.list()
        names, token = page_of(sorted(found), request)
        tags: Any = {
            name: {
                "branch": found[name].get("branch"),
                "version": found[name]["version"],
                "manifestSize": found[name].get("manifest_size") or 0,
            }
            for name in names
        }
        return interface.ListTableTagsResponse(tags=tags, page_token=token)

    def get_table_tag_version(self, request: Any) -> interface.GetTableTagVersionResponse:
        """Return the version of a tag."""
        tag = value(request, "tag", "")
        with as_namespace_errors(_name(request)):
            found = self._tagged(request).tags.list()
        if tag not in found:
            raise TableTagNotFoundError(
                f"{_name(request)} has no tag {tag!r:.80}. list_table_tags returns all tags"
            )
        facts: dict[str, Any] = {name: found[tag].get(name) for name in ("version", "branch")}
        return interface.GetTableTagVersionResponse(**facts)

    def list_table_branches(self, request: Any) -> interface.ListTableBranchesResponse:
        """Return all branches with the versions that they began at."""
        with self._table(request) as opened:
            found = opened.branches.list()
        names, token = page_of(sorted(found), request)
        branches: Any = {
            name: {
                "parentBranch": found[name].get("parent_branch"),
                "parentVersion": found[name].get("parent_version") or 0,
                "createAt": int(found[name].get("create_at") or 0),
                "manifestSize": found[name].get("manifest_size") or 0,
            }
            for name in names
        }
        return interface.ListTableBranchesResponse(branches=branches, page_token=token)

    def count_table_rows(self, request: Any) -> interface.CountTableRowsResponse:
        """Count the rows, or the rows for which a predicate is true."""
        with self._table(request) as opened:
            rows = opened.count_rows(value(request, "predicate"))
        return interface.CountTableRowsResponse(count=rows)

    def insert_into_table(
        self, request: Any, request_data: bytes
    ) -> interface.InsertIntoTableResponse:
        """Append the rows of an Arrow IPC stream, or replace all rows.

        A declared table is created.
        """
        mode = mode_of(request, "append", "overwrite")
        rows = read_rows(request_data).read_all()
        with as_namespace_errors(_name(request)):
            written = self._insert(request, rows.to_reader(), mode)
        return interface.InsertIntoTableResponse(
            num_inserted_rows=rows.num_rows, version=written.version
        )

    def merge_insert_into_table(
        self, request: Any, request_data: bytes
    ) -> interface.MergeInsertIntoTableResponse:
        """Merge the rows of an Arrow IPC stream by keys."""
        keys = value(request, "on")
        if not keys:
            raise InvalidInputError("on: merge_insert_into_table needs the key columns")
        if isinstance(keys, str):  # the REST interface has one key as a string
            keys = [keys]
        reader = read_rows(request_data)
        with self._table(request) as opened:
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
        names = ("num_updated_rows", "num_inserted_rows", "num_deleted_rows")
        facts: dict[str, Any] = {name: counts[name] for name in names}
        return interface.MergeInsertIntoTableResponse(version=opened.version, **facts)

    def update_table(self, request: Any) -> interface.UpdateTableResponse:
        """Set columns to expressions over the old values, where a predicate is true."""
        updates: dict[str, str] = dict(value(request, "updates", []))
        with self._table(request) as opened:
            counts = opened.update(updates, value(request, "predicate"))
        return interface.UpdateTableResponse(
            updated_rows=counts["num_rows_updated"], version=opened.version
        )

    def delete_from_table(self, request: Any) -> interface.DeleteFromTableResponse:
        """Delete the rows for which a predicate is true."""
        with self._table(request) as opened:
            opened.delete(value(request, "predicate", ""))
        return interface.DeleteFromTableResponse(version=opened.version)

    def query_table(self, request: Any) -> interface.QueryTableResponse:
        """Return rows that pass a filter, are nearest, or match a text, as an Arrow IPC file."""
        with self._table(request) as opened:
            rows = _with_one_dictionary(opened.to_table(**_scan_of(request)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return interface.QueryTableResponse(data=sink.getvalue().to_pybytes())

    def explain_table_query_plan(self, request: Any) -> str:
        """Return what a query would read."""
        with self._table(request) as opened:
            scan = opened.scanner(**_scan_of(value(request, "query")))
            return scan.explain_plan(bool(value(request, "verbose", False)))

    def analyze_table_query_plan(self, request: Any) -> str:
        """Run a query and return what it read."""
        with self._table(request) as opened:
            return opened.scanner(**_scan_of(request)).analyze_plan()

    def list_table_versions(self, request: Any) -> interface.ListTableVersionsResponse:
        """Return a table's versions, oldest first; newest with ``descending``. One listing."""
        table = self._version_root(request)
        found = _manifests(table)
        if value(request, "descending", False):
            found.reverse()
        by_number = {str(one[0].version): one for one in found}
        after = value(request, "page_token")
        if after is not None and str(after) not in by_number:
            raise InvalidInputError(f"page_token: no version {after!r:.40}")
        page, token = page_of(list(by_number), request)
        versions: list[Any] = [_described(table, *by_number[number]) for number in page]
        return interface.ListTableVersionsResponse(versions=versions, page_token=token)

    def describe_table_version(self, request: Any) -> Any:
        """Return a version; default: the newest.

        Cost: one listing for the newest version. A version by number costs one request, two with V1
        names of manifests. It avoids a listing, which may be stale: clients check in this way
        whether their commit exists.
        """
        table = self._version_root(request)
        wanted = value(request, "version")
        found = _manifests(table)[-1:] if wanted is None else _named(table, wanted)
        for at, meta in found:
            return _answer("DescribeTableVersionResponse", request, _described(table, at, meta))
        raise TableVersionNotFoundError(
            f"Table version not found: version {wanted} of {text_of(id_of(request))}"
        )

    def create_table_version(self, request: Any) -> Any:
        """Give a version number to a manifest that a client has staged.

        Raises
        ------
        ConcurrentModificationError
            The number is taken.
        InvalidInputError
            The staged manifest is missing or empty, or belongs to another table.
        """
        table = self._version_root(request)
        version, scheme = value(request, "version"), value(request, "naming_scheme", "V2")
        if not isinstance(version, int) or not 0 < version < 1 << 63:
            raise InvalidInputError(f"version: expected a number above 0, found {version!r:.60}")
        if scheme not in get_args(NamingScheme):
            raise InvalidInputError(f"naming_scheme: expected V1 or V2, found {scheme!r:.60}")
        staged = str(value(request, "manifest_path", ""))
        folder, _, name = staged.rpartition("/")
        path = f"{VERSIONS}/{name}"
        if not is_staged_manifest_name(name) or not manifest_key(table.uri, VERSIONS).endswith(
            folder.lstrip("/")
        ):
            raise InvalidInputError(
                f"manifest_path {staged!r:.200}: expected a staged manifest below "
                f"{table.full(VERSIONS)}"
            )
        final = manifest_path(version, scheme)
        with as_namespace_errors(f"version {version} of {text_of(id_of(request))}"):
            self._promote(table, path, final, version)
            meta = table.head(final)
        at = ManifestLocation(version, final, scheme, meta.size)
        return _answer("CreateTableVersionResponse", request, _described(table, at, meta))

    @staticmethod
    def _promote(table: ObjectStore, staged: str, final: str, version: int) -> None:
        try:
            data = table.get(staged)
        except ObjectNotFoundError:
            raise InvalidInputError(
                f"Staging manifest not found at {table.full(staged)}. Write it first"
            ) from None
        if not 0 < data.size <= _MAX_MANIFEST_BYTES:
            raise InvalidInputError(f"{table.full(staged)}: a manifest of {data.size} bytes")
        try:
            refuse_others(data, version, table.full(staged))
        except FormatError as error:
            raise InvalidInputError(f"no manifest of version {version}: {error}") from None
        try:
            table.put(final, [data], mode="create")
        except ObjectExistsError:
            table.discard([staged], own=False)
            raise ConcurrentModificationError(
                f"Concurrent modification: version {version} of {table.uri} exists already. Read "
                "it, and commit the next one"
            ) from None
        table.discard([staged], own=False)  # the folder may be a symlink to another table's

    def batch_delete_table_versions(self, request: Any) -> Any:
        """Delete the manifests of ranges of versions; a range excludes its last number.

        Ranges of a clean-up exclude the newest version of a table in use.
        """
        table = self._version_root(request)
        ranges = value(request, "ranges")
        if ranges is None:
            raise InvalidInputError("ranges: batch_delete_table_versions needs them")
        bounds = [(value(one, "start_version"), value(one, "end_version")) for one in ranges]
        removed = [
            at.path
            for at, _ in _manifests(table)
            if any(start <= at.version and (at.version < end or end < 0) for start, end in bounds)
        ]
        with as_namespace_errors(f"table {text_of(id_of(request))}"):
            table.delete(removed)
        return _answer("BatchDeleteTableVersionsResponse", request, len(removed), "deleted_count")

    def _version_root(self, request: object) -> ObjectStore:
        branch = value(request, "branch")
        found = self._find(id_of(request, of_table=True))
        if branch in (None, MAIN):
            return folders.open_folder(self.store, found.folder)
        if not is_branch_name(branch):
            raise InvalidInputError(f"branch: {branch!r:.100} is not a valid branch name")
        return folders.open_folder(self.store, f"{found.folder}/{TREE}/{branch}")


def _name(request: object) -> str:
    return f"table {text_of(id_of(request, of_table=True))}"


def _reference(request: object) -> Any:
    branch, version = value(request, "branch"), value(request, "version")
    return version if branch in (None, "main") else (branch, version)


def _alteration(entry: object) -> dict[str, Any]:
    change: dict[str, Any] = {"path": value(entry, "path", "")}
    if value(entry, "virtual_column") is not None:
        raise UnsupportedOperationError("alterations: virtual columns are not supported")
    if value(entry, "rename") is not None:
        change["name"] = value(entry, "rename")
    if value(entry, "nullable") is not None:
        change["nullable"] = value(entry, "nullable")
    kind = value(entry, "data_type")
    if kind is not None:
        described = kind if isinstance(kind, dict) else {"type": kind}
        field = {"name": "x", "nullable": True, "type": described}
        try:
            change["data_type"] = json_to_schema({"fields": [field]}).field(0).type
        except CorruptFileError as error:  # of the request
            raise InvalidInputError(
                f"alterations, data_type: expected {error.expected}, found {error.found}"
            ) from None
        except GlaiveError as error:
            raise InvalidInputError(f"alterations, data_type: {error}") from None
    return change


# --- Facts about tables of a directory namespace: schema, counts, indices, tags, branches

_SMALL_ROWS = 100_000
"""Rows below which a fragment counts as small, as in pylance."""


# --- Rows of tables of a directory namespace: count, query, insert, merge, change ---------

_SEARCH = ("refine_factor", "minimum_nprobes", "maximum_nprobes", "nprobes", "ef")
"""Fields of a query that are options of a search, with the same names."""

_MAX_ROWS = 1 << 32
"""Most rows to insert with one request."""


def read_rows(data: bytes) -> pa.RecordBatchReader:
    """Read the rows of an Arrow IPC stream or file.

    Raises
    ------
    InvalidInputError
        The bytes are something else.
    """
    try:
        whole = bytes(data[:6]) == b"ARROW1"
        table = (pa.ipc.open_file if whole else pa.ipc.open_stream)(data).read_all()
        if table.num_rows > _MAX_ROWS:  # nulls take no bytes
            raise InvalidInputError(
                f"request_data: {table.num_rows} rows, at most {_MAX_ROWS} are taken at once"
            )
        table.validate(full=True)
    except (pa.ArrowException, OSError, TypeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"request_data: expected an Arrow IPC stream: {error}") from None
    return table.to_reader()


def _with_one_dictionary(rows: pa.Table) -> pa.Table:
    """Return the rows with one dictionary for each column, as Arrow files require."""
    for at, field in enumerate(rows.schema):
        if has_dictionary(field.type):
            rows = rows.set_column(at, field, one_array(rows.column(at)))
    return rows


def _scan_of(query: object) -> dict[str, Any]:
    """Return the options of a scan for a query of the interface."""
    options: dict[str, Any] = {"filter": value(query, "filter")}
    columns = value(query, "columns")
    if columns is not None:
        names = value(columns, "column_names")
        options["columns"] = names if names is not None else value(columns, "column_aliases")
        if isinstance(columns, list):  # as in older versions of the interface
            options["columns"] = columns
    if value(query, "offset"):
        options["offset"] = value(query, "offset")
    options["with_row_id"] = bool(value(query, "with_row_id", False))
    vector = _vector_of(query)
    if vector is not None:
        nearest = {"q": vector, "k": value(query, "k", 10)}
        nearest |= {name: value(query, name) for name in _SEARCH}
        nearest["metric"] = value(query, "distance_type")
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


# --- Versions of tables of a directory namespace: clients may commit through it -----------
# A client writes a manifest under a name of its own and asks for a version number. The first client
# that asks for a number gets it. The manifests are objects of the table, as without a catalogue.

_SCHEMES: tuple[NamingScheme, ...] = ("V2", "V1")
_MAX_MANIFEST_BYTES = 1 << 31
"""Most bytes of a manifest that is committed through the namespace."""


def _manifests(table: ObjectStore) -> list[tuple[ManifestLocation, ObjectMeta]]:
    """Return all complete versions, oldest first."""
    found = [(at, meta) for at, meta in list_manifests(table) if meta.size and not at.is_detached]
    return sorted(found, key=lambda one: one[0].version)


def _named(table: ObjectStore, version: object) -> list[tuple[ManifestLocation, ObjectMeta]]:
    """Return a complete version by its number; empty if missing."""
    number = integer_of(version) or 0
    for scheme in _SCHEMES if 0 < number < DETACHED else ():
        path = manifest_path(number, scheme)
        with suppress(ObjectNotFoundError):
            meta = table.head(path)
            if meta.size:
                return [(ManifestLocation(number, path, scheme, meta.size), meta)]
    return []


def _described(table: ObjectStore, at: ManifestLocation, meta: ObjectMeta) -> dict[str, Any]:
    changed = meta.modified
    return {
        "version": at.version,
        "manifest_path": manifest_key(table.uri, at.path),
        "manifest_size": meta.size,
        "timestamp_millis": None if changed is None else int(changed.timestamp() * 1000),
    }


def _answer(kind: str, request: object, reported: object, name: str = "version") -> Any:
    """Make a model; a mapping for clients that send and expect mappings, as pylance does."""
    model = getattr(interface, kind)(**{name: reported})
    return model.to_dict() if isinstance(request, dict) else model
