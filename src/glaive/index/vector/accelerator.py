"""K-means on another device than the processor, by torch.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import OptionError
from glaive.types import Float32s

__all__ = ["DeviceVectors", "device_named"]

_SCORES: Final = 1 << 26
"""Scores that are held at a time: 256 MiB."""

Int32s = NDArray[np.int32]


def device_named(accelerator: object) -> str | None:
    """The device that is meant by a name, or by torch's object; None: the processor.

    Raises
    ------
    OptionError
        It is not known, torch is not installed, or finds no such device.
    """
    given = accelerator if isinstance(accelerator, str) else None
    if accelerator is not None and given is None:
        kind, number = getattr(accelerator, "type", None), getattr(accelerator, "index", None)
        given = f"{kind}" if number is None else f"{kind}:{number}"
    if given is None or given == "cpu":
        return None
    kind = given.partition(":")[0]
    if kind not in ("cuda", "mps"):
        raise OptionError(
            f"only support 'cuda' or 'mps' as accelerator, and 'cpu', got {accelerator!r}"
        )
    if find_spec("torch") is None:
        raise OptionError(
            f"accelerator: {given} needs torch, which is not installed. Install it, or leave "
            "accelerator out to train on the processor"
        )
    torch: Any = import_module("torch")
    backend = torch.cuda if kind == "cuda" else torch.backends.mps
    if not backend.is_available():
        raise OptionError(
            f"accelerator: torch finds no {kind} device here. Leave accelerator out to train on "
            "the processor"
        )
    number = given.partition(":")[2]
    if number and not (number.isdecimal() and kind == "cuda" and _has(torch, int(number))):
        raise OptionError(f"accelerator: torch finds no device {given!r} here")
    return given


def _has(torch: Any, number: int) -> bool:
    return bool(number < torch.cuda.device_count())


class DeviceVectors:
    """Vectors on a device, which are assigned to centroids and summed up there.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``.
    device
        As torch calls it.
    """

    def __init__(self, vectors: Float32s, device: str) -> None:
        self._torch: Any = import_module("torch")
        self._vectors = self._torch.tensor(vectors, device=device)
        self._device = device
        # Devices of Apple have no wider floats.
        self._wide = self._torch.float32 if device.startswith("mps") else self._torch.float64

    def assign(self, centroids: Float32s, *, dot: bool) -> tuple[Int32s, float]:
        """The nearest centroid of each vector, and the sum of the distances: squared for L2."""
        torch = self._torch
        origin = np.float32(0) if dot else centroids.mean(axis=0)
        table = torch.tensor(centroids - origin, device=self._device)
        bias = 0 if dot else -(table * table).sum(dim=1) / 2
        moved_by = torch.tensor(origin, device=self._device)
        ids, total = [], 0.0
        step = max(1, _SCORES // len(centroids))
        for start in range(0, len(self._vectors), step):
            part = self._vectors[start : start + step] - moved_by
            best = (part @ table.T + bias).max(dim=1)
            ids.append(best.indices)
            total += float(best.values.sum(dtype=self._wide))
            if not dot:
                total -= float((part * part).sum(dtype=self._wide)) / 2
        self._ids = torch.cat(ids)
        loss = len(self._vectors) - total if dot else max(0.0, -2 * total)
        return self._ids.cpu().numpy().astype(np.int32), loss

    def sums(self, count: int) -> NDArray[np.float64]:
        """The sum of the vectors that :meth:`assign` gave to each of so many centroids."""
        shape = (count, self._vectors.shape[1])
        sums = self._torch.zeros(shape, dtype=self._torch.float32, device=self._device)
        sums.index_add_(0, self._ids, self._vectors)
        made: NDArray[np.float64] = sums.cpu().numpy().astype(np.float64)
        return made
