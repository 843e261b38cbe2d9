"""UQAC the direct way: whole attention tensors, and positions of predictors as in the publication.

Written apart from the package, from the method's description, and slow on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DAMPING = [
    0.16644488, 0.20938152, 0.32959151, 0.46061748, 0.59304059,
    0.67549127, 0.73914525, 0.81274293, 0.87378443, 0.93925344,
]  # fmt: skip


def whole_attention(model: Any, ids: list[int]) -> Any:
    """[layers, heads, L, L] of one sequence, from the model's own eager attention."""
    import torch

    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            found = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
    finally:
        model.set_attn_implementation(before)
    return torch.stack([layer[0] for layer in found.attentions]).double().numpy()


def reduced(attention: Any, prompt: int, heads: int = 16) -> Any:
    """[L, L], rows of the prompt zero: elementwise maximum over the heads of lowest row entropy."""
    flat = attention.reshape(-1, *attention.shape[2:]).copy()
    length = flat.shape[-1]
    result = np.zeros((length, length))
    for row in range(prompt, length):
        lines = flat[:, row].copy()
        lines[:, row] = 0
        lines[:, 0] = 0
        for distance, factor in enumerate(DAMPING, start=1):
            if row - distance >= 0:
                lines[:, row - distance] *= factor
        lines /= lines.sum(axis=1, keepdims=True) + 1e-12
        entropy = -(lines * np.log(lines + 1e-12)).sum(axis=1)
        chosen = np.argsort(entropy, kind="stable")[:heads]
        result[row] = lines[chosen].max(axis=0)
    return result


def direct_chain(matrix: Any, answer: list[int], stop: list[bool]) -> list[int]:
    """Positions of predictors in the chain; `matrix` [L, L], `stop` [L] with the prompt."""
    chain = [position - 1 for position in answer]
    least = 5 + len(chain)
    done: set[int] = set()
    sources = list(chain)
    for _ in range(1000):
        if not sources:
            break
        done |= set(sources)
        score = np.zeros(len(stop))
        for source in sources:
            order = np.argsort(-matrix[source], kind="stable")
            for place, column in enumerate(order):
                if place >= 5 and (score.max() > 0 or len(chain) >= least):
                    break
                if column == source or column - 1 in done or stop[column]:
                    continue
                score[column] += matrix[source, column]
        picked: list[int] = []
        for column in np.argsort(-score, kind="stable"):
            if score[column] <= 0 or len(picked) == 3:
                break
            if score[column] < 0.5 and len(chain) + len(picked) >= least:
                break
            picked.append(int(column))
            chain.append(int(column) - 1)
        sources = [column - 1 for column in picked]
    return sorted(chain)
