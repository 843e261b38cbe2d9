"""The embedded arithmetic benchmarks: seeded word problems in four difficulties.

A story starts with an amount and changes it step by step; the question asks for what is left. This
module writes questions and knows their answers. How a solution is worded is the business of the
training code: nothing here is seen by a model except the question.

The numbers of a story (not its names) decide which split it belongs to, by hash, so the benchmarks,
the fitting set and the training data are disjoint by construction, however many are drawn.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.records import Problem

Operation = Literal["add", "sub", "mul", "add_lots", "sub_lots"]
Split = Literal["train", "test", "fit"]
Difficulty = Literal["easy", "medium", "hard", "contest"]

LARGEST_AMOUNT = 999_999

NAMES = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jun", "Kim", "Leo",
    "Mia", "Nils", "Olga", "Pia", "Rosa", "Sam", "Tom", "Uma", "Vera", "Will", "Yara", "Zoe",
)  # fmt: skip
ITEMS = (
    "apples", "beads", "books", "bricks", "buttons", "cards", "coins", "corks", "eggs", "marbles",
    "nails", "nuts", "pearls", "pebbles", "pencils", "plums", "seeds", "shells", "stamps",
    "tickets",
)  # fmt: skip

_START = (
    "{name} has {n} {item}.",
    "{name} owns {n} {item}.",
    "At first {name} has {n} {item}.",
    "There are {n} {item} in the store of {name}.",
)
_SENTENCES: dict[Operation, tuple[str, ...]] = {
    "add": (
        "{name} buys {a} more {item}.",
        "{name} finds {a} {item}.",
        "A friend brings {a} {item}.",
        "Another {a} {item} arrive.",
    ),
    "sub": (
        "{name} sells {a} {item}.",
        "{name} gives away {a} {item}.",
        "Later {a} {item} get lost.",
        "A neighbour takes {a} {item}.",
    ),
    "mul": (
        "Then the number of {item} grows to {a} times as many.",
        "Soon there are {a} times as many {item}.",
    ),
    "add_lots": (
        "{name} receives {a} boxes with {b} {item} each.",
        "Then {a} crates arrive, each with {b} {item}.",
        "{name} fills {a} bags with {b} new {item} each.",
    ),
    "sub_lots": (
        "{name} ships {a} boxes with {b} {item} each.",
        "Then {a} bags of {b} {item} each are sold.",
        "Thieves steal {a} sacks, each with {b} {item}.",
    ),
}
_QUESTION = (
    "How many {item} are there in the end?",
    "How many {item} does {name} have now?",
    "How many {item} are left?",
)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the amount: by `a`, to `a` times as many, or by `a` lots of `b`."""

    operation: Operation
    a: int
    b: int = 0


@dataclass(frozen=True, slots=True)
class Equation:
    """left (sign) right = result; one line of a solution."""

    left: int
    sign: Literal["+", "-", "*"]
    right: int
    result: int


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    item: str
    start: int
    steps: tuple[Step, ...]
    question: str

    @property
    def equations(self) -> tuple[Equation, ...]:
        return tuple(_equations(self.start, self.steps))

    @property
    def answer(self) -> int:
        return self.equations[-1].result

    @property
    def split(self) -> Split:
        """A twentieth of all stories each for testing and fitting, the rest for training."""
        numbers = repr((self.start, [(s.operation, s.a, s.b) for s in self.steps]))
        bucket = hashlib.sha256(numbers.encode()).digest()[0] % 20
        return "test" if bucket == 0 else "fit" if bucket == 1 else "train"


@dataclass(frozen=True, slots=True)
class Level:
    """What makes a difficulty: how many steps, and how many of them are hard.

    A hard step is a product of two two-digit numbers; the others are sums, differences and
    products that a small model gets right. Length and hardness vary apart, so that a long solution
    need not be a doubtful one.
    """

    steps: tuple[int, int]
    hard_steps: tuple[int, int]


LEVELS: dict[Difficulty, Level] = {
    "easy": Level((1, 3), (0, 2)),
    "medium": Level((2, 4), (0, 3)),
    "hard": Level((3, 5), (0, 5)),
    "contest": Level((4, 6), (0, 6)),
}
DIFFICULTIES: tuple[Difficulty, ...] = tuple(LEVELS)


def stories(seed: int, split: Split, levels: Sequence[Level]) -> Iterator[Story]:
    """An endless, seeded stream of stories of one split, cycling through the levels."""
    rng = random.Random(seed)
    while True:
        for level in levels:
            while (story := _draw_story(rng, level)).split != split:
                pass
            yield story


def arithmetic_problems(
    benchmark: str,
    *,
    difficulties: tuple[Difficulty, ...],
    split: Split,
    count: int,
    seed: int,
) -> list[Problem]:
    """The first `count` different questions of one stream, as a benchmark."""
    problems: dict[str, Problem] = {}
    for story in stories(seed, split, [LEVELS[difficulty] for difficulty in difficulties]):
        if len(problems) == count:
            break
        if story.question not in problems:
            identity, answer = f"{benchmark}-{len(problems):04d}", str(story.answer)
            problems[story.question] = Problem(identity, benchmark, story.question, answer)
    return list(problems.values())


def story_of(question: str) -> Story | None:
    """The story that a question tells, read back; None where it is not one of these."""
    first, *told = _SENTENCE_END.split(question)
    found = _read(first, _START)
    if found is None or len(told) < 2 or _read(told[-1], _QUESTION) is None:
        return None
    steps = tuple(step for step in map(_step_told, told[:-1]) if step is not None)
    if len(steps) < len(told) - 1:
        return None
    return Story(found["name"], found["item"], int(found["n"]), steps, question)


def _draw_story(rng: random.Random, level: Level) -> Story:
    name, item = rng.choice(NAMES), rng.choice(ITEMS)
    start = amount = _number(rng, rng.randint(3, 4))
    count = rng.randint(*level.steps)
    hard = min(count, rng.randint(*level.hard_steps))
    hardness = [True] * hard + [False] * (count - hard)
    rng.shuffle(hardness)
    steps: list[Step] = []
    for is_hard in hardness:
        step = _draw_step(rng, amount, is_hard=is_hard)
        steps.append(step)
        amount = _apply(amount, step)
    words = {"name": name, "item": item}
    sentences = [
        rng.choice(_START).format(**words, n=start),
        *(rng.choice(_SENTENCES[s.operation]).format(**words, a=s.a, b=s.b) for s in steps),
        rng.choice(_QUESTION).format(**words),
    ]
    return Story(name, item, start, tuple(steps), " ".join(sentences))


def _draw_step(rng: random.Random, amount: int, *, is_hard: bool) -> Step:
    """A step that keeps the amount between 1 and LARGEST_AMOUNT; redrawn until it does."""
    while True:
        lots: Operation = rng.choice(("add_lots", "sub_lots"))
        if is_hard:
            step = Step(lots, rng.randint(12, 99), rng.randint(12, 99))
        elif rng.random() < 0.3:
            step = Step(lots, rng.randint(2, 9), rng.randint(11, 99))
        elif rng.random() < 0.1 and amount < 1000:
            step = Step("mul", rng.randint(2, 5))
        else:
            change: Operation = rng.choice(("add", "sub"))
            step = Step(change, _number(rng, rng.randint(2, 3)))
        if 1 <= _apply(amount, step) <= LARGEST_AMOUNT:
            return step


def _number(rng: random.Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


def _apply(amount: int, step: Step) -> int:
    return list(_equations(amount, (step,)))[-1].result


def _equations(start: int, steps: tuple[Step, ...]) -> Iterator[Equation]:
    amount = start
    for step in steps:
        before, change = amount, step.a
        if step.operation == "mul":
            amount *= change
            yield Equation(before, "*", change, amount)
            continue
        if step.operation in ("add_lots", "sub_lots"):
            change = step.a * step.b
            yield Equation(step.a, "*", step.b, change)
        sign: Literal["+", "-"] = "+" if step.operation in ("add", "add_lots") else "-"
        amount += change if sign == "+" else -change
        yield Equation(before, sign, change, amount)


_SENTENCE_END = re.compile(r"(?<=\.) ")
_BLANKS = {"name": "[A-Z][a-z]+", "item": "[a-z]+", "n": r"\d+", "a": r"\d+", "b": r"\d+"}


def _read(sentence: str, wordings: Sequence[str]) -> dict[str, str] | None:
    """What stands in the blanks of the wording that a sentence has."""
    for wording in wordings:
        pattern = re.escape(wording).replace(r"\{", "{").replace(r"\}", "}")
        groups = {name: f"(?P<{name}>{what})" for name, what in _BLANKS.items()}
        found = re.fullmatch(pattern.format(**groups), sentence)
        if found is not None:
            return found.groupdict()
    return None


def _step_told(sentence: str) -> Step | None:
    for operation, wordings in _SENTENCES.items():
        found = _read(sentence, wordings)
        if found is not None:
            return Step(operation, int(found["a"]), int(found.get("b", 0)))
    return None
