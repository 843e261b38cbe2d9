"""Responses of the embedded family with both models' whole distributions, in float64 by numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.models.load import load_model
from divtok.records import Trace
from divtok.trace.pair import load_pair

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
TEXTS = (
    ("What is 12 + 30?", "First, 12 + 30 = 42. The answer is \\boxed{42}."),
    ("Ann has 3 apples and buys 14. How many?", "She has 3 + 14 = 18 apples.\n\\boxed{18}"),
)

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """`logs` are log-probabilities [T, V] of p and of q, over the vocabulary that both have."""

    traces: list[Trace]
    logs: list[tuple[Numbers, Numbers]]
    tokens: list[list[int]]


def known_distributions() -> Known:
    import torch

    pair = load_pair(P, Q, p_device="cpu", q_device="cpu")
    models: list[Any] = [load_model(ref, device="cpu", dtype="float32").model for ref in (P, Q)]
    width = min(int(model.config.vocab_size) for model in models)
    known = Known([], [], [])
    for question, response in TEXTS:
        prompt, tokens = (pair.p.tokenizer(text)["input_ids"] for text in (question, response))
        both: list[Numbers] = []
        for model in models:
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *tokens]])).logits[0]
            rows = logits[len(prompt) - 1 : -1, :width].numpy().astype(np.float64)
            both.append(rows - np.log(np.sum(np.exp(rows), axis=-1, keepdims=True)))
        known.traces.append(pair.trace_ids(prompt_ids=prompt, token_ids=tokens))
        known.logs.append((both[0], both[1]))
        known.tokens.append(tokens)
    return known
