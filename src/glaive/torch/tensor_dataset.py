"""``TensorDataset``: a tensor in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

__all__ = ["TensorDataset"]


class TensorDataset(Dataset):  # type: ignore[misc]  # torch is not installed for type checks
    """A tensor in batches: item ``i`` is the ``i``-th batch.

    Parameters
    ----------
    data
        A tensor or NumPy array.
    batch_size
        Rows of a batch.
    """

    def __init__(self, data: Any, batch_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._data = torch.from_numpy(data) if isinstance(data, np.ndarray) else data
        self._batch_size = batch_size

    def __repr__(self) -> str:
        return "LanceTensorDataset"

    def __len__(self) -> int:
        rows = int(self._data.shape[0])
        return (rows + self._batch_size - 1) // self._batch_size

    def __getitem__(self, idx: int) -> Any:
        if not 0 <= idx < len(self):
            raise IndexError(f"batch {idx} of {len(self)}")
        return self._data[idx * self._batch_size : (idx + 1) * self._batch_size]
