"""The dataset as users see it: one class, put together from what it can do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from glaive.dataset.changing import Changing
from glaive.dataset.columns_part import ChangingColumns
from glaive.dataset.committing import Committing
from glaive.dataset.indices_part import DescribingIndices
from glaive.dataset.managing import Managing
from glaive.dataset.opening import find
from glaive.errors import UnsupportedFeatureError
from glaive.io.access import AccessPolicy
from glaive.scan.session import Session
from glaive.table.manifest_store.protocol import ManifestStore
from glaive.table.root import CommitLock

__all__ = ["LanceDataset"]


class LanceDataset(Changing, ChangingColumns, Committing, DescribingIndices, Managing):
    """One version of a dataset. :func:`glaive.dataset` opens one and explains the parameters.

    Safe to share between threads; can be pickled, and is opened again at the same version.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | None,
        version: int | str | tuple[str | None, int | None] | None = None,
        block_size: int | None = None,
        index_cache_size: int | None = None,
        metadata_cache_size: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        serialized_manifest: bytes | None = None,
        default_scan_options: Mapping[str, Any] | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_size_bytes: int | None = None,
        read_params: Mapping[str, Any] | None = None,
        session: Session | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        *,
        asof: object = None,
        manifest_store: ManifestStore | str | None = None,
        allow_external_blobs: bool | Sequence[str] | None = None,
    ) -> None:
        if serialized_manifest is not None or namespace_client_managed_versioning:
            raise UnsupportedFeatureError(
                "LanceDataset: serialized_manifest and namespace_client_managed_versioning are not "
                "supported. Leave them out: the manifest is read from the dataset."
            )
        if namespace_client is not None or table_id is not None:
            from glaive.dataset.namespaces import located

            uri, storage_options = located(namespace_client, table_id, uri, storage_options)
        access = AccessPolicy.of(base_store_params, allow_external_blobs)
        store, manifest, place = find(
            uri, version, asof, storage_options, commit_lock, manifest_store, access
        )
        if session is None:
            session = Session(metadata_cache_size_bytes=metadata_cache_size_bytes)
        self._begin(store, manifest, place, storage_options, session, default_scan_options)
