"""Codebooks of product quantization, under the names of ``lance.indices.pq``."""

from __future__ import annotations

from glaive.dataset.indexing.vector_models import PqModel
from glaive.file import LanceFileReader, LanceFileWriter

__all__ = ["LanceFileReader", "LanceFileWriter", "PqModel"]
