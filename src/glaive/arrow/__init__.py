"""Arrow memory: blocks, bitmaps, and arrays built from buffers.

The names of ``lance.arrow`` are here, too: brain floats and images, whose extension types pyarrow
knows once one of these names is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.arrow.bfloat16 import (
        BFloat16,
        BFloat16Array,
        BFloat16Scalar,
        BFloat16Type,
        bfloat16_array,
        cast,
    )
    from glaive.arrow.bfloat16_pandas import PandasBFloat16Array, PandasBFloat16Type
    from glaive.arrow.images import (
        EncodedImageArray,
        EncodedImageScalar,
        EncodedImageType,
        FixedShapeImageTensorArray,
        FixedShapeImageTensorScalar,
        FixedShapeImageTensorType,
        ImageArray,
        ImageScalar,
        ImageURIArray,
        ImageURIScalar,
        ImageURIType,
    )

__all__ = [
    "BFloat16",
    "BFloat16Array",
    "BFloat16Scalar",
    "BFloat16Type",
    "EncodedImageArray",
    "EncodedImageScalar",
    "EncodedImageType",
    "FixedShapeImageTensorArray",
    "FixedShapeImageTensorScalar",
    "FixedShapeImageTensorType",
    "ImageArray",
    "ImageScalar",
    "ImageURIArray",
    "ImageURIScalar",
    "ImageURIType",
    "PandasBFloat16Array",
    "PandasBFloat16Type",
    "bfloat16_array",
    "cast",
]

_PANDAS = ("PandasBFloat16Array", "PandasBFloat16Type")

if "pandas" in sys.modules:  # pandas then knows dtype="lance.bfloat16"
    import_module("glaive.arrow.bfloat16_pandas")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "bfloat16" if name == "cast" else "images"
    if "float16" in name.lower():
        home = "bfloat16_pandas" if name in _PANDAS else "bfloat16"
    value = getattr(import_module(f"glaive.arrow.{home}"), name)
    globals()[name] = value
    return value
