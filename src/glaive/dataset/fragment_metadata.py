"""Fragments as values that users construct, change and send.

They have pylance's names, and their JSON is compatible with pylance's. A commit converts them to
the classes of :mod:`glaive.format.fragment`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, MutableSet
from dataclasses import asdict, replace
from itertools import islice
from json import dumps, loads
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from glaive.dataclass import dataclass
from glaive.dataset.version import warn_deprecated
from glaive.dataset.writing.conform import match_schema
from glaive.errors import (
    CorruptFileError,
    OptionError,
    OptionRangeError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format import fragment as stored
from glaive.format.bitmaps import is_of_runs
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.paths import deletion_file_path
from glaive.format.pb import table_pb2
from glaive.format.rowids import count_row_ids, decode_row_ids, encode_row_ids
from glaive.format.wire import (
    MAX_FIELD_ID,
    MAX_FRAGMENT_ID,
    MAX_FRAGMENT_ROWS,
    is_file_name,
    parse_bitmap,
)
from glaive.options import integer
from glaive.scan.snapshot import Snapshot
from glaive.types import FormatVersion, integer_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset


# --- ``Bitmap``: a compressed set of small integers; pylance calls it ``lance.bitmap``

_MAX_UINT32: Final = 2**32 - 1
_MAX_UINT64: Final = 2**64 - 1

_MAX_SHOWN = 1_000
"""Maximum number of integers to show: a few bytes may encode billions."""


class Bitmap(MutableSet[int]):
    """A set of integers from 0 to 2**32 - 1, such as ids of fragments, in order.

    Unlike built-in sets, operators also take any iterable of integers.

    Parameters
    ----------
    values
        Integers, an Arrow array of valid integers, or another bitmap.

    Raises
    ------
    OptionError
        A value is null, is not an integer, or is out of range.
    """

    __slots__ = ("_bits",)
    __hash__ = None  # type: ignore[assignment]  # it can change

    def __init__(self, values: Iterable[int] | pa.Array | pa.ChunkedArray | None = None) -> None:
        self._bits: Any = _bits(() if values is None else values)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and 0 <= value <= _MAX_UINT32 and value in self._bits

    def __iter__(self) -> Iterator[int]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return len(self) == len(other) and all(one in self for one in other)
        return super().__eq__(other)

    def __repr__(self) -> str:
        shown = [*map(str, islice(self._bits, _MAX_SHOWN)), *["…"][: len(self) > _MAX_SHOWN]]
        return f"Bitmap({{{', '.join(shown)}}})"

    def __reduce__(self) -> tuple[object, ...]:
        return Bitmap._of, (self._bits.serialize(),)

    @classmethod
    def _of(cls, data: bytes) -> Bitmap:
        return cls.of_roaring(BitMap.deserialize(data))

    @classmethod
    def of_roaring(cls, bits: BitMap) -> Self:
        """Return a bitmap that shares these bits."""
        made = cls()
        made._bits = bits  # of this class
        return made

    def add(self, value: int) -> None:
        """Add an integer."""
        self._bits.add(_integer(value))

    def discard(self, value: int) -> None:
        """Remove an integer, if present."""
        if value in self:
            self._bits.discard(value)

    def update(self, values: Iterable[int]) -> None:
        """Add integers."""
        self._bits |= _bits(values)

    def clear(self) -> None:
        """Remove all integers."""
        self._bits = BitMap()

    def copy(self) -> Self:
        """Return a copy."""
        return type(self)(self)

    union, intersection = MutableSet.__or__, MutableSet.__and__
    difference, symmetric_difference = MutableSet.__sub__, MutableSet.__xor__

    def issubset(self, other: Iterable[int]) -> bool:
        """Return whether the other set contains all integers of this set."""
        return self <= Bitmap(other)

    def issuperset(self, other: Iterable[int]) -> bool:
        """Return whether this set contains all integers of the other set."""
        return self >= Bitmap(other)


def _bits(values: Any) -> Any:
    if isinstance(values, Bitmap):
        return BitMap(values._bits)  # noqa: SLF001  # of this module
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise OptionError("Bitmap cannot be constructed from an array containing nulls")
        values = values.to_pylist()
    return BitMap([_integer(value) for value in values])


def _integer(value: Any) -> int:
    number = int(value) if isinstance(value, bool) else integer_of(value)
    if number is None:
        raise OptionError(f"Bitmap: expected integers, found {value!r:.60}")
    if not 0 <= number <= _MAX_UINT32:
        raise OptionError(f"Bitmap values must fit in an unsigned 32-bit integer, got {number}")
    return number


# --- Data files and deletion files as values that users construct, change and send ------

_KINDS = ("array", "bitmap")


def checked_integer(value: object, name: str, highest: int = _MAX_UINT64, lowest: int = 0) -> int:
    """Return the value as an integer within bounds.

    Raises
    ------
    OptionError
        The value is not an integer, or is out of bounds.
    """
    number: int = integer(lowest, highest).check(name, value)
    return number


def _optional(value: object, name: str, highest: int) -> int | None:
    return None if value is None else checked_integer(value, name, highest)


class FilePath(str):
    """A path that may also be called, as older clients of pylance do: ``file.path()``."""

    __slots__ = ()

    def __call__(self) -> str:
        """Return the path."""
        warn_deprecated("DataFile.path() is deprecated, use DataFile.path instead")
        return str(self)

    def __reduce__(self) -> tuple[object, ...]:
        return FilePath, (str(self),)


@dataclass
class DataFile:
    """One data file.

    Parameters
    ----------
    path
        Path below ``data``; ends in ``.lance``.
    fields
        Ids of the fields in the file; -2 for columns that were replaced.
    column_indices
        Column number of each field; empty in files of format 0.1.
    file_major_version, file_minor_version
        Format version.
    file_size_bytes
        Size of the file in bytes, if known.
    base_id
        Id of the base path of the file; ``None`` for the dataset itself.
    """

    path: str
    fields: list[int]
    column_indices: list[int] = dataclasses.field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = None

    def __repr__(self) -> str:
        based = "" if self.base_id is None else f", base_id={self.base_id}"
        return (
            f"DataFile(path={str(self.path)!r}, fields={self.fields}, "
            f"column_indices={self.column_indices}, file_major_version={self.file_major_version}, "
            f"file_minor_version={self.file_minor_version}, "
            f"file_size_bytes={self.file_size_bytes}{based})"
        )

    def __post_init__(self) -> None:
        self.path = FilePath(self.path)
        self.fields, self.column_indices = list(self.fields), list(self.column_indices or ())

    @classmethod
    def create(cls, dataset: OpenDataset, path: str, *, base_id: int | None = None) -> DataFile:
        """Describe an existing file; columns are matched by name.

        Parameters
        ----------
        path
            Path below ``data``, or below the base path.

        Raises
        ------
        DataFileMissingError, SchemaError
            The file is missing, or has columns that the dataset lacks.
        """
        return cls.of(described_file(dataset.opened.snapshot, path, base_id))

    def field_ids(self) -> list[int]:
        """Return ``fields``. Deprecated: use :attr:`fields`."""
        warn_deprecated("DataFile.field_ids is deprecated, use DataFile.fields instead")
        return self.fields

    @property
    def version(self) -> FormatVersion:
        """Format version."""
        return stored.storage_version(self.file_major_version, self.file_minor_version)

    @classmethod
    def of(cls, file: stored.DataFile | DataFile) -> DataFile:
        """Convert from the manifest representation."""
        if isinstance(file, DataFile):
            return file
        wire = file.to_wire()
        return cls(
            file.path,
            list(file.fields),
            list(file.column_indices),
            wire.file_major_version,
            wire.file_minor_version,
            file.size,
            file.base_id,
        )

    def to_stored(self) -> stored.DataFile:
        """Convert to the manifest representation.

        Raises
        ------
        OptionError
            A number or the path is invalid, or the numbers of fields and columns differ.
        """
        path = str(self.path)
        name = f"data file {path!r:.60}"
        if not (is_file_name(path) and path.endswith(".lance")):  # glaive opens only such files
            raise OptionError(
                f"{name}: expected a path below the folder of data files that ends in .lance"
            )
        fields, columns = (
            tuple(
                checked_integer(number, f"{attribute} of {name}", MAX_FIELD_ID, -MAX_FIELD_ID)
                for number in getattr(self, attribute)
            )
            for attribute in ("fields", "column_indices")
        )
        major, minor = (
            checked_integer(number, f"format version of {name}", _MAX_UINT32)
            for number in (self.file_major_version, self.file_minor_version)
        )
        file = stored.DataFile(
            path=path,
            fields=fields,
            column_indices=columns,
            version=stored.storage_version(major, minor),
            size=_optional(self.file_size_bytes, f"size of {name}", _MAX_UINT64),
            base_id=_optional(self.base_id, f"base_id of {name}", _MAX_UINT32),
        )
        try:
            file.columns()  # a version with invalid columns is unreadable
        except CorruptFileError as error:
            raise OptionError(
                f"{name}: {error.what}: expected {error.expected}, found {error.found}"
            ) from None
        return file

    def to_wire(self) -> table_pb2.DataFile:
        """Make the wire message; :meth:`to_stored` lists the errors."""
        return self.to_stored().to_wire()

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        values = asdict(self)
        return values | {"path": str(values.pop("path"))}


@dataclass
class DeletionFile:
    """The deleted rows of a fragment.

    Parameters
    ----------
    read_version, id
        Parts of the file's name.
    file_type
        ``"array"`` or ``"bitmap"``.
    num_deleted_rows
        Number of deleted rows, if known.
    base_id
        Id of the base path of the file; ``None`` for the dataset itself.
    """

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int | None
    base_id: int | None = None

    def __post_init__(self) -> None:
        if self.file_type not in _KINDS:
            raise OptionError(f"file_type: expected 'array' or 'bitmap', found {self.file_type!r}")

    def __repr__(self) -> str:
        return f"DeletionFile(type={self.file_type!r}, num_deleted_rows={self.num_deleted_rows})"

    @classmethod
    def of(cls, file: stored.DeletionFile | DeletionFile) -> DeletionFile:
        """Convert from the manifest representation."""
        if isinstance(file, DeletionFile):
            return file
        return cls(file.read_version, file.number, _KINDS[file.bitmap], file.rows, file.base_id)

    def to_stored(self) -> stored.DeletionFile:
        """Convert to the manifest representation.

        Raises
        ------
        OptionError
            A number is out of range.
        """
        owner = "of a deletion file"
        return stored.DeletionFile(
            bitmap=self.file_type == "bitmap",
            read_version=checked_integer(self.read_version, f"read_version {owner}"),
            number=checked_integer(self.id, f"id {owner}"),
            rows=_optional(self.num_deleted_rows, f"num_deleted_rows {owner}", _MAX_UINT64),
            base_id=_optional(self.base_id, f"base_id {owner}", _MAX_UINT32),
        )

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """Return the path within the dataset, or below ``base_uri``."""
        bitmap = self.file_type == "bitmap"
        path = deletion_file_path(fragment_id, self.read_version, self.id, bitmap=bitmap)
        return path if base_uri is None else f"{base_uri.rstrip('/')}/{path}"

    def asdict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return asdict(self)

    def json(self) -> str:
        """Encode as JSON."""
        return dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Decode the output of :meth:`json`.

        Raises
        ------
        OptionError
            The string is invalid.
        """
        try:
            return cls(**loads(json))
        except (RecursionError, TypeError, ValueError) as error:
            raise OptionError(f"expected a deletion file, found {json!r:.80} ({error})") from error


# --- Data overlays: files that replace values of single rows of a fragment --------------
# glaive reads transactions with overlays, but refuses to write overlays.


@dataclass
class DataOverlayFile:
    """New values for some rows of a fragment.

    Parameters
    ----------
    data_file
        The file with the values, one column per field.
    offsets
        The physical rows that have values, each once: integers, or one list of integers per
        field if the fields differ. Read overlays have a ``Bitmap`` for long runs.
    committed_version
        The version that added the overlay; ``None`` if uncommitted.
    """

    data_file: DataFile
    offsets: Iterable[int] | list[Iterable[int]]
    committed_version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {
            "data_file": self.data_file.to_json(),
            "offsets": [
                offset if isinstance(offset, int) else sorted(offset) for offset in self.offsets
            ],
            "committed_version": self.committed_version,
        }


def read_overlay(message: table_pb2.DataOverlayFile) -> DataOverlayFile:
    """Read an overlay."""
    file = DataFile.of(stored.DataFile.from_wire(message.data_file))
    if message.WhichOneof("coverage") == "field_coverage":
        rows: Any = [_rows(bitmap) for bitmap in message.field_coverage.bitmaps]
    else:
        rows = _rows(message.shared_offset_bitmap)
    return DataOverlayFile(file, rows, message.committed_version)


def _rows(bitmap: bytes) -> Iterable[int]:
    rows = parse_bitmap(bitmap, "rows of a data overlay", "a transaction")
    if not is_of_runs(len(rows), len(bitmap)):
        return list(rows)

    return Bitmap.of_roaring(rows)


# --- Stable row ids and row versions in fragments that users construct ------------------
# Specification: "Row ids" in ``docs/format/rowids.md``.

_WHERE: Final = "row ids of a fragment"


@dataclass(slots=True, eq=True)
class _RowValues:
    """Values of the rows of a fragment: in wire format, or in a hidden column of its files."""

    _INLINE: ClassVar[str]
    _COLUMN: ClassVar[str]

    inline: bytes | None = dataclasses.field(default=None, repr=False)
    """The wire format; ``None`` if the values are in a column."""

    def asdict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        if self.inline is None:
            return {self._COLUMN: {}}
        return {self._INLINE: list(self.inline)}

    def json(self) -> str:
        """Encode as JSON."""
        return dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Decode the output of :meth:`json`.

        Raises
        ------
        OptionError
            The string is invalid.
        """
        try:
            values = loads(json)
        except (RecursionError, TypeError, ValueError) as error:
            raise OptionError(f"{cls.__name__}: expected JSON, found {json!r:.60}") from error
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, dict: Any) -> Self:  # noqa: A002  # pylance's name
        """Decode the output of :meth:`asdict`.

        Raises
        ------
        OptionError
            The argument is invalid.
        """
        if dict == cls._COLUMN:
            return cls()
        try:
            ((key, value),) = dict.items()
            if key == cls._COLUMN:
                return cls()
            if key == cls._INLINE and not isinstance(value, int):  # bytes(3) would be three zeros
                return cls(bytes(value))
        except (AttributeError, TypeError, ValueError):
            pass  # reported below
        raise OptionError(
            f"{cls.__name__}: expected {cls._INLINE!r} with bytes or {cls._COLUMN!r}, found "
            f"{dict!r:.60}"
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, and not frozen


@dataclass(slots=True, eq=True)
class RowIdMeta(_RowValues):
    """The stable row ids of a fragment; :class:`RowIdSequence` encodes and decodes them."""

    _INLINE: ClassVar[str] = "Inline"
    _COLUMN: ClassVar[str] = "Column"


@dataclass(slots=True, eq=True)
class RowDatasetVersionMeta(_RowValues):
    """For each row of a fragment the version that created it, or that last updated it."""

    _INLINE: ClassVar[str] = "inline"
    _COLUMN: ClassVar[str] = "column"


class RowIdSequence:
    """Stable row ids of the rows of one fragment, in their order.

    Rewritten rows keep their ids if you give their new fragment
    ``row_id_meta=RowIdSequence(ids).to_inline_metadata()``. The commit assigns new ids to rows
    beyond the last id.

    Parameters
    ----------
    row_ids
        Unique ids: a range, an array, or integers.

    Raises
    ------
    OptionError
        An id is null, invalid, or a duplicate.
    """

    __slots__ = ("_ids",)

    def __init__(self, row_ids: range | pa.Array | pa.ChunkedArray | Iterable[int]) -> None:
        run = isinstance(row_ids, range) and row_ids.step == 1 and row_ids.start >= 0
        self._ids: Any = row_ids if run else _numbers(row_ids)

    @staticmethod
    def from_inline_metadata(metadata: RowIdMeta) -> RowIdSequence:
        """Decode the ids of a fragment.

        Raises
        ------
        OptionError
            The ids are in a column of the fragment's files.
        CorruptFileError
            The ids are invalid.
        """
        if metadata.inline is None:
            raise OptionError(
                "row ids: this fragment keeps them in a column of its files. Read _rowid with a "
                "scan of the fragment."
            )
        sequence = RowIdSequence(())
        count = count_row_ids(metadata.inline, where=_WHERE)
        sequence._ids = decode_row_ids(metadata.inline, count, where=_WHERE)
        return sequence

    def to_inline_metadata(self) -> RowIdMeta:
        """Return the ids for a ``FragmentMetadata``."""
        return RowIdMeta(encode_row_ids(self._ids))

    def to_pyarrow(self) -> pa.UInt64Array:
        """Return the ids as an array."""
        return pa.array(np.asarray(self._ids, np.uint64), pa.uint64())

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids if isinstance(self._ids, range) else self._ids.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowIdSequence):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __repr__(self) -> str:
        first_ids = [str(row_id) for row_id, _ in zip(self, range(10), strict=False)]
        return f"RowIdSequence([{', '.join(first_ids)}{', …' if len(self) > 10 else ''}])"

    def __reduce__(self) -> tuple[object, ...]:
        ids = self._ids if isinstance(self._ids, range) else self.to_pyarrow()
        return (RowIdSequence, (ids,))


def _numbers(given: Any) -> NDArray[np.uint64]:
    try:
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        array = given if isinstance(given, pa.Array) else pa.array(list(given), pa.uint64())
        if array.null_count:
            raise OptionError(f"row_ids: expected no nulls, found {array.null_count}")
        ids: NDArray[np.uint64] = array.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except (OverflowError, TypeError, pa.ArrowException) as error:
        kind = OptionRangeError if isinstance(error, OverflowError) else OptionError
        raise kind(f"row_ids: expected integers ≥ 0 ({error})") from error
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(repeated):
        raise OptionError(f"row_ids: {int(ordered[repeated[0]])} occurs more than once")
    return ids.astype(np.uint64, copy=True)


@dataclass
class FragmentMetadata:
    """One fragment.

    Parameters
    ----------
    id
        Id within the dataset; the commit assigns it to new fragments.
    files
        Data files. Each holds some columns of all rows.
    physical_rows
        Number of rows in the files, including deleted rows.
    deletion_file
        File of deleted rows; ``None`` if all rows are live.
    row_id_meta
        Stable row ids, made by :class:`glaive.fragment.RowIdSequence`.
    created_at_version_meta, last_updated_at_version_meta
        Versions of the rows; commits compute them.
    overlays
        Files that replace values of single rows; glaive cannot commit overlays.
    """

    id: int
    files: list[DataFile]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_meta: RowIdMeta | None = None
    created_at_version_meta: RowDatasetVersionMeta | None = None
    last_updated_at_version_meta: RowDatasetVersionMeta | None = None
    overlays: list[DataOverlayFile] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, fragment: stored.Fragment | FragmentMetadata) -> FragmentMetadata:
        """Convert from the manifest representation."""
        if isinstance(fragment, FragmentMetadata):
            return fragment
        deletions, ids = fragment.deletion_file, fragment.row_ids
        return cls(
            fragment.id,
            [DataFile.of(file) for file in fragment.files],
            fragment.physical_rows,
            None if deletions is None else DeletionFile.of(deletions),
            RowIdMeta(ids) if ids is not None or fragment.row_ids_in_column else None,
            _versions(fragment.created_at, in_column=fragment.created_at_in_column),
            _versions(fragment.updated_at, in_column=fragment.updated_at_in_column),
        )

    def to_stored(self) -> stored.Fragment:
        """Convert to the manifest representation.

        Raises
        ------
        OptionError
            A part has a wrong type, or a number is out of range.
        UnsupportedFeatureError
            The fragment has overlays.
        """
        if self.overlays:
            raise UnsupportedFeatureError(
                f"fragment {self.id}: this version of glaive does not commit data overlays"
            )
        files: list[Any] = list(self.files)
        wrong = [file for file in files if not isinstance(file, DataFile | stored.DataFile)]
        if wrong:
            raise OptionError(f"files of fragment {self.id}: expected DataFile, found {wrong[0]!r}")
        deletions: Any = self.deletion_file
        if not isinstance(deletions, DeletionFile | stored.DeletionFile | None):
            raise OptionError(
                f"deletion_file of fragment {self.id}: expected DeletionFile, found "
                f"{deletions!r:.60}"
            )
        ids, created = self.row_id_meta, self.created_at_version_meta
        updated = self.last_updated_at_version_meta
        fragment = f"of fragment {self.id!r:.40}"
        rows = checked_integer(self.physical_rows, f"physical_rows {fragment}", MAX_FRAGMENT_ROWS)
        deleted = None if deletions is None else DeletionFile.of(deletions).to_stored()
        if deleted is not None and deleted.rows is not None and rows:  # 0 is an unknown number
            checked_integer(deleted.rows, f"num_deleted_rows {fragment}", rows)
        return stored.Fragment(
            id=checked_integer(self.id, "id of a fragment", MAX_FRAGMENT_ID),
            files=tuple(DataFile.of(file).to_stored() for file in files),
            physical_rows=rows,
            deletion_file=deleted,
            row_ids=None if ids is None else ids.inline,
            row_ids_in_column=ids is not None and ids.inline is None,
            created_at=None if created is None else created.inline,
            created_at_in_column=created is not None and created.inline is None,
            updated_at=None if updated is None else updated.inline,
            updated_at_in_column=updated is not None and updated.inline is None,
        )

    def to_wire(self) -> table_pb2.DataFragment:
        """Make the wire message; :meth:`to_stored` lists the errors."""
        return self.to_stored().to_wire()

    def data_files(self) -> list[DataFile]:
        """Return ``files``. Deprecated: use :attr:`files`."""
        warn_deprecated("FragmentMetadata.data_files is deprecated. Use .files instead.")
        return self.files

    @property
    def num_deletions(self) -> int | None:
        """Number of deleted rows; ``None`` if only the deletion file has it."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return self.physical_rows - (self.num_deletions or 0)

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can represent, as pylance does."""
        deletions, ids = self.deletion_file, self.row_id_meta
        created, updated = self.created_at_version_meta, self.last_updated_at_version_meta
        return {
            "id": self.id,
            "files": [DataFile.of(file).to_json() for file in self.files],
            "overlays": [overlay.to_json() for overlay in self.overlays],
            "physical_rows": self.physical_rows,
            "deletion_file": None if deletions is None else DeletionFile.of(deletions).asdict(),
            "row_id_meta": None if ids is None else ids.asdict(),
            "created_at_version_meta": None if created is None else created.asdict(),
            "last_updated_at_version_meta": None if updated is None else updated.asdict(),
        }

    @staticmethod
    def from_json(json_data: str | Mapping[str, Any]) -> FragmentMetadata:
        """Decode the output of :meth:`to_json`, as a string or as values.

        Raises
        ------
        OptionError
            The argument is invalid.
        """
        try:
            values = loads(json_data) if isinstance(json_data, str) else json_data
            deletions, ids = values.get("deletion_file"), values.get("row_id_meta")
            return FragmentMetadata(
                id=values["id"],
                files=[DataFile(**file) for file in values["files"]],
                physical_rows=values["physical_rows"],
                deletion_file=None if deletions is None else DeletionFile(**deletions),
                row_id_meta=None if ids is None else RowIdMeta.from_dict(ids),
                created_at_version_meta=_read_versions(values.get("created_at_version_meta")),
                last_updated_at_version_meta=_read_versions(
                    values.get("last_updated_at_version_meta")
                ),
                overlays=[_overlay(overlay) for overlay in values.get("overlays") or ()],
            )
        except (RecursionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise OptionError(
                f"expected the output of to_json(), found {json_data!r:.80} ({error})"
            ) from error


def _versions(wire: bytes | None, *, in_column: bool) -> RowDatasetVersionMeta | None:
    return RowDatasetVersionMeta(wire) if wire is not None or in_column else None


def _read_versions(values: Any) -> RowDatasetVersionMeta | None:
    return None if values is None else RowDatasetVersionMeta.from_dict(values)


def _overlay(values: Mapping[str, Any]) -> DataOverlayFile:
    file = DataFile(**values["data_file"])
    return DataOverlayFile(file, values["offsets"], values.get("committed_version"))


def checked_fragments(given: Any, name: str) -> list[FragmentMetadata]:
    """Return the argument as a list of fragments.

    Raises
    ------
    OptionError
        The argument is not a list, or an item is not a fragment.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise OptionError(
            f"fragments must be list[FragmentMetadata], got {type(given)}: {name}: expected a list "
            f"of FragmentMetadata, found {given!r:.60}"
        )
    fragments = list(given)
    for fragment in fragments:
        if not isinstance(fragment, FragmentMetadata | stored.Fragment):
            raise OptionError(
                f"fragments must be list[FragmentMetadata], got {type(fragment)}: {name}: expected "
                f"FragmentMetadata, found {fragment!r:.60}"
            )
    return [FragmentMetadata.of(fragment) for fragment in fragments]


def stored_fragments(given: Iterable[Any], name: str) -> tuple[stored.Fragment, ...]:
    """Return the argument in manifest form; :func:`checked_fragments` lists the errors."""
    return tuple(fragment.to_stored() for fragment in checked_fragments(given, name))


# --- Describe existing data files by the fields of a dataset ----------------------------


def described_file(snapshot: Snapshot, name: str, base_id: int | None) -> stored.DataFile:
    """Describe a data file with some of the columns.

    Raises
    ------
    DataFileMissingError
        The file is missing.
    SchemaError
        The file has columns that the dataset lacks, or columns of other types.
    """
    schema = snapshot.manifest.schema
    reader = opened_file(snapshot, name, base_id)
    names = set(reader.schema.names)
    some = replace(schema, fields=tuple(field for field in schema.fields if field.name in names))
    match_schema(reader.schema.to_arrow(), some, where=snapshot.store.uri)
    return file_of(reader, name, schema, base_id)


def opened_file(snapshot: Snapshot, name: str, base_id: int | None) -> Any:
    """Open a data file outside of fragments."""
    unknown = stored.DataFile(
        path=name,
        fields=(),
        column_indices=(),
        version=snapshot.manifest.data_format,
        base_id=base_id,
    )
    return snapshot.open_file(unknown)


def file_of(reader: Any, name: str, schema: LanceSchema, base_id: int | None) -> stored.DataFile:
    """Return the manifest entry of an opened data file, with the dataset's field ids."""
    numbers = dict(_pairs(reader.schema, schema))
    # Entries of format 0.1 list all fields, but omit columns.
    legacy = reader.version == stored.LEGACY
    columns: dict[int, int] = (
        dict.fromkeys(reader.schema.field_ids(), 0) if legacy else reader.column_numbers()
    )
    return stored.DataFile(
        path=name,
        fields=tuple(numbers[column] for column in columns),
        column_indices=() if legacy else tuple(columns.values()),
        version=reader.version,
        size=reader.reader.size,
        base_id=base_id,
    )


def _pairs(stored: LanceSchema, wanted: LanceSchema) -> list[tuple[int, int]]:
    """Return pairs of field ids (file, dataset), matched by name at every level."""
    pairs: list[tuple[int, int]] = []

    def match(file_fields: tuple[Field, ...], dataset_fields: tuple[Field, ...]) -> None:
        known = {field.name: field for field in dataset_fields}
        for field in file_fields:
            other = known.get(field.name)
            if other is None or (other.children == ()) != (field.children == ()):
                raise SchemaError(f"column {field.name!r} of the file does not match the dataset")
            pairs.append((field.id, other.id))
            match(field.children, other.children)

    match(stored.fields, wanted.fields)
    return pairs
