"""What a driver and its workers must have in common: versions of glaive and of Python."""

from __future__ import annotations

import platform
from typing import Final

from glaive.errors import MissingDependencyError
from glaive.format.manifest import WRITER

__all__ = ["RELEASE", "check_release"]

RELEASE: Final = f"{WRITER[0]} {WRITER[1]}, Python {'.'.join(platform.python_version_tuple()[:2])}"
"""Versions of this process; those of the driver travel with the tasks."""


def check_release(driver: str) -> None:
    """Refuse to work for a driver of another version.

    Parameters
    ----------
    driver
        :data:`RELEASE` of the driver.

    Raises
    ------
    MissingDependencyError
        The message names both versions and this host.
    """
    if driver != RELEASE:
        raise MissingDependencyError(
            f"the executor {platform.node()} has {RELEASE}, the driver has {driver}. Install the "
            "same versions on all machines, or ship the driver's with spark.archives"
        )
