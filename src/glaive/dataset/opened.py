"""One opened version of a dataset: what it consists of, and what can be said without reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pyarrow as pa

from glaive.dataset.io_stats import incremental, snapshot
from glaive.dataset.stats import LanceStats
from glaive.dataset.versions.history import find_version
from glaive.dataset.versions.references import Referenced
from glaive.errors import GlaiveError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.io.stats import IOStats
from glaive.io.store import ObjectStore
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.table.load import open_latest
from glaive.table.versions import latest

__all__ = ["OpenedVersion"]


class OpenedVersion:
    """Store, manifest and session of a dataset; the part of ``LanceDataset`` that describes."""

    store: ObjectStore
    storage_options: Mapping[str, str] | None
    _uri: str
    _session: Session
    _scan_defaults: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        manifest: Manifest,
        *,
        uri: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        session: Session | None = None,
        scan_defaults: Mapping[str, Any] | None = None,
    ) -> Self:
        """The version that a manifest describes; nothing is read."""
        made = cls.__new__(cls)
        given = (uri, storage_options, session, scan_defaults)
        made._begin(store, manifest, *given)  # noqa: SLF001  # of this class
        return made

    def _begin(
        self,
        store: ObjectStore,
        manifest: Manifest,
        uri: str | None,
        storage_options: Mapping[str, str] | None,
        session: Session | None,
        scan_defaults: Mapping[str, Any] | None,
    ) -> None:
        self._uri = store.uri if uri is None else uri
        self.store = store
        self.storage_options = storage_options
        self._session = Session() if session is None else session
        self._scan_defaults = dict(scan_defaults or {})
        self._open(manifest)

    @property
    def uri(self) -> str:
        """Where the dataset lies, as it was opened."""
        return self._uri

    def _open(self, manifest: Manifest) -> None:
        # One assignment: other threads see the old version or the new one.
        self._views = Views(Snapshot(self.store, manifest, self._session))

    def move_to(self, manifest: Manifest) -> None:
        """Move this object to a version that was made for it."""
        self._open(manifest)

    def at_latest(self) -> Self:
        """The dataset at the newest version; this object stays where it is."""
        return self._at(open_latest(self.store))

    def checked_out(self, version: int | Manifest) -> Self:
        """The dataset at another version of this branch; this object stays where it is."""
        if isinstance(version, int):
            version = find_version(self.store, version, self.manifest.scheme)
        return self._at(version)

    @property
    def snapshot(self) -> Snapshot:
        """The version, ready to be read."""
        return self._views.snapshot

    @property
    def manifest(self) -> Manifest:
        """What the version consists of."""
        return self._views.snapshot.manifest

    def _at(self, manifest: Manifest) -> Self:
        """The dataset at another version, with the same opened files."""
        return self.of(
            self.store,
            manifest,
            uri=self.uri,
            storage_options=self.storage_options,
            session=self._session,
            scan_defaults=self._scan_defaults,
        )

    def _referenced(self, found: Referenced) -> Self:
        """The dataset at a version that was named; one of another branch lies elsewhere."""
        if found.store is self.store:
            return self._at(found.manifest)
        return self.of(
            found.store,
            found.manifest,
            storage_options=self.storage_options,
            session=self._session,
            scan_defaults=self._scan_defaults,
        )

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """Options of the object store, as they were given; ``None`` if none were."""
        return None if self.storage_options is None else dict(self.storage_options)

    def latest_storage_options(self) -> dict[str, str] | None:
        """The same: options do not change while a dataset is open."""
        return self.initial_storage_options

    def __repr__(self) -> str:
        return f"LanceDataset({GlaiveError.without_secrets(self.uri)!r}, version={self.version})"

    def __len__(self) -> int:
        return self.snapshot.num_rows

    def __copy__(self) -> Self:
        return self._at(self.manifest)

    def __reduce__(self) -> tuple[object, ...]:
        place = (self.store, self.uri, self.version, self.storage_options)
        return (_reopen, (type(self), *place, dict(self._scan_defaults)))

    @property
    def schema(self) -> pa.Schema:
        """Columns as an Arrow schema."""
        return self.manifest.schema.presented()

    @property
    def lance_schema(self) -> LanceSchema:
        """Columns with their field ids."""
        return self.manifest.schema

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Metadata of the Arrow schema, as text."""
        return {k: v.decode("utf-8", "replace") for k, v in self.manifest.schema.metadata.items()}

    def session(self) -> Session:
        """What this dataset and others at hand share: the cache of opened files."""
        return self._session

    @property
    def version(self) -> int:
        """Number of this version."""
        return self.manifest.version

    @property
    def latest_version(self) -> int:
        """Number of the newest version. One listing."""
        return latest(self.store).version

    @property
    def data_storage_version(self) -> str:
        """Format version of new data files, such as ``"2.2"``."""
        return str(self.manifest.data_format)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether row ids stay the same when rows move."""
        return self.manifest.uses(Feature.STABLE_ROW_IDS)

    @property
    def max_field_id(self) -> int:
        """Highest field id of the schema."""
        return self.manifest.schema.max_field_id

    @property
    def has_index(self) -> bool:
        """Whether the version has indices."""
        return bool(self.manifest.indices)

    @property
    def metadata(self) -> dict[str, str]:
        """Free metadata of the table."""
        return dict(self.manifest.table_metadata)

    def config(self) -> dict[str, str]:
        """Configuration of the table."""
        return dict(self.manifest.config)

    @property
    def partition_expression(self) -> object:
        """Not offered: Lance datasets are not partitioned by expressions."""
        raise UnsupportedFeatureError(
            "partition_expression: Lance datasets are not partitioned by expressions"
        )

    @property
    def stats(self) -> LanceStats:
        """Figures about this version."""
        return LanceStats(self.snapshot)

    def io_stats_snapshot(self) -> IOStats:
        """What was read and written so far: operations and bytes.

        Counted by the store of the dataset, so its other versions are included. Files that
        another dataset of the session had opened before count there.
        """
        return snapshot(self.store)

    def io_stats_incremental(self) -> IOStats:
        """What was read and written since the last call; counting starts again."""
        return incremental(self.store)


def _reopen(
    kind: Any,
    store: ObjectStore,
    uri: str,
    version: int,
    storage_options: Mapping[str, str] | None,
    scan_defaults: Mapping[str, Any] | None = None,
) -> Any:
    return kind.of(
        store,
        find_version(store, version),
        uri=uri,
        storage_options=storage_options,
        scan_defaults=scan_defaults,
    )
