"""``glaive diff``: what is different between two versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, print_facts

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


@click.command(
    "diff",
    epilog=examples("glaive diff flights.lance 3 5", "glaive diff flights.lance gold 7 --json"),
)
@dataset_argument
@click.argument("first")
@click.argument("second")
@json_option
def command(
    dataset: str, first: str, second: str, *, storage_options: tuple[str, ...], as_json: bool
) -> None:
    """Compare the versions FIRST and SECOND of DATASET: numbers or tags. Reads manifests only."""
    old = opened(dataset, first, storage_options)
    new = opened(dataset, second, storage_options)
    facts = _differences(old, new)
    if not as_json:
        facts = {
            name: ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
            for name, value in facts.items()
        }
    print_facts(facts, as_json=as_json)


def _differences(old: LanceDataset, new: LanceDataset) -> dict[str, Any]:
    before, after = ({one.id: one for one in _fragments(at)} for at in (old, new))
    kept = before.keys() & after.keys()
    columns = [{field.name: field.type for field in at.schema} for at in (old, new)]
    indices = [{one.name for one in at.describe_indices()} for at in (old, new)]
    return {
        "versions": f"{old.version} -> {new.version}",
        "rows": new.count_rows() - old.count_rows(),
        "rows_before": old.count_rows(),
        "rows_after": new.count_rows(),
        "fragments_added": len(after.keys() - before.keys()),
        "fragments_removed": len(before.keys() - after.keys()),
        "fragments_with_other_deletions": sum(
            before[id].deletion_file != after[id].deletion_file for id in kept
        ),
        "fragments_with_other_files": sum(before[id].files != after[id].files for id in kept),
        "columns_added": sorted(columns[1].keys() - columns[0].keys()),
        "columns_removed": sorted(columns[0].keys() - columns[1].keys()),
        "columns_of_other_types": [
            f"{name}: {columns[0][name]} -> {columns[1][name]}"
            for name in columns[0]
            if name in columns[1] and columns[0][name] != columns[1][name]
        ],
        "indices_added": sorted(indices[1] - indices[0]),
        "indices_removed": sorted(indices[0] - indices[1]),
    }


def _fragments(at: LanceDataset) -> list[Any]:
    return [fragment.metadata for fragment in at.get_fragments()]
