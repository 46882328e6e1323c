"""Values of Hugging Face datasets, under the names of ``lance.hf``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from glaive.arrow.conditions import python_values
from glaive.arrow.images import open_image
from glaive.errors import AccessError, CorruptFileError, UnsupportedFeatureError

__all__ = ["HuggingFaceConverter"]


class HuggingFaceConverter:
    """Converter of columns whose features are in the ``huggingface`` metadata of the schema.

    Parameters
    ----------
    ds_info
        The metadata, parsed from JSON.
    """

    def __init__(self, ds_info: Mapping[str, Any]) -> None:
        self.ds_info = ds_info

    def to_pytorch(self, col: str, array: pa.Array) -> list[Any] | None:
        """Return the images of a column; ``None`` if it is missing in the metadata.

        Raises
        ------
        UnsupportedFeatureError
            The feature is not an image.
        MissingDependencyError
            Pillow is missing.
        AccessError
            An image is given by a path instead of bytes.
        CorruptFileError
            The metadata has another form.
        """
        described: Any = self.ds_info
        info = described.get("info", {}) if isinstance(described, Mapping) else None
        features = info.get("features", {}) if isinstance(info, Mapping) else None
        if not isinstance(features, Mapping):
            raise CorruptFileError(
                "the metadata 'huggingface'",
                expected="features by name of column",
                found=f"{self.ds_info!r:.80}",
                where=f"column {col!r}",
            )
        feature = features.get(col)
        if feature is None:
            return None
        kind = feature.get("_type") if isinstance(feature, Mapping) else feature
        if kind != "Image":
            raise UnsupportedFeatureError(
                f"column {col!r}: values of the feature {kind!r} are not converted to tensors. "
                "Pass a to_tensor_fn of your own, or leave the column out"
            )
        return [_image(value) for value in python_values(array)]


def _image(value: Mapping[str, Any] | None) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise CorruptFileError(
            "an image of the metadata 'huggingface'",
            expected="a struct with its bytes",
            found=f"{value!r:.80}",
            where="column",
        )
    data = value.get("bytes")
    if data is None:  # the dataset would choose which file of this machine is opened
        raise AccessError(
            f"an image is given by its path, {str(value.get('path'))!r:.200}, and not by its "
            "bytes. Open it in a to_tensor_fn of your own if you trust the dataset"
        )
    return open_image(data)
