"""Copy the files of a version to another root.

Manifests may be untrusted, and their paths may be symlinks. So glaive copies only files with the
names and the magic bytes of dataset files. It copies files of local directories outside the
dataset only if the caller allows it.

Specification: "Clones" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from threading import Event
from typing import Final

import pyarrow as pa

from glaive.config import settings
from glaive.dataclass import NamedTuple
from glaive.errors import (
    AccessError,
    CorruptFileError,
    DatasetExistsError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.format.blobs import has_blobs_v2
from glaive.format.deletions import decode_runs
from glaive.format.footer import MAGIC
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import (
    BLOB_IDS,
    DATA,
    blob_file_name,
    blob_folder,
    manifest_path,
    transaction_path,
)
from glaive.format.transaction import Transaction
from glaive.format.wire import MAX_FRAGMENT_ROWS
from glaive.io.access import AS_OPTION
from glaive.io.location import Location
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectStore, find_object
from glaive.table.configuration import checksum_of_metadata
from glaive.table.externals import link_to_others
from glaive.table.load import load_numbered, read_transaction
from glaive.table.operations.overwrite import Clone
from glaive.table.protocol import BuildContext
from glaive.table.put_manifest import (
    embed_dictionaries,
    finish,
    made_by,
    put_manifest,
    unknown_until_read,
)
from glaive.table.references import (
    FileKind,
    FileSet,
    VersionFile,
    can_be_committed,
    files_of,
    index_folders,
)
from glaive.table.refs import root_store
from glaive.table.root import access_of, base_of, find_base, place_opened, register_of
from glaive.table.versions import MAX_UNLISTED, latest, list_versions, write_hint
from glaive.types import ByteRange

_MAX_COPIES: Final = 8
"""Maximum number of files copied at a time."""

_WINDOW: Final = 8 << 20
"""Bytes of a file to hold in memory at a time."""

_LANCE_ENDS: Final = (".lance", ".idx")
_DELETIONS_BEGIN: Final = (b"ARROW1", b":0", b";0")
"""Arrow files, and the two kinds of roaring bitmaps."""
_IN_FOLDER: Final[dict[FileKind, re.Pattern[str]]] = {
    "data": re.compile(r"[01]{32}\.blob"),
    "index": re.compile(r"[\w.-]+\.(?:lance|idx)|details\.binpb"),
}
"""File names in folders that belong to a version."""


class _Copy(NamedTuple):
    """A file to copy: its kind, location, and path in the copy."""

    kind: str
    store: ObjectStore
    path: str
    to: str


def copy_files(
    source: ObjectStore,
    manifest: Manifest,
    target: ObjectStore,
    files: Iterable[VersionFile] | None = None,
    *,
    kept: FileSet | None = None,
) -> int:
    """Copy files of a version to the root ``target``; return the number of copied files.

    External blob values are not copied.

    Parameters
    ----------
    files
        The files to copy; default: all.
    kept
        Files of the newest version of the target. If given, existing files of the same size are
        skipped, unless a clean-up may delete them before the commit. All other existing files are
        kept.

    Raises
    ------
    AccessError
        The caller has not allowed a base path. Nothing was copied. Or a file is a symlink that
        leads out of the dataset, and its kind cannot be checked.
    CorruptFileError
        The contents of a file contradict its name, or two files have the same name. With ``kept``,
        one of them may be in the target.
    StoreError
        A store failed, or serves many more files than it lists.

    Notes
    -----
    Makes two requests per file, two more with ``kept``, and one more per 8 MiB of large files.
    Lists each folder of blobs or of an index. Over a network it makes one more request per folder
    of blobs, and per file that a stale listing lacks. Memory: 8 MiB for each file copied at a time.
    """
    chosen = files_of(manifest) if files is None else files
    files = [file for file in chosen if file.kind != "transaction"]
    for file in files:
        if file.kind == "data" and not file.is_folder and not file.path.endswith(".lance"):
            raise _not_copied("data file", "a name that ends in .lance", file.path, manifest.where)
    branch = manifest.wire.branch or None
    _check_bases(source, manifest, {file.base_id for file in files if file.base_id is not None})

    def copy(stopped: Event, copied: _Copy) -> int:
        if kept is not None and _is_there(copied, target, kept):
            return 0
        _copy(stopped, copied, target, source, branch)
        return 1

    return _copy_all(copy, _copies(source, manifest, files))


def copy_data_file(store: ObjectStore, path: str, to: str) -> None:
    """Copy a data file of a dataset within its folder, with the files of its blobs.

    Raises
    ------
    CorruptFileError
        The file is of another kind.
    ObjectNotFoundError
        The file does not exist.
    AccessError
        A file of blobs is a symlink that leads out of the dataset.

    Notes
    -----
    Makes a listing, two requests per file, and one more per 8 MiB of large files. Over a network
    it makes one more request, and one per file that a stale listing lacks.
    """
    blobs = _files_in("data", store, blob_folder(path), blob_folder(to))
    copies = [_Copy("data file", store, path, to), *blobs]
    _copy_all(partial(_copy, target=store, home=store, branch=None), copies)


def _copy_all(copy: Callable[[Event, _Copy], int], copies: Iterable[_Copy]) -> int:
    """Copy several files at a time; return the number of copied files.

    After an error writing stops, so a removed target stays removed.
    """
    stopped, workers = Event(), min(_MAX_COPIES, settings.io_concurrency)
    work = partial(copy, stopped)
    return sum(ordered_map(work, copies, workers=workers, in_order=False, stop=stopped.set))


def _copy(
    stopped: Event, copied: _Copy, target: ObjectStore, home: ObjectStore, branch: str | None
) -> int:
    _check_link(copied, home, branch)
    _copy_content(copied, stopped, target)
    return 1


def _is_there(copied: _Copy, target: ObjectStore, kept: FileSet) -> bool:
    """Return whether the target has the file, and will keep it until the commit.

    Raises
    ------
    CorruptFileError
        The target has another file of this name, which may be foreign, as the folder may be a
        symlink.
    """
    there = find_object(target, copied.to)
    if there is None:
        return False
    same_size = there.size == copied.store.head(copied.path).size
    if same_size and (copied.to in kept or can_be_committed(there)):
        return True
    if not (same_size and _are_equal(copied.store, copied.path, target, copied.to)):
        source = copied.store.full(copied.path)
        raise CorruptFileError(
            copied.kind,
            expected=f"none of this name, or one with the bytes of {source}",
            found="another one, which stays",
            where=target.full(copied.to),
        )
    return False


def _are_equal(one: ObjectStore, path: str, other: ObjectStore, to: str) -> bool:
    """Return whether two files of one size have the same bytes; compare in windows."""
    first, second = one.open(path), other.open(to)
    try:
        return all(
            first.read([window])[0].equals(second.read([window])[0])
            for window in _windows(first.size)
        )
    finally:
        first.close()
        second.close()


def _windows(size: int) -> list[ByteRange]:
    return [ByteRange(start, min(_WINDOW, size - start)) for start in range(0, size, _WINDOW)]


def _check_bases(source: ObjectStore, manifest: Manifest, base_ids: set[int]) -> None:
    """Refuse local directories outside the dataset, unless the caller allowed them."""
    if not base_ids:
        return
    policy = access_of(source)
    home = Location.parse(root_store(source, manifest.wire.branch or None).uri)
    for number in sorted(base_ids):
        base = find_base(manifest, number)
        location = Location.parse(base.path, f"base path {number} of {manifest.where}: ")
        if location.is_local:
            location = place_opened(location, base_of(source, manifest, number)[0])
        allowed = policy.options_for(location) is not None
        if location.is_local and not home.contains(location) and not allowed:
            raise AccessError(
                f"base path {number} of {manifest.where} is the directory {base.path!r}, which "
                f"is outside of {home.uri}. Nothing was copied. To allow copying from there, name "
                "the directory when opening the dataset: "
                f"base_store_params={{{location.uri!r}: {{}}}}. {AS_OPTION}"
            )
        base_of(source, manifest, number)


def _copies(source: ObjectStore, manifest: Manifest, files: list[VersionFile]) -> Iterator[_Copy]:
    has_blobs = any(map(has_blobs_v2, manifest.schema.fields))
    named = _named_in_indices(manifest) if any(file.kind == "index" for file in files) else {}
    seen: dict[str, str] = {}
    for file in files:
        if file.is_folder and file.kind == "data" and not has_blobs:
            continue
        for copy in _copies_of(source, manifest, file, named.get(file.path, ())):
            path = copy.store.full(copy.path)
            if copy.to not in seen:
                seen[copy.to] = path
                yield copy
            elif seen[copy.to] != path:
                raise CorruptFileError(
                    "files of a version",
                    expected=f"one with the name {copy.to}",
                    found=f"{seen[copy.to]} and {path}",
                    where=manifest.where,
                )


def _named_in_indices(manifest: Manifest) -> dict[str, list[str]]:
    """Return files that index entries name, by folder; entries omit blob files."""
    pairs = zip(index_folders(manifest), manifest.indices, strict=True)
    return {folder.path: [named.path for named in entry.files] for folder, entry in pairs}


def _copies_of(
    source: ObjectStore, manifest: Manifest, file: VersionFile, named: Collection[str]
) -> Iterator[_Copy]:
    """Yield the files to copy for a file or folder of a version; ``named`` files are in it."""
    store, path = source, file.path
    if file.base_id is not None:
        store, is_root = base_of(source, manifest, file.base_id)
        if file.kind == "data" and not is_root:
            path = path.removeprefix(f"{DATA}/")
    if not file.is_folder:
        yield _Copy(f"{file.kind} file", store, path, file.path)
        return
    yield from _files_in(file.kind, store, path, file.path, named)


def _files_in(
    kind: FileKind, store: ObjectStore, folder: str, to: str, named: Collection[str] = ()
) -> Iterator[_Copy]:
    """Yield files of a folder, including files that a stale listing lacks."""
    pattern = _IN_FOLDER[kind]
    names = [meta.path.rpartition("/")[2] for meta in store.list(folder)]
    listed = frozenset(names)
    if store.is_remote:
        names += sorted(set(named) - listed)
        names += _unlisted_blobs(store, folder, listed) if kind == "data" else ()
    for name in filter(pattern.fullmatch, names):
        yield _Copy(f"file of {kind}", store, f"{folder}/{name}", f"{to}/{name}")


def _unlisted_blobs(store: ObjectStore, folder: str, listed: Collection[str]) -> Iterator[str]:
    """Yield blob files that a listing lacks: their numbers start at 1 and are consecutive.

    Makes one request per file, and one for the number after the last.

    Raises
    ------
    StoreError
        The listing lacks too many files.
    """
    names = (
        name for number in range(1, BLOB_IDS) if (name := blob_file_name(number)) not in listed
    )
    for count, name in enumerate(names):
        if find_object(store, f"{folder}/{name}") is None:
            return
        if count == MAX_UNLISTED:
            raise StoreError(
                f"{store.full(folder)} has more than {MAX_UNLISTED:,} files that its listing "
                "lacks, or the server has an answer for any name. Try again when the listing has "
                "them; a web server has to answer 404 for what is not there"
            )
        yield name


def _check_link(copied: _Copy, home: ObjectStore, branch: str | None) -> None:
    """Refuse a symlink out of the dataset to a file, unless its first and last bytes identify it.

    A base path below the dataset may itself be a symlink, so files in it are checked as in reads.

    Files other than deletion files may begin with the same bytes, such as Arrow tables.
    """
    if copied.path.endswith(_LANCE_ENDS):
        return
    reason = link_to_others(home, branch, copied.store, copied.path)
    if reason is None:
        return
    where = copied.store.full(copied.path)
    if copied.kind != "deletion file":
        raise AccessError(f"{where} was not copied: {reason}")
    data, bitmap = copied.store.get(copied.path), copied.path.endswith(".bin")
    try:
        decode_runs(data, bitmap=bitmap, rows=MAX_FRAGMENT_ROWS, where=where)
    except CorruptFileError:
        raise _not_copied(copied.kind, "a file of deleted rows", "something else", where) from None


def _copy_content(copied: _Copy, stopped: Event, target: ObjectStore) -> None:
    """Copy a file, in windows if it is large; stop writing once ``stopped``."""
    reader = copied.store.open(copied.path)
    try:
        last = reader.tail(_WINDOW)
        before = reader.size - last.size
        windows = _windows(before)
        first = reader.read(windows[:1])[0] if windows else last
        _check_content(copied, first, last)
        if not windows:
            target.put(copied.to, [last])
            return
        sink = target.create(copied.to)
        try:
            sink.write([first])
            for window in windows[1:]:
                if stopped.is_set():
                    raise InterruptedError(copied.to)  # nobody waits for this file
                sink.write(reader.read([window]))
            sink.write([last])
            sink.finish()
        except BaseException:
            sink.abort()
            raise
    finally:
        reader.close()


def _check_content(copied: _Copy, first: pa.Buffer, last: pa.Buffer) -> None:
    """Refuse a file without the magic bytes of its kind, which may be a foreign file."""
    if copied.kind == "deletion file":
        begin = bytes(memoryview(first)[:6])
        good, expected = begin.startswith(_DELETIONS_BEGIN), "a file of deleted rows"
    elif copied.path.endswith(_LANCE_ENDS):
        end = bytes(memoryview(last)[-len(MAGIC) :])
        good, expected = end == MAGIC, f"a file that ends in {MAGIC!r}"
    else:  # blobs lack magic bytes; symlinks to them were refused before
        return
    if not good:
        raise _not_copied(copied.kind, expected, "something else", copied.store.full(copied.path))


def _not_copied(kind: str, expected: str, found: str, where: str) -> CorruptFileError:
    return CorruptFileError(
        kind, expected=expected, found=f"{found}, which was not copied", where=where
    )


# --- Create a dataset or a branch with the contents of a version of another --------------
# A shallow clone has only a manifest and refers to the source by a base path. For a deep clone
# glaive copies the files first (``glaive.table.copying``).
#
# Specification: "Clones" and "Branches" in ``docs/format/refs.md``.


def begin_clone(
    source: ObjectStore, manifest: Manifest, target: ObjectStore, clone: Clone
) -> Manifest:
    """Commit the first version of a clone or branch, with the number of the source.

    Raises
    ------
    DatasetExistsError
        A dataset exists at the target.
    CommitError
        It is unknown whether the clone was committed.

    Notes
    -----
    Makes three requests and two listings, and more for dictionaries of a source in format 0.1.
    """
    refuse_dataset(target)
    transaction = Transaction(read_version=manifest.version, operation=clone)
    encoded = transaction.encode()
    draft = clone.apply(None, BuildContext(manifest.version, older=manifest))
    finish(draft, manifest.version)
    draft.wire.transaction_file = transaction.file_name
    target.put(transaction_path(transaction.file_name), [encoded])
    buffers = encode_manifest(
        draft.wire,
        transaction=encoded,
        index_section=draft.index_section,
        dictionaries=embed_dictionaries(source, draft.wire, 0, manifest),
        checksum=checksum_of_metadata(target, draft.wire),
    )
    version = manifest.version
    made = put_manifest(target, version, "V2", buffers, transaction.uuid)
    with unknown_until_read(target, version):
        if not made:
            there = load_numbered(target, version, "V2")
            if not made_by(target, there, transaction.uuid):
                raise _exists(target)
        if register_of(target) is None and not _is_first(target, version):
            target.delete([manifest_path(version, "V2")])
            raise DatasetExistsError(
                f"cannot clone into {target.uri}: another dataset was begun there at the same "
                "time, and maybe given up for this one. Look whether there is one, else try again."
            )
    write_hint(target, version)
    return Manifest(
        draft.wire,
        where=target.full(manifest_path(version, "V2")),
        scheme="V2",
        transaction=encoded,
        index_section=draft.index_section,
    )


def _is_first(target: ObjectStore, version: int) -> bool:
    """Return whether all versions follow this one, so that no other clone began here meanwhile.

    Another clone may have begun with another number, which no put refuses. Makes one listing, and
    one request if later versions exist.
    """
    numbers = [location.version for location in list_versions(target)]
    if min(numbers, default=version) < version:
        return False
    if max(numbers, default=version) == version:
        return True
    try:
        following = read_transaction(target, load_numbered(target, version + 1, "V2"))
    except ObjectNotFoundError:
        return False
    return following is not None and following.operation.wire_name != Clone.wire_name


def refuse_dataset(target: ObjectStore) -> None:
    """Check that the target of a clone is not a dataset.

    Raises
    ------
    DatasetExistsError
        A dataset exists at the target.
    """
    try:
        latest(target)
    except DatasetNotFoundError:
        return
    raise _exists(target)


def _exists(target: ObjectStore) -> DatasetExistsError:
    return DatasetExistsError(
        f"Dataset already exists: cannot clone into {target.uri}: it is a dataset already. Choose "
        "another location."
    )
