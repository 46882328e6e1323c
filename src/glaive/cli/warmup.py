"""``glaive warmup``: compile all kernels and cache them on disk."""

from __future__ import annotations

import click

from glaive.cli.output import examples


@click.command(
    "warmup",
    epilog=examples("glaive warmup", "GLAIVE_KERNEL_CACHE=/var/cache/glaive glaive warmup --quiet"),
)
@click.option("--quiet", is_flag=True, help="Print nothing.")
def command(*, quiet: bool) -> None:
    """Compile all kernels and cache them, so that later processes start fast.

    Useful when building an image or before many short jobs. The cache is beside the sources,
    or in the folder GLAIVE_KERNEL_CACHE. Takes about a minute of one core.
    """
    from rich.console import Console
    from rich.progress import Progress

    from glaive.kernels.code_cache import shared_folder, without_a_place
    from glaive.kernels.warmup import warm_up

    folder = shared_folder()
    if folder is None:
        raise click.ClickException(without_a_place())

    console = Console(stderr=True, quiet=quiet)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Compiling kernels", total=None)
        warm_up(lambda done, total: progress.update(task, completed=done, total=total))
    console.print(f"All kernels are compiled and cached in {folder}.")
