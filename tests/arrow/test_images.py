"""Images in Arrow: addresses, encoded images, pixels."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow import (
    EncodedImageType,
    FixedShapeImageTensorType,
    ImageArray,
    ImageURIArray,
    ImageURIType,
)
from glaive.errors import AccessError, MissingDependencyError, SchemaError

pytestmark = pytest.mark.usefixtures("own_types")


def pixels() -> np.ndarray:
    return np.arange(48, dtype=np.uint8).reshape(2, 3, 4, 2)


def tensors() -> pa.Array:
    return ImageArray.from_array(pa.FixedShapeTensorArray.from_numpy_ndarray(pixels()))


def test_the_kind_of_images_is_that_of_the_array() -> None:
    assert ImageArray.from_array(pa.array(["a"])).type == ImageURIType()
    assert ImageArray.from_array(["a"]).type == ImageURIType()
    assert ImageArray.from_array(pa.array([b"a"])).type == EncodedImageType()
    large = pa.array([b"a"], pa.large_binary())
    assert ImageArray.from_array(large).type == EncodedImageType(pa.large_binary())
    assert tensors().type == FixedShapeImageTensorType(pa.uint8(), (3, 4, 2))
    assert ImageArray.from_array(tensors()).equals(tensors())
    assert ImageArray.from_array([b"a.png", "b.png", None]).storage.to_pylist() == [
        "a.png", "b.png", None,
    ]  # fmt: skip
    for wrong in (pa.array([1]), 1, "a.png", [1.5], ["a.png", 2], [b"\xff"]):
        with pytest.raises(SchemaError, match="Cannot build an Image"):
            ImageArray.from_array(wrong)


def test_images_are_read_from_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"image")
    uris = ImageURIArray.from_uris([tmp_path / "a.bin", (tmp_path / "a.bin").as_uri(), None])
    images: Any = uris.read_uris()
    assert images.to_pylist() == [b"image", b"image", None]
    assert uris.read_uris(pa.large_binary()).type == EncodedImageType(pa.large_binary())
    assert "b'image', .." in repr(images)
    assert "a.bin" in repr(uris)
    with pytest.raises(FileNotFoundError):
        ImageURIArray.from_uris([tmp_path / "b.bin"]).read_uris()
    with pytest.raises(SchemaError, match="Download it"):
        ImageURIArray.from_uris(["https://127.0.0.1/a.png"]).read_uris()


@pytest.mark.spec("rel-26", "sec-11")
def test_images_may_be_confined_to_places(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "in-secret"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a b.bin").write_bytes(folder.name.encode())
    (inside / "link.bin").symlink_to(outside / "a b.bin")

    def read(uri: str, below: Any) -> Any:
        found: Any = ImageURIArray.from_uris([None, uri]).read_uris(below=below)
        return found.to_pylist()

    for uri in (f"{inside}/a b.bin", (inside / "a b.bin").as_uri(), f"{inside}/x/../a b.bin"):
        for place in (str(inside), [f"{inside}/"], ["s3://bucket/a", inside.as_uri()]):
            assert read(uri, place) == [None, b"in"]
    for uri in (
        f"{outside}/a b.bin",
        (outside / "a b.bin").as_uri(),
        f"{inside}/../in-secret/a b.bin",
        f"{inside}/link.bin",
        "s3://bucket/ab/c.png",
        "s3://bucket/a/../c.png",
        "s3://bucket/a/%2e%2e/c.png",
        "s3://bucket/a/c.png?endpoint_override=127.0.0.1:9",
        "s3://name:word@bucket/a/c.png",
        "gs://bucket/a/c.png",
        "file:c.png",
        "file:///%zz",
        "c\0.png",
    ):
        with pytest.raises(AccessError, match=r"is not below .*Add its folder to below="):
            read(uri, [str(inside), "s3://bucket/a"])
    with pytest.raises(AccessError, match="is not below any place"):
        read(str(inside / "a b.bin"), [])


def test_images_are_encoded_and_decoded_by_a_function() -> None:
    encoded = tensors().to_encoded(lambda images: pa.array([one.tobytes() for one in images]))
    assert encoded.equals(tensors().to_encoded(lambda images: [one.tobytes() for one in images]))

    def decode(values: pa.Array) -> np.ndarray:
        numbers = np.frombuffer(b"".join(values.to_pylist()), np.uint8)
        return numbers.reshape(-1, 3, 4, 2)

    np.testing.assert_array_equal(encoded.to_tensor(decode).to_numpy(), pixels())
    np.testing.assert_array_equal(tensors().slice(1).to_numpy(), pixels()[1:])


@pytest.mark.parametrize("wrong", [b"png", pa.array([b"png"]), None])
def test_an_encoder_returns_the_bytes_of_each_image(wrong: Any) -> None:
    with pytest.raises(SchemaError, match="the pixels of all 2 images and returns an array"):
        tensors().to_encoded(lambda _: wrong)


def test_pixels_are_a_view() -> None:
    images = tensors()
    assert images.to_numpy().base is not None
    assert images[1].as_py() == pixels()[1].ravel().tolist()


def test_pillow_encodes_and_decodes_without_a_function() -> None:
    images = ImageArray.from_array(
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3, 4, 3), np.uint8))
    )
    try:
        import PIL
    except ImportError:
        with pytest.raises(MissingDependencyError, match="pip install pillow"):
            images.to_encoded()
        return
    assert PIL.__version__
    encoded = images.to_encoded()
    assert encoded[0].as_py().startswith(b"\x89PNG")
    assert encoded.to_tensor().equals(images)
    with pytest.raises(SchemaError, match="null images"):
        ImageArray.from_array(pa.array([b"a", None])).to_tensor()


def test_columns_of_images_come_back(tmp_path: Path) -> None:
    uris = ImageURIArray.from_uris(["a.png", "b.png"])
    encoded = ImageArray.from_array(pa.array([b"a", None]))
    given = pa.table({"uri": uris, "image": encoded, "pixels": tensors()})
    table = glaive.write_dataset(given, str(tmp_path / "a.lance")).to_table()
    assert table.schema.types == given.schema.types
    np.testing.assert_array_equal(table["pixels"].combine_chunks().to_numpy(), pixels())


@pytest.mark.parametrize(
    "shape",
    [
        b"",
        b"{}",
        b'{"shape": 3}',
        b'{"shape": [3, -1]}',
        b'{"shape": [99999999999]}',
        b'{"shape": [5]}',
    ],
)
def test_a_damaged_shape_is_refused(shape: bytes) -> None:
    with pytest.raises(SchemaError):
        FixedShapeImageTensorType.__arrow_ext_deserialize__(pa.list_(pa.uint8(), 4), shape)


def test_types_of_images_are_checked_and_can_be_pickled() -> None:
    for kind in (ImageURIType(pa.large_string()), EncodedImageType(), tensors().type):
        assert pickle.loads(pickle.dumps(kind)) == kind
    with pytest.raises(SchemaError, match="string type"):
        ImageURIType(pa.int8())
    with pytest.raises(SchemaError, match="binary type"):
        EncodedImageType(pa.int8())
    with pytest.raises(SchemaError, match="rows and columns"):
        FixedShapeImageTensorType(pa.uint8(), ())


@pytest.mark.spec("rel-23")
def test_an_image_for_which_pillow_has_an_error_of_its_own_cannot_be_decoded() -> None:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(out, format="DDS")
    unknown = bytearray(out.getvalue())
    unknown[80:84] = bytes(4)  # what kind of pixels there are
    images: Any = ImageArray.from_array(pa.array([bytes(unknown)]))
    with pytest.raises(SchemaError, match="an image cannot be decoded"):
        images.to_tensor()


def iptc_field(number: int, content: bytes, record: int = 3) -> bytes:
    return bytes([0x1C, record, number]) + len(content).to_bytes(2, "big") + content
