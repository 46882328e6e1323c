"""Columns of large values."""

from typing import Any

from glaive.dataset.blobs import BlobColumn as BlobColumn
from glaive.dataset.blobs import BlobIterator as BlobIterator
from glaive.dataset.blobs import blob_array as blob_array
from glaive.dataset.blobs import blob_field as blob_field
from glaive.format.blobs import Blob as Blob
from glaive.format.blobs import BlobArray as BlobArray
from glaive.format.blobs import BlobType as BlobType
from glaive.scan.blob_files import BlobFile as BlobFile
from glaive.scan.blob_files import BlobFile as LanceBlobFile
from glaive.scan.blob_files import DEFAULT_BLOB_BUFFER_SIZE as DEFAULT_BLOB_BUFFER_SIZE

def __getattr__(name: str) -> Any: ...
