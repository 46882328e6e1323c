"""Pipelines as files: named steps over datasets, which Spark runs and which go on after a failure.

:func:`load` reads and checks a file, :func:`run` runs its steps, :class:`Runs` knows earlier runs.
Nothing here loads Spark before a step runs.
"""

from glaive.pipeline.document import load
from glaive.pipeline.run import PlannedStep, plan, run
from glaive.pipeline.runs import (
    Pipeline,
    RunRecord,
    Runs,
    Step,
    StepContext,
    StepRecord,
    render_report,
)

__all__ = [
    "Pipeline",
    "PlannedStep",
    "RunRecord",
    "Runs",
    "Step",
    "StepContext",
    "StepRecord",
    "load",
    "plan",
    "render_report",
    "run",
]
