"""The journal of a job: what its finished tasks wrote, so that the next run need not repeat it.

No version depends on it: one is made by one commit, which has the id of the job. A job that is run
again finds its commit in the newest manifest, or else in the journal the tasks that are done. Once
so many other jobs have made versions that the manifest has forgotten it, only the journal can say
that there may have been a commit.

Runs of a job that overlap share what their tasks wrote. What each notes around its own commit is a
file of its own, so that none removes the note of another.

Entries of tasks and notes have a digest: one that was damaged, or is in the place of another, is as
none, or may say anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Literal, TypeAlias

from glaive.dataclass import dataclass
from glaive.dataset.writing.base_paths import DataLocation
from glaive.entropy import random_bytes
from glaive.errors import (
    CommitError,
    GlaiveError,
    ObjectNotFoundError,
    OptionError,
    StoreError,
)
from glaive.format.fragment_list import unpacked_fragments
from glaive.format.names import is_generated_data_file_name
from glaive.ingestion.ingested import IngestedPieces
from glaive.io.store import ObjectStore
from glaive.table.unverified import can_be_committed

__all__ = ["JOBS", "Journal", "NotedCommit"]

JOBS: Final = "_glaive/jobs"
"""Folder of journals below the root of a dataset; other libraries do not look into it."""

NotedCommit: TypeAlias = Literal["rows", "bad"]
"""A job may make two versions: one of the dataset of bad records, and then its own."""

_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_ENTRY: Final = re.compile(r"(?:[0-9a-f]{32}|(?:rows|bad)-[0-9a-f]{16}|committing)\.json")
"""Names of entries that go once there is a version; earlier releases wrote the last one. The folder
may have others: it may be a link to another one of the dataset.
"""


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one job.

    Parameters
    ----------
    store
        Root of the dataset.
    job_id
        Letters, digits, ``.``, ``_`` and ``-``, 128 at most.

    Raises
    ------
    OptionError
        The id has other characters.
    """

    store: ObjectStore
    job_id: str

    def __post_init__(self) -> None:
        given: object = self.job_id
        if not isinstance(given, str) or not _JOB_ID.fullmatch(given):
            raise OptionError(
                f"job_id: expected up to 128 letters, digits, '.', '_' or '-', found "
                f"{self.job_id!r}"
            )

    @property
    def _folder(self) -> str:
        return f"{JOBS}/{self.job_id}"

    @property
    def end(self) -> str:
        """The file that says which version the job made."""
        return f"{self._folder}/committed.json"

    def finished(
        self, key: str, *, rows: Sequence[DataLocation], bad_records: Sequence[DataLocation]
    ) -> IngestedPieces | None:
        """What a task wrote, if it is finished and its files are still there, and will be.

        ``rows`` and ``bad_records`` are the places to which tasks write these. One request for a
        task that is not finished; else one more for each file.
        """
        entry = self._read_sealed(f"{self._folder}/{key}.json")
        if entry is None:
            return None
        try:
            count = entry["bad_records"]
            if not isinstance(count, int):
                return None
            dropped = entry["dropped"]
            if not isinstance(dropped, int):
                return None
            result = IngestedPieces(
                _decoded(entry["fragments"]), _decoded(entry["bad_fragments"]), count, dropped
            )
            places = [*_places(result.fragments, rows)]
            places += _places(result.bad_fragments, bad_records)
        except (KeyError, TypeError, ValueError):
            return None
        try:
            stays = all(can_be_committed(store.head(path)) for store, path in places)
        except ObjectNotFoundError:
            return None
        return result if stays else None

    def finish(self, key: str, result: IngestedPieces) -> None:
        """Write down what a task wrote."""
        entry = {
            "fragments": [base64.b64encode(data).decode() for data in result.fragments],
            "bad_fragments": [base64.b64encode(data).decode() for data in result.bad_fragments],
            "bad_records": result.bad_records,
            "dropped": result.dropped,
        }
        self._put_sealed(f"{self._folder}/{key}.json", entry)

    def begun(self, commit: NotedCommit) -> int | None:
        """The version after which a run of the job began a commit, if the end of one is unknown.

        One listing, and one request for each such run, and for an end that was written down.
        """
        wanted = f"{self._folder}/{commit}-"
        paths = [meta.path for meta in self.store.list(self._folder)]
        notes = map(self._read_sealed, (path for path in paths if path.startswith(wanted)))
        noted = list(map(_version, notes))
        if self.end in paths and self.committed() is None:
            noted.append(None)
        # A note or an end that cannot be read may say any version.
        return min((version or 0 for version in noted), default=None)

    @contextmanager
    def committing(self, commit: NotedCommit, since: int) -> Iterator[None]:
        """Have it written down, while a run of the job commits, that its version comes next.

        Parameters
        ----------
        commit
            Of the rows, or of the bad records.
        since
            Only later versions can be that of the job.
        """
        path = f"{self._folder}/{commit}-{random_bytes(8).hex()}.json"
        self._put_sealed(path, {"version": since})
        try:
            yield
        except GlaiveError as error:
            # Of a store, and of a commit without an answer: there may be a version.
            if type(error) is not CommitError and not isinstance(error, StoreError):
                with suppress(StoreError):
                    self.store.delete([path])
            raise

    def committed(self) -> int | None:
        """The version that the job made, if its end was written down."""
        return _version(self._read(self.end)) or None

    def commit(self, version: int) -> None:
        """Write down the version, and remove the entries of the tasks.

        A store that fails is no error: there is a version, which the next run of the job finds.
        """
        try:
            self.store.put(self.end, [json.dumps({"version": version}).encode()])
        except StoreError as error:
            _not_noted(error)
        else:
            self.clear()

    def clear(self) -> None:
        """Remove the entries of the tasks, which nothing needs once there is a version.

        Those that cannot be removed stay for the next run of the job.
        """
        try:
            entries = list(self._entries())
            if entries:
                self.store.delete(entries)
        except StoreError as error:
            _not_noted(error)

    def _entries(self) -> Iterator[str]:
        for meta in self.store.list(self._folder):
            if _ENTRY.fullmatch(meta.path.rpartition("/")[2]):
                yield meta.path

    def _put_sealed(self, path: str, entry: dict[str, object]) -> None:
        sealed = {**entry, "digest": _digest(path, entry)}
        self.store.put(path, [json.dumps(sealed).encode()])

    def _read_sealed(self, path: str) -> dict[str, object] | None:
        """An entry as it was written under this name."""
        entry = self._read(path)
        if entry is None or entry.pop("digest", None) != _digest(path, entry):
            return None
        return entry

    def _read(self, path: str) -> dict[str, object] | None:
        try:
            entry = json.loads(self.store.get(path).to_pybytes())
        except (ObjectNotFoundError, ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None


def _version(entry: dict[str, object] | None) -> int | None:
    version = None if entry is None else entry.get("version")
    return version if type(version) is int and version >= 0 else None


def _digest(path: str, entry: dict[str, object]) -> str | None:
    """A text that changes with an entry and its name; None if nothing glaive wrote is so."""
    try:
        text = json.dumps([path.rpartition("/")[2], entry], sort_keys=True)
    except RecursionError:
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _not_noted(error: StoreError) -> None:
    import logging

    logging.getLogger(__name__).debug("the end of a job was not written down: %s", error)


def _decoded(texts: object) -> tuple[bytes, ...]:
    if not isinstance(texts, list):
        raise TypeError(texts)
    return tuple(base64.b64decode(text, validate=True) for text in texts)


def _places(
    fragments: tuple[bytes, ...], locations: Sequence[DataLocation]
) -> Iterator[tuple[ObjectStore, str]]:
    """Where the files of a task are; no task has written files of other names, or elsewhere."""
    known = {location.base_id: location for location in locations}
    for fragment in unpacked_fragments(fragments, "the journal"):
        for file in fragment.files:
            if not is_generated_data_file_name(file.path):
                raise ValueError(file)
            location = known[file.base_id]
            yield location.store, location.path_of(file.path)
