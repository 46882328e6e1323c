"""Scans as pandas frames, with blobs as files, bytes or descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError
from glaive.format.blobs import is_blob
from glaive.scan.blobs.column import locate_blobs, select_rows
from glaive.scan.blobs.file import BlobFile
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.system_columns import ROW_ADDRESS
from glaive.scan.views import Views

__all__ = ["to_frame"]

_PANDAS = b"pandas"
"""Key of the schema's metadata."""

_MODES = ("lazy", "bytes", "descriptions")


def to_frame(
    views: Views, options: ScanOptions, blob_mode: str, arguments: Mapping[str, Any]
) -> Any:
    """Read a scan into a frame.

    Parameters
    ----------
    blob_mode
        Columns of blobs become ``BlobFile`` objects (``"lazy"``), ``"bytes"``, or
        ``"descriptions"``. Blobs within structs and lists stay descriptions when lazy.
    arguments
        Those of ``Table.to_pandas``.

    Raises
    ------
    OptionError
        There is no such mode.
    """
    if blob_mode not in _MODES:
        raise OptionError(f"blob_mode: expected {', '.join(_MODES)}, found {blob_mode!r}")
    if blob_mode == "bytes":
        options = replace(options, blob_handling="all_binary")
    blobs = _blob_columns(views, options) if blob_mode == "lazy" else []
    if not blobs:
        return _frame(_read(views, options), arguments)
    table = _read(views, replace(options, with_row_address=True))
    rows = select_rows(views, addresses=table[ROW_ADDRESS])
    given = _names(options)
    asked = options.with_row_address or ROW_ADDRESS in (given or ())
    names = [name for name in table.schema.names if asked or name != ROW_ADDRESS]
    if asked and not options.with_row_address and given is not None:
        names = given
    frame = _frame(table.select([name for name in names if name not in blobs]), arguments)
    for name in blobs:
        places = locate_blobs(views, name, rows)
        files = [None if place is None else BlobFile(place) for place in places]
        frame.insert(names.index(name), name, files)
    return frame


def _frame(table: pa.Table, arguments: Mapping[str, Any]) -> Any:
    metadata: dict[bytes, bytes] = dict(table.schema.metadata or {})
    try:
        return table.to_pandas(**arguments)
    except (KeyError, TypeError, ValueError):
        if metadata.pop(_PANDAS, None) is None:
            raise
        # What pandas noted about its index does not fit, or is damaged: the columns are all there.
        return table.replace_schema_metadata(metadata).to_pandas(**arguments)


def _blob_columns(views: Views, options: ScanOptions) -> list[str]:
    """Columns of the result that are blobs as a whole, in order."""
    if options.blob_handling == "all_binary":
        return []
    schema = views.snapshot.manifest.schema
    own = set(schema.names)
    columns = schema.names if options.columns is None else options.columns
    found = []
    for name in columns:
        if not isinstance(name, str):  # computed: blobs stay descriptions
            continue
        if name not in own and name.startswith("_row"):
            continue
        last = schema.find(name)[-1]
        if is_blob(last) or last.is_blob_v2:
            found.append(name)
    return found


def _names(options: ScanOptions) -> list[str] | None:
    """Names of the columns that were asked for; None for all."""
    if options.columns is None:
        return None
    return [column if isinstance(column, str) else column[0] for column in options.columns]


def _read(views: Views, options: ScanOptions) -> pa.Table:
    return make_query(views, options).table()
