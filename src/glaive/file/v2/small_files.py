"""The same columns of many small files, opened as one file.

A file of a few rows costs more to open than to decode, because tables, footers and messages are
looked at one by one. Here all files of a batch lie in one buffer, and array operations check
footers and tables. Most files of a dataset share the metadata of a column byte by byte, so it
is parsed once. Neighbouring pages of equal signatures are a run.

Unusual files, and damaged files, are refused with :class:`BulkReadError`. The reader of single
files then reads them, and says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array
from glaive.arrow.build import offset_bits
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.pages.blob import BlobPage
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import (
    Fetch,
    Latest,
    PageBytes,
    PageParts,
    PageReader,
    PageSignature,
    and_then,
)
from glaive.encodings.registry import open_page
from glaive.file.protocol import BoundField, FormatProfile
from glaive.file.v2.columns import Column, Node, array_tree, column_tree
from glaive.file.v2.container import parse_page_layout
from glaive.file.v2.reader import FieldColumns, PagedColumns
from glaive.file.versions import PROFILES
from glaive.format.field import BLOB, Field
from glaive.format.footer import MAGIC, TRAILER, FileFooter, trailing_size
from glaive.format.pb import file2_pb2
from glaive.io.mapped import prefetch
from glaive.io.store import JoinedObjects, RangeReader
from glaive.io.wrapped import HeldReader
from glaive.types import ByteRange, Int64s, Where, as_array

if TYPE_CHECKING:
    from glaive.encodings.array_encodings import ArrayEncoding
    from glaive.encodings.predicate import PagePredicate
    from glaive.file.v2.arrays import ArrayColumn

MAX_BYTES = 64 * 1024
"""Bytes of a file that counts as small."""

_PROFILES = [profile for profile in PROFILES.values() if isinstance(profile, FormatProfile)]
_ARRAYS, _LAYOUTS = (
    frozenset(
        numbers
        for profile in _PROFILES
        if (profile.pages == "arrays") == are_arrays
        for numbers in profile.on_disk
    )
    for are_arrays in (True, False)
)
"""Versions in footers of files whose pages have array encodings, and of files with layouts."""

_WHERE = Where("small files")

_MAX_EXPANDED_BYTES = 256 * 1024 * 1024
"""Bytes that items of dictionaries may take in the values of one field, about."""

_KEPT_BYTES = 4096
"""Maximum bytes of the metadata of a column whose pages are kept: about one page per 100 bytes."""

_MAX_FILE_BYTES = 2**63 - 1
"""Of any file; sums of offset and size may be more than a number of 64 bits."""

_DICTIONARY = 2
"""Number of the buffer with the items of a page."""
_SIZE = 4

_PAIR = 16
_FOOTER = np.dtype(
    [
        ("metadata", "<u8"),
        ("table", "<u8"),
        ("globals", "<u8"),
        ("buffers", "<u4"),
        ("columns", "<u4"),
        ("version", "<u2", 2),
        ("magic", "S4"),
    ]
)
"""The footer of a file; see :mod:`glaive.format.footer`."""


class BulkReadError(Exception):
    """Files have to be read one by one; the message says why, in one of a few texts."""


def suits_bulk_reads(fields: Sequence[Field]) -> bool:
    """Return whether columns of these fields are read from many files at once."""
    members = [field for top in fields for field in top.walk()]
    return not any(field.is_packed or BLOB in field.metadata for field in members)


@dataclass(frozen=True, eq=False, slots=True)
class SmallPage:
    """The metadata of a page, independent of its file.

    ``end`` is where the last of its buffers ends. ``opened`` is the page without its bytes, and
    ``signature`` its own, ``None`` for a page that is to be read alone. ``dictionary`` tells where
    the items of a dictionary lie, whether they are compressed, and the values for each.
    """

    rows: int
    ranges: tuple[ByteRange, ...]
    end: int
    layout: Any
    opened: PageReader
    signature: PageSignature | None
    dictionary: tuple[int, int, bool, float]


class _FilePage(Protocol):
    """A page of a column of a file."""

    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        """Its buffers."""

    @property
    def end(self) -> int:
        """Where the last of its buffers ends."""


P = TypeVar("P", bound=_FilePage)
T = TypeVar("T")


def _file_pages(message: Any) -> list[tuple[Any, PageBytes, int]] | None:
    """Return the pages of a column; ``None`` unless it has some, with usual locations.

    Each comes with its buffers, and where the last of them ends.
    """
    pages = []
    for page in message.pages:
        offsets, sizes = page.buffer_offsets, page.buffer_sizes
        if len(offsets) != len(sizes) or page.encoding.WhichOneof("location") != "direct":
            return None
        ranges = tuple(map(ByteRange, offsets, sizes))
        end = max((part.end for part in ranges), default=0)
        if end > _MAX_FILE_BYTES:
            return None
        pages.append((page, PageBytes(ranges, None, page.length, _WHERE), end))
    return pages or None


@lru_cache(maxsize=4096)
def _kept(parse: Callable[..., T], raw: bytes, *kinds: pa.DataType) -> T:
    """Return and keep what ``parse`` makes of a message; a long one may have many pages."""
    return parse(raw, *kinds)


def _pages(raw: bytes) -> tuple[SmallPage, ...] | None:
    """Parse the metadata of a column; ``None`` unless its pages are of usual kinds."""
    pages = []
    for page, own, end in _file_pages(file2_pb2.ColumnMetadata.FromString(raw)) or ():
        layout = parse_page_layout(page.encoding.direct.encoding, _WHERE)
        opened = open_page(layout, own)
        if isinstance(opened, BlobPage):
            return None
        signature = opened.page_signature() if page.length else None
        dictionary = _dictionary(opened, own.ranges)
        pages.append(SmallPage(page.length, own.ranges, end, layout, opened, signature, dictionary))
    return tuple(pages) or None


def _dictionary(opened: PageReader, ranges: Sequence[ByteRange]) -> tuple[int, int, bool, float]:
    if not isinstance(opened, MiniBlockPage) or len(ranges) <= _DICTIONARY:
        return 0, 0, False, 0.0
    items, encoding = opened.num_dictionary_items, opened.layout.dictionary
    if not items or encoding is None:
        return 0, 0, False, 0.0
    start, size = ranges[_DICTIONARY]
    return start, size, encoding.wire_name == "general", opened.num_items / items


class SmallBatch:
    """Files back to back in one buffer, each from one of ``bases`` on.

    Parameters
    ----------
    files
        The bytes of all files.
    rows
        Rows of each, as the manifest says.
    verify
        Whether bytes are compared with checksums, where files have some.

    Raises
    ------
    BulkReadError
        A footer is damaged or of another format, or there are checksums to compare with.
    """

    def __init__(self, files: JoinedObjects, rows: Sequence[int], *, verify: bool) -> None:
        self.data, bases, sizes, self._counters = files
        if min(sizes) < FileFooter.SIZE:
            raise BulkReadError("a file is too short")
        ends = np.array(sizes) - FileFooter.SIZE
        data = as_array(self.data)
        at = (np.array(bases) + ends)[:, None] + np.arange(FileFooter.SIZE)
        footers: NDArray[Any] = data[at].view(_FOOTER)[:, 0]
        capacity, tables = ends.astype(np.uint64), footers["table"]
        # Each is bounded by itself before they are added up.
        sound = (
            (footers["magic"] == MAGIC)
            & (footers["metadata"] <= tables)
            & (tables <= capacity)
            & (footers["globals"] <= capacity)
            & (tables + footers["columns"] * np.uint64(_PAIR) <= capacity)
            & (footers["globals"] + footers["buffers"] * np.uint64(_PAIR) <= capacity)
        )
        versions = set(map(tuple, footers["version"].tolist()))
        self.has_arrays = versions <= _ARRAYS
        if not sound.all() or not (self.has_arrays or versions <= _LAYOUTS):
            raise BulkReadError("a footer is damaged or of another format")
        self.bases, self.rows, self.footers = np.array(bases), np.array(rows), footers
        if verify and (bool((footers["buffers"] > 1).any()) or self._has_checksums()):
            raise BulkReadError("files are compared with their checksums")

    def _has_checksums(self) -> bool:
        """Return whether checksums end where the metadata of some file begins."""
        starts = footers = self.footers["metadata"].astype(np.int64)
        ends = (self.bases + starts)[footers >= TRAILER].tolist()
        before = (self.data.slice(end - TRAILER, TRAILER).to_pybytes() for end in ends)
        return any(trailing_size(one) is not None for one in before)

    def bind(self, fields: Sequence[Field], column_of: Mapping[int, int]) -> PagedColumns:
        """Return the columns of all files as columns of one file, whose rows are theirs in order.

        Parameters
        ----------
        fields, column_of
            As for :meth:`glaive.file.protocol.FileReader.bind`; all columns must exist.

        Raises
        ------
        BulkReadError
            The files must be read one by one: a column has several pages, or values that are far
            larger than their stored bytes.
        """
        reader, rows = HeldReader(_WHERE.path, self.data), int(self.rows.sum())
        if not fields and not self.has_arrays:  # checks the row count if all columns are absent
            first = min((one for one in column_of.values() if one >= 0), default=None)
            self._layout_pages(first, 1)
        if self.has_arrays:
            return PagedColumns(_SmallArrays(self, reader).bind(fields, column_of), rows, reader)
        columns: list[BoundField] = []
        for field in fields:
            node = column_tree(field, column_of)
            leaves = [
                self._layout_pages(leaf.column, leaf.entries_per_row) for leaf in node.leaves()
            ]
            self._check_capacity(leaves)
            order = _order([_file_codes(*leaf) for leaf in leaves])
            parts = [
                self._column(*found, order).grouped(leaf.entries_per_row)
                for leaf, found in zip(node.leaves(), leaves, strict=True)
            ]
            whole = FieldColumns(node, parts, rows, reader)
            columns.append(whole if order is None else OtherOrder(whole, self.rows, order))
        return PagedColumns(columns, rows, reader)

    def _column(
        self, pages: list[SmallPage], which: Int64s, files: Int64s, order: Int64s | None
    ) -> Column:
        """Return a column of runs of neighbouring pages, and of pages that are read alone."""
        if order is not None:
            moved = np.argsort(np.argsort(order)[files], kind="stable")
            which, files = which[moved], files[moved]
        code = _codes(pages)[which]
        cuts = [0, *(((np.diff(code) != 0) | (code[1:] < 0)).nonzero()[0] + 1).tolist(), len(code)]
        runs = [
            self._run(pages, which[first:stop], files[first:stop]) for first, stop in pairwise(cuts)
        ]
        return Column(runs, _WHERE)

    def _run(self, pages: list[SmallPage], which: Int64s, files: Int64s) -> PageReader:
        """Return pages, each of one of ``files``, as one page."""
        page = pages[which[0]]
        if page.signature is None or len(files) == 1:
            base = int(self.bases[files[0]])
            buffers = [self.data.slice(base + start, size) for start, size in page.ranges]
            return open_page(page.layout, PageBytes(page.ranges, buffers, page.rows, _WHERE))
        distinct, number = np.unique(which, return_inverse=True)
        own = [pages[at] for at in distinct.tolist()]
        ranges = np.array([one.ranges for one in own], np.int64).reshape(len(own), -1, 2)[number]
        starts, sizes = ranges[:, :, 0] + self.bases[files, None], ranges[:, :, 1]
        opened = [one.opened for one in own]
        parts = PageParts(opened, number, self.data, starts, sizes, _WHERE, partial(_where, files))
        joined: PageReader = page.signature.join(parts)
        return joined

    def _layout_pages(
        self, column: int | None, entries: int
    ) -> tuple[list[SmallPage], Int64s, Int64s]:
        """Return pages with layouts that have so many ``entries`` for each row of their files."""
        pages, which, files = self.pages(column, _pages)
        rows = self.sums(files, [page.rows for page in pages], which)
        if not bool((rows == self.rows * entries).all()):
            raise BulkReadError("a column has other rows than its file")
        return pages, which, files

    def sums(self, files: Int64s, values: Sequence[int], which: Int64s) -> NDArray[np.float64]:
        """Sum up a value of the pages of each file; sums of damaged pages do not overflow."""
        total = np.zeros(len(self.rows))
        np.add.at(total, files, np.array(values, np.float64)[which])
        return total

    def pages(
        self, column: int | None, parse: Callable[..., tuple[P, ...] | None], *kinds: pa.DataType
    ) -> tuple[list[P], Int64s, Int64s]:
        """Return the distinct pages of a column, and, for each page, which it is and its file.

        ``parse`` makes pages of the metadata of a column and its ``kinds``, ``None`` if one is
        unusual. Missing bytes of mapped files are read ahead.
        """
        footers, bases = self.footers, self.bases
        if column is None or not bool((footers["columns"] > column).all()):
            raise BulkReadError("a file lacks a column")
        limit = footers["table"]
        at = bases + limit.astype(np.int64) + _PAIR * column
        pairs = as_array(self.data)[at[:, None] + np.arange(_PAIR)].view("<u8")
        starts, sizes = pairs[:, 0], pairs[:, 1]
        if not bool(((starts <= limit) & (sizes <= limit) & (starts <= limit - sizes)).all()):
            raise BulkReadError("a footer is damaged or of another format")
        begin = bases + starts.astype(np.int64)
        end = (begin + sizes.astype(np.int64)).tolist()
        raw = memoryview(self.data)
        number: dict[tuple[P, ...] | None, int] = {}
        which = []
        for a, b in zip(begin.tolist(), end, strict=True):
            one = bytes(raw[a:b])
            own = _kept(parse, one, *kinds) if b - a <= _KEPT_BYTES else parse(one, *kinds)
            which.append(number.setdefault(own, len(number)))
        pages = [page for made in number for page in made or ()]
        if None in number:
            raise BulkReadError("a column has no page, or one of an unusual kind")
        counts = np.array([len(made or ()) for made in number])
        firsts, counts = (counts.cumsum() - counts)[which], counts[which]
        files = np.arange(len(which)).repeat(counts)
        page_of = np.arange(len(files)) + (firsts - counts.cumsum() + counts)[files]
        ends = np.array([page.end for page in pages], np.uint64)[page_of]
        if not bool((ends <= footers["metadata"][files]).all()):
            raise BulkReadError("a page is beyond its file")
        if self._counters is not None:
            first = [min((part.offset for part in page.ranges), default=page.end) for page in pages]
            starts = np.array(first, np.int64)[page_of]
            sizes = ends.astype(np.int64) - starts
            self._counters.add_read(len(sizes), int(sizes.sum()))
            prefetch(np.stack([self.data.address + bases[files] + starts, sizes], axis=1))
        return pages, page_of, files

    def _check_capacity(self, leaves: Sequence[tuple[list[SmallPage], Int64s, Int64s]]) -> None:
        """Check that values, each with an item of its own, take a reasonable amount of memory."""
        total = 0.0
        for pages, which, files in leaves:
            kept = np.array([page.dictionary for page in pages], np.float64)[which]
            starts, sizes, times = kept[:, 0].astype(np.int64), kept[:, 1], kept[:, 3]
            packed = ((kept[:, 2] > 0) & (sizes >= _SIZE)).nonzero()[0]
            # Whatever the scheme, the size before it was applied comes first.
            at = self.bases[files[packed]] + starts[packed]
            words = as_array(self.data)[at[:, None] + np.arange(_SIZE)].view("<u4")
            sizes[packed] = words[:, 0]
            total += float((sizes * times).sum())
        if total > _MAX_EXPANDED_BYTES:
            raise BulkReadError("values are far larger than their dictionaries")


def _where(files: Int64s, page: int) -> Where:
    """Return the place of one of the pages of some files, for messages."""
    return replace(_WHERE, note=f"file {files[page]}")


def _codes(pages: Sequence[SmallPage]) -> Int64s:
    """Number the signatures of pages; pages that are read alone have negative numbers."""
    numbers: dict[PageSignature, int] = {}
    codes = [
        -1 - at if page.signature is None else numbers.setdefault(page.signature, len(numbers))
        for at, page in enumerate(pages)
    ]
    return np.array(codes, np.int64)


def _file_codes(pages: Sequence[SmallPage], which: Int64s, files: Int64s) -> Int64s:
    """Number the signatures of the pages of each file, in their order."""
    codes = _codes(pages)[which]
    if bool((np.diff(files) > 0).all()):
        return codes
    numbers: dict[bytes, int] = {}
    own = np.split(codes, np.diff(files).nonzero()[0] + 1)
    return np.array([numbers.setdefault(code.tobytes(), len(numbers)) for code in own])


# --- Files whose encodings alternate: another order has fewer runs ----------------------

_FEWER = 2
"""Files are joined in another order if that divides the runs by so much."""


def _order(codes: Sequence[Int64s]) -> Int64s | None:
    """Return an order of the files with far fewer runs, or ``None`` if theirs has few.

    ``codes`` number the encodings of the files, for each leaf.
    """
    runs = max((int(np.count_nonzero(np.diff(code))) + 1 for code in codes), default=1)
    kinds, number = np.unique(np.stack(codes), axis=1, return_inverse=True)
    if runs < _FEWER * kinds.shape[1]:
        return None
    return np.argsort(number.reshape(-1), kind="stable")


class OtherOrder(BoundField):
    """A field of files that are joined in another order, with the rows in the order of the files.

    Parameters
    ----------
    column
        The field of the joined files.
    rows
        Rows of each file.
    order
        The files in the order of the joined field.
    """

    __slots__ = ("_column", "_ends", "_moves")

    def __init__(self, column: FieldColumns, rows: Int64s, order: Int64s) -> None:
        super().__init__(column.field, column.num_rows, column.reader, _WHERE)
        self._column, self._ends = column, np.cumsum(rows)
        self._moves = rows - self._ends
        self._moves[order] += rows[order].cumsum() - rows[order]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held; an estimate."""
        return self._column.nbytes + self._ends.nbytes + self._moves.nbytes

    def cuts(self) -> Int64s:
        """Return both ends: a read of some rows takes them."""
        return np.array([0, self.num_rows], np.int64)

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Return ``read`` as a value."""
        self._check_range(start, stop)
        rows = np.arange(start, stop)
        if len(rows) < self.num_rows:
            return self.plan_take(rows)
        moved = number_array(self._moved(rows))
        return and_then(self._column.plan_read(start, stop), lambda array: array.take(moved))

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Return ``take`` as a value."""
        return self._column.plan_take(self._moved(rows))

    def _moved(self, rows: Int64s) -> Int64s:
        """Return the numbers of rows in the joined files."""
        return rows + self._moves[self._ends.searchsorted(rows, "right")]

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        return None


# --- Format 2.0: each physical column has the pages of all files ------------------------


class _SmallArray(NamedTuple):
    """A page of a column in a file, independent of the file."""

    rows: int
    ranges: tuple[ByteRange, ...]
    end: int
    encoding: ArrayEncoding


def _arrays(raw: bytes, kind: pa.DataType) -> tuple[_SmallArray, ...] | None:
    """Parse the metadata of a column; ``None`` unless its pages are of usual kinds."""
    from glaive.encodings.array_encodings import read_array
    from glaive.file.v2.arrays import holds_blobs, parse_array_encoding

    message = file2_pb2.ColumnMetadata.FromString(raw)
    if message.encoding.WhichOneof("location") != "direct":
        return None
    if holds_blobs(message.encoding.direct.encoding, _WHERE):
        return None
    pages = []
    for page, own, end in _file_pages(message) or ():
        parsed = parse_array_encoding(page.encoding.direct.encoding, _WHERE)
        encoding = read_array(parsed, kind, own.rows, own, top=True)
        if encoding.structural and offset_bits(kind) is not None:  # text of Lance before 0.14
            return None
        pages.append(_SmallArray(own.rows, own.ranges, end, encoding))
    return tuple(pages) or None


class _SmallArrays:
    """Fields of small files of format 2.0: a physical column has the pages of all files."""

    def __init__(self, batch: SmallBatch, reader: RangeReader) -> None:
        self._batch, self._reader = batch, reader
        self._rows: dict[int, NDArray[np.float64]] = {}
        self._items: dict[int, NDArray[np.float64]] = {}

    def bind(self, fields: Sequence[Field], column_of: Mapping[int, int]) -> list[BoundField]:
        """See :meth:`SmallBatch.bind`."""
        from glaive.file.v2.arrays import ArrayField, ArrayNodes

        rows = int(self._batch.rows.sum())
        nodes = ArrayNodes(_WHERE.path, self._column, lambda _: None)
        bound: list[BoundField] = []
        for field in fields:
            node = array_tree(field, column_of)
            reader = nodes.read(node, rows)
            self._check(node, self._batch.rows)
            bound.append(ArrayField(field.to_arrow(), reader, rows, self._reader))
        return bound

    def _column(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        from glaive.encodings.array_encodings import Source
        from glaive.file.v2.arrays import ArrayColumn, ArrayPage

        data, latest = self._batch.data, Latest()
        pages, which, files = self._batch.pages(index, _arrays, kind)
        own = [pages[at] for at in which.tolist()]
        items = [getattr(page.encoding, "num_items", 0) for page in pages]
        self._rows[index] = self._batch.sums(files, [page.rows for page in pages], which)
        self._items[index] = self._batch.sums(files, items, which)
        opened = []
        for page, base in zip(own, self._batch.bases[files].tolist(), strict=True):
            buffers = [data.slice(base + start, size) for start, size in page.ranges]
            held = PageBytes(page.ranges, buffers, page.rows, _WHERE)
            opened.append(ArrayPage(page.encoding, Source(held, latest)))
        return ArrayColumn(opened, _WHERE, data.size)

    def _check(self, node: Node, rows: NDArray[Any]) -> None:
        """Check that in each file a field has the rows that the file, or its lists, have."""
        if node.column is not None and bool((self._rows.get(node.column, rows) != rows).any()):
            raise BulkReadError("a page has other rows than its file")
        below = rows if node.kind != "list" or node.column is None else self._items[node.column]
        for child in node.children:
            self._check(child, below)
