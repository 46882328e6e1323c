"""``glaive doctor``: check the installation."""

from __future__ import annotations

import platform
import shutil
from importlib import metadata
from typing import Any

import click

from glaive.cli.options import json_option, storage_option, storage_pairs
from glaive.cli.output import examples, print_json, public, say

PACKAGES = ("numpy", "pyarrow", "numba", "obstore", "protobuf", "pyroaring", "PyStemmer")
OPTIONAL = ("pyspark", "duckdb", "pandas", "polars", "torch", "boto3", "fsspec", "hypothesis")


@click.command(
    "doctor", epilog=examples("glaive doctor", "glaive doctor s3://bucket/table.lance --json")
)
@click.argument("location", required=False)
@storage_option
@json_option
@click.pass_context
def command(
    context: click.Context, location: str | None, *, storage_options: tuple[str, ...], as_json: bool
) -> None:
    """Check versions, kernels and Java; and whether LOCATION can be read. Changes nothing.

    Exit code 1 if something that is needed does not work.
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
            say(f"{mark} {check['check']}: {check['found']}")
    if any(check["state"] == "failed" for check in checks):
        context.exit(1)


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
    from glaive.kernels.code_cache import has_code, shared_folder, without_a_place

    folder = shared_folder()
    if folder is not None:
        return _check("kernels", "ok", f"code is kept in {folder}; `glaive warmup` compiles all")
    if has_code():  # as in an image that was warmed up
        return _check("kernels", "ok", "compiled; others are compiled by every process")
    return _check("kernels", "failed", without_a_place())


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
