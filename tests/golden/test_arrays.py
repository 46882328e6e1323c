"""Pages of format 2.0 read back; see ``arrays20.py``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.golden.arrays20 import WHOLE_FILE, ArrayVector, flat, no_nulls, old_pages, vectors
from tests.golden.assemble import Page, assemble

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.file import LanceFileWriter
from glaive.file.open import open_reader
from glaive.io.access import open_store
from glaive.kernels.bitpack import BLOCK, pack_out_of_line
from glaive.kernels.fsst import SymbolTable


def blocks(values: list[int], bits: int, width: int) -> bytes:
    padded = np.zeros(-(-len(values) // BLOCK) * BLOCK, f"u{bits // 8}")
    padded[: len(values)] = values
    counts = np.full(len(padded) // BLOCK, BLOCK)
    return pack_out_of_line(pa.py_buffer(padded), counts, bits, width)[0].tobytes()


TABLE = SymbolTable((b"abc", b"de")).to_bytes()
OLD = old_pages(blocks, TABLE)
WRITTEN = vectors()


def put(folder: Path, vector: ArrayVector) -> None:
    packed = {"lance-encoding:packed": "true"} if pa.types.is_struct(vector.kind) else None
    schema = pa.schema([pa.field("c", vector.kind, metadata=packed)])
    (folder / "one.lance").write_bytes(assemble(schema, vector.columns, "2.0"))


def read(store: str, rows: list[int] | None = None) -> pa.Array:
    reader = open_reader(open_store(store), "one.lance")
    bound = reader.bind(reader.schema.fields)
    (column,) = bound.read(0, reader.num_rows) if rows is None else bound.take(np.array(rows))
    column.validate(full=True)
    return column


@pytest.mark.spec("arr-flat-1", "arr-flat-2", "arr-null-1", "arr-null-2", "version-1", "arr-1")
def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "one.lance").write_bytes(bytes.fromhex(WHOLE_FILE))
    assert read(str(tmp_path)).equals(pa.array([1, 2, None], pa.int32()))


@pytest.mark.spec("align-3", "column-4", "arr-choice-1")
def test_a_whole_file_is_written_byte_for_byte(tmp_path: Path) -> None:
    with LanceFileWriter(tmp_path / "one.lance", version="2.0") as writer:
        writer.write_batch(pa.table({"c": pa.array([1, 2, None], pa.int32())}))
    assert (tmp_path / "one.lance").read_bytes().hex() == WHOLE_FILE


@pytest.mark.spec(
    *("ends-1", "ends-2", "ends-3", "arr-binary-1", "arr-list-1", "arr-list-2", "arr-list-3"),
    *("arr-dict-1", "arr-dict-2", "arr-packed-1", "arr-null-3", "arr-null-4", "arr-binary-6"),
    *("arr-bits-1", "arr-bits-2", "arr-bits-3", "arr-fsst-1", "arr-fsb-1"),
    *("owner-5", "arr-binary-2"),
)
@pytest.mark.parametrize("vector", [*WRITTEN, *OLD], ids=lambda one: one.name)
def test_a_page(tmp_path: Path, vector: ArrayVector) -> None:
    put(tmp_path, vector)
    expected = pa.array(vector.values, vector.kind)
    assert read(str(tmp_path)).equals(expected)
    rows = [*range(len(expected) - 1, -1, -1), 0]
    assert read(str(tmp_path), rows).equals(expected.take(pa.array(rows)))
    for row in range(min(len(expected), 7)):
        assert read(str(tmp_path), [row]).equals(expected.slice(row, 1))


@pytest.mark.interop
@pytest.mark.parametrize("vector", [*WRITTEN, *OLD], ids=lambda one: one.name)
def test_pylance_reads_the_same(tmp_path: Path, vector: ArrayVector) -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    from lance.file import LanceFileReader

    put(tmp_path, vector)
    found = LanceFileReader(str(tmp_path / "one.lance")).read_all().to_table()["c"]
    assert found.to_pylist() == list(vector.values)


@pytest.mark.interop
@pytest.mark.spec("arr-dict-4")
@pytest.mark.parametrize(("kind", "bits"), [(pa.string(), 16), (pa.large_string(), 8)])
def test_pylance_cannot_read_other_dictionaries_of_strings(
    tmp_path: Path, kind: pa.DataType, bits: int
) -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    from lance.file import LanceFileReader as Reader

    (vector,) = (one for one in WRITTEN if one.name == "strings by a dictionary")
    ((page,),) = vector.columns
    indices, *items = page.buffers
    wide = np.frombuffer(indices, "u1").astype(f"u{bits // 8}").tobytes()
    layout = page.layout.replace(flat(8), flat(bits), 1)
    put(tmp_path, replace(vector, kind=kind, columns=[[Page(4, layout, [wide, *items])]]))
    assert read(str(tmp_path)).to_pylist() == list(vector.values)
    try:
        found = Reader(str(tmp_path / "one.lance")).read_all().to_table()["c"].to_pylist()
    except pa.ArrowInvalid:
        return
    assert found != list(vector.values)


@pytest.mark.spec("arr-const-1")
@pytest.mark.parametrize(
    ("kind", "raw", "value"), [(pa.int16(), r"\001\002", 513), (pa.string(), "ab", "ab")]
)
def test_a_constant(tmp_path: Path, kind: pa.DataType, raw: str, value: object) -> None:
    page = Page(3, f'constant {{ value: "{raw}" }}', [])
    put(tmp_path, ArrayVector("constant", kind, [value] * 3, [[page]]))
    assert read(str(tmp_path)).to_pylist() == [value] * 3
    assert read(str(tmp_path), [2]).to_pylist() == [value]


ENDS = "list {{ offsets {{ {} }} null_offset_adjustment: {} num_items: {} }}"
TEXT = "binary {{ indices {{ {} }} bytes {{ {} }} null_adjustment: {} }}"
DAMAGED = {
    "too short": (pa.int32(), Page(4, flat(32), [bytes(15)]), "at least 16 bytes, found 15"),
    "other width": (pa.int32(), Page(4, flat(64), [bytes(32)]), "int32"),
    "no such buffer": (pa.int32(), Page(4, flat(32, 3), [bytes(32)]), "number of a page buffer"),
    "ends descend": (
        pa.string(),
        Page(2, TEXT.format(no_nulls(flat(64)), flat(8, 1), 9), [bytes([5] + [0] * 15), bytes(8)]),
        "ends of values",
    ),
    "ends beyond the bytes": (
        pa.string(),
        Page(1, TEXT.format(no_nulls(flat(64)), flat(8, 1), 9), [bytes([8] + [0] * 7), bytes(7)]),
        "page buffer 1",
    ),
    "no adjustment": (
        pa.string(),
        Page(1, TEXT.format(no_nulls(flat(64)), flat(8, 1), 0), [bytes(8), b""]),
        "null adjustment",
    ),
    "index beyond the items": (
        pa.dictionary(pa.int8(), pa.int32()),
        Page(
            1,
            f"dictionary {{ indices {{ {flat(8)} }} items {{ {flat(32, 1)} }}"
            " num_dictionary_items: 2 }",
            [b"\x02", bytes(8)],
        ),
        "dictionary indices",
    ),
    "negative index": (
        pa.dictionary(pa.int8(), pa.int32()),
        Page(
            1,
            f"dictionary {{ indices {{ {flat(8)} }} items {{ {flat(32, 1)} }}"
            " num_dictionary_items: 2 }",
            [b"\xff", bytes(8)],
        ),
        "dictionary indices",
    ),
    "text index beyond the items": (
        pa.string(),
        Page(
            1,
            f"dictionary {{ indices {{ {flat(8)} }} items {{"
            f" {TEXT.format(no_nulls(flat(64, 1)), flat(8, 2), 2)} }} num_dictionary_items: 1 }}",
            [b"\x02", bytes([1] + [0] * 7), b"a"],
        ),
        "dictionary indices",
    ),
    "other dimension": (
        pa.list_(pa.int8(), 2),
        Page(1, f"fixed_size_list {{ dimension: 3 items {{ {flat(8)} }} }}", [bytes(3)]),
        "lists of 3 items",
    ),
    "nothing": (pa.int8(), Page(1, "", [b"a"]), "array encoding"),
    "a list where values stand": (
        pa.int8(),
        Page(1, no_nulls(ENDS.format(no_nulls(flat(64)), 1, 0)), [bytes(8)]),
        "found list",
    ),
    "too wide": (
        pa.int8(),
        Page(
            1,
            "bitpacked { compressed_bits_per_value: 9 uncompressed_bits_per_value: 8 buffer { } }",
            [bytes(9)],
        ),
        "9 bits for values of 8 bits",
    ),
    "a table without symbols": (
        pa.string(),
        Page(
            1,
            f"fsst {{ binary {{ {TEXT.format(flat(64), flat(8, 1), 2)} }} symbol_table: 'no' }}",
            [bytes([1] + [0] * 7), b"a"],
        ),
        "FSST symbol table",
    ),
}


@pytest.mark.spec("arr-3", "arr-flat-3", "ends-4", "arr-dict-3", "arr-fsl-1", "arr-bits-1")
@pytest.mark.parametrize("name", DAMAGED)
def test_what_contradicts_itself_is_damage(tmp_path: Path, name: str) -> None:
    kind, page, message = DAMAGED[name]
    put(tmp_path, ArrayVector(name, kind, [], [[page]]))
    with pytest.raises(CorruptFileError, match=message) as found:
        read(str(tmp_path))
    assert "one.lance" in str(found.value)
    with pytest.raises(CorruptFileError, match=message):
        read(str(tmp_path), [page.length - 1])


@pytest.mark.spec("arr-list-4")
def test_lists_agree_with_the_column_of_their_items(tmp_path: Path) -> None:
    lists = Page(1, ENDS.format(no_nulls(flat(64)), 4, 3), [bytes([3] + [0] * 7)])
    items = Page(2, flat(8), [b"ab"])
    put(tmp_path, ArrayVector("", pa.list_(pa.int8()), [], [[lists], [items]]))
    with pytest.raises(CorruptFileError, match="items of lists: expected 3"):
        read(str(tmp_path))
    lists = Page(1, ENDS.format(no_nulls(flat(64)), 4, 2), [bytes([3] + [0] * 7)])
    put(tmp_path, ArrayVector("", pa.list_(pa.int8()), [], [[lists], [items]]))
    with pytest.raises(CorruptFileError, match="list offsets: expected at most 2"):
        read(str(tmp_path))


@pytest.mark.spec("arr-2")
@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("rle { bits_per_value: 8 }", "rle.*knows binary, bitpacked"),
        ("flat { bits_per_value: 8 buffer { buffer_type: file } }", "outside of their page"),
        (
            "flat { bits_per_value: 8 buffer { } compression { scheme: 'brotli' } }",
            "'brotli'.*zstd, lz4",
        ),
    ],
)
def test_what_this_reader_does_not_know_is_named(tmp_path: Path, encoding: str, named: str) -> None:
    put(tmp_path, ArrayVector("", pa.int8(), [], [[Page(1, encoding, [b"a"])]]))
    with pytest.raises(UnsupportedFeatureError, match=named):
        read(str(tmp_path))
