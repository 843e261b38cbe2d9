"""Training examples as flat token arrays, made once and shared by all sizes.

Deterministic in the seed: examples are drawn in fixed blocks, each with its own random stream, so
the number of worker processes does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.problems.arithmetic import stories
from divtok.problems.prompts import messages_for
from training.solutions import write_solution

BLOCK = 10_000
# Rarely seen by chance in benchmarks' seeds: training streams start far away from them.
SEED_OFFSET = 1_000_000

TokenArray = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Ragged:
    """Many token sequences end to end: sequence i is flat[offsets[i]:offsets[i + 1]]."""

    flat: TokenArray
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> TokenArray:
        return self.flat[self.offsets[index] : self.offsets[index + 1]]


@dataclass(frozen=True)
class Examples:
    questions: Ragged  # the bare question, for the base format
    prompts: Ragged  # the chat prompt up to the assistant's turn
    solutions: Ragged  # the worded solution, without an end token


def write_block(block: int) -> list[tuple[str, str]]:
    """BLOCK (question, solution) pairs of one seeded stream."""
    rng = random.Random(SEED_OFFSET + block)
    stream = stories(SEED_OFFSET + block, "train")
    return [(story.question, write_solution(story, rng)) for story in islice(stream, BLOCK)]


def corpus_sample() -> Iterator[str]:
    """What the tokenizer is trained on: one block, with the prompt's own words."""
    for question, solution in write_block(0):
        yield question
        yield solution
    for message in messages_for("") * 50:
        yield message["role"] + "\n" + message["content"]
    yield "assistant\n"


def build_examples(tokenizer: Any, count: int, cache: Path) -> Examples:
    """`count` examples, encoded; kept in `cache` for the other sizes."""
    if not cache.exists():
        with ProcessPoolExecutor() as pool:
            pairs = [pair for block in pool.map(write_block, range(count // BLOCK)) for pair in block]
        marker = "\x00"
        around = tokenizer.apply_chat_template(
            messages_for(marker), tokenize=False, add_generation_prompt=True
        )
        before, after = around.split(marker)
        texts = {
            "questions": [question for question, _ in pairs],
            "prompts": [before + question + after for question, _ in pairs],
            "solutions": [solution for _, solution in pairs],
        }
        arrays = {name: _encode(tokenizer, column) for name, column in texts.items()}
        np.savez(
            cache,
            **{f"{name}_flat": ragged.flat for name, ragged in arrays.items()},
            **{f"{name}_offsets": ragged.offsets for name, ragged in arrays.items()},
        )
    stored = np.load(cache)
    return Examples(
        **{
            name: Ragged(stored[f"{name}_flat"], stored[f"{name}_offsets"])
            for name in ("questions", "prompts", "solutions")
        }
    )


def _encode(tokenizer: Any, texts: list[str]) -> Ragged:
    encodings = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    lengths = np.array([len(encoding.ids) for encoding in encodings], dtype=np.int64)
    flat = np.concatenate([np.asarray(encoding.ids, dtype=np.uint16) for encoding in encodings])
    return Ragged(flat, np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]))
