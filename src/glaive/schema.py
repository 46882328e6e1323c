"""Schemas under the names of ``lance.schema``."""

from __future__ import annotations

from glaive.format.fields import LanceSchema
from glaive.format.json_schema import json_to_schema, schema_to_json

__all__ = ["LanceSchema", "json_to_schema", "schema_to_json"]
