"""``glaive cleanup``: delete old versions and files that nothing uses."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_bytes, number_of, print_json, print_table, say


@click.command(
    "cleanup",
    epilog=examples(
        "glaive cleanup flights.lance --dry-run",
        "glaive cleanup flights.lance --older-than-days 30",
        "glaive cleanup flights.lance --keep 5 --json",
    ),
)
@dataset_argument
@click.option(
    "--older-than-days",
    type=click.FloatRange(min=0),
    help="Delete versions older than this; two weeks when nothing is given.",
)
@click.option("--keep", type=click.IntRange(min=1), help="Keep this many of the newest versions.")
@click.option(
    "--delete-unverified",
    is_flag=True,
    help="Delete unused files younger than a week, too; only while nobody is writing.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted, and why.")
@click.option(
    "--max-files", default=1000, show_default=True, help="Files listed by a dry run at most."
)
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    older_than_days: float | None,
    keep: int | None,
    delete_unverified: bool,
    dry_run: bool,
    max_files: int,
    as_json: bool,
) -> None:
    """Delete old versions of DATASET, and files that no version uses.

    The newest version, tagged ones, and those that branches start from are kept.
    """
    from glaive.dataset.versions.cleanup import age_of

    at = opened(dataset, None, storage_options)
    older_than = None
    if older_than_days is not None:
        older_than = age_of("--older-than-days", older_than_days, timedelta(days=1))
    if not dry_run:
        stats = at.cleanup_old_versions(
            older_than,
            keep,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=False,
        )
        _report(asdict(stats), "deleted", as_json=as_json)
        return
    plan = at.explain_cleanup_old_versions(
        older_than,
        keep,
        delete_unverified=delete_unverified,
        error_if_tagged_old_versions=False,
        include_files=True,
        max_files=max_files,
    )
    files: list[dict[str, Any]] = [
        {
            "path": file.path,
            "kind": file.kind,
            "size_bytes": file.size_bytes,
            "reason": "no version has used it"
            if file.unverified
            else "only deleted versions use it",
        }
        for file in plan.candidate_files
    ]
    if as_json:
        print_json({**asdict(plan.stats), "files": files, "warnings": plan.warnings})
        return
    if files:
        rows = [
            [it["path"], it["kind"], human_bytes(it["size_bytes"]), it["reason"]] for it in files
        ]
        print_table(["file", "kind", "size", "reason"], rows)
    days = 14 if older_than_days is None else older_than_days
    limit = datetime.now(UTC) - timedelta(days=days)
    young = all(one["timestamp"].astimezone(UTC) >= limit for one in at.versions()[:-1])
    why = f": no old version is older than {days:g} days" if keep is None and young else ""
    _report(asdict(plan.stats), "would be deleted", why, as_json=False)


def _report(stats: dict[str, object], what: str, why: str = "", *, as_json: bool) -> None:
    if as_json:
        print_json(stats)
        return
    files = sum(int(str(stats[name])) for name in stats if name.endswith("_files_removed"))
    versions = number_of(int(str(stats["old_versions"])), "version")
    size = human_bytes(float(str(stats["bytes_removed"])))
    say(f"{versions} and {number_of(files, 'file')} ({size}) {what}{why}")
    for warning in stats["warnings"]:  # type: ignore[attr-defined]  # a tuple of texts
        say(f"kept: {warning}")
