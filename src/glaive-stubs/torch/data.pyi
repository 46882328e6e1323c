"""Datasets of PyTorch over Lance datasets, and names that have no torch in them."""

from glaive.sampler import FullScanSampler as FullScanSampler
from glaive.sampler import Sampler as Sampler
from glaive.sampler import ShardedBatchSampler as ShardedBatchSampler
from glaive.sampler import ShardedFragmentSampler as ShardedFragmentSampler
from glaive.sampler import maybe_sample as maybe_sample
from glaive.torch.batch_cache import CachedDataset as CachedDataset
from glaive.torch.datasets import LanceDataset as LanceDataset
from glaive.torch.datasets import LanceLoader as LanceLoader
from glaive.torch.datasets import SafeLanceDataset as SafeLanceDataset
from glaive.torch.datasets import get_safe_loader as get_safe_loader
from glaive.torch.dist import get_global_rank as get_global_rank
from glaive.torch.dist import get_global_world_size as get_global_world_size
from glaive.torch.tensors import TensorDataset as TensorDataset
from glaive.torch.tensors import concat_batches as concat_batches
from glaive.torch.tensors import to_tensor as to_tensor
