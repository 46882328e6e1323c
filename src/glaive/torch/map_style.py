"""``SafeLanceDataset``: rows by position, opened by each process of a loader for itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from torch.utils.data import DataLoader, Dataset

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset as open_dataset
from glaive.format.blobs import is_blob
from glaive.table.load import check_same
from glaive.torch.tensors import Collate, python_values

# --- Which columns of a dataset are blob columns: their values are read apart from the others


def blob_columns(
    dataset: LanceDataset, columns: Sequence[str] | Mapping[str, str] | None
) -> list[str]:
    """The blob columns among ``columns``; expressions have none."""
    if isinstance(columns, Mapping):
        return []
    return [
        field.name
        for field in dataset.lance_schema.fields
        if (is_blob(field) or field.is_blob_v2) and (columns is None or field.name in columns)
    ]


class SafeLanceDataset(Dataset):  # type: ignore[misc]  # torch is not installed for type checks
    """Rows by position, of the version that was opened. Each process opens it for itself.

    Parameters
    ----------
    uri
        Where the dataset is.
    dataset_options
        Of :func:`glaive.dataset`.
    columns
        Names of columns; all when omitted.
    to_tensor_fn
        From a record batch to tensors, such as :func:`~glaive.torch.data.to_tensor`: the rows of
        a batch then come as one, and :func:`get_safe_loader` leaves them so, which takes a small
        part of the time. Values of blob columns are bytes in it. None for a dictionary per row,
        with descriptions of such values as in pylance.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        to_tensor_fn: Callable[[pa.RecordBatch], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.uri = uri
        self.columns = columns
        self.to_tensor_fn = to_tensor_fn
        self.dataset_options = dict(dataset_options or {})
        opened = open_dataset(uri, **self.dataset_options)
        self._len = len(opened)
        # What is numbered here is the same row in each process, also after later commits.
        self._opened = (opened.uri, opened.manifest.identity)
        self._ds: LanceDataset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ds": None}

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, idx: int) -> Any:
        rows = self.__getitems__([idx])
        return rows[0] if self.to_tensor_fn is None else rows

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """Rows of a batch, with one take: dictionaries, or what ``to_tensor_fn`` makes of all."""
        if self._ds is None:
            uri, identity = self._opened
            opened = open_dataset(uri, **{**self.dataset_options, "version": identity[0]})
            check_same(opened.manifest, identity)
            self._ds = opened
        rows = self._ds.take(indices, self.columns)
        if self.to_tensor_fn is None:
            return python_values(f"rows of {self.uri}", rows)
        for name in blob_columns(self._ds, self.columns):
            values = [value for _, value in self._ds.read_blobs(name, indices=indices)]
            column = pa.chunked_array([values], pa.large_binary())
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, pa.field(name, pa.large_binary()), column)
        (batch,) = rows.combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], schema=rows.schema)
        ]
        return self.to_tensor_fn(batch)


def _as_it_is(batch: Any) -> Any:
    return batch


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
    if getattr(dataset, "to_tensor_fn", None) is not None:
        options["collate_fn"] = _as_it_is
    loader = DataLoader(dataset, **(options | kwargs))
    if loader.num_workers:
        loader.collate_fn = Collate(loader.collate_fn)
    return loader
