"""``make examples-types``: pyright, which editors use, accepts the examples of README and guide.

Each page is checked as one module, and each of :data:`MISTAKES` is found. What is known to be
no fault of the hints here is in :data:`FOREIGN`; a rule of it that finds nothing any more is an
error, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.docs.test_examples import PAGES, ROOT, examples

FOREIGN = {
    r"^(No overloads for \"table\"|Argument of type .* in function \"(table|record_batch)\")": (
        "stubs of pyarrow take no mappings of several kinds of columns"
    ),
    r"SupportsRichComparison": "stubs of pyarrow: values may be None, which has no order",
    r"(subscriptable|attribute of \"None\")": "hints of pyspark: first() may be None",
    r"parameter \"obj\" of type \"Sized\"": "stubs of pyarrow: values may be None",
}
"""Messages of pyright by what they are due to."""

MISTAKES = [
    'glaive.write_dataset([], "x", mode="apend")',
    'glaive.dataset("x", storage_option={})',
    'glaive.dataset("x").insert([], mode="apend")',
    'glaive.dataset("x").optimize.compact_files(target_rows=3)',
    'glaive.dataset("x").optimize.compact_files(compaction_mode="recode")',
    'glaive.dataset("x").to_table(colums=["a"])',
    'glaive.dataset("x").to_pandas(blob_mode="byte")',
    'glaive.fragment.write_fragments([], "x", mode="apend")',
    'glaive.fragment.LanceFragment.create("x", [], mode="apend")',
    "glaive.dataset.ColumnOrdering(3)",
]
"""Lines in which an editor underlines a word."""

OPTIONAL = re.compile(r"^Import \"torch\" could not be resolved")
"""Packages that are installed for other targets only: right with and without them."""


def checked(folder: Path) -> list[dict[str, Any]]:
    """Errors of pyright in all pages."""
    for page in PAGES:
        code = "\n".join(one.code for one in examples(page) if ">>>" not in one.code)
        name = re.sub(r"\W", "_", page.stem)
        (folder / f"page_{name}.py").write_text(f"import glaive\n{code}", "utf-8")
    (folder / "mistakes.py").write_text("\n".join(["import glaive", *MISTAKES]), "utf-8")
    settings = {"pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    pyright = [sys.argv[1], "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    run = subprocess.run(pyright, stdout=subprocess.PIPE, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(run.stdout)["generalDiagnostics"]
    return [
        one
        for one in found
        if one["severity"] == "error" and not OPTIONAL.search(str(one["message"]))
    ]


def main() -> int:
    """Print what is wrong; 0 if nothing is."""
    with TemporaryDirectory() as folder:
        found = checked(Path(folder))
    underlined = {one["range"]["start"]["line"] for one in found if "mistakes" in one["file"]}
    missed = [line for at, line in enumerate(MISTAKES, 1) if at not in underlined]
    found = [one for one in found if "mistakes" not in one["file"]]
    known: set[str] = set()
    wrong = len(missed)
    print("".join(f"not found: {line}\n" for line in missed), end="")
    for one in found:
        message, file = str(one["message"]), Path(str(one["file"])).stem
        rules = {rule for rule in FOREIGN if re.search(rule, message, re.MULTILINE | re.DOTALL)}
        known |= rules
        if not rules:
            wrong += 1
            print(f"{file}: {message}")
    for rule in FOREIGN.keys() - known:
        wrong += 1
        print(f"nothing is found by the rule {rule!r} any more: remove it")
    print(f"{len(PAGES)} pages, {len(found) - wrong} messages due to other packages, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
