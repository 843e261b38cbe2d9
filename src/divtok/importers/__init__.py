"""Trajectories that others made, read from their files: one reader for each format.

Readers yield `Imported` rows and know no run; `records` turns rows into problems and trajectories.
"""

from __future__ import annotations

from divtok.importers.formats import FORMATS, ImportOptions, check_options, read_rows
from divtok.importers.imported import BadRow, Imported
from divtok.importers.naming import Named, named_rows
from divtok.importers.records import Before, Records, to_records

__all__ = [
    "FORMATS",
    "BadRow",
    "Before",
    "ImportOptions",
    "Imported",
    "Named",
    "Records",
    "check_options",
    "named_rows",
    "read_rows",
    "to_records",
]
