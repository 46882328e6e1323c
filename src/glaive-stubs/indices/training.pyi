"""Steps of building vector indices as functions."""

from glaive.dataset.indexing.builder import build_rq_model as build_rq_model
from glaive.dataset.indexing.builder import get_ivf_model as get_ivf_model
from glaive.dataset.indexing.builder import train_ivf_model as train_ivf_model
from glaive.dataset.indexing.builder import train_pq_model as train_pq_model
from glaive.dataset.indexing.create import IndexConfig as IndexConfig
from glaive.dataset.indexing.describe import IndexDescription as IndexDescription
from glaive.dataset.indexing.describe import IndexSegmentDescription as IndexSegmentDescription
from glaive.dataset.indexing.vector_models import IvfModel as IvfModel
from glaive.dataset.lance_operation import Index as IndexSegment
