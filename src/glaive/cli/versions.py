"""Commands about versions, ``versions``, ``history``, ``diff``, ``restore``, ``tag``, ``branch``,
and the overviews ``show``, ``ls`` and ``namespace``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import command, json_option, opened, pairs_of, storage_option, storage_pairs
from glaive.cli.output import (
    echo,
    examples,
    human_bytes,
    human_count,
    number_of,
    print_facts,
    print_json,
    print_records,
    print_table,
    public,
)
from glaive.errors import ColumnNotFoundError, GlaiveError, OptionError, StoreError

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


@command("glaive versions flights.lance", "glaive versions flights.lance --json | jq .version")
def versions(newest: LanceDataset, *, as_json: bool) -> None:
    """List the versions of DATASET, oldest first. `glaive history` lists their commits."""
    rows = [_version_of(newest.checkout_version(one["version"]), one) for one in newest.versions()]
    print_records(rows, ["version", "timestamp", "rows", "fragments"], as_json=as_json)


def _version_of(at: LanceDataset, listed: Any) -> dict[str, Any]:
    return {
        "version": at.version,
        "timestamp": listed["timestamp"].isoformat(timespec="milliseconds"),
        "rows": at.count_rows(),
        "fragments": len(at.fragment_ids()),
    }


MESSAGE = "__lance_commit_message"


@command("glaive history flights.lance", "glaive history flights.lance -n 3 --json | jq .operation")
@click.option("-n", "--limit", default=20, type=click.IntRange(1), help="Commits; default: 20.")
def history(newest: LanceDataset, *, limit: int, as_json: bool) -> None:
    """List the newest commits of DATASET, the newest first."""
    tags: dict[int, list[str]] = {}
    for name, entry in newest.tags.list().items():
        if not entry.get("branch"):
            tags.setdefault(entry["version"], []).append(name)
    rows = []
    for listed in reversed(newest.versions()[-limit:]):
        at = newest.checkout_version(listed["version"])
        commit = at.read_transaction(at.version)
        made = None if commit is None else commit.operation
        name = "" if made is None else getattr(made, "name", type(made).__name__)
        properties = (commit.transaction_properties if commit is not None else None) or {}
        row = {
            **_version_of(at, listed),
            "operation": "".join(word[:1].upper() + word[1:] for word in name.split("_")),
            "tags": sorted(tags.get(at.version, [])),
            "message": properties.get(MESSAGE, ""),
        }
        rows.append(row)
    titles = ["version", "timestamp", "operation", "rows", "fragments", "tags", "message"]
    print_records(rows, titles, as_json=as_json)


@command("glaive diff flights.lance 3 5", "glaive diff flights.lance gold 7 --json", opens=False)
@click.argument("first")
@click.argument("second")
def diff(
    dataset: str, *, first: str, second: str, storage_options: tuple[str, ...], as_json: bool
) -> None:
    """Compare the versions FIRST and SECOND of DATASET: numbers or tags. Reads manifests only."""
    old, new = (opened(dataset, version, storage_options) for version in (first, second))
    before, after = (
        {one.fragment_id: one.metadata for one in at.get_fragments()} for at in (old, new)
    )
    kept = before.keys() & after.keys()
    had, has = ({field.name: field.type for field in at.schema} for at in (old, new))
    indexed, indices = ({one.name for one in at.describe_indices()} for at in (old, new))
    facts: dict[str, Any] = {
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
        "columns_added": sorted(has.keys() - had.keys()),
        "columns_removed": sorted(had.keys() - has.keys()),
        "columns_of_other_types": [
            f"{name}: {had[name]} -> {has[name]}"
            for name in had
            if name in has and had[name] != has[name]
        ],
        "indices_added": sorted(indices - indexed),
        "indices_removed": sorted(indexed - indices),
    }
    print_facts(facts, as_json=as_json)


@command("glaive restore flights.lance 3", "glaive restore flights.lance gold")
@click.argument("version")
def restore(at: LanceDataset, *, as_json: bool) -> None:
    """Commit a new version of DATASET with the content of VERSION, a number or tag.

    The new version refers to the files of VERSION. Versions in between stay.
    """
    old = at.version
    at.restore()
    if as_json:
        print_json({"restored": old, "version": at.version})
    else:
        echo(f"version {at.version} has the content of version {old}")


@command(
    "glaive tag flights.lance",
    "glaive tag flights.lance gold --version 3",
    "glaive tag flights.lance gold --version 4 --move",
    "glaive tag flights.lance gold --delete",
    versioned=True,
)
@click.argument("name", required=False)
@click.option("--move", is_flag=True, help="Move an existing tag to the version.")
@click.option("--delete", is_flag=True, help="Delete the tag; its version stays.")
def tag(at: LanceDataset, *, name: str | None, move: bool, delete: bool, as_json: bool) -> None:
    """List the tags of DATASET; or create, move or delete the tag NAME."""
    if name is None:
        _refuse_options("--version, --move and --delete are about one tag")
        rows = [{"tag": one, **entry} for one, entry in at.tags.list_ordered()]
        print_records(rows, ["tag", "version", "branch"], as_json=as_json)
        return
    if delete:
        at.tags.delete(name)
    else:
        (at.tags.update if move else at.tags.create)(name, at.version)
    done = "deleted" if delete else "moved" if move else "created"
    if as_json:
        print_json({"tag": name, "version": None if delete else at.version, "done": done})
    else:
        echo(f"tag {name} {done}" + ("" if delete else f": version {at.version}"))


@command(
    "glaive branch flights.lance",
    "glaive branch flights.lance trial --version 3",
    "glaive branch flights.lance trial --delete",
    versioned=True,
)
@click.argument("name", required=False)
@click.option("--delete", is_flag=True, help="Delete the branch with its versions.")
def branch(at: LanceDataset, *, name: str | None, delete: bool, as_json: bool) -> None:
    """List the branches of DATASET; or create or delete the branch NAME."""
    if name is None:
        _refuse_options("--version and --delete are about one branch")
        rows = [{"branch": one, **entry} for one, entry in at.branches.list_ordered()]
        if not as_json:
            rows = [{**row, "parent_branch": row["parent_branch"] or "main"} for row in rows]
        titles = {"branch": "branch", "parent_branch": "from", "parent_version": "version"}
        print_records(rows, titles, as_json=as_json)
        return
    if delete:
        at.branches.delete(name)
    else:
        at.create_branch(name, at.version)
    done = "deleted" if delete else "created"
    if as_json:
        print_json({"branch": name, "done": done})
    else:
        echo(f"branch {name} {done}" + ("" if delete else f" from version {at.version}"))


def _refuse_options(about: str) -> None:
    """Refuse options that need a name."""
    given = click.get_current_context().params
    if any(given.get(option) for option in ("version", "move", "delete")):
        raise click.UsageError(f"NAME is missing: {about}")


# --- ``show``: a dataset on one screen --------------------------------------------------

SMALL_ROWS = 100_000
MANY_VERSIONS = 320
SHOWN_COLUMNS = 30


@command(
    "glaive show flights.lance", "glaive show flights.lance --json | jq .advice", versioned=True
)
def show(at: LanceDataset, *, as_json: bool) -> None:
    """Show DATASET on one screen: version, rows, bytes by column, indices, tags, advice.

    Reads only the manifest, metadata of data files, and descriptions of blobs.
    """
    facts = _facts(at)
    if as_json:
        print_json(facts)
        return
    echo(f"{facts['uri']}  version {facts['version']} of {facts['latest_version']}")
    echo(
        f"{number_of(facts['rows'], 'row')}, {human_count(facts['deleted_rows'])} deleted, in "
        f"{number_of(facts['fragments'], 'fragment')}; {human_bytes(facts['bytes'])}; format "
        f"{facts['format']}; changed {facts['timestamp']}"
    )
    total = max(facts["bytes"], 1)
    print_table(
        ["column", "type", "bytes", "share"],
        [
            [
                one["column"],
                one["type"],
                human_bytes(one["bytes"]),
                "█" * round(20 * one["bytes"] / total),
            ]
            for one in facts["columns"][:SHOWN_COLUMNS]
        ],
    )
    if len(facts["columns"]) > SHOWN_COLUMNS:
        echo(f"and {len(facts['columns']) - SHOWN_COLUMNS} smaller columns")
    for name in ("indices", "tags", "branches"):
        echo(f"{name}: {', '.join(map(str, facts[name])) or 'none'}")
    for line in facts["advice"]:
        echo(f"advice: {line}")


def _facts(at: LanceDataset) -> dict[str, Any]:
    sizes = {one.id: one.bytes_on_disk for one in at.stats.data_stats().fields}
    schema = at.schema  # made again each time, with a look at all columns
    columns: list[dict[str, Any]] = [
        {
            "column": field.name,
            "type": str(schema.field(field.name).type),
            "bytes": sum(sizes.get(one, 0) for one in _ids(field)) + _blob_bytes(at, field),
        }
        for field in at.lance_schema.fields
    ]
    columns.sort(key=lambda one: -one["bytes"])
    stats = at.stats.dataset_stats(SMALL_ROWS)
    facts = {
        "uri": public(at.uri),
        "version": at.version,
        "latest_version": at.latest_version,
        "timestamp": at.get_version()["timestamp"].isoformat(timespec="seconds"),
        "format": at.data_storage_version,
        "rows": at.count_rows(),
        "deleted_rows": stats["num_deleted_rows"],
        "fragments": stats["num_fragments"],
        "small_fragments": stats["num_small_files"],
        "bytes": sum(one["bytes"] for one in columns),
        "versions": len(at.versions()),
        "columns": columns,
        "indices": [one.name for one in at.describe_indices()],
        "tags": sorted(at.tags.list()),
        "branches": sorted(at.branches.list()),
    }
    return {**facts, "advice": _advice(at, facts["versions"])}


def _blob_bytes(at: LanceDataset, field: Any) -> int:
    """Return the bytes of the blobs of a column in the dataset, from their descriptions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from glaive.format.blobs import EXTERNAL, is_blob

    if not (is_blob(field) or field.is_blob_v2):
        return 0
    total = 0
    for batch in at.to_batches(columns=[field.name]):
        described: Any = batch.column(0)
        if not pa.types.is_struct(described.type):  # values, as in format 0.1
            return 0
        sizes = pc.struct_field(described, "size")
        if field.is_blob_v2:
            sizes = sizes.filter(
                pc.not_equal(pc.struct_field(described, "kind"), pa.scalar(EXTERNAL))
            )
        total += pc.sum(sizes).as_py() or 0
    return total


def _ids(field: Any) -> list[int]:
    return [field.id, *(one for child in field.children for one in _ids(child))]


def _advice(at: LanceDataset, versions: int) -> list[str]:
    from glaive.dataset.maintenance import MaintenanceOptions, plan_maintenance

    wanted = MaintenanceOptions(steps=("compact", "optimize_indices"))
    try:
        steps = plan_maintenance(at.opened, wanted)
    except (ColumnNotFoundError, OptionError) as error:  # of the table's configuration
        found = [str(error)]
    else:
        found = [f"{step.reason}: run `glaive maintain` on it" for step in steps]
    if versions >= MANY_VERSIONS:
        found.append(
            f"{human_count(versions)} versions are kept: run `glaive cleanup --dry-run` on it"
        )
    return found


# --- ``ls`` and ``namespace``: what a folder has ----------------------------------------


@command(
    "glaive ls data",
    "glaive ls s3://bucket/tables --storage-option region=eu-west-1 --json",
    opens=None,
)
@click.argument("folder", default=".")
@storage_option
def ls(folder: str, *, storage_options: tuple[str, ...], as_json: bool) -> None:
    """List the datasets in FOLDER: name, newest version, rows, fragments, columns."""
    rows: list[dict[str, Any]] = []
    for name in _folders(folder, storage_pairs(storage_options)):
        row: dict[str, Any] = {"dataset": name}
        try:
            at = opened(f"{folder.rstrip('/')}/{name}", None, storage_options)
            row |= {
                "version": at.version,
                "rows": at.count_rows(),
                "fragments": len(at.fragment_ids()),
                "columns": len(at.schema),
            }
        except GlaiveError as error:
            row |= {"error": str(error).partition(". ")[0]}
        rows.append(row)
    if not as_json:
        rows = [{"rows": row.get("error"), **row} for row in rows]
    titles = ["dataset", "version", "rows", "fragments", "columns"]
    print_records(rows, titles, as_json=as_json)


def _folders(folder: str, storage: dict[str, str] | None) -> Iterator[str]:
    """Yield the names of folders with versions, in order."""
    from glaive.format.paths import VERSIONS
    from glaive.io.access import open_store

    store = open_store(folder, storage)
    if store.is_local and not Path(store.uri).is_dir():
        raise click.ClickException(f"{folder} is not a folder. Name a folder of datasets")
    names = store.names("")
    if names is None:  # an object store: its paths show the folders
        parts = (entry.path.split("/") for entry in store.walk(""))
        yield from sorted({path[0] for path in parts if len(path) > 2 and path[1] == VERSIONS})
        return
    for name in sorted(names):
        try:
            inside = store.names(name)
        except StoreError:  # a file, or an unreadable folder
            continue
        if inside is not None and VERSIONS in inside:
            yield name


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.group(
    "namespace", epilog=examples("glaive namespace serve shop", "glaive namespace ls shop")
)
def namespace() -> None:
    """Use a directory as a catalogue: serve it, or list its tables."""


def _properties(root: str, pairs: tuple[str, ...]) -> dict[str, str]:
    return {"root": root, **pairs_of("--property", pairs)}


_property_option = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of the directory namespace, such as storage.region=eu-west-1.",
)


@namespace.command(
    "serve", epilog=examples("glaive namespace serve shop", "glaive namespace serve shop --port 0")
)
@click.argument("root")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=2333,
    show_default=True,
    help="The port; 0 chooses a free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@_property_option
def serve(root: str, *, port: int, host: str, properties: tuple[str, ...]) -> None:
    """Serve the tables of the directory ROOT by the REST interface, until you press Ctrl+C.

    The server lacks accounts and encryption: everybody who reaches the port may read, change and
    delete all tables.
    """
    from glaive.namespace import RestAdapter

    server = RestAdapter("dir", _properties(root, properties), host=host, port=port)
    server.start()
    if host not in _LOOPBACK:
        echo(f"Warning: whoever reaches {host} may delete all tables of {public(root)}.", err=True)
    echo(f"Serving {public(root)} at {server.uri} (interrupt to stop)")
    try:
        server.wait()
    except KeyboardInterrupt:
        server.stop()


@namespace.command(
    "ls", epilog=examples("glaive namespace ls shop", "glaive namespace ls shop --json")
)
@click.argument("root")
@_property_option
@json_option
def list_tables(root: str, *, properties: tuple[str, ...], as_json: bool) -> None:
    """List the tables of the directory ROOT by id; $ separates the names of an id."""
    from glaive.namespace import connect

    catalogue = connect("dir", _properties(root, properties))
    for table in catalogue.list_all_tables({"id": []}).tables:  # type: ignore[arg-type]  # takes mappings, too
        if as_json:
            print_json({"table": table.split("$")})
        else:
            echo(table)
