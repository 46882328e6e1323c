"""Full-text indices made by hand: what is rebuilt, and what is left alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.fragment import Fragment
from glaive.format.pb import table_pb2
from glaive.index.protocol import RebuiltSegment
from glaive.index.row_sets import AddressMap
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.text.inverted import Inverted
from glaive.index.text.postings import Postings, bytes_array, encode_postings
from glaive.index.text.text_format import PostingLayout, read_posting_layout
from glaive.index.text.tokens import write_fst
from glaive.io.access import open_store
from glaive.kernels.text_search import decode_lists
from glaive.types import FormatVersion

LAYOUT = PostingLayout(128, fixed_tail=False)
VERSION = FormatVersion(2, 1)
METADATA = {"partitions": "[7]", "posting_tail_codec": "varint_delta_v1", "format_version": "2"}
TOKENS = ["apple", "pear", "plum"]
DOCUMENTS = [[0, 2, 3], [1], [1, 3]]
"""Documents of each token."""


def written(
    metadata: dict[str, str] | None = None,
    ignored: BitMap | None = None,
    tokens: pa.Table | None = None,
    lists: pa.Table | None = None,
) -> tuple[Segment, SegmentWriter]:
    """A segment with five documents, rows 0, 2, 4, 6 and 8 of fragment 1; and one to be."""
    store = open_store("memory://indices")
    out = SegmentWriter(store, VERSION)
    bitmap = pa.table({"deleted_fragments": pa.array([(ignored or BitMap()).serialize()])})
    out.write("metadata.lance", bitmap, metadata=METADATA if metadata is None else metadata)
    rows = {
        "_rowid": pa.array([(1 << 32) + at for at in (0, 2, 4, 6, 8)], pa.uint64()),
        "_num_tokens": pa.array([1, 2, 1, 2, 9], pa.uint32()),
    }
    out.write("part_7_docs.lance", pa.table(rows), metadata={"total_tokens": "15"})
    numbers = pa.table({"_token": TOKENS, "_token_id": pa.array([0, 1, 2], pa.uint32())})
    out.write("part_7_tokens.lance", numbers if tokens is None else tokens)
    out.write("part_7_invert.lance", postings() if lists is None else lists)
    out.finish()
    entry = table_pb2.IndexMetadata(name="t_idx")
    entry.uuid.uuid = out.id.bytes
    return Segment(store, entry), SegmentWriter(store, VERSION)


def postings() -> pa.Table:
    starts = np.concatenate([[0], np.cumsum([len(documents) for documents in DOCUMENTS])])
    documents = np.concatenate(DOCUMENTS).astype(np.int64)
    elements = encode_postings(
        Postings(starts, documents, documents + 1), np.ones(3, np.float32), LAYOUT
    )
    lists: Any = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), bytes_array(elements))
    lengths = pa.array(np.diff(starts), pa.uint32())
    return pa.table(
        {"_posting": lists, "_max_score": pa.array([1, 1, 1], pa.float32()), "_length": lengths}
    )


def moved(survivors: list[int], fragment: int = 1) -> AddressMap:
    """These rows of a fragment of ten are now those of fragment 5."""
    addresses = np.array([(fragment << 32) + at for at in survivors], np.uint64)
    return AddressMap.of([(addresses, [_fragment(fragment, 10)], [_fragment(5, len(survivors))])])


def _fragment(number: int, count: int) -> Fragment:
    return Fragment(id=number, files=(), physical_rows=count)


def opened(out: SegmentWriter, name: str) -> IndexFile:
    return IndexFile(out.store, f"{out.folder}/{name}")


@pytest.mark.spec("text-1", "text-2", "text-4", "text-5", "text-6", "text-18")
def test_documents_tokens_and_postings_that_are_left() -> None:
    segment, out = written()
    assert Inverted().remap(segment, moved([0, 4, 6, 8]), out) == RebuiltSegment()
    documents = opened(out, "part_7_docs.lance")
    assert documents.read().to_pydict() == {
        "_rowid": [(5 << 32) + at for at in range(4)],
        "_num_tokens": [1, 1, 2, 9],
    }
    assert documents.metadata["total_tokens"] == "13"
    # "pear" was in the second document only.
    tokens = opened(out, "part_7_tokens.lance").read()
    assert tokens.to_pydict() == {"_token": ["apple", "plum"], "_token_id": [0, 1]}
    assert tokens.schema.types == [pa.string(), pa.uint32()]
    rows = opened(out, "part_7_invert.lance").read()
    assert rows["_length"].to_pylist() == [3, 1]
    blocks = [block for blocks in rows["_posting"].to_pylist() for block in blocks]
    offsets = np.cumsum([0, *(len(block) for block in blocks)])
    data = np.frombuffer(b"".join(blocks), np.uint8)
    read, frequencies = decode_lists(
        data, offsets, np.array([0, 3, 4]), block=128, fixed_tail=False, limit=4, where="a test"
    )
    assert read.tolist() == [0, 1, 2, 2]
    assert frequencies.tolist() == [1, 3, 4, 4]


def test_documents_of_other_fragments_stay() -> None:
    segment, out = written()
    assert Inverted().remap(segment, moved([0, 1], fragment=2), out) == RebuiltSegment()
    for name in ("docs", "tokens", "invert"):
        path = f"part_7_{name}.lance"
        assert opened(out, path).read() == segment.open(path).read()


@pytest.mark.spec("text-1", "text-2")
@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"partitions": "[7]", "format_version": "4"},
        {"partitions": "[7]", "posting_tail_codec": "new"},
        {"partitions": "[7]", "posting_block_size": "512"},
        {"partitions": "[7]", "positions_codec": "new"},
        {"partitions": "[7]", "token_set_format": "new"},
    ],
    ids=["no-partitions", "version", "tail", "block", "positions", "tokens"],
)
def test_forms_not_known_here_are_left_alone(metadata: dict[str, str]) -> None:
    segment, out = written(metadata)
    assert Inverted().remap(segment, moved([0]), out) is None
    assert out.finish() == []


@pytest.mark.spec("text-2")
@pytest.mark.parametrize(
    ("said", "layout"),
    [
        ({}, PostingLayout(128, fixed_tail=True)),
        ({"format_version": "2"}, None),
        ({"format_version": "2", "posting_tail_codec": "fixed32_v1"}, PostingLayout(128, True)),
        ({"posting_tail_codec": "varint_delta_v1"}, PostingLayout(128, False)),
        (
            {"posting_block_size": "256", "posting_tail_codec": "varint_delta_v1"},
            PostingLayout(256, False),
        ),
    ],
    ids=["nothing", "version", "fixed", "varints", "256"],
)
def test_metadata_says_how_postings_are_written(
    said: dict[str, str], layout: PostingLayout | None
) -> None:
    segment, _ = written({"partitions": "[7]", **said})
    assert read_posting_layout(segment.open("metadata.lance")) == layout


def test_columns_not_known_here_are_left_alone() -> None:
    segment, out = written(tokens=pa.table({"_token_new": ["a"]}))
    with pytest.raises(UnsupportedFeatureError, match="columns _token_new are not known"):
        Inverted().remap(segment, moved([0]), out)


@pytest.mark.spec("text-38")
def test_documents_ignored_by_fragment_are_not_brought_back() -> None:
    segment, out = written(ignored=BitMap([1]))
    assert Inverted().remap(segment, moved([0]), out) is None
    with pytest.raises(UnsupportedFeatureError, match="ignores the documents of some fragments"):
        Inverted().merge([segment], None, out)
    assert Inverted().open(segment).nbytes  # Versions with the segment have no such fragment.
    segment, out = written(ignored=BitMap([3]))
    assert Inverted().remap(segment, moved([0]), out) == RebuiltSegment()
    assert opened(out, "metadata.lance").read() == segment.open("metadata.lance").read()


def test_fragments_whose_documents_are_ignored_are_not_listed() -> None:
    """A few bytes can stand for billions of them."""
    everywhere = BitMap(range(2, 2**22))
    everywhere.run_optimize()
    segment, out = written(ignored=everywhere)
    tracemalloc.start()
    try:
        assert Inverted().remap(segment, moved([0]), out) == RebuiltSegment()
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.spec("rel-42")
def test_ignored_fragments_that_are_no_bitmaps_are_damage() -> None:
    """A date of the year 5,881,580 has no object of Python."""
    segment, out = written()
    days = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
    file = SegmentWriter(segment.store, VERSION)
    file.write("metadata.lance", pa.table({"deleted_fragments": days}), metadata=METADATA)
    file.finish()
    entry = table_pb2.IndexMetadata(name="t_idx")
    entry.uuid.uuid = file.id.bytes
    hurt = Segment(segment.store, entry)
    with pytest.raises(CorruptFileError, match=r"column 'deleted_fragments'.*metadata\.lance"):
        Inverted().open(hurt)
    with pytest.raises(CorruptFileError, match=r"column 'deleted_fragments'.*metadata\.lance"):
        Inverted().remap(hurt, moved([0]), out)


@pytest.mark.parametrize("partitions", ["[7", "[-1]", "[7, 7]", '["a"]', "[[7]]"])
def test_partitions_that_are_no_numbers_are_damage(partitions: str) -> None:
    segment, out = written({"partitions": partitions})
    with pytest.raises(CorruptFileError, match=r"partitions.*metadata\.lance"):
        Inverted().remap(segment, moved([0]), out)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("size", ["128.0", "1.28e2", "true", "64", "[128]"])
def test_blocks_of_other_than_128_or_256_documents_are_damage(size: str) -> None:
    segment, out = written({"partitions": "[7]", "params": f'{{"block_size": {size}}}'})
    with pytest.raises(CorruptFileError, match=r"block_size: expected 128 or 256.*metadata\.lance"):
        Inverted().merge([segment], None, out)


@pytest.mark.parametrize("name", ["\\ud800", "\\u001b[2J", "a\\nb"])
def test_the_name_of_an_unknown_tokenizer_in_a_message_can_be_printed(name: str) -> None:
    params = f'{{"base_tokenizer": "{name}"}}'
    segment, out = written({"partitions": "[7]", "params": params})
    with pytest.raises(CorruptFileError, match=r"base tokenizer.*metadata\.lance") as caught:
        Inverted().merge([segment], None, out)
    assert str(caught.value).isprintable()
    assert str(caught.value).encode()


@pytest.mark.spec("rel-23")
def test_partitions_that_are_not_listed_are_damage() -> None:
    segment, out = written({"posting_tail_codec": "varint_delta_v1", "format_version": "2"})
    with pytest.raises(CorruptFileError, match=r"partitions.*found none.*metadata\.lance"):
        Inverted().statistics(segment)
    with pytest.raises(CorruptFileError, match=r"partitions.*found none.*metadata\.lance"):
        Inverted().merge([segment], None, out)


@pytest.mark.parametrize(
    "numbers", [[0, 1], [0, 1, 1], [0, 1, 3]], ids=["fewer", "twice", "beyond"]
)
def test_tokens_numbered_otherwise_than_lists_are_damage(numbers: list[int]) -> None:
    tokens = {"_token": TOKENS[: len(numbers)], "_token_id": pa.array(numbers, pa.uint32())}
    segment, out = written(tokens=pa.table(tokens))
    with pytest.raises(CorruptFileError, match=r"tokens of an index.*part_7_tokens\.lance"):
        Inverted().remap(segment, moved([0, 4, 6]), out)


@pytest.mark.spec("rel-42", "text-19")
@pytest.mark.parametrize("kind", [pa.dictionary(pa.int32(), pa.uint32()), pa.string()], ids=str)
def test_a_number_of_tokens_of_another_type_is_damage(kind: pa.DataType) -> None:
    strings = pa.array([token.encode() for token in TOKENS], pa.large_binary())
    numbers = np.arange(3, dtype=np.int64)
    names = ("_token_fst_bytes", "_token_next_id", "_token_total_length")
    count: Any = pa.array(["3"]) if pa.types.is_string(kind) else pa.array([3], pa.uint32())
    columns = [
        pa.array([write_fst(strings, numbers)], pa.large_binary()),
        count if pa.types.is_string(kind) else count.dictionary_encode(),
        pa.array([13], pa.uint64()),
    ]
    segment, out = written(tokens=pa.table(columns, names=list(names)))
    with pytest.raises(CorruptFileError, match=r"_token_next_id.*part_7_tokens\.lance"):
        Inverted().remap(segment, moved([0, 4, 6, 8]), out)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("file", "name"),
    [*(("tokens", "_rowid"), ("tokens", "_length")), *(("lists", "_rowid"), ("lists", "_token"))],
)
def test_columns_of_other_files_of_a_partition_are_not_known(file: str, name: str) -> None:
    numbers = pa.array([0, 1, 2], pa.uint32())
    tokens = pa.table({"_token": TOKENS, "_token_id": numbers})
    rows = {"tokens": tokens, "lists": postings()}
    changed: Any = {file: rows[file].append_column(name, numbers)}
    segment, out = written(**changed)
    with pytest.raises(UnsupportedFeatureError, match=f"columns {name} are not known"):
        Inverted().remap(segment, moved([0, 4, 6]), out)
    with pytest.raises(UnsupportedFeatureError, match=f"columns {name} are not known"):
        Inverted().merge([segment], None, out)


@pytest.mark.spec("rel-42", "text-18")
def test_a_token_that_a_partition_has_twice_is_damage() -> None:
    numbers = pa.array([0, 1, 2], pa.uint32())
    tokens = pa.table({"_token": ["apple", "pear", "apple"], "_token_id": numbers})
    segment, out = written(tokens=tokens)
    other, _ = written()
    with pytest.raises(CorruptFileError, match=r"same token twice.*part_7_tokens\.lance"):
        Inverted().merge([segment, other], None, out)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("_length", pa.array([3, 1, 2**32 - 1], pa.uint32())),
        ("_length", pa.array([3, 1, 6], pa.uint32())),
        ("_posting", pa.array([["a"], ["b"], ["c"]])),
        ("_impacts", pa.array([["a"], ["b"], ["c"]])),
        ("_impacts", pa.array([1, 2, 3])),
        ("_compressed_position", pa.array([b"", b"", b""], pa.large_binary())),
        ("_position_block_offset", pa.array([[0], [0], [0]], pa.list_(pa.uint32()))),
    ],
    ids=["huge", "longer", "text", "text-impacts", "one-impact", "no-offsets", "no-positions"],
)
def test_lists_of_another_form_are_damage(column: str, values: pa.Array) -> None:
    lists = postings()
    if column in lists.column_names:
        lists = lists.set_column(lists.schema.get_field_index(column), column, values)
    else:
        lists = lists.append_column(column, values)
    segment, out = written(lists=lists)
    with pytest.raises(CorruptFileError, match=r"column.*part_7_invert\.lance"):
        Inverted().remap(segment, moved([0, 4, 6]), out)


def test_tokens_that_are_no_text_are_damage() -> None:
    numbers = pa.array([0, 1, 2], pa.uint32())
    segment, out = written(tokens=pa.table({"_token": [[1], [2], [3]], "_token_id": numbers}))
    with pytest.raises(CorruptFileError, match=r"_token.*part_7_tokens\.lance"):
        Inverted().remap(segment, moved([0, 4, 6]), out)
