"""Columns of all fragments are what the fragments say one by one."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from glaive.errors import CorruptFileError
from glaive.format.fragment import FragmentColumns
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

NUMBERS = st.one_of(st.just(0), st.integers(0, 2**63 - 1))
SIZES = st.one_of(NUMBERS, st.just(2**64 - 1))
IDS = st.one_of(st.just(0), st.integers(0, 2**32 - 1))
ROWS = st.one_of(st.just(0), st.integers(0, 2**32))


@st.composite
def fragments(draw: st.DrawFn) -> list[table_pb2.DataFragment]:
    made = []
    for _ in range(draw(st.integers(0, 8))):
        one = table_pb2.DataFragment(id=draw(IDS), physical_rows=draw(ROWS))
        for size in draw(st.lists(SIZES, max_size=2)):
            one.files.add(path="a.lance", fields=[0, 3], file_size_bytes=size)
        if draw(st.booleans()):
            one.deletion_file.id = draw(NUMBERS)
            most = one.physical_rows or 2**63 - 1  # as in datasets that do not tell the rows
            one.deletion_file.num_deleted_rows = draw(st.integers(0, most))
        if draw(st.booleans()):
            one.inline_row_ids = draw(st.binary(max_size=4))
        elif draw(st.booleans()):
            one.column_row_ids.SetInParent()
        made.append(one)
    return made


def columns_of(given: list[table_pb2.DataFragment]) -> FragmentColumns:
    wire = table_pb2.ManifestOutline(fragments=[one.SerializeToString() for one in given])
    return FragmentColumns(wire, "m")


@given(fragments())
def test_columns_are_those_of_the_fragments(made: list[table_pb2.DataFragment]) -> None:
    columns = columns_of(made)
    assert len(columns) == len(made)
    assert columns.ids.tolist() == [one.id for one in made]
    assert columns.physical_rows.tolist() == [one.physical_rows for one in made]
    assert columns.deleted_rows.tolist() == [
        (one.deletion_file.num_deleted_rows or -1) if one.HasField("deletion_file") else 0
        for one in made
    ]
    assert columns.rows_known == all(one.physical_rows for one in made)
    assert columns.any_deleted == any(one.HasField("deletion_file") for one in made)
    assert columns.any_lineage_in_files == any(one.HasField("column_row_ids") for one in made)
    assert columns.file_count == sum(len(one.files) for one in made)
    sizes = [file.file_size_bytes for one in made for file in one.files]
    assert columns.file_bytes == sum(sizes)
    assert columns.data_bytes.tolist() == pytest.approx(
        [sum(file.file_size_bytes for file in one.files) for one in made]
    )
    assert columns.since(2).ids.tolist() == [one.id for one in made[2:]]
    with_ids = [one.inline_row_ids for one in made if one.HasField("inline_row_ids")]
    assert columns.row_ids == (with_ids if len(with_ids) == len(made) else None)


@given(fragments())
def test_rows_are_counted_as_the_fragments_say(made: list[table_pb2.DataFragment]) -> None:
    unknown = any(not one.physical_rows for one in made) or any(
        one.HasField("deletion_file") and not one.deletion_file.num_deleted_rows for one in made
    )
    total = sum(one.physical_rows - one.deletion_file.num_deleted_rows for one in made)
    columns = columns_of(made)
    if total < 2**63:
        deleted = any(one.HasField("deletion_file") for one in made)
        without_rows = any(not one.physical_rows for one in made)
        expected: Any = None if unknown and (deleted or without_rows) else total
        assert columns.count_rows() == expected


@pytest.mark.spec("frag-5")
@pytest.mark.parametrize("before", [(0,), (1,), (0, 0)])
@pytest.mark.parametrize(
    ("field", "number"),
    [(name, 2**bits - 1) for name in ("id", "physical_rows") for bits in (33, 48, 63, 64)]
    + [("id", 2**32), ("physical_rows", 2**32 + 1), ("id", 2**63), ("physical_rows", 2**63)],
)
def test_numbers_beyond_a_row_address_are_damage(
    field: str, number: int, before: tuple[int, ...]
) -> None:
    made = [table_pb2.DataFragment(id=one, physical_rows=one) for one in before]
    made.append(table_pb2.DataFragment())
    setattr(made[-1], field, number)
    columns = columns_of(made)
    with pytest.raises(CorruptFileError, match=r"fragments: expected ids below 2\^32, and at most"):
        _ = columns.ids if field == "id" else columns.physical_rows
    if field == "physical_rows":
        with pytest.raises(CorruptFileError, match=r"at most 2\^32 rows each"):
            columns_of(made).count_rows()


def test_more_deleted_rows_than_rows_are_damage() -> None:
    made = [table_pb2.DataFragment(id=at, physical_rows=5) for at in range(3)]
    made[2].deletion_file.num_deleted_rows = 6
    with pytest.raises(CorruptFileError, match="deleted rows of fragment 2: expected at most 5"):
        _ = columns_of(made).deleted_rows
    with pytest.raises(CorruptFileError, match="deleted rows of fragment 2"):
        columns_of(made).count_rows()


def test_a_damaged_fragment_is_reported() -> None:
    good = table_pb2.DataFragment(id=3, physical_rows=5).SerializeToString()
    wire = table_pb2.ManifestOutline(fragments=[good, b"\x08"])
    with pytest.raises(CorruptFileError, match=r"fragments: expected a protobuf message.*m"):
        _ = FragmentColumns(wire, "m").ids
    manifest = Manifest(wire, where="m")
    with pytest.raises(CorruptFileError, match="fragments: expected a protobuf message"):
        manifest.fragment(0)
    with pytest.raises(CorruptFileError, match="fragment: expected a protobuf message"):
        manifest.fragment(1)


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """A message of these fields by number, of small numbers and short bytes."""
    parts = [
        bytes([number << 3, value])
        if isinstance(value, int)
        else bytes([number << 3 | 2, len(value)]) + value
        for number, value in fields
    ]
    return b"".join(parts)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ([message((1, 3), (1, 4), (4, 9)), message((4, 9))], (0, 1)),
        ([message((4, 9)), message((1, 3), (1, 1), (4, 9)), message((4, 9))], (1, 2)),
        ([message((1, 1), (4, 9)), message((1, b"\5"), (4, 9))], (1,)),
        ([message((1, 1), (4, 8), (4, 9)), message((1, 2))], (0, 1)),
        ([message((1, 1), (4, b"\7")), message((1, 2), (4, 9))], (0,)),
        (
            [
                message((1, 1), (4, 9), (3, message((4, b"\1")))),
                message((1, 2), (4, 9), (3, message((4, 1)))),
            ],
            (0,),
        ),
        ([message((1, 1), (4, 9), (5, b"a"), (5, b"b")), message((1, 2), (4, 9))], (0, 1)),
        ([message((1, 1), (4, 9), (5, b"a"), (12, b"")), message((1, 2), (4, 9), (5, b"b"))], (0,)),
    ],
)
def test_a_number_that_is_there_twice_is_taken_for_no_other_fragments(
    given: list[bytes], wrong: tuple[int, ...]
) -> None:
    manifest = Manifest(table_pb2.ManifestOutline(fragments=given), where="m")
    manifest.read_rows = lambda made: made.wire
    for position in range(len(given)):
        if position not in wrong:
            manifest.fragment(position)
            continue
        with pytest.raises(CorruptFileError, match=r"some twice, or in another form \(in m\)"):
            manifest.fragment(position)
        with pytest.raises(CorruptFileError, match=r"some twice, or in another form \(in m\)"):
            manifest.fragment_wire(position)


def test_a_number_of_deleted_rows_that_is_there_as_zero_is_not_known() -> None:
    given = [message((1, 1), (4, 9), (3, message((4, 0)))), message((1, 2), (4, 9), (3, b"\x20\2"))]
    manifest = Manifest(table_pb2.ManifestOutline(fragments=given), where="m")
    assert manifest.deleted_rows.tolist() == [-1, 2]
    assert manifest.count_rows() is None
    assert [fragment.num_deletions for fragment in manifest.fragments()] == [None, 2]


def test_a_damaged_name_is_reported_by_whoever_counts_deleted_rows() -> None:
    made = [table_pb2.DataFragment(id=at, physical_rows=5) for at in range(2)]
    made[1].files.add(path="name.lance")
    for fragment in made:
        fragment.deletion_file.read_version = 1  # it does not say how many rows are deleted
    raw = [fragment.SerializeToString().replace(b"name", b"na\xffe") for fragment in made]
    with pytest.raises(CorruptFileError, match=r"fragments: expected a protobuf message.*m"):
        _ = FragmentColumns(table_pb2.ManifestOutline(fragments=raw), "m").deleted_rows


def test_an_outline_is_the_manifest() -> None:
    """Written again, an outline is what it was read from."""
    whole = table_pb2.Manifest(version=3, max_fragment_id=2, next_row_id=9, branch="b")
    whole.fields.add(name="a", id=0, parent_id=-1, logical_type="int64")
    whole.fragments.add(id=1, physical_rows=4).files.add(path="a", fields=[0])
    whole.config["k"] = "v"
    whole.base_paths.add(id=1, path="/x")
    whole.timestamp.seconds = 5
    whole.writer_version.library = "l"
    whole.data_format.version = "2.2"
    whole.transaction_section = 0
    outline = table_pb2.ManifestOutline.FromString(whole.SerializeToString())
    assert table_pb2.Manifest.FromString(outline.SerializeToString()) == whole
    mine = {(one.number, one.name) for one in table_pb2.ManifestOutline.DESCRIPTOR.fields}
    assert mine == {(one.number, one.name) for one in table_pb2.Manifest.DESCRIPTOR.fields}


def test_many_fragments_are_counted_at_once() -> None:
    count = 20_000
    whole = table_pb2.ManifestOutline()
    whole.fragments.extend(
        table_pb2.DataFragment(id=at, physical_rows=10).SerializeToString() for at in range(count)
    )
    columns = FragmentColumns(whole, "m")
    assert columns.count_rows() == 10 * count
    np.testing.assert_array_equal(columns.ids, np.arange(count))


@given(fragments())
def test_many_fragments_are_as_few_after_each_other(made: list[table_pb2.DataFragment]) -> None:
    """Their numbers are read some thousand at a time, where some of them are zero or missing."""
    times = 3000 // max(1, len(made))
    few, many = columns_of(made), columns_of(made * times)
    for name in ("ids", "physical_rows", "deleted_rows", "data_bytes"):
        np.testing.assert_array_equal(getattr(many, name), np.tile(getattr(few, name), times))
