"""Distances between tensors of vectors."""

from glaive.torch.vectors import argmin_l2 as argmin_l2
from glaive.torch.vectors import cosine_distance as cosine_distance
from glaive.torch.vectors import dot_distance as dot_distance
from glaive.torch.vectors import l2_distance as l2_distance
from glaive.torch.vectors import pairwise_cosine as pairwise_cosine
from glaive.torch.vectors import pairwise_l2 as pairwise_l2
