"""Stubs of the modules that :mod:`glaive.compat.modules` serves: editors find no files of them.

``python -m tests.docs.stubs`` writes them; a test compares them.
"""

from __future__ import annotations

from pathlib import Path

from glaive.compat.absent import REFUSED
from glaive.compat.modules import MODULES

FOLDER = Path(__file__).resolve().parent.parent.parent / "src" / "glaive-stubs"


def stub_of(module: str) -> str:
    """The text of a stub."""
    about, homes = MODULES[module]
    lines = [f'"""{about}"""', ""]
    for home, listed in homes.items():
        for entry in listed.split():
            name, is_other, other = entry.partition("=")
            if home.startswith(f"{module}."):  # checkers find what is in a package
                continue
            if is_other and not other:
                package, _, last = f"glaive.{home}".rpartition(".")
                lines.append(f"from {package} import {last} as {name}")
            else:
                lines.append(f"from glaive.{home} import {other or name} as {name}")
    if f"glaive.{module}" in REFUSED:  # they can be imported
        lines.insert(2, "from typing import Any\n")
        lines.append("\ndef __getattr__(name: str) -> Any: ...")
    return "\n".join(lines).rstrip() + "\n"


def path_of(module: str) -> Path:
    """Where a stub is."""
    path = FOLDER.joinpath(*module.split("."))
    is_package = any(other.startswith(f"{module}.") for other in MODULES)
    return path / "__init__.pyi" if is_package else path.with_suffix(".pyi")


def main() -> None:
    """Write all stubs."""
    for module in MODULES:
        path_of(module).parent.mkdir(parents=True, exist_ok=True)
        path_of(module).write_text(stub_of(module), "utf-8")
    (FOLDER / "py.typed").write_text("partial\n", "utf-8")


if __name__ == "__main__":
    main()
