"""A stream of batches that can be read again."""

from glaive.torch.batch_cache import CachedDataset as CachedDataset
