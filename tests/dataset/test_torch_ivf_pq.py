"""Centroids, partitions and codes made on a device of torch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, StoreError, TrainingError

torch = pytest.importorskip("torch", reason="install the 'loaders' group")
vector: Any = pytest.importorskip("glaive.vector")

CPU = torch.device("cpu")
ROWS, MISSING, WITH_NAN = 1200, 7, 11


@pytest.fixture
def numbers() -> Any:
    """Four clusters far from each other, row by row."""
    random = np.random.default_rng(3)
    middles = np.eye(4, 8, dtype=np.float32) * 100
    return middles[np.arange(ROWS) % 4] + random.random((ROWS, 8), np.float32)


@pytest.fixture
def dataset(numbers: Any, tmp_path: Path) -> glaive.LanceDataset:
    rows = numbers.tolist()
    rows[MISSING] = None
    rows[WITH_NAN] = [float("nan")] * 8
    column = pa.array(rows, pa.list_(pa.float32(), 8))
    inside = pa.StructArray.from_arrays([column], ["v"])
    table = pa.table({"v": column, "s": inside})
    return glaive.write_dataset(table, str(tmp_path / "a.lance"), max_rows_per_file=500)


@pytest.fixture
def clusters(numbers: Any) -> Any:
    """A model with the middles of the clusters."""
    from glaive.torch.kmeans import KMeans

    middles = np.stack([numbers[start::4].mean(axis=0) for start in range(4)])
    return KMeans(4, centroids=torch.from_numpy(middles), device=CPU)


@pytest.mark.parametrize("column", ["v", "s.v"])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_centroids_are_trained_from_a_sample(
    dataset: glaive.LanceDataset, metric: str, column: str
) -> None:
    centroids, model = vector.train_ivf_centroids_on_accelerator(
        dataset, column, 6, metric, CPU, sample_rate=100, max_iters=5
    )
    assert (centroids.shape, centroids.dtype, np.isfinite(centroids).all()) == (
        (6, 8),
        np.float32,
        True,
    )
    assert np.allclose(model.centroids.numpy(), centroids)


def test_an_accelerator_is_a_device_and_enough_vectors_are_needed(
    dataset: glaive.LanceDataset,
) -> None:
    train = vector.train_ivf_centroids_on_accelerator
    with pytest.raises(OptionError, match="only support 'cuda' or 'mps' as accelerator, got 'tpu'"):
        train(dataset, "v", 4, "l2", "tpu")
    with pytest.raises(TrainingError, match="Cannot initialize centroids: 2000 need as many"):
        train(dataset, "v", 2000, "l2", CPU)


@pytest.mark.parametrize("column", ["v", "s.v"])
def test_each_row_gets_its_partition_and_what_is_left_of_it(
    dataset: glaive.LanceDataset, numbers: Any, clusters: Any, column: str, tmp_path: Path
) -> None:
    place = vector.compute_partitions(
        dataset, column, clusters, batch_size=100, dst_dataset_uri=tmp_path / "p", num_sub_vectors=2
    )
    found = glaive.dataset(place).to_table()
    order = [row for row in range(ROWS) if row not in (MISSING, WITH_NAN)]
    offsets = dataset.to_table(["_rowid"])["_rowid"].to_numpy()[order]
    assert found["row_id"].to_pylist() == offsets.tolist()
    assert found["partition"].to_pylist() == [row % 4 for row in order]
    left = np.concatenate(
        [np.stack(found[f"__residual_subvec_{part}"].to_numpy()) for part in (1, 2)], axis=1
    )
    expected = numbers[order] - clusters.centroids.numpy()[np.array(order) % 4]
    assert np.allclose(left, expected, atol=1e-4)
    some = vector.compute_partitions(dataset, column, clusters, sample_size=50)
    assert 48 <= glaive.dataset(some).count_rows() <= 50
    with pytest.raises(OptionError, match="num_sub_vectors: 3 does not divide the dimension 8"):
        vector.compute_partitions(dataset, column, clusters, num_sub_vectors=3)


def test_a_temporary_folder_that_cannot_be_made_is_named(
    dataset: glaive.LanceDataset, clusters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(StoreError, match="a temporary folder"):
        vector.compute_partitions(dataset, "v", clusters)


def test_codes_are_those_of_the_nearest_residuals(
    dataset: glaive.LanceDataset, clusters: Any, tmp_path: Path
) -> None:
    parts = vector.compute_partitions(dataset, "v", clusters, num_sub_vectors=2)
    codebook, models = vector.train_pq_codebook_on_accelerator(parts, "l2", CPU, 2)
    assert codebook.shape == (2, 256, 4)
    place, files = vector.compute_pq_codes(parts, models, dst_dataset_uri=str(tmp_path / "q"))
    encoded, left = glaive.dataset(place).to_table(), glaive.dataset(parts).to_table()
    assert [(tmp_path / "q" / "data" / name).exists() for name in files] == [True]
    assert encoded["row_id"].equals(left["row_id"])
    assert encoded["__ivf_part_id"].equals(left["partition"])
    codes = np.stack(encoded["__pq_code"].to_numpy())
    for part in range(2):
        residuals = np.stack(left[f"__residual_subvec_{part + 1}"].to_numpy())
        apart = ((residuals[:, None] - codebook[part][None]) ** 2).sum(axis=2)
        chosen = np.take_along_axis(apart, codes[:, part : part + 1].astype(np.int64), axis=1)
        assert np.allclose(chosen[:, 0], apart.min(axis=1), atol=1e-4)


def test_one_pass_trains_and_codes_without_datasets_between(
    dataset: glaive.LanceDataset, tmp_path: Path
) -> None:
    centroids, model, codebook, models = vector.one_pass_train_ivf_pq_on_accelerator(
        dataset, "v", 4, "l2", CPU, 2, sample_rate=200, max_iters=5
    )
    assert (centroids.shape, codebook.shape, len(models)) == ((4, 8), (2, 256, 4), 2)
    place, _ = vector.one_pass_assign_ivf_pq_on_accelerator(
        dataset, "v", "l2", CPU, model, models, str(tmp_path / "one"), batch_size=300
    )
    parts = vector.compute_partitions(dataset, "v", model, num_sub_vectors=2)
    expected, _ = vector.compute_pq_codes(parts, models)
    assert glaive.dataset(place).to_table().equals(glaive.dataset(expected).to_table())


def test_partitions_given_are_those_of_an_index(
    dataset: glaive.LanceDataset, clusters: Any, tmp_path: Path
) -> None:
    computed = glaive.dataset(vector.compute_partitions(dataset, "v", clusters)).to_table()
    others = (computed["partition"].to_numpy() + 1) % 4
    shifted = {"row_id": computed["row_id"], "partition": others.astype(np.uint32)}
    place = glaive.write_dataset(pa.table(shifted), tmp_path / "p").uri
    dataset.create_index(
        "v", "IVF_FLAT", num_partitions=4, ivf_centroids=clusters.centroids.numpy(),
        precomputed_partition_dataset=place,
    )  # fmt: skip
    nearest = {"column": "v", "q": [100.5, *[0.5] * 7], "k": 5, "nprobes": 1}
    ids = dataset.to_table(["_rowid"], nearest=nearest, with_row_address=True)["_rowaddr"]
    rows = dataset.to_table(["_rowid"])["_rowid"].to_pylist()
    assert {rows.index(one) % 4 for one in ids.to_pylist()} == {3}


def test_settings_of_torch_are_undone_between_batches() -> None:
    from glaive.torch.vectors import without_gradients

    inside: list[bool] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            inside.append(torch.is_grad_enabled())
            yield pa.record_batch({"a": [1]})

    for _ in without_gradients(batches(), allow_cuda_tf32=True):
        assert torch.is_grad_enabled()
    assert inside == [False, False]


def test_columns_of_any_name_and_of_double_numbers_are_encoded(
    numbers: Any, tmp_path: Path
) -> None:
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1).astype(np.float64)), 8)
    dataset = glaive.write_dataset(pa.table({"my vec": column}), tmp_path / "d")
    _, model, _, models = vector.one_pass_train_ivf_pq_on_accelerator(
        dataset, "my vec", 4, "l2", CPU, 2, sample_rate=200, max_iters=5
    )
    parts = vector.compute_partitions(dataset, "my vec", model, num_sub_vectors=2)
    place, _ = vector.compute_pq_codes(parts, models)
    assert glaive.dataset(place).count_rows() == ROWS
