"""Random rows; pylance's wheels have none either."""

from glaive.dataset.pylance_members import is_datagen_supported as is_datagen_supported
from glaive.dataset.pylance_members import rand_batches as rand_batches
