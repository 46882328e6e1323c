"""Shares of datasets, classes that clients ask for, and steps of indices, beside pylance."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import glaive
from glaive.errors import DatasetNotFoundError, OptionError, StoreError, UnreachableError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

LIBRARIES = ["lance", "glaive"]

UNREACHABLE = {
    "aws_endpoint": "http://127.0.0.1:1",
    "allow_http": "true",
    "aws_access_key_id": "a",
    "aws_secret_access_key": "b",
    "aws_region": "us-east-1",
    "client_max_retries": "0",
    "client_retry_timeout": "1",
}


@pytest.fixture
def place(tmp_path: Path) -> str:
    uri = str(tmp_path / "a.lance")
    glaive.write_dataset(pa.table({"id": range(100)}), uri, max_rows_per_file=25)
    return uri


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    numbers = np.random.default_rng(1).random(600 * 16, np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 16)
    missing = pa.array(np.arange(600) % 7 == 3)
    inside = pa.StructArray.from_arrays([column], ["v"], mask=missing)
    uri = str(tmp_path / "v.lance")
    glaive.write_dataset(pa.table({"v": column, "s": inside}), uri, max_rows_per_file=300)
    return uri


def ids(batches: Iterable[pa.RecordBatch]) -> list[list[Any]]:
    return [batch["id"].to_pylist() for batch in batches]


def flat(*passes: Iterable[pa.RecordBatch]) -> list[Any]:
    """The ids of all batches, one after the other."""
    return [one for batches in passes for batch in ids(batches) for one in batch]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("sampler", ["ShardedFragmentSampler", "ShardedBatchSampler"])
def test_shares_of_filtered_rows_are_those_of_pylance(
    place: str, sampler: str, world_size: int
) -> None:
    options = {"batch_size": 8, "columns": ["id"], "filter": "id < 61 AND id % 3 != 1"}
    shares: dict[str, list[list[int]]] = {}
    for library in LIBRARIES:
        cls = getattr(import_module(f"{library}.sampler"), sampler)
        dataset = import_module(library).dataset(place)
        shares[library] = [
            flat(cls(rank, world_size)(dataset, **options)) for rank in range(world_size)
        ]
    assert shares["glaive"] == shares["lance"]
    assert sorted(one for share in shares["glaive"] for one in share) == [
        one for one in range(61) if one % 3 != 1
    ]


def test_filtered_shares_in_random_order_are_all_rows_once(place: str) -> None:
    sampler: Any = import_module("glaive.sampler").ShardedBatchSampler
    shares = [
        ids(
            sampler(rank, 3, randomize=True, seed=2)(
                glaive.dataset(place), batch_size=8, columns=["id"], filter="id < 50"
            )
        )
        for rank in range(3)
    ]
    assert [sum(map(len, share)) for share in shares] == [17, 17, 16]
    assert sorted(one for share in shares for batch in share for one in batch) == list(range(50))
    assert shares[0][0] != sorted(shares[0][0])


@pytest.mark.filterwarnings("ignore:ShardedBatchIterator is deprecated")
@pytest.mark.parametrize("granularity", ["fragment", "batch"])
def test_sharded_iterators_read_what_those_of_pylance_do(place: str, granularity: Any) -> None:
    read = {}
    for library in LIBRARIES:
        cls = import_module(f"{library}._dataset.sharded_batch_iterator").ShardedBatchIterator
        shares = [cls(place, rank, 2, batch_size=10, granularity=granularity) for rank in (0, 1)]
        read[library] = [flat(share, share) for share in shares]
        wide = cls(place, 1, 2, columns={"x": "id * 2"})
        assert next(iter(wide)).schema.names == ["x"]
    assert read["glaive"] == read["lance"]


def test_a_sharded_iterator_has_one_of_two_granularities(place: str) -> None:
    cls: Any = import_module("glaive._dataset.sharded_batch_iterator").ShardedBatchIterator
    warned = pytest.warns(UserWarning, match="deprecated")
    with (
        warned,
        pytest.raises(OptionError, match="granularity: expected fragment or batch, found 'row'"),
    ):
        cls(place, 0, 1, granularity="row")
    with pytest.warns(UserWarning, match="ShardedBatchIterator is deprecated, use"):
        alone = cls.from_torch(place, columns=["id"], batch_size=50)
    assert sorted(flat(alone)) == list(range(100))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_cached_stream_is_read_again_until_it_is_closed(library: str, tmp_path: Path) -> None:
    cls = import_module(f"{library}._dataset.cache").CachedDataset
    batches = pa.table({"id": range(7)}).to_batches(max_chunksize=3)
    with cls(iter(batches), cache=str(tmp_path)) as cached:
        assert [ids(cached) for _ in range(2)] == [[[0, 1, 2], [3, 4, 5], [6]]] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    cls: Any = import_module("glaive._dataset.cache").CachedDataset
    batches = pa.table({"id": range(7)}).to_batches(max_chunksize=3)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=rf"cannot write {tmp_path}/file/below"):
        list(cls(batches, cache=str(tmp_path / "file" / "below")))
    cached = cls(batches, cache=str(tmp_path / "cache"))
    assert [len(list(cached)) for _ in range(2)] == [3, 3]


def test_an_iterator_whose_first_pass_ended_early_is_not_cached_in_part() -> None:
    cls: Any = import_module("glaive._dataset.cache").CachedDataset
    batches = pa.table({"id": range(7)}).to_batches(max_chunksize=3)
    cached, again = cls(iter(batches)), cls(batches)
    for one in (cached, again):
        assert next(iter(one)).num_rows == 3
    with pytest.raises(OptionError, match="ended early"):
        list(cached)
    assert ids(again) == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_empty_stream_is_empty_in_each_pass() -> None:
    cls: Any = import_module("glaive._dataset.cache").CachedDataset
    cached = cls(iter([]))
    assert [list(cached) for _ in range(2)] == [[], []]


def test_a_closed_cache_says_so() -> None:
    cls: Any = import_module("glaive._dataset.cache").CachedDataset
    cached = cls(iter([]))
    cached.close()
    cached.close()
    with pytest.raises(OptionError, match="closed"):
        iter(cached)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_are_not_made_at_random(library: str) -> None:
    module = import_module(f"{library}._datagen")
    assert not module.is_datagen_supported()
    with pytest.raises(NotImplementedError):
        module.rand_batches(pa.schema({"id": pa.int64()}), num_batches=1, rows_per_batch=1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_datasets_fragments_and_scanners_are_those_of_arrow(library: str, place: str) -> None:
    arrow = pyarrow.dataset
    dataset = import_module(library).dataset(place)
    asked = [
        (dataset, arrow.Dataset),
        (dataset.get_fragments()[0], arrow.Fragment),
        (dataset.scanner(), arrow.Scanner),
        (dataset.get_fragments()[0].scanner(), arrow.Scanner),
    ]
    assert [isinstance(one, cls) for one, cls in asked] == [True] * 4
    assert not isinstance(dataset.scanner(), arrow.Dataset | arrow.Fragment)
    inner = import_module(f"{library}.fragment").LanceFragment
    assert isinstance(dataset.get_fragments()[0], inner)


def test_duckdb_reads_scanners(place: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    scanner = glaive.dataset(place).scanner(filter="id > 97")  # noqa: F841  # DuckDB finds it
    assert duckdb.sql("SELECT id FROM scanner ORDER BY id").fetchall() == [(98,), (99,)]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("options", [{}, {"version": 2}], ids=["latest", "version"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_store_that_cannot_be_reached_is_a_value_error_of_opening(
    library: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        import_module(library).dataset("s3://b/x", storage_options=UNREACHABLE, **options)


def test_a_path_through_a_file_is_an_error_of_the_store_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(DatasetNotFoundError, match="it is a file"):
        glaive.dataset(str(tmp_path / "a"))
    with pytest.raises(UnreachableError, match="Not a directory") as caught:
        glaive.dataset(str(tmp_path / "a" / "b"))
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value.__cause__, glaive.errors.StoreError)


@pytest.mark.parametrize("text", ["quick fox", "quick", "unknown words", "quick unknown", ""])
@pytest.mark.parametrize("library", LIBRARIES)
def test_phrases_need_positions_whatever_their_words(
    library: str, text: str, tmp_path: Path
) -> None:
    lib, query = import_module(library), import_module(f"{library}.query")
    rows = pa.table({"t": ["the quick fox", "lazy dog"]})
    dataset = lib.write_dataset(rows, str(tmp_path / "t.lance"))
    dataset.create_scalar_index("t", "INVERTED", with_position=False)
    with pytest.raises(ValueError, match="position is not found but required for phrase"):
        dataset.to_table(full_text_query=query.PhraseQuery(text, "t"))
    assert dataset.to_table(full_text_query=query.MatchQuery("quick", "t")).num_rows == 1


@pytest.mark.parametrize("column", ["v", "s.v"])
@pytest.mark.parametrize("fragments", [None, [1]])
@pytest.mark.parametrize("library", LIBRARIES)
def test_steps_of_vector_indices_are_functions(
    library: str, fragments: list[int] | None, column: str, vectors: str
) -> None:
    import_module(f"{library}.lance")
    steps: Any = import_module(f"{library}.lance").indices
    inner = import_module(library).dataset(vectors)._ds  # noqa: SLF001  # lance-ray passes it
    centroids = steps.train_ivf_model(inner, column, 16, 4, "l2", 32, 5, fragments)
    assert (centroids.type.list_size, len(centroids)) == (16, 4)
    codebook = steps.train_pq_model(
        inner, column, 16, 4, "l2", 64, 5, centroids, fragments, num_bits=4
    )
    assert (codebook.type.list_size, len(codebook)) == (16, 16)


def test_steps_of_vector_indices_check_the_dimension(vectors: str) -> None:
    steps: Any = import_module("glaive.lance").indices
    with pytest.raises(OptionError, match="vectors of column 'v' have 16, found 8"):
        steps.train_ivf_model(glaive.dataset(vectors), "v", 8, 4, "l2", 32, 5)


def test_vectors_in_structs_are_indexed_by_a_sample(vectors: str) -> None:
    dataset = glaive.dataset(vectors)
    dataset.create_index("s.v", "IVF_FLAT", num_partitions=2, sample_rate=100)
    query = dataset.take([5])["v"].to_pylist()[0]
    near = {"column": "s.v", "q": query, "k": 1, "nprobes": 2}
    found = dataset.to_table(["_rowid"], nearest=near)
    assert found["_rowid"].to_pylist() == [5]
    steps: Any = import_module("glaive.lance").indices
    assert len(steps.get_ivf_model(dataset, "s.v_idx").centroids) == 2


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_rotation_is_made_once_for_several_tasks(library: str, vectors: str) -> None:
    steps: Any = import_module(f"{library}.lance").indices
    model = steps.build_rq_model(16, num_bits=1)
    told = json.loads(model)
    assert (len(told["fast_rotation_signs"]), told["code_dim"], told["num_bits"]) == (8, 16, 1)
    with pytest.raises(ValueError, match="dimension must be divisible by 8 for IVF_RQ"):
        steps.build_rq_model(12)
    dataset = import_module(library).dataset(vectors)
    dataset.create_index("v", "IVF_RQ", num_partitions=1, num_bits=1, rabitq_model=model)
    assert [one.name for one in dataset.describe_indices()] == ["v_idx"]
