"""Files that are loaded once: the ledger of the loads of a dataset.

The ledger is a dataset inside the folder of the dataset. Before a load commits its rows, it appends
its files to the ledger, with its id and the id of the load before it. The commit of the rows
records the id in the table metadata, if the load before it is still the last one. The files
of a load count if the newest version leads to it, from each load to the load before. A load that
was stopped, or that another load preceded, leaves entries that do not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset as open_dataset
from glaive.dataset.write import write_dataset
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    VersionNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.ingestion.sources import SourceFile
from glaive.ingestion.task import IngestResult
from glaive.io.store import ObjectStore
from glaive.table.load import open_latest
from glaive.table.named_jobs import Load, last_load
from glaive.table.root import split_uri

LOADED_FILES: Final = "_loaded_files"
"""Dataset of the files that were loaded, inside the folder of a dataset."""

_FIELDS: list[pa.Field[Any]] = [
    pa.field("file", pa.string()),
    pa.field("size", pa.int64()),
    pa.field("modified", pa.timestamp("us", "UTC")),
    pa.field("etag", pa.string()),
    pa.field("load", pa.string(), nullable=False),
    pa.field("after", pa.string(), nullable=False),
]
_SCHEMA: Final = pa.schema(_FIELDS)
"""A row for each file, and for each load a row without a file."""

_FACTS: Final = ("size", "modified", "etag")
_MAX_FRAGMENTS: Final = 64
"""Fragments of the ledger that a load compacts."""

_KEPT: Final = timedelta(days=1)
"""Least age of versions of the ledger that a load removes: running loads read newer ones."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger as a load finds it.

    Parameters
    ----------
    uri
        URI of the ledger.
    storage_options
        Options of the store.
    load
        The load that begins.
    files
        The files of all loads that count.
    lost
        Ids of loads that another load preceded, so that they cannot commit.
    order
        Ids of the loads that count, the last one first.
    """

    uri: str = field(repr=False)  # URIs and options may have passwords
    storage_options: Mapping[str, str] | None = field(repr=False)
    load: Load
    files: pa.Table
    lost: tuple[str, ...]
    order: tuple[str, ...] = ()

    @classmethod
    def begin(
        cls,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        base: Manifest | None,
    ) -> Ledger:
        """Read the ledger for a load that follows the last load of ``base``.

        Raises
        ------
        VersionNotFoundError
            The ledger lacks a load of the dataset.
        """
        root = split_uri(os.fspath(uri))[0].rstrip("/")
        place, last = f"{root}/{LOADED_FILES}", last_load(base)
        rows = _SCHEMA.empty_table()
        with suppress(DatasetNotFoundError):
            rows = open_dataset(place, storage_options=_options(storage_options)).to_table()
        starts = rows.filter(pc.is_null(rows["file"]))
        pairs: Any = zip(starts["load"].to_pylist(), starts["after"].to_pylist(), strict=True)
        before: dict[str, str] = dict(pairs)
        counted, at = dict[str, None](), last
        while at:
            if at not in before:
                raise VersionNotFoundError(
                    f"{place}: load {at} is not in it, so glaive cannot see which files the rows "
                    "are from. Copy the folder from the dataset that has it, such as the origin "
                    "of a clone, or ingest the files without once=True"
                )
            counted[at] = None
            at = before[at]
        known = pa.array(sorted(counted), pa.string())
        files = rows.filter(pc.and_(pc.is_valid(rows["file"]), pc.is_in(rows["load"], known)))
        lost = [one for one, after in before.items() if one not in counted and after != last]
        load = Load(str(uuid4()), last)
        return cls(place, storage_options, load, files, tuple(lost), tuple(counted))

    def new(self, files: Sequence[SourceFile]) -> tuple[list[SourceFile], int]:
        """Return the files that no load has read, and the number of files that changed since."""
        listed = self._rows(files)
        at = pc.index_in(listed["file"], self.files["file"])
        there = listed.filter(pc.is_valid(at))
        known = self.files.take(at.drop_null())
        differs: Any = pa.repeat(False, there.num_rows)
        for name in _FACTS:
            one, other = there[name], known[name]
            lacks = pc.xor(pc.is_null(one), pc.is_null(other))
            differs = pc.or_(differs, pc.coalesce(pc.not_equal(one, other), lacks))
        changed = int(pc.sum(differs).as_py() or 0)
        is_new = pc.is_null(at).to_pylist()
        return [file for file, new in zip(files, is_new, strict=True) if new], changed

    def last(self, table: SourceFile) -> str | None:
        """Return the ETag of the last entry of a table of Delta or Iceberg: its version."""
        name: Any = table.named[0]
        rows = self.files.filter(pc.equal(self.files["file"], name))
        etags = dict(zip(rows["load"].to_pylist(), rows["etag"].to_pylist(), strict=True))
        return next((etags[load] for load in self.order if load in etags), None)

    def record(self, files: Sequence[SourceFile]) -> None:
        """Append files, before the commit of their rows."""
        start = pa.table({"load": [self.load.id], "after": [self.load.after]})
        nulls = [pa.nulls(1, one.type) for one in _FIELDS[:4]]
        rows = [pa.table([*nulls, *start.columns], schema=_SCHEMA), self._rows(files)]
        options = _options(self.storage_options)
        for retry in (True, False):
            try:
                ledger = write_dataset(
                    pa.concat_tables(rows), self.uri, mode="append", storage_options=options
                )
                break
            except DatasetExistsError:  # another load created it at the same time
                if not retry:
                    raise
        if len(ledger.get_fragments()) > _MAX_FRAGMENTS:
            with suppress(CommitConflictError):  # another load compacts it
                ledger.optimize.compact_files()
                ledger.cleanup_old_versions(_KEPT)

    def nothing_new(self, base: Manifest | None, job_id: str | None, changed: int) -> IngestResult:
        """Return the result if there is nothing to load."""
        return IngestResult(
            version=0 if base is None else base.version,
            rows=0,
            files=0,
            bad_records=0,
            job_id=job_id or self.load.id,
            changed=changed,
        )

    def remove_bad_records(self, bad_records: str | os.PathLike[str]) -> None:
        """Delete the bad records of loads that did not commit."""
        if not self.lost:
            return
        with suppress(DatasetNotFoundError):
            quarantine: LanceDataset = open_dataset(
                bad_records, storage_options=_options(self.storage_options)
            )
            names = ", ".join(f"'{name}'" for name in self.lost)
            if quarantine.count_rows(f"job_id in ({names})"):
                quarantine.delete(f"job_id in ({names})")

    def _rows(self, files: Sequence[SourceFile]) -> pa.Table:
        columns = [
            [file.named[0] for file in files],
            *([getattr(file, name) for file in files] for name in _FACTS),
            [self.load.id] * len(files),
            [self.load.after] * len(files),
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _FIELDS, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def newest_of(store: ObjectStore) -> Manifest | None:
    """Return the newest version of a dataset, if it exists."""
    with suppress(DatasetNotFoundError):
        return open_latest(store, to_follow=True)
    return None


def load_once(
    store: ObjectStore,
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    run: Callable[[Manifest | None, Ledger], IngestResult],
    bad_records: str | os.PathLike[str] | None,
) -> IngestResult:
    """Load the files that no load has; repeat this as long as other loads are first."""
    while True:
        base = newest_of(store)
        ledger = Ledger.begin(uri, storage_options, base)
        try:
            result = run(base, ledger)
            break
        except CommitConflictError:
            if last_load(newest_of(store)) == ledger.load.after:
                raise
    if bad_records is not None:
        Ledger.begin(uri, storage_options, newest_of(store)).remove_bad_records(bad_records)
    return result


def _options(given: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if given is None else dict(given)
