"""A smaller copy of a model, distilled on the model's own responses.

It keeps some of the layers and learns the whole next-token distributions of the one it comes from,
so it shares that one's habits and mistakes, unlike a model trained apart. Knows no task and no
files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from training.train import IGNORED, Descent, batches, descend, logits_at


def with_layers(model: Any, kept: Sequence[int]) -> Any:
    """A Qwen2 model with the given layers of another one, and all else of it."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    settings = model.config.to_dict()
    settings["num_hidden_layers"] = len(kept)
    settings["layer_types"] = ["full_attention"] * len(kept)
    smaller: Any = Qwen2ForCausalLM(Qwen2Config(**settings))
    weights: dict[str, Any] = {}
    for name, value in model.state_dict().items():
        parts = name.split(".")
        if parts[:2] != ["model", "layers"]:
            weights[name] = value
        elif int(parts[2]) in kept:
            weights[".".join([*parts[:2], str(kept.index(int(parts[2]))), *parts[3:]])] = value
    smaller.load_state_dict(weights)
    return smaller.to(model.device)


def distil(
    teacher: Any,
    student: Any,
    responses: Sequence[tuple[Any, int]],
    pad_id: int,
    *,
    steps: int,
    batch: int,
    peak: float,
    seed: int,
    label: str,
    most_seconds: float = math.inf,
) -> Descent:
    """Train the student in place; the loss is the mean KL divergence in nats a response token.

    A response comes as the ids of prompt and response, and where the response starts.
    """
    return descend(
        list(student.parameters()),
        batches(list(responses), pad_id, steps=steps, batch=batch, seed=seed),
        lambda rows: divergence(teacher, student, rows),
        peak=peak,
        steps=steps,
        label=label,
        most_seconds=most_seconds,
    )


def divergence(teacher: Any, student: Any, batch: Any) -> Any:
    """Mean KL(teacher || student) over the labelled tokens, in nats."""
    import torch
    from torch.nn.functional import kl_div, log_softmax

    device = next(student.parameters()).device
    inputs, targets = (torch.from_numpy(part).to(device, non_blocking=True) for part in batch)
    learned = targets[:, 1:] != IGNORED
    with torch.no_grad():
        meant = log_softmax(logits_at(teacher, inputs, learned), dim=-1)
    said = log_softmax(logits_at(student, inputs, learned), dim=-1)
    return kl_div(said, meant, log_target=True, reduction="none").sum(dim=-1).mean()


def mean_divergence(
    teacher: Any, student: Any, responses: Sequence[tuple[Any, int]], pad_id: int, *, batch: int
) -> float:
    """The same over some batches, without learning."""
    import torch

    found: list[float] = []
    steps = max(1, len(responses) // batch // 16)
    rows: Iterator[Any] = batches(list(responses), pad_id, steps=steps, batch=batch, seed=0)
    with torch.inference_mode():
        for each in rows:
            found.append(float(divergence(teacher, student, each)))
    return sum(found) / len(found)
