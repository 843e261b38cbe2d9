"""The formats in which rows leave a run: all that the command line needs of them to start."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
