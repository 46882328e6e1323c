"""Codebooks of product quantization."""

from glaive.dataset.indexing.vector_models import PqModel as PqModel
from glaive.file import LanceFileReader as LanceFileReader
from glaive.file import LanceFileWriter as LanceFileWriter
