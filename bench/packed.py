"""A bench in one small Parquet file: graded responses with the numbers of their tokens, rounded.

Numbers are kept as half-precision floats with seven bits of fraction, in steps of 1/1024 where that
is coarser, so that each is within 0.5 % and 0.0005 of what was traced. The file's metadata say what
the bench is. Knows no run and no estimator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from divtok.records import FloatArray, Trace

# What estimators of a trace read; KL divergences are left out.
COLUMNS = ("logprob_p", "logprob_q", "entropy_p", "entropy_q", "jsd_bits", "total_variation")
_KEPT_BITS = np.uint16(0xFFF8)  # sign, exponent and seven of the ten bits of fraction
_HALF = np.uint16(4)  # half of the last bit that is kept
_STEPS = 1024  # for each bit or nat


@dataclass(frozen=True, slots=True)
class Row:
    """One response as one pair read it.

    `part` is "test", "fit" (for fitting alone) or "changed" (right responses and copies with one
    change: `change` says which, "none" for the original, and `key` joins them). `answer` numbers
    the different answers to one problem, -1 where there is none.
    """

    part: str
    benchmark: str
    generator: str
    problem_id: str
    key: str
    verdict: str
    truncated: bool
    answer: int
    change: str
    trace: Trace


def rounded(values: FloatArray) -> npt.NDArray[np.float16]:
    """What is kept of numbers: the last bits of a trace are chance, and cannot be packed."""
    steps = np.round(np.asarray(values, dtype=np.float64) * _STEPS) / _STEPS + 0.0  # no minus zero
    bits = steps.astype(np.float16).view(np.uint16)
    return ((bits + _HALF) & _KEPT_BITS).view(np.float16)


def write(path: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """`about` says how the bench was made; it goes into the file's metadata."""
    plain = [f.name for f in fields(Row) if f.name != "trace"]
    table: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in plain}
    for name in ("p", "q", "answer_start", "answer_stop", "turn_end"):
        table[name] = [getattr(row.trace, name) for row in rows]
    for name in COLUMNS:
        lists = [rounded(_numbers(row.trace, name)) for row in rows]
        ends = np.cumsum([0, *map(len, lists)]).astype(np.int32)
        flat = pa.array(np.concatenate(lists), type=pa.float16())
        table[name] = pa.ListArray.from_arrays(pa.array(ends), flat)
    made = pa.table(table).replace_schema_metadata({"divtok.bench": json.dumps(about)})
    path.parent.mkdir(parents=True, exist_ok=True)
    repetitive: Any = plain  # the stub knows of one answer for all columns alone
    pq.write_table(
        made,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=repetitive,
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in COLUMNS},
    )


def read(path: Path) -> tuple[list[Row], dict[str, Any]]:
    """The rows of a bench, and what it is."""
    table = pq.read_table(path)
    about = json.loads((table.schema.metadata or {})[b"divtok.bench"])
    numbers = {name: _lists(table.column(name)) for name in COLUMNS}
    plain = table.drop_columns(list(COLUMNS)).to_pylist()
    return [
        _row(row, {n: lists[i] for n, lists in numbers.items()}) for i, row in enumerate(plain)
    ], about


def _numbers(trace: Trace, name: str) -> FloatArray:
    found = trace.per_token(name)
    if found is None:
        raise ValueError(f"the trace {trace.key} has no {name}")
    return found


def _lists(column: Any) -> list[FloatArray]:
    whole = column.combine_chunks()
    flat = whole.values.to_numpy(zero_copy_only=False).astype(np.float32)
    return np.split(flat, whole.offsets.to_numpy()[1:-1])


def _row(plain: dict[str, Any], numbers: Mapping[str, FloatArray]) -> Row:
    taken = {
        name: plain.pop(name) for name in ("p", "q", "answer_start", "answer_stop", "turn_end")
    }
    unknown = np.full(len(numbers["jsd_bits"]), np.nan, dtype=np.float32)
    own = {name: numbers[name] for name in COLUMNS if name != "total_variation"}
    trace = Trace(
        key=plain["key"],
        kl_pq=unknown,
        kl_qp=unknown,
        dropped_mass_p=0.0,
        dropped_mass_q=0.0,
        others={"total_variation": numbers["total_variation"]},
        **own,
        **taken,
    )
    return Row(trace=trace, **plain)
