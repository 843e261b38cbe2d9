"""How fast reading and writing are: with lengths never met before, and with the same again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from divtok.generate.decoding import Ask, decode
from divtok.generate.steps import can_step
from divtok.models.load import LoadedModel
from divtok.records import Sampling, Trajectory
from divtok.trace.budget import Budget
from divtok.trace.head_stage import WORKSPACE_BYTES_GPU, pair_metrics
from divtok.trace.kernels import cuda
from divtok.trace.kernels.common import Head, head_logits
from divtok.trace.pair import Pair
from perf import pair as shapes
from perf.gpu.findings import Finding
from perf.gpu.models import QWEN_15B, build

# What an H200 has to reach; on another card the same figures are only told.
CARD = "H200"
POSITIONS = 8192
ROWS, NEW_TOKENS, PROMPT = 128, 512, 64


def heads(device: torch.device) -> Iterator[Finding]:
    """The head stage beside its own matrix products, in the chunks that it works in."""
    torch.manual_seed(0)
    widths = ((3584, 152_064), (1536, 151_936))
    hidden = [torch.randn(POSITIONS, d, device=device).bfloat16() for d, _ in widths]
    layers = [
        Head((torch.randn(v, d, device=device) * 2.5 * d**-0.5).bfloat16()) for d, v in widths
    ]
    tokens = np.random.default_rng(0).integers(0, 151_936, POSITIONS)
    rows = cuda.chunk_rows(layers[0], layers[1], WORKSPACE_BYTES_GPU)
    buffers = [torch.empty(rows, layer.width, device=device) for layer in layers]

    def products() -> None:
        for start in range(0, POSITIONS, rows):
            for layer, states, buffer in zip(layers, hidden, buffers, strict=True):
                head_logits(layer, states[start : start + rows], out=buffer)

    def whole() -> None:
        pair_metrics(hidden[0], layers[0], hidden[1], layers[1], tokens)

    times = _in_turns([products, whole], repeats=20)
    ratio = times[1] / times[0]
    facts = {"ms": times[1] * 1e3, "products, ms": times[0] * 1e3, "times the products": ratio}
    yield _held("head stage", f"{POSITIONS:,} positions", ratio <= 1.25, facts)


def pair(device: torch.device) -> Iterator[Finding]:
    """Models in the shapes of Qwen2.5-7B and 1.5B, bfloat16, compiled as a long job is.

    Beside padded transformers with full logits, which reads the same rows with the same weights.
    """
    models = (shapes.QWEN_7B, shapes.QWEN_15B)
    p, q = (shapes.reader(model, device, torch.bfloat16) for model in models)
    both = Pair(p, q)
    model_p, model_q = (shapes.load(model, device, torch.bfloat16).model for model in models)
    weights = torch.cuda.memory_allocated()

    def ours(rows: Sequence[Trajectory]) -> float:
        return _rate(rows, lambda: both.trace_batch(rows, budget=Budget()))

    def theirs(rows: Sequence[Trajectory]) -> float:
        return _rate(rows, lambda: shapes.naive_jsd(model_p, model_q, rows, both.vocab_size))

    rng, ids = np.random.default_rng(), shapes.QWEN_15B.vocab
    ragged = [
        shapes.ragged(rng, ids, 1, count, prompt=200, spread=(200, 6000)).trajectories
        for count in (4, *[64] * 4)
    ]
    ours(ragged.pop(0))  # whatever is set up once
    torch.cuda.reset_peak_memory_stats()
    cold, warm = zip(*[(ours(rows), ours(rows)) for rows in ragged], strict=True)
    first, again = float(np.median(cold)), float(np.median(warm))
    facts = {
        "new lengths, tokens/s": first,
        "same lengths again": again,
        "slowest with new lengths": min(cold),
    }
    holds = first >= 30_000 and first >= 0.95 * again
    peak = (torch.cuda.max_memory_allocated() - weights) / 2**30
    facts |= {"GiB beyond the weights": peak, "transformers": theirs(ragged[0])}
    yield _held("pair", "64 ragged responses of 200 to 6,000", holds, facts)
    for count, length, bar in ((8, 1024, 34_800), (1, 8192, 30_700)):
        even = [shapes.even(rng, ids, rows=count, length=length).trajectories for _ in range(10)]
        rates = [ours(rows) for rows in even]
        facts = {
            "new lengths, tokens/s": rates[0],
            "same lengths again": float(np.median(rates[4:])),
            "best": max(rates),
        }
        torch.cuda.reset_peak_memory_stats()
        facts |= {"transformers": max(theirs(rows) for rows in even[:4])}
        facts |= {"transformers, GiB beyond": (torch.cuda.max_memory_allocated() - weights) / 2**30}
        yield _held("pair", f"{count} x {length:,}", max(rates) >= bar, facts)


def _held(check: str, name: str, holds: bool, facts: dict[str, float]) -> Finding:
    known = CARD in torch.cuda.get_device_name()
    return Finding(check, name, holds if known else None, facts)


def _rate(rows: Sequence[Trajectory], read: Callable[[], object]) -> float:
    """Tokens a second, of prompts and responses, each trajectory counted once."""
    tokens = sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    begin = _now()
    read()
    return tokens / (_now() - begin)


def generation(device: torch.device) -> Iterator[Finding]:
    """A model in the shape of Qwen2.5-1.5B writes; no end token, so that all do the same work."""
    loaded = build(QWEN_15B, device, torch.bfloat16, end=QWEN_15B.vocab - 1)
    with torch.no_grad():  # an end token that is never the most likely, and hardly ever drawn
        loaded.model.lm_head.weight[-1] = 0.0
    rng = np.random.default_rng(0)
    prompts = [tuple(int(i) for i in rng.integers(3, 1000, PROMPT)) for _ in range(ROWS)]
    _write(loaded, prompts, Sampling(temperature=0.0), 8)  # whatever is set up once
    stepped = can_step(loaded)
    ours = {
        kind: _write(loaded, prompts, sampling, NEW_TOKENS)
        for kind, sampling in (
            ("greedy", Sampling(temperature=0.0)),
            ("top-p 0.95", Sampling(temperature=0.6, top_p=0.95)),
        )
    }
    theirs = {
        "generate": _generate(loaded.model, prompts),
        "generate_batch": _generate_batch(loaded.model, prompts),
    }
    best = min(theirs.values())
    facts: dict[str, Any] = {
        "divtok, s": ours["greedy"],
        **{f"transformers {name}, s": seconds for name, seconds in theirs.items()},
        "tokens/s": ROWS * NEW_TOKENS / ours["greedy"],
        "times as fast": best / ours["greedy"],
        "in steps": stepped,
    }
    name = f"{ROWS} x {NEW_TOKENS} tokens, greedy"
    yield Finding("generation", name, stepped and ours["greedy"] <= best, facts)
    facts = {"divtok, s": ours["top-p 0.95"]}
    yield Finding("generation", f"{ROWS} x {NEW_TOKENS} tokens, top-p 0.95", None, facts)


def _write(
    loaded: LoadedModel, prompts: Sequence[tuple[int, ...]], sampling: Sampling, most: int
) -> float:
    asks = [Ask(f"{most} {i}", prompt, most) for i, prompt in enumerate(prompts)]
    begin = _now()
    written = decode(loaded, asks, sampling)
    seconds = _now() - begin
    short = sum(len(row.token_ids) < most for row in written)
    if short > len(asks) // 50:
        raise RuntimeError(f"{short} of {len(asks)} rows ended early: not the same work")
    return seconds


def _generate(model: Any, prompts: Sequence[tuple[int, ...]]) -> float:
    """By transformers, without the attention that plans anew for every length: its better way."""
    from transformers import GenerationConfig

    from divtok.packed.attention import fast_without_plans

    ids = torch.tensor(prompts, device=model.device)

    def write(tokens: int) -> None:
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        with fast_without_plans(model.device):
            model.generate(ids, generation_config=config)

    write(8)
    begin = _now()
    write(NEW_TOKENS)
    return _now() - begin


def _generate_batch(model: Any, prompts: Sequence[tuple[int, ...]]) -> float:
    """By transformers' continuous batching, with its own defaults and its CUDA graphs."""
    from transformers import GenerationConfig

    config = GenerationConfig(
        do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=-1, pad_token_id=0
    )
    begin = _now()
    done = model.generate_batch(inputs=[list(p) for p in prompts], generation_config=config)
    seconds = _now() - begin
    written = sum(len(output.generated_tokens) for output in done.values())
    if written != ROWS * NEW_TOKENS:
        raise RuntimeError(f"generate_batch wrote {written:,} tokens")
    return seconds


def _in_turns(tasks: Sequence[Callable[[], None]], *, repeats: int) -> list[float]:
    """The median seconds of each task, after one call of each; they take turns."""
    for task in tasks:
        task()
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(repeats):
        for task, found in zip(tasks, times, strict=True):
            begin = _now()
            task()
            found.append(_now() - begin)
    return [float(np.median(found)) for found in times]


def _now() -> float:
    """Seconds, once the device has done all it was asked for."""
    torch.cuda.synchronize()
    return time.perf_counter()
