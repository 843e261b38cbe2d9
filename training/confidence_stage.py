"""Teach one chat model to state its confidence, without moving how it reasons.

    python -m training.confidence_stage SIZE --work DIR

Each step reads rated and verbalized examples. The solutions of the rated ones are rehearsal: the
loss there is the divergence from the model as it was before this stage.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.confidences import (
    CONTEXT,
    EXAMPLES,
    REHEARSED,
    REHEARSED_AND_WRITTEN,
    STATED,
    STREAMS,
    WRITTEN,
    build_confidences,
)
from training.tokenizer import read_tokenizer
from training.train import SIZES, autocast, descend, pad_rows, save_checkpoint, shuffled_rows


@dataclass(frozen=True)
class Phase:
    batch: Mapping[str, int]  # examples of each stream in a step
    steps: int
    rate: float  # of the size's own learning rate
    weights: Mapping[str, float]  # of each part of the loss
    seed: int


# First the prompts and the formats are learned; then, at a low rate, what that disturbed settles.
PHASES = (
    Phase(
        batch={"rated": 128, "verbalized": 256},
        steps=1500,
        rate=0.6,
        weights={"stated": 3.0, "written": 2.0, "rehearsed": 30.0},
        seed=2,
    ),
    Phase(
        batch={"rated": 128, "verbalized": 192},
        steps=500,
        rate=0.15,
        weights={"stated": 10.0, "written": 3.0, "rehearsed": 20.0},
        seed=12,
    ),
)


def batches(data: dict[str, Any], pad_id: int, phase: Phase) -> Iterator[Any]:
    """`steps` pairs of (ids, roles), one of each stream, all [batch, L] and right-padded."""
    orders = [
        shuffled_rows(
            data[stream][0].lengths,
            phase.steps,
            batch=phase.batch[stream],
            seed=phase.seed + i,
        )
        for i, stream in enumerate(STREAMS)
    ]
    for chosen in zip(*orders, strict=True):
        yield tuple(
            (
                pad_rows([data[stream][0][row] for row in rows], pad_id),
                pad_rows([data[stream][1][row] for row in rows], 0),
            )
            for stream, rows in zip(STREAMS, chosen, strict=True)
        )


def parts_of_loss(model: Any, before: Any, batch: Any) -> dict[str, Any]:
    """Means over the tokens of each part, in nats."""
    import torch
    from torch.nn.functional import cross_entropy, kl_div, log_softmax

    device = next(model.parameters()).device
    losses: dict[str, list[Any]] = {"stated": [], "written": [], "rehearsed": []}
    for arrays in batch:
        ids, roles = (torch.from_numpy(array).to(device, non_blocking=True) for array in arrays)
        role, target = (part[:, 1:][roles[:, 1:] != CONTEXT] for part in (roles, ids))
        said = _logits(model, ids, roles != CONTEXT)
        surprise = cross_entropy(said, target, reduction="none")
        losses["stated"].append(surprise[role == STATED])
        losses["written"].append(surprise[(role == WRITTEN) | (role == REHEARSED_AND_WRITTEN)])
        if _rehearsed(role).any():
            with torch.no_grad():
                meant = log_softmax(_logits(before, ids, _rehearsed(roles)), dim=-1)
            now = log_softmax(said[_rehearsed(role)], dim=-1)
            drift = kl_div(now, meant, log_target=True, reduction="none").sum(dim=-1)
            losses["rehearsed"].append(drift)
    return {name: torch.cat(found).mean() for name, found in losses.items()}


def _rehearsed(roles: Any) -> Any:
    return (roles == REHEARSED) | (roles == REHEARSED_AND_WRITTEN)


def _logits(model: Any, ids: Any, predicted: Any) -> Any:
    """[N, V] float32, what the model says where the tokens marked in `predicted` [B, L] follow."""
    with autocast(ids.device):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        return model.lm_head(hidden[predicted[:, 1:]]).float()


def train_phase(
    model: Any, before: Any, data: dict[str, Any], pad_id: int, *, peak: float, phase: Phase
) -> dict[str, float]:
    """Train in place; returns each part's loss, the mean over the last 50 steps."""
    import torch

    history: list[dict[str, Any]] = []

    def loss_of(batch: Any) -> Any:
        parts = parts_of_loss(model, before, batch)
        history.append({name: value.detach() for name, value in parts.items()})
        return sum(phase.weights[name] * value for name, value in parts.items())

    descend(
        list(model.parameters()),
        batches(data, pad_id, phase),
        loss_of,
        peak=peak,
        steps=phase.steps,
        label="confidence",
    )
    return {
        name: float(torch.stack([parts[name] for parts in history[-50:]]).mean())
        for name in phase.weights
    }


def train_size(name: str, work: Path, *, device: str, phases: Sequence[Phase] = PHASES) -> None:
    import torch
    from transformers import Qwen2ForCausalLM

    source, folder = work / "models" / f"{name}-chat", work / "models" / f"{name}-confidence"
    if (folder / "training.json").exists():  # an earlier, interrupted call got this far
        return
    tokenizer = read_tokenizer(work / "tokenizer")
    data = build_confidences(work / "tokenizer", EXAMPLES, work / "confidences.npz")
    stored: Any = Qwen2ForCausalLM.from_pretrained(source, dtype=torch.float32)
    model = stored.to(device).train()
    before = copy.deepcopy(model).eval().requires_grad_(False)
    facts = json.loads((source / "training.json").read_text())
    facts["confidence"] = [asdict(phase) for phase in phases]
    for phase in phases:
        facts["loss"]["confidence"] = train_phase(
            model,
            before,
            data,
            tokenizer.pad_token_id,
            peak=SIZES[name].learning_rate * phase.rate,
            phase=phase,
        )
        print(name, facts["loss"], flush=True)
    save_checkpoint(model, tokenizer, folder, facts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=sorted(SIZES))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    train_size(arguments.size, arguments.work, device=arguments.device)
