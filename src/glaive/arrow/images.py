"""Images in Arrow: addresses of images, encoded images, and pixels.

Three extension types, under the names that Lance registered: ``lance.arrow.image_uri``,
``lance.arrow.encoded_image`` and ``lance.arrow.fixed_shape_image_tensor``. Importing this module
registers them with pyarrow; columns of these types are then read as arrays of these classes.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import AccessError, MissingDependencyError, SchemaError

# --- Bytes of images: read, decoded and encoded by Pillow where that is installed. Image by image

_AMBIGUOUS_PART = re.compile(r"(?:^|/)\.\.?(?:/|$)|[?#%\\]")
"""Part of an address that may mean another object, or another server, than the address says."""


def read(uri: str) -> bytes:
    """Return the bytes of a file that pyarrow can open: a path, ``file:``, ``s3:``, ``gs:``, ….

    Raises
    ------
    SchemaError
        pyarrow lacks the scheme, such as ``http``.
    OSError
        pyarrow fails to read the file.
    """
    from pyarrow import fs

    try:
        system, path = (
            fs.FileSystem.from_uri(uri) if _has_scheme(uri) else (fs.LocalFileSystem(), uri)
        )
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"{uri}: {error}. Download it, and use EncodedImageType for the bytes"
        ) from error
    with system.open_input_stream(path) as stream:
        data: bytes = stream.read()
    return data


def _has_scheme(uri: str) -> bool:
    return "://" in uri or uri.startswith("file:")


def confined(uri: str, below: Sequence[str]) -> str:
    """Resolve the links of an address, if it is below one of the places.

    Refuse an address in a bucket with options, because pyarrow's options name the server.

    Raises
    ------
    AccessError
        It is outside of all of them.
    """
    local = _local_path(uri)
    for place in below:
        root = _local_path(place)
        if local is not None and root is not None:
            if PurePath(local).is_relative_to(root):
                return local
        elif local is None and root is None and uri.startswith(f"{place.rstrip('/')}/"):
            rest = uri[len(place.rstrip("/")) :]
            if not _AMBIGUOUS_PART.search(rest):
                return uri
    places = ", ".join(map(repr, below)) or "any place"
    raise AccessError(
        f"the image {uri!r:.200} is not below {places}. Add its folder to below= if you trust "
        "whoever wrote the address."
    )


def _local_path(uri: str) -> str | None:
    """Return the resolved path on this machine, ``None`` for other addresses."""
    from pyarrow import fs

    if _has_scheme(uri) and not uri.startswith("file:"):
        return None
    try:
        path = fs.FileSystem.from_uri(uri)[1] if uri.startswith("file:") else uri
        return os.path.realpath(path)
    except ValueError:  # pyarrow's are of this kind, too
        return None


def decode(images: Any) -> np.ndarray[Any, Any]:
    """Return the pixels of encoded images of one size: images, rows, columns, channels.

    Raises
    ------
    MissingDependencyError
        Pillow is not installed.
    SchemaError
        There is a null, an image is invalid, or images differ in size.
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
    """Return an image of Pillow, which decodes the pixels later.

    Raises
    ------
    MissingDependencyError
        Pillow is not installed.
    SchemaError
        The bytes are an invalid image.
    """
    pillow = _pillow()
    try:
        return pillow.open(io.BytesIO(data))
    except Exception as error:  # any: each format is a plugin of its own
        raise SchemaError(f"no image that is decoded here: {error}") from error


def encode_png(pixels: np.ndarray[Any, Any]) -> bytes:
    """Return one image as PNG.

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


_BINARY: Any = pa.binary()
_STRING: Any = pa.string()

_REPR_BYTES = 30


class ImageScalar(pa.ExtensionScalar):
    """One image."""

    def as_py(self, **options: Any) -> Any:
        """Return the stored value, ``None`` for null. pyarrow defines the options."""
        stored = self.value
        return None if stored is None else stored.as_py(**options)


class ImageURIScalar(ImageScalar):
    """The address of one image."""


class EncodedImageScalar(ImageScalar):
    """One encoded image."""


class FixedShapeImageTensorScalar(ImageScalar):
    """The pixels of one image, as a flat list."""


class ImageArray(pa.ExtensionArray):
    """Base of the three kinds of arrays."""

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<lance.arrow.{name} object at {id(self):#018x}>\n{_values(self)!r}"

    @classmethod
    def from_array(cls, images: Any) -> Any:
        """Return the array as the kind of images that its type suggests.

        Parameters
        ----------
        images
            Strings (addresses), binary values (encoded images), a fixed-shape tensor array
            (pixels), such an array already, or an iterable of addresses.

        Raises
        ------
        SchemaError
            It is something else.
        """
        if isinstance(images, ImageArray):
            return images
        if isinstance(images, pa.FixedShapeTensorArray):
            tensor: Any = images.type
            kind: Any = FixedShapeImageTensorType(tensor.value_type, tensor.shape)
            return pa.ExtensionArray.from_storage(kind, images.storage)
        if isinstance(images, pa.Array) and _is_binary(images.type):
            encoded: Any = EncodedImageType(images.type)
            return pa.ExtensionArray.from_storage(encoded, images)
        if isinstance(images, pa.Array) and not _is_string(images.type):
            raise SchemaError(f"Cannot build an ImageArray from an array of {images.type}")
        if isinstance(images, str | bytes) or not isinstance(images, Iterable):
            raise SchemaError(f"Cannot build an ImageArray from {type(images)}")
        return ImageURIArray.from_uris(images)


def _address(uri: object) -> str | None:
    """Return an address as text; raise a ``SchemaError`` for anything else."""
    if isinstance(uri, bytes):
        try:
            return uri.decode()
        except UnicodeDecodeError as error:
            raise SchemaError(f"Cannot build an ImageURIArray from {uri!r:.40}: {error}") from error
    if uri is None or isinstance(uri, str | PathLike | pa.StringScalar | pa.LargeStringScalar):
        return None if uri is None else str(uri)
    raise SchemaError(f"Cannot build an ImageURIArray from a {type(uri).__name__}")


class ImageURIArray(ImageArray):
    """Addresses of images: paths, or URIs that this machine can open."""

    @classmethod
    def from_uris(cls, uris: Iterable[str | PathLike[str] | None] | Any) -> ImageURIArray:
        """Return an array of addresses.

        Raises
        ------
        SchemaError
            They are other values than strings or paths.
        """
        if isinstance(uris, pa.Array) and _is_string(uris.type):
            storage: Any = uris
        elif isinstance(uris, str | bytes) or not isinstance(uris, Iterable):
            raise SchemaError(f"Cannot build an ImageURIArray from {type(uris)}")
        else:
            texts = [_address(uri) for uri in uris]
            storage = pa.array(texts, pa.string())
        kind: Any = ImageURIType(storage.type)
        made: Any = pa.ExtensionArray.from_storage(kind, storage)
        return made  # type: ignore[no-any-return]  # the type says which class

    def read_uris(
        self, storage_type: Any = _BINARY, *, below: str | Sequence[str] | None = None
    ) -> EncodedImageArray:
        """Read the images from the files that they name. Nulls stay null.

        Parameters
        ----------
        storage_type
            Arrow type of the values: binary, or large_binary for more than 2 GiB in all.
        below
            Folders or buckets that the images may be read from. Give it for untrusted addresses:
            an address may name any file that this process may read.

        Raises
        ------
        AccessError
            An address is outside of all these places. The check precedes all reads.
        SchemaError
            pyarrow lacks the scheme of an address, such as ``https``.
        FileNotFoundError, OSError
            pyarrow fails to read a file.
        """
        kind, uris = storage_type, _values(self)
        if below is not None:
            below = [below] if isinstance(below, str) else list(map(str, below))
            uris = [None if uri is None else confined(uri, below) for uri in uris]
        images = [None if uri is None else read(uri) for uri in uris]
        wanted: Any = EncodedImageType(kind)
        made: Any = pa.ExtensionArray.from_storage(wanted, pa.array(images, kind))
        return made  # type: ignore[no-any-return]  # the type says which class


class EncodedImageArray(ImageArray):
    """Encoded images, of any format; the format shows in the bytes of each."""

    def __repr__(self) -> str:
        head = f"<lance.arrow.EncodedImageArray object at {id(self):#018x}>"
        first = next((value for value in _values(self) if value is not None), None)
        return head if first is None else f"{head}\n[{first[:_REPR_BYTES]!r}, ..]"

    def to_tensor(self, decoder: Callable[[Any], Any] | None = None) -> FixedShapeImageTensorArray:
        """Decode images of one size.

        Parameters
        ----------
        decoder
            From an array of binary values to pixels: a NumPy array, images first, or a
            fixed-shape tensor array. Default: Pillow.

        Raises
        ------
        MissingDependencyError
            The decoder is Pillow, which is not installed.
        SchemaError
            Images have several sizes, or there is a null.
        """
        pixels = (decoder or decode)(self.storage)
        if not isinstance(pixels, pa.FixedShapeTensorArray):
            pixels = np.ascontiguousarray(pixels)
            pixels = pa.FixedShapeTensorArray.from_numpy_ndarray(pixels)
        return ImageArray.from_array(pixels)  # type: ignore[no-any-return]  # of a tensor array


class FixedShapeImageTensorArray(ImageArray):
    """Pixels of images of one size."""

    def to_numpy(  # type: ignore[override]  # pyarrow's has lists of pixels
        self, zero_copy_only: bool = False
    ) -> np.ndarray[Any, Any]:
        """Return a view of the pixels: images, rows, columns, channels.

        Raises
        ------
        SchemaError
            There are nulls.
        """
        if self.null_count:
            raise SchemaError("to_numpy: pixels of a null image; drop the nulls first")
        kind: Any = self.type
        numbers = self.storage.flatten().to_numpy(zero_copy_only=zero_copy_only)
        return numbers.reshape(len(self), *kind.shape)  # type: ignore[no-any-return]  # NumPy's

    def to_tf(self) -> Any:
        """Return the pixels as a tensor of TensorFlow, which must be installed."""
        import tensorflow as tf

        return tf.convert_to_tensor(self.to_numpy())

    def to_encoded(
        self, encoder: Callable[[Any], Any] | None = None, storage_type: Any = _BINARY
    ) -> EncodedImageArray:
        """Encode all images.

        Parameters
        ----------
        encoder
            From the pixels of all images, as :meth:`to_numpy` returns them, to one value for each.
            The values are an Arrow array of ``storage_type``, or a sequence of bytes.
            Default: PNG, by Pillow.
        storage_type
            Arrow type of the values: binary, or large_binary for more than 2 GiB in all.

        Raises
        ------
        MissingDependencyError
            The encoder is Pillow, which is not installed.
        SchemaError
            The encoder returned something else.
        """
        kind = storage_type
        wanted: Any = EncodedImageType(kind)
        pixels = self.to_numpy()
        if encoder is None:
            values: Any = [encode_png(image) for image in pixels]
        else:
            values = encoder(pixels)
        if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes):
            values = pa.array(values, kind)
        if not isinstance(values, pa.Array) or len(values) != len(self):
            raise SchemaError(
                f"to_encoded: the encoder gets the pixels of all {len(self)} images and returns "
                f"an array with the bytes of each, not {type(values).__name__}"
            )
        made: Any = pa.ExtensionArray.from_storage(wanted, values)
        return made  # type: ignore[no-any-return]  # the type says which class


class _ImageType(pa.ExtensionType):
    """Base of the three types; without parameters except the storage type."""

    _classes: tuple[type[Any], type[Any]]
    """The classes of arrays and of single values."""

    def __arrow_ext_serialize__(self) -> bytes:
        """Return empty bytes, or the parameters of the type."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Any:
        """Return the type over a storage type."""
        kind: Any = cls
        return kind(storage_type)

    def __arrow_ext_class__(self) -> type[Any]:
        """Return the class of arrays."""
        return self._classes[0]

    def __arrow_ext_scalar_class__(self) -> type[Any]:
        """Return the class of single values."""
        return self._classes[1]


class ImageURIType(_ImageType):
    """Arrow's type of addresses of images.

    Parameters
    ----------
    storage_type
        string or large_string.
    """

    _classes = ImageURIArray, ImageURIScalar

    def __init__(self, storage_type: Any = _STRING) -> None:
        kind = storage_type
        if not _is_string(kind):
            raise SchemaError(f"storage_type must be a string type, found {kind}")
        super().__init__(kind, "lance.arrow.image_uri")


class EncodedImageType(_ImageType):
    """Arrow's type of encoded images.

    Parameters
    ----------
    storage_type
        binary or large_binary.
    """

    _classes = EncodedImageArray, EncodedImageScalar

    def __init__(self, storage_type: Any = _BINARY) -> None:
        kind = storage_type
        if not _is_binary(kind):
            raise SchemaError(f"storage_type must be a binary type, found {kind}")
        super().__init__(kind, "lance.arrow.encoded_image")


class FixedShapeImageTensorType(_ImageType):
    """Arrow's type of the pixels of images of one size.

    Parameters
    ----------
    arrow_type
        Type of a number, such as uint8.
    shape
        Of one image: rows, columns, and mostly channels.
    """

    _classes = FixedShapeImageTensorArray, FixedShapeImageTensorScalar

    def __init__(self, arrow_type: Any, shape: Sequence[int]) -> None:
        self.arrow_type = arrow_type
        self.shape = tuple(int(one) for one in shape)
        if not self.shape or min(self.shape) < 0:
            raise SchemaError(f"shape: expected numbers of rows and columns, found {shape!r}")
        storage = pa.list_(arrow_type, math.prod(self.shape))
        super().__init__(storage, "lance.arrow.fixed_shape_image_tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        """Return the shape, as JSON."""
        return json.dumps({"shape": self.shape}).encode()

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage_type: Any, serialized: bytes
    ) -> FixedShapeImageTensorType:
        """Return the type over a storage type; ``serialized`` has the shape."""
        try:
            shape = json.loads(serialized)["shape"]
            made = cls(storage_type.value_type, shape)
        except (
            ArithmeticError,
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise SchemaError(f"the shape of image tensors, {serialized!r:.80}: {error}") from error
        stored: Any = made.storage_type
        if stored.list_size != getattr(storage_type, "list_size", None):
            raise SchemaError(f"images of the shape {shape} are not stored as {storage_type}")
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return FixedShapeImageTensorType, (self.arrow_type, self.shape)


def _values(array: Any) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]  # pyarrow's


def _is_string(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_binary(kind: Any) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


for _kind in (ImageURIType(), EncodedImageType(), FixedShapeImageTensorType(pa.uint8(), (0,))):
    with suppress(pa.ArrowKeyError):  # another library may have registered the name
        pa.register_extension_type(_kind)  # type: ignore[arg-type]  # the stubs lack it
