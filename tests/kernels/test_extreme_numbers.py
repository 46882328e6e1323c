"""No number of a file makes a kernel leave its memory or overflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive.kernels
from glaive.kernels import _addresses

TRIALS = os.environ.get("EXTREME_TRIALS", "10")

LONG = pytest.mark.nightly(reason="compiles all kernels once more, with checks")

A_KERNEL = """
import numpy as np
from glaive.kernels import _addresses as sanitizer
from glaive.kernels._addresses import address
from glaive.kernels.loops.memory import copy, load_i64, kernel, store_u8, wrapping_sub

@kernel
def read(at, index):
    return load_i64(at + 8 * index)

@kernel
def write(at, index):
    store_u8(at + index, 1)

@kernel
def copied(to, of, size):
    copy(to, of, size)

@kernel
def added(a, b):
    return a + b

@kernel
def subtracted(a, b):
    return a - b

@kernel
def multiplied(a, b):
    return a * b

@kernel
def shifted(a, bits):
    return a << bits

@kernel
def truncated(number):
    return np.int64(number)

@kernel
def between(offset: "int", first: "int", size: "int"):
    k = offset - first
    return 1 if 0 <= k <= size else 0

@kernel
def wrapped(a, b):
    return wrapping_sub(a, b)

numbers = np.arange(10)
at = address(numbers)
frozen = np.arange(10)
frozen.flags.writeable = False
LOW, HIGH = -(2**63), 2**63 - 1
"""


Run = Callable[[str, str], subprocess.CompletedProcess[str]]
Report = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run code behind the kernels above; in a file, where numba can cache them."""

    def run(code: str, build: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(A_KERNEL + code, "utf-8")
        environment = {**os.environ, "GLAIVE_KERNELS": build}
        arguments = [sys.executable, str(script)]
        return subprocess.run(
            arguments, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_a_checked_build_stops_a_kernel_before_it_does_harm(run: Run) -> None:
    code = """
assert read(at, 9) == 9 and wrapped(LOW, 1) == HIGH and truncated(2.5) == 2
for call in (
    lambda: read(at, 10), lambda: read(at, -1), lambda: write(at, 80),
    lambda: write(address(frozen), 0), lambda: copied(at, at, 81), lambda: copied(at, at, -1),
    lambda: added(HIGH, 1), lambda: subtracted(LOW, 1), lambda: multiplied(HIGH, 2),
    lambda: shifted(1, 64), lambda: truncated(1e19), lambda: truncated(float("nan")),
):
    try:
        call()
    except sanitizer.UnsafeKernelError as error:
        print(error)
sanitizer.forget()
try:
    read(at, 0)
except sanitizer.UnsafeKernelError as error:
    print(error)
"""
    result = run(code, "checked")
    said = [line.split(",")[0] for line in result.stdout.splitlines()]
    outside = "outside the buffers of the call"
    assert said == [
        *(f"a load {outside}",) * 2,
        *(f"a store {outside}",) * 4,
        "a sum that overflows",
        "a difference that overflows",
        "a product that overflows",
        "a shift beyond the word",
        *("a float out of range",) * 2,
        f"a load {outside}",
    ], result.stderr


def test_a_difference_that_wraps_is_compared_as_the_number_that_is_used(run: Run) -> None:
    code = """
from glaive.kernels.loops.entry import compile_entry
from glaive.kernels.machine import link

called = link(compile_entry(between, "between"), "between", "between")
assert not called(LOW, 5, 100)
assert called(5, 5, 100) and not called(106, 5, 100)
lines = between.inspect_llvm(between.signatures[0])
assert "sub" in lines and " nsw " not in lines, lines
"""
    result = run(code, "numba")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def report() -> Report:
    """What happened when recorded calls were repeated with extreme numbers."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.extremes", "--trials", TRIALS],
        cwd=Path(__file__).parents[2],
        # Most of the time goes into compiling; what is checked does not depend on optimisation.
        env={
            **os.environ,
            "GLAIVE_KERNELS": "checked",
            "HYPOTHESIS_PROFILE": "few",
            "NUMBA_OPT": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    report: Report = json.loads(result.stdout)
    return report


@LONG
def test_no_extreme_number_makes_a_kernel_leave_its_buffers_or_overflow(report: Report) -> None:
    assert report["unsafe"] == {}
    assert report["outcomes"]["CorruptFileError"] > 1000
    assert report["outcomes"]["result"] > 1000


@LONG
def test_every_function_that_calls_a_compiled_loop_was_tried(report: Report) -> None:
    tried = {name for name, calls in report["calls"].items() if calls}
    calling = []
    for path in Path(glaive.kernels.__path__[0]).glob("[a-z]*.py"):
        text = path.read_text("utf-8")
        for function in re.split(r"^def ", text, flags=re.MULTILINE)[1:]:
            name = function.split("(")[0]
            if re.search(r"\b\w+_loops\.\w", function) and not name.startswith("_"):
                calling.append(f"glaive.kernels.{path.stem}.{name}")
    assert len(calling) > 40
    assert [name for name in calling if name not in tried] == []


@LONG
def test_every_compiled_loop_ran_in_the_checked_build(report: Report) -> None:
    assert report["idle"] == []


def test_buffers_of_calls_on_several_threads_are_all_registered() -> None:
    buffers = [pa.allocate_buffer(8) for _ in range(_addresses.MAX_REGIONS)]
    parts = [buffers[at::4] for at in range(4)]

    def registered(part: list[pa.Buffer]) -> None:
        for buffer in part:
            _addresses.enter(buffer)

    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(20):
            _addresses.forget()
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(registered, parts))
            starts = set(_addresses.REGIONS[1::3].tolist())
            assert {buffer.address for buffer in buffers} <= starts
            assert _addresses.REGIONS[0] == len(buffers)
    finally:
        sys.setswitchinterval(before)
        _addresses.forget()
