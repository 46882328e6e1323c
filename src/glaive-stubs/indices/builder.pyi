"""Building vector indices step by step."""

from glaive.dataset.indexing.builder import IndicesBuilder as IndicesBuilder
from glaive.dataset.indexing.builder import RESIDUAL_COLUMN as RESIDUAL_COLUMN
from glaive.dataset.indexing.create import IndexConfig as IndexConfig
from glaive.dataset.indexing.vector_models import IvfModel as IvfModel
from glaive.dataset.indexing.vector_models import PARTITION as PARTITION_COLUMN
from glaive.dataset.indexing.vector_models import PqModel as PqModel
from glaive.index.vector.storage import PRODUCT as PQ_COLUMN
