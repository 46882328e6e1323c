"""What users see: datasets, scanners, fragments, and how rows are written.

The package has the name of the function that opens a dataset, and importing a package sets
its name in ``glaive``. So it can be called: ``glaive.dataset(uri)`` is
:func:`glaive.dataset.open.dataset` whether or not the package was imported before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


@cache
def _function() -> Callable[..., LanceDataset]:
    from glaive.dataset.open import dataset

    return dataset


class _Callable(ModuleType):
    def __call__(
        self,
        uri: str | os.PathLike[str],
        version: int | str | tuple[str | None, int | None] | None = None,
        asof: object = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        **options: Any,
    ) -> LanceDataset:
        """Open a dataset; see :func:`glaive.dataset.open.dataset`."""
        return _function()(uri, version, asof, storage_options=storage_options, **options)


sys.modules[__name__].__class__ = _Callable
