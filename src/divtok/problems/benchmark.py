"""Benchmarks: named sets of problems.

A benchmark is one YAML file, in `benchmarks/` or in another package, and any local JSONL file may
take its place. Knows nothing of models or prompts: protocol and grader are names to it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from divtok.errors import DataError
from divtok.problems.sources import EmbeddedSource, FileSource, HubSource, Source
from divtok.records import Problem
from divtok.registry import Registry


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    summary: str
    source: Source
    protocol: str = "cot"  # how its questions are asked
    grader: str | None = None  # how its answers are judged; left out: as goes with the protocol


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """What a benchmark's YAML file says; exactly one of the three sources."""

    name: str
    summary: str
    embedded: EmbeddedSource | None = None
    hub: HubSource | None = None
    file: FileSource | None = None  # its path is relative to the YAML file
    protocol: str = "cot"
    grader: str | None = None

    def __post_init__(self) -> None:
        if len([s for s in (self.embedded, self.hub, self.file) if s is not None]) != 1:
            raise ValueError("Give one source: embedded, hub or file")

    def benchmark(self, folder: Path) -> Benchmark:
        file = None if self.file is None else replace(self.file, path=folder / self.file.path)
        source = self.embedded or self.hub or file
        assert source is not None  # checked above
        return Benchmark(self.name, self.summary, source, self.protocol, self.grader)


def read_benchmark(path: Path) -> Benchmark:
    """What a YAML file says."""
    from divtok.strict_yaml import read_file

    return read_file(BenchmarkFile, path, noun="benchmark file").benchmark(path.parent)


def _read_package(module: ModuleType) -> list[tuple[str, Benchmark]]:
    from divtok.strict_yaml import yaml_files

    found = [read_benchmark(path) for path in yaml_files(module)]
    return [(benchmark.name, benchmark) for benchmark in found]


BENCHMARKS: Registry[Benchmark] = Registry(
    "benchmark",
    group="divtok.benchmarks",
    home="divtok.problems.benchmarks",
    read_module=_read_package,
)


def find_benchmark(name: str, *, file: Path | None = None) -> Benchmark:
    """The benchmark of that name; its problems, or all of it, may come from a file of the user's.

    A YAML file says everything; a JSONL file has the problems, and the rest is as registered.
    """
    if file is None:
        return BENCHMARKS.get(name)
    if file.suffix in (".yaml", ".yml"):
        return replace(read_benchmark(file), name=name)
    known = BENCHMARKS.get(name) if name in BENCHMARKS else Benchmark(name, "", FileSource(file))
    return replace(known, source=FileSource(file))


def ways_of(name: str, *, file: Path | None = None) -> Benchmark | None:
    """For how to ask and judge; None where nobody has said that of this name."""
    is_said = name in BENCHMARKS or (file is not None and file.suffix in (".yaml", ".yml"))
    return find_benchmark(name, file=file) if is_said else None


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
    problems = find_benchmark(name, file=file).source.load(name)
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
