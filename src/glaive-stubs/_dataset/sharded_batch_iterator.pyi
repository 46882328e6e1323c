"""One process's share of a dataset."""

from glaive.torch.batch_cache import ShardedBatchIterator as ShardedBatchIterator
