"""Operations that add or replace whole fragments: append, overwrite, restore, clone, publish.

Specification: "Append" and "Overwrite" in ``docs/format``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from glaive.dataclass import dataclass
from glaive.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from glaive.format.blobs import has_blobs_v2
from glaive.format.field import check_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment, FragmentList, file_versions, ids_of, known_version
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation, Transaction
from glaive.format.wire import parse
from glaive.io.location import Location
from glaive.io.store import ObjectStore
from glaive.table.configuration import changed_config
from glaive.table.fragment_ids import (
    copy_of,
    edit_fragments,
    mark_file_versions,
    new_fragments,
    put_fragments,
)
from glaive.table.index_coverage import encode_indices, without_new
from glaive.table.named_jobs import keep_numbers, renumber
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    CommitOptions,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    conflict_on,
    incompatible,
    makes_non_nullable,
    needs_dataset,
    operation,
    sets_metadata,
)
from glaive.types import FormatVersion

# --- Append: add fragments --------------------------------------------------------------
# Specification: "Append" in ``docs/format``.


@operation
@dataclass(frozen=True, slots=True)
class Append(TableOperation):
    """Add fragments; the commit assigns ids to fragments with id 0.

    Parameters
    ----------
    fragments
        The new fragments.
    dropped
        Fields with values in the fragments that others dropped since. Not part of the message.
    once
        Whether the same rows must not be added twice, as for batches that share transactions. Not
        part of the message.
    """

    wire_name: ClassVar[str] = "append"
    compatible = INCREMENTAL - {"merge", "project"}

    fragments: Sequence[Fragment]
    dropped: frozenset[int] = field(default=frozenset(), compare=False)
    once: bool = field(default=False, compare=False)

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts with new non-nullable columns, and with replacing the whole dataset."""
        if name in ("merge", "project"):
            if makes_non_nullable(theirs):
                return Conflict(f"{name} may have made a column non-nullable")
            return None
        return incompatible(theirs, replaced="the dataset the new rows were written for")

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Return conflicts with columns that others replaced and the new rows have values for.

        A cast gives a column another id, so the rows would have nulls in it. A new column may have
        the id of a dropped column, so the rows would show values of that column.

        Also return conflicts with an append of the same files, if rows must be added once.
        """
        appended = (
            {file for their in theirs for file in appended_files(their)} if self.once else None
        )
        if appended and (twice := appended & self.files):
            reason = f"append added the rows of {min(twice)[1]} already, which would be there twice"
            return Conflict(reason, retryable=False)
        schemas = [one for one in theirs if one.wire_name in ("merge", "project")]
        if not schemas:
            return self
        files = (file for fragment in self.fragments for file in fragment.files)
        written = {number for file in files for number in file.fields if number >= 0}
        dropped = self.dropped
        for their in schemas:
            ids = {column.id for column in their.to_wire().schema}
            if again := dropped & ids:
                reason = f"gave the id {min(again)} of a dropped column to another one"
                return Conflict(f"{their.wire_name} {reason}, and the new rows have the first")
            lost = written - dropped - ids
            if their.wire_name == "merge" and lost:
                return Conflict(
                    f"merge replaced field {min(lost)}, of which the new rows have values"
                )
            dropped |= lost
        return self if dropped == self.dropped else replace(self, dropped=dropped)

    def _refuse_repeats(self) -> None:
        seen = set[tuple[int, str]]()
        for fragment in self.fragments:
            files = set(_files_of(fragment))
            if twice := files & seen:
                raise OptionError(
                    f"the append adds the rows of {min(twice)[1]} twice. Give each fragment, and "
                    "each transaction of a batch, once."
                )
            seen |= files

    @property
    def files(self) -> frozenset[tuple[int, str]]:
        """Base path (-1 if unset) and name of each data file."""
        return frozenset(file for fragment in self.fragments for file in _files_of(fragment))

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the fragments of ``base``, then the new fragments.

        Raises
        ------
        OptionError
            A file is added twice, but rows must be added once.
        """
        base = needs_dataset(base, "append rows")
        if self.once:
            self._refuse_repeats()
        wire = copy_of(base)
        mark_file_versions(wire, file_versions(self.fragments), base.data_format)
        added = new_fragments(wire, self.fragments, context.version)
        kept = edit_fragments(base, wire, added=added)
        section = base.index_section
        if section is not None and any(given := ids_of(self.fragments)):
            section = encode_indices(without_new(base.indices, given))
        return Draft(wire, section, kept)


def _files_of(fragment: Fragment) -> Iterator[tuple[int, str]]:
    """Yield base path (-1 if unset) and name of each file of a fragment."""
    for file in fragment.files:
        yield -1 if file.base_id is None else file.base_id, file.path


def appended_files(theirs: Operation) -> Iterator[tuple[int, str]]:
    """Yield base path (-1 if unset) and name of each file that an append added."""
    if theirs.wire_name == "append":
        for fragment in theirs.to_wire().fragments:
            for file in fragment.files:
                yield file.base_id if file.HasField("base_id") else -1, file.path


DEFAULT_STORAGE_VERSION = FormatVersion(2, 2)


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite(TableOperation):
    """Replace everything.

    Parameters
    ----------
    fragments
        The new fragments; the commit assigns all ids.
    schema
        The new schema with field ids.
    config
        Entries to set in the table's configuration.
    base_paths
        Base paths of a new dataset, in wire format.
    """

    wire_name: ClassVar[str] = "overwrite"
    compatible = INCREMENTAL - {"update_config"}
    renamed = MappingProxyType({"config": "config_upsert_values", "base_paths": "initial_bases"})
    strict_without_retries: ClassVar[bool] = True

    fragments: Sequence[Fragment]
    schema: LanceSchema
    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    base_paths: tuple[table_pb2.BasePath, ...] = ()

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts with another overwrite, or changes of the same configuration entries.

        Also conflicts with a restore, if files are below base paths, which the restore may remove.
        """
        if name == "restore":
            files = (file for fragment in self.fragments for file in fragment.files)
            if all(file.base_id is None for file in files):
                return None
            return conflict_on(theirs, "may have removed base paths below which the new files lie")
        if name == "overwrite":
            return Conflict("another overwrite replaced the dataset")
        if name == "update_config":
            both = sorted(self.config.keys() & changed_config(theirs.to_wire()))
            if not both:
                return None
            reason = f"both change the configuration of {', '.join(both)}"
            return Conflict(reason, retryable=False)
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the new schema and fragments, with the configuration of ``base``."""
        wire = table_pb2.ManifestOutline()
        if base is None:
            if context.options.enable_stable_row_ids:
                wire.reader_feature_flags = wire.writer_feature_flags = int(Feature.STABLE_ROW_IDS)
            wire.base_paths.extend(self.base_paths)
        else:
            wire = copy_of(base)
            del wire.fragments[:]
            del wire.fields[:]
            wire.schema_metadata.clear()
        check_primary_key(self.schema.fields)
        wire.fields.extend(self.schema.to_wire())
        for key, value in self.schema.metadata.items():
            wire.schema_metadata[key] = value
        for key, text in self.config.items():
            wire.config[key] = text
        stored = self._storage_version(base, context.options)
        wire.data_format.file_format = "lance"
        wire.data_format.version = str(stored)
        if wire.HasField("max_allocated_field_id"):
            wire.max_allocated_field_id = max(wire.max_allocated_field_id, self.schema.max_field_id)
        mark_file_versions(wire, file_versions(self.fragments), stored)
        put_fragments(wire, new_fragments(wire, self.fragments, context.version, keep_ids=False))
        return Draft(wire)

    def _storage_version(self, base: Manifest | None, options: CommitOptions) -> FormatVersion:
        if options.storage_version is not None:
            return options.storage_version
        for fragment in self.fragments:
            for file in fragment.files:
                return known_version(str(file.version), "the new version")
        return DEFAULT_STORAGE_VERSION if base is None else base.data_format


# --- Restore: make the contents of an old version the newest version --------------------
# Specification: "Restore" in ``docs/format``.

_PERMANENT = Feature.STABLE_ROW_IDS | Feature.UNIQUE_FIELD_IDS


@operation
@dataclass(frozen=True, slots=True)
class Restore(TableOperation):
    """Restore the contents of ``version``; later versions stay in the history."""

    wire_name: ClassVar[str] = "restore"
    compatible = INCREMENTAL - {"update_config"} | {"overwrite", "restore"}

    version: int

    @property
    def restored(self) -> int | None:
        """The version to restore."""
        return self.version

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts only with metadata changes, which it would silently undo."""
        if name == "update_config":
            if sets_metadata(theirs):
                return conflict_on(theirs, "changed metadata that this would undo")
            return None
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the old manifest; counters never decrease.

        Raises
        ------
        UnsupportedFeatureError
            A permanent feature was enabled since that version.
        CorruptFileError
            The schema of the old version is invalid, so the new schema would be, too.
        """
        base, older = needs_dataset(base, "restore a version"), context.older
        if older is None:
            raise VersionNotFoundError(f"version {self.version} to restore does not exist")
        _ = older.schema
        lost = [flag.name for flag in _PERMANENT if base.uses(flag) and not older.uses(flag)]
        if lost:
            raise UnsupportedFeatureError(
                f"version {self.version} of {older.where} cannot be restored: the dataset has "
                f"{', '.join(str(name).lower() for name in lost)} since then. Read the old "
                "version and overwrite the dataset with its rows instead."
            )
        wire, newest = copy_of(older), base.wire
        if base.max_fragment_id >= 0:
            wire.max_fragment_id = max(wire.max_fragment_id, base.max_fragment_id)
        wire.next_row_id = max(wire.next_row_id, newest.next_row_id)
        keep_numbers(wire, base)
        if newest.HasField("max_allocated_field_id"):
            highest = max(wire.max_allocated_field_id, newest.max_allocated_field_id)
            wire.max_allocated_field_id = highest
        mixed = newest.reader_feature_flags & int(Feature.MIXED_FILE_VERSIONS)
        wire.reader_feature_flags |= mixed
        wire.writer_feature_flags |= mixed
        return Draft(wire, older.index_section)


@dataclass(frozen=True, slots=True)
class RestoreUnlessChanged(Restore):
    """Restore a version if nobody has committed since the version that the caller read."""

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Return a conflict with any operation, as the caller has not seen what it would undo."""
        return Conflict("its changes would be undone, and were not looked at")


# --- Clone: the first version of a clone or branch --------------------------------------
# It has the number of the source version.
#
# Specification: "Clone" in ``docs/format``.


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Clone(TableOperation):
    """Create a dataset with the contents of another dataset.

    Parameters
    ----------
    shallow
        Whether to refer to the files of the source; otherwise they have been copied.
    ref_name
        Branch of the source; ``None`` for the main branch.
    ref_version
        Version of the source.
    ref_path
        Root of the source.
    branch_name
        Name of the new branch, if the clone is a branch.
    """

    wire_name: ClassVar[str] = "clone"
    renamed = MappingProxyType({"shallow": "is_shallow"})

    shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Return a conflict with any operation, as the clone must be the first commit."""
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the source manifest, with a base path for its files.

        Raises
        ------
        DatasetExistsError
            A dataset exists at the target.
        DatasetNotFoundError
            The source is missing.
        """
        older = context.older
        if base is not None:
            raise DatasetExistsError(f"cannot clone into an existing dataset: {base.where}")
        if older is None:
            raise DatasetNotFoundError(f"the source {self.ref_path} of the clone was not read")
        wire = copy_of(older)
        wire.ClearField("branch")
        if self.branch_name is not None:
            wire.branch = self.branch_name
        if not self.shallow:
            _keep_external(older, wire)
            return _moved(older, wire, None)
        taken = {base_path.id for base_path in wire.base_paths}
        number = next(free for free in range(len(taken) + 1) if free not in taken)
        source = wire.base_paths.add(id=number, is_dataset_root=True, path=self.ref_path)
        if self.ref_name is not None:
            source.name = self.ref_name
        return _moved(older, wire, number)


def _keep_external(older: Manifest, wire: table_pb2.ManifestOutline) -> None:
    """Remove base paths; keep base paths of external blob values, which a copy still uses."""
    has_blobs = any(map(has_blobs_v2, older.schema.fields))
    kept = [
        base_path
        for base_path in older.wire.base_paths
        if has_blobs and not base_path.is_dataset_root
    ]
    del wire.base_paths[:]
    wire.base_paths.extend(kept)


def _moved(older: Manifest, wire: table_pb2.ManifestOutline, base_id: int | None) -> Draft:
    """Return the version with its files at a base path, or with all files in the new dataset."""

    def move(file: Any) -> None:
        if base_id is None:
            file.ClearField("base_id")
        elif not file.HasField("base_id"):
            file.base_id = base_id

    for at in range(older.num_fragments):
        fragment = older.fragment_wire(at)
        for file in fragment.files:
            move(file)
        if fragment.HasField("deletion_file"):
            move(fragment.deletion_file)
        wire.fragments[at] = fragment.SerializeToString()
    entries = []
    for entry in older.indices:
        changed = table_pb2.IndexMetadata()
        changed.CopyFrom(entry)
        move(changed)
        entries.append(changed)
    return Draft(wire, encode_indices(entries))


# --- Publish a branch: its newest version becomes the next version of its parent branch --
# The next version has no trace of the branch. Its files are copied to the target's folders, and
# references to the target's root by a base path become references to the target's own files. So you
# can continue with the branch, clean it up, or delete it.
#
# Specification: "Publishing" in ``docs/format/refs.md``.

PUBLISHED: Final = "glaive.published"
"""Property of the transaction that records what was published, as JSON."""


@dataclass(frozen=True, slots=True)
class Published:
    """The versions of a branch published so far; its last commit records this.

    Parameters
    ----------
    branch, identity
        Name of the branch, and its identity, which an earlier branch of this name lacks.
    steps
        Pairs of a version of the branch and the version that was made. The first pair is twice
        the version that the branch started from.
    """

    branch: str
    identity: str
    steps: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, transaction: Transaction | None) -> Published | None:
        """Return what a transaction published, if anything."""
        text = None if transaction is None else transaction.properties.get(PUBLISHED)
        try:
            branch, identity, steps = json.loads(text or "null")
            pairs = tuple((a, b) for a, b in steps)
        except (TypeError, ValueError, RecursionError):  # missing, or written by another tool
            return None
        numbers = [number for pair in pairs for number in pair]
        if not numbers or any(type(one) is not int or not 0 < one < 2**64 for one in numbers):
            return None
        return cls(str(branch), str(identity), pairs)

    def text(self) -> str:
        """Return the text to record."""
        return json.dumps([self.branch, self.identity, self.steps])

    @property
    def version(self) -> int:
        """The version of the branch that was published last, or that it started from."""
        return self.steps[-1][0]

    def then(self, version: int, made: int) -> Published:
        """Return this with one more version."""
        return replace(self, steps=(*self.steps, (version, made)))

    def counterpart(self, version: int) -> int:
        """Return the number here of a version of the branch, or of a version before it."""
        if version <= self.steps[0][0]:
            return version
        at = bisect_left(self.steps, version, key=itemgetter(0))
        return self.steps[min(at, len(self.steps) - 1)][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Overwrite):
    """Replace everything by the contents of a version of a branch; :meth:`of` makes it.

    Other libraries see an overwrite. Unlike an overwrite, it keeps indices, ids and lineage, and
    conflicts with every other commit.

    Parameters
    ----------
    source
        The version of the branch.
    own
        Ids of its base paths that are the root of the target.
    before
        The versions published before.
    """

    source: Manifest = field(compare=False, repr=False)
    own: frozenset[int]
    before: Published

    @classmethod
    def of(cls, source: Manifest, own: frozenset[int], before: Published) -> Publish:
        """Make the operation for a version of a branch."""
        return cls(fragments=(), schema=source.schema, source=source, own=own, before=before)

    def encode(self) -> list[bytes]:
        """Encode an overwrite with the fragments, as the target has them."""
        moved = FragmentList(self._moved())
        return Overwrite(fragments=moved, schema=self.schema, config=self.source.config).encode()

    def _moved(self) -> Iterator[bytes]:
        for at in range(self.source.num_fragments):
            self._move(fragment := self.source.fragment_wire(at))
            yield fragment.SerializeToString()

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Return a conflict with any operation: the branch lacks later commits."""
        return Conflict("the branch does not have this version", retryable=False)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the version of the branch, on top of ``base``."""
        base, source = needs_dataset(base, "publish a branch"), self.source
        wire = copy_of(source)
        wire.ClearField("branch")
        if base.wire.branch:
            wire.branch = base.wire.branch
        kept = [path for path in wire.base_paths if path.id not in self.own]
        del wire.base_paths[:]
        wire.base_paths.extend(kept)
        if base.max_fragment_id >= 0:
            wire.max_fragment_id = max(wire.max_fragment_id, base.max_fragment_id)
        wire.next_row_id = max(wire.next_row_id, base.wire.next_row_id)
        known = self.before.then(source.version, context.version)
        renumber(wire, known.counterpart)
        keep_numbers(wire, base)
        for at in range(source.num_fragments):
            fragment = source.fragment_wire(at)
            self._renumber(fragment, known)
            self._move(fragment)
            wire.fragments[at] = fragment.SerializeToString()
        entries = []
        for entry in source.indices:
            changed = table_pb2.IndexMetadata()
            changed.CopyFrom(entry)
            self._drop_own_base(changed)
            changed.dataset_version = known.counterpart(changed.dataset_version)
            entries.append(changed)
        return Draft(wire, encode_indices(entries))

    def _move(self, fragment: table_pb2.DataFragment) -> None:
        """Turn references to the root of the target into references to its own files."""
        for file in fragment.files:
            self._drop_own_base(file)
        if fragment.HasField("deletion_file"):
            self._drop_own_base(fragment.deletion_file)

    def _drop_own_base(self, file: Any) -> None:
        if file.HasField("base_id") and file.base_id in self.own:
            file.ClearField("base_id")

    def _renumber(self, fragment: table_pb2.DataFragment, known: Published) -> None:
        """Give versions of the branch in the lineage their numbers in the target.

        Raises
        ------
        UnsupportedFeatureError
            The lineage is in a file.
        """
        is_new = not all(file.HasField("base_id") for file in fragment.files)
        for column in ("column_created_at_versions", "column_last_updated_at_versions"):
            if is_new and fragment.HasField(column):
                raise UnsupportedFeatureError(
                    f"fragment {fragment.id} of {self.source.where} has row versions in a file, "
                    "which would be wrong in another branch. Compact the branch first"
                )
            name = column.replace("column", "inline", 1)
            data: bytes = getattr(fragment, name)
            if not data:
                continue
            where = f"row versions of fragment {fragment.id} of {self.source.where}"
            sequence = parse(table_pb2.RowDatasetVersionSequence(), data, "row versions", where)
            numbers = [known.counterpart(run.version) for run in sequence.runs]
            if any(run.version != new for run, new in zip(sequence.runs, numbers, strict=True)):
                for run, number in zip(sequence.runs, numbers, strict=True):
                    run.version = number
                setattr(fragment, name, sequence.SerializeToString())


def root_bases(source: Manifest, target: ObjectStore) -> frozenset[int]:
    """Return ids of the base paths of a branch that are the root of its parent branch."""
    home = Location.parse(target.uri)
    return frozenset(
        base.id
        for base in source.wire.base_paths
        if base.is_dataset_root and Location.parse(base.path) == home
    )
