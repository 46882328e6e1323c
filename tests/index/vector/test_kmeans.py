"""K-means finds clusters that are there, the same ones each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.index.vector.sources import clustered

from glaive.index.vector.coder import Clusters, DeviceVectors, Training, train_clusters
from glaive.kernels.distances import Metric, sum_by_cluster


def nearest(vectors: Any, centroids: Any) -> Any:
    return ((vectors[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)


def test_vectors_go_to_the_nearest_centroid_however_far_from_the_origin() -> None:
    vectors = clustered(3000, 12) + np.float32(1000)
    clusters = Clusters(vectors[::100], "l2")
    expected = nearest(vectors.astype(np.float64), vectors[::100].astype(np.float64))
    assert (clusters.assign(vectors) == expected).mean() > 0.999


def test_training_lowers_the_loss_and_reports_it() -> None:
    vectors = clustered(4000, 8)
    trained, loss = train_clusters(vectors, 20, Training())
    chosen = trained[nearest(vectors, trained)]
    assert loss == pytest.approx(float(((vectors - chosen) ** 2).sum()), rel=1e-3)
    _, untrained = train_clusters(vectors, 20, Training(iterations=1))
    assert loss < untrained


def test_equal_seeds_give_equal_centroids_on_any_number_of_threads() -> None:
    vectors = clustered(20_000, 8)
    first, _ = train_clusters(vectors, 300, Training(iterations=3))
    second, _ = train_clusters(vectors, 300, Training(iterations=3, parallel=False))
    assert np.array_equal(first, second)


def test_centroids_of_dot_products_have_length_one() -> None:
    trained, _ = train_clusters(clustered(2000, 8) * 5, 10, Training("dot"))
    assert np.allclose(np.linalg.norm(trained, axis=1), 1, atol=1e-5)


def test_centroids_of_bits_are_bits() -> None:
    bits = (clustered(2000, 16) > 0).astype(np.float32)
    trained, loss = train_clusters(bits, 10, Training("hamming"))
    assert set(np.unique(trained)) <= {0.0, 1.0}
    assert loss == (bits != trained[nearest(bits, trained)]).sum()


def test_many_clusters_are_all_used() -> None:
    vectors = clustered(40_000, 6, clusters=1000)
    trained, _ = train_clusters(vectors, 600, Training(iterations=5))
    assert trained.shape == (600, 6)
    assert len(np.unique(nearest(vectors[:5000], trained))) > 400


def test_fewer_vectors_than_clusters_are_taken_twice() -> None:
    vectors = clustered(3, 4)
    trained, loss = train_clusters(vectors, 5, Training())
    assert trained.shape == (5, 4)
    assert loss == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_torch_assigns_and_trains_as_the_processor_does(metric: Metric) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    vectors = np.random.default_rng(4).normal(size=(900, 12)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    there, clusters = DeviceVectors(vectors, "cpu"), Clusters(vectors[:20], metric)
    ids, loss = there.assign(vectors[:20], dot=metric == "dot")
    expected, sum_of_distances = clusters.measure(vectors)
    assert ids.tolist() == expected.tolist()
    assert loss == pytest.approx(sum_of_distances, rel=1e-4)
    sums = sum_by_cluster(vectors, ids, 20)
    np.testing.assert_allclose(there.sums(20), sums, atol=1e-3)
    losses = [
        train_clusters(vectors, 8, Training(metric, 5, device=device))[1]
        for device in (None, "cpu")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
