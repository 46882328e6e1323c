"""Blob columns of both kinds, written by one library and read by the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, SchemaError
from glaive.file.files import LanceFileReader, LanceFileWriter

lance = pytest.importorskip("lance", reason="install the 'interop' group")
their_files: Any = pytest.importorskip("lance.file")
TheirReader, TheirWriter = their_files.LanceFileReader, their_files.LanceFileWriter

VERSIONS = ["2.0", "2.1", "2.2", "2.3"]
BOTH = [lance, glaive]
NAMES = ["pylance writes", "glaive writes"]
BLOB: Any = {"lance-encoding:blob": "true"}

VALUES = [b"abc", None, b"", b"x" * 70_000, b"y" * 5_000_000, b"z" * 80_000, b"in" * 200] * 2
"""Values of every kind: in the data file, in a file with others, in one of their own."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("glaive.file.open")
    logger.disabled = True  # 2.3 is not stable, as it says
    yield
    logger.disabled = False


def table(values: list[Any], version: str, maker: ModuleType = glaive, **limits: int) -> pa.Table:
    """A column ``b`` of blobs, of the kind that a version has."""
    rows = pa.array(range(len(values)), pa.int64())
    if version < "2.2":
        field = pa.field("b", pa.large_binary(), metadata=BLOB)
        blobs: Any = pa.array(values, pa.large_binary())
    else:
        field, blobs = maker.blob_field("b", **limits), maker.blob_array(values)
    return pa.Table.from_arrays([rows, blobs], schema=pa.schema([pa.field("i", pa.int64()), field]))


def described(dataset: Any, column: str = "b") -> list[Any]:
    """Descriptions as tuples."""
    rows = dataset.to_table(columns=[column])[column].to_pylist()
    return [row and tuple(row.values()) for row in rows]


def contents(files: list[Any]) -> list[bytes | None]:
    return [None if file is None else file.read() for file in files]


@pytest.mark.sampled(every=3)
@pytest.mark.spec(
    *("blob-page-1", "blob-page-2", "blob-page-3", "blob-page-4", "blob-view-1", "blob-view-2"),
    *(
        "blob-kind-1",
        "blob-kind-2",
        "blob-kind-3",
        "blob-second-1",
        "blob-second-2",
        "blob-second-3",
    ),
)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("writer", BOTH, ids=NAMES)
def test_both_read_the_same(tmp_path: Path, writer: ModuleType, version: str) -> None:
    place = str(tmp_path / "d")
    written = table(VALUES, version, writer)
    writer.write_dataset(written, place, data_storage_version=version, max_rows_per_file=5)
    theirs, ours = lance.dataset(place), glaive.dataset(place)
    for handling in (None, "all_binary", "blobs_descriptions"):
        expected = theirs.to_table(blob_handling=handling)
        found = ours.to_table(blob_handling=handling)
        assert found.schema.equals(expected.schema)
        assert found.to_pylist() == expected.to_pylist()
        found.validate(full=True)
    assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == VALUES
    field = ours.to_table().schema.field("b")
    assert field.metadata == theirs.to_table().schema.field("b").metadata
    assert ours.schema.equals(theirs.schema)

    rows = [3, 13, 1, 2, 4, 4, 0]
    assert ours.take(rows).to_pylist() == theirs.take(rows).to_pylist()
    expected_values = [VALUES[row] for row in rows]
    assert contents(ours.take_blobs("b", indices=rows)) == expected_values
    assert contents(theirs.take_blobs("b", indices=rows)) == expected_values
    assert ours.read_blobs("b", indices=rows) == theirs.read_blobs("b", indices=rows)
    addresses = [(1 << 32) + 1, 0, (2 << 32) + 3]
    for what in ("ids", "addresses"):
        chosen: Any = {what: addresses}
        assert ours.read_blobs("b", **chosen) == theirs.read_blobs("b", **chosen)
    parts = [(0, 1, 2), (1, 0, 5), (3, 100, 50), (0, 0, 0), (3, 120, 50)]
    assert ours.read_blob_ranges("b", parts, selector="indices") == theirs.read_blob_ranges(
        "b", parts, selector="indices"
    )


@pytest.mark.spec("blob-view-1")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("writer", BOTH, ids=NAMES)
def test_within_structs(tmp_path: Path, writer: ModuleType, version: str) -> None:
    blobs = table([b"abc", None, b"", b"q" * 70_000], version, writer)
    member = blobs.schema.field("b").with_name("x")
    number = pa.field("k", pa.int32())
    arrays = [blobs["b"].combine_chunks(), pa.array([1, 2, None, 4], pa.int32())]
    mask = None if version == "2.0" else pa.array([False, False, True, False])
    structs = pa.StructArray.from_arrays(arrays, fields=[member, number], mask=mask)
    place = str(tmp_path / "d")
    writer.write_dataset(pa.table({"s": structs}), place, data_storage_version=version)
    theirs, ours = lance.dataset(place), glaive.dataset(place)
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()
    assert ours.to_table(["s.x"]).to_pylist() == theirs.to_table(["s.x"]).to_pylist()
    values = ours.to_table(blob_handling="all_binary")
    assert values.to_pylist()[3] == {"s": {"x": b"q" * 70_000, "k": 4}}
    assert values.to_pylist()[1] == {"s": {"x": None, "k": 2}}
    if version != "2.0":  # there pylance looks for rows that are not
        assert values.to_pylist() == theirs.to_table(blob_handling="all_binary").to_pylist()
        assert values["s"].to_pylist()[2] is None
    wanted = [b"abc", None, b"q" * 70_000]
    assert contents(ours.take_blobs("s.x", indices=[0, 1, 3])) == wanted


@pytest.mark.spec("blob-second-4")
@pytest.mark.parametrize("version", ["2.2", "2.3"])
@pytest.mark.parametrize("writer", BOTH, ids=NAMES)
def test_within_lists(tmp_path: Path, writer: ModuleType, version: str) -> None:
    values = writer.blob_array([b"never", b"abc", None, b"", b"q" * 70_000, b"z"])
    offsets = pa.array([1, 3, None, 3, 5, 6], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, values)
    place = str(tmp_path / "d")
    writer.write_dataset(pa.table({"l": lists}), place, data_storage_version=version)
    theirs, ours = lance.dataset(place), glaive.dataset(place)
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()
    values_read = ours.to_table(blob_handling="all_binary")["l"]
    assert values_read.to_pylist() == [*([b"abc", None], [], None), *([b"", b"q" * 70_000], [b"z"])]
    assert ours.take([3, 1, 0, 0])["l"].to_pylist() == theirs.take([3, 1, 0, 0])["l"].to_pylist()


@pytest.mark.spec("blob-page-2")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_single_files(tmp_path: Path, version: str) -> None:
    written = table(VALUES[:4], "2.1")
    place = str(tmp_path / "ours.lance")
    with LanceFileWriter(place, written.schema, version=version) as ours:
        ours.write_batch(written)
    assert TheirReader(place).read_all().to_table().equals(written)
    place = str(tmp_path / "theirs.lance")
    with TheirWriter(place, written.schema, version=version) as theirs:
        theirs.write_batch(written)
    reader = LanceFileReader(place)
    assert reader.read_all().to_table().equals(written)
    assert reader.take_rows([0, 3]).to_table().equals(written.take([0, 3]))


def test_blobs_of_the_first_kind_are_not_written_in_2_3(tmp_path: Path) -> None:
    schema = table([b"a"], "2.1").schema
    with pytest.raises(SchemaError, match=r"2\.3 cannot hold: .*2\.0 or 2\.1 or 2\.2"):
        LanceFileWriter(str(tmp_path / "a.lance"), schema, version="2.3")
    with pytest.raises(ValueError, match="does not write Blob v1"):
        TheirWriter(str(tmp_path / "b.lance"), schema, version="2.3").write_batch(
            table([b"a"], "2.1")
        )


@pytest.mark.spec("blob-second-1")
@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary(), pa.binary_view()])
def test_binary_that_asks_for_blobs_becomes_the_second_kind(
    tmp_path: Path, kind: pa.DataType
) -> None:
    written = pa.table({"b": pa.array([b"abc", None], kind)})
    written = written.cast(pa.schema([pa.field("b", kind, metadata=BLOB)]))
    found = []
    for library in (lance, glaive):
        place = str(tmp_path / library.__name__)
        library.write_dataset(written, place, data_storage_version="2.2")
        dataset = lance.dataset(place)
        assert contents(dataset.take_blobs("b", indices=[0, 1])) == [b"abc", None]
        found.append((dataset.schema, described(dataset)))
    assert found[0] == found[1]


@pytest.mark.spec("blob-kind-1", "blob-kind-2", "blob-kind-3", "blob-file-1", "blob-file-2")
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"inline": 10, "dedicated": 100, "pack_file": 150},
        {"inline": 100, "dedicated": 10},
        {"inline": 0},
        {"pack_file": 1},
    ],
)
def test_values_lie_where_pylance_puts_them(tmp_path: Path, limits: dict[str, int]) -> None:
    sizes = [10, 11, 50, 60, 100, 101, 200, 99, 0, 65_536, 65_537, 70_000, 4_194_304, 4_194_305]
    values = [bytes([65 + at % 26]) * size for at, size in enumerate(sizes)]
    options = {f"{name}_size_threshold": size for name, size in limits.items()}
    found, files = [], []
    for library in (lance, glaive):
        place = tmp_path / library.__name__
        library.write_dataset(table(values, "2.2", library, **options), str(place))
        rows = described(lance.dataset(str(place)))
        found.append([(kind, size, number) for kind, _, size, number, _ in rows])
        files.append(sorted((one.name, one.stat().st_size) for one in place.rglob("*.blob")))
        assert lance.dataset(str(place)).read_blobs("b", indices=range(len(values))) == list(
            enumerate(values)
        )
    assert found[0] == found[1]
    assert files[0] == files[1]


@pytest.mark.spec("blob-file-1")
def test_columns_share_the_files_beside_a_data_file(tmp_path: Path) -> None:
    values = [b"a" * 70_000, b"b" * 5_000_000]
    found = []
    for library in (lance, glaive):
        place = str(tmp_path / library.__name__)
        blobs = library.blob_array(values)
        fields = [library.blob_field(name) for name in "xy"]
        both = pa.Table.from_arrays([blobs, blobs], schema=pa.schema(fields))
        library.write_dataset(both, place)
        dataset = lance.dataset(place)
        found.append([described(dataset, name) for name in "xy"])
        for name in "xy":
            assert contents(dataset.take_blobs(name, indices=[1, 0])) == values[::-1]
    assert found[0] == found[1]


@pytest.mark.spec("blob-kind-4")
def test_values_that_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "far off.bin").write_bytes(bytes(range(256)) * 10)
    uri = (tmp_path / "far off.bin").as_uri()
    for library in (lance, glaive):
        values = [uri, library.Blob.from_uri(uri, 5, 10), None, b"x"]
        place = str(tmp_path / library.__name__)
        library.write_dataset(
            table(values, "2.2", library), place, allow_external_blob_outside_bases=True
        )
        assert described(lance.dataset(place))[:2] == [(3, 0, 0, 0, uri), (3, 5, 10, 0, uri)]
        wanted = [bytes(range(256)) * 10, bytes(range(5, 15)), None, b"x"]
        allowed = glaive.dataset(place, allow_external_blobs=True)
        for dataset in (lance.dataset(place), allowed):
            assert contents(dataset.take_blobs("b", indices=range(4))) == wanted
            assert dataset.read_blobs("b", indices=range(4)) == list(enumerate(wanted))
            assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == wanted
            assert dataset.take_blobs("b", indices=[0])[0].size() == 2560


@pytest.mark.spec("blob-kind-4")
def test_values_below_a_base_path(tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "o.bin").write_bytes(b"0123456789")
    uri = (tmp_path / "ext" / "o.bin").as_uri()
    base = lance.DatasetBasePath(str(tmp_path / "ext"), name="ext", is_dataset_root=False)
    place = str(tmp_path / "d")
    lance.write_dataset(table([uri], "2.2", lance), place, initial_bases=[base])
    glaive.write_dataset(table([glaive.Blob.from_uri(uri, 2, 3)], "2.2"), place, mode="append")
    allowed = {"allow_external_blobs": [str(tmp_path / "ext")]}
    for dataset in (lance.dataset(place), glaive.dataset(place, **allowed)):
        assert described(dataset) == [(3, 0, 0, 1, "o.bin"), (3, 2, 3, 1, "o.bin")]
        assert contents(dataset.take_blobs("b", indices=[1, 0])) == [b"234", b"0123456789"]


@pytest.mark.spec("blob-kind-4")
def test_values_copied_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "o.bin").write_bytes(bytes(range(256)) * 10)
    uri = (tmp_path / "o.bin").as_uri()
    for library in (lance, glaive):
        place = str(tmp_path / library.__name__)
        values = [uri, library.Blob.from_uri(uri, 5, 10)]
        library.write_dataset(table(values, "2.2", library), place, external_blob_mode="ingest")
        rows = described(lance.dataset(place))
        assert [(kind, size, text) for kind, _, size, _, text in rows] == [
            (0, 2560, ""),
            (0, 10, ""),
        ]
        for reader in (lance, glaive):
            found = contents(reader.dataset(place).take_blobs("b", indices=[0, 1]))
            assert found == [bytes(range(256)) * 10, bytes(range(5, 15))]


def test_uris_that_are_refused(tmp_path: Path) -> None:
    uri = (tmp_path / "o.bin").as_uri()
    place = str(tmp_path / "d")
    with pytest.raises(SchemaError, match="below no base path"):
        glaive.write_dataset(table([uri], "2.2"), place)
    with pytest.raises(OSError, match="outside registered external bases"):
        lance.write_dataset(table([uri], "2.2", lance), place)
    with pytest.raises(SchemaError, match="absolute URI"):
        glaive.write_dataset(
            table(["/data/o.bin"], "2.2"), place, allow_external_blob_outside_bases=True
        )
    with pytest.raises(OptionError, match="external_blob_mode"):
        glaive.write_dataset(table([uri], "2.2"), place, external_blob_mode="copy")
    with pytest.raises(OptionError, match="only with external_blob_mode='reference'"):
        glaive.write_dataset(
            table([uri], "2.2"),
            place,
            external_blob_mode="ingest",
            allow_external_blob_outside_bases=True,
        )
    assert not list(tmp_path.rglob("*.blob"))


@pytest.mark.parametrize("version", VERSIONS)
def test_appends_and_deleted_rows(tmp_path: Path, version: str) -> None:
    place = str(tmp_path / "d")
    lance.write_dataset(table(VALUES[:4], version, lance), place, data_storage_version=version)
    glaive.write_dataset(table(VALUES[4:7], version), place, mode="append")
    lance.write_dataset(table(VALUES[:3], version, lance), place, mode="append")
    lance.dataset(place).delete("i = 0")
    wanted = [*VALUES[1:4], *VALUES[5:7], *VALUES[1:3]]
    theirs, ours = lance.dataset(place), glaive.dataset(place)
    assert contents(ours.take_blobs("b", indices=range(7))) == wanted
    assert contents(theirs.take_blobs("b", indices=range(7))) == wanted
    assert ours.read_blobs("b", indices=range(7)) == theirs.read_blobs("b", indices=range(7))
    assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == wanted
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()


@pytest.mark.parametrize("short", [True, False])
def test_appends_of_other_forms(tmp_path: Path, short: bool) -> None:
    place = str(tmp_path / "d")
    glaive.write_dataset(table([b"one"], "2.2"), place)
    kind = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    rows: Any = pa.array([{"data": b"two"}, None], kind) if short else pa.array([b"two", None])
    glaive.write_dataset(pa.table({"i": [1, 2], "b": rows}), place, mode="append")
    for reader in (lance, glaive):
        found = reader.dataset(place).take_blobs("b", indices=range(3))
        assert contents(found) == [b"one", b"two", None]


def test_stable_row_ids(tmp_path: Path) -> None:
    place = str(tmp_path / "d")
    glaive.write_dataset(
        table(VALUES[:6], "2.2"), place, max_rows_per_file=2, enable_stable_row_ids=True
    )
    theirs, ours = lance.dataset(place), glaive.dataset(place)
    assert ours.read_blobs("b", ids=[5, 0, 3]) == theirs.read_blobs("b", ids=[5, 0, 3])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_several_pages_and_many_small_fragments(tmp_path: Path, version: str) -> None:
    values = [b"%d" % at * (at % 300) for at in range(3000)]
    place = str(tmp_path / "pages")
    source = table(values, version)
    batches = (source.slice(at, 500) for at in range(0, 3000, 500))
    reader = pa.RecordBatchReader.from_batches(
        source.schema, (batch for piece in batches for batch in piece.to_batches())
    )
    glaive.write_dataset(reader, place, data_storage_version=version)
    rows = list(range(0, 3000, 7))
    for library in (lance, glaive):
        dataset = library.dataset(place)
        assert [blob for _, blob in dataset.read_blobs("b", indices=rows)] == [
            values[row] for row in rows
        ]
    place = str(tmp_path / "fragments")
    glaive.write_dataset(
        source.slice(0, 40), place, data_storage_version=version, max_rows_per_file=2
    )
    ours, theirs = glaive.dataset(place), lance.dataset(place)
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()
    assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == values[:40]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("writer", BOTH, ids=NAMES)
def test_frames(tmp_path: Path, writer: ModuleType, version: str) -> None:
    place = str(tmp_path / "d")
    writer.write_dataset(table(VALUES[:7], version, writer), place, data_storage_version=version)
    theirs, ours = lance.dataset(place), glaive.dataset(place)
    for mode in ("bytes", "descriptions"):
        expected = theirs.to_pandas(blob_mode=mode)
        assert ours.to_pandas(blob_mode=mode).equals(expected)
    for options in ({}, {"columns": ["b", "i"]}, {"columns": ["b"], "limit": 3}):
        found: Any = ours.to_pandas(**options)
        frame: Any = theirs.to_pandas(**options)
        assert list(found.columns) == list(frame.columns)
        assert contents(list(found["b"])) == contents(list(frame["b"])) == VALUES[: len(frame)]
    addressed = ours.scanner(["b"], with_row_address=True).to_pandas()
    assert list(addressed["_rowaddr"]) == list(range(7))
    assert list(ours.scanner(["_rowaddr", "b"]).to_pandas().columns) == ["_rowaddr", "b"]
    with pytest.raises(OptionError, match="blob_mode must be one of"):
        ours.to_pandas(blob_mode="eager")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_take_from_a_fragment_has_the_bytes(tmp_path: Path, version: str) -> None:
    place = str(tmp_path / "d")
    rows = table(VALUES, version, lance)
    lance.write_dataset(rows, place, data_storage_version=version)
    taken = glaive.dataset(place).get_fragments()[0].take([3, 1, 0, 2])
    assert taken["b"].to_pylist() == [VALUES[3], None, VALUES[0], VALUES[2]]
    if version < "2.2":  # pylance 14.0.2 fails for blobs of the second kind
        theirs = lance.dataset(place).get_fragments()[0].take([0, 1, 2, 3])
        assert taken["b"].take([2, 1, 3, 0]).combine_chunks() == theirs["b"].combine_chunks()


@pytest.mark.parametrize("compacted", [False, True])
def test_older_blobs_are_read_beside_those_of_a_newer_file(tmp_path: Path, compacted: bool) -> None:
    """pylance gives the whole column the newer type when the first newer file is added."""
    marked = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    old, new = [b"foo", None, b"", b"bar" * 1000], [b"baz", None]
    path = str(tmp_path / "d")
    for values, mode, version in ((old, "create", "2.1"), (new, "append", "2.2")):
        table = pa.table({"b": pa.array(values, pa.large_binary())}, pa.schema([marked]))
        lance.write_dataset(table, path, mode=mode, data_storage_version=version)
    dataset, theirs = glaive.dataset(path), lance.dataset(path)
    assert dataset.to_table() == theirs.to_table()
    if compacted:
        dataset.optimize.compact_files(data_storage_version="2.2")
        theirs = lance.dataset(path)
    assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == old + new
    for reader in (dataset, theirs):
        found = [value for _, value in reader.read_blobs("b", indices=[5, 3, 1, 2, 0, 4])]
        assert found == [None, b"bar" * 1000, None, b"", b"foo", b"baz"]
    assert dataset.count_rows("b IS NULL") == 2
    dataset.validate()
