"""Plan a write: everything that is decided before the first row is written.

``write_dataset``, ``write_fragments``, ``LanceFragment.create``, Spark, updates, merges,
compaction and new columns all call :func:`plan_write`, so they make the same checks.
:func:`glaive.dataset.writing.fragments.write_fragments` executes a plan, here or in other
processes, and :func:`glaive.dataset.writing.commit.commit_plan` commits the result.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, fields, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from glaive.arrow.nesting import check_schema
from glaive.dataclass import dataclass
from glaive.dataset.blobs.columns import with_blob_type
from glaive.dataset.writing.base_paths import (
    DataLocation,
    blob_bases,
    find_locations,
    numbered,
)
from glaive.dataset.writing.conform import check_names, match_schema
from glaive.dataset.writing.options import WriteOptions
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
)
from glaive.file.blob_options import BlobOptions
from glaive.file.legacy.profile import LegacyProfile
from glaive.file.open import check_columns
from glaive.file.versions import PROFILES, Profile, resolve_version
from glaive.format.declared_keys import check_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.flags import check_writable
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.access import allow_copies, open_external
from glaive.io.store import ObjectStore
from glaive.table.checksums import wants_checksums
from glaive.table.dictionaries import load_dictionaries
from glaive.table.fragment_ids import check_mixing
from glaive.table.load import open_latest
from glaive.table.root import access_of
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    from glaive.file.v2.writing.column_options import GivenOptions

__all__ = ["WritePlan", "exists_already", "plan_write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """How to write rows to data files and commit them. Made by :func:`plan_write`.

    Can be pickled; the pickle is small because it omits ``base``.

    Parameters
    ----------
    store
        Root of the dataset.
    options
        Mode, limits of files and pages, encodings, and metadata of the version.
    schema
        Columns of the files, with their existing or future field ids.
    version
        Format version of the files, such as ``2.2``.
    read_version
        Version of the dataset that this was planned for; 0 to create it.
    identity
        What that version is recognised by; None to create the dataset.
    base
        Manifest of that version, which saves the commit a request.
    new_bases
        Base paths of a new dataset.
    locations
        Locations of data files, used in turn.
    blobs
        How blob values are stored, with the base paths of the dataset.
    dictionaries
        Dictionary values by field id, if all files of the dataset must share them.
    checksums
        Whether files get checksums, by the configuration of the dataset; None if it says nothing.
    """

    store: ObjectStore = field(repr=False)
    options: WriteOptions
    schema: LanceSchema
    version: str
    read_version: int = 0
    identity: VersionIdentity | None = None
    base: Manifest | None = field(default=None, compare=False, repr=False)
    new_bases: tuple[table_pb2.BasePath, ...] = ()
    locations: tuple[DataLocation, ...]
    blobs: BlobOptions
    dictionaries: dict[int, pa.Array] = field(default_factory=dict, hash=False)
    checksums: bool | None = None

    @property
    def appends(self) -> bool:
        """Whether existing rows are kept."""
        return bool(self.read_version) and self.options.mode == "append"

    @property
    def encoding_options(self) -> GivenOptions | None:
        """Encoding options of columns, with what is preferred where none are given."""
        given, compression = self.options.encoding_options, self.options.compression
        if compression == "automatic" or isinstance(self.profile, LegacyProfile):
            return given
        # Imported here: few writes have options, and the format 0.1 has none.
        from glaive.file.v2.writing.column_options import EVERY

        return {EVERY: {"compression": compression}, **(given or {})}

    @property
    def profile(self) -> Profile:
        """The profile of the format version."""
        return PROFILES[self.version]

    def __reduce__(self) -> tuple[object, ...]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return partial(WritePlan, **{**values, "base": None}), ()


def plan_write(
    store: ObjectStore,
    columns: pa.Schema | LanceSchema,
    options: WriteOptions,
    base: Manifest | None = None,
) -> WritePlan:
    """Read the manifest, if there is one, and plan a write.

    Parameters
    ----------
    store
        Root of the dataset.
    columns
        Schema of the rows; appends match it by name with the columns of the dataset. A
        :class:`LanceSchema` has field ids already: for existing columns that are rewritten, or
        new columns of existing fragments.
    options
        Options of the caller.
    base
        The version to write for; default: the newest.

    Raises
    ------
    DatasetExistsError
        Mode ``create``, and there is a dataset already.
    SchemaError
        The columns do not match the dataset, are invalid, or the format does not support their
        types.
    OptionError, ColumnNotFoundError
        There is no such format or base path, or encoding options are invalid.
    UnsupportedFeatureError
        The dataset uses a feature that this writer does not support.
    CommitConflictError
        It is to replace an expected version, and there is a newer one.

    Notes
    -----
    Two requests without ``base``. No data file is read, except for datasets of format 0.1 with
    dictionary columns.
    """
    if base is None:
        with suppress(DatasetNotFoundError):
            base = open_latest(store, to_follow=True)
    _check_expected(store, base, options)
    if base is not None:
        _check_base(store, base, options)
    version = options.data_storage_version
    if version is None and base is not None:
        version = str(base.data_format)
    version = resolve_version(version)
    schema = _with_ids(store, columns, options, base, PROFILES[version])
    check_columns(schema, version, options.encoding_options)
    shared = {}
    if base is not None and options.mode == "append":
        check_mixing(base.data_format, [PROFILES[version].version])
        shared = load_dictionaries(store, base)
    new_bases = numbered(options.initial_bases)
    bases = new_bases if base is None else tuple(base.base_paths.values())
    targets, everywhere = options.target_bases, options.target_all_bases
    opener = partial(_open_copied, store)
    return WritePlan(
        store=store,
        options=options,
        schema=schema,
        version=version,
        read_version=0 if base is None else base.version,
        identity=None if base is None else base.identity,
        base=base,
        new_bases=new_bases,
        locations=find_locations(store, bases, targets, everywhere=everywhere),
        blobs=replace(options.blobs, bases=blob_bases(bases), opener=opener),
        dictionaries=shared,
        checksums=None if base is None else wants_checksums(base.wire),
    )


def exists_already(where: str, version: int) -> DatasetExistsError:
    """The error of mode ``create`` if there is a dataset."""
    return DatasetExistsError(
        f"Dataset already exists: {where} is a dataset already (version {version}). Use "
        "mode='append' or mode='overwrite', or choose another location."
    )


def _check_expected(store: ObjectStore, base: Manifest | None, options: WriteOptions) -> None:
    """Refuse to replace another version than the one that the rows were made from."""
    found = 0 if base is None else base.version
    if options.expected_version not in (None, found):
        raise CommitConflictError(
            f"{store.uri} is at version {found}, and the rows that replace it were made from "
            f"version {options.expected_version}: what was committed since would be lost. Read "
            "the newest version and repeat the change."
        )


def _check_base(store: ObjectStore, base: Manifest, options: WriteOptions) -> None:
    """Refuse options that do not allow an existing dataset."""
    if options.mode == "create":
        raise exists_already(store.uri, base.version)
    if options.initial_bases:
        raise OptionError(
            f"initial_bases: {store.uri} is a dataset already (version {base.version}); only "
            "possible for a new dataset"
        )
    flags = base.wire.reader_feature_flags, base.wire.writer_feature_flags
    check_writable(*flags, where=base.where)


def _with_ids(
    store: ObjectStore,
    columns: pa.Schema | LanceSchema,
    options: WriteOptions,
    base: Manifest | None,
    profile: Profile,
) -> LanceSchema:
    """The columns with their existing or future field ids."""
    if isinstance(columns, LanceSchema):
        return columns
    check_schema(columns)
    if base is not None and options.mode == "append":
        return match_schema(columns, base.schema, where=store.uri)
    check_names(columns.names)
    if profile.blob_type:
        columns = with_blob_type(columns)
    schema = LanceSchema.from_arrow(columns, 0 if base is None else base.first_field_id)
    check_primary_key(schema.fields)
    return schema


def _open_copied(store: ObjectStore, uri: str) -> tuple[ObjectStore, str]:
    """Store and path of an external blob to be copied into the dataset."""
    policy = allow_copies(access_of(store))
    return open_external(store, uri, policy, subject="the URI of a blob to be copied")
