"""Vector indices built step by step; models kept in files; k-means; tables of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndicesBuilder, IvfModel, PqModel
from glaive.util import KMeans
from glaive.vector import vec_to_table
from tests.index.vector.sources import clustered, lists_of

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.file import LanceFileWriter

ROWS, DIMENSION = 2000, 16


@pytest.fixture
def vectors() -> Any:
    return clustered(ROWS, DIMENSION)


@pytest.fixture
def dataset(tmp_path: Path, vectors: Any) -> Any:
    table = pa.table({"id": np.arange(ROWS), "v": lists_of(vectors)})
    return glaive.write_dataset(table, tmp_path / "data", max_rows_per_file=700)


def numbers_of(lists: Any) -> Any:
    return lists.flatten().to_numpy().reshape(len(lists), -1)


def trained(dataset: Any, **options: Any) -> tuple[IvfModel, PqModel]:
    builder = IndicesBuilder(dataset, "v")
    ivf = builder.train_ivf(4, sample_rate=100, max_iters=20, **options)
    return ivf, builder.train_pq(ivf, 4, sample_rate=5, max_iters=5)


def test_models_come_back_from_files(dataset: Any, tmp_path: Path) -> None:
    ivf, pq = trained(dataset, distance_type="cosine")
    ivf.save(str(tmp_path / "ivf.lance"))
    pq.save(str(tmp_path / "pq.lance"))
    again = IvfModel.load(str(tmp_path / "ivf.lance"))
    assert (again.num_partitions, again.distance_type) == (4, "cosine")
    assert again.centroids.equals(ivf.centroids)
    book = PqModel.load(str(tmp_path / "pq.lance"))
    assert (book.num_subvectors, book.num_bits, book.dimension) == (4, 8, DIMENSION)
    assert book.codebook.equals(pq.codebook)
    for model in (IvfModel, PqModel):
        with LanceFileWriter(str(tmp_path / "other.lance")) as writer:
            writer.write_batch(pa.table({"centroids": [1], "codebook": [2]}))
        with pytest.raises(CorruptFileError, match="fixed-size lists"):
            model.load(str(tmp_path / "other.lance"))
    with pytest.raises(CorruptFileError, match="codebook"):
        PqModel.load(str(tmp_path / "ivf.lance"))


@pytest.mark.parametrize("said", ["many", "²", "1" * 5000])
def test_what_a_codebook_says_of_itself_is_a_number_of_few_digits(
    tmp_path: Path, said: str
) -> None:
    place = str(tmp_path / "pq.lance")
    numbers = pa.array(np.zeros(256 * DIMENSION, np.float32))
    codebook = pa.FixedSizeListArray.from_arrays(numbers, DIMENSION)
    PqModel(said, codebook).save(place)  # type: ignore[arg-type]  # as a stranger may write it
    with pytest.raises(CorruptFileError, match="metadata of a codebook"):
        PqModel.load(place)


def test_an_index_out_of_steps_is_the_index_that_one_call_builds(
    dataset: Any, tmp_path: Path
) -> None:
    ivf, pq = trained(dataset)
    builder = IndicesBuilder(dataset, "v")
    fragments = dataset.get_fragments()
    builder.transform_vectors(ivf, pq, str(tmp_path / "b.lance"), fragments[1:])
    builder.transform_vectors(ivf, pq, str(tmp_path / "a.lance"), fragments[:1])
    names = builder.shuffle_transformed_vectors(["a.lance", "b.lance"], str(tmp_path), ivf)
    assert names == ["sorted_0.lance"]
    builder.load_shuffled_vectors(names, str(tmp_path), ivf, pq)
    other = glaive.dataset(dataset.uri)
    other.create_index(
        "v", "IVF_PQ", name="whole", num_sub_vectors=4, ivf_centroids=ivf.centroids,
        pq_codebook=pq.codebook,
    )  # fmt: skip
    (steps, whole) = sorted(other.manifest.indices, key=lambda entry: entry.name != "v_idx")
    assert steps.fragment_bitmap == whole.fragment_bitmap
    assert steps.index_details == whole.index_details
    folder = Path(dataset.uri) / "_indices"
    contents = []
    for entry in (steps, whole):
        segment = folder / str(glaive.Index.from_wire(entry).uuid)
        rows = glaive.file.LanceFileReader(str(segment / "auxiliary.idx")).read_all().to_table()
        contents.append(rows)
    assert contents[0].equals(contents[1])


def test_partitions_that_are_known_are_not_computed(dataset: Any, tmp_path: Path) -> None:
    ivf, pq = trained(dataset)
    rows = dataset.to_table(columns=["id"], with_row_id=True)
    known = {"row_id": rows["_rowid"], "partition": pa.array(np.arange(ROWS) % 4, pa.uint32())}
    glaive.write_dataset(pa.table(known), tmp_path / "known")
    builder = IndicesBuilder(dataset, "v")
    uri = str(tmp_path / "codes.lance")
    builder.transform_vectors(ivf, pq, uri, partition_ds_uri=str(tmp_path / "known"))
    codes = glaive.file.LanceFileReader(uri).read_all().to_table()
    assert codes["__ivf_part_id"].to_pylist() == [at % 4 for at in range(ROWS)]
    few = {"row_id": rows["_rowid"][:5], "partition": pa.array(np.zeros(5), pa.uint32())}
    glaive.write_dataset(pa.table(few), tmp_path / "few")
    with pytest.raises(OptionError, match="not in the table"):
        builder.transform_vectors(ivf, pq, uri + "2", partition_ds_uri=str(tmp_path / "few"))
    assert not Path(uri + "2").exists()


@pytest.mark.parametrize(
    "partition",
    [
        pa.nulls(ROWS, pa.int64()),
        pa.array([0.5] * ROWS),
        pa.array(["a"] * ROWS),
        pa.array([2**63] * ROWS, pa.uint64()),
        pa.array([[0]] * ROWS),
    ],
)
def test_known_partitions_that_are_no_numbers_are_refused(
    dataset: Any, tmp_path: Path, partition: Any
) -> None:
    ivf, pq = trained(dataset)
    rows = dataset.to_table(columns=["id"], with_row_id=True)
    known = glaive.write_dataset({"row_id": rows["_rowid"], "partition": partition}, tmp_path / "k")
    builder = IndicesBuilder(dataset, "v")
    uri = str(tmp_path / "codes.lance")
    with pytest.raises(OptionError, match="precomputed_partitions"):
        builder.transform_vectors(ivf, pq, uri, partition_ds_uri=known.uri)


def test_wrong_arguments_are_named(dataset: Any, tmp_path: Path) -> None:
    with pytest.raises(ColumnNotFoundError):
        IndicesBuilder(dataset, "w")
    with pytest.raises(OptionError, match="column id"):
        IndicesBuilder(dataset, "id")
    builder = IndicesBuilder(dataset, "v")
    for message, wrong in (
        ("num_partitions", {"num_partitions": 0}),
        ("num_partitions", {"num_partitions": 1000}),
        ("sample_rate", {"num_partitions": 2, "sample_rate": 1}),
        ("max_iters", {"num_partitions": 2, "max_iters": 0}),
        ("metric", {"num_partitions": 2, "distance_type": "manhattan"}),
        ("metric", {"num_partitions": 2, "distance_type": "hamming"}),
    ):
        with pytest.raises(OptionError, match=message):
            builder.train_ivf(**wrong)
    ivf = builder.train_ivf(2)
    for message, options in (
        ("num_sub_vectors", {"num_subvectors": 5}),
        ("num_subvectors", {"num_subvectors": 0}),
        ("num_bits", {"num_bits": 5}),
        ("num_bits", {"sample_rate": 256}),
    ):
        with pytest.raises(OptionError, match=message):
            builder.train_pq(ivf, **options)
    pq = builder.train_pq(ivf, 4, sample_rate=2)
    with pytest.raises(OptionError, match="fragments"):
        builder.transform_vectors(ivf, pq, str(tmp_path / "x.lance"), [])
    with pytest.raises(OptionError, match="filenames"):
        builder.shuffle_transformed_vectors([], str(tmp_path), ivf)


def test_files_of_another_model_are_refused(dataset: Any, tmp_path: Path) -> None:
    ivf, pq = trained(dataset)
    builder = IndicesBuilder(dataset, "v")
    builder.transform_vectors(ivf, pq, str(tmp_path / "a.lance"))
    fewer = IvfModel(ivf.centroids[:2], "l2")
    with pytest.raises(CorruptFileError, match="below 2"):
        builder.shuffle_transformed_vectors(["a.lance"], str(tmp_path), fewer)
    with LanceFileWriter(str(tmp_path / "c.lance")) as writer:
        writer.write_batch(pa.table({"x": [1]}))
    with pytest.raises(CorruptFileError, match="columns"):
        builder.shuffle_transformed_vectors(["c.lance"], str(tmp_path), ivf)
    rows = glaive.file.LanceFileReader(str(tmp_path / "a.lance")).read_all().to_table()
    at = rows.schema.get_field_index("__pq_code")
    holed = pa.array([[None, 1, 2, 3]] * ROWS, rows.schema.field(at).type)
    with LanceFileWriter(str(tmp_path / "n.lance")) as writer:
        writer.write_batch(rows.set_column(at, rows.schema.field(at), holed))
    with pytest.raises(CorruptFileError, match="nulls"):
        builder.shuffle_transformed_vectors(["n.lance"], str(tmp_path), ivf)


def test_clusters_are_predicted_as_they_were_trained(vectors: Any) -> None:
    kmeans = KMeans(8)
    assert kmeans.centroids is None
    kmeans.fit(vectors)
    centroids = kmeans.centroids.to_numpy_ndarray()
    nearest = ((vectors[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert kmeans.predict(lists_of(vectors)).to_pylist() == nearest.tolist()
    again = KMeans(8, centroids=kmeans.centroids)
    assert again.predict(vectors).to_pylist() == nearest.tolist()
    assert repr(kmeans) == "glaive.KMeans(k=8, metric_type=l2)"
    for wrong in (vectors.astype(np.float64), vectors[0], [1, 2], vectors * np.nan, vectors[:3]):
        with pytest.raises(OptionError, match="data"):
            kmeans.fit(wrong)
    with pytest.raises(OptionError, match="dimension"):
        kmeans.predict(vectors[:, :3])
    with pytest.raises(OptionError, match="call fit"):
        KMeans(3).predict(vectors)
    for options in ({"k": 0}, {"k": 2, "max_iters": 0}, {"k": 2, "metric_type": "hamming"}):
        with pytest.raises(OptionError):
            KMeans(**options)
    with pytest.raises(OptionError, match="expected 2, found 8"):
        KMeans(2, centroids=kmeans.centroids)


def test_tables_are_made_of_vectors() -> None:
    table = vec_to_table({"a": [1, 2], "b": [3, 4]})
    assert table.to_pydict() == {"id": ["a", "b"], "vector": [[1, 2], [3, 4]]}
    assert vec_to_table(np.ones((3, 2)), "x")["x"].type == pa.list_(pa.float32(), 2)
    for wrong in ({"a": [1], "b": [1, 2]}, [[1], [1, 2]], []):
        with pytest.raises(OptionError, match="data"):
            vec_to_table(wrong)
    with pytest.raises(OptionError, match="names"):
        vec_to_table([[1]], ["a", "b"])
    with pytest.raises(UnsupportedFeatureError, match="data"):
        vec_to_table("text")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(OptionError, match="ndim"):
        vec_to_table([[1, 2]], ndim=3, check_ndim=False)
