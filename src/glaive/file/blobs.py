"""How the values of blob v2 columns are stored.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import validity_flags
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.levels import Layer, Levels
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.values.flat import Flat
from glaive.errors import GlaiveError, OptionError, SchemaError
from glaive.format.field import Field
from glaive.format.pb import encodings21_pb2 as pb
from glaive.io.access import open_object
from glaive.io.store import ALIGNMENT, ObjectStore
from glaive.io.wrapped import PAD, AlignedSink
from glaive.kernels.flat import space_ranges
from glaive.kernels.strings import check_offsets
from glaive.types import Flags, Int64s, as_buffer

_PREFIX = "lance-encoding:blob-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobOptions:
    """Options of a writer for blobs.

    Parameters
    ----------
    pack_file_size
        Bytes of a file with several blobs, at most; options of a column take precedence.
    external
        ``reference`` keeps the URIs of external values, ``ingest`` copies the values.
    outside_bases
        Allow URIs outside of all ``bases``.
    bases
        Base URIs by their id; URIs below them are stored as relative paths.
    opener
        Returns store and path of an object to copy, by its URI.
    """

    pack_file_size: int | None = None
    external: Literal["reference", "ingest"] = "reference"
    outside_bases: bool = False
    bases: Mapping[int, str] = field(default_factory=dict, hash=False)
    opener: Callable[[str], tuple[ObjectStore, str]] = field(default=open_object, hash=False)

    def __post_init__(self) -> None:
        if self.external not in ("reference", "ingest"):
            raise OptionError(
                f"external_blob_mode: expected 'reference' or 'ingest', found {self.external!r}"
            )
        if self.outside_bases and self.external == "ingest":
            raise OptionError(
                "allow_external_blob_outside_bases: only with external_blob_mode='reference', as "
                "'ingest' copies from anywhere. Leave one of them out."
            )
        size: object = self.pack_file_size
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise OptionError(
                f"blob_pack_file_size_threshold: expected an integer ≥ 1, found {size!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobThresholds:
    """Sizes in bytes that determine where the values of one column are stored.

    A value above ``own_file`` has its own file. Else a value above ``inline`` is in a file of up
    to ``pack_file`` bytes with several values. All others are in the data file.
    """

    inline: int = 64 * 1024
    own_file: int = 4 * 1024 * 1024
    pack_file: int = 1024**3

    @classmethod
    def of(cls, column: Field, options: BlobOptions) -> BlobThresholds:
        """Return thresholds from a column's metadata, else from the options, else the defaults.

        Raises
        ------
        SchemaError
            A threshold is an invalid number of bytes.
        """
        size = options.pack_file_size
        default = cls() if size is None else cls(pack_file=size)
        return cls(
            inline=_threshold(column, "inline-size-threshold", 0, default.inline),
            own_file=_threshold(column, "dedicated-size-threshold", 1, default.own_file),
            pack_file=_threshold(column, "pack-file-size-threshold", 1, default.pack_file),
        )


def _threshold(column: Field, name: str, minimum: int, default: int) -> int:
    text = column.option(_PREFIX + name)
    if text is None:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not minimum <= int(text) < 2**63:
        raise SchemaError(
            f"column {column.name!r}: {_PREFIX}{name}: expected a number of bytes ≥ {minimum}, "
            f"found {text!r:.80}"
        )
    return int(text)


# --- References to external blobs, on their way from one data file into another ---------
#
# Rewritten rows keep their references as they are. In memory such a value is a ``uri`` that
# contains the whole descriptor and a token of this process, which prevents forgery.

_TOKEN: Final = f"\0{secrets.token_hex(16)}"
_PARTS: Final = 5


class BlobReference(NamedTuple):
    """The location of an external value, from its descriptor."""

    position: int
    size: int
    base_id: int
    uri: str

    def to_text(self) -> str:
        """Return the ``uri`` of the value in memory."""
        return f"{_TOKEN}:{self.position}:{self.size}:{self.base_id}:{self.uri}"

    @classmethod
    def of_text(cls, text: str) -> BlobReference | None:
        """Parse the result of :meth:`to_text`; ``None`` for any other text."""
        parts = text.split(":", _PARTS - 1)
        if parts[0] != _TOKEN or len(parts) < _PARTS:
            return None
        position, size, base_id = map(int, parts[1:4])
        return cls(position, size, base_id, parts[4])


# --- Values of blobs on their way into a file -------------------------------------------
#
# Specification: "Where values lie" in ``docs/format/blobs.md``.

_MAX_COPIED_BYTES = 32 * 1024
"""Bytes of a value up to which copying it costs less than a step of its own."""


@dataclass(frozen=True, slots=True)
class BlobValues:
    """Value i has ``sizes[i]`` bytes from ``starts[i]`` on in ``data``."""

    data: pa.Buffer
    starts: Int64s
    sizes: Int64s

    @classmethod
    def of(cls, array: Any, valid: Flags | None) -> BlobValues:
        """Return views of the values of an array of binary; nulls become empty.

        Raises
        ------
        SchemaError
            Its offsets descend or leave its data.
        """
        wide = array if array.type == pa.large_binary() else array.cast(pa.large_binary())
        if not len(wide):
            nothing = np.empty(0, np.int64)
            return cls(pa.py_buffer(b""), nothing, nothing)
        _, offsets, data = wide.buffers()
        data = pa.py_buffer(b"") if data is None else data
        check_offsets(offsets.slice(8 * wide.offset), 64, data, len(wide))
        ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        sizes = np.diff(ends)
        if valid is not None:
            sizes = sizes * valid
        return cls(data, ends[:-1], sizes)

    @classmethod
    def only(cls, value: pa.Buffer) -> BlobValues:
        """Return a single value."""
        return cls(value, np.zeros(1, np.int64), np.array([value.size], np.int64))

    def __getitem__(self, row: int) -> pa.Buffer:
        """Return one value, as a view."""
        return self.data.slice(int(self.starts[row]), int(self.sizes[row]))

    def take(self, rows: Int64s) -> BlobValues:
        """Return the values at these rows."""
        return BlobValues(self.data, self.starts[rows], self.sizes[rows])

    def part(self, first: int, stop: int) -> BlobValues:
        """Return the values from ``first`` on, up to ``stop``."""
        return BlobValues(self.data, self.starts[first:stop], self.sizes[first:stop])

    def joined(self) -> list[pa.Buffer]:
        """Return all values, back to back: one view for values that lie so in memory."""
        stops = self.starts + self.sizes
        cuts = (self.starts[1:] != stops[:-1]).nonzero()[0] + 1
        bounds = np.concatenate(([0], cuts, [len(stops)]))
        begins, ends = self.starts[bounds[:-1]].tolist(), stops[bounds[1:] - 1].tolist()
        return [
            self.data.slice(begin, end - begin) for begin, end in zip(begins, ends, strict=True)
        ]

    def write(self, sink: AlignedSink) -> Int64s:
        """Append all values, each on a 64-byte offset; returns their positions, empty ones' too."""
        begin = sink.pad()
        if not len(self.sizes):
            return self.sizes
        spaces = -(-self.sizes // ALIGNMENT) * ALIGNMENT
        ends: Int64s = spaces.cumsum() + begin
        sink.write(list(self._parts(spaces)))
        return ends - spaces

    def _parts(self, spaces: Int64s) -> Iterator[pa.Buffer]:
        """Yield large values as views; small ones between them are copied together."""
        large = self.sizes > _MAX_COPIED_BYTES
        cuts = (large[1:] | large[:-1]).nonzero()[0] + 1
        bounds = [0, *cuts.tolist(), len(large)]
        for first, stop in pairwise(bounds):
            if large[first]:
                yield self[first]
            else:
                starts, sizes = self.starts[first:stop], self.sizes[first:stop]
                yield space_ranges(self.data, starts, sizes, ALIGNMENT, PAD[0], "blobs to write")
            gap = int(spaces[stop - 1] - self.sizes[stop - 1])
            if stop < len(large) and gap:
                yield pa.py_buffer(PAD * gap)


# --- Pages of blobs to be written: values first, then the page of descriptors -----------
#
# Specification: "Pages" in ``docs/format/blobs.md``.

_PAIR = [64, 64]
_LEVEL_SHIFT = np.uint64(16)


@dataclass(slots=True)
class PendingBlobs(EncodedPage):
    """A page of blobs whose positions are known only when they are written.

    ``values`` has one per row, empty ones included; ``describe`` builds the page from the positions
    of the written values, and their sizes.
    """

    values: BlobValues
    describe: Callable[[Int64s, Int64s], EncodedPage]


def pending_page(array: Any, levels: Levels, rows: int, *, large_chunks: bool) -> PendingBlobs:
    """Return a page of blobs with levels; without lists."""
    valid = validity_flags(array)
    if levels.definition is not None:
        valid = levels.definition == 0
    layout: Any = None
    describe = partial(_describe, levels, rows, large_chunks=large_chunks)
    return PendingBlobs(layout, [], rows, BlobValues.of(array, valid), describe)


def _describe(
    levels: Levels, rows: int, positions: Int64s, sizes: Int64s, *, large_chunks: bool
) -> EncodedPage:
    from glaive.encodings.miniblock.writer import encode_mini_page

    pairs = np.stack((np.where(sizes > 0, positions, 0), sizes), axis=1).astype(np.uint64)
    if levels.definition is not None:
        # Valid values have level 0, and null values are skipped.
        pairs[:, 0] |= levels.definition.astype(np.uint64) << _LEVEL_SHIFT
    page = encode_mini_page(
        FixedWidth(as_buffer(pairs.reshape(-1)), sum(_PAIR), rows),
        Flat(sum(_PAIR)),
        Levels(None, None, (Layer.ALL_VALID_ITEM,)),
        rows,
        large_chunks=large_chunks,
        level_runs=False,
    )
    if page is None:
        raise GlaiveError(f"a page of {rows} blob descriptors does not fit its chunks")
    layout = pb.PageLayout()
    layout.CopyFrom(page.layout)
    encoding = layout.mini_block_layout.value_compression
    packed = pb.CompressiveEncoding()
    packed.packed_struct.bits_per_value.extend(_PAIR)
    packed.packed_struct.values.CopyFrom(encoding)
    encoding.CopyFrom(packed)
    layers = [pb.RepDefLayer.ValueType(layer) for layer in levels.layers]
    blob = pb.BlobLayout(inner_layout=layout, layers=layers)
    return EncodedPage(pb.PageLayout(blob_layout=blob), page.buffers, rows)
