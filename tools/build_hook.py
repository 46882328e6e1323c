"""Compile the kernels while a wheel is built or the package is installed; hatchling calls it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

import build_kernels


class KernelsHook(BuildHookInterface):  # type: ignore[misc]  # hatchling ships no types here
    """Put machine code beside the sources of kernels."""

    def dependencies(self) -> list[str]:
        """Return the compiler and the linker, unless there is code already."""
        needed: list[str] = build_kernels.packages()
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile what is not there."""
        build_kernels.build(build_kernels.wanted(editable=version == "editable"))
