"""Partitions of vector indices, under the names of ``lance.indices.ivf``."""

from __future__ import annotations

from glaive.dataset.indexing.vector_models import IvfModel
from glaive.file import LanceFileReader, LanceFileWriter

__all__ = ["IvfModel", "LanceFileReader", "LanceFileWriter"]
