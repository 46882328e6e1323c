"""Schemas."""

from glaive.format.extension import json_to_schema as json_to_schema
from glaive.format.extension import schema_to_json as schema_to_json
from glaive.format.fields import LanceSchema as LanceSchema
