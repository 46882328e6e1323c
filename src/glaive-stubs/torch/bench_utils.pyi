"""True neighbours and recall."""

from glaive.torch.vectors import ground_truth as ground_truth
from glaive.torch.vectors import infer_vector_column as infer_vector_column
from glaive.torch.vectors import recall as recall
from glaive.torch.vectors import sort_tensors as sort_tensors
