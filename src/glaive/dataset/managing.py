"""Versions of a dataset and what belongs to them. Each method hands on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from glaive.dataset.opened import OpenedVersion
from glaive.dataset.versions.history import describe, describe_all
from glaive.dataset.versions.references import resolve
from glaive.dataset.versions.refs import Branches, Tags
from glaive.table.load import open_latest
from glaive.table.versions import list_versions

if TYPE_CHECKING:
    from glaive.dataset.metadata import Texts
    from glaive.dataset.versions.cleanup import CleanupExplanation, CleanupStats

__all__ = ["Managing"]


class Managing(OpenedVersion):
    """The part of ``LanceDataset`` that deals with versions."""

    def versions(self) -> list[dict[str, Any]]:
        """All versions, oldest first: number, local time and totals. One request each."""
        return describe_all(self.store)

    def get_version(self) -> dict[str, Any]:
        """Number, local time and totals of this version."""
        return describe(self.manifest)

    def checkout_version(self, version: int | str | tuple[str | None, int | None]) -> Self:
        """The dataset at another version; opened files are shared with this one.

        A number is a version of this branch, text is a tag, and a pair a branch and a version
        of it, ``None`` for the main branch and for the newest version.

        Raises
        ------
        VersionNotFoundError, RefNotFoundError
            There is no such version, tag or branch.
        """
        return self._referenced(resolve(self.store, self.manifest, version))

    @property
    def tags(self) -> Tags:
        """Names for versions: ``list``, ``create``, ``update``, ``delete``, …"""
        return Tags(self)

    @property
    def branches(self) -> Branches:
        """Lines of versions beside the main one: ``list``, ``delete``, …"""
        return Branches(self)

    def version_refs(self) -> list[dict[str, int]]:
        """Numbers of all versions of this branch, oldest first. One listing."""
        return [{"version": one.version} for one in list_versions(self.store)]

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self._open(open_latest(self.store))

    def create_branch(
        self,
        branch: str,
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Begin a branch with a version, this one by default; returns it opened.

        References are those of :meth:`checkout_version`. The branch refers to the files of
        the version and has those of its own below ``tree/``.

        Raises
        ------
        RefExistsError
            There is a branch of this name.
        OptionError
            A branch cannot have this name.
        """
        from glaive.dataset.versions.clones import make_branch

        return self._referenced(make_branch(self, branch, reference))

    def shallow_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Begin a dataset elsewhere that refers to the files of a version of this one.

        Raises
        ------
        DatasetExistsError
            There is a dataset already.
        """
        from glaive.dataset.versions.clones import clone_shallow

        options = self.storage_options if storage_options is None else storage_options
        target, made = clone_shallow(self, target_path, reference, options)
        return self.of(target, made, uri=os.fspath(target_path), storage_options=options)

    def deep_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: int | str | tuple[str | None, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Begin a dataset elsewhere with a copy of all files of a version of this one.

        Raises
        ------
        DatasetExistsError
            There is a dataset already.
        """
        from glaive.dataset.versions.clones import clone_deep

        options = self.storage_options if storage_options is None else storage_options
        target, made = clone_deep(self, target_path, reference, options)
        return self.of(target, made, uri=os.fspath(target_path), storage_options=options)

    def restore(self) -> None:
        """Make this version the newest one; those made since stay in the history.

        Raises
        ------
        UnsupportedFeatureError
            The dataset has been given something since that cannot be given up.
        """
        from glaive.dataset.versions.restore import restored

        self._open(restored(self.store, self.manifest))

    # --------------------------------------------------------------------- texts

    def update_config(self, values: Texts, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's configuration, ``None`` removes one; returns all.

        With ``replace`` entries that are not given are removed.
        """
        from glaive.dataset.metadata import set_config

        self._open(set_config(self, values, replace=replace))
        return self.config()

    def delete_config_keys(self, keys: Sequence[str]) -> None:
        """Remove entries of the table's configuration."""
        self.update_config(dict.fromkeys(keys))

    def update_metadata(self, values: Texts, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata; as :meth:`update_config`."""
        from glaive.dataset.metadata import set_metadata

        self._open(set_metadata(self, values, replace=replace))
        return self.metadata

    def update_schema_metadata(self, values: Texts, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata; as :meth:`update_config`."""
        from glaive.dataset.metadata import set_schema_metadata

        self._open(set_schema_metadata(self, values, replace=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Set all entries of the schema's metadata."""
        self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self, field_updates: Mapping[str, Texts], *, replace: bool = False
    ) -> None:
        """Set entries of the metadata of fields, by path; as :meth:`update_config`.

        Raises
        ------
        ColumnNotFoundError
            A field does not exist.
        """
        from glaive.dataset.metadata import set_field_metadata

        self._open(set_field_metadata(self, field_updates, replace=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Set all entries of the metadata of a field."""
        self.update_field_metadata({field_name: new_metadata}, replace=True)

    # ------------------------------------------------------------------ clean-up

    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Sequence[int] | None = None,
        delete_concurrency: int | None = None,
    ) -> CleanupStats:
        """Remove old versions, and the files that no other version has.

        Parameters
        ----------
        older_than
            Only versions made longer ago; two weeks unless another argument says which.
        retain_versions
            Keep as many of the newest versions.
        delete_unverified
            Remove files that no version has, even those younger than a week. Only right
            when nobody is writing.
        error_if_tagged_old_versions
            Fail if a tag names a version that would go; otherwise it is kept.
        delete_rate_limit
            Files per second, at most.
        versions
            Only these versions.
        delete_concurrency
            Accepted; the store decides.

        Raises
        ------
        CleanupError
            A tag names a version that would go; nothing was removed.

        Notes
        -----
        This version, newer ones, and those that branches were made from always stay.
        Manifests go first: no version is ever left without its files. Nothing is deleted that no
        writer of datasets would have called so, nor behind a link that leads out of the root,
        unless the storage option ``delete_through_links`` is set; ``warnings`` of the result say
        what was left.
        """
        from glaive.dataset.versions.cleanup import clean_up
        from glaive.table.cleanup import CleanupPolicy

        given = (older_than, retain_versions, versions)
        policy = CleanupPolicy(*given, delete_unverified, error_if_tagged_old_versions)
        return clean_up(self, policy, delete_rate_limit)

    def explain_cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Sequence[int] | None = None,
        include_files: bool = False,
        max_files: int = 1000,
    ) -> CleanupExplanation:
        """What :meth:`cleanup_old_versions` would remove; removes nothing.

        ``delete_rate_limit`` has no effect; files are listed when ``include_files`` is set.
        """
        from glaive.dataset.versions.cleanup import explain
        from glaive.table.cleanup import CleanupPolicy

        given = (older_than, retain_versions, versions)
        policy = CleanupPolicy(*given, delete_unverified, error_if_tagged_old_versions)
        return explain(self, policy, include_files=include_files, max_files=max_files)

    # --------------------------------------------------------------------- files

    def all_files(self) -> pa.RecordBatchReader:
        """Stream the files below the root: ``base_uri``, ``path``, ``size_bytes``,
        ``last_modified`` (UTC). Those below base paths are not among them.
        """
        from glaive.dataset.versions.files import all_files

        return all_files(self)

    def tracked_files(
        self,
        *,
        min_version: int | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the files that versions consist of: ``version``, ``base_uri``, ``path``,
        ``type``. ``progress`` is told how many manifests were read, and of how many.
        """
        from glaive.dataset.versions.files import tracked_files

        return tracked_files(self, min_version, progress)

    def migrate_manifest_paths_v2(self) -> None:
        """Name the manifests so that the newest comes first in a listing.

        Must not run beside other writers; may be repeated.
        """
        from glaive.dataset.versions.files import migrate_manifest_names

        migrate_manifest_names(self.store)
        self.checkout_latest()

    @staticmethod
    def drop(
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a dataset and everything below its root.

        Links are deleted, not what they lead to, which is logged; with the storage option
        ``delete_through_links`` the files of the dataset that lie behind them go as well.

        Raises
        ------
        DatasetNotFoundError
            Nothing is there; no error with ``ignore_not_found``.
        OptionError
            There are files but no manifest that can be read: nothing was deleted.
        """
        from glaive.dataset.versions.files import drop_dataset

        drop_dataset(base_uri, storage_options, ignore_not_found=bool(ignore_not_found))
