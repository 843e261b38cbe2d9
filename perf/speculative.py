"""What writing and tracing cost apart and together, on a CPU.

    OMP_NUM_THREADS=1 python -m perf.speculative

Responses of tiny-1.6m to arith-contest, sampled as the family `tiny` samples them, with tiny-0.3m
as the auxiliary. Each way runs `--repeats` times, in turns, and the least time counts. `plain` is
sampling alone, `plain + trace` samples and then reads with both models, `capture` samples and reads
with the auxiliary alone, the others draft so many tokens a round and record what the trace would
be; `unrecorded` leaves that out. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from divtok.families.family import get_family
from divtok.generate.captured import CapturingPair
from divtok.generate.decoding import Ask
from divtok.generate.jobs import Job, generate_batch
from divtok.generate.speculative.writing import SpeculativePair, make_pair
from divtok.models.load import load_model
from divtok.protocols.encode import prompt_ids
from divtok.trace.budget import Budget
from perf.generation import plan

GENERATOR = "divtok/tiny-1.6m"

Way = Callable[[Sequence[Job]], int]


def ways(base: SpeculativePair, drafts: Sequence[int]) -> dict[str, Way]:
    """Each gives the number of tokens that it wrote."""

    def plain(jobs: Sequence[Job]) -> int:
        return sum(len(row.token_ids) for row in generate_batch(base.generator, jobs))

    def apart(jobs: Sequence[Job]) -> int:
        written = generate_batch(base.generator, jobs)
        base.pair.trace_batch(written)
        return sum(len(row.token_ids) for row in written)

    def capture(jobs: Sequence[Job]) -> int:
        made = CapturingPair(base.generator, base.pair, Budget()).generate_batch(jobs)
        return sum(len(row.token_ids) for row, _ in made)

    def together(pair: SpeculativePair) -> Way:
        return lambda jobs: sum(len(row.token_ids) for row, _ in pair.generate_batch(jobs))

    def unrecorded(pair: SpeculativePair) -> Way:
        return lambda jobs: sum(len(row.token_ids) for row in spoken(pair, jobs))

    pairs = {k: replace(base, drafts=k) for k in drafts}
    return {
        "plain": plain,
        "plain + trace": apart,
        "capture": capture,
        **{f"k={k}": together(pair) for k, pair in pairs.items()},
        **{f"k={k}, unrecorded": unrecorded(pair) for k, pair in pairs.items() if k in (0, 4)},
    }


def spoken(pair: SpeculativePair, jobs: Sequence[Job]) -> Any:
    sampling, tokenizer = jobs[0].sampling, pair.generator.tokenizer
    prompts = [prompt_ids(tokenizer, j.problem.question, protocol=j.protocol) for j in jobs]
    asks = [
        Ask(job.key, prompt, sampling.max_length - len(prompt))
        for job, prompt in zip(jobs, prompts, strict=True)
    ]
    return pair.speak(asks, sampling)


def measure(
    base: SpeculativePair, jobs: Sequence[Job], batch: int, drafts: Sequence[int], repeats: int
) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, way in ways(base, drafts).items():
            begin = time.process_time()
            tokens = sum(way(jobs[start : start + batch]) for start in range(0, len(jobs), batch))
            found.setdefault(name, []).append(tokens / (time.process_time() - begin))
    rounds: dict[str, float] = {}
    for k in drafts:
        rows = spoken(replace(base, drafts=k), jobs)
        rounds[f"k={k}"] = sum(len(r.token_ids) for r in rows) / sum(r.rounds for r in rows)
    return {
        "batch": batch,
        "responses": len(jobs),
        "tokens_per_cpu_s": {name: round(max(rates)) for name, rates in found.items()},
        "tokens_a_round": {name: round(value, 2) for name, value in rounds.items()},
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.speculative", description=__doc__)
    parser.add_argument("--auxiliary", default=get_family("tiny").auxiliary)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--drafts", nargs="+", type=int, default=[0, 1, 2, 3, 4, 6, 8, 12])
    parser.add_argument("--responses", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args(arguments)
    print(f"{torch.get_num_threads()} torch threads", file=sys.stderr)
    both = (load_model(name, device="cpu") for name in (GENERATOR, given.auxiliary))
    base = make_pair(next(both), next(both), drafts=given.drafts[0])
    for batch in given.batches:
        count = given.responses if batch > 1 else min(given.responses, 16)
        jobs = plan(GENERATOR, "cot", count)
        found = measure(base, jobs, batch, given.drafts, given.repeats)
        print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
