"""A scan that can be run: as a table, as batches, as a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import decode_dictionary
from glaive.arrow.conditions import NO_PYTHON_VALUE
from glaive.compat.absent import REFUSED_MEMBERS, refuse_members
from glaive.dataset.pylance_members import class_for_arrow
from glaive.errors import FormatError, MissingDependencyError, OptionError
from glaive.format.blobs import is_blob
from glaive.options import shows
from glaive.scan.options import FragmentScanKeywords, ScanOptions
from glaive.scan.projection import ROW_ADDRESS
from glaive.scan.query import Query
from glaive.scan.ready import ready_scan, search_with
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.scan.ranked import RankedScan


@refuse_members(REFUSED_MEMBERS)
class Scanner:
    """One scan, which can run several times. Returned by ``dataset.scanner(...)``."""

    __class__ = class_for_arrow("Scanner")

    def __init__(self, views: Views, options: ScanOptions | Mapping[str, Any]) -> None:
        self._views, self._given = views, options
        self._query: Query | RankedScan
        if isinstance(options, ScanOptions):
            self._query = ready_scan(views, options)
        else:
            self._query = search_with(views, options)

    @cached_property
    def _options(self) -> ScanOptions:
        """The checked options. A search like an earlier search needs them late or never."""
        given = self._given
        return given if isinstance(given, ScanOptions) else ScanOptions.of(**given)

    @classmethod
    @shows(FragmentScanKeywords, ScanOptions)
    def of(cls, views: Views, **options: Any) -> Scanner:
        """Check the options of a scan and resolve its columns, filter and order."""
        columns, condition = options.get("columns"), options.get("filter")
        if isinstance(condition, str) or isinstance(columns, Mapping):
            from glaive.expr.bind import check_column_texts

            computed = columns.values() if isinstance(columns, Mapping) else ()
            check_column_texts(views.snapshot.manifest.schema, condition, *computed, warn=True)
        nearest = options.get("nearest")
        if nearest is None:
            return cls(views, ScanOptions.of(**options))
        if type(nearest) is dict:
            # A copy, as callers may write the next query into their array.
            nearest = {**nearest}
            if nearest.get("q") is not None:
                from glaive.scan.nearest.options import query_vectors

                nearest["q"] = query_vectors(nearest["q"]).copy()
        return cls(views, {**options, "nearest": nearest})

    def __repr__(self) -> str:
        manifest = self._views.snapshot.manifest
        columns = ", ".join(self._query.schema.names)
        return f"Scanner(version={manifest.version}, columns=[{columns}])"

    def _repr_html_(self) -> str:
        from glaive.dataset.stats import scanner_html

        return scanner_html(self.projected_schema, self.explain_plan())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a scan cannot be pickled: pickle the dataset, and make the scan there")

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the result."""
        return self._query.schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._views.snapshot.manifest.schema.logical_schema()

    def to_table(self) -> pa.Table:
        """Read all rows. The chunks of a column are the pages of the files."""
        return self._query.table()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the result in bounded memory; stopping early stops reading."""
        return self._query.batches()

    scan_batches = to_batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the result as an Arrow reader, for DuckDB or another library."""
        from glaive.arrow.validation import cut_members, nests_structs

        schema, batches = self._query.schema, self.to_batches()
        if nests_structs(schema):
            batches = map(cut_members, batches)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_pandas(self, *, blob_mode: BlobMode = "lazy", **kwargs: Any) -> Any:
        """Read all rows into a pandas frame; arguments go to ``Table.to_pandas``.

        Blobs become files (``blob_mode="lazy"``), ``"bytes"`` or ``"descriptions"``.
        """
        return to_frame(self._views, self._options, blob_mode, kwargs)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows of the result."""
        limit = num_rows if self._options.limit is None else min(num_rows, self._options.limit)
        checked = ScanOptions.of(limit=limit)
        return ready_scan(self._views, replace(self._options, limit=checked.limit)).table()

    def count_rows(self) -> int:
        """Count rows. Reads only the columns of the filter; otherwise only the manifest."""
        return ready_scan(self._views, self._options, counting=True).count()

    def explain_plan(self, verbose: bool = False) -> str:
        """Describe the steps of the scan; ``verbose`` adds one line per fragment."""
        from glaive.scan.explain import explain

        return explain(self._query, verbose=verbose)

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and report rows, bytes, requests and seconds of each step.

        With ``count_rows``, glaive runs the scan as a count.
        """
        from glaive.scan.explain import analyze

        return analyze(self._views, self._options, counting=count_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Stream to another Arrow library."""
        reader: Any = self.to_reader()
        capsule: object = reader.__arrow_c_stream__(requested_schema)
        return capsule


LanceScanner = Scanner
"""pylance's name."""


# --- Scans as pandas frames, with blobs as files, bytes or descriptors ------------------

_PANDAS = b"pandas"
"""Key of pandas metadata in the schema."""

BlobMode = Literal["lazy", "bytes", "descriptions"]
_MODES = get_args(BlobMode)


def to_frame(
    views: Views, options: ScanOptions, blob_mode: BlobMode, arguments: Mapping[str, Any]
) -> Any:
    """Read a scan into a frame.

    Parameters
    ----------
    blob_mode
        Blob columns become ``BlobFile`` objects (``"lazy"``), ``"bytes"``, or
        ``"descriptions"``. In ``"lazy"`` mode, blobs within structs and lists stay descriptors.
    arguments
        Arguments of ``Table.to_pandas``.

    Raises
    ------
    OptionError
        The mode is unknown, or pandas cannot represent the values.
    """
    from glaive.scan.blob_files import BlobFile, locate_blobs, select_rows

    if blob_mode not in _MODES:
        raise OptionError(
            f"blob_mode must be one of: {', '.join(map(repr, _MODES))}; found {blob_mode!r}"
        )
    if blob_mode == "bytes":
        options = replace(options, blob_handling="all_binary")
    blobs = _blob_columns(views, options) if blob_mode == "lazy" else []
    if not blobs:
        return _frame(ready_scan(views, options).table(), arguments)
    table = ready_scan(views, replace(options, with_row_address=True)).table()
    rows = select_rows(views, addresses=table[ROW_ADDRESS])
    given = _names(options)
    keeps_address = options.with_row_address or ROW_ADDRESS in (given or ())
    names = [name for name in table.schema.names if keeps_address or name != ROW_ADDRESS]
    if keeps_address and not options.with_row_address and given is not None:
        names = given
    frame = _frame(table.select([name for name in names if name not in blobs]), arguments)
    shown = {str(label) for label in frame.columns}  # other columns are the index of the frame
    for name in blobs:
        located = locate_blobs(views, name, rows)
        files = [None if blob is None else BlobFile(blob) for blob in located]
        shown.add(name)
        frame.insert(sum(one in shown for one in names[: names.index(name)]), name, files)
    return frame


def _frame(table: pa.Table, arguments: Mapping[str, Any]) -> Any:
    metadata: dict[bytes, bytes] = dict(table.schema.metadata or {})
    noted = metadata.pop(_PANDAS, None)
    if noted is not None:
        # Any error: metadata of a file decides which constructors pandas calls. Without this
        # metadata the columns are complete.
        with suppress(Exception):
            return table.to_pandas(**arguments)
    try:
        return table.replace_schema_metadata(metadata).to_pandas(**arguments)
    except ImportError as error:
        raise MissingDependencyError(
            f"to_pandas: pandas cannot be imported ({error}). Install it: pip install pandas"
        ) from error
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, TypeError):  # wrong arguments, or wrong metadata of a type
            pa.table({}).to_pandas(**arguments)
        raise OptionError(
            f"to_pandas: {error!r:.200}. Pandas or Python has no such values or time zone, or an "
            "argument does not allow them; to_table reads them all."
        ) from error


def _blob_columns(views: Views, options: ScanOptions) -> list[str]:
    """Return blob columns of the result, in order."""
    if options.blob_handling == "all_binary":
        return []
    schema = views.snapshot.manifest.schema
    columns = schema.names if options.columns is None else options.columns
    blobs = []
    for name in columns:
        if not isinstance(name, str):  # computed: blobs stay descriptors
            continue
        if name not in schema.names and name.startswith("_row"):
            continue
        field = schema.find(name)[-1]
        if is_blob(field) or field.is_blob_v2:
            blobs.append(name)
    return blobs


def _names(options: ScanOptions) -> list[str] | None:
    """Return names of the requested columns; None: all."""
    if options.columns is None:
        return None
    return [column if isinstance(column, str) else column[0] for column in options.columns]


# --- Batches of a scan as NumPy arrays, which share Arrow's memory where possible -------


def batch_arrays(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns of a batch as arrays with one item per row.

    Numbers, booleans and times keep their types and share Arrow's memory. Nulls make numbers NaN
    (integers become ``float64``) and times NaT. Fixed-size lists of numbers have two dimensions;
    tensors keep their shape. Structs become dictionaries. Other values become arrays of objects.

    Raises
    ------
    FormatError
        Python cannot represent a value: an invalid string, a time in nanoseconds, or a time in an
        unknown time zone.
    """
    arrays: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            arrays[name] = _array(column)
        except MemoryError:
            raise
        except (pa.ArrowException, *NO_PYTHON_VALUE) as error:
            raise FormatError(
                f"column {name!r}: Python does not have a value: {error}. Leave the column out, or "
                "use to_batches; `glaive verify --deep` finds damaged strings"
            ) from error
    return arrays


def _array(column: Any) -> np.ndarray[Any, Any] | Mapping[str, Any]:
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _rows_of(column.storage, tuple(kind.shape))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "lance.bfloat16" and not column.null_count:
            brain_floats: np.ndarray[Any, Any] = column.to_numpy()
            return brain_floats
        shape = tuple(getattr(kind, "shape", ())) if "tensor" in kind.extension_name else ()
        storage = column.storage
        return _rows_of(storage, shape) if shape else _array(storage)
    if pa.types.is_struct(kind):
        return {
            field.name: _array(member) for field, member in zip(kind, column.flatten(), strict=True)
        }
    if pa.types.is_dictionary(kind):
        return _array(decode_dictionary(column))
    if pa.types.is_fixed_size_list(kind) and _is_plain(kind.value_type):
        return _rows_of(column, (kind.list_size,))
    values: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
    return values


def _is_plain(kind: Any) -> bool:
    """Return whether rows of fixed-size lists of this type have a regular shape."""
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.bool_())


def _rows_of(column: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return rows of a fixed-size list in a shape, or as objects; null rows are all NaN."""
    size = column.type.list_size
    flat: Any = _array(column.values.slice(column.offset * size, len(column) * size))
    if isinstance(flat, Mapping):  # tensors of structs, which Arrow allows
        objects: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
        return objects
    rows: np.ndarray[Any, Any] = flat.reshape(len(column), *shape, *flat.shape[1:])
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        kind = rows.dtype if rows.dtype.kind == "f" else np.dtype(np.float64)
        rows = rows.astype(kind)
        rows[missing] = np.nan
    return rows
