"""Progress of writes and of index builds."""

from glaive.dataset.indexing.task import IndexProgress as IndexProgress
from glaive.dataset.writing.fragments import FileSystemFragmentWriteProgress as FileSystemFragmentWriteProgress
from glaive.dataset.writing.fragments import FragmentWriteProgress as FragmentWriteProgress
from glaive.dataset.writing.fragments import NoopFragmentWriteProgress as NoopFragmentWriteProgress
