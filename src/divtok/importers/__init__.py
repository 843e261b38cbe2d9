"""Trajectories that others made, read from their files: one importer for each format.

Importers yield `Imported` rows and know no run; `records` turns rows into problems and
trajectories.
"""

from __future__ import annotations

from divtok.importers.found import found_files
from divtok.importers.imported import BadRow, Imported
from divtok.importers.importer import IMPORTERS, ImportOptions
from divtok.importers.mappings import imported_rows
from divtok.importers.read import check_options, named_rows, read_rows
from divtok.importers.records import Before, Records, to_records

__all__ = [
    "IMPORTERS",
    "BadRow",
    "Before",
    "ImportOptions",
    "Imported",
    "Records",
    "check_options",
    "found_files",
    "imported_rows",
    "named_rows",
    "read_rows",
    "to_records",
]
