"""Manifests: the description of one version of a dataset.

A manifest file consists of the index section (if there are indices), the transaction of the
version, the manifest message and the footer. The length of each part precedes it as ``u32``.
The message has the offsets of the first two.

:class:`Manifest` holds the message with unparsed fragments, and parses only requested ones.
Opening a dataset of 100,000 fragments, counting its rows and appending handle all fragments at
once.

Specification: "Manifest file" in ``docs/format``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import IntFlag
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, FragmentNotFoundError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.footer import ManifestFooter
from glaive.format.fragment import (
    LEGACY,
    Fragment,
    FragmentColumns,
    check_fragment,
    deleted_by,
    known_version,
)
from glaive.format.paths import VERSIONS, NamingScheme
from glaive.format.pb import table_pb2
from glaive.format.wire import check_base_paths, check_file_name, parse, parse_bitmap
from glaive.io.checksums import Expected, check, checksum_function
from glaive.io.store import BytesLike, ObjectStore
from glaive.types import FormatVersion, VersionIdentity, Where

if TYPE_CHECKING:
    from pyroaring import BitMap


# --- The index section of a manifest: one entry per segment of an index -----------------
#
# Specification: "Segments" in ``docs/format/indices.md``.

_Folder: TypeAlias = tuple[str, bytes, int | None]

_UUID_BYTES: Final = 16
_MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970: the maximum of ``datetime``."""
_MAX_COVERED: Final = 1 << 22
"""Limit of the total coverage of all segments: a bitmap of a few bytes can encode billions."""


def decode_index_section(data: bytes, where: object) -> list[table_pb2.IndexMetadata]:
    """Return the entries of a section, in order, checked.

    Raises
    ------
    CorruptFileError
        The section is invalid, or as for :func:`check_entries`.
    """
    section = parse(table_pb2.IndexSection(), data, "index section", where)
    check_entries(section.indices, where)
    return list(section.indices)


def check_entries(entries: Sequence[table_pb2.IndexMetadata], where: object) -> None:
    """Check the entries of segments that a version has at one time.

    Raises
    ------
    CorruptFileError
        As for :func:`check_entry` and :func:`check_covered`.
    """
    for entry in entries:
        check_entry(entry, where)
    check_covered(entries, where)


def check_covered(entries: Sequence[table_pb2.IndexMetadata], where: object) -> None:
    """Check how many fragments the segments of a version cover.

    Raises
    ------
    CorruptFileError
        They are more than 2^22 in total, or as for :func:`count_covered`.
    """
    covered = sum(count_covered(entry, where) for entry in entries)
    if covered > _MAX_COVERED:
        raise CorruptFileError(
            "fragments covered by all segments of indices",
            expected=f"at most {_MAX_COVERED}",
            found=f"{covered}",
            where=where,
        )


def count_covered(entry: table_pb2.IndexMetadata, where: object) -> int:
    """Number of fragments that a segment covers, 0 if unknown; see :func:`open_coverage`."""
    return len(open_coverage(entry, where)) if entry.fragment_bitmap else 0


def open_coverage(entry: table_pb2.IndexMetadata, where: object) -> BitMap:
    """Return the bitmap of the fragments that a segment covers.

    Raises
    ------
    CorruptFileError
        It is invalid.
    """
    return parse_bitmap(entry.fragment_bitmap, f"fragments of index {entry.name!r}", where)


def check_entry(entry: table_pb2.IndexMetadata, where: object) -> None:
    """Check the entry of a segment.

    Raises
    ------
    CorruptFileError
        Its uuid, a path of a file, its version or its time is invalid.
    """
    check_uuid(entry.uuid, f"uuid of index {entry.name!r}", where)
    if entry.index_version < 0:
        raise CorruptFileError(
            f"version of index {entry.name!r}",
            expected="0 or more",
            found=f"{entry.index_version}",
            where=where,
        )
    if entry.created_at > _MAX_TIMESTAMP_MS:
        raise CorruptFileError(
            f"time at which index {entry.name!r} was built",
            expected=f"at most {_MAX_TIMESTAMP_MS} milliseconds since 1970",
            found=f"{entry.created_at}",
            where=where,
        )
    for file in entry.files:
        check_file_name(file.path, f"path of a file of index {entry.name!r}", where)


def with_own_folders(
    entries: Sequence[table_pb2.IndexMetadata],
) -> Sequence[table_pb2.IndexMetadata]:
    """Remove entries that contradict each other.

    Two entries contradict if they name one folder as segments of one index, and differ. It is
    unknown which of them has the rows of the files there, so both are left out.
    """
    first: dict[_Folder, table_pb2.IndexMetadata] = {}
    shared: set[_Folder] = set()
    for entry in entries:
        folder = _folder_of(entry)
        known = first.setdefault(folder, entry)
        if known is not entry and known != entry:
            shared.add(folder)
    return [entry for entry in entries if _folder_of(entry) not in shared] if shared else entries


def contents_of(entry: table_pb2.IndexMetadata) -> bytes:
    """Return what an entry says about the contents of a segment's files: all but their location.

    Entries of two datasets may name one segment, and one of them may be damaged.
    """
    stated = repr((entry.index_version, [file.path for file in entry.files]))
    return stated.encode() + entry.index_details.value


def _folder_of(entry: table_pb2.IndexMetadata) -> _Folder:
    """Return the index and the location of a folder; it differs between base paths."""
    base = entry.base_id if entry.HasField("base_id") else None
    return entry.name, entry.uuid.uuid, base


def check_uuid(uuid: table_pb2.UUID, subject: str, where: object) -> None:
    """Check the length of a uuid.

    Raises
    ------
    CorruptFileError
        It is missing or has another length.
    """
    if len(uuid.uuid) != _UUID_BYTES:
        raise CorruptFileError(
            subject, expected=f"{_UUID_BYTES} bytes", found=f"{len(uuid.uuid)}", where=where
        )


# --- Feature flags: features of a dataset that readers or writers have to know ----------
#
# A manifest has one word of flags for readers and another for writers. Both are recomputed from
# the contents of each version, except for a few permanent flags.
#
# Specification: "Feature flags" in ``docs/format``.


class Feature(IntFlag):
    """Flags by name."""

    DELETION_FILES = 1 << 0
    STABLE_ROW_IDS = 1 << 1
    V2_FILES = 1 << 2
    TABLE_CONFIG = 1 << 3
    BASE_PATHS = 1 << 4
    NO_TRANSACTION_FILES = 1 << 5
    DATA_OVERLAYS = 1 << 6
    COVERING_INDICES = 1 << 7
    MIXED_FILE_VERSIONS = 1 << 8
    FRAGMENT_REUSE_WITH_STABLE_ROW_IDS = 1 << 9
    TAGGED_FRAGMENT_REUSE = 1 << 10
    SPILLED_ROW_LINEAGE = 1 << 11
    CLUSTERING = 1 << 12
    FRAGMENT_TREE = 1 << 13
    MANAGED_BLOBS = 1 << 14
    UNIQUE_FIELD_IDS = 1 << 15


READABLE: Final = (
    Feature.DELETION_FILES
    | Feature.STABLE_ROW_IDS
    | Feature.V2_FILES
    | Feature.TABLE_CONFIG
    | Feature.BASE_PATHS
    | Feature.NO_TRANSACTION_FILES
    | Feature.COVERING_INDICES
    | Feature.MIXED_FILE_VERSIONS
    | Feature.SPILLED_ROW_LINEAGE
    | Feature.UNIQUE_FIELD_IDS
)
WRITABLE: Final = READABLE

_STICKY: Final = int(Feature.STABLE_ROW_IDS | Feature.MIXED_FILE_VERSIONS)
_STICKY_FOR_WRITERS: Final = int(Feature.NO_TRANSACTION_FILES | Feature.UNIQUE_FIELD_IDS)

_PAIRED_FLAGS: Final = (
    Feature.MIXED_FILE_VERSIONS | Feature.TAGGED_FRAGMENT_REUSE | Feature.MANAGED_BLOBS
)


def check_readable(reader: int, writer: int, *, where: object) -> None:
    """Check that this reader supports all features.

    Raises
    ------
    UnsupportedFeatureError
        A reader flag is unknown.
    CorruptFileError
        A flag that must be in both words is in only one of them.
    """
    unknown = reader & ~int(READABLE)
    if unknown:
        raise _unsupported("reading", unknown, where)
    lone = (reader ^ writer) & int(_PAIRED_FLAGS)
    if lone:
        raise CorruptFileError(
            "feature flags",
            expected=f"{_names(lone)} for readers and writers alike",
            found=f"reader {reader:#x}, writer {writer:#x}",
            where=where,
        )


def check_writable(reader: int, writer: int, *, where: object) -> None:
    """Check that this writer supports all features.

    Raises
    ------
    UnsupportedFeatureError
        A flag is unknown.
    """
    check_readable(reader, writer, where=where)
    unknown = writer & ~int(WRITABLE)
    if unknown:
        raise _unsupported("writing", unknown, where)


def _unsupported(doing: str, unknown: int, where: object) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{doing} this dataset needs {_names(unknown)} (in {where}), which this version of "
        "glaive does not support. The dataset was probably written by a newer Lance: upgrade "
        "glaive, or use the library that wrote it."
    )


def _names(flags: int) -> str:
    known = [str(flag.name).lower() for flag in Feature if flags & flag]
    rest = flags & ~int(~Feature(0))
    if rest:
        known += [f"flag {bit}" for bit in range(rest.bit_length()) if rest >> bit & 1]
    return ", ".join(known)


def recompute(
    manifest: table_pb2.ManifestOutline,
    *,
    deletion_files: bool,
    spilled_row_lineage: bool,
    covering_indices: bool,
) -> None:
    """Set both words from the contents of a new manifest.

    Parameters
    ----------
    manifest
        Changed in place. Stable row ids and permanent flags are kept.
    deletion_files
        Whether a fragment has a deletion file.
    spilled_row_lineage
        Whether row ids or row versions of a fragment are in its files.
    covering_indices
        Whether an index of this version has covering fields.
    """
    reader, writer = manifest.reader_feature_flags, manifest.writer_feature_flags
    both = (reader | writer) & _STICKY
    only = writer & _STICKY_FOR_WRITERS
    if deletion_files:
        both |= Feature.DELETION_FILES
    if spilled_row_lineage:
        both |= Feature.SPILLED_ROW_LINEAGE
    if manifest.config:
        only |= Feature.TABLE_CONFIG
    if manifest.base_paths:
        both |= Feature.BASE_PATHS
    if covering_indices:
        both |= Feature.COVERING_INDICES
    manifest.reader_feature_flags = int(both)
    manifest.writer_feature_flags = int(both | only)


# --- The checksums of a manifest: 20 bytes between its sections and the message ---------
#
# ======= ======================================
# bytes   content
# ======= ======================================
# 8       ``u64`` xxh3 of all bytes before these 20
# 8       ``u64`` xxh3 of all bytes after them
# 4       ``GLXM``
# ======= ======================================
#
# The message says that they are there. Other readers skip that field, and go by the positions of
# the sections and of the message. A writer that ignores checksums leaves out both.
#
# Specification: "Manifest file" in ``docs/format/manifest.md``.

_BLOCK: Final = struct.Struct("<QQ4s")
_MAGIC: Final = b"GLXM"

SIZE: Final = _BLOCK.size
"""Bytes of the checksums."""


def manifest_checksums(
    function: Callable[[BytesLike], int], before: Sequence[bytes], after: Sequence[bytes]
) -> bytes:
    """Return the checksums of the parts of a manifest that come before and after them."""
    return _BLOCK.pack(function(b"".join(before)), function(b"".join(after)), _MAGIC)


def has_checksums(
    data: memoryview, position: int, sections_end: int, *, stated: bool, own: bool
) -> bool:
    """Return whether a manifest has checksums, or has to have some.

    Parameters
    ----------
    data
        The file.
    position
        Position of the message that the footer states.
    sections_end
        Where the last section ends.
    stated
        Whether the message says that there are checksums.
    own
        Whether the message says that glaive wrote it.

    Notes
    -----
    There are checksums if two of three facts hold: glaive wrote the manifest, the message states
    them, and the bytes look like checksums. A single damage then cannot hide them. It takes more
    than bytes of another writer that look like checksums, or a field that another writer kept.
    Overwritten bytes may hide both facts of the message. Bytes that look like checksums then count
    if the first checksum matches the sections.
    """
    there = _are_there(data, position, sections_end)
    if stated + own + there < 2:  # two of the three
        return there and not stated and not own and _is_of_sections(data, position - SIZE)
    return True


def _are_there(data: memoryview, position: int, sections_end: int) -> bool:
    """Return whether the bytes before a message look like checksums."""
    return position - SIZE >= sections_end and _last(data, position) == _MAGIC


def _last(data: memoryview, position: int) -> bytes:
    return bytes(data[max(0, position - len(_MAGIC)) : position])


def _is_of_sections(data: memoryview, start: int) -> bool:
    """Return whether the first checksum at a position matches all bytes before it."""
    function = checksum_function()
    before, _, _ = _BLOCK.unpack_from(data, start)
    return function is not None and function(data[:start]) == before


def compare_manifest(data: memoryview, position: int, sections_end: int, where: str) -> None:
    """Compare a manifest with its checksums; parameters as of :func:`has_checksums`.

    Raises
    ------
    CorruptFileError
        Bytes were changed, or the checksums are missing from their place.
    """
    if not _are_there(data, position, sections_end):
        raise CorruptFileError(
            "checksums of the manifest",
            expected=f"{SIZE} bytes that end in {_MAGIC!r} before the message",
            found=f"{_last(data, position)!r}, and sections that end at {sections_end} of "
            f"{position}",
            where=where,
        )
    start = position - SIZE
    before, after, _ = _BLOCK.unpack_from(data, start)
    check(Expected(before, "checksum of the sections of the manifest", Where(where)), data[:start])
    check(Expected(after, "checksum of the manifest", Where(where)), data[position:])


WRITER: Final = ("glaive", "0.1.0")
"""Library and version in manifests."""

_LENGTH: Final = struct.Struct("<I")

_PARSED: Final[dict[bytes, Fragment]] = {}
"""Parsed fragments by message: versions of a dataset share most of their fragments."""
_MAX_PARSED: Final = 2048
_PARSED_BYTES: Final = 512
"""Maximum number of kept fragments, and bytes of the message of each."""


class Manifest:
    """One version of a dataset.

    Parameters
    ----------
    wire
        The message, with its fragments in wire format; read-only.
    where
        Full path of the file, for messages.
    scheme
        Naming scheme of the manifests of this dataset.
    transaction
        The transaction of the version in wire format, if the file has it.
    index_section
        The index section in wire format, if there is one.
    """

    def __init__(
        self,
        wire: table_pb2.ManifestOutline,
        *,
        where: str,
        scheme: NamingScheme = "V2",
        transaction: bytes | None = None,
        index_section: bytes | None = None,
    ) -> None:
        self.wire = wire
        self.where = where
        self.scheme: NamingScheme = scheme
        self.transaction = transaction
        self.index_section = index_section
        self.version: int = wire.version
        self.stated = FragmentColumns(wire, where)
        """Numbers of all fragments as stored in the file; see :attr:`columns`."""
        self.read_rows: Callable[[Manifest], table_pb2.ManifestOutline] | None = None
        """Completes the message with row counts from data files; ``None`` if it is complete."""
        self.opened_bases: dict[int, tuple[ObjectStore, ObjectStore, bool]] = {}
        """Kept for :mod:`glaive.table.root`: by id, root store, base store, whether that is a
        dataset root. It is here because a store may refer to the manifest: they go together."""

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, fragments={self.num_fragments})"

    # ----------------------------------------------------------------- content

    @cached_property
    def schema(self) -> LanceSchema:
        """The schema."""
        wire = self.wire
        schema = LanceSchema.from_wire(wire.fields, wire.schema_metadata, where=self.where)
        if schema.repeated_name is not None:
            expected, found = "unique names among siblings", f"{schema.repeated_name!r:.100} twice"
            raise CorruptFileError(
                "names of columns", expected=expected, found=found, where=self.where
            )
        return schema

    def share_schema(self, other: Manifest) -> None:
        """Use the schema object of another version if its message has the same fields."""
        mine, theirs = self.wire, other.wire
        if mine.fields == theirs.fields and mine.schema_metadata == theirs.schema_metadata:
            self.__dict__["schema"] = other.schema  # fills the cached property

    def shares_schema(self, other: Manifest) -> bool:
        """Return whether both versions have one schema object."""
        mine: LanceSchema | None = self.__dict__.get("schema")
        return mine is not None and mine is other.__dict__.get("schema")

    @cached_property
    def data_format(self) -> FormatVersion:
        """Format version of new data files.

        Manifests of Lance 0.16 may say 0.1 where the files are newer, so the files decide.
        """
        text = self.wire.data_format.version
        stated = known_version(text, self.where) if text else None
        if stated is not None and stated != LEGACY:
            return stated
        for position in range(self.num_fragments):
            for file in Fragment.from_wire(
                self._parsed(self.wire.fragments[position]), self.where
            ).files:
                return file.version
        if stated is not None:
            return stated
        # Old writers only recorded whether files have a 2.x format.
        second = self.wire.writer_feature_flags & Feature.V2_FILES
        return FormatVersion(2, 2) if second else FormatVersion(0, 1)

    @property
    def timestamp(self) -> datetime:
        """Time of the commit, in microseconds."""
        wire = self.wire.timestamp
        try:
            seconds = datetime.fromtimestamp(wire.seconds, UTC)
            return seconds.replace(microsecond=wire.nanos // 1000)
        except (ValueError, OverflowError, OSError) as error:
            raise CorruptFileError(
                "timestamp",
                expected="seconds and nanoseconds since 1970",
                found=f"{wire.seconds} and {wire.nanos}",
                where=self.where,
            ) from error

    @property
    def identity(self) -> VersionIdentity:
        """Identity of a version: a recreated dataset repeats the numbers of versions."""
        wire = self.wire
        moment = wire.timestamp.seconds, wire.timestamp.nanos
        return self.version, *moment, wire.transaction_file

    @property
    def config(self) -> Mapping[str, str]:
        """Table configuration."""
        return dict(self.wire.config)

    @property
    def table_metadata(self) -> Mapping[str, str]:
        """Metadata of the table."""
        return dict(self.wire.table_metadata)

    @property
    def max_fragment_id(self) -> int:
        """Highest fragment id ever used, at least the id of each fragment; -1 at first."""
        highest = int(self.fragment_ids.max()) if self.num_fragments else -1
        if self.wire.HasField("max_fragment_id"):
            return max(self.wire.max_fragment_id, highest)
        return highest

    @property
    def first_field_id(self) -> int:
        """First field id of an overwrite: 0 unless ids must not be reused."""
        wire = self.wire
        return wire.max_allocated_field_id + 1 if wire.HasField("max_allocated_field_id") else 0

    @cached_property
    def base_paths(self) -> dict[int, table_pb2.BasePath]:
        """Base paths by their ids, in order; the first path of each id."""
        first: dict[int, table_pb2.BasePath] = {}
        for base in self.wire.base_paths:
            first.setdefault(base.id, base)
        return first

    def uses(self, feature: Feature) -> bool:
        """Return whether a flag is set in one of the two words."""
        return bool((self.wire.reader_feature_flags | self.wire.writer_feature_flags) & feature)

    @cached_property
    def indices(self) -> list[table_pb2.IndexMetadata]:
        """Wire entries of the index section, in order, checked.

        Errors as for :func:`glaive.format.manifest.decode_index_section`.
        """
        if self.index_section is None:
            return []
        return decode_index_section(self.index_section, self.where)

    # --------------------------------------------------------------- fragments

    @cached_property
    def complete_wire(self) -> table_pb2.ManifestOutline:
        """The message with the row counts of all fragments.

        Row counts that old releases only stored in data files cost one request per fragment, on
        first use.
        """
        if self.read_rows is None or self.stated.rows_known:
            return self.wire
        return self.read_rows(self)

    @cached_property
    def columns(self) -> FragmentColumns:
        """Ids, row counts and row ids of all fragments; parses the list once."""
        wire = self.complete_wire
        return self.stated if wire is self.wire else FragmentColumns(wire, self.where)

    @property
    def num_fragments(self) -> int:
        """Number of fragments."""
        return len(self.wire.fragments)

    def fragment_wire(self, position: int) -> table_pb2.DataFragment:
        """Return a new copy of the checked message of the fragment at a list position.

        Raises
        ------
        CorruptFileError
            It is invalid, or as for :func:`glaive.format.fragment.check_fragment`, or its numbers
            differ from the numbers of :attr:`columns`.
        """
        message = self._parsed(self.complete_wire.fragments[position])
        check_fragment(message, self.where)
        numbers = message.id, message.physical_rows, deleted_by(message), message.inline_row_ids
        self.columns.check_same(position, *numbers)
        return message

    def fragment(self, position: int) -> Fragment:
        """Return the fragment at a list position; errors as for :meth:`fragment_wire`."""
        raw = self.complete_wire.fragments[position]
        fragment = _PARSED.get(raw)
        if fragment is None:
            fragment = Fragment.from_wire(self._parsed(raw), self.where)
            if len(raw) <= _PARSED_BYTES:
                if len(_PARSED) >= _MAX_PARSED:
                    _PARSED.clear()
                _PARSED[raw] = fragment
        deleted = fragment.num_deletions
        numbers = fragment.id, fragment.physical_rows, -1 if deleted is None else deleted
        self.columns.check_same(position, *numbers, fragment.row_ids or b"")
        return fragment

    def _parsed(self, raw: bytes) -> table_pb2.DataFragment:
        return parse(table_pb2.DataFragment(), raw, "fragment", self.where)

    def fragments(self) -> Iterator[Fragment]:
        """Return all fragments, in order."""
        return map(self.fragment, range(self.num_fragments))

    @property
    def title(self) -> str:
        """The version as messages for users name it, by the place of the dataset."""
        root, mark, _ = self.where.rpartition(f"/{VERSIONS}/")
        return f"version {self.version} of {root if mark else self.where}"

    @property
    def fragment_ids(self) -> NDArray[np.int64]:
        """Id of each fragment, in list order."""
        return self.stated.ids

    def position_of(self, fragment_id: int) -> int:
        """Return the list position of the fragment with this id.

        Raises
        ------
        FragmentNotFoundError
            The version lacks this fragment.
        """
        ids = self.fragment_ids
        position = int((ids == fragment_id).argmax()) if len(ids) else 0
        if not len(ids) or ids[position] != fragment_id:
            raise FragmentNotFoundError(f"version {self.version} has no fragment {fragment_id}")
        return position

    @property
    def physical_rows(self) -> NDArray[np.int64]:
        """Physical rows of each fragment.

        0 if unknown: in incomplete manifests of releases up to 0.7.
        """
        return self.columns.physical_rows

    @property
    def deleted_rows(self) -> NDArray[np.int64]:
        """Deleted rows of each fragment; -1 if only the deletion file has their number."""
        return self.columns.deleted_rows

    def count_rows(self) -> int | None:
        """Return the number of live rows; ``None`` if the manifest of an old dataset lacks it."""
        return self.columns.count_rows()


def decode_manifest(
    data: pa.Buffer,
    *,
    where: str,
    scheme: NamingScheme = "V2",
    to_read: bool = True,
    verify: bool | Callable[[], bool] = False,
) -> Manifest:
    """Decode a manifest file; ``to_read`` checks that this reader supports its features.

    With ``verify`` it is compared with its checksums, if it has any; a function is only asked then.

    Raises
    ------
    NotLanceError
        The bytes do not end like a manifest.
    CorruptFileError
        A section is outside of the file, invalid, or was changed.
    UnsupportedFeatureError
        The version uses a feature that glaive lacks.
    """
    footer = ManifestFooter.parse(data, data.size, where=where)
    view = memoryview(data)
    end = data.size - ManifestFooter.SIZE
    raw = _section(view, footer.position, end, "manifest", where)
    if (size := end - footer.position - _LENGTH.size) != len(raw):  # zero bytes are a message, too
        what, exact = "length of the manifest", f"{size} bytes, those before the footer"
        raise CorruptFileError(what, expected=exact, found=str(len(raw)), where=where)
    wire = parse(table_pb2.ManifestOutline(), raw, "manifest", where)
    if to_read:
        check_readable(wire.reader_feature_flags, wire.writer_feature_flags, where=where)
    if wire.transaction_file:
        check_file_name(wire.transaction_file, "name of the transaction's file", where)
    check_base_paths(wire.base_paths, where)

    sections_end = 0

    def section(name: str, *fields: Any) -> bytes | None:
        """Return the section at the offset in the first of these fields that is set."""
        nonlocal sections_end
        for field in fields:
            if wire.HasField(field):
                at = getattr(wire, field)
                found = bytes(_section(view, at, footer.position, name, where))
                sections_end = max(sections_end, at + _LENGTH.size + len(found))
                return found
        return None

    transaction = section("transaction", "transaction_section", "transaction_section_deprecated")
    index_section = section("index section", "index_section")
    if verify:
        stated, own = wire.has_checksums, wire.writer_version.library == WRITER[0]
        known = has_checksums(view, footer.position, sections_end, stated=stated, own=own)
        if known and (verify is True or verify()):
            compare_manifest(view, footer.position, sections_end, where)
    manifest = Manifest(
        wire, where=where, scheme=scheme, transaction=transaction, index_section=index_section
    )
    manifest.stated = FragmentColumns(wire, where, raw, all_rows=wire.HasField("writer_version"))
    return manifest


def _section(view: memoryview, at: int, end: int, name: str, where: str) -> memoryview:
    """Return bytes of the section whose length is at ``at``; check that it ends by ``end``."""
    if at + _LENGTH.size > end:
        what = f"position of the {name}"
        raise CorruptFileError(what, expected=f"below {end}", found=f"{at}", where=where)
    (size,) = _LENGTH.unpack_from(view, at)
    start = at + _LENGTH.size
    if start + size > end:
        what, expected = f"length of the {name}", f"at most {end - start} bytes"
        raise CorruptFileError(what, expected=expected, found=f"{size}", where=where)
    return view[start : start + size]


def encode_manifest(
    wire: table_pb2.ManifestOutline,
    *,
    transaction: bytes,
    index_section: bytes | None,
    dictionaries: Sequence[bytes] = (),
    checksum: Callable[[BytesLike], int] | None = None,
) -> list[bytes]:
    """Return the parts of a manifest file; sets the offsets of sections in ``wire``.

    ``dictionaries`` come first, at the offsets in the fields of ``wire``. With a function for them
    the manifest gets checksums.
    """
    parts: list[bytes] = list(dictionaries)
    position = sum(map(len, parts))
    wire.ClearField("index_section")
    wire.ClearField("transaction_section_deprecated")
    if index_section is not None:
        wire.index_section = position
        parts += [_LENGTH.pack(len(index_section)), index_section]
        position += _LENGTH.size + len(index_section)
    wire.transaction_section = position
    parts += [_LENGTH.pack(len(transaction)), transaction]
    position += _LENGTH.size + len(transaction)
    wire.has_checksums = checksum is not None
    message = wire.SerializeToString()
    size = SIZE if wire.has_checksums else 0
    last = [_LENGTH.pack(len(message)), message, ManifestFooter(position + size).build()]
    if checksum is not None:
        parts.append(manifest_checksums(checksum, parts, last))
    return parts + last
