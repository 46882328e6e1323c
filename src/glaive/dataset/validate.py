"""``validate``: check the consistency of a version of a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import UUID

import numpy as np

from glaive.dataclass import NamedTuple
from glaive.dataset.scanner import Scanner
from glaive.dataset.writing.rules import BoundRules
from glaive.errors import CorruptFileError, DataFileMissingError
from glaive.format.fragment import LEGACY, TOMBSTONE, DataFile, Fragment
from glaive.format.manifest import Feature
from glaive.format.paths import INDICES, index_file_path
from glaive.format.pb import table_pb2
from glaive.format.rowids import RowValues
from glaive.io.store import find_object
from glaive.scan.snapshot import LiveRows, Snapshot
from glaive.scan.views import Views
from glaive.table.configuration import Rules
from glaive.table.deletions import load_deleted_runs
from glaive.table.index_coverage import covered_fragments
from glaive.table.rowids import load_lineage
from glaive.types import UInt64s

# --- Runs of stable row ids, as few bytes may encode many rows --------------------------
#
# Specification: "Row ids" in ``docs/format``.

_WINDOW_ROWS = 1 << 18
"""Number of rows whose ids are decoded at a time."""


class IdRuns(NamedTuple):
    """The lowest and the highest id of each run of ids that increase by one."""

    low: UInt64s
    high: UInt64s

    @classmethod
    def joined(cls, runs: list[IdRuns]) -> IdRuns:
        """Join runs; lowest and highest ids are sorted apart, and match if no runs overlap."""
        empty = np.empty(0, np.uint64)
        joined = [np.concatenate([empty, *(one[at] for one in runs)]) for at in (0, 1)]
        for ids in joined:
            ids.sort(kind="stable")
        return cls(*joined)

    def repeated(self) -> int | None:
        """Return an id that several of the joined runs contain, or None."""
        twice = np.flatnonzero(self.low[1:] <= self.high[:-1])
        return int(self.low[1:][twice[0]]) if len(twice) else None


def _windows(values: RowValues) -> Iterator[tuple[int, int, UInt64s]]:
    for begin in range(0, values.rows, _WINDOW_ROWS):
        end = min(values.rows, begin + _WINDOW_ROWS)
        yield begin, end, values.between(begin, end)


def runs_of_ids(ids: RowValues, live: LiveRows) -> IdRuns:
    """Return the ids of the live rows of a fragment."""
    runs = []
    for begin, end, window in _windows(ids):
        part = np.delete(window, live.deleted_between(begin, end) - begin)
        if len(part):
            edges = np.flatnonzero(part[1:] - part[:-1] != 1)
            lows, highs = np.append(0, edges + 1), np.append(edges, len(part) - 1)
            runs.append(IdRuns(part[lows], part[highs]))
    return IdRuns.joined(runs)


Place = tuple[str, int | None]
"""Path of a data file, and its base path id."""


def validate_version(snapshot: Snapshot) -> None:
    """Check that manifest, files and indices match.

    Notes
    -----
    Opens every data file and reads every deletion file, but skips values. Reads columns that rules
    of the table use.
    """
    check_schema(snapshot)
    check_fragment_ids(snapshot)
    positions = range(len(snapshot.manifest.fragment_ids))
    parsed: set[Place] = set()
    ids = [validate_fragment(snapshot, position, parsed) for position in positions]
    check_row_ids(snapshot, ids)
    for index in snapshot.manifest.indices:
        check_index(snapshot, index)
    check_rules(snapshot)


def check_rules(snapshot: Snapshot) -> None:
    """Check that all rows meet the rules of the table, which other libraries ignore.

    Raises
    ------
    SchemaError
        A row breaks a rule, or an expression is invalid.
    """
    rules = Rules.of_version(snapshot.manifest)
    if rules is not None:
        check_rows(Views(snapshot), rules)


def check_rows(version: Views, rules: Rules) -> None:
    """Read the columns that rules use; raise if a row breaks a rule.

    Raises
    ------
    SchemaError
        The message names the rule and the row.
    """
    bound = BoundRules(rules)
    if bound.columns:
        for batch in Scanner.of(version, columns=bound.columns).to_batches():
            bound.check(batch)


def check_schema(snapshot: Snapshot) -> None:
    """Check that the fields of the manifest are a schema, which every read needs.

    Raises
    ------
    CorruptFileError
        Two fields have the same id, or two siblings the same name. Or a parent comes after its
        children.
    """
    _ = snapshot.manifest.schema


def check_fragment_ids(snapshot: Snapshot) -> None:
    """Check that fragment ids are unique and at most the highest recorded id."""
    manifest = snapshot.manifest
    ids = manifest.fragment_ids.tolist()
    twice = [fragment_id for fragment_id, times in Counter(ids).items() if times > 1]
    if twice:
        raise _wrong(snapshot, "fragment ids", "each once", f"{twice[0]} twice")
    wire = manifest.wire
    if ids and wire.HasField("max_fragment_id") and max(ids) > wire.max_fragment_id:
        found = str(wire.max_fragment_id)
        raise _wrong(snapshot, "highest fragment id", f"{max(ids)} or more", found)


def validate_fragment(
    snapshot: Snapshot, position: int, parsed: set[Place] | None = None
) -> IdRuns | None:
    """Check one fragment; return the stable row ids of its live rows, if any.

    Parameters
    ----------
    parsed
        Data files whose page tables were parsed; updated, as many fragments may name one file.
    """
    manifest = snapshot.manifest
    fragment = manifest.fragment(position)
    seen: dict[int, str] = {}
    for file in fragment.files:
        for number in file.fields:
            if number == TOMBSTONE:
                continue
            if number in seen:
                raise _wrong(
                    snapshot,
                    f"field {number} of fragment {fragment.id}",
                    "in one data file",
                    f"in {seen[number]} and {file.path}",
                )
            seen[number] = file.path
        _check_file(snapshot, fragment, file, set() if parsed is None else parsed)
    deleted = load_deleted_runs(snapshot.store, manifest, fragment)
    if not manifest.uses(Feature.STABLE_ROW_IDS):
        return None
    for column in ("created_at", "updated_at"):
        versions = load_lineage(snapshot.store, manifest, fragment, column)
        highest = max((int(part.max()) for _, _, part in _windows(versions)), default=0)
        if highest > manifest.version:
            raise _wrong(
                snapshot,
                f"row versions of fragment {fragment.id}",
                f"up to {manifest.version}",
                f"{highest}",
            )
    ids = load_lineage(snapshot.store, manifest, fragment, "row_ids")
    return runs_of_ids(ids, LiveRows(deleted, fragment.physical_rows))


def _check_file(snapshot: Snapshot, fragment: Fragment, file: DataFile, parsed: set[Place]) -> None:
    columns = file.columns()
    reader = snapshot.open_file(file)
    where = f"fragment {fragment.id}, data file {file.path}"
    if reader.num_rows != fragment.physical_rows:
        raise _wrong(
            snapshot, f"rows of {where}", f"{fragment.physical_rows}", f"{reader.num_rows}"
        )
    there = reader.num_columns  # read once: format 0.1 counts all fields each time
    beyond = [field_id for field_id, column in columns.items() if column >= there]
    if beyond and file.version != LEGACY:
        raise _wrong(
            snapshot,
            f"columns of {where}",
            f"column {columns[beyond[0]]} for field {beyond[0]}",
            f"{there} columns",
        )
    if reader.version != file.version:
        raise _wrong(snapshot, f"format of {where}", f"{file.version}", f"{reader.version}")
    manifest = snapshot.manifest
    # Manifests of Lance 0.16 may say 0.1 with newer files: each file is read by its own version.
    mixed = manifest.uses(Feature.MIXED_FILE_VERSIONS) or manifest.data_format == LEGACY
    if file.version != manifest.data_format and not mixed:
        raise _wrong(snapshot, f"format of {where}", f"{manifest.data_format}", f"{file.version}")
    place = file.path, file.base_id
    if place not in parsed:
        reader.bind(reader.schema.fields)  # parses the page tables, and checks locations and rows
        parsed.add(place)


def check_row_ids(snapshot: Snapshot, row_ids: Sequence[IdRuns | None]) -> None:
    """Check that stable row ids are unique; ``row_ids`` holds the ids of each fragment, if any."""
    ids = IdRuns.joined([runs for runs in row_ids if runs is not None])
    twice = ids.repeated()
    if twice is not None:
        raise _wrong(snapshot, "row ids", "each once", f"{twice} twice")
    next_id = int(snapshot.manifest.wire.next_row_id)
    if len(ids.high) and int(ids.high[-1]) >= next_id:
        raise _wrong(snapshot, "row ids", f"below {next_id}", f"{ids.high[-1]}")


def check_index(snapshot: Snapshot, index: table_pb2.IndexMetadata) -> None:
    """Check that the fields and fragments of an index are known, and that its files exist."""
    manifest = snapshot.manifest
    known = set(manifest.schema.field_ids())
    unknown = [field for field in index.fields if field not in known]
    if unknown:
        raise _wrong(
            snapshot, f"fields of index {index.name!r}", "fields of the schema", f"{unknown[0]}"
        )
    covered = covered_fragments(index) or frozenset()
    if covered and max(covered) > manifest.max_fragment_id:
        raise _wrong(
            snapshot,
            f"fragments of index {index.name!r}",
            f"up to {manifest.max_fragment_id}",
            f"{max(covered)}",
        )
    if index.HasField("base_id"):
        return
    folder = f"{INDICES}/{UUID(bytes=index.uuid.uuid)}"
    for file in index.files:
        path = index_file_path(folder, file.path, where=manifest.where)
        if find_object(snapshot.store, path) is None:
            raise DataFileMissingError(
                f"the file {snapshot.store.full(path)} of index {index.name!r} is missing. "
                "Rebuild the index, or restore the file."
            )


def _wrong(snapshot: Snapshot, subject: str, expected: str, found: str) -> CorruptFileError:
    return CorruptFileError(subject, expected=expected, found=found, where=snapshot.manifest.where)
