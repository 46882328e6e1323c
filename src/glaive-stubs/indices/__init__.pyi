"""Building vector indices step by step."""

from glaive.dataset.indexing.builder import IndicesBuilder as IndicesBuilder
from glaive.dataset.indexing.create import IndexConfig as IndexConfig
from glaive.dataset.indexing.create import IndexFileVersion as IndexFileVersion
from glaive.dataset.indexing.create import SupportedDistributedIndices as SupportedDistributedIndices
from glaive.dataset.indexing.describe import IndexSegmentDescription as IndexSegmentDescription
from glaive.dataset.indexing.vector_models import IvfModel as IvfModel
from glaive.dataset.indexing.vector_models import PqModel as PqModel
from glaive.dataset.lance_operation import Index as IndexSegment
