"""The same columns of many small files, read as one.

A file of a few rows costs more to open than to decode: tables, footers and messages are
looked at one by one. Here all files of a batch lie in one buffer. Footers and tables are
checked with array operations; the metadata of a column, which most files of a dataset have
in common byte by byte, is parsed once; and pages with equal signatures are read as one.

Whatever is out of the ordinary is refused with :class:`BulkReadError`, and left to the reader
of single files, as is damage: it says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import integer_array, inverse_permutation
from glaive.arrow.chunked import concat_arrays, has_dictionary
from glaive.dataclass import dataclass
from glaive.encodings.levels import Leaf
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import Fetch, PageBytes, PageParts, PageReader, PageSignature
from glaive.encodings.registry import open_page
from glaive.errors import CorruptFileError
from glaive.file.v2.columns import Node, column_tree
from glaive.file.v2.container import parse_page_layout
from glaive.file.v2.unshred import unshred, unshred_flat
from glaive.file.versions import PROFILES
from glaive.format.field import BLOB, Field
from glaive.format.footer import MAGIC, TRAILER, FileChecksums, FileFooter, trailing_size
from glaive.format.pb import encodings21_pb2, file2_pb2
from glaive.io.checksums import Expected, check
from glaive.io.pool import gather
from glaive.io.store import JoinedObjects
from glaive.memory import as_array
from glaive.types import ByteRange, Int64s, Where

# --- Which files are small, and which of their columns are read from many of them at once
# Takes ask this; what reads them, :mod:`glaive.file.v2.small_files`, is loaded where there are
# any.

MAX_BYTES = 64 * 1024
"""Bytes of a file that counts as small."""

_PROFILES = [
    profile for profile in PROFILES.values() if getattr(profile, "pages", None) == "layouts"
]
BULK_VERSIONS = frozenset(profile.version for profile in _PROFILES)
"""Format versions of files that are read in bulk: those whose pages have layouts."""

FOOTER_VERSIONS = frozenset(numbers for profile in _PROFILES for numbers in profile.on_disk)
"""The same as footers have them."""


class BulkReadError(Exception):
    """Files have to be read one by one; the message says why, in one of few ways."""


def suits_bulk_reads(fields: Sequence[Field]) -> bool:
    """Whether columns of these fields are read from many files at once."""
    return not any(
        field.is_packed or BLOB in field.metadata or _is_list_of_fixed(field)
        for top in fields
        for field in top.walk()
    )


def _is_list_of_fixed(field: Field) -> bool:
    """Whether a field is a fixed-size list whose items are no plain values."""
    return bool(field.children) and field.logical_type.startswith("fixed_size_list")


# --- Checksums of many small files in one buffer, compared where they came over a network
# A step per file and buffer: each was fetched with a request of its own, which costs far more.

_WHERE = Where("small files")


class _Page(Protocol):
    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        """The buffers of the page."""


def small_checksums(
    data: pa.Buffer, bases: Int64s, sizes: Sequence[int], footers: Any
) -> list[FileChecksums | None]:
    """The checksums of files of some ``sizes`` that begin at ``bases``; None where there are none.

    Raises
    ------
    BulkReadError
        Those of the metadata differ, or there may be some that are damaged.
    """
    found: list[FileChecksums | None] = []
    parts = (footers[part].tolist() for part in ("metadata", "columns", "buffers"))
    for base, whole, start, count, buffers in zip(bases.tolist(), sizes, *parts, strict=True):
        at = base + start
        before = data.slice(at - TRAILER, TRAILER).to_pybytes() if start >= TRAILER else b""
        size = trailing_size(before)
        if size is None or size > start:
            if buffers > 1:  # the schema is one of them, and perhaps damaged checksums are
                raise BulkReadError("a file has more than a schema and pages")
            found.append(None)
            continue
        try:
            checksums = FileChecksums.parse(data.slice(at - size, size), count, where=_WHERE.path)
            if checksums is not None:
                metadata = data.slice(at, whole - start)
                check(Expected(checksums.metadata, "metadata of a file", _WHERE), metadata)
        except CorruptFileError as damage:
            raise BulkReadError("a checksum differs") from damage
        found.append(checksums)
    return found


def compare_pages(
    data: pa.Buffer,
    bases: Int64s,
    checksums: Sequence[FileChecksums | None],
    column: int,
    pages: Sequence[_Page],
    which: Sequence[int],
) -> None:
    """Compare the buffers of a column, which has one page in each file.

    Raises
    ------
    BulkReadError
        Some differ.
    """
    for base, own, number in zip(bases.tolist(), checksums, which, strict=True):
        if own is None:
            continue
        ranges, expected = pages[number].ranges, own.of_column(column)
        if len(expected) != len(ranges):
            raise BulkReadError("a checksum differs")
        try:
            for (offset, size), checksum in zip(ranges, expected, strict=True):
                buffer = data.slice(base + offset, size)
                check(Expected(checksum, "page buffer", _WHERE), buffer)
        except CorruptFileError as damage:
            raise BulkReadError("a checksum differs") from damage


_MOST_EXPANDED = 256 * 1024 * 1024
"""Bytes that items of dictionaries may take in the values of one column, about."""

_MOST_BYTES = 2**63 - 1
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


def read_small_files(
    batch: SmallBatch,
    fields: Sequence[Field],
    column_of: Mapping[int, int],
    *,
    keep_dictionaries: bool = False,
) -> list[list[pa.Array]]:
    """Read whole columns of files that have the same columns.

    Parameters
    ----------
    fields, column_of
        As for :meth:`glaive.file.protocol.FileReader.bind`; no column may be missing.
    keep_dictionaries
        Whether text keeps the dictionaries of its pages, joined to one; see
        :mod:`glaive.file.v2.dictionary_passthrough`.

    Returns
    -------
    list of lists of arrays
        Chunks per field, in the order of the files.

    Raises
    ------
    BulkReadError
        The files must be read one by one: a column has several pages, or values that are far
        larger than what is stored.
    """
    if not fields:  # nothing to be read, but rows to be relied on
        columns = (column for column in column_of.values() if column >= 0)
        batch.pages(min(columns, default=None))
    nodes = [column_tree(field, column_of) for field in fields]
    return gather(partial(batch.read, keep_dictionaries=keep_dictionaries), nodes)


@dataclass(frozen=True, eq=False, slots=True)
class SmallPage:
    """What the metadata of a column with one page says, whatever file it is in.

    ``end`` is where the last of its buffers ends; ``opened`` is the page without its bytes,
    and ``signature`` its own, None for a page that is to be read alone. ``dictionary`` tells
    where the items of a dictionary lie, whether they are compressed, and the values for each.
    """

    rows: int
    ranges: tuple[ByteRange, ...]
    end: int
    layout: Any
    opened: PageReader
    signature: PageSignature | None
    dictionary: tuple[int, int, bool, float]

    @property
    def items(self) -> int:
        """Items of the dictionary."""
        return self.opened.num_dictionary_items if isinstance(self.opened, MiniBlockPage) else 0


@lru_cache(maxsize=4096)
def _page(raw: bytes) -> SmallPage | None:
    """Parse the metadata of a column; None unless it has one page, of a usual kind."""
    message = file2_pb2.ColumnMetadata.FromString(raw)
    if len(message.pages) != 1:
        return None
    page = message.pages[0]
    offsets, sizes = page.buffer_offsets, page.buffer_sizes
    encoding = page.encoding
    if len(offsets) != len(sizes) or encoding.WhichOneof("location") != "direct":
        return None
    ranges = tuple(map(ByteRange, offsets, sizes))
    end = max((part.end for part in ranges), default=0)
    if end > _MOST_BYTES:
        return None
    layout = parse_page_layout(encoding.direct.encoding, _WHERE)
    if not isinstance(layout, encodings21_pb2.PageLayout) or layout.HasField("blob_layout"):
        return None
    opened = open_page(layout, PageBytes(ranges, None, page.length, _WHERE))
    signature = opened.page_signature() if page.length else None
    dictionary = _dictionary(opened, layout, ranges)
    return SmallPage(page.length, ranges, end, layout, opened, signature, dictionary)


def _dictionary(
    opened: PageReader, layout: Any, ranges: Sequence[ByteRange]
) -> tuple[int, int, bool, float]:
    items = opened.num_dictionary_items if isinstance(opened, MiniBlockPage) else 0
    if not items or len(ranges) <= _DICTIONARY:
        return 0, 0, False, 0.0
    message, (start, size) = layout.mini_block_layout, ranges[_DICTIONARY]
    return start, size, message.dictionary.HasField("general"), message.num_items / items


@dataclass(slots=True)
class SmallBatch:
    """Files back to back in one buffer, each from one of ``bases`` on."""

    data: pa.Buffer
    bases: Int64s
    rows: Int64s
    footers: NDArray[Any]
    checksums: list[FileChecksums | None] = field(default_factory=list)

    @classmethod
    def of(cls, files: JoinedObjects, rows: Sequence[int]) -> SmallBatch:
        """Check the footers of files, which have so many rows each, as the manifest says.

        Raises
        ------
        BulkReadError
            A footer is damaged, or that of another format.
        """
        raw, bases, sizes = files
        if min(sizes) < FileFooter.SIZE:
            raise BulkReadError("a file is too short")
        ends = np.array(sizes) - FileFooter.SIZE
        data = as_array(raw)
        at = (np.array(bases) + ends)[:, None] + np.arange(FileFooter.SIZE)
        footers = data[at].view(_FOOTER)[:, 0]
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
        versions = {(major, minor) for major, minor in np.unique(footers["version"], axis=0)}
        if not sound.all() or not versions <= FOOTER_VERSIONS:
            raise BulkReadError("a footer is damaged or of another format")
        return cls(raw, np.array(bases), np.array(rows), footers)

    def expect_checksums(self, sizes: Sequence[int]) -> None:
        """Compare metadata with their checksums now, and pages when they are looked up.

        Raises
        ------
        BulkReadError
            Some differ.
        """
        self.checksums = small_checksums(self.data, self.bases, sizes, self.footers)

    def read(self, node: Node, *, keep_dictionaries: bool = False) -> list[pa.Array]:
        """A top-level field of all files; ``keep_dictionaries`` as for :func:`read_small_files`."""
        if not node.children:
            return self._flat(node, keep_dictionaries=keep_dictionaries)
        leaves = [self.column(leaf) for leaf in node.leaves()]
        self._check_capacity(leaves)
        values = []
        for at, rows in enumerate(self.rows.tolist()):
            alone = [self.alone(at, pages[which[at]]) for pages, which in leaves]
            values.append(unshred(node, alone, rows, _WHERE))
        return values

    def _flat(self, node: Node, *, keep_dictionaries: bool) -> list[pa.Array]:
        """A field without lists and structs: runs of pages, then those that are read alone."""
        from glaive.file.v2.dictionary_passthrough import can_pass_through, dictionary_array

        pages, which = self.column(node)
        # The items of dictionaries stay apart where they are part of the result.
        runs, alone = self.runs(pages, which, apart=has_dictionary(node.type))
        all_of_it = len(runs) == 1 and not len(alone)
        if not (keep_dictionaries and can_pass_through(node.type) and all_of_it):
            self._check_capacity([(pages, which)])
        values: list[Any] = [None] * len(which)
        for files, run in runs:
            leaf = at_hand(run.read(0, run.rows))
            array = (
                dictionary_array(node, leaf, _WHERE) if keep_dictionaries and all_of_it else None
            )
            if array is None:
                array = unshred_flat(node, leaf, _WHERE)
            if all_of_it:
                return [array]
            counts = self.rows[files]
            firsts = (np.cumsum(counts) - counts).tolist()
            for at, first, count in zip(files.tolist(), firsts, counts.tolist(), strict=True):
                values[at] = array.slice(first, count)
        for at in alone.tolist():
            values[at] = unshred_flat(node, self.alone(at, pages[which[at]]), _WHERE)
        return values

    def runs(
        self, pages: Sequence[SmallPage], which: Int64s, *, apart: bool = False
    ) -> tuple[list[tuple[Int64s, PageReader]], Int64s]:
        """Read pages with equal signatures as one.

        Parameters
        ----------
        pages, which
            As :meth:`pages` gives them.
        apart
            Whether pages with dictionaries are to be read alone.

        Returns
        -------
        runs, alone
            The files of each run, ascending, and a reader of their rows; and the files whose
            pages are to be read alone.
        """
        numbers: dict[PageSignature, int] = {}
        code = np.full(len(pages), -1)
        for at, page in enumerate(pages):
            if page.signature is not None and not (apart and page.items):
                code[at] = numbers.setdefault(page.signature, len(numbers))
        runs = []
        for signature, number in numbers.items():
            distinct = np.flatnonzero(code == number)
            files = np.flatnonzero(code[which] == number)
            own = [pages[at] for at in distinct.tolist()]
            mine = distinct.searchsorted(which[files])
            ranges = np.array([page.ranges for page in own], np.int64)[mine]
            parts = PageParts(
                [page.opened for page in own],
                mine,
                self.data,
                ranges[:, :, 0] + self.bases[files][:, None],
                ranges[:, :, 1],
                _WHERE,
                partial(_where, files),
            )
            runs.append((files, signature.join(parts)))
        return runs, np.flatnonzero(code[which] < 0)

    def column(self, leaf: Node) -> tuple[list[SmallPage], Int64s]:
        """The pages of a leaf's column; see :meth:`pages`."""
        if leaf.entries_per_row != 1:
            raise BulkReadError("a column has several entries per row")
        return self.pages(leaf.column)

    def pages(self, column: int | None) -> tuple[list[SmallPage], Int64s]:
        """The pages of a column without repetitions, and which of them each file has.

        They have the rows of their files.
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
        number: dict[SmallPage | None, int] = {}
        which = [
            number.setdefault(_page(bytes(raw[a:b])), len(number))
            for a, b in zip(begin.tolist(), end, strict=True)
        ]
        pages = [page for page in number if page is not None]
        if len(pages) < len(number):
            raise BulkReadError("a column has several pages, or one of an unusual kind")
        page_of = np.array(which)
        ends = np.array([page.end for page in pages], np.uint64)[page_of]
        rows = np.array([page.rows for page in pages], np.uint64)[page_of]
        if not bool(((ends <= footers["metadata"]) & (rows == self.rows)).all()):
            raise BulkReadError("a page is beyond its file, or has other rows")
        if self.checksums:
            compare_pages(self.data, self.bases, self.checksums, column, pages, which)
        return pages, page_of

    def _check_capacity(self, leaves: Sequence[tuple[list[SmallPage], Int64s]]) -> None:
        """Make sure that values, each with an item of its own, do not take far too much memory."""
        total = 0.0
        for pages, which in leaves:
            kept = np.array([page.dictionary for page in pages], np.float64)[which]
            starts, sizes, times = kept[:, 0].astype(np.int64), kept[:, 1], kept[:, 3]
            packed = np.flatnonzero((kept[:, 2] > 0) & (sizes >= _SIZE))
            # Whatever the scheme, the size before it was applied comes first.
            at = self.bases[packed] + starts[packed]
            words = as_array(self.data)[at[:, None] + np.arange(_SIZE)].view("<u4")
            sizes[packed] = words[:, 0]
            total += float((sizes * times).sum())
        if total > _MOST_EXPANDED:
            raise BulkReadError("values are far larger than their dictionaries")

    def alone(self, at: int, page: SmallPage, rows: Int64s | None = None) -> Leaf:
        """Read the page of one file: all of it, or the rows at some positions."""
        base = int(self.bases[at])
        buffers = [self.data.slice(base + start, size) for start, size in page.ranges]
        opened = open_page(page.layout, PageBytes(page.ranges, buffers, page.rows, _WHERE))
        return at_hand(opened.read(0, page.rows) if rows is None else opened.take(rows))


def at_hand(step: Fetch[Leaf] | Leaf) -> Leaf:
    """What a page says, all of whose bytes are in memory."""
    if isinstance(step, Fetch):
        raise BulkReadError("a page needs further reads")
    return step


def _where(files: Int64s, page: int) -> Where:
    """The place of one of the pages of some files, for messages."""
    return replace(_WHERE, note=f"file {files[page]}")


# --- Take rows of many small files at once; see :mod:`glaive.file.v2.small_files` -------


def take_small_files(
    batch: SmallBatch,
    fields: Sequence[Field],
    column_of: Mapping[int, int],
    file: Int64s,
    row: Int64s,
) -> list[pa.Array]:
    """Row ``row[i]`` of file number ``file[i]`` for every i, in any order; one array per field.

    Every file must have at least one requested row. The other parameters and the errors are
    those of :func:`read_small_files`.
    """
    return [_take(batch, column_tree(field, column_of), file, row) for field in fields]


def _take(batch: SmallBatch, node: Node, file: Int64s, row: Int64s) -> pa.Array:
    """A top-level field."""
    if not node.children:
        return _flat(batch, node, file, row)
    leaves = [batch.column(leaf) for leaf in node.leaves()]
    done = []
    for at, some in _by_file(file, np.arange(len(file))):
        alone = [batch.alone(at, pages[which[at]], row[some]) for pages, which in leaves]
        done.append((some, unshred(node, alone, len(some), _WHERE)))
    return _in_order(done)


def _flat(batch: SmallBatch, node: Node, file: Int64s, row: Int64s) -> pa.Array:
    """A field without lists and structs: runs of joined pages, then pages that are read alone."""
    pages, which = batch.column(node)
    runs, alone = batch.runs(pages, which)
    done: list[tuple[Int64s, pa.Array]] = []
    for files, run in runs:
        counts, first_row = batch.rows[files], np.full(len(which), -1)
        first_row[files] = np.cumsum(counts) - counts
        chosen = np.flatnonzero(first_row[file] >= 0)
        leaf = at_hand(run.take(first_row[file[chosen]] + row[chosen]))
        done.append((chosen, unshred_flat(node, leaf, _WHERE)))
    for at, positions in _by_file(file, np.flatnonzero(np.isin(file, alone))):
        leaf = batch.alone(at, pages[which[at]], row[positions])
        done.append((positions, unshred_flat(node, leaf, _WHERE)))
    return _in_order(done)


def _by_file(file: Int64s, chosen: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Each file among the chosen rows, with the positions of its rows."""
    order = chosen[np.argsort(file[chosen], kind="stable")]
    numbers = file[order]
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    for some in np.split(order, cuts):
        if len(some):
            yield int(file[some[0]]), some


def _in_order(done: list[tuple[Int64s, pa.Array]]) -> pa.Array:
    """Join parts by the positions of their values."""
    if len(done) == 1:
        return done[0][1]  # the only part has all positions, in order
    order = np.concatenate([positions for positions, _ in done])
    whole: Any = concat_arrays([array for _, array in done])
    taken: pa.Array = whole.take(integer_array(inverse_permutation(order)))
    return taken
