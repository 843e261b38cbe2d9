"""What the users of the first hour have: a small run to make, and logs of their own."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from console import Outcome

import divtok

WEAK, STRONG, READER = "divtok/tiny-0.5m", "divtok/tiny-1.6m", "divtok/tiny-0.3m"
# 64 responses: the weak generator is mostly wrong on one of the benchmarks, the strong one right.
FIRST = (
    f"generators=['{WEAK}','{STRONG}']",
    "benchmarks=['arith-easy','arith-hard']",
    "limit=8",
    "samples=2",
    "evaluate.resamples=50",
)
QUESTIONS = {
    "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have?": "42",
    "Ben has 7 pens. Ben buys 5 more pens. How many pens does Ben have?": "12",
    "Cleo has 90 maps. Cleo sells 45 maps. How many maps are left?": "45",
    "Dov has 6 boxes, each with 8 nails. How many nails are there?": "48",
}


def responses() -> list[tuple[str, str, str]]:
    """Question, response and gold answer; the last response is wrong."""
    found = [
        (q, f"Let us count. The answer is \\boxed{{{gold}}}.", gold)
        for q, gold in QUESTIONS.items()
    ]
    question, text, gold = found[-1]
    return [*found[:-1], (question, text.replace(gold, "47"), gold)]


def rows() -> list[dict[str, Any]]:
    return [
        {"question": question, "response": response, "answer": gold, "generator": "gen-1"}
        for question, response, gold in responses()
    ]


def write_jsonl(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


def write_packed_chats(path: Path) -> Path:
    """Messages as chat tools log them, one conversation a line, packed."""
    lines = (
        {
            "model": "gen-1",
            "answer": gold,
            "messages": [
                {"role": "system", "content": "You are careful."},
                {"role": "user", "content": question},
                {"role": "assistant", "content": response},
            ],
        }
        for question, response, gold in responses()
    )
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return path


def write_json_array(path: Path) -> Path:
    path.write_text(json.dumps(rows(), indent=2))
    return path


def write_csv(path: Path) -> Path:
    """As a spreadsheet of a European office saves it: semicolons, a byte order mark, CRLF."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    writer.writerow(rows()[0])
    writer.writerows(row.values() for row in rows())
    path.write_text(text.getvalue(), encoding="utf-8-sig", newline="")
    return path


def write_parquet(path: Path) -> Path:
    import polars as pl

    pl.DataFrame(rows()).write_parquet(path)
    return path


def write_broken_stream(path: Path) -> Path:
    """A logger's file: a line that is no JSON in the middle, and a last line that was cut off."""
    lines = [json.dumps(row) for row in rows()]
    path.write_text("\n".join([lines[0], "WARN retrying", *lines[1:], lines[0][:40]]))
    return path


def environment(**more: str) -> dict[str, str]:
    """For a process that finds the package whether or not it is installed."""
    package = str(Path(divtok.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    known = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **known, **more}


def in_a_process(*arguments: str | Path, **variables: str) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "divtok", *map(str, arguments)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def in_a_shell(line: str, **variables: str) -> Outcome:
    """A line as it is typed, with its pipes; `divtok` is this one."""
    script = f'divtok() {{ "{sys.executable}" -m divtok "$@"; }}\nset -o pipefail\n{line}'
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        errors="replace",
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
