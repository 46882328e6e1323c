"""Publish a branch: what was written to it becomes the next version of the one it was made from.

Tasks copy the files that only the branch has; one commit makes them visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.tasks import LOCAL, FragmentRange, Job
from glaive.dataset.versions.references import Referenced, branch_of
from glaive.errors import CommitConflictError, ObjectNotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.table.branches import Branch, read_branch
from glaive.table.copying import copy_files
from glaive.table.load import load_again, open_newest, open_version, read_transaction
from glaive.table.publishing import PUBLISHED, Publish, Published, root_bases
from glaive.table.references import FileSet, IdRange, fragment_files, index_folders
from glaive.table.refs import MAIN, branch_store, name_in, root_store

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["CopyTask", "copy_tasks", "publish_branch"]


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copy files that a branch has written to the one it was made from; can be pickled.

    Parameters
    ----------
    fragments
        Fragments of the branch.
    indices
        Positions of segments of indices in its manifest.
    parent
        The branch to copy to; ``None`` for the main one.
    published
        The version there that has what was published before; ``None`` if nothing was.
    """

    fragments: FragmentRange
    indices: range
    parent: str | None
    published: int | None

    def execute(self, dataset: OpenDataset) -> int:
        """Copy what is not there yet; returns the number of files.

        One request for the version that was published before, two with old names of manifests.
        """
        opened = self.fragments.opened(dataset)
        manifest = opened.manifest
        folders = list(index_folders(manifest))
        positions = self.fragments.positions(opened)
        files = [
            *fragment_files(manifest, positions),
            *(folders[at] for at in self.indices),
        ]
        target = branch_store(root_store(opened.store, branch_of(manifest)), self.parent)
        kept = FileSet()
        if self.published is not None:
            ids = manifest.fragment_ids[positions.start : positions.stop]
            part = IdRange(int(ids.min()), int(ids.max()) + 1) if len(ids) else IdRange(0, 0)
            with suppress(ObjectNotFoundError):  # others have committed since: a conflict
                kept.add(load_again(target, self.published, None), part, bases=False)
        own = [file for file in files if file.base_id is None]
        return copy_files(opened.store, manifest, target, own, kept=kept)


def publish_branch(
    opened: OpenedVersion, branch: str, job: Job = LOCAL, *, version: int | None = None
) -> tuple[Manifest, int]:
    """Commit a version of a branch, by default its newest, as the next version of this one.

    Parameters
    ----------
    opened
        The newest version of the branch that the other was made from.
    branch
        The other branch.
    version
        Its version: later ones are not published.

    Returns
    -------
    tuple
        The version with its contents, and how many files were copied. No version is made if all
        of the branch has been published.

    Raises
    ------
    RefNotFoundError
        There is no such branch.
    VersionNotFoundError
        The branch does not have this version.
    OptionError
        It was made from another branch.
    CommitConflictError
        There are versions that the branch does not have; nothing was changed.
    """
    newest = opened.manifest
    root = root_store(opened.store, branch_of(newest))
    here = name_in(root, opened.store, branch_of(newest))
    made_from = read_branch(root, branch)
    parent = made_from.parent_branch
    if parent != here:
        raise OptionError(
            f"branch {branch!r} of {root.uri} was made from branch {parent or MAIN!r}, not from "
            f"{here or MAIN!r}. Publish it there"
        )
    store = branch_store(root, branch)
    source = open_newest(store) if version is None else open_version(store, version)
    before = _published(opened, branch, made_from)
    if source.version <= before.version:
        return newest, 0
    reading = opened.at_reference(Referenced(branch, store, source))
    last = None if before.version == made_from.parent_version else newest.version
    tasks = list(copy_tasks(reading, here, job.runner.parts(reading), last))
    copied = sum(job.runner.run(reading, tasks))
    now = before.then(source.version, newest.version + 1)
    job = replace(job, properties={**job.properties, PUBLISHED: now.text()})
    operation = Publish.of(source, root_bases(source, opened.store), before)
    properties = job.recording(num_files_copied=copied, published_version=source.version)
    return commit_operation(opened, operation, properties=properties, once=job.once), copied


def _published(opened: OpenedVersion, branch: str, made_from: Branch) -> Published:
    """How far the opened version has the contents of the branch.

    Raises
    ------
    CommitConflictError
        It has others as well.
    """
    identity = made_from.identifier[-1][1] if made_from.identifier else str(made_from.create_at)
    start, newest = made_from.parent_version, opened.manifest.version
    if newest == start:
        return Published(branch, identity, ((start, start),))
    known = Published.of(read_transaction(opened.store, opened.manifest))
    if known is not None and (known.branch, known.identity) == (branch, identity):
        return known
    raise CommitConflictError(
        f"branch {branch!r} was made from version {start} of {opened.uri}, whose newest version is "
        f"{newest}: the branch does not have what was committed since. Create a branch of the "
        "newest version, and repeat the changes there",
        retryable=False,
        version=newest,
    )


def copy_tasks(
    reading: OpenedVersion,
    parent: str | None,
    parts: Iterable[FragmentRange],
    published: int | None = None,
) -> Iterator[CopyTask]:
    """A task for each part with files that the branch wrote, and one for each segment of its own.

    Parameters
    ----------
    reading
        The version of the branch.
    parent
        The branch to copy to; ``None`` for the main one.
    parts
        All of its fragments.
    published
        As for :class:`CopyTask`.
    """
    manifest = reading.manifest
    for part in parts:
        own = [
            at
            for at in part.positions(reading)
            if any(file.base_id is None for file in fragment_files(manifest, (at,)))
        ]
        if own:
            with_own = FragmentRange(manifest.version, own[0], own[-1] + 1)
            yield CopyTask(with_own, range(0), parent, published)
    nothing = FragmentRange(manifest.version, 0, 0)
    for at, folder in enumerate(index_folders(manifest)):
        if folder.base_id is None:
            yield CopyTask(nothing, range(at, at + 1), parent, published)
