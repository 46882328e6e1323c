"""Datasets whose descriptions of blob values say something else than what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from glaive.file.blob_writer import BlobWriter
from glaive.format.blobs import DESCRIPTOR

Rows = list[dict[str, Any]]


@contextmanager
def forged_descriptions(column: str, forge: Callable[[Rows], Rows]) -> Iterator[None]:
    """Have values of a column described in another way by what is written in the block."""
    describe = BlobWriter.describe

    def forged(writer: BlobWriter, field: Any, array: Any, path: str) -> Any:
        described = describe(writer, field, array, path)
        if path != column:
            return described
        return pa.array(forge(described.to_pylist()), pa.struct(list(DESCRIPTOR)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlobWriter, "describe", forged)
        yield
