"""Datasets of PyTorch: batches as tensors, shares of workers, samples, caches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.torch.data import (
    LanceDataset,
    LanceLoader,
    SafeLanceDataset,
    TensorDataset,
    concat_batches,
    get_safe_loader,
    to_tensor,
)

import glaive
from glaive.arrow import ImageArray, bfloat16_array
from glaive.errors import FormatError, OptionError, SchemaError, VersionNotFoundError
from glaive.sampler import FullScanSampler
from glaive.torch import preferred_device

torch: Any = pytest.importorskip("torch", reason="install the 'loaders' group")

ROWS = 100


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    numbers = np.arange(ROWS)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 4, dtype=np.float32)), 4)
    pixels = np.arange(ROWS * 6, dtype=np.uint8).reshape(ROWS, 1, 2, 3)
    table = pa.table(
        {
            "id": pa.array(numbers),
            "big": pa.array(numbers.astype(np.uint64)),
            "flag": pa.array(numbers % 2 == 0),
            "gap": pa.array([None if row % 10 == 0 else float(row) for row in range(ROWS)]),
            "brain": bfloat16_array([None if row == 3 else row for row in range(ROWS)]),
            "v": vectors,
            "image": ImageArray.from_array(pa.FixedShapeTensorArray.from_numpy_ndarray(pixels)),
        }
    )
    target = str(tmp_path_factory.mktemp("torch") / "a.lance")
    return glaive.write_dataset(table, target, max_rows_per_file=15).uri


def ids(batches: Iterable[Any]) -> list[int]:
    return [int(row) for batch in batches for row in batch]


def test_columns_become_tensors_of_the_size_asked_for(uri: str) -> None:
    batches = list(LanceDataset(uri, 30))
    assert [len(batch["id"]) for batch in batches] == [30, 30, 30, 10]
    first = batches[0]
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in first.items()} == {
        "id": (torch.int64, (30,)),
        "big": (torch.int64, (30,)),
        "flag": (torch.bool, (30,)),
        "gap": (torch.float64, (30,)),
        "brain": (torch.bfloat16, (30,)),
        "v": (torch.float32, (30, 4)),
        "image": (torch.uint8, (30, 1, 2, 3)),
    }
    assert torch.isnan(first["gap"]).nonzero().ravel().tolist() == [0, 10, 20]
    assert torch.isnan(first["brain"]).nonzero().ravel().tolist() == [3]
    assert batches[1]["v"][0].tolist() == [120.0, 121.0, 122.0, 123.0]


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("version", ["2.0", "2.2"])
@pytest.mark.parametrize("cache", [False, True])
def test_tensors_may_be_changed_in_place(tmp_path: Path, version: str, cache: bool) -> None:
    """What a file holds as it is lies in a map that nobody may write to."""
    generator = np.random.default_rng(0)
    numbers: Any = generator.integers(-(2**62), 2**62, 4_000)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(generator.standard_normal(8_000)), 2)
    brain = bfloat16_array(generator.standard_normal(4_000).tolist())
    rows = pa.table({"n": numbers, "v": vectors, "b": brain})
    glaive.write_dataset(rows, tmp_path / "t.lance", data_storage_version=version)
    data = LanceDataset(tmp_path / "t.lance", 512, cache=cache)
    for _ in range(3):
        found = []
        for batch in data:
            found += batch["n"].tolist()
            for column in batch.values():
                column.fill_(7)
        assert found == numbers.tolist()
    taken = SafeLanceDataset(tmp_path / "t.lance", to_tensor_fn=to_tensor)
    for _ in range(2):
        batch = taken.__getitems__([3, 1])
        assert batch["n"].tolist() == numbers[[3, 1]].tolist()
        batch["n"].add_(1)


def test_one_column_is_the_tensor_itself(uri: str) -> None:
    assert ids(LanceDataset(uri, 7, columns=["id"])) == list(range(ROWS))
    assert ids(LanceDataset(uri, 7, columns=["id"], filter="id < 3")) == [0, 1, 2]
    assert LanceDataset(uri, 7, columns=["id"]).schema.names == ["id"]


def test_batches_stay_batches_without_a_function(uri: str) -> None:
    batches = list(LanceDataset(uri, 60, columns=["id"], with_row_id=True, to_tensor_fn=None))
    assert [batch.schema.names for batch in batches] == [["id", "_rowid"]] * 2
    assert concat_batches(batches).num_rows == ROWS


@pytest.mark.parametrize("granularity", [None, "fragment", "batch"])
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_have_each_row_once(uri: str, granularity: Any, workers: int) -> None:
    data = LanceDataset(uri, 8, columns=["id"], shard_granularity=granularity)
    method = "fork" if workers else None
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=workers, multiprocessing_context=method
    )
    assert sorted(ids(loader)) == list(range(ROWS))


def test_ranks_may_be_given(uri: str) -> None:
    with pytest.warns(DeprecationWarning, match="rank and world_size are deprecated"):
        shares = [ids(LanceDataset(uri, 8, columns=["id"], rank=at, world_size=2)) for at in (0, 1)]
    assert sorted(shares[0] + shares[1]) == list(range(ROWS))
    assert ids(LanceDataset(uri, 9, columns=["id"], sampler=FullScanSampler())) == list(range(ROWS))
    alone = LanceDataset(uri, 9, columns=["id"], auto_detect_rank=False)
    assert ids(alone) == list(range(ROWS))


def test_a_sample_is_a_part(uri: str) -> None:
    found = ids(LanceDataset(uri, 8, columns=["id"], samples=20, filter="id < 50"))
    assert len(set(found)) == 20
    assert max(found) < 50


def test_later_passes_read_what_the_first_one_kept(uri: str, tmp_path: Path) -> None:
    for cache in (True, str(tmp_path)):
        data = LanceDataset(uri, 30, columns=["id"], cache=cache)
        next(iter(data))  # a pass that ends early keeps nothing
        assert ids(data) == ids(data) == list(range(ROWS))
    assert not list(tmp_path.iterdir())  # the file has no name


def test_workers_after_a_pass_without_any_have_each_row_once(uri: str) -> None:
    data = LanceDataset(uri, 9, columns=["id"], cache=True)
    assert ids(data) == list(range(ROWS))
    for _ in range(2):
        assert sorted(ids(LanceLoader(data, num_workers=2))) == list(range(ROWS))
    assert ids(data) == list(range(ROWS))  # the workers deleted nothing of what it kept


def test_values_that_no_tensor_holds_are_lists_and_dictionaries(tmp_path: Path) -> None:
    table = pa.table(
        {
            "t": ["a", None, "c"],
            "word": pa.array(["x", "y", "x"]).dictionary_encode(),
            "b": [b"1", b"", None],
            "many": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
            "texts": pa.array([["u"], [], ["v", None]]),
            "both": pa.array([{"n": 1, "m": "p"}, None, {"n": 3, "m": "q"}]),
            "grid": pa.array([[[1.0, 2.0]] * 3] * 3, pa.list_(pa.list_(pa.float32(), 2), 3)),
            "gaps": pa.array([[1.0, None], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        }
    )
    place = str(tmp_path / "a.lance")
    (row,) = LanceDataset(glaive.write_dataset(table, place, data_storage_version="2.2"), 3)
    assert row["t"] == ["a", None, "c"]
    assert row["word"] == ["x", "y", "x"]
    assert row["b"] == [b"1", b"", None]
    assert [one if one is None else one.tolist() for one in row["many"]] == [[1, 2], None, []]
    assert row["texts"] == [["u"], [], ["v", None]]
    assert row["both"]["m"] == ["p", None, "q"]
    assert row["both"]["n"][[0, 2]].tolist() == [1, 3]
    assert tuple(row["grid"].shape) == (3, 3, 2)
    assert torch.isnan(row["gaps"]).tolist() == [[False, True], [True, True], [False, False]]


def test_vectors_that_are_null_are_not_a_number(tmp_path: Path) -> None:
    missing = pa.array([False, True, False])
    brain = bfloat16_array([1, 2, 3, 4, None, 6])
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 2)
    columns = {
        "brain": pa.FixedSizeListArray.from_arrays(brain, 2, mask=missing),
        "matrix": pa.FixedSizeListArray.from_arrays(pairs, 2, mask=missing),
    }
    glaive.write_dataset(pa.table(columns), tmp_path / "t.lance")
    (batch,) = LanceDataset(tmp_path / "t.lance", 3)
    assert batch["brain"].dtype == torch.bfloat16
    assert str(batch["brain"].tolist()) == "[[1.0, 2.0], [nan, nan], [nan, 6.0]]"
    assert batch["matrix"].shape == (3, 2, 2)
    assert batch["matrix"].isnan().tolist()[1] == [[True] * 2] * 2
    assert batch["matrix"][2].tolist() == [[8.0, 9.0], [10.0, 11.0]]


def test_columns_without_a_tensor_are_refused(tmp_path: Path) -> None:
    for values in (pa.array([1], pa.timestamp("us")), pa.array([True, None])):
        dataset = glaive.write_dataset({"t": values}, tmp_path / "a.lance", mode="overwrite")
        with pytest.raises(SchemaError, match=r"in column 't'. Leave the column out"):
            list(LanceDataset(dataset, 2))
    for options in ({"batch_size": 0}, {"batch_size": 1, "shard_granularity": "rows"}):
        with pytest.raises(OptionError, match="expected"):
            LanceDataset(dataset, **options)


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_large_values_are_bytes_or_files_for_a_function(tmp_path: Path, version: str) -> None:
    if version == "2.2":
        table = pa.table(
            [glaive.blob_array([b"ab", b"cd"]), pa.array([1, 2])],
            schema=pa.schema([glaive.blob_field("b"), pa.field("id", pa.int64())]),
        )
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        schema = pa.schema([field, pa.field("id", pa.int64())])
        table = pa.table([[b"ab", b"cd"], [1, 2]], schema=schema)
    dataset = glaive.write_dataset(table, tmp_path / "a.lance", data_storage_version=version)

    def read(batch: Any, **options: Any) -> list[bytes]:
        assert options["use_blob_api"]
        return [file.readall() for file in batch["b"]]

    assert list(LanceDataset(dataset, 2, to_tensor_fn=read)) == [[b"ab", b"cd"]]
    (batch,) = LanceDataset(dataset, 2)
    assert batch["b"] == [b"ab", b"cd"]
    assert list(batch) == ["id", "b"]
    by_position = SafeLanceDataset(str(tmp_path / "a.lance"), to_tensor_fn=to_tensor)
    batch = by_position.__getitems__([1, 0, 1])
    assert batch["b"] == [b"cd", b"ab", b"cd"]
    assert batch["id"].tolist() == [2, 1, 2]
    with pytest.raises(SchemaError, match="blob files need a to_tensor_fn"):
        to_tensor({"b": dataset.take_blobs("b", indices=[0])})


@pytest.mark.parametrize("filter", [None, "id > 4"])
@pytest.mark.parametrize("count", [5, 50])
def test_a_sample_has_large_values_and_row_ids(
    tmp_path: Path, filter: str | None, count: int
) -> None:
    large = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), large])
    rows = pa.table([range(40), [b"%d" % number for number in range(40)]], schema=schema)
    dataset = glaive.write_dataset(rows, tmp_path / "a.lance", max_rows_per_file=9)
    sampled = LanceDataset(dataset, 4, samples=count, filter=filter, with_row_id=True)
    found = [pair for batch in sampled for pair in zip(batch["id"], batch["b"], strict=True)]
    assert len(found) == min(count, 40 if filter is None else 35)
    assert all(value == b"%d" % int(number) for number, value in found)
    assert all("_rowid" in batch for batch in sampled)
    without = LanceDataset(dataset, 4, samples=count, columns=["id", "b"])
    assert all(set(batch) == {"id", "b"} for batch in without)


def test_rows_by_position_are_dictionaries(uri: str) -> None:
    data = SafeLanceDataset(uri)
    assert len(data) == ROWS
    assert data[7]["id"] == 7
    assert [row["id"] for row in data.__getitems__([3, 1])] == [3, 1]
    for workers in (0, 1):
        loader = get_safe_loader(data, batch_size=40, num_workers=workers, collate_fn=len)
        assert list(loader) == [40, 40, 20]


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_by_position_come_as_tensors_of_a_batch(uri: str, workers: int) -> None:
    data = SafeLanceDataset(uri, columns=["id", "v"], to_tensor_fn=to_tensor)
    loader = get_safe_loader(data, batch_size=40, num_workers=workers, shuffle=True)
    batches = list(loader)
    assert [tuple(batch["v"].shape) for batch in batches] == [(40, 4), (40, 4), (20, 4)]
    assert sorted(ids(batch["id"] for batch in batches)) == list(range(ROWS))
    assert data[3]["id"].tolist() == [3]


@pytest.mark.spec("rel-4")
def test_rows_by_position_are_none_of_a_dataset_made_in_the_place_of_their_own(
    tmp_path: Path,
) -> None:
    place = tmp_path / "a.lance"
    glaive.write_dataset({"id": np.arange(9)}, place)
    data = SafeLanceDataset(place)
    glaive.LanceDataset.drop(place)
    glaive.write_dataset({"id": np.arange(9, 18)}, place)
    with pytest.raises(VersionNotFoundError, match="another dataset made in its place"):
        data[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.spec("rel-4")
def test_rows_by_position_stay_those_of_the_version_that_was_opened(
    tmp_path: Path, workers: int, branch: bool
) -> None:
    dataset = glaive.write_dataset({"id": np.arange(100)}, tmp_path / "a.lance")
    if branch:
        dataset = dataset.create_branch("b")
        dataset.insert({"id": np.arange(100, 120)})
    options: dict[str, Any] = {"version": ("b", None)} if branch else {}
    data = SafeLanceDataset(tmp_path / "a.lance", to_tensor_fn=to_tensor, dataset_options=options)
    dataset.delete("id < 10")
    dataset.insert({"id": np.arange(500, 510)})
    loader = get_safe_loader(data, batch_size=8, num_workers=workers)
    assert ids(loader) == list(range(120 if branch else 100))


def test_a_tensor_is_a_dataset_of_batches() -> None:
    data = TensorDataset(np.arange(10).reshape(5, 2), 2)
    assert [len(batch) for batch in data] == [2, 2, 1]
    assert len(data) == 3


def test_a_device_is_preferred() -> None:
    assert preferred_device("cpu") == torch.device("cpu")
    assert preferred_device() is not None


def test_damaged_texts_are_an_error_that_names_the_column(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"t": ["größe"] * 2 + ["x"]}), tmp_path / "t.lance")
    (file,) = (tmp_path / "t.lance" / "data").iterdir()
    file.write_bytes(file.read_bytes().replace("ö".encode(), b"\xff\xff", 1))
    with pytest.raises(FormatError, match=r"column 't': .*utf-8.* Leave the column out"):
        next(iter(LanceDataset(tmp_path / "t.lance", batch_size=2)))
    with pytest.raises(FormatError, match=r"rows of .*t\.lance: .*utf-8"):
        SafeLanceDataset(str(tmp_path / "t.lance"))[0]


@pytest.mark.spec("rel-27")
def test_the_rows_of_a_loader_do_not_show_the_password_of_its_uri() -> None:
    opened = glaive.write_dataset(pa.table({"id": [1, 2]}), "memory://loader/t?sig=MARKED")
    shown = repr(LanceDataset(opened, 2))
    assert "memory://loader/t" in shown
    assert "MARKED" not in shown
