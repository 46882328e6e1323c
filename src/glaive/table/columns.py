"""Set the schema of a manifest.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from glaive.format.declared_keys import check_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.pb import table_pb2

__all__ = ["set_columns"]


def set_columns(wire: table_pb2.ManifestOutline, schema: LanceSchema, *, metadata: bool) -> None:
    """Replace the fields, and the metadata of the schema if ``metadata``.

    If field ids must not be reused, raises the highest assigned one.

    Raises
    ------
    SchemaError
        A column of the primary key may be null.
    """
    check_primary_key(schema.fields)
    del wire.fields[:]
    wire.fields.extend(schema.to_wire())
    if metadata:
        wire.schema_metadata.clear()
        for key, value in schema.metadata.items():
            wire.schema_metadata[key] = value
    if wire.HasField("max_allocated_field_id"):
        wire.max_allocated_field_id = max(wire.max_allocated_field_id, schema.max_field_id)
