"""Where the problems of a benchmark come from: divtok's own generator, the hub, or a file.

No problem text of others ships with divtok. A hub benchmark that cannot be fetched fails with the
exact local-file alternative.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from divtok.errors import DataError, MissingExtraError
from divtok.problems.arithmetic import Difficulty, Split, arithmetic_problems
from divtok.problems.fields import Fields, problems_of
from divtok.problems.jsonl import read_problems
from divtok.records import Problem

PROBLEM_AND_ANSWER = Fields()
NOT_PINNED = "revision not pinned"
_COMMIT = re.compile("[0-9a-f]{40}")
_FETCHED: dict[tuple[str, str | None], str | None] = {}  # (dataset, revision) -> commit


class Source(Protocol):
    """What a benchmark is read from; another package may bring its own kind."""

    @property
    def count(self) -> int | None:
        """How many problems there are, as far as it is known before they are read."""
        ...

    def load(self, benchmark: str) -> list[Problem]: ...

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """Written by divtok's own seeded generator."""

    difficulties: tuple[Difficulty, ...]
    split: Split
    count: int
    seed: int

    def load(self, benchmark: str) -> list[Problem]:
        return arithmetic_problems(benchmark, **asdict(self))

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
    config: str | None = None  # the dataset's own name for one of its parts
    revision: str | None = None
    fields: Fields = PROBLEM_AND_ANSWER
    count: int | None = None  # what a plan is told, since it fetches nothing
    gated: bool = False  # whether its terms have to be accepted first

    def load(self, benchmark: str) -> list[Problem]:
        if importlib.util.find_spec("datasets") is None:
            raise MissingExtraError("datasets", "hub", purpose=f"Fetching '{benchmark}'")
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        # Whichever HTTP client the hub library uses; its errors are not all OSErrors.
        from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

        try:
            rows: Any = load_dataset(
                self.dataset, self.config, split=self.split, revision=self.revision
            )
        except (DatasetsError, HTTPError, OSError, ValueError, RuntimeError) as error:
            cause = " ".join(str(error).split())[:120] or type(error).__name__
            first = (
                f"Accept its terms at https://huggingface.co/datasets/{self.dataset} and set "
                "HF_TOKEN to your token. Or give"
            )
            raise DataError(
                f"Benchmark '{benchmark}' cannot be fetched from the hub dataset "
                f"'{self.dataset}' ({cause}).",
                next_step=f"{first if self.gated else 'Give'} a local JSONL file with id, problem "
                f"and answer instead: benchmark_files.{benchmark}=PATH",
            ) from error
        named = ((f"{self.dataset}, row {index}", row) for index, row in enumerate(rows))
        _FETCHED[self.dataset, self.revision] = _commit_of(rows)
        return problems_of(named, benchmark, self.fields, numbered=True)

    def describe(self) -> str:
        part = "" if self.config is None else f" ({self.config})"
        return f"hub: {self.dataset}{part}, {self.pinned}"

    def origin(self) -> dict[str, str]:
        """Which dataset at which revision; `commit` is what this process has fetched of it, where
        the hub library tells it.
        """
        commit = _FETCHED.get((self.dataset, self.revision))
        known = {"dataset": self.dataset, "revision": self.revision or NOT_PINNED}
        return known if commit is None else {**known, "commit": commit}

    @property
    def pinned(self) -> str:
        """Which revision is asked for, in words."""
        if self.revision is None:
            return NOT_PINNED
        return (
            f"revision {self.revision[:12] if _COMMIT.fullmatch(self.revision) else self.revision}"
        )


@dataclass(frozen=True, slots=True)
class FileSource:
    """A JSONL file that lies beside the benchmark's own."""

    path: Path
    fields: Fields | None = None  # left out: id, problem (or question) and answer

    @property
    def count(self) -> int:
        return len(self.load(""))

    def load(self, benchmark: str) -> list[Problem]:
        return read_problems(self.path, benchmark=benchmark, fields=self.fields)

    def describe(self) -> str:
        return f"file: {self.path}"


def _commit_of(rows: Any) -> str | None:
    """The commit of the hub that a dataset was made from: the library names its cache by it."""
    for file in getattr(rows, "cache_files", ()):
        for part in reversed(Path(str(file.get("filename", ""))).parts):
            if _COMMIT.fullmatch(part):
                return part
    return None
