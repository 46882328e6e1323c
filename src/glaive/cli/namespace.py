"""``glaive namespace``: a directory as a catalogue, served for tests and trying out."""

from __future__ import annotations

import click

from glaive.cli.options import json_option, pairs_of
from glaive.cli.output import examples, print_json, public, say

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.group(
    "namespace", epilog=examples("glaive namespace serve shop", "glaive namespace ls shop")
)
def command() -> None:
    """Catalogues: serve a directory, or list its tables."""


def _properties(root: str, pairs: tuple[str, ...]) -> dict[str, str]:
    return {"root": root, **pairs_of("--property", pairs)}


_property_option = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of the directory namespace, such as storage.region=eu-west-1.",
)


@command.command(
    "serve", epilog=examples("glaive namespace serve shop", "glaive namespace serve shop --port 0")
)
@click.argument("root")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=2333,
    show_default=True,
    help="The port; 0 for any that is free.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@_property_option
def serve(root: str, *, port: int, host: str, properties: tuple[str, ...]) -> None:
    """Serve the tables of the directory ROOT by the REST interface, until interrupted.

    There are no accounts and no encryption: whoever reaches the port may read, change and delete
    all tables.
    """
    from glaive.namespace import RestAdapter

    server = RestAdapter("dir", _properties(root, properties), host=host, port=port)
    server.start()
    if host not in _LOOPBACK:
        say(f"Warning: whoever reaches {host} may delete all tables of {public(root)}.", err=True)
    say(f"Serving {public(root)} at {server.uri} (interrupt to stop)")
    try:
        server.wait()
    except KeyboardInterrupt:
        server.stop()


@command.command(
    "ls", epilog=examples("glaive namespace ls shop", "glaive namespace ls shop --json")
)
@click.argument("root")
@_property_option
@json_option
def list_tables(root: str, *, properties: tuple[str, ...], as_json: bool) -> None:
    """List the tables of the directory ROOT: their ids, with $ between the names."""
    from glaive.namespace import connect

    catalogue = connect("dir", _properties(root, properties))
    for table in catalogue.list_all_tables({"id": []}).tables:  # type: ignore[arg-type]  # takes mappings, too
        if as_json:
            print_json({"table": table.split("$")})
        else:
            say(table)
