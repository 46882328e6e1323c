"""Writing: rows from anywhere, versions one by one, nothing half-written visible."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    OptionError,
    SchemaError,
    StoreError,
)
from glaive.io.access import open_store
from glaive.table.load import open_latest, read_transaction
from glaive.testing import CountingStore, Fault

TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


class TestModes:
    def test_create_append_overwrite(self, tmp_path: Path) -> None:
        place = tmp_path / "t"
        first = glaive.write_dataset(TABLE, place)
        second = glaive.write_dataset(TABLE, str(place), mode="append")
        third = glaive.write_dataset(TABLE.select(["name"]), place, mode="overwrite")
        assert [one.version for one in (first, second, third)] == [1, 2, 3]
        assert [one.count_rows() for one in (first, second, third)] == [3, 6, 3]
        assert third.schema.names == ["name"]
        assert glaive.dataset(place, version=2).to_table().equals(pa.concat_tables([TABLE, TABLE]))

    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_a_dataset_that_is_not_there_is_created(self, tmp_path: Path, mode: str) -> None:
        assert glaive.write_dataset(TABLE, tmp_path / "t", mode=mode).version == 1

    def test_create_refuses_a_dataset_before_writing(self, tmp_path: Path) -> None:
        glaive.write_dataset(TABLE, tmp_path / "t")
        before = files(tmp_path)
        with pytest.raises(DatasetExistsError, match=r"version 1.*mode='append'") as caught:
            glaive.write_dataset(TABLE, tmp_path / "t")
        assert isinstance(caught.value, OSError)
        assert files(tmp_path) == before

    def test_an_opened_dataset_is_a_place_too(self, tmp_path: Path) -> None:
        opened = glaive.write_dataset(TABLE, tmp_path / "t")
        assert glaive.write_dataset(TABLE, opened, mode="append").count_rows() == 6
        assert opened.version == 1
        opened.insert(TABLE)
        assert (opened.version, opened.count_rows()) == (3, 9)

    def test_appends_from_an_old_version_go_on_top(self, tmp_path: Path) -> None:
        old = glaive.write_dataset(TABLE, tmp_path / "t")
        glaive.write_dataset(TABLE, tmp_path / "t", mode="append")
        assert glaive.write_dataset(TABLE, old, mode="append").count_rows() == 9

    def test_memory_holds_datasets(self) -> None:
        glaive.write_dataset(TABLE, "memory://written/t")
        glaive.write_dataset(TABLE, "memory://written/t", mode="append")
        opened = glaive.dataset("memory://written/t")
        assert opened.to_table().num_rows == 6
        assert opened.take([4], ["id"])["id"].to_pylist() == [2]

    @pytest.mark.parametrize(
        ("option", "value", "error"),
        [
            ("mode", "replace", OptionError),
            ("max_rows_per_file", 0, OptionError),
            ("max_bytes_per_file", -1, OptionError),
            ("max_rows_per_file", 1.5, OptionError),
            ("data_storage_version", "9.9", OptionError),
            ("max_row_per_file", 5, OptionError),
            ("enable_stable_row_ids", "yes", OptionError),
            ("transaction_properties", {"job": 5}, OptionError),
            ("commit_message", 5, OptionError),
            ("initial_bases", ["x"], OptionError),
            ("target_bases", ["x"], OptionError),
            ("max_rows_per_group", 0, OptionError),
        ],
    )
    def test_options_that_cannot_be(
        self, tmp_path: Path, option: str, value: Any, error: type[Exception]
    ) -> None:
        with pytest.raises(error, match=option):
            glaive.write_dataset(TABLE, tmp_path / "t", **{option: value})
        assert files(tmp_path) == []


class TestConcurrency:
    @pytest.mark.parametrize("kind", ["directory", "memory"])
    def test_all_appends_of_many_writers_are_kept(self, tmp_path: Path, kind: str) -> None:
        place = str(tmp_path / "t") if kind == "directory" else f"memory://{tmp_path.name}/t"
        glaive.write_dataset(pa.table({"id": pa.array([], pa.int64())}), place)

        def work(writer: int) -> None:
            for at in range(5):
                rows = pa.table({"id": [writer * 100 + at]})
                glaive.write_dataset(rows, place, mode="append")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        written = glaive.dataset(place)
        assert written.version == 31
        expected = {writer * 100 + at for writer in range(6) for at in range(5)}
        assert set(written.to_table()["id"].to_pylist()) == expected

    def test_of_many_creators_one_wins(self, tmp_path: Path) -> None:
        def work(writer: int) -> bool:
            try:
                glaive.write_dataset(pa.table({"id": [writer]}), tmp_path / "t")
            except DatasetExistsError:
                return False
            return True

        with ThreadPoolExecutor(6) as pool:
            won = list(pool.map(work, range(6)))
        assert sum(won) == 1
        assert glaive.dataset(tmp_path / "t").to_table()["id"].to_pylist() == [won.index(True)]


class TestOtherWriters:
    """Another writer makes a version while rows are being written."""

    def write(self, place: Path, mode: str, other: pa.Table, other_mode: str) -> LanceDataset:
        def rows() -> Iterator[pa.RecordBatch]:
            yield from TABLE.slice(0, 1).to_batches()
            glaive.write_dataset(other, place, mode=other_mode)
            yield from TABLE.slice(1).to_batches()

        return glaive.write_dataset(rows(), place, mode=mode)

    def test_both_append(self, tmp_path: Path) -> None:
        glaive.write_dataset(TABLE, tmp_path)
        assert self.write(tmp_path, "append", TABLE, "append").count_rows() == 9

    @pytest.mark.parametrize("other_mode", ["append", "create", "overwrite"])
    def test_both_append_to_nothing(self, tmp_path: Path, other_mode: str) -> None:
        written = self.write(tmp_path, "append", TABLE, other_mode)
        assert written.version == 2
        assert written.to_table().equals(pa.concat_tables([TABLE, TABLE]))

    def test_an_append_to_nothing_that_does_not_fit_what_came(self, tmp_path: Path) -> None:
        with pytest.raises(SchemaError, match="'name' is not a column"):
            self.write(tmp_path / "1", "append", TABLE.select(["id"]), "append")
        with pytest.raises(CommitConflictError, match="append them again"):
            self.write(tmp_path / "2", "append", TABLE.select(["name", "id"]), "append")
        strict = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        with pytest.raises(CommitConflictError, match="append them again"):
            self.write(tmp_path / "3", "append", TABLE.cast(strict), "append")

    def test_two_may_not_create(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetExistsError, match="version 1 exists"):
            self.write(tmp_path, "create", TABLE, "append")

    def test_an_overwrite_replaces_appends_and_conflicts_with_overwrites(
        self, tmp_path: Path
    ) -> None:
        glaive.write_dataset(TABLE, tmp_path)
        assert self.write(tmp_path, "overwrite", TABLE, "append").count_rows() == 3
        for mode in ("append", "overwrite"):
            with pytest.raises(CommitConflictError, match="overwrite"):
                self.write(tmp_path, mode, TABLE, "overwrite")
        assert glaive.dataset(tmp_path).to_table().equals(TABLE)


class TestFiles:
    def test_a_file_ends_at_its_rows(self, tmp_path: Path) -> None:
        rows = pa.table({"id": range(25)})
        written = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=10)
        assert [one.physical_rows for one in written.get_fragments()] == [10, 10, 5]
        assert written.to_table().equals(rows)

    def test_batches_of_a_stream_share_files(self, tmp_path: Path) -> None:
        batches = pa.table({"id": range(30)}).to_batches(max_chunksize=4)
        written = glaive.write_dataset(batches, tmp_path / "t", max_rows_per_file=14)
        assert [one.physical_rows for one in written.get_fragments()] == [14, 14, 2]
        assert written.to_table()["id"].to_pylist() == list(range(30))

    @pytest.mark.parametrize(
        ("rows", "limit", "files"), [(100_000, 1000, 1), (3_000_000, 1_000_000, 3)]
    )
    def test_a_file_ends_when_its_written_pages_exceed_the_limit(
        self, tmp_path: Path, rows: int, limit: int, files: int
    ) -> None:
        numbers = pa.table({"id": np.random.default_rng(0).integers(0, 1 << 60, rows)})
        written = glaive.write_dataset(numbers, tmp_path / "t", max_bytes_per_file=limit)
        assert len(written.get_fragments()) == files
        assert written.to_table().equals(numbers)

    def test_no_rows_make_no_file(self, tmp_path: Path) -> None:
        written = glaive.write_dataset(TABLE.slice(0, 0), tmp_path / "t")
        assert written.get_fragments() == []
        assert not (tmp_path / "t" / "data").exists()

    @pytest.mark.parametrize("version", ["2.1", "2.2", "stable"])
    def test_the_format_version_is_kept(self, tmp_path: Path, version: str) -> None:
        written = glaive.write_dataset(TABLE, tmp_path / "t", data_storage_version=version)
        expected = "2.2" if version == "stable" else version
        assert written.data_storage_version == expected
        for mode in ("append", "overwrite"):
            later = glaive.write_dataset(TABLE, tmp_path / "t", mode=mode)
            assert later.data_storage_version == expected
            assert {
                str(file.version) for one in later.get_fragments() for file in one.data_files()
            } == {expected}

    def test_progress_is_told_of_files(self, tmp_path: Path) -> None:
        told: list[tuple[str, int | None]] = []

        class Progress:
            def begin(self, fragment: Any) -> None:
                told.append(("begin", fragment.physical_rows))

            def complete(self, fragment: Any) -> None:
                told.append(("complete", fragment.physical_rows))

        rows = pa.table({"id": range(15)})
        glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=10, progress=Progress())
        assert told == [("begin", None), ("complete", 10), ("begin", None), ("complete", 5)]

    def test_properties_and_message_are_kept(self, tmp_path: Path) -> None:
        written = glaive.write_dataset(
            TABLE, tmp_path / "t", transaction_properties={"job": "7"}, commit_message="first"
        )
        transaction = written.read_transaction(1)
        assert transaction is not None
        assert transaction.transaction_properties == {"job": "7", "__lance_commit_message": "first"}

    def test_v1_names_stay_v1(self, tmp_path: Path) -> None:
        glaive.write_dataset(TABLE, tmp_path / "t", enable_v2_manifest_paths=False)
        glaive.write_dataset(TABLE, tmp_path / "t", mode="append")
        names = [name for name in files(tmp_path / "t" / "_versions") if "manifest" in name]
        assert names == ["1.manifest", "2.manifest"]
        assert glaive.dataset(tmp_path / "t").count_rows() == 6


class TestSources:
    def check(self, place: Path, data: object, **options: Any) -> None:
        written = glaive.write_dataset(data, place / "t", **options)
        assert written.to_table().cast(TABLE.schema).equals(TABLE)

    def test_record_batches(self, tmp_path: Path) -> None:
        self.check(tmp_path, TABLE.to_batches()[0])

    def test_a_reader(self, tmp_path: Path) -> None:
        self.check(tmp_path, TABLE.to_reader(max_chunksize=2))

    def test_a_list_of_batches(self, tmp_path: Path) -> None:
        self.check(tmp_path, TABLE.to_batches(max_chunksize=2))

    def test_a_generator(self, tmp_path: Path) -> None:
        self.check(tmp_path, iter(TABLE.to_batches(max_chunksize=2)), schema=TABLE.schema)

    def test_a_mapping_of_columns(self, tmp_path: Path) -> None:
        self.check(tmp_path, TABLE.to_pydict())

    def test_rows_as_mappings(self, tmp_path: Path) -> None:
        self.check(tmp_path, TABLE.to_pylist())

    def test_rows_with_different_keys_lose_nothing(self, tmp_path: Path) -> None:
        written = glaive.write_dataset([{"a": 1}, {"b": "x", "a": 2}], tmp_path / "t")
        assert written.to_table().to_pydict() == {"a": [1, 2], "b": [None, "x"]}

    def test_a_pyarrow_dataset_and_its_scanner(self, tmp_path: Path) -> None:
        self.check(tmp_path / "1", pads.dataset(TABLE))
        self.check(tmp_path / "2", pads.dataset(TABLE).scanner())

    def test_a_dataset_and_its_scanner(self, tmp_path: Path) -> None:
        written = glaive.write_dataset(TABLE, tmp_path / "t")
        self.check(tmp_path / "1", written)
        self.check(tmp_path / "2", written.scanner())

    def test_anything_with_an_arrow_stream(self, tmp_path: Path) -> None:
        table: Any = TABLE

        class Stream:
            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                return table.__arrow_c_stream__(requested_schema)

        self.check(tmp_path, Stream())

    def test_anything_with_an_arrow_array(self, tmp_path: Path) -> None:
        batch: Any = TABLE.to_batches()[0]

        class Batch:
            def __arrow_c_array__(self, requested_schema: object = None) -> object:
                return batch.__arrow_c_array__(requested_schema)

        self.check(tmp_path, Batch())

    def test_a_pandas_frame(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"]})
        self.check(tmp_path, frame)
        assert glaive.dataset(tmp_path / "t").to_pandas()["id"].tolist() == [1, 2, 3]

    def test_polars_frames(self, tmp_path: Path) -> None:
        polars = pytest.importorskip("polars")
        self.check(tmp_path / "1", polars.from_arrow(TABLE))
        self.check(tmp_path / "2", polars.from_arrow(TABLE).lazy())

    def test_pandas_frames_one_after_the_other(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        frame = TABLE.to_pandas()
        named = frame.set_axis(pandas.Index(["x", "y", "z"], name="key"))
        for other in (
            frame.assign(more=1),
            frame.drop(columns="name"),
            frame.assign(id=["1", "2", "3"]),
            frame.assign(id=[0.5, 1, 2]),
            named,
        ):
            with pytest.raises(SchemaError, match=r"item 1|rows have|cast"):
                glaive.write_dataset(iter([frame, other]), tmp_path / "t")
        filtered = frame[frame["id"] > 1]
        reordered = frame[list(reversed(frame.columns))]
        written = glaive.write_dataset(iter([frame, filtered, reordered]), tmp_path / "t")
        assert written.to_table()["id"].to_pylist() == [1, 2, 3, 2, 3, 1, 2, 3]

    @pytest.mark.parametrize("within", [lambda one: one, lambda one: [one]], ids=["alone", "lists"])
    def test_members_that_only_later_pandas_frames_have_are_refused(
        self, tmp_path: Path, within: Any
    ) -> None:
        pandas = pytest.importorskip("pandas")
        first, later = (
            pandas.DataFrame({"id": [1], "x": [within(value)]})
            for value in ({"a": 1}, {"a": 2, "b": 3})
        )
        with pytest.raises(SchemaError, match=r"column 'x': item 1 .* a member '(item\.)?b'"):
            glaive.write_dataset(iter([first, later]), tmp_path / "t")
        written = glaive.write_dataset(iter([later, first, later]), tmp_path / "t")
        assert written.to_table().num_rows == 3

    def test_a_series_is_no_frame(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        series = pandas.Series([1], name="a")
        for given in (series, iter([series]), iter([series.to_frame(), series])):
            with pytest.raises(OptionError, match="data to write: expected"):
                glaive.write_dataset(given, tmp_path / "t")

    @pytest.mark.parametrize("within", [lambda kind: kind, pa.list_], ids=["alone", "in lists"])
    def test_members_that_only_later_batches_have_are_refused(
        self, tmp_path: Path, within: Any
    ) -> None:
        one, two = pa.struct({"a": pa.int64()}), pa.struct({"b": pa.int8(), "a": pa.int64()})
        values = ({"a": 1}, {"a": 2, "b": 3})
        first, later = (
            pa.table({"x": pa.array([value if within is not pa.list_ else [value]], within(kind))})
            for value, kind in zip(values, (one, two), strict=True)
        )
        with pytest.raises(SchemaError, match=r"a member '(item\.)?b', which .* lacks"):
            glaive.write_dataset(iter([first, later]), tmp_path / "t")
        with pytest.raises(SchemaError, match=r"a member '(item\.)?b', which .* lacks"):
            glaive.write_dataset(later, tmp_path / "t", schema=first.schema)
        written = glaive.write_dataset(iter([later, first]), tmp_path / "t")
        assert written.to_table().num_rows == 2

    def test_objects_in_polars_frames_are_refused(self, tmp_path: Path) -> None:
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({"a": [1], "b": polars.Series([object()], dtype=polars.Object)})
        for data in (frame, iter([frame]), frame.lazy()):
            with pytest.raises(SchemaError, match="column 'b' holds objects"):
                glaive.write_dataset(data, tmp_path / "t")
        dataset = glaive.write_dataset(pa.table({"id": [1]}), tmp_path / "t")
        with pytest.raises(SchemaError, match="column 'b' holds objects"):
            dataset.add_columns(lambda _: frame)

    @pytest.mark.parametrize(
        "data",
        [
            [{"id": 1}, {"id": 2**64}],
            {"id": np.array([1, 2], ">i4")},
            {"id": np.array(["2020"], "datetime64[Y]")},
        ],
        ids=["large", "swapped", "years"],
    )
    def test_values_that_arrow_lacks_are_errors_of_the_option(
        self, tmp_path: Path, data: Any
    ) -> None:
        with pytest.raises(OptionError, match="data to write"):
            glaive.write_dataset(data, tmp_path / "t")

    def test_views_and_dictionaries_become_plain_text(self, tmp_path: Path) -> None:
        views = TABLE.set_column(1, "name", TABLE["name"].cast(pa.string_view()))
        self.check(tmp_path / "1", views)
        glaive.write_dataset(TABLE, tmp_path / "2")
        coded = TABLE.set_column(1, "name", TABLE["name"].dictionary_encode())
        assert glaive.write_dataset(coded, tmp_path / "2", mode="append").count_rows() == 6

    def test_a_schema_decides_the_types(self, tmp_path: Path) -> None:
        schema = pa.schema({"id": pa.int16(), "name": pa.large_string()})
        for at, data in enumerate((TABLE, TABLE.to_pydict(), TABLE.to_pylist())):
            written = glaive.write_dataset(data, tmp_path / str(at), schema=schema)
            assert written.schema == schema

    def test_an_empty_iterable_needs_a_schema(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="pass schema="):
            glaive.write_dataset([], tmp_path / "t")
        written = glaive.write_dataset([], tmp_path / "t", schema=TABLE.schema)
        assert written.schema == TABLE.schema

    @pytest.mark.parametrize("data", [5, "rows.csv", None, [1, 2], object()])
    def test_other_things_are_refused(self, tmp_path: Path, data: object) -> None:
        with pytest.raises(OptionError, match="data to write: "):
            glaive.write_dataset(data, tmp_path / "t")

    def test_a_stream_that_changes_kind_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="a record batch as item 1, found int"):
            glaive.write_dataset([TABLE.to_batches()[0], 3], tmp_path / "t")
        assert files(tmp_path) == []


class TestSchemas:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        schema = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("tags", pa.list_(pa.string())),
                pa.field("meta", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ]
        )
        row = {"id": 1, "name": "a", "tags": ["t"], "meta": {"x": 1, "y": "z"}}
        glaive.write_dataset(pa.Table.from_pylist([row], schema), tmp_path / "t")
        return tmp_path / "t"

    def append(self, place: Path, rows: pa.Table) -> LanceDataset:
        return glaive.write_dataset(rows, place, mode="append")

    def test_columns_are_matched_by_name(self, place: Path) -> None:
        schema = glaive.dataset(place).schema
        row = {"meta": None, "id": 2, "tags": None, "name": "b"}
        rows = pa.Table.from_pylist([row], schema).select(["tags", "name", "meta", "id"])
        assert self.append(place, rows).to_table().to_pylist()[1] == row

    def test_a_missing_column_reads_as_null(self, place: Path) -> None:
        table = self.append(place, pa.table({"id": [2]})).to_table()
        assert table.to_pylist()[1] == {"id": 2, "name": None, "tags": None, "meta": None}
        assert glaive.dataset(place).take([1, 0], ["name"])["name"].to_pylist() == [None, "a"]

    def test_forms_of_the_same_type_are_cast(self, place: Path) -> None:
        rows = pa.table(
            {
                "id": [2],
                "name": pa.array(["b"], pa.large_string()),
                "tags": pa.array([["u"]], pa.large_list(pa.large_string())),
                "meta": pa.array(
                    [{"y": "w", "x": 5}], pa.struct({"y": pa.string_view(), "x": pa.int32()})
                ),
            }
        )
        read = self.append(place, rows).to_table().to_pylist()[1]
        assert read == {"id": 2, "name": "b", "tags": ["u"], "meta": {"x": 5, "y": "w"}}

    def test_missing_members_read_as_null_at_any_depth(self, tmp_path: Path) -> None:
        whole = pa.struct(
            [("x", pa.int64()), ("y", pa.struct([("p", pa.int8()), ("q", pa.int8())]))]
        )
        part = pa.struct([("y", pa.struct([("q", pa.int8())]))])
        first = {"s": {"x": 1, "y": {"p": 2, "q": 3}}, "l": [{"x": 4, "y": None}, None]}
        schema = pa.schema([("s", whole), ("l", pa.list_(whole))])
        glaive.write_dataset(pa.Table.from_pylist([first], schema), tmp_path / "t")
        schema = pa.schema([("l", pa.large_list(part)), ("s", part)])
        second = {"l": [{"y": {"q": 5}}, None], "s": {"y": {"q": 6}}}
        self.append(tmp_path / "t", pa.Table.from_pylist([second], schema))
        expected = {
            "s": {"x": None, "y": {"p": None, "q": 6}},
            "l": [{"x": None, "y": {"p": None, "q": 5}}, None],
        }
        opened = glaive.dataset(tmp_path / "t")
        assert opened.to_table().to_pylist() == [first, expected]
        assert opened.take([1, 0]).to_pylist() == [expected, first]
        assert opened.to_table(["s.x", "s.y.q"]).to_pylist()[1] == {"s.x": None, "s.y.q": 6}

    def test_members_are_matched_by_name_within_lists(self, tmp_path: Path) -> None:
        one = pa.struct([("x", pa.int64()), ("y", pa.string())])
        turned = pa.struct([("y", pa.large_string()), ("x", pa.int64())])
        glaive.write_dataset(pa.table({"l": pa.array([], pa.list_(one))}), tmp_path / "t")
        rows = pa.table({"l": pa.array([[{"y": "a", "x": 1}], None], pa.list_(turned))})
        assert self.append(tmp_path / "t", rows).to_table().to_pylist() == rows.to_pylist()

    def test_a_member_that_is_never_null_may_not_be_missing(self, tmp_path: Path) -> None:
        kind = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64())])
        glaive.write_dataset(pa.table({"s": pa.array([], kind)}), tmp_path / "t")
        with pytest.raises(SchemaError, match=r"'s\.x' is missing"):
            self.append(tmp_path / "t", pa.table({"s": [{"y": 1}]}))

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ({"id": pa.array([2], pa.int32())}, "'id' should be int64, found int32"),
            ({"id": ["2"]}, "'id' should be int64, found string"),
            ({"id": [2], "other": [1]}, "'other' is not a column"),
            ({"name": ["b"]}, "'id' is missing"),
            ({"id": [2], "meta": [{"x": 1}]}, "'meta.x' should be int32, found int64"),
            ({"id": [2], "meta": [{"q": 1}]}, "'meta.q' is not a member"),
            ({"id": [2], "meta": [1]}, "'meta' should be struct"),
            ({"id": [2], "tags": [[1]]}, "'tags.item' should be string, found int64"),
            ({"id": [2], "tags": ["t"]}, "'tags' should be list"),
        ],
    )
    def test_rows_that_do_not_fit_are_refused(
        self, place: Path, rows: dict[str, Any], message: str
    ) -> None:
        before = files(place)
        with pytest.raises(SchemaError, match=message) as caught:
            self.append(place, pa.table(rows))
        assert str(place) in str(caught.value)
        assert files(place) == before

    def test_all_faults_are_named_at_once(self, place: Path) -> None:
        with pytest.raises(
            SchemaError, match=r"'one' is not a column.*'two' is not.*'id' is missing"
        ):
            self.append(place, pa.table({"one": [1], "two": [2]}))

    def test_nulls_in_a_column_without_nulls_are_refused(self, place: Path) -> None:
        before = files(place)
        with pytest.raises(SchemaError, match="'id'"):
            self.append(place, pa.table({"id": pa.array([None], pa.int64())}))
        assert files(place) == before

    @pytest.mark.parametrize("name", ["", "a.b", "_rowid", "_row_created_at_version"])
    def test_names_that_no_column_can_have(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(SchemaError, match="Rename it"):
            glaive.write_dataset(pa.table({name: [1]}), tmp_path / "t")

    def test_two_columns_of_one_name_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SchemaError, match="'a'"):
            glaive.write_dataset(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "t")

    def test_schema_metadata_comes_back(self, tmp_path: Path) -> None:
        marked = TABLE.replace_schema_metadata({"made": "here"})
        written = glaive.write_dataset(marked, tmp_path / "t")
        assert written.to_table().schema.equals(marked.schema, check_metadata=True)
        assert written.schema_metadata == {"made": "here"}


class TestFaults:
    @pytest.mark.parametrize("names", [["b"], ["a", "b"], ["a", "a"]])
    def test_pieces_with_other_columns_are_refused(self, tmp_path: Path, names: list[str]) -> None:
        pieces = [pa.table([[1]], names=["a"]), pa.table([[1]] * len(names), names=names)]
        with pytest.raises(SchemaError, match=r"expected a\. All batches"):
            glaive.write_dataset(iter(pieces), tmp_path / "t")
        assert files(tmp_path) == []

    def test_a_failing_source_leaves_nothing(self, tmp_path: Path) -> None:
        def rows() -> Iterator[pa.RecordBatch]:
            for _ in range(3):
                yield pa.record_batch({"id": list(range(10))})
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError, match="the source broke"):
            glaive.write_dataset(rows(), tmp_path / "t", max_rows_per_file=10)
        assert files(tmp_path) == []

    @pytest.mark.parametrize("kind", ["fail", "lie"])
    def test_whatever_request_fails_the_dataset_is_old_or_new(
        self, tmp_path: Path, kind: str
    ) -> None:
        options = WriteOptions(mode="append", max_rows_per_file=2)
        count = 0
        for nth in range(1, 60):
            place = tmp_path / f"{nth}"
            glaive.write_dataset(TABLE, place)
            store = CountingStore(open_store(place))
            store.inject(Fault(at=nth, kind=kind))  # type: ignore[arg-type]  # one of the kinds
            failed = False
            try:
                plan = plan_write(store, TABLE.schema, options)
                commit_plan(plan, write_fragments(plan, [TABLE]))
            except StoreError:
                failed = True
            read = glaive.dataset(place).to_table()
            assert read.num_rows in ((3, 6) if failed else (6,))
            assert read.slice(0, 3).equals(TABLE)
            if store.requests < nth:
                break
            count += failed
        assert count > 5

    def test_fragments_without_a_commit_are_invisible(self, tmp_path: Path) -> None:
        glaive.write_dataset(TABLE, tmp_path / "t")
        store = open_store(tmp_path / "t")
        options = WriteOptions(mode="append")
        plan = plan_write(store, TABLE.schema, options)
        fragments = write_fragments(plan, [TABLE])
        assert [one.physical_rows for one in fragments] == [3]
        assert glaive.dataset(tmp_path / "t").count_rows() == 3
        commit_plan(plan, fragments)
        assert glaive.dataset(tmp_path / "t").count_rows() == 6

    def test_a_commit_is_recognised_when_repeated(self, tmp_path: Path) -> None:
        glaive.write_dataset(TABLE, tmp_path / "t")
        store = open_store(tmp_path / "t")
        options = WriteOptions(mode="append", transaction_properties={"job": "17"})
        plan = plan_write(store, TABLE.schema, options)
        fragments = write_fragments(plan, [TABLE])
        first = commit_plan(plan, fragments, once="job")
        again = commit_plan(plan, fragments, once="job")
        assert first.version == again.version == open_latest(store).version == 2
        transaction = read_transaction(store, again)
        assert transaction is not None
        assert transaction.properties["job"] == "17"

    def test_a_place_that_is_a_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("text")
        with pytest.raises(StoreError, match=str(tmp_path / "file")):
            glaive.write_dataset(TABLE, tmp_path / "file" / "t")


def test_rows_as_mappings_with_a_schema_are_written_as_they_come(tmp_path: Path) -> None:
    held: list[int] = []

    class Row(dict[str, int]):
        def __init__(self, at: int) -> None:
            super().__init__(a=at)
            held.append(1)

        def __del__(self) -> None:
            held.pop()

    most = 0

    def rows() -> Iterator[Row]:
        nonlocal most
        for at in range(30_000):
            yield Row(at)
            most = max(most, len(held))

    schema = pa.schema([("a", pa.int64())])
    dataset = glaive.write_dataset(rows(), tmp_path / "d", schema=schema)
    assert dataset.to_table().column("a").to_pylist() == list(range(30_000))
    assert most < 20_000


def test_masked_numbers_of_a_matrix_are_nulls(tmp_path: Path) -> None:
    matrix = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    rows = glaive.write_dataset({"plain": matrix, "turned": matrix.T}, tmp_path).to_table()
    assert rows["plain"].to_pylist() == [[1.0, None], [3.0, 4.0]]
    assert rows["turned"].to_pylist() == [[1.0, 3.0], [None, 4.0]]


def test_masked_positions_and_numbers_of_queries_are_refused(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"v": np.eye(3, dtype="f4")}, tmp_path)
    masked = np.ma.array([1, 2, 0], mask=[False, True, False])
    with pytest.raises(OptionError, match="row positions: expected integers, found a masked one"):
        dataset.take(masked)
    with pytest.raises(OptionError, match=r"nearest: q: expected numbers.*: masked numbers"):
        dataset.to_table(nearest={"column": "v", "q": masked})
    assert dataset.take(np.ma.array([1, 0]))["v"].to_pylist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    "rows", [[{"a": 1}], pa.table({"a": pa.array([1], pa.int16())})], ids=["rows", "table"]
)
def test_a_schema_may_be_that_of_another_dataset(tmp_path: Path, rows: object) -> None:
    schema = pa.schema([("a", pa.int16())])
    first = glaive.write_dataset([], tmp_path / "a.lance", schema=schema)
    second = glaive.write_dataset(rows, tmp_path / "b.lance", schema=first.lance_schema)
    assert second.to_table() == pa.table({"a": [1]}, schema)
