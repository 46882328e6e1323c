"""Metadata that is unusual, or wrong in ways that need not keep anybody from the rows."""

from __future__ import annotations

import shutil
import sys
from datetime import timedelta
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.replaced import replaced_clock
from tests.table.places import change_newest

import glaive
from glaive.errors import CorruptFileError, OptionError, SchemaError
from glaive.file import LanceFileReader
from glaive.format.bitmaps import bitmap_of
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.manifest import encode_manifest
from glaive.format.paths import manifest_path
from glaive.format.pb import table_pb2
from glaive.io.access import open_store
from glaive.process import Clock
from glaive.table.cleanup import CleanupPolicy
from glaive.table.load import open_latest

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture
def place(tmp_path: Path) -> str:
    glaive.write_dataset(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


_MILLIONS = b'[{"kind":"range","name":null,"start":0,"stop":1000000000000000000000,"step":1}]'


@pytest.mark.parametrize(
    "noted",
    [
        *(b"{", b"[]", b"null", b'{"index_columns":["x"],"columns":[]}', b"[" * 100_000),
        b'{"index_columns":[],"columns":[null],"column_indexes":[]}',
        b'{"index_columns":%b,"columns":[],"column_indexes":[]}' % _MILLIONS,
        b'{"index_columns":[],"columns":[],"column_indexes":[{"pandas_type":"decimal"}]}',
    ],
    ids=lambda noted: noted[:40].decode("ascii", "replace"),
)
def test_what_pandas_noted_may_be_wrong(place: str, noted: bytes) -> None:
    glaive.write_dataset(ROWS.replace_schema_metadata({"pandas": noted}), place, mode="overwrite")
    frame = glaive.dataset(place).to_pandas()
    assert frame["id"].tolist() == list(range(10))


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("name", ["dateutil", "\\u0064ateutil"])
def test_what_pandas_noted_opens_no_file(place: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"TZif")
    kind = f"datetime64[ns, {name}/{tmp_path / 'secret'}]"
    column = f'{{"name":"id","field_name":"id","pandas_type":"x","numpy_type":"{kind}"}}'
    noted = f'{{"index_columns":[],"column_indexes":[],"columns":[{column}]}}'
    glaive.write_dataset(ROWS.replace_schema_metadata({"pandas": noted}), place, mode="overwrite")
    secret, opened = str(tmp_path / "secret"), []

    def note(event: str, told: tuple[object, ...]) -> None:
        if event == "open" and told[0] == secret:
            opened.append(event)

    sys.addaudithook(note)
    dataset = glaive.dataset(place)
    rows, file = list(range(10)), dataset.get_fragments()[0].data_files()[0].path
    for frame in (
        dataset.to_pandas(),
        dataset.to_table().to_pandas(),
        dataset.scanner(columns=["id"]).to_reader().read_pandas(),
        dataset.take(rows).to_pandas(),
        LanceFileReader(f"{place}/data/{file}").read_all().to_table().to_pandas(),
    ):
        assert frame["id"].tolist() == rows
    assert not opened


@pytest.mark.parametrize("noted", [b"our pandas", b'{"of": "a user"}'])
def test_metadata_of_that_key_that_is_not_of_pandas_is_kept(place: str, noted: bytes) -> None:
    glaive.write_dataset(ROWS.replace_schema_metadata({"pandas": noted}), place, mode="overwrite")
    assert glaive.dataset(place).schema.metadata == {b"pandas": noted}


@pytest.mark.parametrize(
    "names", [[1, 2], ["a", "b"], [True, False], ["2020-01-01", "2020-01-02"]], ids=repr
)
def test_names_of_columns_have_the_type_that_pandas_noted(place: str, names: list[Any]) -> None:
    pandas = pytest.importorskip("pandas")
    kinds: list[Any] = [pandas.Index(names)]
    if names[0] == "2020-01-01":
        kinds += [pandas.to_datetime(names), pandas.to_datetime(names).tz_localize("Asia/Tokyo")]
    for columns in kinds:
        rows = pa.Table.from_pandas(pandas.DataFrame([[1, 2]], columns=columns))
        glaive.write_dataset(rows, place, mode="overwrite")
        assert glaive.dataset(place).to_pandas().columns.equals(rows.to_pandas().columns)


@pytest.mark.spec("rel-26")
def test_no_column_has_a_time_zone_that_pandas_takes_for_a_file(tmp_path: Path) -> None:
    zone = f"dateutil/{tmp_path / 'secret'}"
    rows = pa.table({"at": pa.array([1], pa.timestamp("us", zone))})
    with pytest.raises(SchemaError, match=r"column 'at'.*time zone"):
        glaive.write_dataset(rows, tmp_path / "t")
    listed = pa.array([[1]], pa.list_(pa.timestamp("us", zone)))
    with pytest.raises(SchemaError, match=r"column 'at\.item'.*time zone"):
        glaive.write_dataset(pa.table({"at": listed}), tmp_path / "t")
    field = Field(id=0, name="at", logical_type=f"timestamp:us:{zone}")
    with pytest.raises(CorruptFileError, match="timestamp type with valid parameters"):
        LanceSchema((field,)).to_arrow()


def test_frames_have_the_index_that_pandas_noted(place: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2]}, index=pandas.Index([5, 7], name="key"))
    glaive.write_dataset(pa.Table.from_pandas(frame), place, mode="overwrite")
    assert glaive.dataset(place).to_pandas().equals(frame)


def test_mistakes_in_arguments_for_pandas_are_told(place: str) -> None:
    glaive.write_dataset(ROWS.replace_schema_metadata({"pandas": b"{"}), place, mode="overwrite")
    with pytest.raises(TypeError, match="unknown_argument"):
        glaive.dataset(place).to_pandas(unknown_argument=1)


@pytest.mark.parametrize("freq", ["null", "[1]", "{}"])
def test_a_type_of_pandas_that_pandas_cannot_make_is_an_error_that_says_so(
    tmp_path: Path, freq: str
) -> None:
    pandas = pytest.importorskip("pandas")
    pa.array(pandas.period_range("2020", periods=1, freq="D"))  # registers the types of pandas
    said = {
        "ARROW:extension:name": "pandas.period",
        "ARROW:extension:metadata": f'{{"freq":{freq}}}',
    }
    schema = pa.schema([pa.field("x", pa.int64(), metadata=said)])
    dataset = glaive.write_dataset(pa.table([[1]], schema=schema), tmp_path / "t")
    assert dataset.to_table().num_rows == 1
    for read in (dataset.to_pandas, dataset.scanner().to_pandas):
        with pytest.raises(OptionError, match=r"to_pandas: .*to_table reads them all"):
            read()
    with pytest.raises(TypeError, match="unknown_argument"):
        dataset.to_pandas(unknown_argument=1)


@pytest.mark.parametrize("age", [timedelta.max, timedelta(days=365 * 3000)])
def test_an_age_of_millennia_removes_nothing(place: str, age: timedelta) -> None:
    dataset = glaive.dataset(place)
    dataset.delete("id = 3")
    assert dataset.cleanup_old_versions(age).old_versions == 0
    assert dataset.explain_cleanup_old_versions(age).stats.old_versions == 0
    assert CleanupPolicy(older_than=age).before.year == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("older_than", "3000y"), ("older_than", "1" * 400 + "s"), ("older_than", "soon"),
        ("interval", "often"), ("retain_versions", "-1"), ("delete_rate_limit", "0"),
        ("delete_rate_limit", "-5"),
    ],
)  # fmt: skip
def test_a_clean_up_that_cannot_be_understood_does_not_stop_a_commit(
    place: str, key: str, value: str
) -> None:
    dataset = glaive.dataset(place)
    told = {"interval": "1", "older_than": "0s", key: value}
    dataset.update_config({f"lance.auto_cleanup.{name}": one for name, one in told.items()})
    dataset.delete("id = 3")
    dataset.delete("id = 4")
    assert glaive.dataset(place).count_rows() == 8


@pytest.mark.spec("rel-25")
def test_a_commit_waits_a_minute_for_a_clean_up_that_deletes_few_files_a_second(place: str) -> None:
    class Counting(Clock):
        slept = 0.0

        def sleep(self, seconds: float) -> None:
            self.slept += seconds

    dataset = glaive.dataset(place)
    interval = str(dataset.version + 103)
    told = {"interval": interval, "older_than": "0s", "delete_rate_limit": "1"}
    dataset.update_config({f"lance.auto_cleanup.{name}": one for name, one in told.items()})
    with replaced_clock(clock := Counting()):
        for _ in range(102):
            dataset.insert(ROWS)
    assert len(glaive.dataset(place).versions()) < 50
    assert 50 < clock.slept < 70


def test_a_copy_of_a_branch_explains_what_it_would_clean_up(place: str, tmp_path: Path) -> None:
    dataset = glaive.dataset(place)
    dataset.create_branch("side", 1).delete("id = 3")
    shutil.copytree(tmp_path / "t" / "tree" / "side", tmp_path / "copy")
    shutil.copytree(tmp_path / "t" / "data", tmp_path / "copy" / "data", dirs_exist_ok=True)
    found = glaive.dataset(tmp_path / "copy").explain_cleanup_old_versions(timedelta(0))
    assert found.referenced_branches == []


def test_blobs_that_no_file_has_are_null_and_are_compacted(place: str) -> None:
    glaive.dataset(place).add_columns(pa.schema([glaive.blob_field("blob")]))
    dataset = glaive.dataset(place)
    dataset.insert(pa.table({"id": [10], "blob": glaive.blob_array([b"x"])}))
    dataset = glaive.dataset(place)
    values = dataset.to_table(columns=["blob"], blob_handling="all_binary")["blob"]
    assert values.to_pylist() == [None] * 10 + [b"x"]
    dataset.optimize.compact_files()
    assert len(glaive.dataset(place).get_fragments()) == 1
    values = glaive.dataset(place).to_table(columns=["blob"], blob_handling="all_binary")["blob"]
    assert values.to_pylist() == [None] * 10 + [b"x"]


def test_many_deleted_rows_before_a_live_one_have_their_place_in_new_columns(
    tmp_path: Path,
) -> None:
    rows = 300_000
    glaive.write_dataset(pa.table({"id": pa.array(range(rows), pa.int64())}), tmp_path / "t")
    dataset = glaive.dataset(tmp_path / "t")
    dataset.delete(f"id > 5 AND id < {rows - 2} OR id = 2")
    dataset.add_columns({"twice": "id * 2"})
    found = glaive.dataset(tmp_path / "t").to_table()
    left = [0, 1, 3, 4, 5, rows - 2, rows - 1]
    assert found.to_pydict() == {"id": left, "twice": [2 * one for one in left]}
    assert glaive.dataset(tmp_path / "t").get_fragments()[0].physical_rows == rows


def _of(kind: Any, *values: int) -> Any:
    size = kind.bit_width // 8
    data = b"".join(value.to_bytes(size, "little", signed=True) for value in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize(
    "column",
    [
        pa.Array.from_buffers(
            pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
        ),
        _of(pa.date32(), 2**31 - 1),
        _of(pa.time32("s"), -1),
        _of(pa.timestamp("us", "Nowhere/Nowhere"), 1),
    ],
    ids=["text", "date", "time", "zone"],
)
def test_what_pandas_has_no_value_for_is_an_error_that_says_so(tmp_path: Path, column: Any) -> None:
    dataset = glaive.write_dataset(pa.table({"x": column}), tmp_path / "t")
    assert dataset.to_table()["x"].null_count == 0
    for read in (dataset.to_pandas, dataset.scanner().to_pandas):
        with pytest.raises(OptionError, match=r"to_pandas: .*to_table reads them all"):
            read()


@pytest.mark.parametrize("turned", [False, True])
def test_new_fragments_have_no_id_of_others_where_the_highest_is_stated_too_low(
    place: str, turned: bool
) -> None:
    for first in (10, 20):
        glaive.write_dataset(pa.table({"id": [first]}), place, mode="append")
    change_newest(open_store(place), turned=turned, max_fragment_id=0)
    with pytest.raises(CorruptFileError, match="highest fragment id: expected 2 or more, found 0"):
        glaive.dataset(place).validate()
    dataset = glaive.write_dataset(pa.table({"id": [30]}), place, mode="append")
    dataset.update({"id": "id + 1"}, where="id = 30")
    assert sorted(dataset.fragment_ids()) == [0, 1, 2, 4]
    dataset.validate()
    assert sorted(dataset.to_table()["id"].to_pylist()) == [*range(10), 10, 20, 31]


@pytest.mark.nightly(reason="describes thousands of fragments")
@pytest.mark.spec("rel-25")
def test_thousands_of_segments_and_fragments_are_described_one_by_one(place: str) -> None:
    many, store = 24_000, open_store(place)
    base = open_latest(store)
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    del wire.fragments[:]
    section = table_pb2.IndexSection()
    for number in range(many):
        wire.fragments.append(table_pb2.DataFragment(id=number).SerializeToString())
        entry = section.indices.add(name="i", fields=[0], dataset_version=1)
        entry.uuid.uuid, entry.fragment_bitmap = number.to_bytes(16, "big"), bitmap_of([number])
    data = section.SerializeToString()
    pieces = encode_manifest(wire, transaction=base.transaction or b"", index_section=data)
    store.put(manifest_path(base.version, base.scheme), pieces)
    begun = process_time()
    (described,) = glaive.dataset(place).describe_indices()
    assert [list(one.fragment_ids) for one in described.segments] == [[n] for n in range(many)]
    assert process_time() - begun < 10  # with a look at all fragments for each it takes 25
