"""Fuzzing guided by coverage: ``make fuzz TARGET=manifest SECONDS=60``; needs atheris.

Without a target it prints the names of all. Begins with valid inputs and the corpus; what is found
is written to the folder named by ``--found`` and printed. A finding that was repaired goes to
``tests/corpus``, with what comes of it.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["glaive"]):
    from tests.proof.coverage_indices import INDEX_TARGETS, index_seeds
    from tests.proof.coverage_pages import PAGE_TARGETS, damaged_file, page_seeds
    from tests.proof.coverage_targets import TARGETS, is_accepted, seeds
    from tests.proof.wire_mutations import mutate_manifest, mutate_message

STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    **dict.fromkeys(["data-file", *PAGE_TARGETS], damaged_file),
    "manifest": mutate_manifest,
    "transaction": mutate_message,
    "index-section": mutate_message,
    "substrait": mutate_message,
    "row-ids": lambda data, rng: data[:1] + mutate_message(data[1:], rng),
}
"""How messages are changed so that they stay messages, by target."""

_SHARE = 0.5
"""Of the inputs of these targets, those that are made that way."""

CORPUS = Path(__file__).parents[1] / "corpus"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS), nargs="?")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", default=".cache/fuzz")
    options = parser.parse_args()
    if options.target is None:
        print(*sorted(TARGETS))
        return
    Path(options.found).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        known = [data for target, data in seeds() if target == options.target]
        if options.target in INDEX_TARGETS:
            known += index_seeds(options.target)
        if options.target in PAGE_TARGETS:
            known += page_seeds(options.target)
        known += [path.read_bytes() for path in (CORPUS / options.target).glob("*")]
        for data in known:
            (Path(folder) / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        arguments = [
            sys.argv[0],
            folder,
            f"-max_total_time={options.seconds}",
            "-timeout=10",
            f"-max_len={max(16384, *map(len, known))}",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={options.found}/{options.target}-",
            "-print_final_stats=1",
        ]
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy, over numbers of a file
        change = STRUCTURED.get(options.target)
        more = {} if change is None else {"custom_mutator": partial(mutated, change)}
        atheris.Setup(arguments, lambda data: is_accepted(options.target, data) and None, **more)
        atheris.Fuzz()


def mutated(
    change: Callable[[bytes, random.Random], bytes], data: bytes, longest: int, seed: int
) -> bytes:
    """One input of the fuzzer changed: as a message, or in its bytes."""
    rng = random.Random(seed)
    if rng.random() < _SHARE:
        return change(data, rng)[:longest]
    return bytes(atheris.Mutate(data, longest))


if __name__ == "__main__":
    main()
