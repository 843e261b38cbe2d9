"""Steps give the model's logits, and in float32 the tokens that they give on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from divtok.families.family import get_family
from divtok.generate.jobs import Job, generate_batch
from divtok.generate.steps import Writer, can_step
from divtok.models.load import LoadedModel, load_model
from divtok.packed.probe import allowed_gap, gap
from divtok.problems.benchmark import load_benchmark
from divtok.records import Sampling, Trajectory
from perf.gpu.findings import Finding
from perf.gpu.models import QWEN_15B, SHAPES, build

MODELS = ("divtok/tiny-0.5m", "divtok/tiny-1.6m")
BENCHMARKS = ("arith-easy", "arith-contest")
PROBLEMS, SAMPLES = 32, 4
STEPPED = (QWEN_15B, *(shape for shape in SHAPES if shape.settings))  # windows, and experts
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=1.0, top_p=1.0),
    "top-p, top-k, penalty": Sampling(temperature=0.7, top_p=0.9, top_k=20, presence_penalty=0.5),
}


# Prompts beyond and below Gemma's window of 1,024 tokens.
PROMPTS, STEPS = (1500, 900, 20), 5


def check(device: torch.device) -> Iterator[Finding]:
    for shape in STEPPED:
        for dtype in (torch.bfloat16, torch.float32):
            yield _stepped(build(shape, device, dtype, end=None))
    for name in MODELS:
        here, there = (load_model(name, device=place, dtype="float32") for place in (device, "cpu"))
        most = get_family("tiny").generator(name).sampling.max_length
        for kind, sampling in SAMPLINGS.items():
            jobs = [
                Job(problem, sample, name, "cot", replace(sampling, max_length=most))
                for benchmark in BENCHMARKS
                for problem in load_benchmark(benchmark, limit=PROBLEMS)
                for sample in range(SAMPLES)
            ]
            yield _compared(f"{name}, {kind}", here, there, jobs)


@torch.inference_mode()
def _stepped(loaded: LoadedModel) -> Finding:
    """Logits of steps against the whole model's, each row on its own, for tokens given."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        torch.randint(3, 1000, (length + STEPS,), generator=generator).tolist()
        for length in PROMPTS
    ]
    writer = Writer(loaded)
    found = [writer.begin([tuple(row[:-STEPS]) for row in rows])]
    for step in range(STEPS, 0, -1):
        tokens = torch.tensor([row[-step] for row in rows], device=loaded.device)
        found.append(writer.read(tokens).clone())
    worst = 0.0
    for row, ours in zip(rows, torch.stack(found, dim=1), strict=True):
        ids = torch.tensor([row], device=loaded.device)
        alone = loaded.model(input_ids=ids, use_cache=False).logits[0, -STEPS - 1 :]
        worst = max(worst, gap(ours, alone))
    allowed = allowed_gap(loaded.dtype, loaded.model.config.num_hidden_layers)
    name = f"{loaded.name}, {loaded.dtype}, steps".replace("torch.", "")
    facts = {"steps against alone": worst, "allowed": allowed}
    return Finding("writing", name, worst <= allowed, facts)


def _compared(name: str, here: Any, there: Any, jobs: Sequence[Job]) -> Finding:
    ours, expected = generate_batch(here, jobs), generate_batch(there, jobs)
    different = sum(a.token_ids != b.token_ids for a, b in zip(ours, expected, strict=True))
    facts = {
        "responses": len(jobs),
        "tokens": _tokens(ours),
        "responses that differ": different,
        "in steps": can_step(here),
    }
    return Finding("writing", name, different == 0 and can_step(here), facts)


def _tokens(rows: Sequence[Trajectory]) -> int:
    return sum(len(row.token_ids) for row in rows)
