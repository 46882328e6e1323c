"""The folder of an export: which run may write to it, and what becomes of the files of others.

Readers of a folder take all files in it, so those of two runs must not stay side by side. No store
can show some files and hide others at once, and a run that was taken for dead may go on. Therefore:

- Names of files have the job and the run, so that no run replaces what another one wrote.
- A run that goes on has a *claim*, the file ``_started-…``. A run that takes its place removes the
  claim, before it writes any file. Tasks look for it before they make a file visible, and the
  driver before it removes files of others and before it writes the mark ``_SUCCESS``.
- Files of others are removed when all of the run are there. The mark comes last; it names the files
  that belong together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args

from glaive.dataclass import dataclass
from glaive.entropy import random_bytes
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StoreError,
)
from glaive.io.local_sink import final_name
from glaive.io.store import ObjectStore

# --- Names of the files that exports write: of rows, claims of runs, and the mark at the end

DONE: Final = "_SUCCESS"
"""The mark, named as Spark's."""

_JOB: Final = r"[A-Za-z0-9._-]+"
"""Never a path: what lies in a folder below is of somebody else."""

_ROWS: Final = r"part-(?:[mr]-)?[0-9]{5,}(?:[-_.][-A-Za-z0-9_.]*)?"
_EXPORTED: Final = re.compile(
    rf"{_ROWS}|_SUCCESS|_started-{_JOB}-[0-9a-f]{{16}}|\.(?:{_ROWS}|_SUCCESS)\.crc"
)
_CLAIM: Final = re.compile(rf"_started-({_JOB})-([0-9a-f]{{16}})")

PART: Final = re.compile(rf"part-\d+-({_JOB})-([0-9a-f]{{16}})\.\w+")
"""A file with rows: the job and the run that wrote it."""


def is_exported(path: str) -> bool:
    """Whether exports write files of this name, glaive's or Spark's."""
    return _EXPORTED.fullmatch(path) is not None


def job_of(path: str) -> str | None:
    """The job that wrote a file; ``None`` if glaive's exports did not."""
    match = PART.fullmatch(path) or _CLAIM.fullmatch(path)
    return None if match is None else match[1]


def claims_of(paths: Iterable[str]) -> dict[str, str]:
    """The claims among files, each with its run."""
    return {path: match[2] for path in paths if (match := _CLAIM.fullmatch(path))}


def ended_runs(named: Iterable[str]) -> set[str]:
    """The runs of the files that a mark names: it names none of a run that goes on."""
    return {match[2] for path in named if (match := PART.fullmatch(path))}


ExportMode: TypeAlias = Literal["errorifexists", "ignore", "append", "overwrite"]


@dataclass(frozen=True, slots=True)
class ExportRun:
    """One run of an export; can be pickled.

    Parameters
    ----------
    folder
        Where it writes.
    job, id
        The job, and a random name of this run of it.
    """

    folder: ObjectStore
    job: str
    id: str

    @classmethod
    def new(cls, folder: ObjectStore, job: str) -> ExportRun:
        """Another run of a job."""
        return cls(folder, job, random_bytes(8).hex())

    @property
    def claim(self) -> str:
        """The file that says that the run goes on."""
        return f"_started-{self.job}-{self.id}"

    def name(self, number: int, suffix: str) -> str:
        """The name of a file with rows."""
        return f"part-{number:05}-{self.job}-{self.id}{suffix}"

    def check(self) -> None:
        """Check that the run has its claim. One request.

        Raises
        ------
        CommitConflictError
            Another run took its place, or it has ended.
        """
        try:
            self.folder.head(self.claim)
        except ObjectNotFoundError:
            raise CommitConflictError(
                f"another export to {self.folder.uri} began while this one ran ({self.job}), and "
                "took its place: no file of this one stays there. Run it again when the other one "
                "has ended, if its rows are to be there instead",
                retryable=False,
            ) from None

    def withdraw(self, names: Iterable[str]) -> None:
        """End the run, and remove its files; failures of the store are ignored."""
        with suppress(StoreError):
            self.folder.delete([self.claim, *sorted(names)])


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """What a run removes when all its own files are there.

    Parameters
    ----------
    paths
        Files that were there when it began, also unfinished ones.
    runs
        Runs of any job whose claims it removed: they may still write.
    """

    paths: frozenset[str]
    runs: frozenset[str]

    def has(self, path: str, final: str, job: str) -> bool:
        """Whether a file is to be removed: one of these, or of a job that runs again."""
        part = PART.fullmatch(final)
        return path in self.paths or (part is not None and (part[1] == job or part[2] in self.runs))


class _NoMarkError(Exception):
    """A store refused the mark, and there is none."""

    def __init__(self, reason: StoreError) -> None:
        super().__init__(reason)
        self.reason = reason


def check_mode(mode: object) -> None:
    """Refuse what is no mode; Spark would take others for some, in any case of letters.

    Raises
    ------
    OptionError
        It is none.
    """
    known = get_args(ExportMode)
    if mode not in known:
        raise OptionError(f"mode: expected one of {', '.join(known)}, found {mode!r}")


def begin(run: ExportRun, mode: ExportMode) -> ReplacedFiles | None:
    """Claim the folder; ``None`` if there are files and ``mode`` is ``ignore``.

    Two listings: the second one shows who began after the first.

    Raises
    ------
    DatasetExistsError
        There are files, and ``mode`` is ``errorifexists``.
    OptionError
        ``overwrite`` would remove files that no export wrote.
    """
    folder = run.folder
    listed = _listed(folder)
    if not _is_free(run, mode, listed):
        return None
    if mode in ("append", "overwrite"):  # else there is no mark
        # Without it, runs that were stopped when they had written a mark would count as going on.
        ended = ended_runs(read_mark(folder).get("files", ()))
        folder.delete(sorted(path for path, of in claims_of(listed).items() if of in ended))
        # Before the claim, so that the mark of a run that takes the place of this one stays.
        folder.delete([DONE])
    folder.put(run.claim, [json.dumps({"mode": mode}).encode()], mode="create")
    try:
        # First the unfinished ones: the runs that write them then have claims in the listing.
        unfinished = dict(_unfinished(folder))
        listed = [path for path in _listed(folder) if path != run.claim]
        free = _is_free(run, mode, listed)
    except BaseException:
        folder.delete([run.claim])
        raise
    if not free:
        folder.delete([run.claim])
        return None

    def replaces(final: str) -> bool:
        return job_of(final) == run.job or (mode == "overwrite" and is_exported(final))

    replaced = [path for path in listed if replaces(path)]
    claims = claims_of(listed)
    fenced = {path for path in claims if path in replaced}
    folder.delete(sorted(fenced))
    alone = len(fenced) == len(claims)  # else it may be another's mark that is being written
    replaced += [
        path for path, final in unfinished.items() if replaces(final) or (final == DONE and alone)
    ]
    return ReplacedFiles(
        frozenset(replaced) - {DONE, *claims}, frozenset(claims[path] for path in fenced)
    )


def finish(
    run: ExportRun, names: frozenset[str], replaced: ReplacedFiles, facts: Mapping[str, object]
) -> None:
    """Remove the files that the run replaces, write the mark, and end the run.

    Parameters
    ----------
    names
        The files of the run.
    facts
        What the mark says besides.

    Raises
    ------
    CommitConflictError
        Another run took the place of this one, or somebody removed its files.
    StoreError
        The store failed. If there certainly is no mark, the files of the run are removed, unless
        others were removed for them.
    """
    try:
        left = _settle(run, names, replaced)
    except CommitConflictError:
        run.withdraw(names)
        raise
    try:
        _write_mark(run, {"job": run.job, "run": run.id, **facts}, left)
    except _NoMarkError as error:
        if not replaced.paths:
            run.withdraw(names)
        raise error.reason from None
    # From here on the files stay: there may be a mark.
    with suppress(StoreError):  # the next run removes it
        run.folder.delete([run.claim])


def _settle(run: ExportRun, names: frozenset[str], replaced: ReplacedFiles) -> list[str]:
    """Remove the files that the run replaces; returns the others."""
    folder, job = run.folder, run.job
    # First the unfinished ones: those that become visible meanwhile are in the listing.
    unfinished = [path for path, final in _unfinished(folder) if replaced.has(path, final, job)]
    if unfinished:
        run.check()  # else they may be of another run of the job, which took the place of this one
        folder.delete(unfinished)
    listed = _listed(folder)
    # A run that takes the place of this one removes its claim, and then writes files: if the claim
    # is there, none of these is in the listing.
    run.check()
    if lost := names.difference(listed):
        raise CommitConflictError(
            f"{len(lost)} files of the export {job} to {folder.uri} are not there any more, such "
            f"as {min(lost)}: somebody removed them. Run it again",
            retryable=False,
        )
    left = [path for path in listed if path in names or not replaced.has(path, path, job)]
    folder.delete(sorted({*listed}.difference(left)))
    return left


def clear(folder: ObjectStore, job: str) -> None:
    """Remove what the last run of a job left if it was stopped when it had written the mark."""
    marks = [path for path, final in _unfinished(folder) if final == DONE]
    run = read_mark(folder).get("run")
    folder.delete([*marks, *([] if run is None else [ExportRun(folder, job, run).claim])])


def read_mark(folder: ObjectStore) -> dict[str, Any]:
    """What the mark of the last export says; nothing if there is none. One request.

    Others may have written it: a run that is no name of one, and files that are no texts, are left
    out.
    """
    try:
        facts = json.loads(folder.get(DONE).to_pybytes())
    except (ObjectNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(facts, dict):
        return {}
    run, files = facts.pop("run", None), facts.pop("files", None)
    if isinstance(run, str) and re.fullmatch(r"[0-9a-f]{16}", run):
        facts["run"] = run
    if isinstance(files, list):
        facts["files"] = [path for path in files if isinstance(path, str)]
    return facts


def _write_mark(run: ExportRun, facts: Mapping[str, object], left: Sequence[str]) -> None:
    """Write the mark; ``left`` are the paths of all files.

    Raises
    ------
    _NoMarkError
        There is none, and will be none.
    """
    folder = run.folder

    def mark(files: Sequence[str]) -> list[bytes]:
        return [json.dumps({**facts, "files": files}).encode()]

    try:
        folder.put(DONE, mark(_whole(left, run)), mode="create")
    except StoreError as error:
        found = read_mark(folder)
        # Once the mark is there the run has ended, and its files stay.
        if found.get("run") == run.id:
            return
        run.check()
        if not isinstance(error, ObjectExistsError):
            if error.is_unanswered:  # it may be under way
                raise
            raise _NoMarkError(error) from None
        # It is of an export that appended since the listing, and may have its claim still.
        listed, ended = _listed(folder), found.get("files")
        also = set(listed).intersection(ended if isinstance(ended, list) else ())
        folder.put(DONE, mark(sorted(also.union(_whole(listed, run)))))


def complete_mark(folder: ObjectStore, names: frozenset[str]) -> None:
    """Name files in the mark that an append has written which saw the claim of their run."""
    found = read_mark(folder)
    files = found.get("files")
    if not isinstance(files, list) or names.issubset(files):
        return
    listed = set(_listed(folder))
    if names <= listed:  # else another run replaces them
        files = sorted(names.union(listed.intersection(files)))
        folder.put(DONE, [json.dumps({**found, "files": files}).encode()])


def _is_free(run: ExportRun, mode: ExportMode, listed: Sequence[str]) -> bool:
    """Whether a run may begin, given what is there; see :func:`begin`."""
    found = [path for path in listed if job_of(path) != run.job]
    if found and mode == "errorifexists":
        raise DatasetExistsError(
            f"{run.folder.uri} has files, such as {found[0]}. Pass mode='append' or 'overwrite', "
            "or choose another folder"
        )
    if mode == "overwrite":
        refuse_others(run.folder, found)
    return not found or mode != "ignore"


def refuse_others(folder: ObjectStore, listed: Iterable[str] | None = None) -> None:
    """Refuse to remove files of a folder that no export wrote; default: all that are there.

    Raises
    ------
    OptionError
        Names the first one.
    """
    for path in _listed(folder) if listed is None else listed:
        if not is_exported(path):
            raise OptionError(
                f"mode 'overwrite': {path!r} in {folder.uri} is no file of an export. Remove it, "
                "or choose another folder"
            )


def _whole(paths: Sequence[str], run: ExportRun) -> list[str]:
    """The files for readers: neither hidden ones, nor those of other runs that go on."""
    unended = {*claims_of(paths).values()} - {run.id}
    return [
        path
        for path in paths
        if not any(part.startswith(("_", ".")) for part in path.split("/"))
        and not ((part := PART.fullmatch(path)) and part[2] in unended)
    ]


def _listed(folder: ObjectStore) -> list[str]:
    return [meta.path for meta in folder.walk("")]


def _unfinished(folder: ObjectStore) -> Iterator[tuple[str, str]]:
    """Files that are being written, or whose writers were killed, with their final names.

    Where a store shows them.
    """
    for meta in folder.unfinished(""):
        final = final_name(meta.path)
        if final is not None:
            yield meta.path, final
