"""Trajectories that others made, read from their files: one reader for each format.

Readers yield `Imported` rows and know no run; `records` turns rows into problems and trajectories.
"""

from __future__ import annotations

from divtok.imports.formats import FORMATS, ImportOptions, check_options, read_rows
from divtok.imports.names import Named, named_rows
from divtok.imports.records import Before, Records, to_records
from divtok.imports.row import BadRow, Imported

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
