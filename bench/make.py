"""Packs benches from runs: python -m bench.make embedded --work FOLDER.

The runs are made with divtok where they are missing, as any other run; this needs models.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import divtok
from bench.benches import APART, DATA, DISTILLED, TWO
from bench.change import changes
from bench.pack import rows_of, shortened, shortened_names
from bench.packed import Row, write
from divtok.problems.arithmetic import NAMES
from divtok.records import Verdict
from divtok.store.run import Run
from training.bench_settings import BENCHES
from training.tasks.puzzles import PEOPLE
from training.tasks.routes import PLACES
from training.word_problems import NAMES as PEOPLE_OF_WORDS

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
        part, limit = name.partition("-")[0], 80 if name.startswith("test") else None
        rows += rows_of(Run.open(folder), part=part, names=shortened_names(), problems=limit)
    for name, run in (("tiny-1.6m", "test"), ("tiny-0.5m", "test-two")):
        pair = f"divtok/{name}", f"divtok/{AUXILIARY}"
        copies = changed_rows(Run.open(work / run), "divtok/tiny-1.6m", pair, NAMES, most=CHANGED)
        rows += [shortened(row, shortened_names()) for row in copies]
    # Who fits is the smallest generator; the others' pairs take its theta and its rate.
    own = {name: [name, AUXILIARY] for name in _TINY}
    two = {name: ["tiny-0.5m", AUXILIARY] for name in _TINY[1:]}
    about = {
        "designed": True,
        "made": "divtok run --family tiny, the first 80 problems of each benchmark x 4 samples",
        "cases": {
            "embedded": {"auxiliary": APART, "pairs": own},
            "embedded, two auxiliaries": {"auxiliary": TWO, "pairs": two},
        },
    }
    write(DATA / "embedded.parquet", rows, about)


def family(work: Path, task: str) -> None:
    """One of the families of training/make_benches.py, whose OUT and WORK folders are in `work`."""
    run, settings = Run.open(work / "benchout" / task), BENCHES[task]
    names = {f"models/{task}-{role}": role for role in ("generator", "middle", "small", "half")}
    rows = [
        replace(row, part="fit" if row.benchmark == f"{task}-fit" else "test")
        for row in rows_of(run, part="test", names=names)
        if (row.trace.p, row.trace.q) != ("generator", "middle")
    ]
    own = {"routes": PLACES, "puzzles": PEOPLE}.get(task, ())
    folder = work / "benchwork"
    pairs = {
        APART: ("generator", "small"),
        DISTILLED: ("generator", "half"),
        TWO: ("middle", "small"),
    }
    for p, q in pairs.values():
        models = [str(folder / "models" / f"{task}-{role}") for role in (p, q)]
        copies = changed_rows(run, f"models/{task}-generator", models, own, most=100)
        short = {**names, models[0]: p, models[1]: q}
        rows += [shortened(row, short) for row in copies]
    about = {
        "designed": False,
        "made": f"python -m training.make_benches; temperature {settings.temperature:g}, "
        f"top-p {settings.top_p:g}; {', '.join(sorted({row.benchmark for row in rows}))}",
        "cases": {
            f"{task}, {kind}": {"auxiliary": kind, "pairs": {"generator": list(pair)}}
            for kind, pair in pairs.items()
        },
    }
    write(DATA / f"{task}.parquet", rows, about)


def real_pair(work: Path) -> None:
    """SmolLM2-135M-Instruct and its distilled half, from training/make_real_pair.py."""
    os.chdir(work)
    run, pair = Run.open(Path("run")), ("model", "half")
    names = {"model": "SmolLM2-135M-Instruct"}
    rows = [
        replace(row, part="fit" if row.benchmark == "words-fit" else "test")
        for row in rows_of(run, part="test", names=names)
    ]
    copies = changed_rows(run, "model", pair, PEOPLE_OF_WORDS, most=100)
    rows += [shortened(row, names) for row in copies]
    own = {names["model"]: [names["model"], "half"]}
    about = {
        "designed": False,
        "made": "python -m training.make_real_pair; temperature 0.6, top-p 0.95",
        "cases": {"SmolLM2, distilled from it": {"auxiliary": DISTILLED, "pairs": own}},
    }
    write(DATA / "smollm2.parquet", rows, about)


def changed_rows(
    run: Run, generator: str, pair: Sequence[str], names: Sequence[str], *, most: int
) -> Iterator[Row]:
    """Right responses and copies with one change each, as a pair reads their texts."""
    grades = {g.key: g.verdict for batch in run.grades.batches() for g in batch}
    problems = {(x.benchmark, x.id): x for batch in run.problems.batches() for x in batch}
    right = sorted(
        (t.benchmark, t.problem_id, t.sample, t.key, t.text)
        for batch in run.trajectories.batches()
        for t in batch
        if t.generator == generator and grades[t.key] == Verdict.CORRECT
    )
    rng = random.Random(0)
    rng.shuffle(right)
    texts: list[tuple[str, str, str, str, str]] = []
    for benchmark, problem, _, key, text in right[:most]:
        texts.append((benchmark, problem, key, "none", text))
        for change, make in changes(names).items():
            copy = make(text, rng)
            if copy is not None:
                texts.append((benchmark, problem, key, change, copy))
    asked = [(problems[b, i].question, text) for b, i, _, _, text in texts]
    found = divtok.confidences(asked, pair=divtok.load_pair(*pair), theta=0.5, progress=False)
    for (benchmark, problem, key, change, _), trace in zip(texts, found.traces, strict=True):
        if trace is None:
            raise ValueError(f"a copy of {key} was not read")
        yield Row(
            part="changed",
            benchmark=benchmark,
            generator=generator,
            problem_id=problem,
            key=key,
            verdict=Verdict.CORRECT.value if change == "none" else Verdict.UNDETERMINED.value,
            truncated=False,
            answer=-1,
            change=change,
            trace=trace,
        )


MADE: Mapping[str, Callable[[Path], None]] = {
    "embedded": embedded,
    **{task: partial(family, task=task) for task in ("routes", "puzzles", "programs")},
    "smollm2": real_pair,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.make", description=__doc__)
    parser.add_argument("bench", choices=MADE)
    parser.add_argument("--work", type=Path, required=True, help="where the runs are, or go")
    given = parser.parse_args(arguments)
    MADE[given.bench](given.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
