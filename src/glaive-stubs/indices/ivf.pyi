"""Partitions of vector indices."""

from glaive.dataset.indexing.vector_models import IvfModel as IvfModel
from glaive.file import LanceFileReader as LanceFileReader
from glaive.file import LanceFileWriter as LanceFileWriter
