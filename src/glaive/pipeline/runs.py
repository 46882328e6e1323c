"""Pipelines, their steps, and their runs: records in a folder, and a page for each run."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NewType, Self
from uuid import uuid4

from glaive.dataclass import dataclass
from glaive.errors import (
    DatasetNotFoundError,
    GlaiveError,
    NotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    RefNotFoundError,
)
from glaive.io.access import open_store
from glaive.io.store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark import LanceTable


# --- The interface of steps, and the context of a running step --------------------------

DatasetName = NewType("DatasetName", str)
"""A name in the table ``[datasets]`` of a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The context of a running step.

    Parameters
    ----------
    spark
        The session.
    name
        Name of the step.
    job_id
        Id of this step of this run. Jobs with this id are committed once.
    datasets
        URIs by name.
    parameters
        Parameters of the run, by name.
    folder
        Folder of the pipeline's file: relative paths start there.
    scratch
        A folder of this step and run, for checkpoints.
    storage
        Settings of the object store of the datasets.
    again
        Whether an earlier attempt of this step and run may have committed.
    """

    spark: SparkSession
    name: str
    job_id: str
    datasets: Mapping[str, str] = field(repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    folder: str = "."
    scratch: str = field(default=".", repr=False)  # a URL may have a key
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    again: bool = True

    def table(self, name: str, branch: str | None = None) -> LanceTable:
        """Open a dataset as a table; a missing branch is created at the newest version.

        Raises
        ------
        DatasetNotFoundError
            The dataset does not exist yet.
        """
        from glaive.spark import LanceTable

        main = LanceTable.forPath(self.spark, self.datasets[name], **self.storage)
        if branch is None:
            return main
        self.ensure_branch(name, branch)
        return main.forBranch(branch)

    def dataset(self, name: str, branch: str | None = None) -> LanceDataset:
        """Open a dataset at its newest version in this process.

        Raises
        ------
        DatasetNotFoundError
            The dataset does not exist yet.
        """
        from glaive.dataset.open import dataset

        version = None if branch is None else (branch, None)
        uri, storage = self.datasets[name], dict(self.storage)
        return dataset(uri, version=version, storage_options=storage or None)

    def made_by(
        self, job: str, name: DatasetName, branch: str | None = None
    ) -> LanceDataset | None:
        """Open a dataset at the version that an earlier attempt of this step made by a job.

        The first attempt takes no request. Others take the requests that open the dataset. If the
        newest version has forgotten its jobs, each of the newest versions takes one more.
        """
        from glaive.spark.runner import SparkJob

        if not self.again:
            return None
        try:
            opened = self.dataset(name, branch)
        except (DatasetNotFoundError, RefNotFoundError):
            return None
        made = SparkJob.of(self.spark, job).made(opened)
        if made is None:
            return None
        opened.reset_to(made)
        return opened

    def ensure_branch(self, name: str, branch: str) -> None:
        """Start a branch at the newest version of a dataset, unless it exists."""
        try:
            self.dataset(name, branch)  # a listing may lack a branch of an earlier step
        except RefNotFoundError:
            self.dataset(name).create_branch(branch)


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """A step of a pipeline; its fields are the keys that its table in the file may have.

    Kinds of steps are the classes in ``glaive.pipeline.steps``, by their names in ``KINDS``.

    Parameters
    ----------
    after
        Steps that must run before, in addition to the steps that write its datasets.
    description
        Description for plans and reports.
    """

    kind: ClassVar[str]

    after: tuple[str, ...] = ()
    description: str = ""

    def check(self) -> None:  # noqa: B027  # most kinds have nothing to refuse
        """Refuse keys that exclude each other.

        Raises
        ------
        OptionError
            The message begins with the key, and says what to do.
        """

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """List the datasets that must exist before, out of the pipeline's datasets."""
        return ()

    def writes(self) -> tuple[str, ...]:
        """Return the datasets that the step changes or creates."""
        return ()

    @property
    def branch_written(self) -> str | None:
        """The branch of the datasets that the step writes; ``None`` for the main branch."""
        branch: str | None = getattr(self, "branch", None)
        return branch

    @abstractmethod
    def summary(self) -> str:
        """Return a description of the work, in one line."""

    @property
    def shown(self) -> str:
        """The summary for plans, records and reports; passwords and keys of URLs are removed."""
        return GlaiveError.without_secrets(self.summary())

    @abstractmethod
    def run(self, context: StepContext) -> Mapping[str, int]:
        """Run the step, and return counts for the report.

        Raises
        ------
        GlaiveError
            The step failed. Its commit is atomic: it may be visible as a whole.
        """


@dataclass(frozen=True, kw_only=True)
class TargetStep(Step):
    """A step that changes an existing dataset.

    Parameters
    ----------
    target
        The dataset.
    """

    target: DatasetName

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the dataset."""
        return (self.target,)

    def writes(self) -> tuple[str, ...]:
        """Return the dataset."""
        return (self.target,)


@dataclass(frozen=True, kw_only=True)
class TableStep(TargetStep):
    """A step that may change a branch.

    Parameters
    ----------
    branch
        The branch to change; the step starts a missing branch. Default: the main branch.
    """

    branch: str | None = None


# --- Queries of steps, with datasets by their names -------------------------------------


def datasets_of(query: str, datasets: Collection[str]) -> tuple[str, ...]:
    """Return the names of datasets that a query reads.

    Raises
    ------
    OptionError
        ``query`` is another statement than a query; the message begins with ``query``.
    MissingDependencyError
        sqlglot is not installed.
    """
    from glaive.spark.queries import tables_in

    named = tables_in(query)
    return tuple(name for name in datasets if name.lower() in named)


def query_frame(context: StepContext, query: str) -> DataFrame:
    """Return the frame of a query."""
    from glaive.spark import sql

    storage: dict[str, Any] = {"storage_options": dict(context.storage)} if context.storage else {}
    tables = {
        name: {"uri": context.datasets[name], **storage}
        for name in datasets_of(query, context.datasets)
    }
    return sql(context.spark, query, **tables)


# --- Functions of users that steps name as ``module:function`` --------------------------

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def check_function(name: str) -> None:
    """Check that a string names a function.

    Raises
    ------
    OptionError
        ``name`` differs from the form ``module:function``.
    """
    if not _FUNCTION.fullmatch(name):
        raise OptionError(f"function: expected 'module:function', found {name!r:.60}")


def function_named(name: str) -> Callable[..., Any]:
    """Import a function's module, and return the function.

    Raises
    ------
    OptionError
        The module or the function is missing.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"function {name!r}: {error}. Add the file to the key modules of the pipeline, or "
            "install the package"
        ) from error
    found: Any = getattr(module, function_name, None)
    if not callable(found):
        raise OptionError(f"function {name!r}: the module has no function {function_name!r}")
    made: Callable[..., Any] = found
    return made


# --- A pipeline that was read and checked: its steps and their dependencies --------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Steps over datasets.

    Parameters
    ----------
    name
        Name of the pipeline.
    file
        Path of the file.
    description
        Description for plans and reports.
    parameters
        Values of this run, by name.
    credentials
        Names of parameters that may be secret: in settings of stores, and in passwords and keys of
        URLs. Records of a run omit them.
    datasets
        URIs by name; local paths are absolute.
    storage
        Settings of the object store of the datasets.
    master, remote, conf
        Settings of the Spark session.
    modules
        Python files that workers can import.
    runs
        The folder of the records of runs.
    steps
        Steps by name, in a possible order.
    depends
        For each step, the steps that must run before.
    digests
        For each step, a digest of its keys.
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
        """Folder of the file; relative paths start there."""
        return self.file.parent

    @property
    def shown_parameters(self) -> dict[str, Any]:
        """The public parameters: for records and messages."""
        shown = self.parameters.items()
        return {name: value for name, value in shown if name not in self.credentials}


def dependencies(
    steps: Mapping[str, Step], datasets: Mapping[str, str], where: str
) -> tuple[dict[str, Step], dict[str, tuple[str, ...]]]:
    """Return the steps in a possible order, and the steps that each waits for.

    A step waits for the steps that its key ``after`` names, and for steps above it that write a
    dataset which it uses. If it writes a dataset, it waits for steps above it that read this.

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
                    f"{where}, step {name}, key after: the step {other!r} does not exist. Name one "
                    f"of {', '.join(steps)}"
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
    """Yield every step after the steps that it waits for; otherwise as in the file."""
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
    """The result of a step.

    Parameters
    ----------
    kind, summary, after
        Facts of the plan.
    digest
        Digest of the step's keys: a run continues only if finished steps have the same.
    state
        ``waiting``, ``running``, ``done`` or ``failed``.
    attempts
        Number of times the step was started.
    started
        Time in ISO format.
    seconds
        Duration of the last attempt.
    counts
        Counts that the step returned, such as ``rows``.
    before, after_it
        ``version``, ``rows`` and ``bytes`` of the datasets that it writes, by name; null for a
        missing dataset.
    sample
        Columns and a few rows, as strings, of the first of these datasets.
    error
        Message of a failed step.
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
        Id of the run; job ids begin with it.
    pipeline
        Name of the pipeline.
    parameters
        Public parameters, by name.
    state
        ``waiting``, ``running``, ``done`` or ``failed``.
    started, ended
        Times in ISO format.
    steps
        Records of steps by name, in the order of the run.
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
        """Read a record from its JSON file.

        Raises
        ------
        OptionError
            The file is not a record of a run.
        """
        try:
            values = json.loads(data)
            steps = {name: StepRecord(**step) for name, step in values.pop("steps").items()}
            return cls(**values, steps=steps)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"{where}: not a record of a run ({error}). Delete the file, and start a new run"
            ) from error

    def to_json(self) -> bytes:
        """Return the record as a JSON file."""
        text = json.dumps(asdict(self), indent=1, default=str, ensure_ascii=False)
        return text.encode(errors="backslashreplace")  # names of files may be invalid UTF-8


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
        """Return the runs of a pipeline; their folder may be missing."""
        return cls(open_store(pipeline.runs, dict(pipeline.storage) or None))

    def start(self, pipeline: Pipeline, run_id: str | None = None) -> RunRecord:
        """Write a new record, and return it.

        Raises
        ------
        OptionError
            The id is invalid or in use.
        """
        now = datetime.now(UTC)
        chosen = run_id or f"{now:%Y%m%dT%H%M%S}-{uuid4().hex[:6]}"
        record = RunRecord(
            id=_checked(chosen), pipeline=pipeline.name, parameters=pipeline.shown_parameters
        )
        try:
            self.store.put(self._checked_path(_path(chosen)), [record.to_json()], mode="create")
        except ObjectExistsError:
            raise OptionError(f"run {chosen}: this run exists. Choose another id") from None
        return record

    def find(self, run_id: str) -> RunRecord | None:
        """Return the record of a run, or ``None``."""
        try:
            data = self.store.get(_path(_checked(run_id)))
        except ObjectNotFoundError:
            return None
        where = self.store.full(_path(run_id))
        record = RunRecord.of_json(data.to_pybytes(), where)
        if record.id != run_id:  # the id names the run's files and jobs
            raise OptionError(
                f"{where}: the record of another run, {record.id!r:.60}. Delete the file, and "
                "start a new run"
            )
        return record

    def latest(self) -> RunRecord:
        """Return the record that was written last.

        Raises
        ------
        NotFoundError
            The pipeline has no runs.
        """
        records = [meta for meta in self.store.walk("") if meta.path.endswith("/run.json")]
        if not records:
            raise NotFoundError(
                f"{self.store.uri}: this pipeline has no runs. Start one with glaive pipeline run"
            )
        newest = max(records, key=lambda meta: str(meta.modified))
        found = self.find(newest.path.split("/")[-2])
        if found is None:
            raise NotFoundError(f"{self.store.full(newest.path)} was deleted meanwhile")
        return found

    def keep(self, record: RunRecord) -> None:
        """Write a record; a reader sees the old record or the new one."""
        self.store.put(self._checked_path(_path(record.id)), [record.to_json()])

    def write(self, record: RunRecord, name: str, data: bytes) -> str:
        """Write a file to the folder of the record; return its location."""
        path = self._checked_path(f"{record.id}/{name}")
        self.store.put(path, [data])
        return self.store.full(path)

    def scratch(self, record: RunRecord, name: str) -> str:
        """Return a folder of a run for a step, which may be emptied."""
        folder = f"{record.id}/{name}"
        self._refuse_links(folder)
        return self.store.full(folder)

    def _checked_path(self, path: str) -> str:
        """Return the path of a run's file, unless a link leads out of its folder."""
        self._refuse_links(path.rpartition("/")[0])
        return path

    def _refuse_links(self, folder: str) -> None:
        """Refuse a folder if a link leads out of it: other files would be replaced or removed.

        Raises
        ------
        OptionError
            A link leads out of the folder.
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


# --- The report of a run: one HTML page without external files --------------------------

_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")


def render_report(pipeline: Pipeline, record: RunRecord) -> str:
    """Return the page of a run: each step with its figures and a sample.

    Parameters
    ----------
    pipeline
        The pipeline, whose name and description are at the head of the page.
    record
        The record of the run; it may be unfinished.
    """
    replaced = {
        "title": escape(f"{pipeline.name}, run {record.id}"),
        "description": escape(pipeline.description),
        "facts": _facts(record),
        "steps": "\n".join(_step(name, step) for name, step in record.steps.items()),
    }
    page = files("glaive.pipeline").joinpath("report.html").read_text("utf-8")
    text = _PLACEHOLDER.sub(lambda found: replaced[found[1]], page)
    return text.encode(errors="backslashreplace").decode()  # names of files may be invalid UTF-8


def _facts(record: RunRecord) -> str:
    seconds = sum(step.seconds for step in record.steps.values())
    facts = {
        "state": record.state,
        "started": record.started,
        "ended": record.ended,
        "seconds in steps": f"{seconds:.1f}",
        **{f"parameter {name}": value for name, value in record.parameters.items()},
    }
    return _table(["", ""], [[name, value] for name, value in facts.items() if value is not None])


def _step(name: str, step: StepRecord) -> str:
    state = escape(step.state)
    after = f"; after {', '.join(step.after)}" if step.after else ""
    parts = [
        f'<section id="step-{escape(name)}"><h2>{escape(name)} ',
        f'<small class="{state}">{escape(step.kind)}, {state}</small></h2>',
        f"<p>{escape(step.summary + after)}</p>",
    ]
    if step.error is not None:
        parts.append(f'<pre class="error">{escape(step.error)}</pre>')
    rows = list(_dataset_rows(step))
    if rows:
        titles = ["dataset", "version", "rows", "bytes"]
        parts.append(_table(titles, rows))
    counts = {"seconds": f"{step.seconds:.1f}", **step.counts}
    if step.attempts > 1:
        counts["attempts"] = step.attempts
    parts.append(_table(list(counts), [list(counts.values())]))
    if step.sample is not None and step.sample["rows"]:
        sample = _table(step.sample["columns"], step.sample["rows"])
        parts.append(f"<details><summary>sample</summary>{sample}</details>")
    return "".join([*parts, "</section>"])


def _dataset_rows(step: StepRecord) -> Iterator[list[str]]:
    """Yield the facts before and after, for each dataset."""
    for name, before in step.before.items():
        after = step.after_it.get(name)
        yield [name, *(_change(key, before, after) for key in ("version", "rows", "bytes"))]


def _change(key: str, before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> str:
    old = "–" if before is None else f"{before[key]:,}"
    new = "–" if after is None else f"{after[key]:,}"
    return old if old == new else f"{old} → {new}"


def _table(titles: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return escape(f"{value:,}" if type(value) is int else str(value))
