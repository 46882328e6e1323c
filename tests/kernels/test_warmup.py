"""Warming up: every kernel is compiled, and forked children inherit what is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import glaive.kernels
from glaive.kernels.warmup import warm_up


def test_every_compiled_kernel_is_exercised() -> None:
    calls: list[tuple[int, int]] = []
    seconds = warm_up(lambda done, total: calls.append((done, total)))
    kernels = kernels_by_wrapper_module()
    assert set(seconds) >= set(kernels)
    assert calls == [(done, len(seconds)) for done in range(len(seconds) + 1)]
    idle = [
        f"{kernel.__module__}.{name}"
        for module, name in set().union(*kernels.values())
        if not (kernel := getattr(module, name)).signatures
    ]
    assert idle == []


def kernels_by_wrapper_module() -> dict[str, set[tuple[ModuleType, str]]]:
    """Per module with wrappers, the compiled kernels that it calls and their modules."""
    kernels: dict[str, set[tuple[ModuleType, str]]] = {}
    for path in Path(glaive.kernels.__path__[0]).glob("[a-z]*.py"):
        text = path.read_text("utf-8")
        modules = [
            import_module(f"glaive.kernels.loops.{name}")
            for name in set(re.findall(r"from glaive\.kernels\.loops import (\w+)", text))
        ]
        names = set(re.findall(r"\bcompiled\.(\w+)", text))
        if modules:
            assert names, f"{path.stem} calls no kernel as compiled.name"
            kernels[path.stem] = {(m, n) for m in modules for n in names if hasattr(m, n)}
    return kernels


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_forked_child_inherits_compiled_kernels() -> None:
    code = """
import os, time
import numpy as np, pyarrow as pa
from glaive.kernels import bitpack
from glaive.testing import force_tier

values = pa.py_buffer(np.arange(100_000, dtype="<u8"))

def round_trip():
    data, sizes = bitpack.pack_inline(
        values, 100_000, 64, bitpack.chunk_widths(values, 100_000, 64)
    )
    counts = np.minimum(100_000 - 1024 * np.arange(len(sizes)), 1024)
    back = bitpack.unpack_inline(
        pa.py_buffer(data), np.cumsum(sizes) - sizes, sizes, counts, 64, "test"
    )
    return back.equals(values)

with force_tier("numba"):
    assert round_trip()
    child = os.fork()
    if child == 0:
        start = time.process_time()
        right = round_trip()
        os._exit(0 if right and time.process_time() - start < 0.1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], check=True)
