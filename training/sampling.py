"""Responses of a model that is being made, as token ids, many at once. Knows no task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from training.tokenizer import TURN_END


def sample_ids(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    seed: int,
    most_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> list[npt.NDArray[np.int64]]:
    """One response to each rendered prompt, its end token with it if it came."""
    import torch

    torch.manual_seed(seed)
    encoded = tokenizer(
        list(prompts),
        add_special_tokens=False,
        padding=True,
        padding_side="left",
        return_tensors="pt",
        return_token_type_ids=False,
    ).to(model.device)
    longest = encoded["input_ids"].shape[1]
    with torch.inference_mode():
        output = model.generate(
            **encoded,
            do_sample=True,
            temperature=temperature,
            top_p=top_p,
            top_k=0,
            max_new_tokens=most_new_tokens,
        )
    end = tokenizer.convert_tokens_to_ids(TURN_END)
    return [_until(end, row) for row in output[:, longest:].cpu().numpy()]


def _until(end: int, row: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    found = np.flatnonzero(row == end)
    return row[: found[0] + 1] if len(found) else row
