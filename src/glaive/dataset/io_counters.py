"""Bytes and requests of this process, and what its processor can do: pylance's counters."""

from __future__ import annotations

import platform
from importlib import import_module
from typing import Any

from glaive.io.stats import process_totals

__all__ = ["bytes_read_counter", "iops_counter", "simd_info"]

_TIERS = (("avx512", "AVX512F"), ("avx2", "AVX2"), ("neon", "NEON"), ("sse4.2", "SSE42"))


def bytes_read_counter() -> int:
    """Bytes that this process has read, in all datasets and files."""
    return process_totals().read_bytes


def iops_counter() -> int:
    """Read operations of this process, in all datasets and files."""
    return process_totals().read_iops


def simd_info() -> dict[str, Any]:
    """The processor: ``tier`` (widest instructions), ``target_arch``, ``host_features``.

    Kernels are compiled for the processor they run on.
    """
    features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    tier = next((name for name, feature in _TIERS if features.get(feature)), "none")
    present = sorted(name.lower() for name, there in features.items() if there)
    return {"tier": tier, "target_arch": platform.machine(), "host_features": present}
