"""Bytes of images: read, decoded and encoded by Pillow where that is installed. Image by image."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

import numpy as np

from glaive.errors import AccessError, MissingDependencyError, SchemaError
from glaive.hdfs import check_hdfs_client

__all__ = ["confined", "decode", "encode_png", "open_image", "read"]

_BY_PROGRAMS = frozenset({"EPS", "IPTC"})
"""Formats for which Pillow starts another program, or opens an image of any format, such as one of
these, that is inside: images come from anybody."""

_PACKED: Final[dict[str, Literal["bz2", "gzip", "lz4", "zstd"]]] = {
    ".bz2": "bz2", ".gz": "gzip", ".lz4": "lz4", ".zst": "zstd",
}  # fmt: skip
"""Codecs of Arrow by the end of a name."""

_MOST_UNPACKED: Final = 1 << 28
"""Bytes that an image may have whose file is packed."""

_PIECE: Final = 1 << 20

_LEADS_ELSEWHERE = re.compile(r"(?:^|/)\.\.?(?:/|$)|[?#%\\]")
"""What part of an address may mean another object, or another server, than it says."""


def read(uri: str) -> bytes:
    """The bytes of a file that pyarrow can open: a path, ``file:``, ``s3:``, ``gs:`` and others.

    Raises
    ------
    SchemaError
        The scheme is ``http`` or another one that pyarrow does not open; or a file that is packed,
        such as ``a.png.gz``, has other bytes than its name says, or more than 256 MiB.
    OSError
        pyarrow's, for a file that cannot be read.
    StoreError
        A file of the working directory would be run as the client of HDFS.
    """
    import pyarrow as pa
    from pyarrow import fs

    if _has_scheme(uri):
        check_hdfs_client(uri)
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{uri}: {error}. Download it, and use EncodedImageType for the bytes"
            ) from error
    else:
        system, path = fs.LocalFileSystem(), uri
    # By its name Arrow unpacks a file, such as a.png.gz: some kilobytes stand for gigabytes.
    with system.open_input_stream(path, compression=None) as stream:
        data = stream.read()
    ending = PurePath(path).suffix
    if ending not in _PACKED:
        return data
    image = io.BytesIO()
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), _PACKED[ending]) as unpacked:
            while image.tell() <= _MOST_UNPACKED and (piece := unpacked.read(_PIECE)):
                image.write(piece)
    except (OSError, pa.ArrowException) as error:  # of bz2 some are no OSError
        raise SchemaError(f"{uri}: no {_PACKED[ending]} file as its name says: {error}") from error
    if image.tell() > _MOST_UNPACKED:
        raise SchemaError(
            f"{uri}: {len(data)} bytes, of which {_PACKED[ending]} makes more than "
            f"{_MOST_UNPACKED}. Unpack it, if it is to be read"
        )
    return image.getvalue()


def _has_scheme(uri: str) -> bool:
    return "://" in uri or uri.startswith("file:")


def confined(uri: str, below: Sequence[str]) -> str:
    """The address without links, if it is below one of the places.

    In a bucket it may have no options: those of pyarrow name the server that is asked.

    Raises
    ------
    AccessError
        It is below none of them.
    """
    local = _local_path(uri)
    for place in below:
        root = _local_path(place)
        if local is not None and root is not None:
            if PurePath(local).is_relative_to(root):
                return local
        elif local is None and root is None and uri.startswith(f"{place.rstrip('/')}/"):
            rest = uri[len(place.rstrip("/")) :]
            if not _LEADS_ELSEWHERE.search(rest):
                return uri
    places = ", ".join(map(repr, below)) or "any place"
    raise AccessError(
        f"the image {uri!r:.200} is not below {places}. Add its folder to below= if you trust "
        "whoever wrote the address."
    )


def _local_path(uri: str) -> str | None:
    """The path on this machine without links; ``None`` for an address elsewhere, or of no file."""
    from pyarrow import fs

    if _has_scheme(uri) and not uri.startswith("file:"):
        return None
    try:
        path = fs.FileSystem.from_uri(uri)[1] if uri.startswith("file:") else uri
        return os.path.realpath(path)
    except ValueError:  # pyarrow's are of this kind, too
        return None


def decode(images: Any) -> np.ndarray[Any, Any]:
    """Pixels of encoded images of one size: images, rows, columns, channels.

    Raises
    ------
    MissingDependencyError
        Pillow is not installed.
    SchemaError
        There is a null, an image cannot be decoded, or images differ in size.
    """
    _pillow()  # before any image, as what is raised for one is taken for damage
    if images.null_count:
        raise SchemaError("to_tensor: there are null images; drop them first")
    pixels = []
    for one in images.to_pylist():
        try:
            pixels.append(np.asarray(open_image(one)))
        except Exception as error:  # any: each format is a plugin of its own
            raise SchemaError(f"to_tensor: an image cannot be decoded: {error}") from error
    shapes = {one.shape for one in pixels}
    if len(shapes) != 1:
        raise SchemaError(
            f"to_tensor: expected images of one size, found {sorted(map(str, shapes))}"
        )
    return np.stack(pixels)


def open_image(data: bytes) -> Any:
    """An image of Pillow, whose pixels are not decoded yet.

    Raises
    ------
    MissingDependencyError
        Pillow is not installed.
    SchemaError
        The bytes are no image, or one that Pillow would have another program decode.
    """
    pillow = _pillow()
    pillow.init()
    formats = [name for name in pillow.ID if name not in _BY_PROGRAMS]
    try:
        return pillow.open(io.BytesIO(data), formats=formats)
    except Exception as error:  # as above
        raise SchemaError(f"no image that is decoded here: {error}") from error


def encode_png(pixels: np.ndarray[Any, Any]) -> bytes:
    """One image as PNG.

    Raises
    ------
    MissingDependencyError
        Pillow is not installed.
    """
    out = io.BytesIO()
    _pillow().fromarray(pixels).save(out, format="PNG")
    return out.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError(
            f"images are decoded and encoded by Pillow ({error}). Install it (pip install pillow), "
            "or pass a decoder or encoder"
        ) from error
    return Image
