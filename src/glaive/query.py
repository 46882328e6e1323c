"""Queries of full-text search, which ``full_text_query`` of scans takes, and of similar texts."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.scan.full_text.queries import (
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
from glaive.scan.nearest.minhash_query import MinHashQuery

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
