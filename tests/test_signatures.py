"""Public functions show their parameters, to ``inspect.signature``, ``help`` and editors."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glaive
from glaive.errors import MissingDependencyError
from glaive.options import kinds_of, shows
from glaive.scan.options import ScanKeywords, ScanOptions

PACKAGE = Path(glaive.__file__).parent
NAMES_OF_THE_CALLER = "names that the caller chooses: tables, fields of events, settings"
OF_OTHERS = "handed on to pyarrow, pandas, torch or a source of Spark"
OF_SUBCLASSES = "subclasses and callers of pylance add their own"
OPEN = {
    "DirectoryNamespace": NAMES_OF_THE_CALLER,
    "RestNamespace": NAMES_OF_THE_CALLER,
    "forPath": NAMES_OF_THE_CALLER,
    "isLanceTable": NAMES_OF_THE_CALLER,
    "session": NAMES_OF_THE_CALLER,
    "sql": NAMES_OF_THE_CALLER,
    "LanceLoader": OF_OTHERS,
    "as_py": OF_OTHERS,
    "cast": OF_OTHERS,
    "dataclass": OF_OTHERS,
    "export": OF_OTHERS,
    "get_safe_loader": OF_OTHERS,
    "sort_by": OF_OTHERS,
    "to_numpy": OF_OTHERS,
    "to_pandas": OF_OTHERS,
    "iter_fragments": OF_SUBCLASSES,
    "to_tensor": OF_SUBCLASSES,
}
"""Names of functions that take any keyword, and why."""


def public_functions() -> Iterator[tuple[str, Any]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        if "__all__" not in source:
            continue
        names = [
            ast.literal_eval(node.value)
            for node in ast.parse(source).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        if not names or path.name == "__main__.py":
            continue
        relative = path.relative_to(PACKAGE.parent).with_suffix("")
        module = importlib.import_module(".".join(relative.parts).removesuffix(".__init__"))
        for name in names[0]:
            found = getattr(module, name)
            yield name, found
            if inspect.isclass(found):
                members = inspect.getmembers(found, callable)
                yield from (member for member in members if not member[0].startswith("_"))


def test_no_public_function_hides_its_parameters() -> None:
    hidden = set()
    for name, function in public_functions():
        home = getattr(function, "__module__", None) or ""
        if not home.startswith("glaive.") or home == "glaive.compat.absent":
            continue  # what another package made; what pylance has and glaive refuses
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError, MissingDependencyError):
            continue  # of C, or of a package that is not installed
        if any(one.kind == inspect.Parameter.VAR_KEYWORD for one in parameters):
            hidden.add(name)
    of_torch = {"LanceLoader", "get_safe_loader", "to_tensor"}  # which may not be installed
    assert hidden - of_torch == OPEN.keys() - of_torch, "let glaive.options.shows add options"


@pytest.mark.parametrize("kind", [glaive.LanceDataset, glaive.LanceFragment])
@pytest.mark.parametrize("method", ["scanner", "to_table", "to_batches", "to_pandas", "head"])
def test_help_says_what_each_option_of_a_scan_is_for(kind: type, method: str) -> None:
    text = inspect.getdoc(getattr(kind, method)) or ""
    names = {
        name
        for line in text.partition("Parameters\n---")[2].split("\n")
        for name in line.split(", ")
        if not line.startswith(" ")
    }
    assert kinds_of(ScanOptions).keys() - {"limit", "offset", "columns", "filter"} <= names


def test_parameters_that_are_explained_are_in_the_signature() -> None:
    unknown = {}
    for name, function in public_functions():
        text = inspect.getdoc(function) or ""
        section = re.search(r"Parameters\n-{3,}\n(.*?)(\n\n\w[\w ]*\n-{3,}\n|\Z)", text, re.DOTALL)
        if section is None or not (getattr(function, "__module__", "") or "").startswith("glaive."):
            continue
        lines = [line for line in section[1].split("\n") if re.match(r"[\w*]", line)]
        named = [part.strip("* ") for line in lines for part in line.split(":")[0].split(",")]
        try:
            there = set(inspect.signature(function).parameters)
        except (TypeError, ValueError, MissingDependencyError):
            continue  # of C, or of a package that is not installed
        if missing := {one for one in named if one} - there:
            unknown[name] = missing
    # It has the text of create_index.
    shared = {"create_index_uncommitted": {"progress", "progress_callback"}}
    assert unknown == shared


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (glaive.write_dataset, "commit_message"),
        (glaive.write_dataset, "max_page_bytes"),
        (glaive.LanceDataset.insert, "max_rows_per_file"),
        (glaive.LanceDataset.create_index, "ef_construction"),
        (glaive.LanceDataset.create_index_uncommitted, "num_partitions"),
        (glaive.LanceDataset.create_scalar_index, "with_position"),
        (glaive.LanceDataset.count_rows, "with_row_id"),
        (glaive.LanceFragment.create, "encoding_options"),
    ],
)
def test_options_are_shown_and_explained(function: Any, name: str) -> None:
    assert name in inspect.signature(function).parameters
    assert f"\n{name}" in (text := inspect.getdoc(function) or "") or f", {name}" in text


def test_no_parameter_is_explained_twice() -> None:
    text = inspect.getdoc(glaive.write_dataset) or ""
    names = [line for line in text.split("\n") if line and line[0] not in " *-"]
    assert len(names) == len(set(names))
    assert "**options" not in text


def test_an_option_may_be_given_by_position_once() -> None:
    @shows(ScanKeywords, ScanOptions, positional=["batch_size"])
    def scan(columns: object = None, **options: Any) -> tuple[object, Any]:
        return columns, options

    assert scan("a", 5) == ("a", {"batch_size": 5})  # type: ignore[call-arg]  # added at run time
    with pytest.raises(glaive.errors.OptionError, match="'batch_size' is given twice"):
        scan("a", 5, batch_size=6)  # type: ignore[call-arg]  # added at run time
    assert str(inspect.signature(scan)).startswith("(columns: 'object' = None, batch_size: ")
