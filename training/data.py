"""Training examples as flat token arrays, made once and shared by all models of a family.

Deterministic in the seed: examples are drawn in fixed blocks, each with its own random stream, so
the number of worker processes does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.problems.arithmetic import Level, stories
from divtok.protocols.prompts import messages_for
from training.solutions import write_solution
from training.tokenizer import read_tokenizer

BLOCK = 10_000
# Rarely seen by chance in benchmarks' seeds: training streams start far away from them.
SEED_OFFSET = 1_000_000

# What the shipped models were trained on; close to the benchmarks' own levels, not equal.
TRAINING_LEVELS = (
    Level((1, 3), (0, 2)),
    Level((2, 4), (0, 3)),
    Level((3, 5), (1, 5)),
    Level((4, 6), (2, 6)),
)

COLUMNS = ("questions", "prompts", "solutions")

TokenArray = npt.NDArray[np.uint16]
# From the number of a block to its (question, solution) pairs.
WriteBlock = Callable[[int], list[tuple[str, str]]]


@dataclass(frozen=True)
class Ragged:
    """Many token sequences end to end: sequence i is flat[offsets[i]:offsets[i + 1]]."""

    flat: TokenArray
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)

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
    stream = stories(SEED_OFFSET + block, "train", TRAINING_LEVELS)
    return [(story.question, write_solution(story, rng)) for story in islice(stream, BLOCK)]


def corpus_sample(write: WriteBlock | None = None) -> Iterator[str]:
    """What the tokenizer is trained on: one block, with the prompt's own words."""
    for question, solution in (write or write_block)(0):
        yield question
        yield solution
    for message in messages_for("") * 50:
        yield message["role"] + "\n" + message["content"]
    yield "assistant\n"


def build_examples(
    tokenizer_folder: Path,
    blocks: int,
    cache: Path,
    *,
    write: WriteBlock | None = None,
    workers: int | None = None,
) -> Examples:
    """So many blocks of examples, encoded; kept in `cache` for the other models."""
    if not cache.exists():
        encode = partial(
            _encode_block, tokenizer_folder=tokenizer_folder, write=write or write_block
        )
        with ProcessPoolExecutor(workers) as pool:
            encoded = list(pool.map(encode, range(blocks)))
        columns = {name: concatenate([block[name] for block in encoded]) for name in COLUMNS}
        arrays: dict[str, Any] = {}
        for name, ragged in columns.items():
            arrays |= {f"{name}_flat": ragged.flat, f"{name}_offsets": ragged.offsets}
        np.savez(cache, **arrays)
    stored = np.load(cache)
    return Examples(
        **{name: Ragged(stored[f"{name}_flat"], stored[f"{name}_offsets"]) for name in COLUMNS}
    )


def _encode_block(
    block: int, *, tokenizer_folder: Path, write: WriteBlock
) -> dict[str, list[TokenArray]]:
    tokenizer = read_tokenizer(tokenizer_folder)
    marker = "\x00"
    around: str = tokenizer.apply_chat_template(
        messages_for(marker), tokenize=False, add_generation_prompt=True
    )
    before, after = around.split(marker)
    pairs = write(block)
    texts = {
        "questions": [question for question, _ in pairs],
        "prompts": [before + question + after for question, _ in pairs],
        "solutions": [solution for _, solution in pairs],
    }
    return {
        name: [
            np.asarray(encoding.ids, dtype=np.uint16)
            for encoding in tokenizer.backend_tokenizer.encode_batch(
                column, add_special_tokens=False
            )
        ]
        for name, column in texts.items()
    }


def concatenate(blocks: list[list[TokenArray]]) -> Ragged:
    sequences = [sequence for block in blocks for sequence in block]
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    return Ragged(np.concatenate(sequences), offsets)
