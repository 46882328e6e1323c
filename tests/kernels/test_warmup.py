"""Warming up: every kernel is compiled, and forked children inherit what is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from glaive.kernels import native
from glaive.kernels.native import called_kernels, warm_up


def test_every_kernel_that_python_calls_is_compiled() -> None:
    calls: list[tuple[int, int]] = []
    seconds = warm_up(lambda done, total: calls.append((done, total)))
    assert calls == [(done, len(seconds)) for done in range(len(seconds) + 1)]
    for module, names in called_kernels().items():
        kernels = import_module(f"glaive.kernels.loops.{module}")
        assert set(names) <= set(vars(kernels)) & set(vars(getattr(native, module)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_forked_child_inherits_compiled_kernels() -> None:
    code = """
import os, time
import numpy as np, pyarrow as pa
from glaive.kernels import bitpack

values = pa.py_buffer(np.arange(100_000, dtype="<u8"))

def round_trip():
    data, sizes = bitpack.pack_inline(values, 100_000, 64)
    counts = np.minimum(100_000 - 1024 * np.arange(len(sizes)), 1024)
    back = bitpack.unpack_inline(
        pa.py_buffer(data), np.cumsum(sizes) - sizes, sizes, counts, 64, "test"
    )
    return back.equals(values)

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
    kernels = [(module, name) for module, names in called_kernels().items() for name in names]
    code = f"""
import os, signal, threading, time
from glaive.kernels import native

def link():
    for module, name in {kernels}:
        getattr(getattr(native, module), name)

native.hashing.xxh64  # the linker itself
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
