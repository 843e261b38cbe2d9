"""Everyday word problems with small numbers, for a real instruct model that is asked few-shot.

One or two steps each; the numbers of a problem decide by hash whether it is for testing, fitting
or learning from, as in the other tasks. Writes questions and knows their answers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from divtok.records import Problem

Split = Literal["train", "test", "fit"]
NAMES = (
    "Alice", "Bob", "Carol", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "Jack", "Karen",
    "Louis", "Maria", "Nick", "Paula", "Robert", "Sarah", "Thomas", "Ursula", "Victor",
)  # fmt: skip
_ITEMS = (
    "apples",
    "books",
    "cards",
    "cookies",
    "flowers",
    "marbles",
    "oranges",
    "pens",
    "stickers",
)
_START = (
    "{name} has {n} {item}.",
    "{name} starts with {n} {item}.",
    "There are {n} {item} on a table.",
)
_STEPS = {
    "add": (
        "{name} buys {a} more {item}.",
        "A friend brings {a} {item}.",
        "{name} finds {a} {item}.",
    ),
    "sub": (
        "{name} gives away {a} {item}.",
        "{a} of the {item} get lost.",
        "{name} sells {a} {item}.",
    ),
}
_ASK = ("How many {item} are there now?", "How many {item} does {name} have in the end?")
# Steps and the largest number of each benchmark.
LEVELS = {"easy": ((1, 1), 9), "hard": ((1, 1), 20)}


@dataclass(frozen=True, slots=True)
class WordProblem:
    question: str
    answer: int
    split: Split


def _draw(rng: random.Random, steps: tuple[int, int], largest: int) -> WordProblem:
    name, item = rng.choice(NAMES), rng.choice(_ITEMS)
    amount = rng.randint(3, largest)
    numbers: list[object] = [amount]
    said = [rng.choice(_START).format(name=name, item=item, n=amount)]
    for _ in range(rng.randint(*steps)):
        if amount < 2:
            break
        kind = rng.choice(("add", "sub"))
        a = rng.randint(1, amount - 1) if kind == "sub" else rng.randint(2, largest)
        amount += a if kind == "add" else -a
        numbers += [kind, a]
        said.append(rng.choice(_STEPS[kind]).format(name=name, item=item, a=a))
    said.append(rng.choice(_ASK).format(name=name, item=item))
    bucket = hashlib.sha256(repr(numbers).encode()).digest()[0] % 4
    split: Split = "test" if bucket == 0 else "fit" if bucket == 1 else "train"
    return WordProblem(" ".join(said), amount, split)


def _stream(seed: int, split: Split, level: str) -> Iterator[WordProblem]:
    rng = random.Random(seed)
    while True:
        found = _draw(rng, *LEVELS[level])
        if found.split == split:
            yield found


def word_problems(name: str, *, seed: int, split: Split, level: str, count: int) -> list[Problem]:
    """The first `count` different questions of one stream."""
    found: dict[str, Problem] = {}
    for problem in _stream(seed, split, level):
        if len(found) == count:
            break
        identity = f"{name}-{len(found):04d}"
        found.setdefault(
            problem.question, Problem(identity, name, problem.question, str(problem.answer))
        )
    return list(found.values())
