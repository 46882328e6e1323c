"""Scans as pandas frames, with blobs as files, bytes or descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError
from glaive.format.blobs import is_blob
from glaive.scan.blob_file import BlobFile
from glaive.scan.blobs import locate_blobs, select_rows
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.system import ROW_ADDRESS
from glaive.scan.view import Views

__all__ = ["to_frame"]

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
        return _read(views, options).to_pandas(**arguments)
    table = _read(views, replace(options, with_row_address=True))
    rows = select_rows(views, addresses=table[ROW_ADDRESS])
    given = _names(options)
    asked = options.with_row_address or ROW_ADDRESS in (given or ())
    names = [name for name in table.schema.names if asked or name != ROW_ADDRESS]
    if asked and not options.with_row_address and given is not None:
        names = given
    frame = table.select([name for name in names if name not in blobs]).to_pandas(**arguments)
    for name in blobs:
        places = locate_blobs(views, name, rows)
        files = [None if place is None else BlobFile(place) for place in places]
        frame.insert(names.index(name), name, files)
    return frame


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
    return [one if isinstance(one, str) else one[0] for one in options.columns]


def _read(views: Views, options: ScanOptions) -> pa.Table:
    return make_query(views, options).table()
