"""Warming up: every kernel is compiled, and forked children inherit what is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import glaive.kernels
from glaive.kernels import native
from glaive.kernels.warmup import warm_up


def test_every_kernel_with_a_loop_is_exercised() -> None:
    calls: list[tuple[int, int]] = []
    seconds = warm_up(lambda done, total: calls.append((done, total)))
    kernels = kernels_behind_wrappers()
    assert set(seconds) >= set(kernels)
    assert calls == [(done, len(seconds)) for done in range(len(seconds) + 1)]
    called = set().union(*kernels.values())
    assert [at for at in sorted(called) if at[1] not in vars(getattr(native, at[0]))] == []


def kernels_behind_wrappers() -> dict[str, set[tuple[str, str]]]:
    """Per module with wrappers, the kernels that it calls: their modules and names."""
    kernels: dict[str, set[tuple[str, str]]] = {}
    for path in Path(glaive.kernels.__path__[0]).glob("[a-z]*.py"):
        text = path.read_text("utf-8")
        imported = re.findall(r"from glaive\.kernels\.native import (\w+) as (\w+)", text)
        if imported:
            kernels[path.stem] = {
                (module, name)
                for module, alias in imported
                for name in re.findall(rf"\b{alias}\.(\w+)", text)
            }
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
        os._exit(0 if right and time.process_time() - start < 0.5 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_child_forked_while_a_thread_links_kernels_links_its_own() -> None:
    kernels = [at for called in kernels_behind_wrappers().values() for at in sorted(called)]
    code = f"""
import os, signal, threading, time
from glaive.kernels import native

def link():
    for module, name in {kernels}:
        getattr(getattr(native, module), name)

native.xxh64.xxh64  # the linker itself
thread = threading.Thread(target=link)
thread.start()
while thread.is_alive():
    time.sleep(0.002)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for a thread it does not have
        native.bitpack.unpack_inline
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], check=True)
