"""Sets of integers."""

from glaive.dataset.fragment_metadata import Bitmap as Bitmap
