"""``LanceLoader``: a ``DataLoader`` that can stop in the middle of a pass and go on later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, default_convert

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.torch.dist import get_mp_rank
from glaive.torch.iterable import LanceDataset, PassState
from glaive.torch.tensors import for_sending

__all__ = ["LanceLoader"]


@dataclass(frozen=True)
class _WithWorker:
    """Collates a batch, and says which worker it is of."""

    collate: Callable[[Any], Any]

    def __call__(self, item: Any) -> dict[str, Any]:
        found: dict[str, Any] = for_sending({"worker": get_mp_rank(), "batch": self.collate(item)})
        return found


class LanceLoader(DataLoader):  # type: ignore[misc]  # torch is not installed for type checks
    """Batches of a :class:`LanceDataset`, read by worker processes.

    Each pass is an epoch, with an order of its own if the dataset is shuffled. A pass that was left
    early begins again, unless a state is loaded.

    Parameters
    ----------
    dataset
        Makes the batches, so there is no ``batch_size``.
    num_workers
        Processes; 0 for none.
    **options
        Of ``DataLoader``: ``pin_memory``, ``multiprocessing_context``, ``prefetch_factor``, …

    Raises
    ------
    OptionError
        The dataset is none, or an option is one that the dataset decides.
    """

    def __init__(self, dataset: LanceDataset, *, num_workers: int = 0, **options: Any) -> None:
        if not isinstance(dataset, LanceDataset):
            raise OptionError(
                f"LanceLoader: expected a glaive.torch.data.LanceDataset, found {dataset!r:.80}. "
                "For rows by position use get_safe_loader"
            )
        decided = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & set(options)
        if decided:
            raise OptionError(f"{min(decided)}: give it to LanceDataset, which makes the batches")
        collate = options.pop("collate_fn", None) or default_convert
        super().__init__(
            dataset,
            batch_size=None,
            num_workers=num_workers,
            collate_fn=_WithWorker(collate),
            **options,
        )
        self._shares = max(1, num_workers)
        self._place = self._start = self._beginning(0)
        self._fresh = False  # whether workers that are kept are not where the next pass begins

    def __len__(self) -> int:
        """Batches of a pass from its start; with a filter, its columns are scanned.

        Raises
        ------
        TypeError
            They are not known before: ``samples``, or a foreign sampler.
        """
        return sum(self.dataset.count_batches(at, self._shares) for at in range(self._shares))

    def set_epoch(self, epoch: int) -> None:
        """Number of the next pass, from its start."""
        self._go_to(self._beginning(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: plain values, after each batch that was given out.

        Raises
        ------
        OptionError
            The dataset chooses rows at random, which cannot be repeated.
        """
        state: dict[str, Any] = self.dataset.state_of(self._place)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on behind the last batch that the other one gave out.

        The same batches follow. Their order is the same, too, up to where the first worker has no
        more.

        Raises
        ------
        OptionError
            The state is of another number of workers, version, batch size, seed or filter.
        """
        place = self.dataset.place_of(state)
        place.of_worker(0, self._shares)  # refuses another number of workers
        if not place.by_share:
            raise OptionError("load_state_dict: the state is of a dataset; load it there")
        self._go_to(place)

    def __iter__(self) -> Iterator[Any]:
        if self._fresh:
            self._iterator = None
        start, self._fresh = self._start, True
        self._start = self._beginning(start.epoch)  # for the next pass, if this one is left
        self._place = start
        by_share = list(start.by_share)
        self.dataset.start_at(start)
        batches = super().__iter__()
        if self.num_workers:
            self.dataset.start_at(None)  # the workers have it; here nobody reads
        for found in batches:
            worker, batch = found["worker"], found.pop("batch")
            share = start.share(worker, self._shares)
            by_share[share] += 1
            turn = (share + 1) % self._shares
            self._place = PassState(start.epoch, 0, tuple(by_share), turn)
            yield batch
        self._go_to(self._beginning(start.epoch + 1))
        self._fresh = False

    def _go_to(self, place: PassState) -> None:
        self._place, self._start, self._fresh = place, place, True

    def _beginning(self, epoch: int) -> PassState:
        return PassState(epoch, by_share=(0,) * self._shares)
