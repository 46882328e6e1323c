"""Schemas under the names of ``lance.schema``."""

from __future__ import annotations

from glaive.format.extension import json_to_schema, schema_to_json
from glaive.format.fields import LanceSchema

__all__ = ["LanceSchema", "json_to_schema", "schema_to_json"]
