"""Bytes of images: read, decoded and encoded by Pillow where that is installed. Image by image."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from glaive.errors import MissingDependencyError, SchemaError

__all__ = ["decode", "encode_png", "open_image", "read"]

_BY_PROGRAMS = frozenset({"EPS"})
"""Formats for which Pillow starts another program: images come from anybody."""

_DAMAGE = (ArithmeticError, LookupError, OSError, SyntaxError, TypeError, ValueError)
"""What Pillow raises for bytes that are no image, besides an error of its own."""


def read(uri: str) -> bytes:
    """The bytes of a file that pyarrow can open: a path, ``file:``, ``s3:``, ``gs:`` and others.

    Raises
    ------
    SchemaError
        The scheme is ``http`` or another one that pyarrow does not open.
    OSError
        pyarrow's, for a file that cannot be read.
    """
    import pyarrow as pa
    from pyarrow import fs

    if "://" in uri or uri.startswith("file:"):
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{uri}: {error}. Download it, and use EncodedImageType for the bytes"
            ) from error
    else:
        system, path = fs.LocalFileSystem(), uri
    with system.open_input_stream(path) as stream:
        return stream.read()


def decode(images: Any) -> np.ndarray[Any, Any]:
    """Pixels of encoded images of one size: images, rows, columns, channels.

    Raises
    ------
    MissingDependencyError
        Pillow is not installed.
    SchemaError
        There is a null, an image cannot be decoded, or images differ in size.
    """
    pillow = _pillow()
    if images.null_count:
        raise SchemaError("to_tensor: there are null images; drop them first")
    pixels = []
    for one in images.to_pylist():
        try:
            pixels.append(np.asarray(open_image(one)))
        except (*_DAMAGE, pillow.DecompressionBombError) as error:
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
    except (*_DAMAGE, pillow.DecompressionBombError) as error:
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
