"""Queries of full-text search, which ``full_text_query`` takes, and of similar texts."""

from typing import Any

from glaive.scan.nearest.options import MinHashQuery as MinHashQuery
from glaive.scan.text_queries import BooleanQuery as BooleanQuery
from glaive.scan.text_queries import BoostQuery as BoostQuery
from glaive.scan.text_queries import CombinedFieldsQuery as CombinedFieldsQuery
from glaive.scan.text_queries import DocumentGranularity as DocumentGranularity
from glaive.scan.text_queries import FullTextOperator as FullTextOperator
from glaive.scan.text_queries import FullTextQuery as FullTextQuery
from glaive.scan.text_queries import FullTextQueryType as FullTextQueryType
from glaive.scan.text_queries import MatchQuery as MatchQuery
from glaive.scan.text_queries import MultiMatchQuery as MultiMatchQuery
from glaive.scan.text_queries import Occur as Occur
from glaive.scan.text_queries import PhraseQuery as PhraseQuery

def __getattr__(name: str) -> Any: ...
