"""Packs benches from runs: python -m bench.make embedded --work FOLDER.

The runs are made with divtok where they are missing, as any other run; this needs models.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import divtok
from bench.benches import APART, DATA, TWO
from bench.change import changes
from bench.pack import rows_of, shortened_names
from bench.packed import Row, write
from divtok.problems.arithmetic import NAMES
from divtok.records import Verdict
from divtok.store.run import Run

CHANGED = 300  # right responses that get changed copies
_TINY = tuple(f"tiny-{size}" for size in ("0.5m", "0.9m", "1.6m"))
AUXILIARY = "tiny-0.3m"


def embedded(work: Path) -> None:
    """The embedded family: what the estimators were designed on."""
    dual = {"trace.reader": "divtok/tiny-0.5m", "trace.auxiliary": f"divtok/{AUXILIARY}"}
    fitting = {"benchmarks": ["arith-fit"], "limit": 100, "subset_seed": 0}
    runs: dict[str, dict[str, Any]] = {
        "test": {},
        "fit": {"generators": ["divtok/tiny-0.5m"], **fitting},
        "test-two": {"generators": ["divtok/tiny-0.9m", "divtok/tiny-1.6m"], **dual},
        "fit-two": {"generators": ["divtok/tiny-0.9m"], "samples": 8, **fitting, **dual},
    }
    rows: list[Row] = []
    for name, settings in runs.items():
        folder = work / name
        divtok.run({"family": "tiny", **settings}, out=folder)
        part, limit = name.partition("-")[0], 100 if name.startswith("test") else None
        rows += rows_of(Run.open(folder), part=part, names=shortened_names(), problems=limit)
    rows += changed_rows(Run.open(work / "test"), "divtok/tiny-1.6m", f"divtok/{AUXILIARY}", NAMES)
    # Who fits is the smallest generator; the others' pairs take its theta and its rate.
    own = {name: [name, AUXILIARY] for name in _TINY}
    two = {name: ["tiny-0.5m", AUXILIARY] for name in _TINY[1:]}
    about = {
        "designed": True,
        "made": "divtok run --family tiny, 100 problems of each benchmark x 4 samples",
        "cases": {
            "embedded": {"auxiliary": APART, "pairs": own},
            "embedded, two auxiliaries": {"auxiliary": TWO, "pairs": two},
        },
    }
    write(DATA / "embedded.parquet", rows, about)


def changed_rows(run: Run, p: str, q: str, names: Sequence[str], *, seed: int = 0) -> Iterator[Row]:
    """Right responses of p's and copies with one change each, as p and q read their texts."""
    grades = {g.key: g.verdict for batch in run.grades.batches() for g in batch}
    problems = {(x.benchmark, x.id): x for batch in run.problems.batches() for x in batch}
    right = sorted(
        (t.benchmark, t.problem_id, t.sample, t.key, t.text)
        for batch in run.trajectories.batches()
        for t in batch
        if t.generator == p and grades[t.key] == Verdict.CORRECT
    )
    rng = random.Random(seed)
    rng.shuffle(right)
    texts: list[tuple[str, str, str, str, str]] = []
    for benchmark, problem, _, key, text in right[:CHANGED]:
        texts.append((benchmark, problem, key, "none", text))
        for change, make in changes(names).items():
            copy = make(text, rng)
            if copy is not None:
                texts.append((benchmark, problem, key, change, copy))
    asked = [(problems[b, i].question, text) for b, i, _, _, text in texts]
    found = divtok.confidences(asked, pair=divtok.load_pair(p, q), theta=0.5, progress=False)
    short = shortened_names()
    for (benchmark, problem, key, change, _), trace in zip(texts, found.traces, strict=True):
        if trace is None:
            raise ValueError(f"a copy of {key} was not read")
        yield Row(
            part="changed",
            benchmark=benchmark,
            generator=short.get(p, p),
            problem_id=problem,
            key=key,
            verdict=Verdict.CORRECT.value if change == "none" else Verdict.UNDETERMINED.value,
            truncated=False,
            answer=-1,
            change=change,
            trace=replace(trace, p=short.get(p, p), q=short.get(q, q)),
        )


MADE: Mapping[str, Any] = {"embedded": embedded}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.make", description=__doc__)
    parser.add_argument("bench", choices=MADE)
    parser.add_argument("--work", type=Path, required=True, help="where the runs are, or go")
    given = parser.parse_args(arguments)
    MADE[given.bench](given.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
