"""A pipeline that was read and checked: its steps, and which has to be done before which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.pipeline.step import Step

__all__ = ["Pipeline", "dependencies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Steps over datasets.

    Parameters
    ----------
    name
        Of the pipeline.
    file
        Where it was read from.
    description
        For plans and reports.
    parameters
        Values by name, those of this run.
    credentials
        Names of the parameters that may be secret: those in settings of stores, and in passwords
        and keys of URLs. They are in no record of a run.
    datasets
        URIs by name; local paths are absolute.
    storage
        Settings of the object store of the datasets.
    master, remote, conf
        Of the Spark session.
    modules
        Python files that workers can import.
    runs
        The folder of the records of runs.
    steps
        By name, in an order in which they can run.
    depends
        For each step those that have to be done before.
    digests
        For each step a text that changes with its keys.
    """

    name: str
    file: Path
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    credentials: frozenset[str]
    datasets: Mapping[str, str] = field(repr=False)
    storage: Mapping[str, str] = field(repr=False)
    master: str | None
    remote: str | None = field(repr=False)
    conf: Mapping[str, Any] = field(repr=False)
    modules: tuple[Path, ...]
    runs: str = field(repr=False)  # a URL may have a password
    steps: Mapping[str, Step] = field(repr=False)
    depends: Mapping[str, tuple[str, ...]]
    digests: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Of the file; relative paths count from there."""
        return self.file.parent

    @property
    def shown_parameters(self) -> dict[str, Any]:
        """The parameters without those that may be secret: for records and messages."""
        shown = self.parameters.items()
        return {name: value for name, value in shown if name not in self.credentials}


def dependencies(
    steps: Mapping[str, Step], datasets: Mapping[str, str], where: str
) -> tuple[dict[str, Step], dict[str, tuple[str, ...]]]:
    """The steps in an order in which they can run, and for each those that it waits for.

    A step waits for those that its key ``after`` names; for the steps above it that write a
    dataset which it uses; and, if it writes one, for those above that read it.

    Raises
    ------
    OptionError
        A step is unknown, or steps wait for each other.
    """
    depends: dict[str, list[str]] = {}
    writer: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for name, step in steps.items():
        waits = list(step.after)
        for other in waits:
            if other not in steps:
                raise OptionError(
                    f"{where}, step {name}, key after: there is no step {other!r}. Name one of "
                    f"{', '.join(steps)}"
                )
        written = step.writes()
        for dataset in (*step.reads(datasets), *written):
            waits += [writer[dataset]] if dataset in writer else []
        for dataset in written:
            waits += readers.pop(dataset, [])
            writer[dataset] = name
        for dataset in step.reads(datasets):
            readers.setdefault(dataset, []).append(name)
        depends[name] = list(dict.fromkeys(other for other in waits if other != name))
    order = list(_sorted(depends, where))
    return {name: steps[name] for name in order}, {name: tuple(depends[name]) for name in order}


def _sorted(depends: Mapping[str, Sequence[str]], where: str) -> Iterator[str]:
    """Every step after those that it waits for; else as in the file."""
    sorter = TopologicalSorter(depends)
    try:
        sorter.prepare()
    except CycleError as error:
        raise OptionError(
            f"{where}, key after: steps wait for each other: {' -> '.join(error.args[1])}. Remove "
            "one of these"
        ) from None
    place = {name: number for number, name in enumerate(depends)}
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=place.__getitem__)
        first = ready.pop(0)
        yield first
        sorter.done(first)
