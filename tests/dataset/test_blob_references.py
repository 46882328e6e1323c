"""Values of blobs that lie elsewhere: carried over as references, fetched when allowed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.strangers import CONTENT, SECRET, Stranger, contents_of, listening

import glaive
from glaive import Blob, blob_array, blob_field
from glaive.dataset.dataset import LanceDataset
from glaive.errors import AccessError, CorruptFileError, OptionError, SchemaError, StoreError

BIG = b"big" * 40_000
ELSEWHERE = 3
"""The kind of a description that says so."""


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with listening() as found:
        yield found


def rows(values: list[Any], first: int = 0) -> pa.Table:
    ids = pa.array(range(first, first + len(values)), pa.int64())
    names = pa.array([f"row {number}" for number in range(first, first + len(values))])
    fields = [pa.field("id", pa.int64()), pa.field("name", pa.string()), blob_field("b")]
    return pa.Table.from_arrays([ids, names, blob_array(values)], schema=pa.schema(fields))


@pytest.fixture
def place(tmp_path: Path, stranger: Stranger, key: Path) -> Path:
    """Two fragments, each with a value of every kind; media lie below a base path."""
    media = tmp_path / "media"
    media.mkdir()
    (media / "m.bin").write_bytes(b"media" * 20)
    values = [
        b"here",
        key.as_uri(),
        Blob.from_uri(key.as_uri(), 3, 7),
        f"{stranger.url}/x.bin",
        Blob.from_uri((media / "m.bin").as_uri(), 5, 10),
        None,
        b"",
        BIG,
    ]
    where = tmp_path / "d"
    base = glaive.DatasetBasePath(media.as_uri(), "media")
    options: Any = {"allow_external_blob_outside_bases": True}
    glaive.write_dataset(rows(values), where, initial_bases=[base], **options)
    glaive.write_dataset(rows(values, 10), where, mode="append", **options)
    return where


def references(place: Path) -> dict[int, tuple[Any, ...]]:
    """The description of each value that lies elsewhere, by id."""
    found = glaive.dataset(place).to_table(["id", "b"]).to_pylist()
    return {
        one["id"]: tuple(one["b"].values())
        for one in found
        if one["b"] and one["b"]["kind"] == ELSEWHERE
    }


def own_values(place: Path) -> dict[int, bytes | None]:
    """The values that lie in the dataset, by id."""
    dataset = glaive.dataset(place)
    table = dataset.to_table(["id", "b"]).to_pylist()
    here = [at for at, one in enumerate(table) if not one["b"] or one["b"]["kind"] != ELSEWHERE]
    found = dataset.read_blobs("b", indices=here)
    return {table[at]["id"]: value for at, (_, value) in zip(here, found, strict=True)}


def compact(dataset: LanceDataset) -> None:
    assert dataset.optimize.compact_files().fragments_removed == 2


def compact_in_parts(dataset: LanceDataset) -> None:
    from glaive.optimize import Compaction

    plan = Compaction.plan(dataset, {})
    done = [task.execute(dataset) for task in pickle.loads(pickle.dumps(list(plan.tasks)))]
    Compaction.commit(dataset, done)


def update(dataset: LanceDataset) -> None:
    dataset.update({"name": "'new'"}, where="b IS NOT NULL")


def merge_partially(dataset: LanceDataset) -> None:
    source = pa.table({"id": [1, 3, 4, 12], "name": ["a", "b", "c", "d"]})
    dataset.merge_insert("id").when_matched_update_all("target.b IS NOT NULL").execute(source)


def merge_without_columns(dataset: LanceDataset) -> None:
    source = pa.table({"id": [1, 3, 4, 12], "name": ["a", "b", "c", "d"]})
    merge = dataset.merge_insert("id").when_matched_update_all()
    merge.when_not_matched_by_source_delete("id = 15").execute(source)


def rewrite_the_column(dataset: LanceDataset) -> None:
    source = rows([b"new"], 7).select(["id", "b"])
    merge = dataset.merge_insert("id").when_matched_update_all()
    merge.write_mode("rewrite_columns").execute(source)


def update_the_column(dataset: LanceDataset) -> None:
    source = pa.table({"id": [7], "b": pa.array([b"new"])})
    found: Any = dataset.get_fragments()[0].update_columns(source, "id")
    operation = glaive.LanceOperation.Update(updated_fragments=[found[0]], fields_modified=found[1])
    LanceDataset.commit(dataset, operation, read_version=dataset.version)


def add_a_column(dataset: LanceDataset) -> None:
    dataset.delete("id = 11")
    dataset.add_columns({"has": "b IS NOT NULL", "twice": "id * 2"})
    dataset.alter_columns({"path": "id", "data_type": pa.int32()})
    dataset.alter_columns({"path": "name", "nullable": False})
    dataset.drop_columns(["twice"])


def merge_a_table(dataset: LanceDataset) -> None:
    dataset.merge(pa.table({"id": [1, 2], "more": [5, 6]}), "id")


CHANGES: list[Callable[[LanceDataset], None]] = [
    compact,
    compact_in_parts,
    update,
    merge_partially,
    merge_without_columns,
    rewrite_the_column,
    update_the_column,
    add_a_column,
    merge_a_table,
]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("change", CHANGES)
def test_rows_written_again_keep_their_references(
    change: Callable[[LanceDataset], None], place: Path, stranger: Stranger, key: Path
) -> None:
    before, own = references(place), own_values(place)
    key.rename(key.with_name("moved"))  # nobody can read it by the way
    change(glaive.dataset(place))
    after = references(place)
    assert after.items() <= before.items()
    assert before.keys() - after.keys() <= {11}  # which one of them deletes
    left = own_values(place)
    assert {number: left[number] for number in left if number != 7} == {
        number: own[number] for number in left if number != 7
    }
    assert stranger.asked == []
    assert SECRET[:20] not in contents_of(place)
    assert CONTENT[:20] not in contents_of(place)


@pytest.mark.parametrize("change", [compact, update])
def test_an_allowance_to_read_copies_nothing_either(
    change: Callable[[LanceDataset], None], place: Path, stranger: Stranger
) -> None:
    before = references(place)
    change(glaive.dataset(place, allow_external_blobs=True))
    assert references(place) == before
    assert stranger.asked == []
    assert SECRET[:20] not in contents_of(place)


def test_references_within_structs_and_lists_are_kept(tmp_path: Path, key: Path) -> None:
    values: Any = blob_array([b"a", key.as_uri(), None, Blob.from_uri(key.as_uri(), 1, 2), b"c"])
    extension: Any = {"ARROW:extension:name": "lance.blob.v2"}
    member = pa.field("b", values.storage.type, metadata=extension)
    fields = [pa.field("x", pa.int64()), member]
    struct = pa.StructArray.from_arrays([pa.array(range(5)), values.storage], fields=fields)
    offsets: Any = pa.array([0, 2, 3, 5], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, struct)
    table = pa.table({"id": [1, 2, 3], "l": lists})
    where = tmp_path / "d"
    glaive.write_dataset(table, where, allow_external_blob_outside_bases=True)
    glaive.write_dataset(table, where, mode="append", allow_external_blob_outside_bases=True)

    def described() -> list[tuple[Any, ...]]:
        found = glaive.dataset(where).to_table().to_pylist()
        return sorted(
            (row["id"], one["x"], one["b"]["blob_uri"], one["b"]["position"], one["b"]["size"])
            for row in found
            for one in row["l"]
            if one["b"] and one["b"]["kind"] == ELSEWHERE
        )

    before = described()
    assert len(before) == 4
    dataset = glaive.dataset(where)
    compact(dataset)
    dataset.update({"id": "id + 10"}, where="id = 1")
    assert sorted(one[1:] for one in described()) == sorted(one[1:] for one in before)
    assert SECRET[:20] not in contents_of(where)
    with pytest.raises(AccessError, match=r"column 'l\.b': the URI of a value is 'file:///"):
        dataset.to_table(blob_handling="all_binary")
    allowed = glaive.dataset(where, allow_external_blobs=True)
    found = allowed.to_table(blob_handling="all_binary").to_pylist()
    assert {one["b"] for row in found for one in row["l"]} == {
        b"a",
        SECRET,
        None,
        SECRET[1:3],
        b"c",
    }


def test_columns_that_keep_no_parts_keep_their_references(tmp_path: Path, key: Path) -> None:
    short: Any = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    extension: Any = {"ARROW:extension:name": "lance.blob.v2"}
    field = pa.field("b", short, metadata=extension)
    values = pa.array([{"uri": key.as_uri()}, {"data": b"x"}, None], short)
    table = pa.Table.from_arrays([values], schema=pa.schema([field]))
    where = tmp_path / "d"
    for mode in ("create", "append"):
        glaive.write_dataset(table, where, mode=mode, allow_external_blob_outside_bases=True)
    compact(glaive.dataset(where))
    found = glaive.dataset(where).to_table()["b"].to_pylist()
    assert [one and one["blob_uri"] for one in found] == [key.as_uri(), "", None] * 2
    assert SECRET[:20] not in contents_of(where)


def test_a_row_of_a_user_cannot_pass_for_a_reference(place: Path, key: Path) -> None:
    for uri in (f"\0:0:0:0:{key.as_uri()}", f"\0{'0' * 32}:0:0:0:{key.as_uri()}", key.as_uri()):
        source = rows([uri], 1)
        merge = glaive.dataset(place).merge_insert("id").when_matched_update_all()
        with pytest.raises(SchemaError, match="is below no base path"):
            merge.execute(source)
        with pytest.raises(SchemaError, match="is below no base path"):
            glaive.write_dataset(source, place, mode="append")


def test_merged_rows_may_refer_to_what_lies_below_a_base_path(place: Path, tmp_path: Path) -> None:
    source = rows([(tmp_path / "media" / "m.bin").as_uri()], 1)
    glaive.dataset(place).merge_insert("id").when_matched_update_all().execute(source)
    assert references(place)[1] == (3, 0, 0, 1, "m.bin")


# --------------------------------------------------------------------- fetching

READS: dict[str, Callable[[LanceDataset, int], object]] = {
    "files": lambda dataset, row: dataset.take_blobs("b", indices=[0, row]),
    "values": lambda dataset, row: dataset.read_blobs("b", indices=[row]),
    "parts": lambda dataset, row: dataset.read_blob_ranges("b", [(row, 0, 3)], selector="indices"),
    "a table": lambda dataset, _: dataset.to_table(blob_handling="all_binary"),
    "a frame of files": lambda dataset, _: dataset.to_pandas(),
    "a frame": lambda dataset, _: dataset.to_pandas(blob_mode="bytes"),
    "a fragment": lambda dataset, row: dataset.get_fragments()[0].take([row]),
    "a function": lambda dataset, _: dataset.add_columns(lambda batch: batch.select(["id"])),
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("row", [1, 3])
def test_values_outside_are_not_fetched_unless_they_are_allowed(
    read: Callable[[LanceDataset, int], object], row: int, place: Path, stranger: Stranger
) -> None:
    with pytest.raises(AccessError) as refused:
        read(glaive.dataset(place), row)
    assert "column 'b': the URI of a value is '" in str(refused.value)
    assert "outside of the dataset and its base paths" in str(refused.value)
    assert "allow_external_blobs=" in str(refused.value)
    assert isinstance(refused.value, StoreError | PermissionError)
    assert stranger.asked == []


def test_values_are_fetched_from_where_it_is_allowed(
    place: Path, stranger: Stranger, key: Path
) -> None:
    files = glaive.dataset(place, allow_external_blobs=[key.parent.as_uri()])
    assert files.read_blobs("b", indices=[1, 2]) == [(1, SECRET), (2, SECRET[3:10])]
    with pytest.raises(AccessError, match="below none of the allowed locations"):
        files.take_blobs("b", indices=[3])
    assert stranger.asked == []
    web = glaive.dataset(place, allow_external_blobs=[stranger.url])
    assert web.read_blobs("b", indices=[3])[0][1] == CONTENT
    with pytest.raises(AccessError):
        web.take_blobs("b", indices=[1])
    both = glaive.dataset(place, allow_external_blobs=True)
    assert [one[1] for one in both.read_blobs("b", indices=[1, 3])] == [SECRET, CONTENT]
    assert both.to_table(["b"], blob_handling="all_binary")["b"].to_pylist()[1] == SECRET


def test_values_of_the_dataset_need_no_allowance(place: Path, stranger: Stranger) -> None:
    dataset = glaive.dataset(place)
    assert [one[1] for one in dataset.read_blobs("b", indices=[0, 5, 6, 7])] == [
        b"here",
        None,
        b"",
        BIG,
    ]
    assert stranger.asked == []


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-26", "rel-46", "sec-5")
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_base_path_in_a_manifest_is_no_allowance_for_the_files_below_it(
    read: Callable[[LanceDataset, int], object],
    place: Path,
    stranger: Stranger,
    key: Path,
    tmp_path: Path,
) -> None:
    """A stranger's manifest may name the home directory of its reader."""
    media = str(tmp_path / "media")
    dataset = glaive.dataset(place, allow_external_blobs=[str(key.parent), stranger.url])
    with pytest.raises(AccessError, match=r"below base path 1 of .*, which is outside") as refused:
        read(dataset, 4)
    assert f"allow_external_blobs=['{media}'], or base_store_params=" in str(refused.value)
    with pytest.raises(AccessError):  # a branch and a clone are no way round
        read(dataset.create_branch("dev"), 4)
    with pytest.raises(AccessError):
        read(dataset.shallow_clone(tmp_path / "clone"), 4)


def test_values_below_a_base_path_are_fetched_where_the_caller_names_it(
    place: Path, tmp_path: Path
) -> None:
    media, value = str(tmp_path / "media"), [(4, (b"media" * 20)[5:15])]
    options: list[dict[str, Any]] = [
        {"allow_external_blobs": True},
        {"allow_external_blobs": [media]},
        {"base_store_params": {media: {}}},
        {"base_store_params": {str(tmp_path): {}}},
    ]
    for allowed in options:
        assert glaive.dataset(place, **allowed).read_blobs("b", indices=[4]) == value
    for other in (str(tmp_path / "med"), str(tmp_path / "media" / "n")):
        for refused in ({"allow_external_blobs": [other]}, {"base_store_params": {other: {}}}):
            with pytest.raises(AccessError):
                glaive.dataset(place, **refused).read_blobs("b", indices=[4])


@pytest.mark.spec("rel-46", "sec-5")
def test_a_relative_base_path_is_looked_at_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the working directory of the dataset it would lie within the dataset."""
    home, place = tmp_path / "home", tmp_path / "d"
    home.mkdir()
    (home / "id_rsa").write_bytes(SECRET)
    monkeypatch.chdir(tmp_path)
    base = glaive.DatasetBasePath("home", "home", id=7)
    glaive.write_dataset(rows([b"here", "home/id_rsa"]), place, initial_bases=[base])
    own = glaive.dataset(place).get_fragments()[0].metadata
    (file,) = own.files
    (place / "data" / file.path).rename(home / file.path)
    changed = glaive.LanceOperation.Overwrite(
        glaive.dataset(place).schema, [replace(own, files=[replace(file, base_id=7)])]
    )
    glaive.LanceDataset.commit(place, changed, read_version=1)
    dataset = glaive.dataset(place)
    assert [value for _, value in dataset.read_blobs("b", indices=[0])] == [b"here"]
    for folder in (place, tmp_path):
        monkeypatch.chdir(folder)
        with pytest.raises(AccessError, match=f"'{home}/id_rsa', below base path 7"):
            dataset.read_blobs("b", indices=[1])
    allowed = glaive.dataset(tmp_path / "d", allow_external_blobs=[str(home)])
    monkeypatch.chdir(tmp_path)
    assert [value for _, value in allowed.read_blobs("b", indices=[1])] == [SECRET]


def test_absolute_uris_within_the_dataset_need_no_allowance(tmp_path: Path) -> None:
    where, media = tmp_path / "d", tmp_path / "media"
    (where / "own").mkdir(parents=True)
    media.mkdir()
    (where / "own" / "a.bin").write_bytes(b"a")
    (media / "b c.bin").write_bytes(b"b")
    uris = [(where / "own" / "a.bin").as_uri(), (media / "b c.bin").as_uri()]
    outside = (media / ".." / "home.bin").as_uri()
    (tmp_path / "home.bin").write_bytes(b"secret")
    glaive.write_dataset(rows([*uris, outside]), where, allow_external_blob_outside_bases=True)
    dataset = glaive.dataset(where)
    assert dataset.read_blobs("b", indices=[0])[0][1] == b"a"
    # Who adds a base path names it; who opens the dataset later has not.
    dataset.add_bases([glaive.DatasetBasePath(str(media))])
    assert dataset.read_blobs("b", indices=[1])[0][1] == b"b"
    for row in (1, 2):
        with pytest.raises(AccessError):
            glaive.dataset(where).take_blobs("b", indices=[row])
    branch = glaive.dataset(where).create_branch("dev")
    assert branch.read_blobs("b", indices=[0])[0][1] == b"a"


@pytest.mark.parametrize("uri", ["file://[a/secret", "file://a\uff0fb/secret"])
def test_what_is_no_uri_ends_in_an_error_that_names_the_column(uri: str, tmp_path: Path) -> None:
    where = tmp_path / "d"
    glaive.write_dataset(rows([uri]), where, allow_external_blob_outside_bases=True)
    for allowed in (False, True):
        dataset = glaive.dataset(where, allow_external_blobs=allowed)
        with pytest.raises(OptionError, match=r"column 'b': .* is not a file URI"):
            dataset.take_blobs("b", indices=[0])
        assert len(dataset.to_table()) == 1
        dataset.optimize.compact_files()


@pytest.mark.parametrize(
    "path", ["../../keys/id_rsa", "/etc/passwd", "a/../../../keys/id_rsa", "x\ny"]
)
def test_a_path_below_a_base_path_does_not_lead_out_of_it(path: str, tmp_path: Path) -> None:
    media = tmp_path / "media"
    media.mkdir()
    name = "x" * len(path.encode())
    (media / name).write_bytes(b"media")
    where = tmp_path / "d"
    base = glaive.DatasetBasePath(media.as_uri())
    glaive.write_dataset(rows([(media / name).as_uri()]), where, initial_bases=[base])
    (file,) = where.glob("data/*.lance")
    content = file.read_bytes()
    assert content.count(name.encode()) == 1
    file.write_bytes(content.replace(name.encode(), path.encode()))
    with pytest.raises(CorruptFileError, match=r"column 'b': .* expected a path below its folder"):
        glaive.dataset(where, allow_external_blobs=True).take_blobs("b", indices=[0])


def test_a_value_below_a_base_path_that_there_is_not_is_damage(tmp_path: Path) -> None:
    media = tmp_path / "media"
    media.mkdir()
    (media / "m.bin").write_bytes(b"media")
    base = glaive.DatasetBasePath(str(media), id=9)
    value = rows([(media / "m.bin").as_uri()])
    made = glaive.write_dataset(value, tmp_path / "d", initial_bases=[base])
    fragments = [fragment.metadata for fragment in made.get_fragments()]
    (tmp_path / "e").mkdir()
    (tmp_path / "d" / "data").rename(tmp_path / "e" / "data")
    changed = glaive.LanceOperation.Overwrite(made.schema, fragments)
    other = glaive.LanceDataset.commit(tmp_path / "e", changed)
    with pytest.raises(CorruptFileError, match=r"base path of a file: expected one of \[\]"):
        other.take_blobs("b", indices=[0])


def test_the_allowance_travels_with_the_dataset(place: Path, key: Path) -> None:
    allowed = glaive.dataset(place, allow_external_blobs=[str(key.parent)])
    again = pickle.loads(pickle.dumps(allowed))
    branch = allowed.create_branch("dev")
    for dataset in (again, allowed.checkout_version(1), branch, allowed.shallow_clone(place / "c")):
        assert dataset.read_blobs("b", indices=[1])[0][1] == SECRET
    fragment = pickle.loads(pickle.dumps(allowed.get_fragments()[0]))
    assert fragment.take([1], ["b"])["b"].to_pylist() == [SECRET]
    with pytest.raises(AccessError):
        glaive.dataset(place, version=("dev", None)).take_blobs("b", indices=[1])


def test_what_a_writer_allowed_can_be_read_from_what_it_returns(tmp_path: Path, key: Path) -> None:
    options: Any = {"allow_external_blob_outside_bases": True}
    made = glaive.write_dataset(rows([key.as_uri()]), tmp_path / "d", **options)
    assert made.read_blobs("b", indices=[0])[0][1] == SECRET
    # Others may have written the rows that are there already.
    more = glaive.write_dataset(rows([b"x"], 5), tmp_path / "d", mode="append", **options)
    with pytest.raises(AccessError):
        more.take_blobs("b", indices=[0])
    asked = glaive.write_dataset(
        rows([b"x"], 6), tmp_path / "d", mode="append", allow_external_blobs=True
    )
    assert asked.read_blobs("b", indices=[0])[0][1] == SECRET


@pytest.mark.parametrize("wrong", ["yes", 1, [b"x"]])
def test_an_allowance_that_is_none_is_refused(place: Path, wrong: Any) -> None:
    with pytest.raises(glaive.errors.OptionError, match="allow_external_blobs: expected True"):
        glaive.dataset(place, allow_external_blobs=wrong)
