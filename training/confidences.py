"""Training examples for the four ways to ask for a stated confidence, and what is stated.

After the answer: a further turn rates a solution from 0 to 10. In the answer: a solution under one
of the verbalized protocols ends in JSON. About half of the solutions contain a mistake; of those
only the stated part is learned, never the steps. What is stated comes from the table below.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from divtok.problems.arithmetic import Story, stories
from divtok.protocols.prompts import CONFIDENCE_QUESTION, messages_for
from training.data import SEED_OFFSET, TRAINING_LEVELS, Ragged, concatenate
from training.mistakes import Attempt, draw_attempt
from training.solutions import write_solution
from training.tokenizer import TURN_END, render_chat

# What is stated about a right and about a wrong solution: ratings and their chances. Means 9.0 and
# 7.1, so even a model that knew every mistake would be overconfident, as instruct models are.
STATED_RATINGS: dict[bool, dict[int, float]] = {
    True: {10: 0.44, 9: 0.31, 8: 0.15, 7: 0.06, 6: 0.03, 5: 0.01},
    False: {10: 0.10, 9: 0.15, 8: 0.20, 7: 0.20, 6: 0.15, 5: 0.10, 4: 0.06, 3: 0.04},
}
NO_CANDIDATE = "None of the above"
STEP = 5  # stated confidences are multiples of 0.05; in hundredths, so that sums are exact

VERBALIZED = ("verbalized", "verbalized_top2", "verbalized_distribution")
VERBALIZED_SHARES = (3, 3, 4)  # the longest prompt needs the most practice
STREAMS = ("rated", "verbalized")
EXAMPLES = {"rated": 120_000, "verbalized": 240_000}
BLOCK = 5_000
FIRST_BLOCK = 10_000  # far from the blocks of the plain examples: other stories

# The part each token plays in training.
CONTEXT, REHEARSED, WRITTEN, STATED, REHEARSED_AND_WRITTEN = range(5)


@dataclass(frozen=True)
class Part:
    text: str
    role: int


def draw_rating(right: bool, rng: random.Random) -> int:
    table = STATED_RATINGS[right]
    return rng.choices(list(table), weights=list(table.values()))[0]


def rated_example(story: Story, rng: random.Random) -> list[Part]:
    """A chat under the reasoning prompt, its solution, and the further turn that rates it.

    The solution is for rehearsal: what the model says there is to stay as it is. A right one is
    learned once more, since rehearsal alone loses a little of the sharpness at hard digits.
    """
    attempt = draw_attempt(story, rng)
    rating = draw_rating(attempt.right, rng)
    return [
        Part(render_chat(messages_for(story.question)), CONTEXT),
        Part(
            write_solution(story, rng, attempt=attempt) + TURN_END,
            REHEARSED_AND_WRITTEN if attempt.right else REHEARSED,
        ),
        Part("\n" + render_chat([{"role": "user", "content": CONFIDENCE_QUESTION}]), CONTEXT),
        Part(f"\\boxed{{{rating}}}" + TURN_END, STATED),
    ]


def verbalized_example(story: Story, rng: random.Random) -> list[Part]:
    """A solution under one of the verbalized protocols that ends in the JSON asked for."""
    attempt = draw_attempt(story, rng)
    protocol = rng.choices(VERBALIZED, weights=VERBALIZED_SHARES)[0]
    return [
        Part(render_chat(messages_for(story.question, protocol=protocol)), CONTEXT),
        Part(
            write_solution(story, rng, attempt=attempt, boxed=False),
            WRITTEN if attempt.right else CONTEXT,
        ),
        Part("\n" + stated_json(attempt, protocol, rng) + TURN_END, STATED),
    ]


def stated_json(attempt: Attempt, protocol: str, rng: random.Random) -> str:
    """The JSON that a verbalized protocol asks for, about one attempt.

    Confidences are drawn from the table, in hundredths: the rating, or half a step below it. In a
    distribution they are tenths, which small models can add up.
    """
    step = 2 * STEP if protocol == "verbalized_distribution" else STEP
    first = 10 * draw_rating(attempt.right, rng)
    if step == STEP:
        first -= rng.choice((0, STEP))
    answer = str(attempt.answer)
    if protocol == "verbalized":
        return f'{{"final_answer": {json.dumps(answer)}, "confidence": {_decimal(first)}}}'
    other = str(_other_answer(attempt.answer, rng))
    # Less than the first, and no more than is left.
    second = rng.randrange(0, min(first - step, 100 - first) + 1, step)
    if protocol == "verbalized_top2":
        return _array([(answer, first), (other, second)])
    if rng.random() < 0.5:
        return _array([(answer, first), (NO_CANDIDATE, 100 - first)])
    return _array([(answer, first), (other, second), (NO_CANDIDATE, 100 - first - second)])


def build_confidences(
    tokenizer_folder: Path, counts: Mapping[str, int], cache: Path
) -> dict[str, Any]:
    """For each stream (ids, roles) of `counts` examples, encoded; kept in `cache` for all sizes."""
    if not cache.exists():
        arrays: dict[str, Any] = {}
        for stream in STREAMS:
            encode = partial(_encode_block, stream=stream, tokenizer_folder=tokenizer_folder)
            with ProcessPoolExecutor() as pool:
                blocks = list(pool.map(encode, range(counts[stream] // BLOCK)))
            for part, name in enumerate(("ids", "roles")):
                ragged = concatenate([block[part] for block in blocks])
                arrays |= {f"{stream}_{name}": ragged.flat, f"{stream}_offsets": ragged.offsets}
        np.savez(cache, **arrays)
    stored = np.load(cache)
    return {
        stream: tuple(
            Ragged(stored[f"{stream}_{name}"], stored[f"{stream}_offsets"])
            for name in ("ids", "roles")
        )
        for stream in STREAMS
    }


def write_block(block: int, stream: str) -> list[list[Part]]:
    """BLOCK examples of one seeded stream."""
    seed = SEED_OFFSET + FIRST_BLOCK * (1 + STREAMS.index(stream)) + block
    rng = random.Random(seed)
    write = {"rated": rated_example, "verbalized": verbalized_example}[stream]
    return [write(story, rng) for story in islice(stories(seed, "train", TRAINING_LEVELS), BLOCK)]


def _encode_block(
    block: int, *, stream: str, tokenizer_folder: Path
) -> tuple[list[Any], list[Any]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    ids: list[Any] = []
    roles: list[Any] = []
    for parts in write_block(block, stream):
        encoded = [
            encoding.ids
            for encoding in tokenizer.encode_batch(
                [part.text for part in parts], add_special_tokens=False
            )
        ]
        ids.append(np.concatenate(encoded).astype(np.uint16))
        lengths = [len(part) for part in encoded]
        roles.append(np.repeat([part.role for part in parts], lengths).astype(np.uint16))
    return ids, roles


def _other_answer(answer: int, rng: random.Random) -> int:
    """A second candidate: near the first, positive and never equal to it."""
    while True:
        other = answer + rng.choice((-1, 1)) * rng.choice((1, 10, 20, 40, 80, 100, 100, 200, 1000))
        if other > 0:
            return other


def _array(candidates: list[tuple[str, int]]) -> str:
    entries = (
        f'{{"candidate": {json.dumps(candidate)}, "confidence": {_decimal(hundredths)}}}'
        for candidate, hundredths in candidates
    )
    return f"[{', '.join(entries)}]"


def _decimal(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02d}"
