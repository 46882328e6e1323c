"""Rows at random, under the names of ``lance._datagen``: pylance's wheels have none either."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa

from glaive.errors import UnsupportedFeatureError

__all__ = ["is_datagen_supported", "rand_batches"]


def is_datagen_supported() -> bool:
    """Whether :func:`rand_batches` works: no, as in pylance's wheels."""
    return False


def rand_batches(
    schema: pa.Schema,  # noqa: ARG001  # pylance has it
    *,
    num_batches: int | None = None,  # noqa: ARG001  # pylance has it
    batch_size_bytes: int | None = None,  # noqa: ARG001  # pylance has it
    rows_per_batch: int | None = None,  # noqa: ARG001  # pylance has it
) -> NoReturn:
    """Not supported.

    Raises
    ------
    UnsupportedFeatureError
        Always.
    """
    raise UnsupportedFeatureError(
        "rand_batches is not supported: rows at random are made for tests of pylance itself. Make "
        "them with numpy.random"
    )
