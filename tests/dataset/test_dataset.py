"""A dataset as users see it."""

from __future__ import annotations

import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import (
    FilterError,
    NotFoundError,
    OptionError,
    OptionRangeError,
    RowIndexError,
    StoreError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)

ROWS = 250
TABLE = pa.table(
    {
        "id": pa.array(np.arange(ROWS)),
        "name": [f"name {i}" for i in range(ROWS)],
        "meta": [{"x": i} for i in range(ROWS)],
    }
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dataset") / "t.lance"
    glaive.write_dataset(TABLE, place, max_rows_per_file=100)
    return place


@pytest.fixture
def dataset(place: Path) -> LanceDataset:
    return glaive.dataset(place)


def test_the_highest_field_id_counts_dropped_columns_that_are_in_data_files(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(pa.table({"a": [1], "b": [2]}), tmp_path / "t")
    dataset.add_columns({"c": "a + b"})
    dataset.drop_columns(["b"])
    assert dataset.max_field_id == 2
    dataset.drop_columns(["c"])  # its file is no longer part of the version
    assert dataset.max_field_id == 1


class TestDescription:
    def test_what_it_is(self, place: Path, dataset: LanceDataset) -> None:
        assert dataset.uri == str(place)
        assert (dataset.version, dataset.latest_version) == (1, 1)
        assert dataset.schema == TABLE.schema
        assert dataset.lance_schema.names == ["id", "name", "meta"]
        assert dataset.data_storage_version == "2.2"
        assert dataset.max_field_id == 3
        assert not dataset.has_index
        assert not dataset.has_stable_row_ids
        assert dataset.metadata == dataset.config() == dataset.schema_metadata == {}
        assert dataset.fragment_ids() == [0, 1, 2]
        assert len(dataset) == dataset.count_rows() == ROWS
        assert repr(dataset) == f"LanceDataset({str(place)!r}, version=1)"

    def test_stats(self, dataset: LanceDataset) -> None:
        assert dataset.stats.dataset_stats(max_rows_per_group=60) == {
            "num_deleted_rows": 0,
            "num_fragments": 3,
            "num_small_files": 1,
        }

    def test_partitions_are_not_offered(self, dataset: LanceDataset) -> None:
        with pytest.raises(UnsupportedFeatureError, match="partition_expression"):
            _ = dataset.partition_expression


class TestReading:
    def test_head_and_slice(self, dataset: LanceDataset) -> None:
        assert dataset.head(3).equals(TABLE.slice(0, 3))
        assert dataset.head(2, columns=["id"]).equals(TABLE.select(["id"]).slice(0, 2))
        assert dataset.slice(95, 105).equals(TABLE.slice(95, 10))
        assert dataset.slice(240, 1000, columns=["name"])["name"].to_pylist()[-1] == "name 249"
        assert dataset.slice(5, 5).num_rows == 0

    @pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 3)])
    def test_a_slice_goes_forward(self, dataset: LanceDataset, start: int, end: int) -> None:
        with pytest.raises(OptionError, match=r"non-negative, got -1|end \(3\) must be >= start"):
            dataset.slice(start, end)

    def test_samples_are_of_different_rows(self, dataset: LanceDataset) -> None:
        assert dataset.sample(ROWS).sort_by("id").equals(TABLE)
        ordered = dataset.sample(20, ["id"], randomize_order=False)["id"].to_numpy()
        assert (np.diff(ordered) > 0).all()
        random.seed(7)
        first = dataset.sample(5)
        random.seed(7)
        assert dataset.sample(5).equals(first)
        with pytest.raises(OptionError, match=f"expected 0 to {ROWS}"):
            dataset.sample(ROWS + 1)
        for count in ("a", 1.5, None):
            with pytest.raises(OptionError, match="num_rows: expected an integer, found"):
                dataset.sample(count)  # type: ignore[arg-type]  # as untyped callers may

    def test_pandas_and_readers(self, dataset: LanceDataset) -> None:
        pytest.importorskip("pandas")
        assert dataset.to_pandas(["id"], limit=3)["id"].tolist() == [0, 1, 2]
        frame = dataset.to_pandas(["id"], limit=2, with_row_id=True, types_mapper=None)
        assert frame.columns.tolist() == ["id", "_rowid"]
        second = dataset.get_fragments()[1]
        assert second.to_pandas(["id"], limit=1, offset=4)["id"].tolist() == [104]
        assert dataset.scanner(limit=2).to_pandas()["name"].tolist() == ["name 0", "name 1"]
        assert dataset.scanner().to_reader().read_all().equals(TABLE)

    def test_a_scanner_runs_more_than_once(self, dataset: LanceDataset) -> None:
        scanner = dataset.scanner(["id"], limit=120)
        assert scanner.to_table().equals(scanner.to_table())
        assert scanner.count_rows() == 120
        assert scanner.head(5)["id"].to_pylist() == [0, 1, 2, 3, 4]
        assert scanner.head(500).num_rows == 120
        assert scanner.projected_schema.names == ["id"]
        assert scanner.dataset_schema == TABLE.schema
        assert sum(batch.num_rows for batch in scanner.scan_batches()) == 120
        assert "120 rows of 2 fragments" in scanner.explain_plan()
        assert "fragment 1: rows 0..20" in scanner.explain_plan(True)

    def test_filters_pick_rows_and_count_them(self, dataset: LanceDataset) -> None:
        assert dataset.to_table(["id"], "id < 3")["id"].to_pylist() == [0, 1, 2]
        assert dataset.count_rows("id < 3") == 3
        assert dataset.get_fragments()[1].count_rows("id < 3") == 0

    def test_a_wrong_filter_is_refused_before_reading(self, dataset: LanceDataset) -> None:
        with pytest.raises(FilterError, match="idd"):
            dataset.to_batches(filter="idd > 3")

    def test_an_unknown_option_is_refused_before_reading(self, dataset: LanceDataset) -> None:
        misspelt: dict[str, Any] = {"batchsize": 5}
        with pytest.raises(OptionError, match="did you mean 'batch_size'"):
            dataset.to_batches(**misspelt)
        unknown: dict[str, Any] = {"xyzzy": 5}
        with pytest.raises(OptionError, match=r"argument 'xyzzy'\. Known: aggregate, batch_re"):
            dataset.to_table(**unknown)

    @pytest.mark.parametrize("option", ["batch_size", "batch_readahead", "limit"])
    def test_a_negative_number_is_an_overflow_error(
        self, dataset: LanceDataset, option: str
    ) -> None:
        negative: dict[str, Any] = {option: -1}
        with pytest.raises(OptionRangeError, match=option) as caught:
            dataset.to_table(**negative)
        assert isinstance(caught.value, OverflowError)
        with pytest.raises(OverflowError, match="row position -1"):
            dataset.take([-1])

    def test_an_option_by_position_and_by_name_is_refused(self, dataset: LanceDataset) -> None:
        by_position: Any = (["id"], None, 2, 1, None)
        assert dataset.to_table(*by_position)["id"].to_pylist() == [1, 2]
        with pytest.raises(OptionError, match="arguments of to_table: 'nearest' is given twice"):
            dataset.to_table(*by_position, nearest=None)
        with pytest.raises(TypeError, match="positional arguments"):
            dataset.to_table(*by_position, *range(20))

    def test_threads_share_a_dataset(self, dataset: LanceDataset) -> None:
        def work(seed: int) -> bool:
            rows = np.random.default_rng(seed).integers(0, ROWS, 10)
            return dataset.take(rows).equals(TABLE.take(pa.array(rows))) and len(dataset) == ROWS

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(200)))


class TestFragments:
    def test_each_reads_its_rows(self, dataset: LanceDataset) -> None:
        fragments = dataset.get_fragments()
        assert [one.fragment_id for one in fragments] == [0, 1, 2]
        assert [one.count_rows() for one in fragments] == [100, 100, 50]
        assert pa.concat_tables([one.to_table() for one in fragments]).equals(TABLE)
        second = fragments[1]
        assert second.physical_rows == 100
        assert second.num_deletions == 0
        assert second.deletion_file() is None
        assert second.schema == TABLE.schema
        assert second.head(2, columns=["id"])["id"].to_pylist() == [100, 101]
        assert second.take([5, 0, 5], ["id"])["id"].to_pylist() == [105, 100, 105]
        assert [batch.num_rows for batch in second.to_batches(batch_size=60)] == [60, 40]
        assert second.scanner(["id"], limit=1, offset=3).to_table()["id"].to_pylist() == [103]

    def test_a_row_of_another_fragment_is_out_of_range(self, dataset: LanceDataset) -> None:
        with pytest.raises(RowIndexError, match=r"position 100 .* fragment 0 has 100 rows"):
            dataset.get_fragments()[0].take([3, 100])

    def test_filters_of_fragments_are_refused(self, dataset: LanceDataset) -> None:
        with pytest.raises(UnsupportedFeatureError, match="does not support filter yet"):
            dataset.get_fragments("id > 3")

    def test_one_by_id(self, dataset: LanceDataset) -> None:
        fragment = dataset.get_fragment(2)
        assert fragment is not None
        assert fragment.to_table(["id"])["id"][0].as_py() == 200
        assert dataset.get_fragment(9) is None
        with pytest.raises(NotFoundError, match=r"no fragment 9"):
            dataset.to_table(fragments=[9])

    def test_files_are_told(self, place: Path, dataset: LanceDataset) -> None:
        (file,) = dataset.get_fragments()[0].data_files()
        assert (place / "data" / file.path).stat().st_size == file.file_size_bytes
        assert file.fields == [0, 1, 3]
        assert file.path in repr(dataset.get_fragments()[0])


class TestVersions:
    @pytest.fixture
    def grown(self, tmp_path: Path) -> Path:
        for at in range(3):
            glaive.write_dataset(TABLE.slice(at, 1), tmp_path / "t", mode="append")
        return tmp_path / "t"

    def test_all_are_listed_with_their_totals(self, grown: Path) -> None:
        versions = glaive.dataset(grown).versions()
        assert [one["version"] for one in versions] == [1, 2, 3]
        assert [one["metadata"]["total_rows"] for one in versions] == ["1", "2", "3"]
        assert all(datetime.now() - one["timestamp"] < timedelta(minutes=5) for one in versions)  # noqa: DTZ005  # naive and local, as in pylance

    def test_one_can_be_opened_or_checked_out(self, grown: Path) -> None:
        newest = glaive.dataset(grown)
        assert newest.version == 3
        assert newest.get_version()["version"] == 3
        second = newest.checkout_version(2)
        assert (second.version, second.count_rows()) == (2, 2)
        assert second.latest_version == 3
        assert glaive.dataset(grown, version=1).to_table()["id"].to_pylist() == [0]
        second.checkout_latest()
        assert (second.version, second.count_rows()) == (3, 3)

    def test_what_was_had_from_it_before_it_moved_stays(self, grown: Path) -> None:
        moving = glaive.dataset(grown, version=2)
        fragment, scanner = moving.get_fragments()[1], moving.scanner(["id"])
        assert moving.stats.dataset_stats()["num_fragments"] == 2
        moving.insert(TABLE.slice(5, 1), mode="overwrite")
        assert moving.stats.dataset_stats()["num_fragments"] == 1
        assert moving.to_table()["id"].to_pylist() == [5]
        assert fragment.to_table(["id"]).to_pydict() == {"id": [1]}
        assert fragment.take([0], ["id"]).to_pydict() == {"id": [1]}
        assert fragment.count_rows() == 1
        assert scanner.to_table()["id"].to_pylist() == [0, 1]

    def test_a_version_is_described_when_its_manifest_is_gone(self, grown: Path) -> None:
        second = glaive.dataset(grown, version=2)
        expected = second.versions()[1]
        (grown / "_versions" / f"{2**64 - 3}.manifest").unlink()
        assert second.get_version() == expected

    @pytest.mark.parametrize("version", [0, 4, -1, 2**64])
    def test_one_that_is_not_there_names_those_that_are(self, grown: Path, version: int) -> None:
        with pytest.raises(
            VersionNotFoundError, match=rf"version {version} of .* 1, 2, 3"
        ) as caught:
            glaive.dataset(grown, version=version)
        assert isinstance(caught.value, ValueError)  # pylance: dataset(version=...)
        assert isinstance(caught.value, OSError)  # pylance: checkout_version(...)

    def test_a_version_is_a_number(self, grown: Path) -> None:
        with pytest.raises(OptionError, match=r"integer or a string, found 1.5"):
            glaive.dataset(grown, version=1.5)  # type: ignore[arg-type]  # on purpose

    def test_the_past_can_be_opened_by_time(self, tmp_path: Path) -> None:
        glaive.write_dataset(TABLE, tmp_path / "t")
        time.sleep(0.01)
        between = datetime.now()  # noqa: DTZ005  # naive and local, as users write it
        glaive.write_dataset(TABLE, tmp_path / "t", mode="append")
        assert glaive.dataset(tmp_path / "t", asof=between).version == 1
        assert glaive.dataset(tmp_path / "t", asof=between.astimezone()).version == 1
        assert glaive.dataset(tmp_path / "t", asof="2099-01-01").version == 2
        with pytest.raises(NotFoundError, match=r"no version .* before 2001"):
            glaive.dataset(tmp_path / "t", asof="2001-01-01")
        with pytest.raises(OptionError, match="asof: expected a datetime"):
            glaive.dataset(tmp_path / "t", asof="yesterday")
        far = datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))
        with pytest.raises(OptionError, match="asof: expected a datetime"):
            glaive.dataset(tmp_path / "t", asof=far)

    def test_an_opened_version_does_not_change(self, grown: Path) -> None:
        opened = glaive.dataset(grown)
        glaive.write_dataset(TABLE, grown, mode="overwrite")
        assert opened.to_table()["id"].to_pylist() == [0, 1, 2]
        assert opened.latest_version == 4

    def test_what_a_commit_did_is_told(self, grown: Path) -> None:
        transaction = glaive.dataset(grown).read_transaction(2)
        assert transaction is not None
        assert transaction.read_version == 1
        assert isinstance(transaction.operation, glaive.LanceOperation.Append)


class TestOpening:
    def test_a_path_a_text_or_a_uri(self, place: Path) -> None:
        for uri in (place, str(place), f"file://{place}"):
            assert glaive.dataset(uri).count_rows() == ROWS

    @pytest.mark.parametrize("uri", [None, 5, b"/tmp/t"])
    def test_a_place_is_text(self, uri: Any) -> None:
        for use in (glaive.dataset, lambda place: glaive.write_dataset(TABLE, place)):
            with pytest.raises(OptionError, match="a path or a URI"):
                use(uri)

    def test_tuning_options_of_others_have_no_effect(self, place: Path) -> None:
        assert glaive.dataset(place, block_size=4096).count_rows() == ROWS
        with pytest.warns(DeprecationWarning, match="Use 'index_cache_size_bytes' instead"):
            assert glaive.dataset(place, index_cache_size=10).count_rows() == ROWS

    def test_options_that_are_not_served_are_named(self, place: Path) -> None:
        with pytest.raises(OptionError, match="serialized_manifest: expected a manifest"):
            glaive.LanceDataset(place, serialized_manifest=b"")
        with pytest.raises(TypeError, match="unexpected keyword argument 'vresion'"):
            glaive.dataset(place, vresion=1)  # type: ignore[call-arg]  # on purpose

    def test_pickled_it_opens_again_at_its_version(self, tmp_path: Path) -> None:
        first = glaive.write_dataset(TABLE, tmp_path / "t")
        glaive.write_dataset(TABLE, tmp_path / "t", mode="append")
        again = pickle.loads(pickle.dumps(first))
        assert (again.version, again.count_rows(), again.uri) == (1, ROWS, first.uri)

    def test_fragments_are_pickled_at_their_version(self, tmp_path: Path) -> None:
        data = pa.table({"a": range(10)})
        first = glaive.write_dataset(data, tmp_path / "d", max_rows_per_file=4)
        sent = [pickle.dumps(one) for one in first.get_fragments()]
        first.delete("a >= 4")
        again = [pickle.loads(one) for one in sent]
        assert [one.fragment_id for one in again] == [0, 1, 2]
        assert pa.concat_tables(one.to_table() for one in again) == data

    @pytest.mark.spec("rel-4")
    def test_pickled_it_does_not_become_another_one_made_in_its_place(self, tmp_path: Path) -> None:
        first = glaive.write_dataset(TABLE, tmp_path / "t")
        sent = pickle.dumps(first), pickle.dumps(first.get_fragments()[0])
        glaive.LanceDataset.drop(tmp_path / "t")
        glaive.write_dataset(TABLE, tmp_path / "t")
        for pickled in sent:
            with pytest.raises(VersionNotFoundError, match="another dataset made in its place"):
                pickle.loads(pickled)

    def test_memory_cannot_be_pickled(self) -> None:
        written = glaive.write_dataset(TABLE, "memory://pickling/t")
        with pytest.raises(StoreError, match="memory of this process"):
            pickle.dumps(written)


class TestOtherLibraries:
    def test_arrow_streams(self, dataset: LanceDataset) -> None:
        assert pa.table(dataset.scanner()).equals(TABLE)
        assert pa.table(dataset.scanner(["id"])).equals(TABLE.select(["id"]))

    def test_polars(self, dataset: LanceDataset) -> None:
        polars = pytest.importorskip("polars")
        assert polars.DataFrame(dataset.scanner()).shape == (ROWS, 3)
        lazy = polars.scan_pyarrow_dataset(dataset)
        assert lazy.select("id").sum().collect().item() == sum(range(ROWS))

    def test_duckdb(self, dataset: LanceDataset) -> None:
        duckdb = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        connection.register("things", dataset)
        found = connection.sql("select count(*), max(name) from things where id >= 100").fetchall()
        assert found == [(150, "name 249")]


DUCKDB_FILTERS = (
    "id < 10",
    "id in (3, 5, 400)",
    "id is null",
    "name like 'name 1%'",
    "name like '%9'",
    "name = 'name 7' or id > 490",
    "starts_with(name, 'name 2')",
    "f > 3",
    "f = 'nan'::double",
    "f < 1e300",
    "f is not null and not f > 2",
    "day between '2020-02-01' and '2020-03-01'",
    "ts >= timestamp '2020-01-01 05:00:00'",
    "amount > 4.5",
    "s.a = 3",
    "s.b is null",
    "flag",
    "not flag",
    "list_contains(tags, 't1')",
    "length(name) = 6",
    "upper(name) = 'NAME 8'",
    "cast(id as varchar) = '12'",
    "name between 'name 3' and 'name 4'",
    "id <> 0 and id % 7 = 0",
)


def test_duckdb_pushes_columns_and_filters_and_finds_what_it_would_in_a_table(
    tmp_path: Path,
) -> None:
    duckdb = pytest.importorskip("duckdb")
    n = range(500)
    rows = pa.table(
        {
            "id": pa.array([None if i % 50 == 49 else i for i in n], pa.int64()),
            "name": [None if i % 13 == 12 else f"name {i}" for i in n],
            "f": [float("nan") if i % 9 == 1 else None if i % 9 == 2 else i / 100 for i in n],
            "day": pa.array([18262 + i for i in n], pa.int32()).cast(pa.date32()),
            "ts": pa.array([1577836800000000 + i * 60_000_000 for i in n], pa.timestamp("us")),
            "amount": pa.array(n, pa.int64()).cast(pa.decimal128(21, 2)),
            "s": [None if i % 11 == 3 else {"a": i % 5, "b": None if i % 4 else "x"} for i in n],
            "flag": [None if i % 7 == 3 else i % 2 == 0 for i in n],
            "tags": [[f"t{i % 3}"] for i in n],
        }
    )
    dataset = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=200)
    dataset.delete("id = 5")
    rows = dataset.to_table()
    defaults = glaive.dataset(dataset.uri, default_scan_options={"with_row_id": True})
    connection = duckdb.connect()
    for name, source in {"t": rows, "d": dataset, "o": defaults}.items():
        connection.register(name, source)
    for term in DUCKDB_FILTERS:
        expected = connection.sql(f"select id, name from t where {term} order by ts").fetchall()
        for name in ("d", "o"):
            found = connection.sql(f"select id, name from {name} where {term} order by ts")
            assert found.fetchall() == expected, (name, term)
        counts = connection.sql(f"select count(*) from o where {term}").fetchall()
        assert counts == [(len(expected),)], term
    assert connection.sql("select name, _rowid from o where id = 7").fetchall() == [("name 7", 7)]
    plan = connection.sql("explain select name from d where id < 10").fetchall()[0][1]
    assert "Filters:" in plan
    assert "Projections: name" in plan
