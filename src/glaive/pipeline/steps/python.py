"""``kind = "python"``: a function of the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.pipeline.step import DatasetName, Step, StepContext, check_function, function_named


@dataclass(frozen=True, kw_only=True)
class PythonStep(Step):
    """Call a function with the :class:`StepContext`.

    Parameters
    ----------
    function
        ``module:function``; returns counts by name, or nothing. Give jobs the ``job_id`` of the
        context, so that a run that goes on does not repeat them.
    inputs, outputs
        Datasets that it reads and writes.
    arguments
        Keyword arguments.
    """

    function: str
    inputs: tuple[DatasetName, ...] = ()
    outputs: tuple[DatasetName, ...] = ()
    arguments: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def check(self) -> None:
        """Refuse what names no function."""
        check_function(self.function)

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """Those that the file names."""
        return self.inputs

    def writes(self) -> tuple[str, ...]:
        """Those that the file names."""
        return self.outputs

    def summary(self) -> str:
        """What it will do."""
        return f"call {self.function}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Call it in this process.

        Raises
        ------
        OptionError
            There is no such function, or it returned something else.
        """
        returned: Any = function_named(self.function)(context, **(self.arguments or {}))
        if returned is None:
            return {}
        if not isinstance(returned, Mapping) or not all(
            isinstance(key, str) and isinstance(value, int) for key, value in returned.items()
        ):
            raise OptionError(
                f"function {self.function}: it has to return integers by name, or nothing; it "
                f"returned {returned!r:.80}"
            )
        return returned
