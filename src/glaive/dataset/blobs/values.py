"""Blob columns as users write them: the extension type, its arrays and single values.

The extension names are those of ``lance``: both libraries can be loaded into one process, and
each writes arrays that the other made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from glaive.arrow.utf8 import refuse_half_characters
from glaive.errors import OptionError
from glaive.format.blob_type import Blob, BlobArray, BlobType
from glaive.scan.blobs.file import BlobFile

__all__ = ["Blob", "BlobArray", "BlobFile", "BlobType", "blob_array", "blob_field"]


def blob_array(values: Iterable[object]) -> BlobArray:
    """Make an array of blobs: bytes, URIs as text, :class:`Blob` or ``None`` for nulls.

    Raises
    ------
    OptionError
        A value is none of these.
    """
    return BlobArray.from_pylist(values)


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field[Any]:
    """Make the field of a blob column.

    Parameters
    ----------
    inline_size_threshold
        Values of up to this many bytes are stored in the data file; 64 KiB by default.
    dedicated_size_threshold
        Larger values get a file of their own; checked first; 4 MiB by default.
    pack_file_size_threshold
        Maximum bytes of a file that holds several values; 1 GiB by default.

    Raises
    ------
    OptionError
        A threshold is not a number of bytes in the allowed range.
    """
    limits = {
        "inline": (inline_size_threshold, 0),
        "dedicated": (dedicated_size_threshold, 1),
        "pack-file": (pack_file_size_threshold, 1),
    }
    metadata: Any = {}
    for what, (size, least) in limits.items():
        given: object = size
        if size is None:
            continue
        if not isinstance(given, int) or isinstance(given, bool) or not least <= size < 2**63:
            raise OptionError(
                f"{what.replace('-', '_')}_size_threshold: expected a number of bytes ≥ {least}, "
                f"found {size!r}"
            )
        metadata[f"lance-encoding:blob-{what}-size-threshold"] = str(size)
    with refuse_half_characters("name"):
        return pa.field(name, BlobType(), nullable, metadata or None)
