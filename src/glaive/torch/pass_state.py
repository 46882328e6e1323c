"""Where a pass over a dataset is: what its state says, and checks of a state that is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError

__all__ = ["PassState"]

_NUMBERS = ("epoch", "batches")


@dataclass(slots=True)
class PassState:
    """A place in a pass.

    Parameters
    ----------
    epoch
        Number of the pass.
    batches
        What this share gave out.
    by_share
        What each share of a loader with workers gave out; empty where there is one.
    next_share
        The share whose turn it is: that of the first worker.
    """

    epoch: int = 0
    batches: int = 0
    by_share: tuple[int, ...] = ()
    next_share: int = 0

    def share(self, worker: int, workers: int) -> int:
        """The share that a worker reads."""
        return (worker + self.next_share) % workers

    def of_worker(self, worker: int, workers: int) -> PassState:
        """The place of one worker.

        Raises
        ------
        OptionError
            The state is of another number of workers.
        """
        if not self.by_share:
            return PassState(self.epoch, self.batches)
        if len(self.by_share) != workers:
            raise OptionError(
                f"load_state_dict: the state is of a loader with {_shares(len(self.by_share))}, "
                f"this one has {_shares(workers)}. Use as many"
            )
        share = self.share(worker, workers)
        return PassState(self.epoch, self.by_share[share], next_share=self.next_share)

    def to_dict(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """The state as plain values; ``identity`` is what the batches depend on."""
        state = {**identity, "epoch": self.epoch, "batches": self.batches}
        if self.by_share:
            state |= {"by_share": list(self.by_share), "next_share": self.next_share}
        return state

    @classmethod
    def load(cls, state: object, identity: Mapping[str, Any]) -> PassState:
        """The place that a state describes.

        Raises
        ------
        OptionError
            It is no state, or of other batches.
        """
        if not isinstance(state, Mapping):
            raise OptionError(
                f"load_state_dict: expected what state_dict returned, found {state!r:.80}"
            )
        for name, expected in identity.items():
            if name not in state or state[name] != expected:
                raise OptionError(
                    f"load_state_dict: the state is of {name} {state.get(name)!r:.80}, this "
                    f"dataset has {expected!r:.80}. Batches would be others; open it as before"
                )
        numbers: list[Any] = [state.get(name) for name in _NUMBERS]
        by_share: Any = state.get("by_share", ())
        next_share: Any = state.get("next_share", 0)
        if (
            not isinstance(by_share, list | tuple)
            or not all(_is_count(one) for one in (*numbers, *by_share, next_share))
            or next_share > len(by_share)
        ):
            raise OptionError(
                f"load_state_dict: expected counts of batches, found epoch, batches {numbers}, "
                f"by_share {by_share!r:.80}, next_share {next_share!r:.80}"
            )
        return cls(numbers[0], numbers[1], tuple(by_share), next_share)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _shares(count: int) -> str:
    return "no or 1 worker" if count == 1 else f"{count} workers"
