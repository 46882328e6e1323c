"""Scans of columns with requested encodings, and of older formats."""

from __future__ import annotations

from benchmarks.workloads.common import Workload, scan

__all__ = ["WORKLOADS"]

WORKLOADS = [
    Workload("scan float64, split and zstd", None, scan("zstd_doubles")),
    Workload("scan text, zstd", None, scan("zstd_text")),
    Workload("scan 100 KB blobs, zstd", 8, scan("blobs")),
    Workload("scan 100 KB blobs, plain", 8, scan("plain_blobs")),
    Workload("scan 2.0 numbers", 20, scan("v2_0", ["seq", "float"])),
    Workload("scan 2.0 text", None, scan("v2_0", ["text"])),
    Workload("scan 0.1 numbers", 20, scan("v0_1", ["seq", "float"])),
    Workload("scan 0.1 text", None, scan("v0_1", ["text"])),
]
