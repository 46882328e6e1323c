"""Pages of 2.1 and 2.2, in the messages that both libraries write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.file_messages import BOTH, buffers_of, column_messages, layout_of, write_with
from tests.golden.assemble import Page, assemble
from tests.golden.vectors import NULLABLE, SHORTS

from glaive.errors import SchemaError
from glaive.file import LanceFileReader, LanceFileWriter
from glaive.format.pb import encodings21_pb2 as pb

VALID_ITEM, NULLABLE_ITEM = pb.REPDEF_ALL_VALID_ITEM, pb.REPDEF_NULLABLE_ITEM


def inner(layout: Any) -> Any:
    """The message of the layout itself, whichever it is."""
    return getattr(layout, layout.WhichOneof("layout"))


def one_page(library: str, path: Path, version: str, rows: pa.Table) -> tuple[Any, list[bytes]]:
    """Write a column of one page; its layout and its buffers."""
    raw = write_with(library, path, version, [rows])
    ((page,),) = (column.pages for column in column_messages(raw))
    return inner(layout_of(page)), buffers_of(raw, page)


@pytest.mark.spec("layer-2", "def-4")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@BOTH
def test_layers_are_those_that_occur_in_a_page(tmp_path: Path, library: str, version: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**62, (3, 500))
    batches = [
        pa.table({"c": pa.array(some, mask=np.arange(500) == (77 if at == 1 else -1))})
        for at, some in enumerate(numbers)
    ]
    path = tmp_path / "a.lance"
    raw = write_with(library, path, version, batches, data_cache_bytes=3000)
    layouts = [inner(layout_of(page)) for page in column_messages(raw)[0].pages]
    assert [list(one.layers) for one in layouts] == [[VALID_ITEM], [NULLABLE_ITEM], [VALID_ITEM]]
    for layout in layouts:
        levels = (
            layout.HasField("def_compression")
            if isinstance(layout, pb.MiniBlockLayout)
            else layout.bits_def > 0
        )
        assert levels == (list(layout.layers) == [NULLABLE_ITEM])
    assert LanceFileReader(path).read_all().to_table() == pa.concat_tables(batches)


@pytest.mark.spec("const-4")
@pytest.mark.parametrize("value", [7, "hello"])
@BOTH
def test_equal_values_are_a_constant_page_from_2_2_on(
    tmp_path: Path, library: str, value: Any
) -> None:
    for rows in ([value] * 1000, [value, None] * 500):
        before, _ = one_page(library, tmp_path / "a.lance", "2.1", pa.table({"c": rows}))
        since, _ = one_page(library, tmp_path / "b.lance", "2.2", pa.table({"c": rows}))
        assert isinstance(before, pb.MiniBlockLayout)
        assert isinstance(since, pb.ConstantLayout)


RUNS = "rle { values { flat { bits_per_value: 16 } } run_lengths { flat { bits_per_value: 8 } } }"
ONE_CHUNK = "num_buffers: 1 num_items: 3"
ONLY_IN_2_2 = {
    "a constant": (
        f"constant_layout {{ {NULLABLE} inline_value: '\\005\\000' }}",
        "",
        "000001000000",
    ),
    "runs of levels": (
        f"mini_block_layout {{ def_compression {{ {RUNS} }} {SHORTS} {NULLABLE} {ONE_CHUNK} }}",
        "4000",
        "030011000600fefe 0600000000000000 000001000000 010101 fefefefefefefe050005000500fefe",
    ),
}
"""Layouts and buffers of a page with 5, null, 5."""


@pytest.mark.spec("version-3")
@pytest.mark.parametrize("name", ["a constant", "runs of levels"])
def test_what_only_2_2_writes_is_read_in_2_1(tmp_path: Path, name: str) -> None:
    layout, *buffers = ONLY_IN_2_2[name]
    page = Page(3, layout, [bytes.fromhex(one) for one in buffers])
    data = assemble(pa.schema([pa.field("c", pa.int16())]), [[page]], "2.1")
    (tmp_path / "a.lance").write_bytes(data)
    assert data[-8:-4] == b"\2\0\1\0"
    reader = LanceFileReader(tmp_path / "a.lance")
    assert reader.read_all().to_table()["c"].to_pylist() == [5, None, 5]
    assert reader.take_rows([2]).to_table()["c"].to_pylist() == [5]


@pytest.mark.spec("mb-dict-3", "enc-2")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("keys", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
@BOTH
def test_a_dictionary_column_has_its_items_in_the_layout_and_keys_of_their_width(
    tmp_path: Path, library: str, keys: pa.DataType, version: str
) -> None:
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 1] * 300, keys), pa.array(["p", "qq"])
    )
    rows = pa.table({"c": column})
    layout, buffers = one_page(library, tmp_path / "a.lance", version, rows)
    assert isinstance(layout, pb.MiniBlockLayout)
    packed = layout.value_compression.inline_bitpacking
    assert packed.uncompressed_bits_per_value == keys.bit_width
    assert layout.num_dictionary_items == 2
    assert layout.HasField("dictionary")
    assert len(buffers) == 3
    assert buffers[2].endswith(b"pqq")
    assert LanceFileReader(tmp_path / "a.lance").read_all().to_table() == rows


@pytest.mark.spec("zip-3", "zip-7")
@BOTH
def test_fixed_widths_lie_behind_control_words_only_where_there_are_levels(
    tmp_path: Path, library: str
) -> None:
    own = {"lance-encoding:structural-encoding": "fullzip"}
    for values, expected in (
        ([1, 2, 3], "010002000300"),
        ([1, None, 3], "00 0100  01 0000  00 0300"),
        ([[1, None], None, [], [3]], "04 0100  01 0000  06  07  04 0300"),
    ):
        kind = pa.list_(pa.int16()) if isinstance(values[0], list) else pa.int16()
        rows = pa.table([pa.array(values, kind)], schema=pa.schema([pa.field("c", kind)]))
        wish = pa.schema([pa.field("c", kind, metadata=own)])
        layout, buffers = one_page(library, tmp_path / "a.lance", "2.1", rows.cast(wish))
        assert isinstance(layout, pb.FullZipLayout)
        assert buffers[0] == bytes.fromhex(expected)
        assert len(buffers) == (2 if kind != pa.int16() else 1)
        assert LanceFileReader(tmp_path / "a.lance").read_all().to_table() == rows


@pytest.mark.spec("multiply-3")
@pytest.mark.parametrize("version", ["2.2"])
def test_lists_do_not_stand_outside_of_fixed_size_lists_of_structs(
    tmp_path: Path, version: str
) -> None:
    pairs = pa.list_(pa.struct([("x", pa.int32())]), 2)
    inside = pa.list_(pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int32()))]), 2)
    value = [{"x": 1}, {"x": 2}]
    for kind, one in ((pa.list_(pairs), [value]), (pa.map_(pa.string(), pairs), [("k", value)])):
        with (
            pytest.raises(SchemaError, match=r"fixed_size_list.*2\.3"),
            LanceFileWriter(tmp_path / "a.lance", version=version) as writer,
        ):
            writer.write_batch(pa.table({"c": pa.array([one], kind)}))
    rows = pa.table({"c": pa.array([[{"x": 1, "l": [7, 8]}, {"x": 2, "l": None}]], inside)})
    with LanceFileWriter(tmp_path / "b.lance", version=version) as writer:
        writer.write_batch(rows)
    assert LanceFileReader(tmp_path / "b.lance").read_all().to_table() == rows
