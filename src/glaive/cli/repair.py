"""``glaive repair``: a sound version becomes the current one, and as much is kept as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import dataset_argument, json_option
from glaive.cli.output import examples, human_count, print_json, say
from glaive.cli.verify import opened_newest

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.layout import Problem


@click.command(
    "repair",
    epilog=examples(
        "glaive repair flights.lance",
        "glaive repair flights.lance --deep --apply",
        "glaive repair flights.lance --drop-fragments --apply",
    ),
)
@dataset_argument
@click.option("--deep", is_flag=True, help="Decode all values to find damage.")
@click.option(
    "--drop-fragments",
    "drop",
    is_flag=True,
    help="Keep the newest version without its damaged fragments, not an older version.",
)
@click.option(
    "--apply", is_flag=True, help="Do it; without this option, only say what would be done."
)
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    deep: bool,
    drop: bool,
    apply: bool,
    as_json: bool,
) -> None:
    """Find what can be saved of DATASET and, with --apply, make that the current version.

    Damaged indices are dropped, and no rows are lost. Otherwise the newest sound version is
    restored, or with --drop-fragments the newest version is kept without the fragments that are
    damaged. Nothing is deleted: the damaged versions stay, and can be read as far as they are
    sound. Exit code 1 if nothing can be saved.
    """
    at = opened_newest(dataset, storage_options)
    rows = at.count_rows()
    facts = _plan(at, dataset, deep=deep, drop=drop)
    if apply:
        _apply(at, facts)
    if as_json:
        print_json(facts)
        return
    for damage in facts["damaged"]:
        say(f"version {damage['version']}: {damage['problem']}")
    say(_outcome(facts, rows, applied=apply))


def _plan(at: LanceDataset, uri: str, *, deep: bool, drop: bool) -> dict[str, Any]:
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
        # As the manifest counts them: a fragment may be such that it cannot be looked at.
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
    from glaive.dataset.commits.lance_operation import LanceOperation
    from glaive.dataset.tasks import commit_operation
    from glaive.errors import CommitConflictError
    from glaive.table.operations.overwrite import RestoreOverLooked

    if not facts["damaged"]:
        return
    if facts["sound_version"] != at.version:
        try:
            at.move_to(commit_operation(at.opened, RestoreOverLooked(facts["sound_version"])))
        except CommitConflictError as error:
            raise click.ClickException(
                f"version {error.version} was committed while version {at.version} was looked "
                "at, and its changes would be undone. Nothing was changed: try again"
            ) from error
    for name in facts["dropped_indices"]:
        at.drop_index(name)
    if facts["dropped_fragments"]:
        emptied = LanceOperation.Delete([], facts["dropped_fragments"], "damaged fragments")
        at = at.commit(at, emptied, read_version=at.version)
    facts["restored_as"] = at.version


def _outcome(facts: dict[str, Any], rows: int, *, applied: bool) -> str:
    """The last line; ``rows`` are those of the newest version as its manifest counts them."""
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
