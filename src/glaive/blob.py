"""Columns of large values, under the names of ``lance.blob``."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.dataset.blobs.binary_column import BlobColumn, BlobIterator
from glaive.dataset.blobs.values import Blob, BlobArray, BlobFile, BlobType, blob_array, blob_field

__all__ = [
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

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
