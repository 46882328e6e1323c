"""Scans as pandas frames, with blobs as files, bytes or descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args

import pyarrow as pa

from glaive.errors import MissingDependencyError, OptionError
from glaive.format.blobs import is_blob
from glaive.scan.blobs.column import locate_blobs, select_rows
from glaive.scan.blobs.file import BlobFile
from glaive.scan.options import ScanOptions
from glaive.scan.ready import ready_scan
from glaive.scan.system_columns import ROW_ADDRESS
from glaive.scan.views import Views

__all__ = ["BlobMode", "to_frame"]

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
        There is no such mode, or values cannot become those of pandas.
    """
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
        # Any: a file says which constructors are called. Without what does not match or is damaged,
        # the columns are complete.
        with suppress(Exception):
            return table.to_pandas(**arguments)
    try:
        return table.replace_schema_metadata(metadata).to_pandas(**arguments)
    except ImportError as error:
        raise MissingDependencyError(
            f"to_pandas: pandas cannot be imported ({error}). Install it: pip install pandas"
        ) from error
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, TypeError):  # of the caller, or of what a file says of a type
            pa.table({}).to_pandas(**arguments)
        raise OptionError(
            f"to_pandas: {error!r:.200}. Pandas or Python has no such values or time zone, or an "
            "argument does not allow them; to_table reads them all."
        ) from error


def _blob_columns(views: Views, options: ScanOptions) -> list[str]:
    """Blob columns of the result, in order."""
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
    """Names of the requested columns; None for all."""
    if options.columns is None:
        return None
    return [column if isinstance(column, str) else column[0] for column in options.columns]
