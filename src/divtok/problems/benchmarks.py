"""Named sets of problems: embedded ones, hub ones by pinned id, and any local JSONL file.

No problem text of others ships with divtok. A hub benchmark that cannot be fetched fails with the
exact local-file alternative. Knows nothing of models or prompts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divtok.errors import DataError, MissingExtraError
from divtok.problems.arithmetic import DIFFICULTIES, Difficulty, Split, arithmetic_problems
from divtok.problems.jsonl import problem_from_row, read_problems
from divtok.records import Problem
from divtok.registry import Registry


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """Written by divtok's own seeded generator."""

    difficulties: tuple[Difficulty, ...]
    split: Split
    count: int
    seed: int

    def load(self, benchmark: str) -> list[Problem]:
        return arithmetic_problems(
            benchmark,
            difficulties=self.difficulties,
            split=self.split,
            count=self.count,
            seed=self.seed,
        )

    def describe(self) -> str:
        return "embedded"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A dataset on the Hugging Face hub.

    Without a network the hub's own client retries for about 25 seconds before it gives up;
    HF_HUB_OFFLINE=1 in the environment makes it use its cache or fail at once.
    """

    dataset: str
    split: str
    question_field: str = "problem"
    answer_field: str = "answer"
    revision: str | None = None

    def load(self, benchmark: str) -> list[Problem]:
        if importlib.util.find_spec("datasets") is None:
            raise MissingExtraError("datasets", "hub", purpose=f"Fetching '{benchmark}'")
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        # Whichever HTTP client the hub library uses; its errors are not all OSErrors.
        from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

        try:
            rows: Any = load_dataset(self.dataset, split=self.split, revision=self.revision)
        except (DatasetsError, HTTPError, OSError, ValueError, RuntimeError) as error:
            cause = " ".join(str(error).split())[:120] or type(error).__name__
            raise DataError(
                f"Benchmark '{benchmark}' cannot be fetched from the hub dataset "
                f"'{self.dataset}' ({cause}).",
                next_step="Give a local JSONL file with id, problem and answer instead: "
                f"benchmark_files.{benchmark}=PATH",
            ) from error
        return [self._problem(row, benchmark, index) for index, row in enumerate(rows)]

    def _problem(self, row: Mapping[str, Any], benchmark: str, index: int) -> Problem:
        fields = {"id": f"{benchmark}-{index:04d}", "problem": row.get(self.question_field)}
        if self.answer_field in row:
            fields["answer"] = row[self.answer_field]
        return problem_from_row(fields, benchmark, f"{self.dataset}, row {index}")

    def describe(self) -> str:
        return f"hub: {self.dataset}"


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    summary: str
    source: EmbeddedSource | HubSource


BENCHMARKS: Registry[Benchmark] = Registry("benchmark", group="divtok.benchmarks")


def add_benchmark(name: str, summary: str, source: EmbeddedSource | HubSource) -> None:
    BENCHMARKS.add(name, Benchmark(name, summary, source))


def load_benchmark(
    name: str,
    *,
    file: Path | None = None,
    limit: int | None = None,
    subset_seed: int | None = None,
) -> list[Problem]:
    """The problems of a benchmark, from `file` where given.

    `limit` keeps the first so many of them; with `subset_seed`, a seeded random choice instead.
    """
    if file is not None:
        problems = read_problems(file, benchmark=name)
    else:
        problems = BENCHMARKS.get(name).source.load(name)
    if not problems:
        raise DataError(f"Benchmark '{name}' is empty.", next_step="Check its file or dataset.")
    if limit is not None and subset_seed is not None and limit < len(problems):
        return random.Random(subset_seed).sample(problems, limit)
    return problems[:limit]


def problems_digest(problems: Iterable[Problem]) -> str:
    """A short fingerprint of the problems' content, for telling changed data on resume."""
    digest = hashlib.sha256()
    for problem in problems:
        row = [problem.benchmark, problem.id, problem.question, problem.answer]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


for _seed, _difficulty in enumerate(DIFFICULTIES, start=11):
    add_benchmark(
        f"arith-{_difficulty}",
        f"Embedded arithmetic word problems, {_difficulty}.",
        EmbeddedSource((_difficulty,), "test", 200, _seed),
    )
add_benchmark(
    "arith-fit",
    "Embedded arithmetic of all difficulties, for choosing theta only.",
    EmbeddedSource(DIFFICULTIES, "fit", 200, 21),
)
add_benchmark(
    "math500", "MATH-500: 500 problems of MATH.", HubSource("HuggingFaceH4/MATH-500", "test")
)
add_benchmark(
    "amc23",
    "AMC 2023: 40 contest problems.",
    HubSource("math-ai/amc23", "test", question_field="question"),
)
add_benchmark(
    "aime24", "AIME 2024: 30 contest problems.", HubSource("HuggingFaceH4/aime_2024", "train")
)
add_benchmark(
    "aime25", "AIME 2025: 30 contest problems.", HubSource("MathArena/aime_2025", "train")
)
add_benchmark(
    "hmmt25", "HMMT February 2025: 30 problems.", HubSource("MathArena/hmmt_feb_2025", "train")
)
add_benchmark(
    "hmmt26", "HMMT February 2026: 33 problems.", HubSource("MathArena/hmmt_feb_2026", "train")
)
add_benchmark(
    "math-train",
    "MATH without MATH-500, for choosing theta only.",
    HubSource("nlile/hendrycks-MATH-benchmark", "train"),
)
