"""What a kind of step implements, and what a step is given when it runs."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NewType

from glaive.dataclass import dataclass
from glaive.errors import DatasetNotFoundError, GlaiveError, OptionError, RefNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.spark import LanceTable


DatasetName = NewType("DatasetName", str)
"""A name in the table ``[datasets]`` of a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step is given when it runs.

    Parameters
    ----------
    spark
        The session.
    name
        Of the step.
    job_id
        Names this step of this run. Jobs with this id that were committed are not repeated.
    datasets
        URIs by name.
    parameters
        Of the run, by name.
    folder
        Of the file of the pipeline: relative paths count from there.
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
        """A dataset as a table; a branch that does not exist starts at the newest version.

        Raises
        ------
        DatasetNotFoundError
            There is no dataset yet.
        """
        from glaive.spark import LanceTable

        main = LanceTable.forPath(self.spark, self.datasets[name], **self.storage)
        if branch is None:
            return main
        self.ensure_branch(name, branch)
        return main.forBranch(branch)

    def dataset(self, name: str, branch: str | None = None) -> LanceDataset:
        """A dataset at its newest version, without Spark.

        Raises
        ------
        DatasetNotFoundError
            There is no dataset yet.
        """
        from glaive.dataset.open import dataset

        version = None if branch is None else (branch, None)
        uri, storage = self.datasets[name], dict(self.storage)
        return dataset(uri, version=version, storage_options=storage or None)

    def made_by(
        self, job: str, name: DatasetName, branch: str | None = None
    ) -> LanceDataset | None:
        """A dataset at the version that an earlier attempt of this step made by a job, if it did.

        No request for the first attempt; else those that open the dataset, and where the newest
        version does not know its jobs any more, one for each of the newest versions.
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
        opened.go_back(made)
        return opened

    def ensure_branch(self, name: str, branch: str) -> None:
        """Start a branch at the newest version of a dataset, unless it exists."""
        try:
            self.dataset(name, branch)  # by its name: a listing may lack one of an earlier step
        except RefNotFoundError:
            self.dataset(name).create_branch(branch)


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """A step of a pipeline: its fields are the keys that its table in the file may have.

    Kinds of steps are the classes in ``glaive.pipeline.steps``, by their names in ``KINDS``.

    Parameters
    ----------
    after
        Steps that have to be done before, besides those that write a dataset that it uses.
    description
        For plans and reports.
    """

    kind: ClassVar[str]

    after: tuple[str, ...] = ()
    description: str = ""

    def check(self) -> None:  # noqa: B027  # most kinds have nothing to refuse
        """Refuse keys that do not go together.

        Raises
        ------
        OptionError
            The message begins with the key, and says what to do.
        """

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The datasets that must exist before; given those of the pipeline."""
        return ()

    def writes(self) -> tuple[str, ...]:
        """The datasets that it changes or creates."""
        return ()

    @property
    def branch_written(self) -> str | None:
        """The branch of the datasets that it writes; None for the main one."""
        branch: str | None = getattr(self, "branch", None)
        return branch

    @abstractmethod
    def summary(self) -> str:
        """What it will do, in one line of a plan."""

    @property
    def shown(self) -> str:
        """The summary without passwords and keys of URLs: for plans, records and reports."""
        return GlaiveError.without_secrets(self.summary())

    @abstractmethod
    def run(self, context: StepContext) -> Mapping[str, int]:
        """Do it, and return counts for the report.

        Raises
        ------
        GlaiveError
            It failed; nothing or all of what it commits is visible.
        """


@dataclass(frozen=True, kw_only=True)
class TargetStep(Step):
    """A step that changes a dataset which exists.

    Parameters
    ----------
    target
        The dataset.
    """

    target: DatasetName

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)

    def writes(self) -> tuple[str, ...]:
        """The dataset."""
        return (self.target,)


@dataclass(frozen=True, kw_only=True)
class TableStep(TargetStep):
    """A step that may change a branch.

    Parameters
    ----------
    branch
        The branch to change; one that does not exist is started. Default: the main one.
    """

    branch: str | None = None


# --- Queries of steps, in which datasets stand by their names ---------------------------


def datasets_of(query: str, datasets: Collection[str]) -> tuple[str, ...]:
    """Those of some datasets that a query reads.

    Raises
    ------
    OptionError
        It is no query; the message begins with ``query``.
    MissingDependencyError
        sqlglot is not installed.
    """
    from glaive.spark.queries import tables_in

    named = tables_in(query)
    return tuple(name for name in datasets if name.lower() in named)


def query_frame(context: StepContext, query: str) -> DataFrame:
    """The frame of a query."""
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
    """Refuse what names no function.

    Raises
    ------
    OptionError
        It is not of the form ``module:function``.
    """
    if not _FUNCTION.fullmatch(name):
        raise OptionError(f"function: expected 'module:function', found {name!r:.60}")


def function_named(name: str) -> Callable[..., Any]:
    """The function; imports its module.

    Raises
    ------
    OptionError
        There is no such module or function.
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
