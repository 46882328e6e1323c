"""Texts for people who look for a fault, under the names of ``lance.debug``."""

from __future__ import annotations

from glaive.dataset.layout import format_fragment, format_manifest, format_schema, list_transactions

__all__ = ["format_fragment", "format_manifest", "format_schema", "list_transactions"]
