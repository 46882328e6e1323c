"""True neighbours and recall, under the names of ``lance.torch.bench_utils``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.torch.installed import torch_names

if TYPE_CHECKING:
    from glaive.torch.vectors import ground_truth, infer_vector_column, recall, sort_tensors

__all__ = ["ground_truth", "infer_vector_column", "recall", "sort_tensors"]

__getattr__ = torch_names(__name__, dict.fromkeys(__all__, "glaive.torch.vectors"))
