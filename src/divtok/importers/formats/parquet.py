"""Responses from Parquet, in columns named with --column or found."""

from __future__ import annotations

from pathlib import Path

from divtok.compressed import ALWAYS_ALLOWED, LARGEST_RATIO
from divtok.errors import DataError
from divtok.importers.columns import FIELDS
from divtok.importers.importer import Glimpse, ImportOptions, Line, Rows, Tell, importer
from divtok.importers.mappings import read_table

_MAGIC = b"PAR1"
# Few at a time: a dictionary may hold one long text for all of them.
_ROWS_AT_ONCE = 64


def _is_parquet(seen: Glimpse) -> bool:
    return seen.start.startswith(_MAGIC)


@importer("parquet", columns=FIELDS, files=("*.parquet",), recognise=_is_parquet)
def read_parquet(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """One row for each response."""
    yield from read_table(_lines(path), options, str(path), tell)


def _lines(path: Path) -> list[Line]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines: list[Line] = []
    left = ALWAYS_ALLOWED + LARGEST_RATIO * path.stat().st_size
    try:
        with pq.ParquetFile(path) as file:
            sizes = (file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups))
            if sum(sizes) > left:
                raise _too_large(path)
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                left -= batch.nbytes
                if left < 0:
                    raise _too_large(path)
                start = len(lines) + 1
                rows = enumerate(batch.to_pylist(), start)
                lines += [Line(f"{path}, row {n}", row) for n, row in rows]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"The file {path} cannot be read as Parquet ({error}).",
            next_step="Copy it again, or check --format.",
        ) from error
    if not lines:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")
    return lines


def _too_large(path: Path) -> DataError:
    return DataError(
        f"The file {path} unpacks to over {LARGEST_RATIO} times its size.",
        next_step="Check where the file comes from.",
    )
