"""Columns of large values, under the names of ``lance.blob``."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names
from glaive.dataset.blobs import BlobColumn, BlobIterator, blob_array, blob_field
from glaive.format.blobs import Blob, BlobArray, BlobType
from glaive.scan.blob_files import BlobFile

__all__ = [
    "DEFAULT_BLOB_BUFFER_SIZE",
    "Blob",
    "BlobArray",
    "BlobColumn",
    "BlobFile",
    "BlobIterator",
    "BlobType",
    "LanceBlobFile",
    "blob_array",
    "blob_field",
]

LanceBlobFile = BlobFile

DEFAULT_BLOB_BUFFER_SIZE = 512 << 10
"""The ``buffer_size`` of pylance; glaive chooses one by the place of the file if none is given."""

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
