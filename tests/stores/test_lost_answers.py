"""What is made at once is made, although the client repeats the request whose answer was lost."""

from __future__ import annotations

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CommitError, ObjectNotFoundError, RefExistsError
from glaive.io.access import open_store

from .server import Failing, Kind, Server

ROWS = pa.table({"id": range(10)})


@pytest.fixture
def dataset(server: Server) -> glaive.LanceDataset:
    uri = f"s3://{server.bucket()}/t"
    return glaive.write_dataset(ROWS, uri, storage_options=server.options)


def lose(server: Server, part: str, kind: Kind = "lie") -> Failing:
    """Lose the answer to the next request to write an object of such a name."""
    failing = Failing(kind, lambda method, name: method == "PUT" and part in name)
    server.failing.append(failing)
    return failing


@pytest.mark.spec("tag-3")
def test_a_tag_is_made(server: Server, dataset: glaive.LanceDataset) -> None:
    failing = lose(server, "_refs/tags/first.json")
    dataset.tags.create("first", 1)
    assert failing.times == 0
    assert dataset.tags.get_version("first") == 1
    with pytest.raises(RefExistsError, match="already exists"):
        dataset.tags.create("first", 1)


@pytest.mark.spec("branch-5")
@pytest.mark.parametrize("part", ["_refs/branches/dev.json", "tree/dev/_versions/1844"])
def test_a_branch_is_made(server: Server, dataset: glaive.LanceDataset, part: str) -> None:
    failing = lose(server, part)
    branch = dataset.create_branch("dev")
    assert failing.times == 0
    assert branch.count_rows() == 10
    assert list(dataset.branches.list()) == ["dev"]
    with pytest.raises(RefExistsError, match="already exists"):
        dataset.create_branch("dev")


@pytest.mark.spec("rel-6", "clone-files-1")
def test_a_clone_is_made(server: Server, dataset: glaive.LanceDataset) -> None:
    failing = lose(server, "c/_versions/1844")
    clone = dataset.shallow_clone(f"{dataset.uri}c", 1, storage_options=server.options)
    assert failing.times == 0
    assert clone.count_rows() == 10


@pytest.mark.spec("rel-8")
def test_it_is_not_known_whether_a_clone_is_made_while_the_store_is_at_it(
    server: Server, dataset: glaive.LanceDataset
) -> None:
    lose(server, "c/_versions/1844", "conflict")
    with pytest.raises(CommitError, match="may or may not have been committed"):
        dataset.shallow_clone(f"{dataset.uri}c", 1, storage_options=server.options)


@pytest.mark.spec("rel-6")
def test_a_large_file_is_written(server: Server) -> None:
    store = open_store(f"s3://{server.bucket()}/t", server.options)
    sink = store.create("data/large")
    sink.write([b"x" * (9 << 20)])
    kinds: tuple[Kind, ...] = ("lie", "unknown")
    ends = [
        Failing(kind, lambda method, name: method == "POST" and "uploadId=" in name)
        for kind in kinds
    ]
    server.failing.extend(ends)
    assert sink.finish() == 9 << 20
    assert [end.times for end in ends] == [0, 0]
    assert store.head("data/large").size == 9 << 20


@pytest.mark.spec("rel-6")
def test_an_object_of_another_size_is_not_taken_for_the_large_file(server: Server) -> None:
    store = open_store(f"s3://{server.bucket()}/t", server.options)
    store.put("data/large", [b"of somebody else"])
    sink = store.create("data/large")
    sink.write([b"x" * (9 << 20)])
    server.failing.append(
        Failing("unknown", lambda method, name: method == "POST" and "uploadId=" in name)
    )
    with pytest.raises(ObjectNotFoundError, match="data/large"):
        sink.finish()
