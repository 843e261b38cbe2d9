"""Which benches there are: one packed file each, and the readings of it that are compared.

A case is one way of reading a bench: whose responses, and which two models. The estimators were
designed on the embedded family, and are judged on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.packed import Row, read

DATA = (Path(__file__).parent / "data").absolute()
# What of a pair is said of a case.
APART, DISTILLED, TWO = "trained apart", "distilled from it", "two auxiliaries"


@dataclass(frozen=True, slots=True)
class Case:
    """Responses of a bench as pairs of one kind read them.

    `pairs` maps a generator to (p, q). `designed` marks what estimators were designed on.
    """

    name: str
    bench: str
    auxiliary: str
    pairs: Mapping[str, tuple[str, str]]
    designed: bool = False

    def rows(self, part: str) -> list[Row]:
        """In order of problem and key, as figures need it."""
        rows = [
            row
            for row in opened(self.bench)[0]
            if row.part == part and self.pairs.get(row.generator) == (row.trace.p, row.trace.q)
        ]
        return sorted(rows, key=lambda r: (r.generator, r.benchmark, r.problem_id, r.key))


@cache
def opened(name: str) -> tuple[list[Row], dict[str, Any]]:
    return read(DATA / f"{name}.parquet")


def cases() -> list[Case]:
    """Every case of every bench, as the benches' own metadata name them."""
    return list(_cases())


def _cases() -> Iterator[Case]:
    for path in sorted(DATA.glob("*.parquet")):
        _, about = opened(path.stem)
        for name, case in about["cases"].items():
            pairs = {generator: (p, q) for generator, (p, q) in case["pairs"].items()}
            yield Case(name, path.stem, case["auxiliary"], pairs, about["designed"])
