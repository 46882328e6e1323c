"""Segments of full-text indices are merged: the same lists as if all rows were built at once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.index.text.sources import RowsInMemory
from tests.traced import traced_peak

from glaive.errors import CorruptFileError, GlaiveError, OptionError, UnsupportedFeatureError
from glaive.format.pb import table_pb2
from glaive.index.row_sets import RetainedRows
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.text.inverted import Inverted, read_format
from glaive.index.text.partition import PartitionContent, StoredPartition, partition_files
from glaive.index.text.postings import (
    Postings,
    blocks_of,
    bytes_array,
    encode_postings,
    list_starts,
    lists_array,
    read_postings,
)
from glaive.index.text.text_format import PostingLayout
from glaive.io.access import open_store
from glaive.types import FormatVersion

STORE = open_store("memory://merged-text")


def new_segment() -> SegmentWriter:
    return SegmentWriter(STORE, FormatVersion(2, 2))


def finished(out: SegmentWriter, built: Any) -> Segment:
    entry = table_pb2.IndexMetadata(name="t_idx", files=out.finish(), index_version=built.version)
    entry.uuid.uuid = out.id.bytes
    entry.index_details.type_url, entry.index_details.value = built.type_url, built.details
    return Segment(STORE, entry)


def built(source: RowsInMemory, **options: Any) -> Segment:
    out = new_segment()
    return finished(out, Inverted().build(source, options, out))


def merged(segments: list[Segment], source: RowsInMemory | None = None) -> Segment:
    out = new_segment()
    return finished(out, Inverted().merge(segments, source, out))


def partitions_of(segment: Segment) -> list[PartitionContent]:
    form = read_format(segment)
    count = sum(name.endswith("_docs.lance") for name in segment.sizes())
    return [StoredPartition(segment, number, form.layout).content() for number in range(count)]


def documents_of(segment: Segment) -> dict[Any, Any]:
    """Of each token its documents, by row and element, with frequency and positions."""
    found: dict[Any, Any] = {}
    for part in partitions_of(segment):
        lists = part.lists
        begins = lists.position_starts() if lists.positions is not None else None
        for token, name in enumerate(part.tokens.to_pylist()):
            here = slice(int(lists.starts[token]), int(lists.starts[token + 1]))
            ids = lists.documents[here]
            own = found.setdefault(name, [])
            for at, document in enumerate(ids.tolist()):
                element = None if part.elements is None else int(part.elements[document])
                own.append((int(part.rows[document]), element, int(lists.frequencies[here][at])))
            if begins is not None and lists.positions is not None:
                places = lists.positions[int(begins[token]) : int(begins[token + 1])].tolist()
                found.setdefault((name, "positions"), []).extend(places)
    return found


def texts(count: int, seed: int) -> pa.Array:
    words = np.random.default_rng(seed)
    return pa.array(
        [
            " ".join(f"w{number}" for number in words.zipf(1.4, 1 + at % 30) % 3000)
            for at in range(count)
        ]
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"with_position": True},
    {"with_position": True, "block_size": 256},
    {"format_version": 1},
]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-32", "text-37")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_merged_segments_are_as_if_built_at_once(options: dict[str, Any]) -> None:
    parts = [texts(400, seed) for seed in range(3)]
    first = built(RowsInMemory([parts[0]]), **options)
    second = built(RowsInMemory([parts[1]], first=400), **options)
    together = merged([first, second], RowsInMemory([parts[2]], first=800))
    at_once = built(RowsInMemory(parts), **options)
    assert documents_of(together) == documents_of(at_once)
    for name in ("docs", "tokens", "invert"):
        files = [part.open(f"part_0_{name}.lance") for part in (together, at_once)]
        assert files[0].read() == files[1].read()
        assert files[0].metadata == files[1].metadata
    assert together.entry.index_details == at_once.entry.index_details
    assert len(partitions_of(merged([first, second]))) == 1
    assert [one.entry.files[-1].path for one in (first, together)] == ["metadata.lance"] * 2
    tokens = partitions_of(together)[0].tokens.to_pylist()
    assert tokens == sorted(tokens)


@pytest.mark.spec("text-37")
def test_positions_by_document_are_joined_too() -> None:
    options = {"with_position": True, "format_version": 1}
    parts = [texts(50, 0), texts(50, 50), texts(10, 3)]
    segments = [built(RowsInMemory([parts[at]], first=50 * at), **options) for at in (0, 1)]
    together = merged(segments, RowsInMemory([parts[2]], first=100))
    at_once = built(RowsInMemory([pa.concat_arrays(parts)]), **options)
    name = "part_0_invert.lance"
    assert together.open(name).read() == at_once.open(name).read()
    assert not together.has("part_1_invert.lance")


def test_list_elements_stay_apart() -> None:
    rows = [["a b", None], [], ["c a"]]
    options = {"document_granularity": "list_element", "remove_stop_words": False}
    segments = [built(RowsInMemory([pa.array(rows)], first=first), **options) for first in (0, 3)]
    assert documents_of(merged(segments))[b"a"] == [(0, 0, 1), (2, 0, 1), (3, 0, 1), (5, 0, 1)]


@pytest.mark.spec("rel-42", "text-36")
@pytest.mark.parametrize("place", ["first", [0], {"at": 0}, 0.0], ids=str)
def test_places_of_list_elements_of_another_type_are_damage(place: Any) -> None:
    rows = pa.array([["a b"], ["c a"]])
    sound = built(RowsInMemory([rows]), document_granularity="list_element")
    out = new_segment()
    for name in sound.sizes():
        if name != "part_0_docs.lance":
            out.copy(sound, name)
            continue
        documents = sound.open(name)
        stored = documents.read()
        at = stored.schema.get_field_index("_doc_index_0")
        places = pa.array([place] * len(stored))
        changed = stored.set_column(at, "_doc_index_0", places)
        out.write(name, changed, metadata=documents.metadata)
    segment = finished(out, read_format(sound).built())
    with pytest.raises(CorruptFileError, match=r"_doc_index_0.*part_0_docs\.lance"):
        merged([segment, sound])


def test_nothing_merged_with_nothing_is_nothing() -> None:
    empty = built(RowsInMemory([pa.array([None, "the"])]))
    assert sorted(empty.sizes()) == ["metadata.lance"]
    assert sorted(merged([empty, empty]).sizes()) == ["metadata.lance"]
    added = merged([empty], RowsInMemory([pa.array(["word"])], first=7))
    assert documents_of(added) == {b"word": [(7, None, 1)]}


@pytest.mark.spec("text-33", "text-37")
def test_memory_decides_how_many_partitions_there_are() -> None:
    rows = [texts(4000, 5)]
    limit = 1_000_000
    parts = built(RowsInMemory(rows, limit), with_position=True)
    at_once = built(RowsInMemory(rows), with_position=True)
    assert len(partitions_of(parts)) > 1
    assert documents_of(parts) == documents_of(at_once)
    assert documents_of(merged([parts])) == documents_of(at_once)
    assert len(partitions_of(merged([parts]))) == 1
    small = RowsInMemory([texts(1, 1)], limit, first=9000)
    together = merged([parts], small)
    assert len(partitions_of(together)) > 1
    name = "part_0_invert.lance"  # large by itself
    assert together.get(name) == parts.get(name)


@pytest.mark.nightly(reason="builds an index of much text")
def test_memory_of_a_build_stays_within_the_limit() -> None:
    batches = [texts(5000, seed) for seed in range(8)]
    built(RowsInMemory(batches[:1]))
    tracemalloc.start()
    try:
        built(RowsInMemory(batches, 24 << 20))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.spec("rel-24")
def test_long_lists_are_merged_in_few_bytes_for_each_position() -> None:
    """Of the places of bytes and numbers in blocks, eight bytes each, there is one window."""
    texts_of_a_word = pa.array(["w w w w"]).take(pa.array(np.zeros(300_000, np.int64)))
    segment = built(RowsInMemory([texts_of_a_word]), with_position=True)
    assert traced_peak(lambda: partitions_of(segment)) < 20 * 1_200_000  # 42 each
    assert traced_peak(lambda: merged([segment, segment])) < 40 * 2_400_000  # 61 each


def long_texts(first: int, count: int) -> pa.Array:
    """Texts with a token that is in all of them, and one that is in a few many times."""
    return pa.array(
        [
            "w " * (1 + at % 3) + ("x " * 700 if at % 1000 == 7 else f"y{at % 50}")
            for at in range(first, first + count)
        ]
    )


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("block_size", [128, 256])
def test_lists_of_several_windows_are_those_of_one_build(block_size: int) -> None:
    options = {"with_position": True, "block_size": block_size, "stem": False}
    parts = [long_texts(0, 150_000), long_texts(150_000, 150_000)]
    segments = [
        built(RowsInMemory([part], first=at * 150_000), **options) for at, part in enumerate(parts)
    ]
    (joined,) = partitions_of(merged(segments))
    (whole,) = partitions_of(built(RowsInMemory(parts), **options))
    assert joined.tokens.equals(whole.tokens)
    assert (joined.rows == whole.rows).all()
    for found, expected in zip(joined.lists, whole.lists, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("block_size", [128, 256])
def test_lists_of_several_windows_lose_only_documents_that_are_dropped(block_size: int) -> None:
    options = {"with_position": True, "block_size": block_size, "stem": False}
    texts_of_all = long_texts(0, 200_000)
    kept = np.arange(len(texts_of_all)) % 5 != 2
    segment = built(RowsInMemory([texts_of_all]), **options)
    out = new_segment()
    dropped = RetainedRows({0: len(kept)}, lambda rows: (rows, kept[rows.astype(np.int64)]))
    rebuilt = Inverted().remap(segment, dropped, out)
    assert rebuilt is not None
    entry = table_pb2.IndexMetadata()
    entry.CopyFrom(segment.entry)
    entry.uuid.uuid = out.id.bytes
    out.finish()
    (found,) = partitions_of(Segment(STORE, entry))
    (whole,) = partitions_of(built(RowsInMemory([texts_of_all.filter(pa.array(kept))]), **options))
    assert found.tokens.equals(whole.tokens)
    assert (found.rows == np.flatnonzero(kept)).all()
    for one, expected in zip(found.lists, whole.lists, strict=True):
        np.testing.assert_array_equal(one, expected)


def test_documents_of_a_list_ascend() -> None:
    documents = np.concatenate((np.arange(1 << 10), np.arange(5)))
    starts, layout = np.array([0, len(documents)]), PostingLayout(128, fixed_tail=False)
    best = np.zeros(len(blocks_of(starts, 128).sizes), np.float32)
    elements = encode_postings(Postings(starts, documents, np.ones_like(documents)), best, layout)
    kind = pa.list_(pa.large_binary())
    rows = pa.table(
        {"_posting": lists_array(np.array([0, len(best)]), bytes_array(elements), kind)}
    )
    out = new_segment()
    out.write("lists.lance", rows)
    file = IndexFile(STORE, f"{out.folder}/lists.lance")
    with pytest.raises(CorruptFileError, match="other numbers"):
        read_postings(file, rows, starts, layout, len(documents))


@pytest.mark.spec("rel-24")
def test_more_positions_than_documents_have_tokens_are_damage() -> None:
    segment = built(RowsInMemory([pa.array(["x1 x2 x1", "x2"])]), with_position=True)
    out = new_segment()
    documents, *others = partition_files(0)
    rows = segment.open(documents).read()
    fewer = rows.set_column(1, rows.schema.field(1), pa.array([3, 0], pa.uint32()))
    out.write(documents, fewer)
    for name in others:
        out.copy(segment, name)
    entry = table_pb2.IndexMetadata(name="t_idx", files=out.finish())
    entry.uuid.uuid = out.id.bytes
    part = StoredPartition(Segment(STORE, entry), 0, read_format(segment).layout)
    with pytest.raises(CorruptFileError, match="_num_tokens"):
        part.content()


@pytest.mark.spec("rel-24")
def test_more_postings_than_a_file_can_hold_are_damage() -> None:
    out = new_segment()
    lengths = pa.array(np.full(5000, 1 << 17), pa.uint32())
    out.write("lists.lance", pa.table({"_length": lengths}))
    file = IndexFile(STORE, f"{out.folder}/lists.lance")
    with pytest.raises(CorruptFileError, match="match the lengths of the lists"):
        list_starts(file, 1 << 17)  # 5 GB


@pytest.mark.spec("text-38")
def test_other_parameters_cannot_be_merged() -> None:
    first = built(RowsInMemory([texts(5, 0)]))
    for options in ({"stem": False}, {"with_position": True}, {"format_version": 1}):
        with pytest.raises(UnsupportedFeatureError, match="other parameters"):
            merged([first, built(RowsInMemory([texts(5, 1)]), **options)])


def test_an_index_is_extended_with_its_own_parameters() -> None:
    options = {"stem": False, "custom_stop_words": ["w1"], "max_token_length": None}
    segment = built(RowsInMemory([pa.array(["w1 walking"])]), **options)
    out = new_segment()
    rows = RowsInMemory([pa.array(["w1 talking"])])
    more = finished(out, Inverted().extend(segment, rows, out))
    assert read_format(more) == read_format(segment)
    assert list(documents_of(more)) == [b"talking"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"with_positions": True}, "with_positions"),
        ({"format_version": 4}, "format_version"),
        ({"format_version": True}, "format_version"),
        ({"format_version": 2, "block_size": 256}, "block_size=256"),
        ({"block_size": 64}, "block_size"),
        ({"document_granularity": "word"}, "document_granularity"),
        ({"document_granularity": "list_element"}, "list elements"),
        ({"num_workers": -1}, "num_workers"),
        ({"stem": 1}, "stem"),
        ({"max_token_length": -1}, "max_token_length"),
        ({"custom_stop_words": "the"}, "custom_stop_words"),
        ({"language": "Klingon"}, "Klingon"),
        ({"base_tokenizer": "standard"}, "standard"),
    ],
    ids=str,
)
def test_wrong_options_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        built(RowsInMemory([pa.array(["text"])]), **options)


@pytest.mark.parametrize("values", [[1, 2], [[1]]], ids=str)
def test_only_texts_are_indexed(values: list[Any]) -> None:
    with pytest.raises(OptionError, match="must be text"):
        built(RowsInMemory([pa.array(values)]))
    with pytest.raises(UnsupportedFeatureError, match="lists of lists"):
        built(RowsInMemory([pa.array([[["a"]]])]))


def test_damaged_segments_are_errors_or_other_lists() -> None:
    random = np.random.default_rng(0)
    names = [f"part_0_{name}.lance" for name in ("docs", "tokens", "invert")]
    source = built(RowsInMemory([texts(300, 0)]), with_position=True)
    sound = {name: source.get(name).to_pybytes() for name in [*names, "metadata.lance"]}
    failed = 0
    for turn in range(150):
        out = new_segment()
        damaged = names[turn % 3]
        for name, data in sound.items():
            raw = bytearray(data)
            if name == damaged:
                for _ in range(3):
                    raw[random.integers(0, len(raw))] = random.integers(0, 256)
            out.put(name, [bytes(raw)])
        segment = finished(out, read_format(source).built())
        try:
            merged([segment, source])
        except GlaiveError:
            failed += 1
    assert failed > 30
