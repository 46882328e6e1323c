"""The same columns of many small files, read as one.

A file of a few rows costs more to open than to decode: tables, footers and messages are
looked at one by one. Here all files of a batch lie in one buffer. Footers and tables are
checked with array operations; the metadata of a column, which most files of a dataset have
in common byte by byte, is parsed once; and pages of one form are decoded together.

Whatever is out of the ordinary, damage included, is left to the reader of single files,
which says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.dictionaries import has_dictionary
from glaive.encodings.miniblock.alike_pages import AlikeChunks, AlikeValues, alike
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import Fetch, Leaf, PageBytes, PageReader
from glaive.encodings.registry import open_page
from glaive.errors import GlaiveError
from glaive.file.v2.dictionary_passthrough import can_pass_through, dictionary_array
from glaive.file.v2.reading.columns import Node, column_tree
from glaive.file.v2.reading.container import parse_page_layout
from glaive.file.v2.reading.unshred import unshred, unshred_flat
from glaive.file.versions import PROFILES
from glaive.format.field import BLOB, Field
from glaive.format.footer import MAGIC, FileFooter
from glaive.format.pb import encodings21_pb2, file2_pb2
from glaive.format.wire import DecodeError
from glaive.io.pool import gather
from glaive.io.read_many import JoinedObjects
from glaive.memory import as_array
from glaive.types import ByteRange, Where

__all__ = [
    "MAX_BYTES",
    "NotAlikeError",
    "SmallBatch",
    "SmallPage",
    "are_usual",
    "read_small_files",
]

MAX_BYTES = 64 * 1024
"""Bytes of a file that counts as small."""

_MOST_EXPANDED = 256 * 1024 * 1024
"""Bytes that items of dictionaries may take in the values of one column, about."""

_DICTIONARY = 2
"""Number of the buffer with the items of a page."""
_SIZE = 4

_WHERE = Where("small files")
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

_ON_DISK = frozenset(
    numbers
    for profile in PROFILES.values()
    if getattr(profile, "pages", None) == "layouts"
    for numbers in profile.on_disk
)
"""Footer versions of files whose pages have layouts."""

Numbers = NDArray[np.int64]


def read_small_files(
    files: JoinedObjects,
    rows: Sequence[int],
    fields: Sequence[Field],
    column_of: Mapping[int, int],
    *,
    coded: bool = False,
) -> list[list[pa.Array]] | None:
    """Read whole columns of files that have the same columns.

    Parameters
    ----------
    files
        The bytes of all files.
    rows
        Rows of each file, as the manifest says.
    fields, column_of
        As for :meth:`glaive.file.protocol.FileReader.bind`; no column may be missing.
    coded
        Whether text keeps the dictionaries of its pages, joined to one; see
        :mod:`glaive.file.v2.dictionary_passthrough`.

    Returns
    -------
    list of lists of arrays, or None
        Chunks per field, in the order of the files. ``None`` when the files must be read
        one by one: they have another format, several pages per column, or damage.
    """
    if not are_usual(fields):
        return None
    try:
        batch = SmallBatch.of(files, rows)
        if batch is None:
            return None
        if not fields:  # nothing to be read, but rows to be relied on
            batch.pages(min((one for one in column_of.values() if one >= 0), default=None))
        nodes = [column_tree(field, column_of) for field in fields]
        return gather(partial(batch.read, coded=coded), nodes)
    except (NotAlikeError, GlaiveError, DecodeError):
        return None  # the reader of single files tells what is wrong


def are_usual(fields: Sequence[Field]) -> bool:
    """Whether these are fields that are read from many files at once."""
    return not any(one.is_packed or BLOB in one.metadata for top in fields for one in top.walk())


class NotAlikeError(Exception):
    """The files cannot be read together."""


@dataclass(frozen=True, eq=False, slots=True)
class SmallPage:
    """What the metadata of a column with one page says, whatever file it is in.

    ``end`` is where the last of its buffers ends; ``kin`` is None for a page that is to be
    read alone. ``opened`` is the page without its bytes. ``dictionary`` tells where the items
    of a dictionary lie, whether they are compressed, and the values for each of them.
    """

    rows: int
    ranges: tuple[ByteRange, ...]
    end: int
    layout: Any
    opened: PageReader
    kin: AlikeChunks | AlikeValues | None
    dictionary: tuple[int, int, bool, float]

    @property
    def items(self) -> int:
        """Items of the dictionary of a page that is read with others."""
        return self.kin.items if isinstance(self.kin, AlikeChunks) else 0


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
    layout = parse_page_layout(encoding.direct.encoding, _WHERE)
    if not isinstance(layout, encodings21_pb2.PageLayout) or layout.HasField("blob_layout"):
        return None
    opened = open_page(layout, PageBytes(ranges, None, page.length, _WHERE))
    end = max((part.end for part in ranges), default=0)
    kin = alike(opened) if page.length else None
    return SmallPage(
        page.length, ranges, end, layout, opened, kin, _dictionary(opened, layout, ranges)
    )


def _dictionary(
    opened: PageReader, layout: Any, ranges: Sequence[ByteRange]
) -> tuple[int, int, bool, float]:
    items = opened.num_dictionary_items if isinstance(opened, MiniBlockPage) else 0
    if not items or len(ranges) <= _DICTIONARY:
        return 0, 0, False, 0.0
    form, (start, size) = layout.mini_block_layout, ranges[_DICTIONARY]
    return start, size, form.dictionary.HasField("general"), form.num_items / items


@dataclass(slots=True)
class SmallBatch:
    """Files back to back in one buffer, each from one of ``bases`` on."""

    data: pa.Buffer
    bases: Numbers
    rows: Numbers
    footers: NDArray[Any]

    @classmethod
    def of(cls, files: JoinedObjects, rows: Sequence[int]) -> SmallBatch | None:
        """Check the footers of the files."""
        raw, bases, sizes = files
        if min(sizes) < FileFooter.SIZE:
            return None
        ends = np.array(sizes) - FileFooter.SIZE
        data = as_array(raw)
        at = (np.array(bases) + ends)[:, None] + np.arange(FileFooter.SIZE)
        footers = data[at].view(_FOOTER)[:, 0]
        room, tables = ends.astype(np.uint64), footers["table"]
        # Each is bounded by itself before they are added up.
        sound = (
            (footers["magic"] == MAGIC)
            & (footers["metadata"] <= tables)
            & (tables <= room)
            & (footers["globals"] <= room)
            & (tables + footers["columns"] * np.uint64(_PAIR) <= room)
            & (footers["globals"] + footers["buffers"] * np.uint64(_PAIR) <= room)
        )
        versions = {(major, minor) for major, minor in np.unique(footers["version"], axis=0)}
        if not sound.all() or not versions <= _ON_DISK:
            return None
        return cls(raw, np.array(bases), np.array(rows), footers)

    def read(self, node: Node, *, coded: bool = False) -> list[pa.Array]:
        """A top-level field of all files; ``coded`` as for :func:`read_small_files`."""
        if not node.children:
            return self._flat(node, coded=coded)
        leaves = [self.column(leaf) for leaf in node.leaves()]
        self._check_room(leaves)
        found = []
        for at, rows in enumerate(self.rows.tolist()):
            alone = [self.alone(at, pages[which[at]]) for pages, which in leaves]
            found.append(unshred(node, alone, rows, _WHERE))
        return found

    def _flat(self, node: Node, *, coded: bool) -> list[pa.Array]:
        """A field without lists and structs: pages of one kin at once, then the others."""
        pages, which = self.column(node)
        kins: dict[AlikeChunks | AlikeValues, int] = {}
        # The items of dictionaries stay apart where they are part of the result.
        alone = has_dictionary(node.type)
        codes = [
            -1
            if page.kin is None or (alone and page.items)
            else kins.setdefault(page.kin, len(kins))
            for page in pages
        ]
        code = np.array(codes)[which]
        if not (coded and can_pass_through(node.type) and len(kins) == 1 and min(codes) == 0):
            self._check_room([(pages, which)])
        ranges = [page.ranges for page in pages]
        done: list[tuple[Numbers, pa.Array]] = []
        for kin, number in kins.items():
            files = np.flatnonzero(code == number)
            known = [at for at, one in enumerate(codes) if one == number]
            places = np.zeros((len(pages), len(ranges[known[0]]), 2), np.int64)
            places[known] = [ranges[at] for at in known]
            places = places[which[files]]
            starts = places[:, :, 0] + self.bases[files][:, None]
            kin_of = [pages[at].kin or kin for at in which[files].tolist()]
            leaf = kin.read(self.data, starts, places[:, :, 1], self.rows[files], kin_of)
            all_of_it = coded and len(files) == len(which)
            array = dictionary_array(node, leaf, _WHERE) if all_of_it else None
            done.append((files, unshred_flat(node, leaf, _WHERE) if array is None else array))
        if len(done) == 1 and len(done[0][0]) == len(which):
            return [done[0][1]]
        found: list[Any] = [None] * len(which)
        for files, array in done:
            counts = self.rows[files]
            firsts = (np.cumsum(counts) - counts).tolist()
            for at, first, count in zip(files.tolist(), firsts, counts.tolist(), strict=True):
                found[at] = array.slice(first, count)
        for at in np.flatnonzero(code < 0).tolist():
            found[at] = unshred_flat(node, self.alone(at, pages[which[at]]), _WHERE)
        return found

    def column(self, leaf: Node) -> tuple[list[SmallPage], Numbers]:
        """The pages of a leaf's column; see :meth:`pages`."""
        if leaf.entries_per_row != 1:
            raise NotAlikeError
        return self.pages(leaf.column)

    def pages(self, column: int | None) -> tuple[list[SmallPage], Numbers]:
        """The pages of a column without repetitions, and which of them each file has.

        They have the rows of their files.
        """
        footers, bases = self.footers, self.bases
        if column is None or not bool((footers["columns"] > column).all()):
            raise NotAlikeError
        limit = footers["table"]
        at = bases + limit.astype(np.int64) + _PAIR * column
        pairs = as_array(self.data)[at[:, None] + np.arange(_PAIR)].view("<u8")
        starts, sizes = pairs[:, 0], pairs[:, 1]
        if not bool(((starts <= limit) & (sizes <= limit) & (starts <= limit - sizes)).all()):
            raise NotAlikeError
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
            raise NotAlikeError
        picked = np.array(which)
        ends = np.array([page.end for page in pages], np.uint64)[picked]
        rows = np.array([page.rows for page in pages], np.uint64)[picked]
        if not bool(((ends <= footers["metadata"]) & (rows == self.rows)).all()):
            raise NotAlikeError
        return pages, picked

    def _check_room(self, leaves: Sequence[tuple[list[SmallPage], Numbers]]) -> None:
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
            raise NotAlikeError

    def alone(self, at: int, page: SmallPage, rows: Numbers | None = None) -> Leaf:
        """Read the page of one file: all of it, or the rows at some positions."""
        base = int(self.bases[at])
        buffers = [self.data.slice(base + start, size) for start, size in page.ranges]
        opened = open_page(page.layout, PageBytes(page.ranges, buffers, page.rows, _WHERE))
        leaf = opened.read(0, page.rows) if rows is None else opened.take(rows)
        if isinstance(leaf, Fetch):
            raise NotAlikeError
        return leaf
