"""Time calls in turn, so that a busy moment of the machine slows all of them."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["FEWEST", "Times", "interleave", "peak_memory", "run_process", "settled"]

FEWEST = 3
"""Minimum repeats, also of the slowest call."""


@dataclass(frozen=True, slots=True)
class Times:
    """Medians in milliseconds per call: CPU time of all threads, and wall time."""

    cpu: float
    wall: float
    repeats: int


def interleave(
    calls: Mapping[str, Callable[[], object]], *, repeats: int, inner: int, seconds: float
) -> dict[str, Times]:
    """Run ``A B C A B C …`` and return the medians.

    Parameters
    ----------
    calls
        Calls by name. Each runs once untimed first, which loads kernels and fills caches.
    repeats
        Maximum number of rounds.
    inner
        Calls per measurement, to time calls shorter than a millisecond.
    seconds
        Time for each name. After it, the call only runs in the first ``FEWEST`` rounds.
    """
    spent = dict.fromkeys(calls, 0.0)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    with settled():
        for turn in range(repeats):
            for name, call in calls.items():
                if turn >= FEWEST and spent[name] > seconds:
                    continue
                cpu, wall = _once(call, inner)
                spent[name] += wall * inner
                seen[name].append((cpu, wall))
    return {
        name: Times(
            statistics.median(cpu for cpu, _ in times) * 1e3,
            statistics.median(wall for _, wall in times) * 1e3,
            len(times),
        )
        for name, times in seen.items()
    }


@contextmanager
def settled() -> Iterator[None]:
    """Exclude existing objects from garbage collections, which take 30 ms after all imports."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _once(call: Callable[[], object], inner: int) -> tuple[float, float]:
    gc.collect()
    # Let threads of the previous call finish.
    time.sleep(0.005)
    # Call once untimed, to refill the CPU caches after the previous call.
    call()
    gc.disable()
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(inner - 1):
            call()
        kept = call()  # freed after the clocks are read
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        del kept
    finally:
        gc.enable()
    return cpu / inner, wall / inner


def run_process(script: str) -> tuple[float, float]:
    """Run a Python script in a new process; return CPU and wall time in milliseconds."""
    start = time.perf_counter()
    # Keep bytecode, as an installed package does: its modules are compiled once.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, "-c", script], env=variables)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    # Popen would wait again for the process, which has ended.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}. Run this script alone:\n{script}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, wall * 1e3


_WATCHED = """
import threading, time
page = __import__("resource").getpagesize()
def now():
    with open("/proc/self/statm") as statm:
        _, resident, shared = statm.read().split()[:3]
    return (int(resident) - int(shared)) * page, int(resident) * page
{before}
start, peak, done = now(), [0, 0], threading.Event()
def watch():
    while not done.wait(0.002):
        for i, size in enumerate(now()):
            peak[i] = max(peak[i], size)
threading.Thread(target=watch, daemon=True).start()
{script}
done.set()
for i, size in enumerate(now()):
    print((max(peak[i], size) - start[i]) / 1e6)
"""


def peak_memory(script: str, before: str = "") -> tuple[float, float]:
    """Run a script in a new process; return its peak memory above the interpreter, in MB.

    Return private memory first, then resident memory with pages of mapped files. The system can
    reclaim these pages. Linux only.

    Parameters
    ----------
    script
        The script to measure.
    before
        A script that runs first. Its memory does not count.
    """
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED.format(script=script, before=before)],
        check=True,
        capture_output=True,
        text=True,
    )
    own, resident = map(float, done.stdout.split())
    return own, resident
