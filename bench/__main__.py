"""python -m bench: every estimator on every bench, into docs/estimators-compared.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bench.benches import cases
from bench.compare import About, Figures, compare
from bench.page import PAGE, fill
from bench.picture import draw
from bench.scores import ways_of
from divtok.records import Interval

RESULTS = Path(__file__).parent / "results.json"


def read_results(path: Path = RESULTS) -> tuple[list[About], list[Figures]]:
    """What was written, as records."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    figures: list[Figures] = []
    for row in stored["figures"]:
        for name in ("auroc_interval", "ece_interval"):
            row[name] = None if row[name] is None else Interval(**row[name])
        figures.append(Figures(**row))
    return [About(**row) for row in stored["cases"]], figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that is filled")
    parser.add_argument("--results", type=Path, default=RESULTS, help="all figures as JSON")
    given = parser.parse_args(arguments)
    found = cases()
    figures: list[Figures] = []
    abouts: list[About] = []
    for case in found:
        begin = time.perf_counter()
        of_case, about = compare(case, ways_of(case))
        figures += of_case
        abouts.append(about)
        print(f"{case.name}: {len(of_case)} ways, {time.perf_counter() - begin:.1f} s", flush=True)
    plain = {"cases": list(map(asdict, abouts)), "figures": list(map(asdict, figures))}
    given.results.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    page = fill(given.page.read_text(encoding="utf-8"), found, abouts, figures)
    given.page.write_text(page, encoding="utf-8")
    draw(found, figures, given.page.parent / "images" / "estimators-compared.png")
    print(f"wrote {given.page} and {given.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
