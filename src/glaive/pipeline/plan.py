"""What a run would do, found out without Spark and without changing anything."""

from __future__ import annotations

from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.pipeline.facts import dataset_facts
from glaive.pipeline.pipeline import Pipeline
from glaive.pipeline.runs import RunRecord

__all__ = ["PlannedStep", "check_inputs", "plan"]


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
