"""Queries of full-text search, which ``full_text_query`` of scans takes, and of similar texts."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names
from glaive.scan.nearest.options import MinHashQuery
from glaive.scan.text_queries import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    FullTextQuery,
    FullTextQueryType,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "CombinedFieldsQuery",
    "DocumentGranularity",
    "FullTextOperator",
    "FullTextQuery",
    "FullTextQueryType",
    "MatchQuery",
    "MinHashQuery",
    "MultiMatchQuery",
    "Occur",
    "PhraseQuery",
]

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
