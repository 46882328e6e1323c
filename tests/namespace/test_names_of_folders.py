"""Tables in folders whose names mean something else in the URIs that fsspec opens."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.namespace.calls import ROWS, call

import glaive
from glaive.namespace import connect
from glaive.namespace import errors as failures
from glaive.namespace.manifest_table import CatalogueRow

fsspec = pytest.importorskip("fsspec")

from tests.distant import Distant  # noqa: E402  # as above


class Cutting(Distant):
    """Takes what follows ``?`` for no part of the path, as the file systems of servers do."""

    protocol = "cutting"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(urlsplit(path).path if "://" in path else path))


fsspec.register_implementation("cutting", Cutting, clobber=True)


@pytest.mark.spec("sec-14", "sec-18")
@pytest.mark.parametrize("folder", ["", "sub/"])
@pytest.mark.parametrize(
    ("scheme", "name"), [("distant", "own.lance::x"), ("cutting", "own.lance?x")]
)
def test_a_table_is_not_dropped_by_another_one_whose_uri_opens_it(
    tmp_path: Path, scheme: str, name: str, folder: str
) -> None:
    for one in ("own", name):
        glaive.write_dataset(ROWS, tmp_path / f"{folder}{one}.lance")
    directory = connect("dir", {"root": str(tmp_path)})
    if folder:
        for one in ("own", name):
            row = CatalogueRow(one, "table", f"{folder}{one}.lance")
            directory.manifest.change(lambda rows, row=row: {**rows, row.id: row})
    catalogue = connect("dir", {"root": f"fsspec+{scheme}://{tmp_path}"})
    refused = failures.InternalError if folder else failures.TableNotFoundError
    for method in ("count_table_rows", "drop_table"):
        with pytest.raises(refused):
            call(catalogue, method, [name])
    with pytest.raises(failures.InvalidInputError):
        call(catalogue, "register_table", ["t"], location=f"sub/{name}.lance")
    assert call(catalogue, "count_table_rows", ["own"]).count == len(ROWS)
    call(directory, "drop_table", [name])  # a name like others
    assert call(catalogue, "list_tables", []).tables == ["own"]
    assert call(catalogue, "count_table_rows", ["own"]).count == len(ROWS)
