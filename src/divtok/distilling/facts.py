"""What is known of a distilled auxiliary: where it comes from, what it cost, how near it came."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Distilled:
    """An auxiliary made of some layers of its generator, and how it was made.

    `folder` is a model folder like any other. `kl_*` are the mean KL(source || auxiliary) of the
    next-token distributions in nats, `agreement_*` how often both have the same likeliest token,
    over `held_out_tokens` response tokens of problems that were not learned from; `*_before` are of
    the cut copy before it learned.

    Example:
        >>> import divtok
        >>> model, wanted = "divtok/tiny-1.6m", {"benchmarks": ["arith-easy"], "limit": 4}
        >>> run = divtok.run({"family": "tiny", **wanted}, generators=[model], out="written")
        >>> made = divtok.distil(model, layers=3, text=run, out="small", steps=3)
        >>> made.layers, made.source_layers, made.kl_after < made.kl_before
        ((0, 2, 4), 5, True)
    """

    folder: Path
    source: str
    source_revision: str | None
    source_digest: str
    source_layers: int
    layers: tuple[int, ...]  # of the source, from 0
    source_parameters: int
    parameters: int
    run: str  # its name
    generator: str  # whose responses
    problems: int
    responses: int
    tokens: int  # of the responses learned from, each counted once
    held_out_problems: int
    held_out_responses: int
    held_out_tokens: int
    max_length: int  # what is longer was cut there, prompt included
    cut_responses: int
    epochs: float
    steps: int
    batch_tokens: int
    learning_rate: float
    seed: int
    seconds: float
    device: str
    dtype: str  # of products while learning; weights learn in float32
    stored_dtype: str
    kl_before: float
    kl_after: float
    agreement_before: float
    agreement_after: float

    def as_data(self) -> dict[str, Any]:
        """For JSON, without the folder, which may be moved."""
        data = dataclasses.asdict(self)
        del data["folder"]
        return data
