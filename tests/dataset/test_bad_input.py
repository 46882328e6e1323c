"""Bad input ends in an error that names place, expected, found and what to do."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.places import change_newest

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    DataFileMissingError,
    DatasetNotFoundError,
    FilterError,
    FormatError,
    GlaiveError,
    MissingDependencyError,
    NotLanceError,
    OptionError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.format.manifest import Feature
from glaive.io.access import open_store
from glaive.table.index_coverage import has_covering_fields

TABLE = pa.table(
    {"id": np.arange(3000), "name": [f"name {i % 70}" for i in range(3000)], "f": np.ones(3000)}
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    glaive.write_dataset(TABLE, tmp_path / "t")
    return tmp_path / "t"


def data_file(place: Path) -> Path:
    (path,) = (place / "data").iterdir()
    return path


def manifest(place: Path) -> Path:
    (path,) = (place / "_versions").glob("*.manifest")
    return path


@pytest.mark.parametrize("made", [False, True])
def test_a_place_without_a_dataset(tmp_path: Path, made: bool) -> None:
    if made:
        (tmp_path / "t" / "_versions").mkdir(parents=True)
        (tmp_path / "t" / "_versions" / "notes.txt").write_text("nothing")
    with pytest.raises(DatasetNotFoundError, match=r"found none.*Check the path") as caught:
        glaive.dataset(tmp_path / "t")
    assert str(tmp_path / "t") in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, ValueError)


def test_a_file_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("text")
    with pytest.raises(GlaiveError, match=str(tmp_path / "t")):
        glaive.dataset(tmp_path / "t")


def test_a_missing_data_file_is_named(place: Path) -> None:
    opened = glaive.dataset(place)
    path = data_file(place)
    path.unlink()
    for read in (opened.to_table, lambda: list(opened.to_batches()), lambda: opened.take([3])):
        with pytest.raises(DataFileMissingError, match=r"does not exist\. Restore it") as caught:
            read()
        assert str(path) in str(caught.value)
    assert opened.count_rows() == 3000


@pytest.mark.parametrize("keep", [0, 1, 39, 40, 500, -1])
def test_a_truncated_data_file_is_named(place: Path, keep: int) -> None:
    path = data_file(place)
    content = path.read_bytes()
    path.write_bytes(content[:keep])
    with pytest.raises(FormatError, match=r"expected .* found|not a Lance file") as caught:
        glaive.dataset(place).to_table()
    assert str(path) in str(caught.value)


def test_another_kind_of_file_is_no_data_file(place: Path) -> None:
    data_file(place).write_bytes(b"PAR1" + bytes(5000) + b"PAR1")
    with pytest.raises(NotLanceError) as caught:
        glaive.dataset(place).to_table()
    assert str(data_file(place)) in str(caught.value)


def test_an_unknown_file_version_is_named(place: Path) -> None:
    path = data_file(place)
    content = bytearray(path.read_bytes())
    content[-8:-4] = (7).to_bytes(2, "little") + (1).to_bytes(2, "little")
    path.write_bytes(content)
    message = r"(?i)7\.1.*this reader knows.*upgrade"
    with pytest.raises(UnsupportedFeatureError, match=message) as caught:
        glaive.dataset(place).to_table()
    assert str(path) in str(caught.value)


def test_another_files_rows_do_not_pass_for_these(place: Path) -> None:
    other = place.parent / "other"
    glaive.write_dataset(TABLE.slice(0, 2000), other)
    data_file(place).write_bytes(data_file(other).read_bytes())
    with pytest.raises(CorruptFileError, match=r"expected 3000.*found 2000"):
        glaive.dataset(place).to_table()


@pytest.mark.parametrize("keep", [0, 3, 15, 16, 100, -1])
def test_a_truncated_manifest_is_named(place: Path, keep: int) -> None:
    path = manifest(place)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError) as caught:
        glaive.dataset(place)
    assert str(path) in str(caught.value)


def test_every_flipped_byte_of_the_metadata_is_survived(place: Path) -> None:
    path = data_file(place)
    content = path.read_bytes()
    rng = np.random.default_rng(5)
    first = content.rfind(b"name") - 200
    for at in rng.integers(first, len(content), 150).tolist():
        damaged = bytearray(content)
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            table = glaive.dataset(place).to_table()
        except GlaiveError:
            continue
        assert table.num_rows == 3000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_is_not_writable_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Check the permissions") as caught:
        glaive.write_dataset(TABLE, tmp_path / "t")
    assert str(tmp_path / "t") in str(caught.value)


def test_a_place_where_nothing_can_be_made_is_named() -> None:
    if not Path("/proc/self").exists():
        pytest.skip("there is no such place here")
    with pytest.raises(StoreError, match=r"cannot write /proc/glaive/t/"):
        glaive.write_dataset(TABLE, "/proc/glaive/t")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_dataset_that_may_not_be_written_is_left_alone(place: Path, mode: str) -> None:
    change_newest(open_store(place), writer_feature_flags=1 << 12)
    before = sorted(place.rglob("*"))
    with pytest.raises(UnsupportedFeatureError, match=r"writing this dataset needs clustering"):
        glaive.write_dataset(TABLE, place, mode=mode)
    assert sorted(place.rglob("*")) == before
    assert glaive.dataset(place).to_table().equals(TABLE)


def test_a_dataset_that_may_not_be_read_names_why(place: Path) -> None:
    change_newest(open_store(place), reader_feature_flags=1 << 9 | 1 << 40)
    message = r"needs fragment_reuse_with_stable_row_ids, flag 40 .*upgrade"
    with pytest.raises(UnsupportedFeatureError, match=message):
        glaive.dataset(place)


def test_field_ids_are_not_used_again_where_the_dataset_says_so(place: Path) -> None:
    change_newest(
        open_store(place),
        writer_feature_flags=int(Feature.UNIQUE_FIELD_IDS),
        max_allocated_field_id=7,
    )
    written = glaive.write_dataset(TABLE, place, mode="overwrite")
    assert written.lance_schema.field_ids() == [8, 9, 10]
    assert written.manifest.wire.max_allocated_field_id == 10
    assert written.to_table().equals(TABLE)


def test_a_manifest_may_not_lead_out_of_the_dataset(place: Path) -> None:
    path = manifest(place)
    name = data_file(place).name.encode()
    evil = b"../" * 9 + b"etc/hosts.lance" + b"x" * (len(name) - 42)
    assert len(evil) == len(name)
    path.write_bytes(path.read_bytes().replace(name, evil))
    with pytest.raises(CorruptFileError, match=r"path of a data file.*found '\.\./.*manifest"):
        glaive.dataset(place).to_table()


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff\xfe", b"{", b"7"])
def test_damaged_tags_and_hints(place: Path, text: bytes) -> None:
    dataset = glaive.dataset(place)
    dataset.tags.create("one")
    (place / "_versions" / "latest_version_hint.json").write_bytes(text)
    assert glaive.dataset(place).version == 1
    (place / "_refs" / "tags" / "one.json").write_bytes(text)
    with pytest.raises(CorruptFileError, match=r"one\.json"):
        dataset.tags.get_version("one")


def test_a_damaged_index_section_is_named_by_writers() -> None:
    with pytest.raises(CorruptFileError, match="index section"):
        has_covering_fields(b"\x0a\xff\xff")


def test_an_error_leaves_out_the_middle_of_what_is_very_long(place: Path) -> None:
    with pytest.raises(OptionError, match="not a valid tag name") as refused:
        glaive.dataset(place).tags.create("x" * 3_000_000 + " ", 1)
    assert len(str(refused.value)) <= 10_000
    key = f"https://me:secret@{'h' * 30_000}/t?sig=hidden{'x' * 30_000}"
    error = GlaiveError(f"{key}: no answer; choose another server")
    text = str(error)
    assert text.startswith("https://me:***@hhh")
    assert text.endswith("choose another server")
    assert "hidden" not in text
    assert str(pickle.loads(pickle.dumps(error))) == text


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("name", "\ud800"),
        ("fields", [1 << 40]),
        ("dataset_version", -1),
        ("index_version", 1 << 40),
        ("fragment_ids", {-1}),
        ("created_at", "today"),
    ],
)
def test_segments_with_wrong_fields_are_named(place: Path, name: str, wrong: object) -> None:
    dataset = glaive.dataset(place)
    segment = dataset.create_index_uncommitted("id", "BTREE")
    setattr(segment, name, wrong)
    with pytest.raises(OptionError, match="segments: a field of one"):
        dataset.merge_existing_index_segments([segment])
    with pytest.raises(OptionError, match="segments: a field of one"):
        dataset.commit_existing_index_segments("id_idx", "id", [segment])


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_indices_of_segments_have_names_that_can_be_stored(place: Path, name: str) -> None:
    dataset = glaive.dataset(place)
    segment = dataset.create_index_uncommitted("id", "BTREE")
    with pytest.raises(OptionError, match="name"):
        dataset.commit_existing_index_segments(name, "id", [segment])
    assert dataset.describe_indices() == []


MEMBERS = pa.array([{"x": "a"}, {"x": "b"}])
NAMED = pa.table({"name": ["Zoë", "Kim"], "Order Date": ["a", "b"], "s": MEMBERS})

DOUBTFUL = {
    "\"name\" = 'Zoë'": "`name`",
    "\"NAME\" <> 'Zoë'": "`name`",
    "'name' = 'Zoë'": "`name`",
    "'Zoë' = 'Name'": "`name`",
    "\"Order Date\" = 'a'": "`Order Date`",
    "\"S.x\" = 'a'": "s.x",
    "\"name\" IN ('a', 'b')": "`name`",
    f"'name' IN ({', '.join(map(repr, map(str, range(20))))})": "`name`",
    "name IN (\"name\", 'b')": "`name`",
    "\"name\" LIKE 'Z%'": "`name`",
    "'name' NOT LIKE 'Z%'": "`name`",
    "\"name\" BETWEEN 'a' AND 'b'": "`name`",
    '"name" IS NOT NULL': "`name`",
    "NOT (lower(\"name\") = 'zoë') AND s.x = 'a'": "`name`",
}
"""Filters in which a text is the name of a column, and what the user may have meant."""

CERTAIN = ["name = 'name'", 'name = "Zoë"', "`name` = 'Zoë'", "s[\"x\"] = 'a'", "'a' = 'b'"]


@pytest.mark.parametrize("text", DOUBTFUL)
def test_a_text_that_is_the_name_of_a_column_is_said_at_the_call(tmp_path: Path, text: str) -> None:
    dataset = glaive.write_dataset(NAMED, tmp_path / "t")
    calls: list[Callable[[], Any]] = [
        lambda: dataset.count_rows(text),
        lambda: dataset.to_table(filter=text),
        lambda: dataset.scanner(filter=text).count_rows(),
        lambda: list(dataset.get_fragments()[0].to_batches(filter=text)),
        lambda: dataset.to_table(columns={"a": text, "b": text}),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=f"this name: write {DOUBTFUL[text]}") as said:
            call()
        assert [one.filename for one in said] == [__file__]
    merge = dataset.merge_insert("name")
    changes: list[Callable[[], Any]] = [
        lambda: dataset.delete(text),
        lambda: dataset.get_fragments()[0].delete(text),
        lambda: dataset.update({"name": "'b'"}, where=text),
        lambda: dataset.update({"name": f"CAST({text} AS string)"}),
        lambda: dataset.add_columns({"c": text}),
        lambda: merge.when_matched_update_all(text).execute(NAMED),
        lambda: merge.when_not_matched_by_source_delete(text).execute(NAMED.slice(0, 1)),
    ]
    for call in changes:
        with pytest.raises(FilterError, match=f"a column has this name: write {DOUBTFUL[text]}"):
            call()
    assert dataset.version == 1


def test_a_text_in_single_quotes_is_a_text(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(NAMED, tmp_path / "t")
    with warnings.catch_warnings(record=True) as said:
        assert [dataset.count_rows(text) for text in CERTAIN] == [0, 1, 1, 1, 0]
        dataset.delete("name = 'name'")
        dataset.update({"name": "'name'"}, where="s[\"x\"] = 'a'")
    assert not said
    assert dataset.to_table()["name"].to_pylist() == ["Kim", "name"]


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        ({"name": "hello"}, r"is set to an expression; for a string write \"'hello'\""),
        ({"name": "hello world"}, r"is set to an expression; for a string write \"'hello world'\""),
        ({"id": "hello"}, "No field named hello; a string needs quotes: 'hello'[.] Columns"),
        (
            {"id": 3},
            "updates: the value of 'id' must be an expression as a string, found 3. Write '3'",
        ),
        ({"id": None}, "updates: the value of 'id' must be .*, found None. Write '1' or "),
    ],
)
def test_a_value_that_is_no_expression(place: Path, updates: Any, says: str) -> None:
    with pytest.raises((FilterError, OptionError), match=says):
        glaive.dataset(place).update(updates)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x.parquet", r"it is a Parquet file. Convert it: glaive convert .*x.parquet .*x.lance"),
        ("x.csv", "it is a CSV file"),
        ("x.txt", "it is a file, and a dataset is a folder"),
        ("raw", r"folder of Parquet files. Convert them: glaive convert .*raw .* --from parquet"),
        ("things.lanc", r"was not found; did you mean '.*Things.lance'\?"),
        ("things", r"did you mean '.*Things.lance'\?"),
        ("thigns.lance", r"did you mean '.*Things.lance'\?"),
        ("other.lance", "found none. Check the path"),
    ],
)
def test_what_lies_in_place_of_a_dataset_is_said(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "raw" / "day=1").mkdir(parents=True)
    for path in ("x.parquet", "raw/day=1/a.parquet"):
        pq.write_table(NAMED, tmp_path / path)
    for path in ("x.csv", "x.txt"):
        (tmp_path / path).write_text("a\n1\n")
    glaive.write_dataset(NAMED, tmp_path / "Things.lance")
    with pytest.raises(DatasetNotFoundError, match=says):
        glaive.dataset(tmp_path / name)


@pytest.mark.parametrize("name", [".", "./", "/", "..", "file:///"])
def test_a_place_without_a_name_is_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with pytest.raises(DatasetNotFoundError, match="was not found"):
        glaive.dataset(name)


def test_keys_of_members_are_texts_though_a_column_has_their_name(tmp_path: Path) -> None:
    rows = pa.table({"name": ["a"], "j": pa.array(['{"name":"x"}'], pa.json_())})
    dataset = glaive.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    dataset.delete("""json_get_string(j, "name") = 'x'""")
    assert dataset.count_rows() == 0


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_binary_values_are_no_json(tmp_path: Path, kind: pa.DataType) -> None:
    place = tmp_path / "t"
    dataset = glaive.write_dataset(pa.table({"j": pa.array(["[1]"], pa.json_())}), place)
    given = pa.table({"j": pa.array([b"[2]"], kind)})
    for write in (dataset.insert, dataset.merge_insert("j").when_not_matched_insert_all().execute):
        with pytest.raises(SchemaError, match=r"'j' should be pa\.json_\(\), found "):
            write(given)
    dataset.insert(dataset.to_table())
    assert lance.dataset(str(place)).to_table()["j"].to_pylist() == ["[1]", "[1]"]


def test_frames_without_pandas(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (glaive.dataset(place).to_pandas, glaive.dataset(place).scanner().to_pandas):
        with pytest.raises(MissingDependencyError, match="pip install pandas"):
            frame()


WRONG: dict[str, Callable[[Any], Any]] = {
    "columns": lambda ds: ds.to_table(columns=["idd"]),
    "filter": lambda ds: ds.count_rows("idd = 1"),
    "drop_columns": lambda ds: ds.drop_columns(["idd"]),
    "alter_columns": lambda ds: ds.alter_columns({"path": "idd", "name": "x"}),
    "index": lambda ds: ds.create_scalar_index("idd", "BTREE"),
    "update": lambda ds: ds.update({"idd": "1"}),
    "merge_insert": lambda ds: ds.merge_insert("idd"),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_column_is_named_once(place: Path, call: str) -> None:
    with pytest.raises(ColumnNotFoundError, match="did you mean 'id'") as caught:
        WRONG[call](glaive.dataset(place))
    assert str(caught.value).partition("\n")[0].replace(str(place), "").count("idd") == 1
