"""One call of `confidences` for many rows, beside the trace stage of a run of the same.

    OMP_NUM_THREADS=1 python -m perf.calls

The rows: responses that divtok/tiny-0.5m wrote, and copies of them with other digits, four to a
question. The run has them with the generator's ids, so its stage tokenises nothing; the call has
texts. Each measurement is a process of its own, in turns, the first way changing from pair to pair.
Loading the models counts in neither. Tokens are prompt and response of every row. Prints a Markdown
table and the ratio of the medians, by wall time and by the CPU time of the process.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from perf.page import table

MODEL = "divtok/tiny-0.5m"
BENCHMARKS = ("arith-easy", "arith-medium", "arith-hard", "arith-contest")
WRITTEN, SAMPLES = 200, 4  # responses that a model wrote; responses to a question
WAYS = ("call", "stage")


def make(folder: Path, rows: int) -> None:
    """A run of `rows` trajectories with grades and no traces."""
    import divtok
    from divtok.models.load import load_tokenizer
    from divtok.protocols.encode import prompt_ids, response_ids
    from divtok.records import Problem, trajectory_key
    from divtok.stages.grade import grade
    from divtok.stages.stored import stored_config
    from divtok.store.run import Run

    config = {"generators": [MODEL], "benchmarks": [*BENCHMARKS], "samples": 1}
    small = divtok.run(config, limit=WRITTEN // len(BENCHMARKS), out=folder / "small")
    written = Run.open(small.path)
    sources = list(zip(written.trajectories.read(), written.problems.read(), strict=True))
    rng, tokenizer = np.random.default_rng(0), load_tokenizer(MODEL)
    problems: list[Problem] = []
    found: list[Any] = []
    while len(found) < rows:
        source, asked = sources[len(problems) % len(sources)]
        problem = replace(asked, id=str(len(problems)), question=_other(asked.question, rng))
        problems.append(problem)
        prompt = prompt_ids(tokenizer, problem.question)
        for sample in range(min(SAMPLES, rows - len(found))):
            text = _other(source.text, rng)
            key = trajectory_key(
                problem,
                generator=MODEL,
                protocol=source.protocol,
                sampling=source.sampling,
                sample=sample,
            )
            ids = response_ids(tokenizer, text)
            names = {"key": key, "problem_id": problem.id, "benchmark": problem.benchmark}
            read = {"sample": sample, "prompt_ids": prompt, "token_ids": ids, "text": text}
            found.append(replace(source, **names, **read))
    run = Run.create_or_open(folder / "run")
    with run.lock():
        sections = written.manifest() or {}
        run.write_manifest({name: sections[name] for name in ("problems", "generate")})
        run.write_config(written.config_text() or "")
        run.problems.append(problems)
        run.trajectories.append(found)
        grade(run, stored_config(run))


def _other(text: str, rng: np.random.Generator) -> str:
    """The same text with other digits."""
    return re.sub(r"\d", lambda _: str(rng.integers(1, 10)), text)


def measure(folder: Path, way: str) -> dict[str, float]:
    """Seconds and tokens of one way, in this process."""
    import polars as pl

    import divtok
    from divtok.stages import trace as tracing
    from divtok.stages.stored import stored_config
    from divtok.store.run import Run

    pair = divtok.load_pair("tiny", device="cpu")
    divtok.confidence("What is 1 + 1?", "2", pair=pair)  # compiles what is compiled
    run = Run.open(folder / "run")
    rows = run.trajectories.read()
    tokens = sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    if way == "call":
        questions = {problem.id: problem.question for problem in run.problems.read()}
        columns = {
            "question": [questions[row.problem_id] for row in rows],
            "response": [row.text for row in rows],
        }
        frame = pl.DataFrame(columns)
        begin, cpu = time.perf_counter(), time.process_time()
        found = divtok.confidences(frame, pair=pair, progress=False)
        wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
        assert len(found) == len(rows)
        assert None not in found.values
        return {"tokens": tokens, "wall": wall, "cpu": cpu}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        shutil.copytree(run.path, place, dirs_exist_ok=True)
        copy = Run.open(Path(place))
        config = stored_config(copy)
        with patch.object(tracing, "load_pair", return_value=pair), copy.lock():
            begin, cpu = time.perf_counter(), time.process_time()
            tracing.trace(copy, config)
            wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
        assert len(copy.traces.keys()) == len(rows)
    return {"tokens": tokens, "wall": wall, "cpu": cpu}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.calls", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=5, help="measurements of each way")
    parser.add_argument("--folder", type=Path, help="of a run that is made already")
    parser.add_argument("--way", choices=WAYS, help="measure here and print JSON")
    given = parser.parse_args(arguments)
    if given.way is not None:
        print(json.dumps(measure(given.folder, given.way)))
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = given.folder or Path(place)
        if not (folder / "run").exists():
            make(folder, given.rows)
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for number in range(given.pairs):
            for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                found[way].append(_apart(folder, way))
                print(way, found[way][-1], file=sys.stderr, flush=True)
    speeds = {
        (way, kind): statistics.median(one["tokens"] / one[kind] for one in found[way])
        for way in WAYS
        for kind in ("wall", "cpu")
    }
    lines = [[way, *(f"{speeds[way, kind]:,.0f}" for kind in ("wall", "cpu"))] for way in WAYS]
    ratios = [f"{speeds['call', kind] / speeds['stage', kind]:.2f}" for kind in ("wall", "cpu")]
    print(table(["", "tokens/s", "tokens per CPU second"], [*lines, ["call / stage", *ratios]]))
    return 0


def _apart(folder: Path, way: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "perf.calls"]
    done = subprocess.run(
        [*command, "--way", way, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
