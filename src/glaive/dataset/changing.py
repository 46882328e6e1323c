"""Changing rows and columns of a dataset. Each method hands on."""

from __future__ import annotations

from typing import Any

from glaive.dataset.reading import Reading

__all__ = ["Changing"]


class Changing(Reading):
    """The part of ``LanceDataset`` that writes rows and columns."""

    def insert(self, data: object, *, mode: str = "append", **options: Any) -> None:
        """Write rows and move this object to the new version; options of ``write_dataset``."""
        from glaive.dataset.open import write_dataset

        written = write_dataset(data, self, mode=mode, **options)
        self._open(written.manifest)
