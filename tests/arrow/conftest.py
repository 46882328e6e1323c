"""Extension types of pylance and of glaive have the same names; one of the two is registered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from glaive.arrow import BFloat16Type, EncodedImageType, FixedShapeImageTensorType, ImageURIType


@pytest.fixture(scope="module")
def own_types() -> Iterator[None]:
    """Register glaive's types for a module, and those of pylance again behind it."""
    kinds: list[Any] = [
        BFloat16Type(),
        ImageURIType(),
        EncodedImageType(),
        FixedShapeImageTensorType(pa.uint8(), (0,)),
    ]
    for kind in kinds:
        with suppress(pa.ArrowKeyError):  # not registered by anyone
            pa.unregister_extension_type(kind.extension_name)
        pa.register_extension_type(kind)
    yield
    theirs: Any = pytest.importorskip("lance.arrow", reason="install the 'interop' group")
    for kind in kinds:
        pa.unregister_extension_type(kind.extension_name)
    pa.register_extension_type(theirs.BFloat16Type())
    pa.register_extension_type(theirs.ImageURIType())
    pa.register_extension_type(theirs.EncodedImageType())
    pa.register_extension_type(theirs.FixedShapeImageTensorType(pa.uint8(), (0,)))
