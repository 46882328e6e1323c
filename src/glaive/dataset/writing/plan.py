"""Plan a write: all that is decided before a row is written, in one place for all who write rows.

``write_dataset``, ``write_fragments``, ``LanceFragment.create``, Spark, updates, merges,
compaction and new columns translate their arguments and call :func:`plan_write`; so they refuse
the same things with the same words. :func:`glaive.dataset.writing.fragments.write_fragments`
carries a plan out, here or in other processes, and
:func:`glaive.dataset.writing.commit.commit_plan` makes the version.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial

import pyarrow as pa

from glaive.arrow.nesting import check_nesting
from glaive.dataset.blobs.columns import with_blob_type
from glaive.dataset.writing.base_paths import blob_bases, numbered
from glaive.dataset.writing.conform import check_names, match_schema
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.target_bases import DataPlace, find_places
from glaive.errors import DatasetExistsError, DatasetNotFoundError, OptionError
from glaive.file.blob_options import BlobOptions
from glaive.file.open import check_columns
from glaive.file.versions import PROFILES, Profile, resolve_version
from glaive.format.fields import LanceSchema
from glaive.format.flags import check_writable
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.access import allow_copies, open_external
from glaive.io.store import ObjectStore
from glaive.table.dictionaries import load_dictionaries
from glaive.table.fragment_ids import check_mixing
from glaive.table.load import open_latest
from glaive.table.root import access_of

__all__ = ["WritePlan", "exists_already", "plan_write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """How rows become data files, and files a version. Made by :func:`plan_write`.

    It can be pickled, and is small then: tasks in other processes get all of it but ``base``.

    Parameters
    ----------
    store
        Root of the dataset.
    options
        Mode, limits of files and pages, encodings, and what is kept with the version.
    schema
        Columns of the files, with the ids they have, or will have, in the dataset.
    version
        Format version of the files, such as ``2.2``.
    read_version
        Version of the dataset that this was planned for; 0 if it is to be created.
    base
        Manifest of that version, which spares the commit a request.
    new_bases
        Base paths of a dataset that is created.
    places
        Where data files go in turn.
    blobs
        How values of blob columns are kept, with the base paths of the dataset.
    dictionaries
        Items of dictionary columns by field id, where all files of a dataset must share them.
    """

    store: ObjectStore = field(repr=False)
    options: WriteOptions
    schema: LanceSchema
    version: str
    read_version: int = 0
    base: Manifest | None = field(default=None, compare=False, repr=False)
    new_bases: tuple[table_pb2.BasePath, ...] = ()
    places: tuple[DataPlace, ...]
    blobs: BlobOptions
    dictionaries: dict[int, pa.Array] = field(default_factory=dict, hash=False)

    @property
    def appends(self) -> bool:
        """Whether the rows come beside those there are; otherwise they are all there will be."""
        return bool(self.read_version) and self.options.mode == "append"

    @property
    def profile(self) -> Profile:
        """What the format version of the files allows."""
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
    """Look at the dataset, if there is one, and decide how rows are written.

    Parameters
    ----------
    store
        Root of the dataset.
    columns
        Schema of the rows, to be matched by name with the columns of the dataset when rows are
        appended. A :class:`LanceSchema` has its ids already: columns of the dataset that are
        written again, or new ones for its fragments.
    options
        What the caller asks for.
    base
        The version to write for; the newest when omitted.

    Raises
    ------
    DatasetExistsError
        ``create`` was asked for and there is a dataset already.
    SchemaError
        Rows with these columns do not fit the dataset, no dataset can have such columns, or
        the format cannot hold their types.
    OptionError, ColumnNotFoundError
        There is no such format or base path, or encoding options are wrong.
    UnsupportedFeatureError
        The dataset uses something this writer does not know; the message names it.

    Notes
    -----
    Without ``base`` two requests. No data file is looked at, but for datasets of format 0.1 with
    dictionary columns.
    """
    if base is None:
        with suppress(DatasetNotFoundError):
            base = open_latest(store, to_follow=True)
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
    bases = new_bases if base is None else tuple(base.wire.base_paths)
    targets, everywhere = options.target_bases, options.target_all_bases
    opener = partial(_open_copied, store)
    return WritePlan(
        store=store,
        options=options,
        schema=schema,
        version=version,
        read_version=0 if base is None else base.version,
        base=base,
        new_bases=new_bases,
        places=find_places(store, bases, targets, everywhere=everywhere),
        blobs=replace(options.blobs, bases=blob_bases(bases), opener=opener),
        dictionaries=shared,
    )


def exists_already(where: str, version: int) -> DatasetExistsError:
    """The error of who must create a dataset where there is one."""
    return DatasetExistsError(
        f"{where} is a dataset already (version {version}). Use mode='append' or "
        "mode='overwrite', or choose another place."
    )


def _check_base(store: ObjectStore, base: Manifest, options: WriteOptions) -> None:
    """Refuse to write to a dataset that is there."""
    if options.mode == "create":
        raise exists_already(store.uri, base.version)
    if options.initial_bases:
        raise OptionError(
            f"initial_bases: {store.uri} is a dataset already (version {base.version}); only one "
            "that is created gets them"
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
    """The columns as the dataset has them, or will have them."""
    if isinstance(columns, LanceSchema):
        return columns
    check_nesting(columns)
    if base is not None and options.mode == "append":
        return match_schema(columns, base.schema, where=store.uri)
    check_names(columns.names)
    if profile.blob_type:
        columns = with_blob_type(columns)
    return LanceSchema.from_arrow(columns, 0 if base is None else base.first_field_id)


def _open_copied(store: ObjectStore, uri: str) -> tuple[ObjectStore, str]:
    """Store and path of an object that rows ask to copy into the dataset."""
    policy = allow_copies(access_of(store))
    return open_external(store, uri, policy, what="the URI of a blob to be copied")
