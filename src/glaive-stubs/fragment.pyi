"""Fragments."""

from typing import Any

from glaive.dataset.columns.udf import BatchUDF as BatchUDF
from glaive.dataset.fragment import FragmentSession as FragmentSession
from glaive.dataset.fragment import LanceFragment as LanceFragment
from glaive.dataset.fragment_metadata import Bitmap as Bitmap
from glaive.dataset.fragment_metadata import DataFile as DataFile
from glaive.dataset.fragment_metadata import DeletionFile as DeletionFile
from glaive.dataset.fragment_metadata import FragmentMetadata as FragmentMetadata
from glaive.dataset.fragment_metadata import RowDatasetVersionMeta as RowDatasetVersionMeta
from glaive.dataset.fragment_metadata import RowIdMeta as RowIdMeta
from glaive.dataset.fragment_metadata import RowIdSequence as RowIdSequence
from glaive.dataset.writing.fragments import FragmentWriteProgress as FragmentWriteProgress
from glaive.dataset.writing.fragments import NoopFragmentWriteProgress as NoopFragmentWriteProgress
from glaive.dataset.writing.plan import DEFAULT_MAX_BYTES_PER_FILE as DEFAULT_MAX_BYTES_PER_FILE
from glaive.dataset.transactions import write_fragments as write_fragments
from glaive.scan.snapshot import Session as Session

def __getattr__(name: str) -> Any: ...
