"""Commands that keep a dataset in order: ``compact``, ``cleanup``, ``index``, ``adviser``,
``verify`` and ``repair``; and ``doctor`` and ``warmup`` for the installation.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import SCAN, command, opened, options_of, storage_option, storage_pairs
from glaive.cli.output import (
    echo,
    examples,
    human_bytes,
    human_count,
    number_of,
    print_json,
    print_records,
    public,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.layout import Problem


_COMPACTION = "glaive.dataset.compaction_tasks:CompactionOptions"
_CLEANUP = "glaive.table.cleanup:CleanupPolicy"
_MAINTENANCE = "glaive.dataset.maintenance:MaintenanceOptions"
_INDEX = "glaive.dataset.dataset:LanceDataset.create_index"
_SCALAR = "glaive.dataset.dataset:LanceDataset.create_scalar_index"


@command(
    "glaive compact flights.lance",
    "glaive compact flights.lance --rows-per-fragment 4000000 --json",
)
@options_of(_COMPACTION, "target_rows_per_fragment", flags=["--rows-per-fragment"], default=None)
@options_of(_COMPACTION, "num_threads", flags=["--threads"])
def compact(at: LanceDataset, *, as_json: bool, **how: Any) -> None:
    """Merge small neighbouring fragments of DATASET and remove deleted rows, as a new version."""
    before = at.version
    metrics = at.optimize.compact_files(**how)
    if as_json:
        print_json({"version": at.version, **asdict(metrics)})
    elif at.version == before:
        echo("nothing to do")
    else:
        echo(
            f"version {at.version}: {human_count(metrics.fragments_removed)} fragments became "
            f"{human_count(metrics.fragments_added)}"
        )


@command(
    "glaive maintain flights.lance --dry-run",
    "glaive maintain flights.lance --retention-days 30 --tag-retention-days 365",
    "glaive maintain flights.lance --steps compact,optimize_indices --json",
)
@options_of(_MAINTENANCE, "steps")
@options_of(_MAINTENANCE, "small_fragments", "unindexed_share", "retention_days")
@options_of(_MAINTENANCE, "tag_retention_days")
@click.option("--dry-run", is_flag=True, help="Only list the steps that pay, and why.")
def maintain(at: LanceDataset, *, dry_run: bool, as_json: bool, **how: Any) -> None:
    """Compact, update indices, delete old tags and versions of DATASET, each only where it pays."""
    steps = [asdict(step) for step in at.optimize.maintain(dry_run=dry_run, **how)]
    if steps or as_json:
        print_records(steps, {"step": "step", "reason": "reason"}, as_json=as_json)
    if not steps and not as_json:
        echo("nothing to do")


@command(
    "glaive cleanup flights.lance --dry-run",
    "glaive cleanup flights.lance --older-than-days 30",
    "glaive cleanup flights.lance --keep 5 --json",
)
@click.option(
    "--older-than-days",
    type=click.FloatRange(min=0),
    help="Delete versions older than this. Default: 14, or all ages with --keep.",
)
@options_of(_CLEANUP, "retain_versions", flags=["--keep"])
@options_of(_CLEANUP, "delete_unverified")
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted, and why.")
@click.option(
    "--max-files", default=1000, show_default=True, help="Maximum number of files to list."
)
def cleanup(
    at: LanceDataset,
    *,
    older_than_days: float | None,
    dry_run: bool,
    max_files: int,
    as_json: bool,
    **how: Any,
) -> None:
    """Delete old versions of DATASET, and unused files.

    The newest version, tagged versions, and versions that branches start from stay.
    """
    from glaive.dataset.cleanup import age_of

    how["error_if_tagged_old_versions"] = False
    if older_than_days is not None:
        how["older_than"] = age_of("--older-than-days", older_than_days, timedelta(days=1))
    if not dry_run:
        _report(asdict(at.cleanup_old_versions(**how)), "deleted", as_json=as_json)
        return
    plan = at.explain_cleanup_old_versions(**how, include_files=True, max_files=max_files)
    used = ("only deleted versions use it", "no version has used it")
    files = [
        {
            "path": file.path,
            "kind": file.kind,
            "size_bytes": file.size_bytes,
            "reason": used[file.unverified],
        }
        for file in plan.candidate_files
    ]
    if as_json:
        print_json({**asdict(plan.stats), "files": files, "warnings": plan.warnings})
        return
    if files:
        titles = {"path": "file", "kind": "kind", "size_bytes": "size", "reason": "reason"}
        print_records(files, titles, as_json=False)
    days = 14 if older_than_days is None else older_than_days
    limit = datetime.now(UTC) - timedelta(days=days)
    young = all(one["timestamp"].astimezone(UTC) >= limit for one in at.versions()[:-1])
    reason = (
        f": no old version is older than {days:g} days"
        if how["retain_versions"] is None and young
        else ""
    )
    _report(asdict(plan.stats), "would be deleted", reason, as_json=False)


def _report(stats: dict[str, object], what: str, why: str = "", *, as_json: bool) -> None:
    if as_json:
        print_json(stats)
        return
    files = sum(int(str(stats[name])) for name in stats if name.endswith("_files_removed"))
    versions = number_of(int(str(stats["old_versions"])), "version")
    size = human_bytes(float(str(stats["bytes_removed"])))
    echo(f"{versions} and {number_of(files, 'file')} ({size}) {what}{why}")
    for warning in stats["warnings"]:  # type: ignore[attr-defined]  # a tuple of texts
        echo(f"kept: {warning}")


@command(
    "glaive index flights.lance",
    "glaive index flights.lance --column carrier --kind BITMAP",
    "glaive index images.lance --column vector --kind IVF_PQ --metric cosine",
    "glaive index flights.lance --update",
    "glaive index flights.lance --drop carrier_idx",
)
@options_of(_SCALAR, "column", "name")
@options_of(_INDEX, "metric")
@options_of(_SCALAR, "replace", default=False)
@options_of(_INDEX, "index_type", flags=["--kind"], default="BTREE", show_default=True)
@click.option("--update", is_flag=True, help="Bring all indices up to date with new rows.")
@click.option("--drop", metavar="NAME", help="Drop an index.")
def index(
    at: LanceDataset,
    *,
    column: str | None,
    update: bool,
    drop: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """List the indices of DATASET with the numbers of rows that they cover and lack.

    With --column, build an index; with --update, bring all up to date; with --drop, drop one.
    """
    if sum([column is not None, update, drop is not None]) > 1:
        raise click.UsageError("give one of --column, --update and --drop")
    if column is not None:
        at.create_index(column, **how)
    elif update:
        at.optimize.optimize_indices()
    elif drop is not None:
        at.drop_index(drop)
    rows: list[dict[str, Any]] = [
        {
            "index": one.name,
            "kind": one.index_type,
            "columns": list(one.field_names),
            "rows": one.num_rows_indexed,
            "rows_not_covered": at.count_rows() - one.num_rows_indexed,
        }
        for one in at.describe_indices()
    ]
    if not as_json:
        rows = [{**row, "rows_not_covered": max(row["rows_not_covered"], 0)} for row in rows]
    titles = {name: name for name in ("index", "kind", "columns", "rows")}
    print_records(rows, {**titles, "rows_not_covered": "not covered"}, as_json=as_json)


TRIALS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("default", {}),
    ("none", {"compression": "none"}),
    ("fsst", {"compression": "fsst"}),
    ("lz4", {"compression": "lz4"}),
    ("zstd", {"compression": "zstd"}),
)
BAR_WIDTH = 20


@command(
    "glaive adviser flights.lance",
    "glaive adviser flights.lance --columns carrier --rows 1000000 --json",
    versioned=True,
)
@options_of(SCAN, "columns")
@options_of(SCAN, "limit", flags=["--rows"], default=100_000, show_default=True, help="Rows used.")
def adviser(at: LanceDataset, *, as_json: bool, **how: Any) -> None:
    """Write the first rows of each column of DATASET with each encoding, and read them back.

    The files are temporary, and the dataset stays as it is. Times are measured on this machine; the
    best of three is shown. To choose an encoding, set `lance-encoding:compression` in the metadata
    of a field.
    """
    from glaive.io.failures import spilling

    table = at.to_table(**how)
    found: list[dict[str, Any]] = []
    with (
        spilling("trials of encodings"),
        tempfile.TemporaryDirectory(prefix="glaive-adviser-") as folder,
    ):
        for name in table.schema.names:
            tried = [
                one
                for encoding, options in TRIALS
                if (one := _tried(table.select([name]), encoding, options, Path(folder)))
                is not None
            ]
            if not tried:  # a type that only datasets hold
                continue
            smallest = min(tried, key=lambda one: one["bytes"])
            found += [{**one, "smallest": one is smallest} for one in tried]
    if as_json:
        print_records(found, [], as_json=True)
        return
    largest = max((one["bytes"] for one in found), default=1)
    for one in found:
        one |= {
            "encoding": one["encoding"] + " *" * one["smallest"],
            "read_ms": f"{one['read_ms']:.2f}",
            "size": "█" * round(BAR_WIDTH * one["bytes"] / largest),
        }
    titles = {name: name.replace("_", " ") for name in ("column", "encoding", "bytes", "read_ms")}
    print_records(found, {**titles, "size": "size"}, as_json=False)
    echo(
        "* the smallest of the column; bytes and times are of the first "
        f"{len(table):,} of {number_of(at.count_rows(), 'row')}"
    )


def _tried(
    column: pa.Table, encoding: str, options: dict[str, Any], folder: Path
) -> dict[str, Any] | None:
    """Return bytes and time of a column in an encoding; ``None`` if they do not fit."""
    from glaive.errors import GlaiveError
    from glaive.file import LanceFileReader, LanceFileWriter

    (name,) = column.schema.names
    path = folder / "column.lance"
    try:
        given = {name: options} if options else None
        with LanceFileWriter(path, column.schema, encoding_options=given) as writer:
            writer.write_batch(column)
    except GlaiveError:
        return None
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        LanceFileReader(path).read_all(batch_size=65_536).to_table()
        seconds.append(time.perf_counter() - start)
    return {
        "column": name,
        "encoding": encoding,
        "bytes": path.stat().st_size,
        "read_ms": round(min(seconds) * 1000, 3),
    }


# --- ``verify`` and ``repair``: what is damaged, and what can be saved ---------------------

_FOLDERS = ("_deletions", "_indices", "data")
"""Folders of the files that a version has to name."""


@command(
    "glaive verify flights.lance",
    "glaive verify flights.lance --deep",
    "glaive verify flights.lance --newest --json",
    opens=False,
)
@click.option("--deep", is_flag=True, help="Decode all values, too.")
@click.option("--newest", is_flag=True, help="Check only the newest version.")
def verify(
    dataset: str, *, storage_options: tuple[str, ...], deep: bool, newest: bool, as_json: bool
) -> None:
    """Check the manifest, data files, deletions, row ids and indices of all versions of DATASET.

    This includes versions of branches. Files with checksums are read and compared. Unused files are
    listed. The check only reads. Exit code: 1 if something is damaged.
    """
    at = opened_newest(dataset, storage_options)
    problems = 0
    for found in _found(at, dataset, deep=deep, newest=newest):
        problems += found["state"] == "damaged"
        if as_json:
            print_json(found)
        elif found["state"] == "unused":
            echo(
                f"{found['files']} files ({human_bytes(found['bytes'])}) are used by no version: "
                "see `glaive cleanup --dry-run`"
            )
        elif found["state"] == "damaged":
            echo(f"version {found['version']}: {found['problem']}")
            echo(f"    {found['remedy']}")
        else:
            echo(f"version {found['version']}: sound")
    if problems:
        raise click.exceptions.Exit(1)


def opened_newest(dataset: str, storage_options: tuple[str, ...]) -> LanceDataset:
    """Open the newest version; say what to do if its manifest is unreadable."""
    from glaive.errors import CorruptFileError, NotLanceError

    try:
        # All is compared by the check itself, which then tells of each version.
        return opened(dataset, None, ("verify_checksums=false", *storage_options))
    except (CorruptFileError, NotLanceError) as error:
        remedy = "Move this manifest to another folder: the version before it is the newest then"
        raise click.ClickException(f"{error} {remedy}.") from error


def _found(at: LanceDataset, uri: str, *, deep: bool, newest: bool) -> Iterator[dict[str, Any]]:
    from glaive.dataset.layout import VersionCheck

    check = VersionCheck(deep=deep)
    numbers = [one["version"] for one in at.versions()]
    for number in numbers[-1:] if newest else numbers:
        yield from _described(check.problems(at, number), number, uri)
    if newest:
        return
    tips = {name: at.checkout_version((name, None)) for name in sorted(at.branches.list())}
    for name, tip in tips.items():
        for number in [one["version"] for one in tip.versions()]:
            yield from _described(check.problems(tip, number), f"{name}:{number}", uri)
    unused = _unused([at, *tips.values()])
    if unused:
        yield {"state": "unused", "files": len(unused), "bytes": sum(unused)}


def _unused(branches: list[LanceDataset]) -> list[int]:
    """Return the sizes of the files that belong to no version of any branch."""
    names = ["base_uri", "path"]
    used = {
        tuple(row.values())
        for one in branches
        for row in one.tracked_files().read_all().select(names).to_pylist()
    }
    return [
        row["size_bytes"]
        for one in branches
        for row in one.all_files().read_all().to_pylist()
        if row["path"].partition("/")[0] in _FOLDERS and (row["base_uri"], row["path"]) not in used
    ]


def _described(problems: list[Problem], version: int | str, uri: str) -> Iterator[dict[str, Any]]:
    if not problems:
        yield {"state": "sound", "version": version}
    for one in problems:
        remedy = "see `glaive repair`, which makes the newest sound version the current one"
        facts: dict[str, Any] = {"state": "damaged", "version": version, "problem": one.message}
        if one.fragment is not None:
            facts["fragment"] = one.fragment
            remedy = "restore the file from a copy, or see `glaive repair`, which saves the rest"
        elif one.index is not None:
            facts["index"] = one.index
            # Made to be pasted into a shell, where a name may be anything.
            drop = shlex.join(["glaive", "index", uri, "--drop", one.index])
            remedy = f"no rows are lost: `{drop}`, then build it again"
        yield facts | {"remedy": remedy}


@command(
    "glaive repair flights.lance",
    "glaive repair flights.lance --deep --apply",
    "glaive repair flights.lance --drop-fragments --apply",
    opens=False,
)
@click.option("--deep", is_flag=True, help="Decode all values to find damage.")
@click.option(
    "--drop-fragments",
    "drop",
    is_flag=True,
    help="Drop damaged fragments of the newest version instead of restoring an older version.",
)
@click.option("--apply", is_flag=True, help="Repair the dataset. By default, only print the plan.")
def repair(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    deep: bool,
    drop: bool,
    apply: bool,
    as_json: bool,
) -> None:
    """Find what can be saved of DATASET and, with --apply, make that the current version.

    If only indices are damaged, they are dropped, and all rows stay. Otherwise the newest sound
    version is restored. With --drop-fragments, the newest version stays and loses only its damaged
    fragments. The damaged versions stay on disk; their sound parts can still be read. Exit code: 1
    if all is lost.
    """
    at = opened_newest(dataset, storage_options)
    rows = at.count_rows()
    facts = _rescue(at, dataset, deep=deep, drop=drop)
    if apply:
        _apply(at, facts)
    if as_json:
        print_json(facts)
        return
    for damage in facts["damaged"]:
        echo(f"version {damage['version']}: {damage['problem']}")
    echo(_outcome(facts, rows, applied=apply))


def _rescue(at: LanceDataset, uri: str, *, deep: bool, drop: bool) -> dict[str, Any]:
    from glaive.dataset.layout import VersionCheck

    check, newest = VersionCheck(deep=deep), at.version
    facts: dict[str, Any] = {
        "sound_version": newest,
        "damaged": [],
        "dropped_indices": [],
        "dropped_fragments": [],
        "rows": at.count_rows(),
        "restored_as": None,
    }
    problems = check.problems(at, newest)
    if not problems:
        return facts
    facts["damaged"] = _listed(newest, problems)
    in_parts = all(found.fragment is not None or found.index is not None for found in problems)
    fragments = [found.fragment for found in problems if found.fragment is not None]
    if in_parts and (drop or not fragments):
        facts["dropped_indices"] = sorted(
            {found.index for found in problems if found.index is not None}
        )
        facts["dropped_fragments"] = fragments
        # The counts of the manifest: files of a fragment may be unreadable.
        ids, rows = at.manifest.fragment_ids.tolist(), at.snapshot.live_counts.tolist()
        lost = [count for number, count in zip(ids, rows, strict=True) if number in fragments]
        facts["rows"] -= sum(lost)
        return facts
    others = [version["version"] for version in at.versions() if version["version"] != newest]
    for number in reversed(others):
        found = check.problems(at, number)
        if not found:
            facts["sound_version"] = number
            facts["rows"] = at.checkout_version(number).count_rows()
            return facts
        facts["damaged"] += _listed(number, found)
    advice = "Restore missing files from a copy"
    if in_parts:
        count = f"{len(fragments)} of {len(at.get_fragments())} fragments"
        advice += f", or keep what is there: --drop-fragments gives up {count}"
    raise click.ClickException(
        f"no version of {uri} is sound; the newest: {problems[0].message} {advice}"
    )


def _listed(version: int, problems: list[Problem]) -> list[dict[str, Any]]:
    return [{"version": version, "problem": found.message} for found in problems]


def _apply(at: LanceDataset, facts: dict[str, Any]) -> None:
    from glaive.dataset.lance_operation import LanceOperation
    from glaive.dataset.tasks import commit_operation
    from glaive.errors import CommitConflictError
    from glaive.table.operations.overwrite import RestoreUnlessChanged

    if not facts["damaged"]:
        return
    if facts["sound_version"] != at.version:
        try:
            at.move_to(commit_operation(at.opened, RestoreUnlessChanged(facts["sound_version"])))
        except CommitConflictError as error:
            raise click.ClickException(
                f"version {error.version} was committed while version {at.version} was checked. "
                "The repair would undo its changes. Run the command again"
            ) from error
    for name in facts["dropped_indices"]:
        at.drop_index(name)
    if facts["dropped_fragments"]:
        emptied = LanceOperation.Delete([], facts["dropped_fragments"], "damaged fragments")
        at = at.commit(at, emptied, read_version=at.version)
    facts["restored_as"] = at.version


def _outcome(facts: dict[str, Any], rows: int, *, applied: bool) -> str:
    """Return the last line; ``rows`` is the number in the manifest of the newest version."""
    sound, kept = facts["sound_version"], facts["rows"]
    if not facts["damaged"]:
        return f"version {sound}, the newest, is sound: nothing to do"
    what = f"the content of version {sound}"
    if facts["dropped_indices"]:
        what += f" without indices {', '.join(facts['dropped_indices'])}"
    if facts["dropped_fragments"]:
        what += f" without fragments {', '.join(map(str, facts['dropped_fragments']))}"
    what += f": {human_count(kept)} rows" + (f" of {human_count(rows)}" if kept != rows else "")
    if applied:
        return f"version {facts['restored_as']} has {what}"
    return f"--apply makes a version that has {what}"


# --- The installation ------------------------------------------------------------------

PACKAGES = ("numpy", "pyarrow", "obstore", "protobuf", "pyroaring", "PyStemmer")
OPTIONAL = (
    "numba",
    "pyspark",
    "duckdb",
    "pandas",
    "polars",
    "torch",
    "boto3",
    "fsspec",
    "hypothesis",
)


@command("glaive doctor", "glaive doctor s3://bucket/table.lance --json", opens=None)
@click.argument("location", required=False)
@storage_option
def doctor(location: str | None, *, storage_options: tuple[str, ...], as_json: bool) -> None:
    """Check installed packages, kernels and Java, and whether LOCATION can be read.

    The check only reads. Exit code: 1 if a required part fails.
    """
    storage = storage_pairs(storage_options)
    if storage and location is None:
        raise click.UsageError("--storage-option is for LOCATION: give one")
    checks = [*_packages(), _kernels(), _java()]
    if location is not None:
        checks.append(_location(location, storage))
    for check in checks:
        if as_json:
            print_json(check)
        else:
            mark = {"ok": "✓", "absent": "-", "failed": "✗"}[check["state"]]
            echo(f"{mark} {check['check']}: {check['found']}")
    if any(check["state"] == "failed" for check in checks):
        raise click.exceptions.Exit(1)


def _check(name: str, state: str, found: str) -> dict[str, Any]:
    return {"check": name, "state": state, "found": found}


def _packages() -> list[dict[str, Any]]:
    import glaive

    found = [
        _check("glaive", "ok", glaive.__version__),
        _check("python", "ok", f"{platform.python_version()} on {platform.machine()}"),
    ]
    for name in (*PACKAGES, *OPTIONAL):
        try:
            found.append(_check(name, "ok", metadata.version(name)))
        except metadata.PackageNotFoundError:
            state = "failed" if name in PACKAGES else "absent"
            found.append(_check(name, state, f"not installed: pip install {name}"))
    return found


def _kernels() -> dict[str, Any]:
    from glaive.kernels.library import level, library

    if library() is not None:
        return _check("kernels", "ok", f"machine code for {level()} is installed")
    from glaive.kernels.code_cache import has_code, missing_folder, shared_folder

    folder = shared_folder()
    if folder is not None:
        return _check("kernels", "ok", f"code is kept in {folder}; `glaive warmup` compiles all")
    if has_code():  # as in an image that was warmed up
        return _check("kernels", "ok", "compiled; others are compiled by every process")
    return _check("kernels", "failed", missing_folder())


def _java() -> dict[str, Any]:
    java = shutil.which("java")
    return _check("java", "ok" if java else "absent", java or "none; only Spark needs it")


def _location(location: str, storage: dict[str, str] | None) -> dict[str, Any]:
    from glaive.dataset.open import dataset as open_dataset
    from glaive.errors import DatasetNotFoundError, GlaiveError

    place = public(location)
    try:
        at = open_dataset(location, storage_options=storage)
    except DatasetNotFoundError:
        return _check(place, "ok", "can be read; there is no dataset")
    except (GlaiveError, OSError) as error:
        return _check(place, "failed", public(error))
    return _check(place, "ok", f"version {at.version}, {at.count_rows():,} rows")


@click.command(
    "warmup",
    epilog=examples("glaive warmup", "GLAIVE_KERNEL_CACHE=/var/cache/glaive glaive warmup --quiet"),
)
@click.option("--quiet", is_flag=True, help="Print nothing.")
def warmup(*, quiet: bool) -> None:
    """Compile all kernels and cache them, so that later processes start fast.

    Needed only for installations from source: wheels have compiled kernels. This takes about a
    minute of one core. The cache is in the folder that GLAIVE_KERNEL_CACHE names;
    by default in the folder of the package.
    """
    from rich.console import Console
    from rich.progress import Progress

    from glaive.kernels.library import level, library

    console = Console(stderr=True, quiet=quiet)
    if library() is not None:
        console.print(f"All kernels are compiled for {level()}: there is nothing to do.")
        return
    from glaive.kernels.code_cache import missing_folder, shared_folder
    from glaive.kernels.native import warm_up

    folder = shared_folder()
    if folder is None:
        raise click.ClickException(missing_folder())
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Compiling kernels", total=None)
        warm_up(lambda done, total: progress.update(task, completed=done, total=total))
    console.print(f"All kernels are compiled and cached in {folder}.")
