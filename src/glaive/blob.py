"""Columns of large values, under the names of ``lance.blob``."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.dataset.blobs.binary_column import BlobColumn, BlobIterator
from glaive.dataset.blobs.values import Blob, BlobArray, BlobFile, BlobType, blob_array, blob_field

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
