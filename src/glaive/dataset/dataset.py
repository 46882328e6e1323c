"""The dataset as users see it: one class, put together from what it can do."""

from __future__ import annotations

from glaive.dataset.changing import Changing
from glaive.dataset.columns_part import ChangingColumns
from glaive.dataset.committing import Committing
from glaive.dataset.managing import Managing

__all__ = ["LanceDataset"]


class LanceDataset(Changing, ChangingColumns, Committing, Managing):
    """One version of a dataset. Made by :func:`glaive.dataset` and :func:`glaive.write_dataset`.

    Safe to share between threads; can be pickled, and is opened again at the same version.
    """
