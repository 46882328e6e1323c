"""Records of runs: a JSON file for each, which says how far it came."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, Literal, Self
from uuid import uuid4

from glaive.dataclass import dataclass
from glaive.errors import NotFoundError, ObjectExistsError, ObjectNotFoundError, OptionError
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.pipeline.step import Step

# --- A pipeline that was read and checked: its steps, and which has to be done before which


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


State = Literal["waiting", "running", "done", "failed"]

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}")


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """What became of a step.

    Parameters
    ----------
    kind, summary, after
        As planned.
    digest
        Of its keys: a run goes on only if those of finished steps are as they were.
    state
        ``waiting``, ``running``, ``done`` or ``failed``.
    attempts
        How often it was started.
    started
        Time in ISO format.
    seconds
        Of the last attempt.
    counts
        What it did, such as ``rows``.
    before, after_it
        ``version``, ``rows`` and ``bytes`` of the datasets that it writes, by name; null where
        there is no dataset.
    sample
        Columns and a few rows, as texts, of the first of them.
    error
        Of a failed step.
    """

    kind: str
    summary: str = ""
    after: list[str] = field(default_factory=list)
    digest: str = ""
    state: State = "waiting"
    attempts: int = 0
    started: str | None = None
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    before: dict[str, dict[str, int] | None] = field(default_factory=dict)
    after_it: dict[str, dict[str, int] | None] = field(default_factory=dict)
    sample: dict[str, list[Any]] | None = None
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """A run of a pipeline.

    Parameters
    ----------
    id
        Of the run; job ids begin with it.
    pipeline
        Its name.
    parameters
        Values by name, without those that may be secret.
    state
        As of a step.
    started, ended
        Times in ISO format.
    steps
        By name, in the order in which they run.
    """

    id: str
    pipeline: str
    parameters: dict[str, Any] = field(default_factory=dict)
    state: State = "waiting"
    started: str | None = None
    ended: str | None = None
    steps: dict[str, StepRecord] = field(default_factory=dict)

    @classmethod
    def of_json(cls, data: bytes, where: str) -> Self:
        """A record as it was written.

        Raises
        ------
        OptionError
            It is none.
        """
        try:
            values = json.loads(data)
            steps = {name: StepRecord(**step) for name, step in values.pop("steps").items()}
            return cls(**values, steps=steps)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"{where}: no record of a run ({error}). Delete the file, and start a new run"
            ) from error

    def to_json(self) -> bytes:
        """The record as a JSON file."""
        text = json.dumps(asdict(self), indent=1, default=str, ensure_ascii=False)
        return text.encode(errors="backslashreplace")  # of names of files that are no text


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a pipeline, in a folder.

    Parameters
    ----------
    store
        The folder.
    """

    store: ObjectStore

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        """Those of a pipeline; the folder may not exist yet."""
        return cls(open_store(pipeline.runs, dict(pipeline.storage) or None))

    def start(self, pipeline: Pipeline, run_id: str | None = None) -> RunRecord:
        """A new record, written.

        Raises
        ------
        OptionError
            The id is none, or taken.
        """
        now = datetime.now(UTC)
        chosen = run_id or f"{now:%Y%m%dT%H%M%S}-{uuid4().hex[:6]}"
        record = RunRecord(
            id=_checked(chosen), pipeline=pipeline.name, parameters=pipeline.shown_parameters
        )
        try:
            self.store.put(self._own(_path(chosen)), [record.to_json()], mode="create")
        except ObjectExistsError:
            raise OptionError(f"run {chosen}: there is such a run. Choose another id") from None
        return record

    def find(self, run_id: str) -> RunRecord | None:
        """The record of a run, if there is one."""
        try:
            data = self.store.get(_path(_checked(run_id)))
        except ObjectNotFoundError:
            return None
        where = self.store.full(_path(run_id))
        record = RunRecord.of_json(data.to_pybytes(), where)
        if record.id != run_id:  # files are written by it, and jobs are named by it
            raise OptionError(
                f"{where}: the record of another run, {record.id!r:.60}. Delete the file, and "
                "start a new run"
            )
        return record

    def latest(self) -> RunRecord:
        """The record that was written last.

        Raises
        ------
        NotFoundError
            There is none.
        """
        records = [meta for meta in self.store.walk("") if meta.path.endswith("/run.json")]
        if not records:
            raise NotFoundError(
                f"{self.store.uri}: there is no run of this pipeline. Start one with "
                "glaive pipeline run"
            )
        newest = max(records, key=lambda meta: str(meta.modified))
        found = self.find(newest.path.split("/")[-2])
        if found is None:
            raise NotFoundError(f"{self.store.full(newest.path)} was deleted meanwhile")
        return found

    def keep(self, record: RunRecord) -> None:
        """Write a record; a reader sees the old one or the new one."""
        self.store.put(self._own(_path(record.id)), [record.to_json()])

    def write(self, record: RunRecord, name: str, data: bytes) -> str:
        """Write a file beside the record; returns its place."""
        path = self._own(f"{record.id}/{name}")
        self.store.put(path, [data])
        return self.store.full(path)

    def scratch(self, record: RunRecord, name: str) -> str:
        """A folder of a run for a step, which may be emptied."""
        folder = f"{record.id}/{name}"
        self._refuse_links(folder)
        return self.store.full(folder)

    def _own(self, path: str) -> str:
        """A path of a file of a run, whose folder no link leads out of."""
        self._refuse_links(path.rpartition("/")[0])
        return path

    def _refuse_links(self, folder: str) -> None:
        """Refuse a folder that a link leads out of: files elsewhere would be replaced, or removed.

        Raises
        ------
        OptionError
            One does.
        """
        reason = self.store.link_out(folder)
        if reason is not None:
            raise OptionError(f"{self.store.full(folder)}: {reason} Or remove the link")


def _path(run_id: str) -> str:
    return f"{run_id}/run.json"


def _checked(run_id: str) -> str:
    if not _RUN_ID.fullmatch(run_id):
        raise OptionError(
            f"run {run_id!r:.60}: expected up to 41 letters, digits, '_' and '-' as its id"
        )
    return run_id
