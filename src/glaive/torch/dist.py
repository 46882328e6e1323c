"""Ranks of processes and workers, under the names of ``lance.torch.dist``.

If torch is missing, there is a single process.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = [
    "get_dist_rank",
    "get_dist_world_size",
    "get_global_rank",
    "get_global_world_size",
    "get_mp_rank",
    "get_mp_world_size",
    "process_of_group",
]


def _distributed() -> Any:
    """Return ``torch.distributed`` if this process uses it."""
    distributed = sys.modules.get("torch.distributed")
    used = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if used else None


def _worker() -> Any:
    """Return the loader's information about this worker; ``None`` in other processes."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def get_dist_world_size() -> int:
    """Return the number of processes of ``torch.distributed``; 1 by default."""
    distributed = _distributed()
    return 1 if distributed is None else int(distributed.get_world_size())


def get_dist_rank() -> int:
    """Return the number of this process of ``torch.distributed``; 0 by default."""
    distributed = _distributed()
    return 0 if distributed is None else int(distributed.get_rank())


def process_of_group(sent: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return the number of this process of ``torch.distributed``, and the process count.

    Parameters
    ----------
    sent
        The same numbers in the process that sent an object here. A spawned worker starts outside of
        ``torch.distributed``, although the process that started it may use it.
    """
    if sent is not None and _worker() is not None and _distributed() is None:
        return sent
    return get_dist_rank(), get_dist_world_size()


def get_mp_world_size() -> int:
    """Return the number of workers of the loader; 1 outside of workers."""
    worker = _worker()
    return 1 if worker is None else int(worker.num_workers)


def get_mp_rank() -> int:
    """Return the number of this worker of the loader; 0 outside of workers."""
    worker = _worker()
    return 0 if worker is None else int(worker.id)


def get_global_world_size() -> int:
    """Return the number of processes times workers."""
    return get_dist_world_size() * get_mp_world_size()


def get_global_rank() -> int:
    """Return the number of this worker among the workers of all processes."""
    return get_dist_rank() * get_mp_world_size() + get_mp_rank()
