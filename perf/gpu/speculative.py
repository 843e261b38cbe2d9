"""Writing and tracing, apart and in one go: a generator in the shape of 7B, an auxiliary of 1.5B.

The weights are random but for what decides on logits: embeddings and heads of both models share
random factors, those of the auxiliary with some noise, so that four in five drafts stay. Layers do
all of their work and hardly move the result. They are compiled, as in a long job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from divtok.generate.captured import CapturingPair
from divtok.generate.decoding import Ask, decode
from divtok.generate.speculative.writing import SpeculativePair, make_pair
from divtok.generate.steps import compile_steps
from divtok.models.load import LoadedModel
from divtok.records import Sampling, Trajectory
from divtok.trace.budget import Budget
from perf.gpu.findings import Finding
from perf.gpu.models import QWEN_15B, SHAPES, Shape, build
from perf.pair import PlainTokenizer

GENERATOR, AUXILIARY = SHAPES[0], QWEN_15B
TOKENS = 151_665  # that both know; both heads are wider, and not equally wide
# Rows at once by the kind of sampling.
ROWS = {"open": (1, 8, 64), "top-p 0.95": (64,)}
PROMPT, NEW_TOKENS = 64, 384
DRAFTS = (2, 4)
FASTER, KEPT = 1.5, 0.95  # than plain sampling and a pass; of the speed without a trace
SAMPLINGS = {
    "open": Sampling(temperature=1.0, top_p=1.0),
    "top-p 0.95": Sampling(temperature=1.0, top_p=0.95),
}
# Of the logits' spread, and of the auxiliary's own noise: 0.8 of drafts stay. Of models with
# 1.5 and 32 billion parameters nine in ten tokens were found to be the same (arXiv:2505.21600).
SPREAD, NOISE = 6.0, 0.09
_FACTORS = 512


@dataclass(frozen=True, slots=True)
class Written:
    """How much a way has written, in what time, and in how many rounds where it has any."""

    tokens: int
    seconds: float
    rounds: int = 0


Way = Callable[[Sequence[Ask], Sampling], Written]


def check(device: torch.device) -> Iterator[Finding]:
    """Tokens a second of every way; the one go has to be faster than writing and reading."""
    base = pair(device, torch.bfloat16)
    for loaded in (base.generator, base.auxiliary):
        compile_steps(loaded)
    rng = np.random.default_rng(0)
    for kind, sampling in SAMPLINGS.items():
        for count in ROWS[kind]:
            prompts = rng.integers(3, 1000, (count, PROMPT)).tolist()
            asks = [Ask(f"{kind} {i}", tuple(p), NEW_TOKENS) for i, p in enumerate(prompts)]
            yield _finding(f"{count} x {NEW_TOKENS} tokens, {kind}", base, asks, sampling)


def _finding(name: str, base: SpeculativePair, asks: Sequence[Ask], sampling: Sampling) -> Finding:
    rates: dict[str, float] = {}
    rounds: dict[str, float] = {}
    ways = _ways(base)
    for write in ways.values():
        write([replace(ask, limit=16) for ask in asks], sampling)  # whatever is set up once
    for way, write in ways.items():
        done = write(asks, sampling)
        rates[way] = done.tokens / done.seconds
        if done.rounds:
            rounds[f"{way}, tokens a round"] = done.tokens / done.rounds
    best = max(DRAFTS, key=lambda k: rates[f"k={k}"])
    times = rates[f"k={best}"] / rates["plain + trace"]
    kept = rates[f"k={best}"] / rates[f"k={best}, not traced"]
    facts = {
        **rates,
        **rounds,
        "capture, times as fast": rates["capture"] / rates["plain + trace"],
        "times as fast": times,
        "traced against not traced": kept,
    }
    return Finding("speculative", name, times >= FASTER and kept >= KEPT, facts)


def _ways(base: SpeculativePair) -> dict[str, Way]:
    """Plain: alone, with a pass over the text, with the auxiliary's, and traced on the way.

    Then drafts of k tokens.
    """

    def plain(asks: Sequence[Ask], sampling: Sampling) -> Written:
        begin = _now(base)
        rows = decode(base.generator, asks, sampling)
        return Written(sum(len(row.token_ids) for row in rows), _now(base) - begin)

    def apart(asks: Sequence[Ask], sampling: Sampling) -> Written:
        begin = _now(base)
        rows = decode(base.generator, asks, sampling)
        read = [_trajectory(ask, row.token_ids) for ask, row in zip(asks, rows, strict=True)]
        base.pair.trace_batch(read, budget=Budget())
        return Written(sum(len(row.token_ids) for row in rows), _now(base) - begin)

    def capture(asks: Sequence[Ask], sampling: Sampling) -> Written:
        begin, protocols = _now(base), {ask.key: "cot" for ask in asks}
        capturing = CapturingPair(base.generator, base.pair, Budget())
        rows = capturing.write(asks, sampling, protocols)
        return Written(sum(len(row.token_ids) for row, _ in rows), _now(base) - begin)

    def drafted(k: int, *, recorded: bool) -> Way:
        writers = replace(base, drafts=k)

        def write(asks: Sequence[Ask], sampling: Sampling) -> Written:
            begin, recorder = _now(base), writers.recorder() if recorded else None
            rows = writers.speak(asks, sampling, recorder)
            if recorder is not None:
                recorder.columns(len(asks))
            seconds = _now(base) - begin
            tokens, rounds = (
                sum(len(row.token_ids) for row in rows),
                sum(r.rounds for r in rows),
            )
            return Written(tokens, seconds, 0 if recorded else rounds)

        return write

    return {
        "plain": plain,
        "plain + trace": apart,
        "capture": capture,
        **{
            name: drafted(k, recorded=recorded)
            for k in DRAFTS
            for name, recorded in ((f"k={k}, not traced", False), (f"k={k}", True))
        },
    }


def pair(device: torch.device, dtype: torch.dtype) -> SpeculativePair:
    generator, auxiliary = (_built(shape, device, dtype) for shape in (GENERATOR, AUXILIARY))
    width = min(shape.vocab for shape in (GENERATOR, AUXILIARY))
    factors = min(_FACTORS, min(GENERATOR.hidden, AUXILIARY.hidden) // 2)
    random = torch.Generator(device).manual_seed(0)

    def drawn() -> torch.Tensor:
        return torch.randn(width, factors, generator=random, device=device)

    of_tokens, of_logits = drawn(), drawn()
    other = (of_logits + NOISE * drawn()) / (1 + NOISE**2) ** 0.5
    _arrange(generator, of_tokens, of_logits)
    _arrange(auxiliary, of_tokens, other)
    return make_pair(generator, auxiliary, drafts=DRAFTS[0])


def _built(shape: Shape, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """With an end token that is never drawn, so that all ways do the same work."""
    made = build(shape, device, dtype, end=shape.vocab - 1)
    return replace(made, tokenizer=PlainTokenizer(min(TOKENS, shape.vocab - 1)))


@torch.no_grad()
def _arrange(loaded: LoadedModel, of_tokens: torch.Tensor, of_logits: torch.Tensor) -> None:
    """Logits behind token t that are about SPREAD * (a_t / |a_t|) . b, each with spread 1."""
    width, factors = of_tokens.shape
    embedding = loaded.model.get_input_embeddings().weight
    head = loaded.model.get_output_embeddings().weight
    embedding.zero_()
    embedding[:width, :factors] = of_tokens.to(embedding)
    head.zero_()
    # The norm before the head gives hidden states the length sqrt(D).
    head[:width, :factors] = (of_logits * SPREAD / head.shape[1] ** 0.5).to(head)
    for name, weight in loaded.model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.mul_(0.002)


def _trajectory(ask: Ask, token_ids: tuple[int, ...]) -> Trajectory:
    return Trajectory(
        key=ask.key,
        problem_id=ask.key,
        benchmark="perf",
        sample=0,
        generator="random",
        prompt_ids=ask.prompt,
        token_ids=token_ids,
        text="",
        finish_reason="length",
        protocol="cot",
        sampling=Sampling(),
    )


def _now(base: SpeculativePair) -> float:
    """Seconds, once the device has done all it was asked for."""
    if base.generator.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
