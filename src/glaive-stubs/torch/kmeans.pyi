"""Clusters of vectors on any device of torch."""

from glaive.torch.vectors import KMeans as KMeans
