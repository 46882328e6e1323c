"""Rows of a dataset become files of other formats: plan, picklable tasks, and a mark at the end."""

from glaive.exporting.formats import FORMATS
from glaive.exporting.job import ExportMode, ExportTask, export_files

__all__ = ["FORMATS", "ExportMode", "ExportTask", "export_files"]
