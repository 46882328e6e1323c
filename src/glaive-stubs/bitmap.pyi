"""Sets of integers."""

from glaive.dataset.fragments.metadata import Bitmap as Bitmap
