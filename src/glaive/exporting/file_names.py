"""Names of the files that exports write: of rows, claims of runs, and the mark at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["DONE", "PART", "claims_of", "ended_runs", "is_exported", "job_of"]

DONE: Final = "_SUCCESS"
"""The mark, named as Spark's."""

_JOB: Final = r"[A-Za-z0-9._-]+"
"""Never a path: what lies in a folder below is of somebody else."""

_ROWS: Final = r"part-(?:[mr]-)?[0-9]{5,}(?:[-_.][-A-Za-z0-9_.]*)?"
_EXPORTED: Final = re.compile(
    rf"{_ROWS}|_SUCCESS|_started-{_JOB}-[0-9a-f]{{16}}|\.(?:{_ROWS}|_SUCCESS)\.crc"
)
_CLAIM: Final = re.compile(rf"_started-({_JOB})-([0-9a-f]{{16}})")

PART: Final = re.compile(rf"part-\d+-({_JOB})-([0-9a-f]{{16}})\.\w+")
"""A file with rows: the job and the run that wrote it."""


def is_exported(path: str) -> bool:
    """Whether exports write files of this name, glaive's or Spark's."""
    return _EXPORTED.fullmatch(path) is not None


def job_of(path: str) -> str | None:
    """The job that wrote a file; ``None`` if glaive's exports did not."""
    match = PART.fullmatch(path) or _CLAIM.fullmatch(path)
    return None if match is None else match[1]


def claims_of(paths: Iterable[str]) -> dict[str, str]:
    """The claims among files, each with its run."""
    return {path: match[2] for path in paths if (match := _CLAIM.fullmatch(path))}


def ended_runs(named: Iterable[str]) -> set[str]:
    """The runs of the files that a mark names: it names none of a run that goes on."""
    return {match[2] for path in named if (match := PART.fullmatch(path))}
