"""Traces that come with the writing, on the GPU: held against a pass over the finished text.

In float32, so that what differs is a mistake and not rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

import divtok
from divtok.families.family import get_family
from divtok.generate.captured import make_capturing
from divtok.generate.jobs import Job, generate_batch
from divtok.generate.speculative.writing import make_pair
from divtok.models.load import load_model
from divtok.problems.benchmark import load_benchmark
from divtok.records import Sampling, Trace, Trajectory
from divtok.trace.budget import Budget
from divtok.trace.pair import Pair
from perf.gpu.findings import Finding

GENERATOR, BENCHMARK, PROBLEMS = "divtok/tiny-1.6m", "arith-contest", 48
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=1.0, top_p=0.95, top_k=40, presence_penalty=0.5),
}
WITHIN = 1e-5  # bits
ASKED = 4  # questions that are streamed

Both = list[tuple[Trajectory, Trace | None]]


def check(device: torch.device) -> Iterator[Finding]:
    family = get_family("tiny")
    names = GENERATOR, family.pair_for(family.generator(GENERATOR))[1]
    p, q = (load_model(name, device=device, dtype="float32") for name in names)
    pair, problems = divtok.load_pair(*names, dtype="float32"), load_benchmark(BENCHMARK)
    most = family.generator(GENERATOR).sampling.max_length
    for kind, sampling in SAMPLINGS.items():
        how = replace(sampling, max_length=most)
        jobs = [Job(problem, 0, GENERATOR, "cot", how) for problem in problems[:PROBLEMS]]
        plain = generate_batch(p, jobs)
        captured = make_capturing(p, q, budget=Budget()).generate_batch(jobs)
        yield _held(f"capture, {kind}", pair, plain, captured)
        for k in (0, 4):
            rows = make_pair(p, q, drafts=k).generate_batch(jobs)
            same = k == 0 or sampling.temperature == 0  # drafts draw other tokens
            yield _held(f"k={k}, {kind}", pair, plain if same else [r for r, _ in rows], rows)
    yield _streamed(pair, [problem.question for problem in problems[:ASKED]])


def _held(name: str, pair: Pair, expected: Sequence[Trajectory], rows: Both) -> Finding:
    """The tokens that were expected, and traces as of a pass over them."""
    differ = sum(a.token_ids != b.token_ids for a, (b, _) in zip(expected, rows, strict=True))
    read = pair.trace_batch([row for row, _ in rows])
    gap = max(_gap(ours, theirs) for (_, ours), theirs in zip(rows, read, strict=True))
    facts = {"responses": len(rows), "responses that differ": differ, "bits beside a pass": gap}
    return Finding("while writing", name, differ == 0 and gap <= WITHIN, facts)


def _gap(ours: Trace | None, theirs: Trace) -> float:
    if ours is None or len(ours.jsd_bits) != len(theirs.jsd_bits):
        return float("inf")
    return float(np.abs(ours.jsd_bits - theirs.jsd_bits).max())


def _streamed(pair: Pair, questions: Sequence[str]) -> Finding:
    """Token by token, and again as text from elsewhere: both end as `confidence` has it."""
    gaps: list[float] = []
    counts = 0
    for question in questions:
        events = list(divtok.stream(question, pair=pair, temperature=0))
        text = "".join(e.text for e in events if e.token_id not in pair.p.end_ids)
        *_, read = divtok.follow(question, pair=pair, text=[text])
        once = divtok.confidence(question, text, pair=pair)
        for last in (events[-1], read):
            running = last.confidence["dtc_lin"]
            assert running is not None
            assert once.value is not None
            gaps.append(abs(running - once.value))
            counts += last.count != once.count
    facts = {"answers": len(gaps), "counts that differ": counts, "beside confidence": max(gaps)}
    return Finding("while writing", "stream and follow", counts == 0 and max(gaps) <= WITHIN, facts)
