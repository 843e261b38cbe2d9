"""The sample files, and ways to read and break them that owe nothing to the importer."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from divtok.importers import BadRow, Imported, ImportOptions, read_rows

SAMPLES = Path(__file__).parent / "samples"
LM_EVAL = next((SAMPLES / "lm-eval").glob("samples_*.jsonl"))
LM_EVAL_RESULTS = next((SAMPLES / "lm-eval").glob("results_*.json"))
HF_LOG = SAMPLES / "inspect" / "hf.eval"
FAILING_LOG = SAMPLES / "inspect" / "failing.eval"
FAILING_JSON = SAMPLES / "inspect" / "failing.json"
REASONING_LOG = SAMPLES / "inspect" / "reasoning.eval"
BATCH_OUTPUT = SAMPLES / "openai-batch" / "output.jsonl"
BATCH_REQUESTS = SAMPLES / "openai-batch" / "requests.jsonl"

# Beside the repository where there is any; see tests that skip without it.
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "trajectories"

ZSTANDARD = 93


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def members(path: Path) -> dict[str, bytes]:
    """Every member of a zip whose members are all zstd."""
    data = path.read_bytes()
    found: dict[str, bytes] = {}
    for info in zipfile.ZipFile(path).infolist():
        assert info.compress_type == ZSTANDARD
        name_bytes, extra_bytes = struct.unpack_from("<HH", data, info.header_offset + 26)
        start = info.header_offset + 30 + name_bytes + extra_bytes
        packed = data[start : start + info.compress_size]
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            found[info.filename] = stream.read()
    return found


def log_samples(path: Path) -> list[dict[str, Any]]:
    """The samples of an Inspect log, in the order of its directory."""
    return [json.loads(data) for name, data in members(path).items() if name.startswith("samples/")]


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Objects as JSON, anything else as it is, one a line."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def write_log(
    path: Path, header: dict[str, Any], samples: Iterable[dict[str, Any]], *, start: bool = False
) -> Path:
    """An Inspect log with members that any zip reader can read."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        name = "_journal/start.json" if start else "header.json"
        log.writestr(name, json.dumps(header))
        for number, sample in enumerate(samples):
            method = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[number % 2]
            log.writestr(f"samples/{number}.json", json.dumps(sample), method)
    return path


def rows_of(path: Path, format_name: str, **options: Any) -> list[Imported]:
    """The rows of a file in which none is bad."""
    rows = [row for row in all_rows(path, format_name, **options) if isinstance(row, Imported)]
    assert len(rows) == len(all_rows(path, format_name, **options))
    return rows


def all_rows(path: Path, format_name: str, **options: Any) -> list[Imported | BadRow]:
    return read_rows(path, ImportOptions(format=format_name, **options))[0]
