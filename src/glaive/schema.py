"""Schemas under the names of ``lance.schema``."""

from __future__ import annotations

from glaive.format.fields import LanceSchema

__all__ = ["LanceSchema"]
