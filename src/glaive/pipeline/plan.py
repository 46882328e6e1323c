"""What a run would do, found out without Spark and without changing anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.dataset.stats import short_texts
from glaive.errors import DatasetNotFoundError, OptionError, RefNotFoundError
from glaive.pipeline.runs import Pipeline, RunRecord
from glaive.table.named_jobs import made_version

# --- Facts about datasets for plans and reports: version, rows, bytes, and a sample -----

SAMPLE_ROWS: Final = 5
SAMPLE_COLUMNS: Final = 12


def dataset_facts(
    uri: str, storage: Mapping[str, str], branch: str | None = None
) -> dict[str, int] | None:
    """``version``, ``rows`` and ``bytes`` of the newest version; None if there is no dataset.

    One or two requests.
    """
    opened = _opened(uri, storage, branch)
    if opened is None:
        return None
    return {
        "version": opened.version,
        "rows": opened.count_rows(),
        "bytes": opened.manifest.columns.file_bytes,
    }


def sample_of(
    uri: str, storage: Mapping[str, str], branch: str | None = None
) -> dict[str, list[Any]] | None:
    """``columns`` and ``rows`` with a few values, as short texts; None if there is no dataset."""
    opened = _opened(uri, storage, branch)
    if opened is None:
        return None
    names = opened.schema.names[:SAMPLE_COLUMNS]
    rows = opened.to_table(columns=names, limit=SAMPLE_ROWS)
    columns = list(map(short_texts, rows.columns))
    return {"columns": names, "rows": [list(row) for row in zip(*columns, strict=True)]}


def has_made(
    uri: str, storage: Mapping[str, str], jobs: Iterable[str], branch: str | None = None
) -> bool:
    """Whether one of these jobs made a version of a dataset, as far as its newest version knows."""
    opened = _opened(uri, storage, branch)
    return opened is not None and any(made_version(opened.manifest, job) for job in jobs)


def _opened(uri: str, storage: Mapping[str, str], branch: str | None) -> LanceDataset | None:
    try:
        version = None if branch is None else (branch, None)
        return dataset(uri, version=version, storage_options=dict(storage) or None)
    except (DatasetNotFoundError, RefNotFoundError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step as it would run.

    Parameters
    ----------
    name, kind, summary
        Of the step.
    after
        Steps that have to be done before.
    reads, writes
        Datasets by name, with their present version; None where there is none yet.
    done
        The run that goes on has done it.
    """

    name: str
    kind: str
    summary: str
    after: tuple[str, ...]
    reads: dict[str, int | None]
    writes: dict[str, int | None]
    done: bool


def plan(pipeline: Pipeline, record: RunRecord | None = None) -> list[PlannedStep]:
    """The steps in the order in which they would run.

    Parameters
    ----------
    record
        A run that would go on.

    Raises
    ------
    OptionError
        A dataset that a step reads neither exists nor is written by a step before.

    Notes
    -----
    One or two requests for each dataset.
    """
    versions = check_inputs(pipeline)
    return [
        PlannedStep(
            name=name,
            kind=step.kind,
            summary=step.shown,
            after=pipeline.depends[name],
            reads={one: versions[one] for one in step.reads(pipeline.datasets)},
            writes={one: versions[one] for one in step.writes()},
            done=record is not None and _is_done(record, name),
        )
        for name, step in pipeline.steps.items()
    ]


def check_inputs(pipeline: Pipeline) -> dict[str, int | None]:
    """The newest version of each dataset, by name.

    Raises
    ------
    OptionError
        As :func:`plan`.
    """
    facts: dict[str, Any] = {
        name: dataset_facts(uri, pipeline.storage) for name, uri in pipeline.datasets.items()
    }
    written: set[str] = set()
    for name, step in pipeline.steps.items():
        for read in step.reads(pipeline.datasets):
            if facts[read] is None and read not in written:
                raise OptionError(
                    f"{pipeline.file.name}, step {name}: it reads the dataset {read!r}, which does "
                    f"not exist ({pipeline.datasets[read]}), and no step before it writes it. "
                    "Correct the table [datasets], or name that step in the key after"
                )
        written.update(step.writes())
    return {name: None if fact is None else fact["version"] for name, fact in facts.items()}


def _is_done(record: RunRecord, name: str) -> bool:
    return name in record.steps and record.steps[name].state == "done"
