"""A whole pair: two models read the same trajectories, by divtok and by padded transformers.

The models are the embedded family, or have random weights in the shapes of known ones: speed and
memory do not depend on what the weights are. Tokens count once per trajectory, prompt and response.
On a GPU `perf.gpu` measures with the same models and work.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from divtok.models.load import LoadedModel, load_model
from divtok.records import Sampling, Trace, Trajectory
from divtok.trace.budget import Budget
from divtok.trace.pair import Pair
from divtok.trace.reader import Reader, make_reader
from perf import naive
from perf.meter import Limits, Meter, Task, add_errors
from perf.results import Case, Measurement, Way

if TYPE_CHECKING:
    from torch import Tensor

PACK_TOKENS = 8192  # of ours, the default of the trace stage
BATCH_TOKENS = 16384  # of the other way

WAYS = (
    Way("ours", "divtok", "traces: all seven numbers of every token"),
    Way(
        "naive",
        "transformers, padded, full logits",
        "all seven numbers of every token",
        f"rows in the order they come, at most {BATCH_TOKENS:,} padded tokens at a time",
    ),
)


def trace_all(pair: Pair, trajectories: Sequence[Trajectory]) -> list[Trace]:
    """Every trajectory's trace, in order. What is read together is the pair's own decision."""
    return pair.trace_batch(trajectories, budget=Budget(PACK_TOKENS))


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a Qwen2 model with random weights."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Two models (shapes, or names of embedded ones) and what they read."""

    name: str
    about: str
    p: Model | str
    q: Model | str
    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    groups: tuple[Group, ...]
    dtype: torch.dtype
    limits: Limits


QWEN_7B = Model(28, 3584, 18944, 28, 4, 152064, tied=False)
QWEN_15B = Model(28, 1536, 8960, 12, 2, 151936, tied=True)
SMOLLM_135M = Model(30, 576, 1536, 9, 3, 49152, tied=True)
SMOLLM_HALF = Model(15, 576, 1536, 9, 3, 49152, tied=True)
TOY_P = Model(2, 48, 96, 4, 2, 320, tied=False)
TOY_Q = Model(2, 32, 64, 4, 2, 304, tied=True)


TOY_LIMITS = Limits(first_s=20, expected_s=20, slow_s=5, repeats=2, section_s=60)
SMALL_LIMITS = Limits(first_s=60, expected_s=60, slow_s=4, repeats=5, section_s=130)


class PlainTokenizer:
    """Just enough of a tokenizer for tracing: every id is a token, and nothing has a text."""

    eos_token_id = None

    def __init__(self, size: int) -> None:
        self.size = size

    def get_vocab(self) -> dict[str, int]:
        return {f"token {index}": index for index in range(self.size)}

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        del token_ids, skip_special_tokens
        return ""

    def __len__(self) -> int:
        return self.size


def plan(*, quick: bool) -> Plan:
    rng = np.random.default_rng(0)
    if quick:
        work = (even(rng, 300, rows=2, length=32), ragged(rng, 300, 2, 3, prompt=9, spread=(5, 40)))
        toy = Group("toy", "random weights, 2 layers each", TOY_P, TOY_Q, work)
        return Plan((toy,), torch.float32, TOY_LIMITS)
    tiny = Group(
        "tiny-0.9m and tiny-0.3m",
        "the embedded family, float32",
        "divtok/tiny-0.9m",
        "divtok/tiny-0.3m",
        (
            even(rng, 768, rows=8, length=256),
            even(rng, 768, rows=1, length=1000),
            ragged(rng, 768, 3, 16, prompt=60, spread=(60, 900)),
        ),
    )
    small = Group(
        "SmolLM-135M and half of it",
        "random weights in the shape of SmolLM-135M, and with 15 of its 30 layers, float32",
        SMOLLM_135M,
        SMOLLM_HALF,
        (
            even(rng, 49152, rows=4, length=128),
            ragged(rng, 49152, 2, 8, prompt=40, spread=(20, 200)),
        ),
    )
    return Plan((tiny, small), torch.float32, SMALL_LIMITS)


def even(rng: np.random.Generator, vocab: int, *, rows: int, length: int) -> Workload:
    """Responses of one length behind a prompt of one token, so that every position counts."""
    found = [_trajectory(rng, vocab, f"even-{i}", (1,), length) for i in range(rows)]
    return Workload(f"{rows} x {length:,}", tuple(found))


def ragged(
    rng: np.random.Generator,
    vocab: int,
    problems: int,
    samples: int,
    *,
    prompt: int,
    spread: tuple[int, int],
) -> Workload:
    """Samples of several problems, each problem's behind one prompt; lengths log-uniform."""
    found: list[Trajectory] = []
    for problem in range(problems):
        ids = tuple(int(i) for i in rng.integers(3, vocab, int(prompt * rng.uniform(0.75, 1.25))))
        for sample in range(samples):
            length = round(float(np.exp(rng.uniform(*np.log(spread)))))
            found.append(_trajectory(rng, vocab, f"ragged-{problem}-{sample}", ids, length))
    name = f"ragged: {problems} problems x {samples} samples of {spread[0]} to {spread[1]:,}"
    return Workload(name, tuple(found))


def _trajectory(
    rng: np.random.Generator, vocab: int, key: str, prompt_ids: tuple[int, ...], length: int
) -> Trajectory:
    return Trajectory(
        key=key,
        problem_id=key.rpartition("-")[0],
        benchmark="perf",
        sample=0,
        generator="perf",
        prompt_ids=prompt_ids,
        token_ids=tuple(int(i) for i in rng.integers(3, vocab, length)),
        text="",
        finish_reason="stop",
        protocol="cot",
        sampling=Sampling(),
    )


def run(device: torch.device, what: Plan) -> tuple[list[Case], dict[str, str]]:
    """All cases of the section, and what each group of them is."""
    meter = Meter(device, what.limits)
    cases: list[Case] = []
    for group in what.groups:
        meter.say(f"loading {group.name}")
        p, q = (load(model, device, what.dtype) for model in (group.p, group.q))
        pair = Pair(reader(group.p, device, what.dtype), reader(group.q, device, what.dtype))
        # Whatever is compiled or set up once is no part of the first workload.
        for task in _tasks(pair, p, q, group.workloads[0].trajectories[:1]):
            meter.once(task)
        for workload in group.workloads:
            cases.append(_case(meter, group.name, workload, pair, p, q))
        del p, q, pair
        gc.collect()
    return cases, {group.name: group.about for group in what.groups}


def _case(
    meter: Meter, group: str, workload: Workload, pair: Pair, p: LoadedModel, q: LoadedModel
) -> Case:
    rows = workload.trajectories
    responses = sum(len(t.token_ids) for t in rows)
    tokens = responses + sum(len(t.prompt_ids) for t in rows)
    # Each workload is a group of its own to the meter: time does not follow from tokens alone.
    name = f"{group}, {workload.name}"
    measured, outputs = meter.measure(name, tokens, _tasks(pair, p, q, rows))
    facts = {"response tokens": float(responses), "TFLOP": flops(p, q, rows) / 1e12}
    return Case(group, workload.name, tokens, _with_gap(measured, outputs), facts)


def _tasks(pair: Pair, p: LoadedModel, q: LoadedModel, rows: Sequence[Trajectory]) -> list[Task]:
    return [
        Task("ours", lambda: np.concatenate([t.jsd_bits for t in trace_all(pair, rows)])),
        Task("naive", lambda: naive_jsd(p.model, q.model, rows, pair.vocab_size)),
    ]


def _with_gap(measured: list[Measurement], outputs: dict[str, Any]) -> tuple[Measurement, ...]:
    """How far naive's JSD lies from ours: rounded logits, and padding in the trunks."""
    if outputs.get("ours") is None or outputs.get("naive") is None:
        return tuple(measured)
    gap = np.abs(outputs["naive"].astype(np.float64) - outputs["ours"])
    return add_errors(measured, {"naive": (float(gap.max()), float(gap.mean()))})


def reader(model: Model | str, device: torch.device, dtype: torch.dtype) -> Reader:
    """Its own copy of a model, since on a GPU its layers are compiled in place."""
    return make_reader(load(model, device, dtype), compile_trunk=device.type == "cuda")


def load(model: Model | str, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """An embedded model, or random weights made on the device itself."""
    if isinstance(model, str):
        return load_model(model, device=device)
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen2",
        num_hidden_layers=model.layers,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        vocab_size=model.vocab,
        tie_word_embeddings=model.tied,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(model.layers)
    with device:
        made: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    made.eval().requires_grad_(False)
    name = f"random-{model.hidden}x{model.layers}"
    return LoadedModel(name, None, made, PlainTokenizer(1000), device, dtype)


@torch.inference_mode()
def naive_jsd(
    model_p: Any, model_q: Any, trajectories: Sequence[Trajectory], width: int
) -> np.ndarray[Any, Any]:
    """The JSD of all response tokens, one trajectory after another: [sum T]."""
    found: list[Tensor] = []
    for batch in naive_batches(trajectories):
        rows = [torch.tensor(t.prompt_ids + t.token_ids) for t in batch]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model_p.device)
        columns = torch.arange(ids.shape[1])
        lengths, prompts = (
            torch.tensor(n)[:, None]
            for n in ([len(row) for row in rows], [len(t.prompt_ids) for t in batch])
        )
        mask = (columns < lengths).long().to(ids.device)
        response = (columns[1:] >= prompts) & (columns[1:] < lengths)
        picked = [
            model(input_ids=ids, attention_mask=mask, use_cache=False)
            .logits[:, :-1, :width][response.to(ids.device)]
            for model in (model_p, model_q)
        ]  # fmt: skip
        tokens = ids[:, 1:][response.to(ids.device)]
        found.append(naive.metrics_from_logits(picked[0], picked[1], tokens)["jsd_bits"])
    return torch.cat(found).cpu().numpy()


def naive_batches(trajectories: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Batches as they come: as many rows as fit when padded to the longest."""
    batches: list[list[Trajectory]] = [[]]
    longest = 0
    for trajectory in trajectories:
        length = len(trajectory.prompt_ids) + len(trajectory.token_ids)
        longest = max(longest, length)
        if batches[-1] and longest * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
            longest = length
        batches[-1].append(trajectory)
    return batches


def flops(p: LoadedModel, q: LoadedModel, trajectories: Sequence[Trajectory]) -> float:
    """Of every trajectory read on its own: trunks, causal attention, heads at responses only."""
    total = 0.0
    for loaded in (p, q):
        config = loaded.model.config
        layers, hidden = config.num_hidden_layers, config.hidden_size
        decoder = loaded.model.get_decoder()
        embedding = loaded.model.get_input_embeddings().weight.numel()
        linear = sum(weight.numel() for weight in decoder.parameters()) - embedding
        for trajectory in trajectories:
            responses = len(trajectory.token_ids)
            length = len(trajectory.prompt_ids) + responses
            attention = 2 * length**2 * hidden * layers
            total += 2 * linear * length + attention + 2 * hidden * config.vocab_size * responses
    return total
