"""The command line; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perf import big_run
from perf.big_run.make import TRACE_ROWS, make
from perf.big_run.measure import VERBS, add_to, measure


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.big_run",
        description=big_run.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make", help="write the run")
    making.add_argument("folder", type=Path)
    making.add_argument("--traces", type=_positive, default=100_000)
    making.add_argument("--tokens", type=_positive, default=1000, help="of a response, on average")
    making.add_argument("--trace-rows", type=_positive, default=TRACE_ROWS, help="of a shard")
    making.add_argument("--seed", type=int, default=0)
    measuring = verbs.add_parser("measure", help="run each verb on it in a process of its own")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--out", type=Path, required=True, help="JSON; what is there stays")
    measuring.add_argument("--verbs", nargs="+", default=VERBS, choices=sorted(set(VERBS)))
    measuring.add_argument("--limit-gb", type=float, default=16, help="GiB for one process")
    measuring.add_argument("--note", default="", help="a word on this measurement, kept with it")
    given = parser.parse_args(arguments)
    if given.verb == "make":
        make(
            given.folder,
            traces=given.traces,
            tokens=given.tokens,
            trace_rows=given.trace_rows,
            seed=given.seed,
        )
    else:
        found = measure(given.folder, verbs=given.verbs, limit_gb=given.limit_gb, note=given.note)
        add_to(given.out, found)
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
