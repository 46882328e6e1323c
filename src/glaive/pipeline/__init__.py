"""Pipelines as files: named steps over datasets that Spark runs and continues after a failure.

:func:`load` reads and checks a file, :func:`run` runs its steps, :class:`Runs` finds earlier runs.
Spark is loaded when the first step runs.
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
