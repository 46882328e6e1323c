"""Write, read, merge and rebuild the partitions of a full-text index.

Specification: "Files", "Merging" and "Building" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from glaive.arrow.blocks import flag_array, number_array, spread
from glaive.arrow.chunked import as_numpy, dictionary_encoded, empty_table
from glaive.arrow.conditions import constants, filled, scalar
from glaive.dataclass import NamedTuple
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.protocol import BuiltSegment, IndexSource, ValueBatch
from glaive.index.row_sets import AddressMap, RowNumbers, RowSet
from glaive.index.scalar.ordering import is_binary, is_text
from glaive.index.segment import IndexFile, Segment, SegmentWriter, batches
from glaive.index.text.opened import Documents, OpenedPartition
from glaive.index.text.postings import (
    DocumentLengths,
    Postings,
    blocks_of,
    check_posting_columns,
    document_position_columns,
    length_codes,
    list_starts,
    lists_of,
    numbers_of,
    position_columns,
    posting_columns,
    read_positions,
    read_postings,
    shared_position_columns,
    unknown_columns,
    wrong_lists,
)
from glaive.index.text.text_format import ELEMENT, METADATA, PostingLayout, TextFormat, TextParams
from glaive.index.text.tokenizers import Tokenizer
from glaive.index.text.tokens import Tokens, read_tokens, write_tokens
from glaive.kernels.hashing import Inversion, invert_tokens
from glaive.types import Int64s, UInt32s

# --- Write a partition: documents, tokens, and the posting list of each token -----------
# Specification: "Files" in ``docs/format/text-indices.md``.

_ENCODED_POSTINGS = 1 << 17
"""Approximate number of postings to encode at a time."""


class PartitionContent(NamedTuple):
    """Content of a partition in memory.

    Parameters
    ----------
    tokens
        ``large_binary``, ascending; the number of a token is its index.
    rows
        Row of each document.
    elements
        Index of each document in the list of its row; ``None`` if documents are rows.
    lengths
        Number of tokens of each document.
    lists
        Documents of each token, and their positions if the index stores positions.
    """

    tokens: pa.Array
    rows: RowNumbers
    elements: UInt32s | None
    lengths: Int64s
    lists: Inversion

    @property
    def postings(self) -> int:
        """Number of postings of all lists."""
        return len(self.lists.documents)

    @property
    def positions(self) -> int:
        """Number of positions of all lists."""
        return 0 if self.lists.positions is None else len(self.lists.positions)


def partition_files(number: int | None) -> tuple[str, str, str]:
    """Return the names of a partition's files: documents, tokens and postings.

    ``None`` is the partition of a segment by pylance up to 0.27.
    """
    begin = "" if number is None else f"part_{number}_"
    return f"{begin}docs.lance", f"{begin}tokens.lance", f"{begin}invert.lance"


def write_partition(
    out: SegmentWriter,
    number: int,
    content: PartitionContent,
    schemas: Sequence[pa.Schema],
    layout: PostingLayout,
    numbers: Int64s | None = None,
) -> None:
    """Write the three files of a partition, with their ``schemas``.

    ``numbers`` are the list numbers of the tokens; default: their order.
    Cost: memory for the content, and for about a hundred thousand encoded postings at a time.
    """
    documents, tokens, postings = partition_files(number)
    lengths = content.lengths
    columns: list[Any] = [
        number_array(content.rows, pa.uint64()),
        number_array(lengths, pa.uint32()),
    ]
    if content.elements is not None:
        columns.append(number_array(content.elements, pa.uint32()))
    rows = pa.Table.from_arrays(columns, schema=schemas[0])
    out.write(documents, rows, metadata=_total(lengths))
    places = np.arange(len(content.tokens)) if numbers is None else numbers
    out.write(tokens, write_tokens(Tokens(content.tokens, places), schemas[1]))
    measured = DocumentLengths(lengths, length_codes(lengths), int(lengths.sum()))
    file = out.create(postings, schemas[2])
    for batch in _posting_tables(content.lists, measured, schemas[2], layout):
        file.write(batch)
    file.finish()


def _total(lengths: Int64s) -> dict[str, str]:
    """Return the metadata of the file of documents."""
    return {"total_tokens": str(int(lengths.sum()))}


def _posting_tables(
    lists: Inversion, lengths: DocumentLengths, schema: pa.Schema, layout: PostingLayout
) -> Iterator[pa.Table]:
    """Encode posting lists; yield some at a time."""
    occurrences_before = 0
    for first, last in batches(lists.starts, _ENCODED_POSTINGS):
        begin, end = int(lists.starts[first]), int(lists.starts[last])
        frequencies = lists.frequencies[begin:end]
        own = lists.starts[first : last + 1] - begin
        postings = Postings(own, lists.documents[begin:end], frequencies)
        blocks = blocks_of(postings.starts, layout.block)
        impacts = "_impacts" in schema.names
        columns = posting_columns(postings, blocks, lengths, layout, impacts=impacts)
        if lists.positions is not None:
            stop = occurrences_before + int(frequencies.sum(dtype=np.int64))
            positions = lists.positions[occurrences_before:stop]
            occurrences_before = stop
            if _POSITION not in schema.names:
                columns |= shared_position_columns(positions, blocks, frequencies)
            else:
                columns |= document_position_columns(positions.astype(np.int64), postings)
        yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
    if len(lists.starts) == 1:
        yield empty_table(schema)


# --- Read a whole partition: documents, tokens and posting lists ------------------------
# Specification: "Files" in ``docs/format/text-indices.md``.

_DECODED_POSTINGS = 1 << 19
"""Approximate number of postings to decode at a time."""


class StoredPartition:
    """A stored partition of a segment.

    Parameters
    ----------
    segment
        Segment with the files.
    number
        Number of the partition in the segment.
    layout
        Layout of the posting lists.

    Raises
    ------
    UnsupportedFeatureError
        A file has an unknown column.
    CorruptFileError, DataFileMissingError
        A file is damaged or missing.
    """

    def __init__(self, segment: Segment, number: int, layout: PostingLayout) -> None:
        self.segment, self._layout = segment, layout
        self.names = partition_files(number)
        documents, tokens, postings = map(segment.open, self.names)
        self.files = self._documents, self._tokens, self._postings = documents, tokens, postings
        unknown = unknown_columns(*self.files)
        for path, columns in unknown.items():
            raise UnsupportedFeatureError(f"{path}: columns {', '.join(columns)} are not known")
        check_posting_columns(postings)
        self.by_element = ELEMENT in documents.schema.names

    @cached_property
    def lengths(self) -> Int64s:
        """Number of tokens of each document."""
        file = self._documents
        return numbers_of(file, file.read(["_num_tokens"]), "_num_tokens", pa.uint32())

    @cached_property
    def _starts(self) -> Int64s:
        return list_starts(self._postings, len(self.lengths))

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.lengths)

    @property
    def postings(self) -> int:
        """Number of postings of all lists."""
        return int(self._starts[-1])

    @property
    def positions(self) -> int:
        """Number of positions of all lists."""
        return int(self.lengths.sum()) if position_columns(self._postings) else 0

    def rows(self) -> RowSet:
        """Return the rows of the documents.

        Raises
        ------
        CorruptFileError
            The file of the documents is damaged.
        """
        rows = self._documents.read(["_rowid"])
        return RowSet.of(numbers_of(self._documents, rows, "_rowid", pa.uint64()).view(np.uint64))

    def document_rows(self) -> pa.Table:
        """Read the columns of the file of documents; raise if a value is null."""
        file = self._documents
        types: dict[str, pa.DataType] = {"_rowid": pa.uint64(), "_num_tokens": pa.uint32()}
        if self.by_element:
            types[ELEMENT] = pa.uint32()
        file.check(**types)
        rows = file.read(list(types))
        for column in rows.columns:
            file.check_present(column)
        return rows

    def content(self) -> PartitionContent:
        """Decode the whole partition; order the lists by token.

        Raises
        ------
        CorruptFileError
            A file is damaged.
        """
        rows = self.document_rows()
        elements = as_numpy(rows[ELEMENT]) if self.by_element else None
        tokens = self.tokens()
        lists = reordered(self.lists(), tokens.numbers)
        return PartitionContent(
            tokens.strings, as_numpy(rows["_rowid"]), elements, self.lengths, lists
        )

    def tokens(self) -> Tokens:
        """Read the tokens with the numbers of their lists."""
        return read_tokens(self._tokens, len(self._starts) - 1)

    def lists(self) -> Inversion:
        """Decode the lists in stored order."""
        file, layout, starts = self._postings, self._layout, self._starts
        documents = np.empty(self.postings, np.uint32)
        frequencies = np.empty(self.postings, np.uint32)
        of_positions = position_columns(file)
        positions = [np.empty(0, np.uint32)]
        for first, last in batches(starts, _DECODED_POSTINGS):
            here = slice(int(starts[first]), int(starts[last]))
            rows = file.read(["_posting", *of_positions], first, last)
            own = starts[first : last + 1] - here.start
            documents[here], often = read_postings(file, rows, own, layout, self.documents)
            frequencies[here] = often
            if of_positions:
                positions.append(read_positions(file, rows, own, layout, often)[1])
                if sum(map(len, positions)) > self.positions:
                    raise wrong_lists(self._documents, "_num_tokens")
        found = np.concatenate(positions) if of_positions else None
        return Inversion(starts, documents, frequencies, found)


def reordered(lists: Inversion, order: Int64s) -> Inversion:
    """Reorder lists; return the same object if the order stays the same."""
    if (order == np.arange(len(order))).all():
        return lists
    sizes = np.diff(lists.starts)[order]
    begins = lists.starts[:-1][order]
    documents, frequencies = (
        _taken(items, begins, sizes) for items in (lists.documents, lists.frequencies)
    )
    positions = lists.positions
    if positions is not None:
        bounds = lists.position_starts()
        positions = _taken(positions, bounds[:-1][order], np.diff(bounds)[order])
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return Inversion(starts, documents, frequencies, positions)


def _taken(items: UInt32s, begins: Int64s, sizes: Int64s) -> UInt32s:
    """Concatenate ranges of items; computes indices for some ranges at a time to save memory."""
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    taken = np.empty(int(bounds[-1]), np.uint32)
    for first, last in batches(bounds, _DECODED_POSTINGS):
        places = spread(begins[first:last], sizes[first:last])
        taken[bounds[first] : bounds[last]] = items[places]
    return taken


# --- Merge partitions: join vocabularies, append documents, join lists ------------------
# Specification: "Merging" in ``docs/format/text-indices.md``.

_BYTES_PER_POSTING = 32
"""Memory for merging a posting: document and frequency, twice, and the target index."""

_BYTES_PER_POSITION = 16

_BATCH_TARGETS = 1 << 19
"""Number of postings or positions whose target indices are computed at a time."""


def merge_partitions(
    stored: Iterable[StoredPartition],
    added: Iterator[PartitionContent],
    form: TextFormat,
    memory_limit: int,
    out: SegmentWriter,
) -> list[int]:
    """Write partitions again, in as few as half the memory limit allows; return their numbers.

    Parameters
    ----------
    stored
        Partitions whose documents come first, in this order. A partition that exceeds the limit
        alone is copied.
    added
        Partitions in memory.
    """
    limit = memory_limit // 2
    numbers: list[int] = []
    *groups, last = list(_groups(stored, limit)) or [[]]
    for group in groups:
        _write(numbers, group, [], form, out)
    first = next(added, None)
    if first is None:
        _write(numbers, last, [], form, out)
    elif sum(map(_merge_bytes, last)) + _merge_bytes(first) <= limit:
        _write(numbers, last, [first], form, out)
    else:
        _write(numbers, last, [], form, out)
        _write(numbers, [], [first], form, out)
    for content in added:
        _write(numbers, [], [content], form, out)
    return numbers


def _write(
    numbers: list[int],
    stored: Sequence[StoredPartition],
    added: Sequence[PartitionContent],
    form: TextFormat,
    out: SegmentWriter,
) -> None:
    """Write one partition and append its number; skip empty content."""
    number = len(numbers)
    if len(stored) == 1 and not added:
        for old, new in zip(stored[0].names, partition_files(number), strict=True):
            out.copy(stored[0].segment, old, new)
    elif stored or added:
        contents = [partition.content() for partition in stored] + list(added)
        content = merge_contents(contents) if len(contents) > 1 else contents[0]
        write_partition(out, number, content, form.schemas(), form.layout)
    else:
        return
    numbers.append(number)


def _groups(stored: Iterable[StoredPartition], limit: int) -> Iterator[list[StoredPartition]]:
    """Group adjacent partitions that fit into memory together; a large partition is alone."""
    group: list[StoredPartition] = []
    held = 0
    for partition in stored:
        needed = _merge_bytes(partition)
        if group and held + needed > limit:
            yield group
            group, held = [], 0
        group.append(partition)
        held += needed
    if group:
        yield group


def _merge_bytes(partition: StoredPartition | PartitionContent) -> int:
    """Estimate the bytes of memory for merging a partition."""
    return _BYTES_PER_POSTING * partition.postings + _BYTES_PER_POSITION * partition.positions


def merge_contents(contents: Sequence[PartitionContent]) -> PartitionContent:
    """Merge several partitions into one, and number documents partition by partition."""
    tokens, numbers = _vocabulary([content.tokens for content in contents])
    sizes = np.zeros(len(tokens), np.int64)
    position_sizes = np.zeros(len(tokens), np.int64)
    with_position = contents[0].lists.positions is not None
    for content, of in zip(contents, numbers, strict=True):
        sizes[of] += np.diff(content.lists.starts)
        if with_position:
            position_sizes[of] += np.diff(content.lists.position_starts())
    starts = np.concatenate(([0], np.cumsum(sizes)))
    documents = np.empty(int(starts[-1]), np.uint32)
    frequencies = np.empty(int(starts[-1]), np.uint32)
    positions = np.empty(int(position_sizes.sum()), np.uint32) if with_position else None
    ends, position_ends = starts[:-1].copy(), np.cumsum(position_sizes) - position_sizes
    before = 0
    for content, of in zip(contents, numbers, strict=True):
        lists = content.lists
        for some, places in _places(ends, of, lists.starts):
            documents[places] = lists.documents[some] + np.uint32(before)
            frequencies[places] = lists.frequencies[some]
        before += len(content.rows)
        if positions is not None and lists.positions is not None:
            for some, places in _places(position_ends, of, lists.position_starts()):
                positions[places] = lists.positions[some]
    elements = [content.elements for content in contents if content.elements is not None]
    return PartitionContent(
        tokens,
        np.concatenate([content.rows for content in contents]),
        np.concatenate(elements) if elements else None,
        np.concatenate([content.lengths for content in contents]),
        Inversion(starts, documents, frequencies, positions),
    )


def _vocabulary(parts: Sequence[Any]) -> tuple[Any, list[Int64s]]:
    """Return the distinct tokens of all parts, ascending, and for each part their numbers."""
    encoded: Any = dictionary_encoded(pa.concat_arrays(parts))
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[as_numpy(order)] = np.arange(len(order))
    numbers = rank[as_numpy(encoded.indices)]
    bounds = np.cumsum([len(part) for part in parts])[:-1]
    return encoded.dictionary.take(order), np.split(numbers, bounds)


def _places(ends: Int64s, of: Int64s, starts: Int64s) -> Iterator[tuple[slice, Int64s]]:
    """Yield ranges of list items, and where to append them, some items at a time.

    Advances ``ends``, the append positions.
    """
    for first, last in batches(starts, _BATCH_TARGETS):
        sizes = np.diff(starts[first : last + 1])
        into = of[first:last]
        yield slice(int(starts[first]), int(starts[last])), spread(ends[into], sizes)
        ends[into] += sizes


def remap_partition(
    segment: Segment,
    number: int,
    layout: PostingLayout,
    address_map: AddressMap,
    out: SegmentWriter,
) -> None:
    """Write a partition with the live documents.

    Raises
    ------
    UnsupportedFeatureError
        A file has an unknown column.
    CorruptFileError
        A file is damaged.
    """
    partition = StoredPartition(segment, number, layout)
    stored, tokens, postings = partition.files
    documents = partition.document_rows()
    moved, kept = address_map.apply(as_numpy(documents["_rowid"]))
    if kept.all():
        # All documents are live: only the addresses of their rows changed.
        at = documents.schema.get_field_index("_rowid")
        documents = documents.set_column(at, documents.schema.field(at), number_array(moved))
        out.write(partition.names[0], documents, metadata=_total(partition.lengths))
        for name in partition.names[1:]:
            out.copy(segment, name)
        return
    lists = partition.lists()
    stays = kept[lists.documents]
    owners = np.repeat(np.arange(len(lists.starts) - 1), np.diff(lists.starts))
    counts = np.bincount(owners[stays], minlength=len(lists.starts) - 1)
    used = counts > 0
    positions = lists.positions
    left = Inversion(
        np.concatenate(([0], np.cumsum(counts[used]))),
        (np.cumsum(kept) - 1).astype(np.uint32)[lists.documents[stays]],
        lists.frequencies[stays],
        None if positions is None else positions[np.repeat(stays, lists.frequencies)],
    )
    names = partition.tokens().kept(used)
    elements = as_numpy(documents[ELEMENT])[kept] if partition.by_element else None
    content = PartitionContent(names.strings, moved[kept], elements, partition.lengths[kept], left)
    schemas = stored.schema, tokens.schema, postings.schema
    write_partition(out, number, content, schemas, layout, names.numbers)


# --- Collect the documents of a batch of rows: texts, rows and list elements ------------
# Specification: "Documents" in ``docs/format/text-indices.md``.

_JSON = b"lance.json"
_EXTENSION = b"ARROW:extension:name"


class CollectedDocuments(NamedTuple):
    """Texts to index.

    Parameters
    ----------
    texts
        Text of each document; a null counts as empty.
    rows
        Row of each document.
    elements
        Index of each document in the list of its row; ``None`` if documents are rows.
    """

    texts: pa.Array
    rows: RowNumbers
    elements: UInt32s | None


def check_column(field: pa.Field[Any], *, by_element: bool) -> bool:
    """Check that a column can be indexed; return whether it holds JSON.

    Raises
    ------
    OptionError
        Values have a type besides texts and lists of texts. Or documents are list elements
        but values are texts.
    UnsupportedFeatureError
        Values are lists of lists.
    """
    kind: Any = field.type
    is_json = (field.metadata or {}).get(_EXTENSION, b"").lower() in (_JSON, b"arrow.json")
    if _is_list(kind) and _is_list(kind.value_type):
        raise UnsupportedFeatureError(
            f"column {field.name!r}: lists of lists cannot be indexed; index a list of texts"
        )
    if by_element and not _is_list(kind):
        raise OptionError(
            f"document_granularity: column {field.name!r} of type {kind} has no list elements"
        )
    value = kind.value_type if _is_list(kind) else kind
    # An untrusted schema may declare any type as JSON.
    if not (is_text(value) or (is_json and is_binary(kind))):
        raise OptionError(
            f"INVERTED index column {field.name} must be text, lists of text, or JSON, but got "
            f"{kind}. Choose another kind of index, or cast the column to strings."
        )
    return is_json


def documents_of(batch: ValueBatch, *, by_element: bool) -> CollectedDocuments:
    """Return the documents of some rows: list elements, or the texts of a list joined by spaces.

    As in pylance, a null list or a null element is an empty text. An empty text has a token for
    the tokenizer ``raw`` only.
    """
    values: Any = batch.values
    if not _is_list(values.type):
        return CollectedDocuments(values, batch.rows, None)
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.large_list(values.type.value_type))
    parents = as_numpy(pc.list_parent_indices(values)).astype(np.int64)
    texts: Any = values.flatten().cast(pa.large_string())
    if by_element:
        before = np.searchsorted(parents, parents, side="left")
        elements = (np.arange(len(parents)) - before).astype(np.uint32)
        return CollectedDocuments(filled(texts, ""), batch.rows[parents], elements)
    if texts.null_count:
        valid = texts.is_valid()
        parents, texts = parents[as_numpy(valid)], texts.drop_null()
    return CollectedDocuments(_joined(texts, parents, len(values)), batch.rows, None)


def _joined(texts: Any, parents: Int64s, count: int) -> Any:
    """Join the texts of each row by spaces; skip empty texts at the start."""
    sizes: Any = as_numpy(pc.binary_length(texts))
    if not sizes.all():
        ends = np.cumsum(sizes)
        before = np.concatenate(([0], ends))[np.searchsorted(parents, parents, side="left")]
        begun = ends > before
        parents, texts = parents[begun], texts.filter(flag_array(begun))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=count))))
    list_type: Any = pa.LargeListArray
    lists = list_type.from_arrays(number_array(offsets), texts)
    return pc.binary_join(lists, scalar(" ", pa.large_string()))


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


# --- Collect tokens of documents until they fill a partition ----------------------------
# Specification: "Building" in ``docs/format/text-indices.md``.

_BYTES_PER_TOKEN = 20
"""Memory for a token: its number (twice while parts are joined), document and frequency."""

_BYTES_PER_COLLECTED_POSITION = 12
_BYTES_PER_DISTINCT = 100
"""Memory for a distinct token in addition to its text: indices, counts, trie."""

_BYTES_PER_DOCUMENT = 48


class Collector:
    """Collects the tokens of documents, for one partition.

    Parameters
    ----------
    tokenizer
        Tokenizes texts.
    form
        Whether to keep positions and documents without tokens.
    """

    def __init__(self, tokenizer: Tokenizer, form: TextFormat) -> None:
        self._numbers = tokenizer.numbers()
        self._form = form
        self._tokens: list[UInt32s] = []
        self._positions: list[UInt32s] = []
        self.lengths: list[Int64s] = []
        self._rows: list[RowNumbers] = []
        self._elements: list[UInt32s] = []
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory to make the partition."""
        distinct = self._numbers.count * _BYTES_PER_DISTINCT
        return self._bytes + distinct + self._numbers.nbytes

    @property
    def documents(self) -> int:
        """Number of documents."""
        return sum(map(len, self._rows))

    def add(self, documents: CollectedDocuments) -> None:
        """Add documents; skip documents without tokens, unless documents are list elements."""
        found = self._numbers.number(documents.texts)
        lengths, rows = found.counts, documents.rows
        if documents.elements is not None:
            self._elements.append(documents.elements)
        else:
            present = lengths > 0
            lengths, rows = lengths[present], rows[present]
        self._tokens.append(found.numbers)
        if self._form.params.with_position:
            self._positions.append(found.positions)
            self._bytes += _BYTES_PER_COLLECTED_POSITION * len(found.numbers)
        self.lengths.append(lengths)
        self._rows.append(rows)
        self._bytes += _BYTES_PER_TOKEN * len(found.numbers) + _BYTES_PER_DOCUMENT * len(rows)

    def content(self) -> PartitionContent:
        """Return the partition, and end the use of the collector."""
        names = self._numbers.strings
        order = pc.sort_indices(names)
        rank = np.empty(len(names), np.uint32)
        rank[as_numpy(order)] = np.arange(len(names), dtype=np.uint32)
        tokens = rank[_joined_texts(self._tokens, np.uint32)]
        self._tokens.clear()
        lengths = _joined_texts(self.lengths, np.int64)
        positions = None
        if self._form.params.with_position:
            positions = _joined_texts(self._positions, np.uint32)
            self._positions.clear()
        lists = invert_tokens(tokens, lengths, len(names), positions)
        rows = _joined_texts(self._rows, np.uint64)
        elements = _joined_texts(self._elements, np.uint32) if self._form.by_element else None
        return PartitionContent(names.take(order), rows, elements, lengths, lists)


def _joined_texts(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.zeros(0, dtype), *parts])


_IGNORED = "deleted_fragments"

_TEXT_BYTES = 4 << 20
"""Maximum bytes of text to tokenize at a time, unless one document is larger."""

_MEMORY_PER_TEXT_BYTE = 32
"""Memory limit divided by the text to tokenize at a time: tokens need more memory than text."""


def build_partitions(
    source: IndexSource, form: TextFormat, out: SegmentWriter, first: int = 0
) -> list[int]:
    """Write partitions with the rows of a source; return their numbers, beginning at ``first``."""
    numbers: list[int] = []
    for content in collect_partitions(source, form):
        numbers.append(first + len(numbers))
        write_partition(out, numbers[-1], content, form.schemas(), form.layout)
    return numbers


def collect_partitions(source: IndexSource, form: TextFormat) -> Iterator[PartitionContent]:
    """Yield the rows of a source as partitions.

    A new partition begins when the tokens take half the memory limit.
    """
    tokenizer = Tokenizer.of(form.params)
    collector = Collector(tokenizer, form)
    for part in _parts(source):
        if collector.nbytes > source.memory_limit // 2 and collector.documents:
            yield collector.content()
            collector = Collector(tokenizer, form)
        collector.add(documents_of(part, by_element=form.by_element))
    if collector.documents:
        yield collector.content()


def write_metadata(
    out: SegmentWriter, form: TextFormat, partitions: list[int], name: str = METADATA
) -> None:
    """Write the metadata of an index; the last file, because readers look for it."""
    schema = pa.schema([pa.field(_IGNORED, pa.binary(), nullable=False)])
    ignored = pa.table([constants([BitMap().serialize()], pa.binary())], schema=schema)
    out.write(name, ignored, metadata=form.metadata(partitions))


def _parts(source: IndexSource) -> Iterator[ValueBatch]:
    """Yield the rows of a source with little text at a time."""
    limit = max(1024, min(_TEXT_BYTES, source.memory_limit // _MEMORY_PER_TEXT_BYTE))
    for batch in source.batches():
        count = len(batch.values)
        step = max(1, count * limit // max(limit, batch.values.nbytes))
        for start in range(0, count, step):
            stop = min(count, start + step)
            yield ValueBatch(batch.values.slice(start, stop - start), batch.rows[start:stop])


# --- Segments of pylance up to 0.27: one partition, whose postings store rows of documents
# Specification: "Old segments" in ``docs/format/text-indices.md``.

_POSITION = "_position"
_COLUMNS = _ROW, _FREQUENCY = "_rowid", "_frequency"
_WITHOUT_PARAMETERS = '{"ascii_folding": false}'
"""Parameters of pylance 0.16 to 0.19, which omits them in the index."""


def legacy_format(segment: Segment, tokens: IndexFile) -> TextFormat:
    """Return the format for writing an old segment again, with its tokenizer parameters."""
    params = TextParams.from_json(
        tokens.metadata.get("tokenizer", _WITHOUT_PARAMETERS), tokens.path
    )
    stored = _POSITION in segment.open(partition_files(None)[2]).schema.names
    return TextFormat(replace(params, with_position=stored), 2)


class LegacyPartition(OpenedPartition):
    """The partition of an old segment; documents are numbered in the order of their rows."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment, None, PostingLayout(128, fixed_tail=True))

    @property
    def _list_count(self) -> int:
        return len(self._starts) - 1

    @property
    def _starts(self) -> Int64s:
        starts: Int64s = self._kept("starts", lambda: _starts_of(self._lists))
        return starts

    def _read_documents(self) -> Documents:
        rows, lengths, statistics = super()._read_documents()
        order = np.argsort(rows)
        return Documents(rows[order], lengths[order], statistics)

    def count(self, token: str) -> int:
        """Return the number of documents with a token; a document may have several postings."""
        found = self._kept(("count", token), lambda: np.int64(len(self.occurrences(token)[0])))
        return int(found)

    def _read_list(self, place: int) -> tuple[UInt32s, UInt32s]:
        return self._inverted(place, _COLUMNS)[1:3]

    def _read_positions(self, place: int, frequencies: UInt32s) -> tuple[Int64s, UInt32s]:
        self.check_positions()
        found: Any = self._inverted(place, (*_COLUMNS, _POSITION)).positions
        return np.concatenate(([0], np.cumsum(frequencies, dtype=np.int64))), found

    def _inverted(self, place: int, columns: tuple[str, ...]) -> Inversion:
        first, last = self._starts[place : place + 2].tolist()
        rows = self._lists.read(columns, first, last)
        owners = np.zeros(len(rows), np.int64)
        return _inverted(self._lists, rows, owners, 1, self.documents.rows)


def remap_legacy(
    segment: Segment, form: TextFormat, address_map: AddressMap, out: SegmentWriter
) -> BuiltSegment:
    """Write the live documents of an old segment in today's format; works in memory."""
    documents, tokens, postings = map(segment.open, partition_files(None))
    documents.check(_rowid=pa.uint64(), _num_tokens=pa.uint32())
    measured, _ = address_map.remap_rows(documents.read([_ROW, "_num_tokens"]), _ROW)
    lengths = numbers_of(documents, measured, "_num_tokens", pa.uint32())
    rows: RowNumbers = as_numpy(measured[_ROW])
    order = np.argsort(rows)
    rows, lengths = rows[order], lengths[order]
    starts = _starts_of(postings)
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    columns = (*_COLUMNS, _POSITION) if form.params.with_position else _COLUMNS
    postings.check(_rowid=pa.uint64())
    stored, kept = address_map.remap_rows(postings.read(columns), _ROW)
    lists = _inverted(postings, stored, owners[kept], len(starts) - 1, rows)
    # The stored length covers one list element; postings cover all elements.
    sums = np.bincount(lists.documents, lists.frequencies, len(rows)).astype(np.int64)
    lengths = np.maximum(lengths, sums)
    used = lists.starts[1:] > lists.starts[:-1]
    lists = lists._replace(starts=np.append(lists.starts[:-1][used], lists.starts[-1]))
    names = read_tokens(tokens, len(used)).kept(used)
    content = PartitionContent(names.strings, rows, None, lengths, reordered(lists, names.numbers))
    write_partition(out, 0, content, form.schemas(), form.layout)
    write_metadata(out, form, [0])
    return form.built()


def _starts_of(file: IndexFile) -> Int64s:
    """Read where the postings of each token begin among the rows of a file, and the end."""
    text = file.metadata.get("offsets", "")
    try:
        stored = np.array([*json.loads(text), file.num_rows])
        good = stored.dtype == np.int64 and stored[0] == 0 and bool((np.diff(stored) >= 0).all())
    except (ValueError, TypeError, RecursionError):
        good = False
    if not good:
        expected = f"ascending integers from 0 to {file.num_rows}"
        raise file.corrupt("'offsets' of an index", expected, text[:80])
    return stored


def _inverted(
    file: IndexFile, postings: pa.Table, owners: Int64s, lists: int, rows: RowNumbers
) -> Inversion:
    """Convert postings to lists of ascending documents.

    Each element of a list of texts has its own postings: join the postings of a row.

    Parameters
    ----------
    owners
        List number of each posting.
    lists
        Number of lists.
    rows
        Row of each document, ascending.
    """
    file.check(_rowid=pa.uint64(), _frequency=pa.float32())
    for column in postings.columns:
        file.check_present(column)
    stored, frequencies = as_numpy(postings[_ROW]), as_numpy(postings[_FREQUENCY])
    places = np.searchsorted(rows, stored)
    if len(stored) and (not len(rows) or (rows[np.minimum(places, len(rows) - 1)] != stored).any()):
        raise file.corrupt_column(_ROW, "rows of documents", "others")
    if not ((frequencies >= 1) & (frequencies < 1 << 31)).all():
        raise file.corrupt_column(_FREQUENCY, "numbers from 1 on", "others")
    counts = frequencies.astype(np.int64)
    keys, at = np.unique(owners * len(rows) + places, return_inverse=True)
    starts = np.searchsorted(keys, np.arange(lists + 1) * len(rows)).astype(np.int64)
    found = (keys % max(len(rows), 1)).astype(np.uint32)
    summed = np.bincount(at, counts, len(keys)).astype(np.uint32)
    if _POSITION not in postings.column_names:
        return Inversion(starts, found, summed, None)
    begins, values = lists_of(postings, _POSITION, file)
    if values.type != pa.int32() or values.null_count or (np.diff(begins) != counts).any():
        raise wrong_lists(file, _POSITION)
    positions = as_numpy(values).astype(np.uint32)
    order = np.lexsort((positions, np.repeat(at, counts)))
    return Inversion(starts, found, summed, positions[order])
