"""Call every kernel that has a reference, and the reference, and compare what they do.

``python -m tests.kernels.compare`` records calls of these functions while their tests run, as
:mod:`tests.kernels.extremes` does, and repeats each by compiled kernels and by the NumPy
reference. The answers have to be equal, and laid out alike: what is written for one tier is given
the other's in the next process. Then single numbers are replaced by extreme ones: the reference
may not warn, or end in an error that is not one of ours, where the compiled kernel does not.

Prints a report as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import random
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from tests.kernels.extremes import (
    EXPECTED,
    MEMORY,
    Arguments,
    Recorder,
    copied,
    in_child,
    record,
    variants,
)
from tests.kernels.tiers import Tier, force_tier, references

REFUSED = (*EXPECTED, ValueError)
"""What a call may end in: our errors, and those for arguments that do not match."""


def answer(name: str, arguments: Arguments, tier: Tier) -> tuple[Any, str]:
    """What a function returns and does to its arguments; or the kind of its error.

    Raises
    ------
    Exception
        It warned, or ended in an error that is not expected.
    """
    module, _, short = name.rpartition(".")
    given = copied(arguments)
    with warnings.catch_warnings(), force_tier(tier):
        warnings.simplefilter("error")
        function = getattr(import_module(module), short)
        try:
            return (function(**given), given), ""
        except REFUSED as error:
            return None, type(error).__name__


def differences(one: Any, other: Any, place: str = "result") -> Iterator[str]:
    """Where two answers differ, and how; addresses that they keep may."""
    if isinstance(one, pa.Buffer) and isinstance(other, pa.Buffer):
        # Bitmaps of one tier may have some bytes more.
        size = min(one.size, other.size)
        if one.slice(0, size) != other.slice(0, size):
            yield f"{place}: other bytes"
    elif isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        yield from _differing_arrays(one, other, place)
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            yield f"{place}: {len(one)} and {len(other)}"
        for at, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from differences(left, right, f"{place}[{at}]")
    elif isinstance(one, dict):
        for key in one:
            yield from differences(one[key], other[key], f"{place}[{key!r}]")
    elif dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one) if field.name[0] != "_"]
        for name in names:
            yield from differences(getattr(one, name), getattr(other, name), f"{place}.{name}")
    elif isinstance(one, (int, float, str, bytes)) and not _are_equal(one, other):
        yield f"{place}: {one!r} and {other!r}"


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal, or one of them is not told."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, equal_nan=True))
    return other is None or bool(one == other)


def _differing_arrays(one: Any, other: Any, place: str) -> Iterator[str]:
    shape, other_shape = (
        (array.shape, str(array.dtype), array.flags.c_contiguous, array.flags.writeable)
        for array in (one, other)
    )
    if shape != other_shape:
        yield f"{place}: {shape} and {other_shape}"
    elif one.dtype.kind == "f":
        if not np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
            yield f"{place}: other numbers"
    elif not np.array_equal(one, other):
        yield f"{place}: other values"


def compare(name: str, kept: dict[Any, Arguments], trials: int) -> dict[str, Any]:
    """Calls of a function that were compared, and what differs."""
    choose = random.Random(name)
    counted: Counter[str] = Counter()
    differing: set[str] = set()
    foreign: dict[str, str] = {}
    for arguments in kept.values():
        (ours, error), (theirs, other) = (
            answer(name, arguments, tier) for tier in ("numba", "numpy")
        )
        counted["compared"] += 1
        if error != other:
            differing.add(f"{error or 'a result'} and {other or 'a result'}")
        differing.update(differences(ours, theirs))
        for said, changed in variants(arguments, trials, choose):
            with contextlib.suppress(Exception):  # those of the kernel are another test's
                answer(name, changed, "numba")
                try:
                    answer(name, changed, "numpy")
                except Exception as error:
                    foreign.setdefault(f"{type(error).__name__}: {error}", said)
            counted["tried"] += 1
    return {"counted": counted, "differing": sorted(differing), "foreign": foreign}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4, help="variants of each recorded call")
    parser.add_argument("--calls", type=int, default=12, help="recorded calls of each function")
    parser.add_argument("--only", default="", help="functions whose name contains this")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    recorder = Recorder(options.calls)
    record(recorder)
    report: dict[str, dict[str, Any]] = {}
    for name, kept in sorted(recorder.calls.items()):
        short = name.removeprefix("glaive.kernels.")
        if options.only in name and short in references():
            found = in_child(functools.partial(compare, name, kept, options.trials))
            report[short] = found or {"counted": {}, "differing": ["it ended"], "foreign": {}}
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
