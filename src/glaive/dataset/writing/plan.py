"""Plan a write: make all decisions before the first row is written.

``write_dataset``, ``write_fragments``, ``LanceFragment.create``, Spark, updates, merges,
compaction and new columns all call :func:`plan_write`, so they make the same checks.
:func:`glaive.dataset.writing.fragments.write_fragments` executes a plan, here or in another
process. :func:`glaive.dataset.writing.rows.commit_plan` commits the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from glaive.arrow.validation import check_schema, refuse_half_characters
from glaive.dataclass import dataclass
from glaive.dataset.blobs import with_blob_type
from glaive.dataset.writing.conform import check_names, match_schema
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    GlaiveError,
    OptionError,
)
from glaive.file.blobs import BlobOptions
from glaive.file.open import check_columns
from glaive.file.versions import PROFILES, LegacyProfile, Profile, resolve_version
from glaive.format.field import check_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest, check_writable
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.format.wire import MAX_BASE_PATH
from glaive.io.access import allow_copies, open_external
from glaive.io.store import ObjectStore
from glaive.options import SWITCH, TEXT, Kind, check_fields, integer, listed, one_of, option
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import Views
from glaive.table.configuration import (
    INTERVAL,
    OLDER_THAN,
    Rules,
    has_value,
    span_text,
    string_map,
    wants_checksums,
    with_identity,
)
from glaive.table.fragment_ids import check_mixing
from glaive.table.load import open_latest
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import BuildContext, CommitOptions
from glaive.table.put_manifest import finish, load_dictionaries
from glaive.table.root import access_of, open_base
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    from glaive.file.v2.writer import GivenOptions


# --- Base paths: other locations with files of a dataset --------------------------------
# Specification: "Base paths" in ``docs/format/manifest.md``.


@dataclass(frozen=True, slots=True)
class DatasetBasePath:
    """Another location with files of a dataset.

    Parameters
    ----------
    path
        A URI, or the absolute path of a directory.
    name
        An optional name, for users.
    is_dataset_root
        Whether it is laid out like a dataset, with data files below ``data``. Otherwise files,
        such as blobs, are directly below it.
    id
        Id for references from files; 0 lets the commit choose.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int = 0

    def __post_init__(self) -> None:
        path: object = self.path
        number: object = self.id
        if not isinstance(path, str) or not path:
            raise OptionError(f"path of a base: expected a URI or directory, found {path!r}")
        if len(path) > MAX_BASE_PATH:
            raise OptionError(
                f"path of a base: expected at most {MAX_BASE_PATH} characters, found {len(path)}"
            )
        if not isinstance(number, int) or not 0 <= number < 2**32:
            raise OptionError(f"id of base {path!r}: expected 0 or more, found {number!r}")
        with refuse_half_characters("path or name of a base"):
            f"{path}{self.name}".encode()

    def __repr__(self) -> str:
        path = GlaiveError.without_secrets(self.path)  # untrusted datasets may have secrets
        rest = f"name={self.name!r}, is_dataset_root={self.is_dataset_root}, id={self.id}"
        return f"DatasetBasePath(path={path!r}, {rest})"

    def to_wire(self, number: int) -> table_pb2.BasePath:
        """Make the wire message, with this id.

        Raises
        ------
        OptionError
            The path has a password or a key, which all readers of the dataset would see.
        """
        if GlaiveError.without_secrets(self.path) != self.path:
            raise OptionError(
                f"path of a base: {self.path!r} has a password or a key, which would be written "
                "into the dataset. Give the location itself, and credentials in base_store_params."
            )
        return table_pb2.BasePath(
            id=number, name=self.name, is_dataset_root=self.is_dataset_root, path=self.path
        )


def numbered(bases: Iterable[DatasetBasePath]) -> tuple[table_pb2.BasePath, ...]:
    """Return the messages of new bases; bases that lack an id get the lowest free ids.

    Raises
    ------
    OptionError
        Two bases have the same id.
    """
    bases = tuple(bases)
    taken: set[int] = set()
    for base in bases:
        if base.id in taken:
            raise OptionError(f"two base paths have the id {base.id}; leave it out, or change one")
        taken |= {base.id} - {0}
    free = (number for number in count(1) if number not in taken)
    return tuple(base.to_wire(base.id or next(free)) for base in bases)


def base_paths_of(manifest: Manifest) -> dict[int, DatasetBasePath]:
    """Return the base paths of a version, by id."""
    return {
        base.id: DatasetBasePath(
            base.path, base.name if base.HasField("name") else None, base.is_dataset_root, base.id
        )
        for base in manifest.base_paths.values()
    }


def blob_bases(bases: Iterable[table_pb2.BasePath]) -> dict[int, str]:
    """Return bases for URIs of blobs, by id: all bases except dataset roots."""
    return {base.id: base.path for base in bases if not base.is_dataset_root}


@dataclass(frozen=True, slots=True)
class DataLocation:
    """A location of data files, and its base path id; ``None`` for the dataset's root.

    ``is_root`` says whether data files are below ``data`` there.
    """

    store: ObjectStore
    base_id: int | None = None
    is_root: bool = True

    def path_of(self, name: str) -> str:
        """Return the path of a data file."""
        return data_file_path(name) if self.is_root else name


_PLACES_BEGIN: Final = ("~", "./", "../")
"""Prefixes of relative paths, which names lack."""


def _is_place(target: str) -> bool:
    """Return whether a target is a path or URI, rather than a name that a dataset chose."""
    begins = target.startswith(_PLACES_BEGIN)
    return begins or ":/" in target or Path(target).is_absolute()


def find_locations(
    store: ObjectStore,
    bases: Sequence[table_pb2.BasePath],
    targets: Sequence[str],
    *,
    everywhere: bool,
) -> tuple[DataLocation, ...]:
    """Return locations for new files, to use in turn; default: the dataset's root.

    Parameters
    ----------
    bases
        Base paths of the dataset.
    targets
        Names or paths of some of them; the URI of the dataset means its root. A path, such as
        ``/x``, ``~/x`` and ``./x``, or a URI always means a path: the creator of the
        dataset chose the names.
    everywhere
        Use the dataset's root and all base paths.

    Raises
    ------
    OptionError
        The base path is unknown.
    AccessError
        The caller has not allowed access to the base path.
    """
    chosen: list[table_pb2.BasePath | None] = list(bases) if everywhere else []
    for target in targets:
        if target == store.uri:
            chosen.append(None)
            continue
        matching = [base for base in bases if target == base.path]
        if not matching and not _is_place(target):
            matching = [base for base in bases if target == base.name]
        if not matching:
            known = ", ".join(base.name or base.path for base in bases) or "none"
            raise OptionError(
                f"Base reference {target!r} not found in available bases: target_bases: "
                f"{store.uri} has no base path {target!r}; it has: {known}. Add it with "
                "initial_bases or add_bases."
            )
        chosen.append(matching[0])
    if everywhere or not chosen:
        chosen.insert(0, None)
    return tuple(
        DataLocation(store)
        if base is None
        else DataLocation(open_base(store, base, store.uri), base.id, base.is_dataset_root)
        for base in chosen
    )


# --- Options of writers, validated once -------------------------------------------------

Mode = Literal["create", "append", "overwrite"]


def _mode(given: Any) -> str:
    if given not in ("create", "append", "overwrite"):
        raise OptionError(f"Invalid mode {given!s:.60}: pass 'create', 'append' or 'overwrite'.")
    return str(given)


def _base(given: Any) -> DatasetBasePath:
    if not isinstance(given, DatasetBasePath):
        raise TypeError(given)
    return given


_COUNT: Final = integer(1)

COMPRESSION: Final = one_of("automatic", "balanced")
DEFAULT_MAX_BYTES_PER_FILE: Final = 90 * 1024**3
"""Maximum bytes of a data file, unless ``max_bytes_per_file`` is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Validated options of a write.

    :class:`glaive.dataset.keywords.WriteKeywords` explains the other options.

    Parameters
    ----------
    mode
        ``create`` raises if the dataset exists; ``append`` and ``overwrite`` create a missing
        dataset.
    expected_version
        The version that an overwrite replaces; a newer version is a conflict.
    full_files
        Number of files with ``max_rows_per_file`` rows; each later file has one row less.
        Default: all files.
    name_end
        The last digits of the names of files; see :mod:`glaive.dataset.clustering`.
    compression
        ``balanced`` sets the encoding option of this name for all columns that lack options, if
        the format has it. Spark writes use it unless these options say ``automatic``.
    auto_cleanup
        Value of ``auto_cleanup_options``.
    blobs
        How blob values are stored, from three keywords.
    """

    mode: Mode = option(Kind("a mode", _mode), "create")
    max_rows_per_file: int = option(_COUNT, 1024 * 1024)
    max_rows_per_group: int = option(_COUNT, 1024)
    max_bytes_per_file: int = option(_COUNT, DEFAULT_MAX_BYTES_PER_FILE)
    max_page_bytes: int | None = option(_COUNT)
    data_cache_bytes: int | None = option(_COUNT)
    data_storage_version: str | None = None
    enable_stable_row_ids: bool = option(SWITCH, False)
    enable_v2_manifest_paths: bool = option(SWITCH, True)
    transaction_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    commit_message: str | None = option(TEXT)
    initial_bases: tuple[DatasetBasePath, ...] = option(
        listed(Kind("a glaive.DatasetBasePath", _base)), ()
    )
    auto_cleanup: Mapping[str, object] | None = field(default=None, hash=False)
    target_bases: tuple[str, ...] = option(listed(TEXT), ())
    target_all_bases: bool = False
    progress: Any = None
    shows_progress: bool = False
    encoding_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)
    compression: Literal["automatic", "balanced"] = option(COMPRESSION, "automatic")
    blobs: BlobOptions = field(default_factory=BlobOptions)
    full_files: int | None = None
    name_end: str = ""
    expected_version: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.target_bases and self.target_all_bases:
            raise OptionError("target_bases and target_all_bases: choose one of the two")
        if self.initial_bases and self.mode == "overwrite":
            raise OptionError(
                "initial_bases: only possible for a new dataset; an overwritten one keeps its base "
                "paths"
            )
        if self.auto_cleanup is not None:
            self.cleanup_config()
        string_map("transaction_properties", self.transaction_properties)

    def page_bytes(self, columns: int) -> int | None:
        """Return the maximum bytes of values per page for so many columns; ``None`` if unset."""
        share = None if self.data_cache_bytes is None else self.data_cache_bytes // max(1, columns)
        limits = [limit for limit in (self.max_page_bytes, share) if limit is not None]
        return max(1, min(limits)) if limits else None

    def cleanup_config(self) -> dict[str, str]:
        """Return entries of the table's configuration for ``auto_cleanup``.

        Raises
        ------
        OptionError
            A key is unknown, or a value is not an integer.
        """
        if not isinstance(self.auto_cleanup or {}, Mapping):
            raise OptionError(f"auto_cleanup_options: expected a dict, found {self.auto_cleanup!r}")
        given = dict(self.auto_cleanup or {})
        config = {}
        for name, key, written in (
            ("interval", INTERVAL, str),
            ("older_than_seconds", OLDER_THAN, span_text),
        ):
            if name not in given:
                continue
            value = given.pop(name)
            if not isinstance(value, int) or value < (name == "interval"):
                raise OptionError(
                    f"auto_cleanup_options: expected an integer for {name!r}, found {value!r}"
                )
            config[key] = written(value)
        if given:
            raise OptionError(
                "auto_cleanup_options: expected 'interval' and 'older_than_seconds', found "
                f"{', '.join(map(repr, given))}"
            )
        return config


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """How to write rows to data files and commit them. Made by :func:`plan_write`.

    Can be pickled. The pickle is small because it omits ``base``.

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
        Version of the dataset that the write was planned for; 0 to create the dataset.
    identity
        Identity of that version; None to create the dataset.
    base
        Manifest of that version, which saves a request at the commit.
    new_bases
        Base paths of a new dataset.
    locations
        Locations of data files, used in turn.
    blobs
        How blob values are stored, with the base paths of the dataset.
    dictionaries
        Dictionary values by field id, if all files of the dataset must share dictionaries.
    checksums
        Whether files get checksums, by the configuration of the dataset, or None.
    rules
        Rules that the rows must meet, if any.
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
    rules: Rules | None = None

    @property
    def appends(self) -> bool:
        """Whether existing rows are kept."""
        return bool(self.read_version) and self.options.mode == "append"

    @property
    def encoding_options(self) -> GivenOptions | None:
        """Encoding options of columns, with preferred options for other columns."""
        given, compression = self.options.encoding_options, self.options.compression
        if compression == "automatic" or isinstance(self.profile, LegacyProfile):
            return given
        # Imported here: few writes have options.
        from glaive.file.v2.writer import ALL_COLUMNS

        return {ALL_COLUMNS: {"compression": compression}, **(given or {})}

    def for_task(self, task: int | None) -> WritePlan:
        """Return the plan for one of the tasks of a job, which number their rows."""
        return replace(self, rules=None if self.rules is None else replace(self.rules, task=task))

    def for_moved_rows(self, *, inserts: bool = False) -> WritePlan:
        """Return the plan for rows that have their numbers, and perhaps (``inserts``) new rows."""
        if self.rules is None:
            return self
        numbers = self.rules.numbers if inserts else ()
        return replace(self, rules=replace(self.rules, numbers=numbers, moved=True))

    def recording(self, rows: Sequence[int], *, tasks: int | None = None) -> WritePlan:
        """Return the plan of a commit that records which numbers the rows of each task have."""
        if self.rules is None:
            return self
        from glaive.dataset.writing.rules import numbered

        properties = numbered(self.rules, rows, tasks=tasks)
        given = {**properties, **self.options.transaction_properties}
        return replace(self, options=replace(self.options, transaction_properties=given))

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
    *,
    enforce: bool = True,
) -> WritePlan:
    """Read the manifest, if the dataset exists, and plan a write.

    Parameters
    ----------
    store
        Root of the dataset.
    columns
        Schema of the rows. Appends match it by name with the columns of the dataset. A
        :class:`LanceSchema` has field ids already: of existing columns to rewrite, or of new
        columns of existing fragments.
    options
        Options of the caller.
    base
        The version to write for; default: the newest.
    enforce
        Whether to apply the rules of the dataset; False for rows that it has already.

    Raises
    ------
    DatasetExistsError
        A dataset exists, and the mode is ``create``.
    SchemaError
        The columns do not match the dataset or are invalid, or the format lacks a type.
    OptionError, ColumnNotFoundError
        The format or base path is unknown, or encoding options are invalid.
    UnsupportedFeatureError
        The dataset uses a feature that this writer lacks.
    CommitConflictError
        The dataset has a newer version than ``expected_version``.

    Notes
    -----
    Makes two requests unless ``base`` is given. Reads data files only in datasets of format 0.1
    with dictionary columns.
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
        rules=_rules(schema, options, base) if enforce else None,
    )


def _rules(schema: LanceSchema, options: WriteOptions, base: Manifest | None) -> Rules | None:
    """Return the rules for rows of these columns."""
    if base is None:
        return Rules.of(schema, {}, {})
    whole = schema
    if options.mode == "append":
        given = schema.by_name
        fields = tuple(given.get(field.name, field) for field in base.schema.fields)
        whole = base.schema if fields == base.schema.fields else replace(schema, fields=fields)
    rules = Rules.of(whole, base.wire.config, base.wire.table_metadata)
    if rules is not None:
        from glaive.dataset.writing.rules import BoundRules

        BoundRules(rules)  # fail before the first row
    return rules


def exists_already(where: str, version: int) -> DatasetExistsError:
    """Return the error of mode ``create`` for an existing dataset."""
    return DatasetExistsError(
        f"Dataset already exists: {where} is a dataset already (version {version}). Use "
        "mode='append' or mode='overwrite', or choose another location."
    )


def _check_expected(store: ObjectStore, base: Manifest | None, options: WriteOptions) -> None:
    """Check that the version to replace is the version that the rows were made from."""
    found = 0 if base is None else base.version
    if options.expected_version not in (None, found):
        raise CommitConflictError(
            f"{store.uri} is at version {found}, and the rows that replace it were made from "
            f"version {options.expected_version}: what was committed since would be lost. Read "
            "the newest version and repeat the change."
        )


def _check_base(store: ObjectStore, base: Manifest, options: WriteOptions) -> None:
    """Refuse options that require a new dataset."""
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
    """Return the columns with their existing or future field ids."""
    if isinstance(columns, LanceSchema):
        return columns
    check_schema(columns)
    if base is not None and options.mode == "append":
        return match_schema(columns, base.schema, where=store.uri, ruled=True)
    check_names(columns.names)
    if profile.blob_type:
        columns = with_blob_type(columns)
    schema = LanceSchema.from_arrow(columns, 0 if base is None else base.first_field_id)
    check_primary_key(schema.fields)
    if any(map(has_value, schema.fields)):
        from glaive.dataset.writing.rules import check_values

        schema = replace(schema, fields=tuple(map(with_identity, schema.fields)))
        check_values(schema)
    return schema


def _open_copied(store: ObjectStore, uri: str) -> tuple[ObjectStore, str]:
    """Return store and path of an external blob to copy into the dataset."""
    policy = allow_copies(access_of(store))
    return open_external(store, uri, policy, subject="the URI of a blob to be copied")


# --- Rows in uncommitted data files, readable like a version ----------------------------


def staged_rows(
    plan: WritePlan, fragments: Sequence[Fragment], bases: Sequence[table_pb2.BasePath] = ()
) -> Views:
    """Return uncommitted fragments as a version with these rows only, in memory.

    Parameters
    ----------
    plan
        The plan that wrote the fragments.
    bases
        Base paths of the dataset, which may hold files.
    """
    context = BuildContext(1, CommitOptions(storage_version=plan.profile.version))
    operation = Overwrite(fragments=tuple(fragments), schema=plan.schema, base_paths=tuple(bases))
    draft = operation.apply(None, context)
    finish(draft, 1)
    manifest = Manifest(draft.wire, where=f"uncommitted files of {plan.store.uri}")
    return Views(Snapshot(plan.store, manifest, Session()))
