"""``glaive repair``: the newest sound version becomes the current one."""

from __future__ import annotations

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, print_json, say
from glaive.cli.verify import problem_of


@click.command(
    "repair",
    epilog=examples("glaive repair flights.lance", "glaive repair flights.lance --deep --apply"),
)
@dataset_argument
@click.option("--deep", is_flag=True, help="Decode all values to find damage.")
@click.option(
    "--apply", is_flag=True, help="Do it; without this option, only say what would be done."
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    deep: bool,
    apply: bool,
    as_json: bool,
) -> None:
    """Find the newest sound version of DATASET and, with --apply, restore it.

    Nothing is deleted: the damaged versions stay, and can be read as far as they are sound. Exit
    code 1 if no version is sound.
    """
    at = opened(dataset, None, storage_options)
    damaged = []
    for number in reversed([one["version"] for one in at.versions()]):
        problem = problem_of(at, number, deep=deep)
        if problem is None:
            sound = number
            break
        damaged.append({"version": number, "problem": problem})
    else:
        raise click.ClickException(
            f"no version of {dataset} is sound; the newest: {damaged[0]['problem']} "
            "Restore missing files from a copy"
        )
    facts: dict[str, object] = {"sound_version": sound, "damaged": damaged, "restored_as": None}
    if damaged and apply:
        good = at.checkout_version(sound)
        good.restore()
        facts["restored_as"] = good.version
    if as_json:
        print_json(facts)
        return
    for one in damaged:
        say(f"version {one['version']}: {one['problem']}")
    if not damaged:
        say(f"version {sound}, the newest, is sound: nothing to do")
    elif apply:
        say(f"version {facts['restored_as']} has the content of version {sound}")
    else:
        say(f"version {sound} is sound: --apply makes it the current one")
        context.exit(0)
