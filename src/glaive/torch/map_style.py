"""``SafeLanceDataset``: rows by position, opened by each process of a loader for itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset as open_dataset

__all__ = ["SafeLanceDataset", "get_safe_loader"]


class SafeLanceDataset(Dataset):  # type: ignore[misc]  # torch is not installed for type checks
    """Rows as dictionaries, by position. Each process opens the dataset for itself.

    Parameters
    ----------
    uri
        Where the dataset is.
    dataset_options
        Of :func:`glaive.dataset`.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dataset_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.uri = uri
        self.dataset_options = dict(dataset_options or {})
        self._len = len(open_dataset(uri, **self.dataset_options))
        self._ds: LanceDataset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ds": None}

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of a batch, with one take."""
        if self._ds is None:
            self._ds = open_dataset(self.uri, **self.dataset_options)
        return self._ds.take(indices).to_pylist()


def get_safe_loader(
    dataset: Any, batch_size: int = 32, num_workers: int = 4, **kwargs: Any
) -> DataLoader:
    """A ``DataLoader`` whose workers are started by ``spawn``, and kept between epochs.

    Parameters
    ----------
    dataset
        A map-style dataset.
    batch_size
        Rows of a batch.
    num_workers
        Processes; 0 for none.
    **kwargs
        Of ``DataLoader``; they override these defaults.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}
    if num_workers:
        options["multiprocessing_context"] = torch.multiprocessing.get_context("spawn")
        options["persistent_workers"] = True
    return DataLoader(dataset, **(options | kwargs))
