"""The parts of a clean-up that read, list and delete: values that run in any process.

A plan reads manifests for the names of files that versions have, then lists the folders and picks
the files that no version needs. Both can be divided: the versions among readers, the names among
listings, by cuts in the order of paths. Each listing gets exactly the names between its cuts, so
what it picks is what an undivided one picks there.

Which versions go is decided by :class:`Selection`, which files by :class:`ListUnused`, wherever
they run.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice, pairwise
from typing import Final, Literal, Protocol, Self, TypeVar, get_args, overload

import numpy as np

from glaive.dataclass import dataclass
from glaive.errors import CleanupError, ObjectNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.paths import DATA, DELETIONS, INDICES, TRANSACTIONS, VERSIONS
from glaive.io.confined import LinkTargets
from glaive.io.local_sink import final_name, is_others_temporary
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.named_tuple import NamedTuple
from glaive.table.load import each_manifest, load_manifest
from glaive.table.references import FileKind, FileSet, IdRange, is_own_folder, kind_of
from glaive.table.versions import ManifestLocation, list_manifests, list_versions_past

# --- Files that a clean-up found: packed on their way between processes, and where they wait
# A process that only hands them on holds some 30 bytes of each, not 220.

_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)


class CleanupFile(NamedTuple):
    """A file to delete; ``unverified`` if no known version has used it.

    ``unfinished`` is an empty manifest, deleted only if it is still empty then.
    """

    path: str
    kind: FileKind
    size: int
    unverified: bool
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Some files, compressed where they are pickled, and what a process that keeps them needs.

    Parameters
    ----------
    given
        The files, or what another process packed.
    drawn
        Whether all names are random, so that nobody uses them again.
    counts
        Files of each kind.
    size
        Bytes of all files.
    """

    given: Sequence[CleanupFile] | bytes
    drawn: bool
    counts: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, files: Sequence[CleanupFile], *, drawn: bool) -> Self:
        """These files."""
        kinds = [file.kind for file in files]
        counts = tuple(map(kinds.count, _KINDS))
        return cls(files, drawn, counts, sum(file.size for file in files))

    def __len__(self) -> int:
        return sum(self.counts)

    @property
    def files(self) -> Sequence[CleanupFile]:
        """The files; unpacked with each call."""
        return _unpack(self.given) if isinstance(self.given, bytes) else self.given

    def count(self, kind: FileKind) -> int:
        """Files of a kind."""
        return self.counts[_KINDS.index(kind)]

    def without(self, paths: FileSet | set[str]) -> FoundFiles:
        """The files that are not among these paths."""
        files = [file for file in self.files if file.path not in paths]
        return self if len(files) == len(self) else FoundFiles.of(files, drawn=self.drawn)

    def __reduce__(self) -> tuple[object, ...]:
        packed = self.given if isinstance(self.given, bytes) else _pack(self.given)
        return FoundFiles, (packed, self.drawn, self.counts, self.size)


def _pack(files: Sequence[CleanupFile]) -> bytes:
    kinds = bytes(_KINDS.index(file.kind) for file in files)
    flags = bytes(file.unverified + 2 * file.unfinished for file in files)
    sizes = np.array([file.size for file in files], np.int64).tobytes()
    columns = ([file.path for file in files], kinds, flags, sizes)
    return zlib.compress(pickle.dumps(columns), 1)


def _unpack(packed: bytes) -> list[CleanupFile]:
    # A process of the same job packed them: they trust each other, as Spark's do.
    columns = pickle.loads(zlib.decompress(packed))  # noqa: S301  # see above
    paths, kinds, flags, sizes = columns
    numbers = np.frombuffer(sizes, np.int64).tolist()
    return [
        CleanupFile(path, _KINDS[kind], size, bool(flag & 1), bool(flag & 2))
        for path, kind, flag, size in zip(paths, kinds, flags, numbers, strict=True)
    ]


class PlannedFiles(Sequence[CleanupFile]):
    """All files of a plan, a sequence of values that are made when one is asked for.

    Parameters
    ----------
    runs
        Some of them each, in their order.
    """

    __slots__ = ("runs",)

    def __init__(self, runs: Iterable[FoundFiles] = ()) -> None:
        self.runs = tuple(run for run in runs if len(run))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(run.size for run in self.runs)

    def count_of(self, kind: FileKind) -> int:
        """Files of a kind."""
        return sum(run.count(kind) for run in self.runs)

    def without(self, paths: FileSet | set[str]) -> PlannedFiles:
        """The files that are not among these paths."""
        return PlannedFiles(run.without(paths) for run in self.runs)

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __iter__(self) -> Iterator[CleanupFile]:
        return chain.from_iterable(run.files for run in self.runs)

    @overload
    def __getitem__(self, at: int) -> CleanupFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[CleanupFile, ...]: ...
    def __getitem__(self, at: int | slice) -> CleanupFile | tuple[CleanupFile, ...]:
        chosen = range(len(self))[at]
        if isinstance(chosen, range):
            if chosen.step > 0:
                return tuple(islice(self, chosen.start, chosen.stop, chosen.step))
            return tuple(self)[at]
        return next(islice(self, chosen, None))

    def __repr__(self) -> str:
        return f"PlannedFiles(<{len(self)} files>)"


def in_batches(files: Iterable[CleanupFile], count: int) -> Iterator[list[CleanupFile]]:
    """So many files at a time."""
    left = iter(files)
    while batch := list(islice(left, count)):
        yield batch


# --- Sets of files on their way between processes ---------------------------------------


class PackedFiles:
    """A set of files that is compressed where it is pickled, and unpacked where it is used.

    So a process that only hands it on holds some 25 bytes of each random name, not 220.

    Parameters
    ----------
    files
        The files, or what another process packed; they do not change any more.
    """

    __slots__ = ("_given",)

    def __init__(self, files: FileSet | bytes) -> None:
        self._given = files

    @property
    def files(self) -> FileSet:
        """The files; unpacked with each call."""
        return _unpack_set(self._given) if isinstance(self._given, bytes) else self._given

    def __reduce__(self) -> tuple[object, ...]:
        given = self._given
        return PackedFiles, (given if isinstance(given, bytes) else _pack_set(given),)


def _pack_set(files: FileSet) -> bytes:
    """Sorted names, which have no control characters, by lines; then those of folders."""
    lines = ("\n".join(sorted(names)) for names in (files.paths, files.indices))
    return zlib.compress("\0".join(lines).encode(), 1)


def _unpack_set(packed: bytes) -> FileSet:
    paths, indices = zlib.decompress(packed).decode().split("\0")
    return FileSet(
        set(paths.split("\n")) if paths else set(), set(indices.split("\n")) if indices else set()
    )


# --- How a clean-up is divided: versions among readers, paths among listings, files to delete

BATCH: Final = 1000
"""Files deleted per call of the store."""

_MAX_BITS: Final = 10
"""Of the digits by which the names of data files are divided."""


@dataclass(frozen=True, slots=True)
class Division:
    """How much of a clean-up is one part.

    Parameters
    ----------
    versions
        Manifests that one part reads.
    fragments
        Fragments of each of them, whose files it reports.
    files
        Data files that one part lists.
    deletions
        Files that one part deletes.
    groups
        Groups of versions at most: what all of them have is reported by each.
    """

    versions: int = 16
    fragments: int = 1 << 16
    files: int = 1 << 13
    deletions: int = 4 * BATCH
    groups: int = 16

    def cuts(self, files: int) -> tuple[str, ...]:
        """Where paths are cut for listings of so many data files, in order.

        Names of data files begin with random digits: binary ones, or those of a UUID. Characters
        before ``0`` are in no cut, so that a data file and the folder of its blobs, which differ
        in ``.`` and ``/``, are never divided.
        """
        parts = -(-files // self.files)
        if parts < 2:
            return ()
        bits = min((parts - 1).bit_length(), _MAX_BITS)
        cuts = {f"{folder}/" for folder in (DATA, INDICES, TRANSACTIONS, VERSIONS)}
        cuts |= {f"{DATA}/{number:0{bits}b}" for number in range(1, 1 << bits)}
        cuts |= {f"{DATA}/{digit}" for digit in "23456789abcdef"}
        cuts |= {f"{DELETIONS}/{number}" for number in range(1, min(parts, 100))}
        return tuple(sorted(cuts))

    def readers(
        self, locations: Sequence[ManifestLocation], files: int, max_id: int
    ) -> list[tuple[Sequence[ManifestLocation], IdRange]]:
        """Versions and fragments for each part that reads manifests.

        Parts for other fragments tell other files. Parts for other versions tell most files
        again, so there are fewer of these where there are many files.
        """
        ranges = max(1, min(-(-files // self.fragments), max_id + 1))
        starts = [(max_id + 1) * at // ranges for at in range(ranges)]
        ids = [IdRange(*pair) for pair in zip(starts, [*starts[1:], None], strict=True)]
        wanted = -(-len(locations) // self.versions)
        groups = max(1, min(wanted, self.groups // ranges, len(locations)))
        cuts = [len(locations) * at // groups for at in range(groups + 1)]
        return [(locations[start:stop], each) for start, stop in pairwise(cuts) for each in ids]


@dataclass(frozen=True, slots=True)
class Span:
    """Paths from ``start`` on, before ``stop``; ``None`` for no limit."""

    start: str | None = None
    stop: str | None = None

    def __contains__(self, path: str) -> bool:
        return (self.start is None or self.start <= path) and (
            self.stop is None or path < self.stop
        )

    def meets(self, folder: str) -> bool:
        """Whether paths below a folder may be in it."""
        return (self.stop is None or f"{folder}/" < self.stop) and (
            self.start is None or self.start < f"{folder}0"  # the character after "/"
        )

    def listed(self, store: ObjectStore, folder: str) -> Iterator[ObjectMeta]:
        """Files below a folder, finished or not."""
        if self.start is None and self.stop is None:
            yield from store.walk(folder)
        else:
            yield from store.walk_between(folder, self.start, self.stop)
        yield from (meta for meta in store.unfinished(folder) if meta.path in self)


def spans_of(cuts: Sequence[str]) -> list[Span]:
    """The spans between cuts: one more than there are cuts."""
    return [Span(*pair) for pair in zip([None, *cuts], [*cuts, None], strict=True)]


R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Part(Protocol[R_co]):
    """Part of a clean-up; can be pickled."""

    def run(self, store: ObjectStore) -> R_co:
        """Do it in the branch that is cleaned up."""


class CleanupWork(Protocol):
    """Where parts of a clean-up run, and how it is divided; undivided if ``division`` is None."""

    @property
    def division(self) -> Division | None:
        """How much is one part."""

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        """Run parts in any order; their results in the order of the parts."""


class _Here:
    """Parts run in this process, one after the other."""

    division = None

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        return [part.run(store) for part in parts]


HERE: Final = _Here()
"""A clean-up in this process, undivided."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which versions go.

    Parameters
    ----------
    wanted
        Those that may go judging by their numbers.
    parents, tagged, linked
        Those that branches start from, that tags name, whose manifests are links.
    before
        Only versions created before this time go.
    unknown
        Times of empty tags and branches, which may name any version that existed then.
    """

    wanted: frozenset[int]
    parents: frozenset[int]
    tagged: frozenset[int]
    linked: frozenset[int]
    before: datetime
    unknown: tuple[datetime | None, ...] = ()

    def judge(self, version: int, time: datetime) -> Literal["keep", "tagged", "link", "delete"]:
        """What becomes of a version that was created at a time."""
        if version not in self.wanted or version in self.parents or time >= self.before:
            return "keep"
        if version in self.tagged:
            return "tagged"
        if any(until is None or time <= until for until in self.unknown):
            return "keep"
        return "link" if version in self.linked else "delete"


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """What manifests tell: times of the versions, files by span of those that stay and that go.

    Files below base paths stay with the versions that have them: the base path may be this root.
    """

    times: dict[int, datetime]
    kept: tuple[PackedFiles, ...]
    deleted: tuple[PackedFiles, ...]


@dataclass(frozen=True, slots=True)
class ReadVersions:
    """Read manifests for the files of some fragments."""

    locations: Sequence[ManifestLocation]
    selection: Selection
    ids: IdRange
    cuts: tuple[str, ...]

    def run(self, store: ObjectStore) -> VersionFiles:
        """The files that the versions have, without versions deleted meanwhile.

        Raises
        ------
        CorruptFileError
            A manifest is damaged, so the files in use are unknown.
        """
        times: dict[int, datetime] = {}
        kept, deleted = FileSet(), FileSet()
        for location, manifest in _loaded(store, self.locations):
            times[location.version] = time = manifest.timestamp
            if self.selection.judge(location.version, time) == "delete":
                deleted.add(manifest, self.ids, bases=False)
            else:
                kept.add(manifest, self.ids)
        # Most files of a version that goes are those of others; what is kept is not asked for.
        deleted.paths -= kept.paths
        deleted.indices -= kept.indices
        return VersionFiles(times, self._divided(kept), self._divided(deleted))

    def _divided(self, files: FileSet) -> tuple[PackedFiles, ...]:
        if not self.cuts:
            return (PackedFiles(files),)
        parts = [FileSet() for _ in range(len(self.cuts) + 1)]
        for path in files.paths:
            parts[bisect_right(self.cuts, path)].paths.add(path)
        for path in files.indices:
            parts[bisect_right(self.cuts, path)].indices.add(path)
        return tuple(map(PackedFiles, parts))


@dataclass(frozen=True, slots=True)
class Unused:
    """Files that no kept version uses, links and their targets that stay, and empty folders."""

    files: tuple[FoundFiles, ...]
    links: list[str]
    folders: list[str]


@dataclass(frozen=True, slots=True)
class ListUnused:
    """List the files of a span that no version needs.

    Parameters
    ----------
    span
        The paths.
    folders
        Folders in which files may be deleted.
    kept, deleted
        All files in the span of versions that stay, and that go.
    youngest
        Files changed after it may belong to an active writer unless a version has had them;
        ``None`` if nobody writes.
    targets
        What links lead to, which stays.
    most
        Files of one deletion; ``None`` for all.
    """

    span: Span
    folders: tuple[str, ...]
    kept: tuple[PackedFiles, ...]
    deleted: tuple[PackedFiles, ...]
    youngest: datetime | None
    targets: LinkTargets
    most: int | None = None

    def run(self, store: ObjectStore) -> Unused:
        """Files, links and empty folders; deletes nothing."""
        kept, deleted = _united(self.kept), _united(self.deleted)
        drawn: list[CleanupFile] = []
        others: list[CleanupFile] = []
        links: list[str] = []
        folders: list[str] = []
        for folder in filter(self.span.meets, self.folders):
            for meta in self.span.listed(store, folder):
                verified = meta.path in deleted
                kind = kind_of(meta.path, named=verified)
                if kind is None or _is_used(meta.path, kept):
                    continue
                if not (verified or self._is_old(meta)):
                    continue
                if store.is_link(meta.path) or store.full(meta.path) in self.targets:
                    links.append(meta.path)
                    continue
                file = CleanupFile(meta.path, kind, meta.size, unverified=not verified)
                random = kind != "manifest" and kind_of(meta.path) is not None
                (drawn if random else others).append(file)
            links.extend(path for path in store.links(folder) if self._is_unused_folder(path, kept))
            # As files that no version uses: a writer may just have made a young one.
            folders.extend(
                meta.path
                for meta in store.empty_folders(folder)
                if self._is_unused_folder(meta.path, kept) and self._is_old_folder(meta)
            )
        most = self.most or max(1, len(drawn))
        cuts = range(0, len(drawn), most)
        runs = [FoundFiles.of(drawn[at : at + most], drawn=True) for at in cuts]
        return Unused((FoundFiles.of(others, drawn=False), *runs), links, folders)

    def _is_old(self, meta: ObjectMeta) -> bool:
        if self.youngest is None:
            return True
        return meta.modified is not None and meta.modified <= self.youngest

    def _is_old_folder(self, meta: ObjectMeta) -> bool:
        if self.youngest is None:
            return True
        return meta.modified is not None and meta.modified < self.youngest

    def _is_unused_folder(self, path: str, kept: FileSet) -> bool:
        return path in self.span and is_own_folder(path) and not kept.has_folder(path)


def _is_used(path: str, kept: FileSet) -> bool:
    """Whether a version needs a file: not one that a copy, stopped, left unfinished in a folder."""
    name = path.rpartition("/")[2]
    if final_name(name) is not None or is_others_temporary(name):
        return path in kept.paths
    return path in kept


@dataclass(frozen=True, slots=True)
class _SizesOf:
    """Look up manifests that go."""

    paths: Sequence[str]

    def run(self, store: ObjectStore) -> list[CleanupFile]:
        """Their files, without those already deleted."""
        found = []
        for path in self.paths:
            with suppress(ObjectNotFoundError):
                found.append(CleanupFile(path, "manifest", store.head(path).size, unverified=False))
        return found


def manifest_files(
    store: ObjectStore, paths: Sequence[str], work: CleanupWork
) -> list[CleanupFile]:
    """Manifest files, without those already deleted; what a listing lacks is looked up."""
    sizes = {meta.path: meta.size for meta in store.list(VERSIONS)} if paths else {}
    others = [path for path in paths if path not in sizes]
    parts = [_SizesOf(others[at : at + BATCH]) for at in range(0, len(others), BATCH)]
    files = [file for found in work.run(store, parts) for file in found]
    known = (path for path in paths if path in sizes)
    files += [CleanupFile(path, "manifest", sizes[path], unverified=False) for path in known]
    return files


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files of a plan; missing ones are no error, so it may run twice."""

    found: tuple[FoundFiles, ...]

    @property
    def paths(self) -> list[str]:
        """Their paths."""
        return [file.path for run in self.found for file in run.files]

    def run(self, store: ObjectStore) -> None:
        """Delete them, as many per call as stores take, then folders that have become empty."""
        paths = self.paths
        for at in range(0, len(paths), BATCH):
            store.delete(paths[at : at + BATCH])
        store.remove_empty(_own_folders(paths))


def _own_folders(paths: Iterable[str]) -> list[str]:
    """Folders of blobs or index segments that files are in, which nobody else has."""
    folders = {path.rpartition("/")[0] for path in paths}
    return sorted(filter(is_own_folder, folders))


def _loaded(
    store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[tuple[ManifestLocation, Manifest]]:
    """Manifests, a few at a time, without those that another clean-up has deleted concurrently."""

    def load(location: ManifestLocation) -> Manifest | None:
        try:
            return load_manifest(store, location)
        except ObjectNotFoundError:
            if not _is_missing(store, location.path):
                raise  # another file is missing, so the files of the version are unknown
            return None

    manifests = each_manifest(store, load, locations)
    for location, manifest in zip(locations, manifests, strict=True):
        if manifest is not None:
            yield location, manifest


def made_meanwhile(
    store: ObjectStore, listed: Sequence[ManifestLocation], read: Collection[int]
) -> list[Manifest]:
    """Manifests of the versions listed that were not read before.

    Raises
    ------
    CleanupError
        The newest version that is listed was cleaned up: there are later ones, of unknown files.
    """
    new = [location for location in listed if location.version not in read]
    found = dict(_loaded(store, new))
    if new and new[-1] == listed[-1] and new[-1] not in found:
        raise CleanupError(
            f"another process cleaned up version {new[-1].version}, the newest one listed in "
            f"{store.full(VERSIONS)}: later ones are not listed yet. Try again later"
        )
    return list(found.values())


def made_since(store: ObjectStore, newest: int) -> list[Manifest]:
    """Manifests of versions after one, and of all detached ones, which any version may precede.

    Two listings, a request for each manifest, and three for versions that listings may not show
    yet. Errors as for :func:`made_meanwhile`.
    """
    manifests = list_manifests(store)
    detached = [location for location, meta in manifests if meta.size and location.is_detached]
    listed = [*detached, *list_versions_past(store, newest)]
    return made_meanwhile(store, listed, range(newest + 1))


def _is_missing(store: ObjectStore, path: str) -> bool:
    try:
        store.head(path)
    except ObjectNotFoundError:
        return True
    return False


def _united(parts: Sequence[PackedFiles]) -> FileSet:
    first, *others = (part.files for part in parts)
    if not others:
        return first
    files = FileSet(set(first.paths), set(first.indices))
    for other in others:
        files.paths |= other.paths
        files.indices |= other.indices
    return files
