"""Texts for people who look for a fault."""

from glaive.dataset.layout import format_fragment as format_fragment
from glaive.dataset.layout import format_manifest as format_manifest
from glaive.dataset.layout import format_schema as format_schema
from glaive.dataset.layout import list_transactions as list_transactions
