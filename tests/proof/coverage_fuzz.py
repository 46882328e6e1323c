"""Fuzzing guided by coverage: ``make fuzz TARGET=manifest SECONDS=60``; needs atheris.

Begins with valid inputs and the corpus; what is found is written to the folder named by ``--found``
and printed. A finding that was repaired goes to ``tests/corpus``, with what comes of it.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["glaive"]):
    from tests.proof.coverage_targets import TARGETS, is_accepted, seeds

CORPUS = Path(__file__).parents[1] / "corpus"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", default=".cache/fuzz")
    options = parser.parse_args()
    Path(options.found).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        known = [data for target, data in seeds() if target == options.target]
        known += [path.read_bytes() for path in (CORPUS / options.target).glob("*")]
        for data in known:
            (Path(folder) / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        arguments = [
            sys.argv[0],
            folder,
            f"-max_total_time={options.seconds}",
            "-timeout=10",
            "-max_len=16384",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={options.found}/{options.target}-",
            "-print_final_stats=1",
        ]
        atheris.Setup(arguments, lambda data: is_accepted(options.target, data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
