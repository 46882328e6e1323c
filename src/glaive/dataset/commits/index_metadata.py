"""``Index``: an entry of the index section, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from datetime import UTC, datetime
from uuid import UUID

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError
from glaive.format.bitmaps import bitmap_of
from glaive.format.index_section import check_entry
from glaive.format.pb import table_pb2
from glaive.table.index_coverage import covered_fragments

__all__ = ["Index", "IndexFile"]


@dataclass
class IndexFile:
    """A file of an index segment: its name within the segment's folder, and bytes."""

    path: str
    size_bytes: int


@dataclass
class Index:
    """One segment of an index.

    Parameters
    ----------
    uuid
        Name of its folder below ``_indices``.
    name
        Name of the index; segments of one index have the same.
    fields
        Ids of the fields it is over.
    dataset_version
        The version it was built for.
    fragment_ids
        Fragments it covers; ``None`` if unknown.
    index_version
        Version of the index's own format.
    created_at
        When it was built.
    base_id
        Base path that holds it; this dataset when absent.
    files
        Its files; ``None`` when not listed.
    index_details
        Type and content of the message that describes it.
    covering_fields
        Ids of fields whose values it holds.
    """

    uuid: str
    name: str
    fields: list[int]
    dataset_version: int
    fragment_ids: Iterable[int] | None
    index_version: int
    created_at: datetime | None = None
    base_id: int | None = None
    files: list[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: list[int] = field(default_factory=list)

    @classmethod
    def from_wire(cls, wire: table_pb2.IndexMetadata) -> Index:
        """Read the wire message."""
        made = None
        if wire.HasField("created_at"):
            made = datetime.fromtimestamp(wire.created_at / 1000, UTC)
        details = wire.index_details
        return cls(
            uuid=str(UUID(bytes=wire.uuid.uuid)),
            name=wire.name,
            fields=list(wire.fields),
            dataset_version=wire.dataset_version,
            fragment_ids=covered_fragments(wire),
            index_version=wire.index_version,
            created_at=made,
            base_id=wire.base_id if wire.HasField("base_id") else None,
            files=[IndexFile(file.path, file.size_bytes) for file in wire.files] or None,
            index_details=(details.type_url, details.value) if details.type_url else None,
            covering_fields=list(wire.covering_fields),
        )

    def to_wire(self) -> table_pb2.IndexMetadata:
        """Make the wire message.

        Raises
        ------
        OptionError
            The uuid, the version or a path is one that no reader of the version accepts.
        """
        try:
            identity = UUID(self.uuid).bytes
        except ValueError:
            raise OptionError(f"uuid of an index: expected a UUID, found {self.uuid!r}") from None
        wire = table_pb2.IndexMetadata(
            name=self.name,
            fields=self.fields,
            dataset_version=self.dataset_version,
            index_version=self.index_version,
            base_id=self.base_id,
            files=[
                table_pb2.IndexFile(path=file.path, size_bytes=file.size_bytes)
                for file in self.files or ()
            ],
            covering_fields=self.covering_fields,
        )
        wire.uuid.uuid = identity
        if self.fragment_ids is not None:
            wire.fragment_bitmap = bitmap_of(self.fragment_ids)
        if self.created_at is not None:
            wire.created_at = int(self.created_at.timestamp() * 1000)
        if self.index_details is not None:
            wire.index_details.type_url, wire.index_details.value = self.index_details
        try:
            check_entry(wire, "the index")
        except CorruptFileError as error:
            raise OptionError(
                f"{error.what}: expected {error.expected}, found {error.found}"
            ) from None
        return wire
