"""A dataset read by a process of its own."""

from glaive.torch.datasets import AsyncDataset as AsyncDataset
from glaive.torch.datasets import async_dataset as async_dataset
