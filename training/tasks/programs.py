"""Programs: what becomes of a list of digits under a sequence of operations.

The solution writes the whole list after each operation. Sorting and turning a long list are hard
for a small model, dropping its end is not; nothing is looked up but the list before.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from training.tasks.task import Task
from training.wording import maybe, pick, sentence

Name = Literal["reverse", "left", "right", "up", "down", "swap", "drop", "add", "mirror", "odd"]
Digits = tuple[int, ...]

SHORTEST = 3  # no operation leaves fewer digits
# Digits at first, operations.
_LEVELS = ((4, 1), (4, 2), (5, 2), (5, 3), (6, 4), (7, 5))

_ORDER: Mapping[Name, tuple[str, ...]] = {
    "reverse": ("Reverse it.", "Turn it around.", "Read it backwards."),
    "left": ("Rotate it left by {i}.", "Move the first {i} to the end."),
    "right": ("Rotate it right by {i}.", "Move the last {i} to the front."),
    "up": ("Sort it.", "Put it in rising order."),
    "down": ("Sort it downwards.", "Put it in falling order."),
    "swap": ("Swap places {i} and {j}.", "Exchange number {i} with number {j}."),
    "drop": ("Drop number {i}.", "Remove what is at place {i}."),
    "add": ("Add {i} to each, modulo 10.", "Raise each by {i}, dropping tens."),
    "mirror": ("Replace each d by 9 - d.", "Take each away from 9."),
    "odd": ("Move the odd ones to the front.", "Put odd ones before even ones."),
}
_START = ("Start with {list}.", "Take the list {list}.", "Given is {list}.", "A list reads {list}.")
_ASK = ("What is the list in the end?", "What comes out?", "Which list remains?")

# Chance of an opener, of an aside and of a remark in each line, for each manner of writing.
_MANNERS = ((0.0, 0.0, 0.05), (0.9, 0.1, 0.1), (0.4, 0.5, 0.5), (0.8, 0.8, 0.8))
_OPENER = ("then", "step by step", "okay", "in turn", "the program goes on", "line done", "again")
_DOING: Mapping[Name, tuple[str, ...]] = {
    "reverse": ("reversed", "backwards", "end to start", "turned around", "from behind"),
    "left": ("rotated left by {i}", "{i} to the end", "shifting {i} leftwards", "left turn of {i}"),
    "right": ("rotated right by {i}", "{i} to the front", "right turn of {i}", "shifting {i} up"),
    "up": ("sorted", "in rising order", "smallest first", "lined up by size"),
    "down": ("sorted downwards", "in falling order", "largest first", "from big to small"),
    "swap": ("places {i} and {j} swapped", "{i} and {j} exchanged", "{j} for {i} and back"),
    "drop": ("without number {i}", "place {i} removed", "{i} is gone", "dropping place {i}"),
    "add": ("each plus {i}", "all raised by {i}", "{i} added everywhere", "going up by {i}"),
    "mirror": ("each from 9", "mirrored at 9", "nine minus each", "taken from nine"),
    "odd": ("odd ones first", "odd before even", "odd to the front", "even ones last"),
}
_ASIDE = (
    ", as the program says,",
    ", which takes some care,",
    ", done in one go,",
    ", keeping all else,",
    ", by the rule,",
)
_GIVES = (":", " gives", " makes", " is", " leads to", " leaves us with", " turns it into")
_REMARK = (
    " for now",
    ", and on we go",
    " as the new list",
    ", noted",
    " on the paper",
    ", ready for what follows",
)
# How a solution writes its lists: before, between, after the digits.
_LISTS = (("", " ", ""), ("[", ", ", "]"), ("", ", ", ""), ("(", " ", ")"))
_END = (
    "The answer is {answer}",
    "The program ends with {answer}",
    "Output {answer}",
    "What remains is {answer}",
    "So we get {answer}",
)


@dataclass(frozen=True, slots=True)
class Operation:
    """`i` and `j` are places from 1 on, an amount or nothing, as the operation needs."""

    name: Name
    i: int = 0
    j: int = 0


@dataclass(frozen=True)
class Program:
    start: Digits
    operations: tuple[Operation, ...]
    question: str

    @cached_property
    def lists(self) -> tuple[Digits, ...]:
        """The list after each operation."""
        found: list[Digits] = []
        now = self.start
        for operation in self.operations:
            now = apply(operation, now)
            found.append(now)
        return tuple(found)

    @property
    def answer(self) -> str:
        return "".join(map(str, self.lists[-1]))

    @property
    def content(self) -> str:
        return repr((self.start, [(o.name, o.i, o.j) for o in self.operations]))


def apply(operation: Operation, digits: Digits) -> Digits:
    i, j = operation.i, operation.j
    changed = list(digits)
    match operation.name:
        case "reverse":
            changed.reverse()
        case "left":
            changed = changed[i:] + changed[:i]
        case "right":
            changed = changed[-i:] + changed[:-i]
        case "up":
            changed.sort()
        case "down":
            changed.sort(reverse=True)
        case "swap":
            changed[i - 1], changed[j - 1] = changed[j - 1], changed[i - 1]
        case "drop":
            del changed[i - 1]
        case "add":
            changed = [(digit + i) % 10 for digit in changed]
        case "mirror":
            changed = [9 - digit for digit in changed]
        case "odd":
            changed.sort(key=lambda digit: digit % 2 == 0)
    return tuple(changed)


def draw(rng: random.Random, level: int) -> Program:
    length, steps = _LEVELS[level]
    start = tuple(rng.randrange(10) for _ in range(length))
    operations: list[Operation] = []
    last: Name | None = None
    for _ in range(steps):
        operation = _draw_operation(rng, length, last)
        operations.append(operation)
        length -= operation.name == "drop"
        last = operation.name
    sentences = [
        rng.choice(_START).format(list=" ".join(map(str, start))),
        *(rng.choice(_ORDER[o.name]).format(i=o.i, j=o.j) for o in operations),
        rng.choice(_ASK),
    ]
    return Program(start, tuple(operations), " ".join(sentences))


def _draw_operation(rng: random.Random, length: int, last: Name | None) -> Operation:
    """Not the one before again, and no drop where that leaves too few."""
    names: list[Name] = [n for n in _ORDER if n != last and (n != "drop" or length > SHORTEST)]
    name = rng.choice(names)
    if name == "left" or name == "right":
        return Operation(name, rng.randint(1, min(3, length - 1)))
    if name == "swap":
        i, j = sorted(rng.sample(range(1, length + 1), 2))
        return Operation(name, i, j)
    if name == "drop":
        return Operation(name, rng.randint(1, length))
    return Operation(name, rng.randint(1, 9)) if name == "add" else Operation(name)


def write(case: Program, rng: random.Random) -> str:
    manner = rng.choice(_MANNERS)
    around = rng.choice(_LISTS)
    lines = [
        _line(operation, digits, manner, around, rng)
        for operation, digits in zip(case.operations, case.lists, strict=True)
    ]
    ending = pick(_END, rng).format(answer=f"\\boxed{{{case.answer}}}")
    return "\n".join([*lines, f"{ending}."])


def _line(
    operation: Operation,
    digits: Sequence[int],
    manner: tuple[float, float, float],
    around: tuple[str, str, str],
    rng: random.Random,
) -> str:
    opener, aside, remark = manner
    begin = maybe(opener, _OPENER, rng)
    doing = pick(_DOING[operation.name], rng).format(i=operation.i, j=operation.j)
    head = f"{begin}, {doing}" if begin else doing
    before, between, after = around
    written = f"{before}{between.join(map(str, digits))}{after}"
    gives = maybe(aside, _ASIDE, rng) + pick(_GIVES, rng)
    return sentence(f"{head}{gives} {written}{maybe(remark, _REMARK, rng)}")


PROGRAMS = Task(
    "programs", "What a list of digits becomes, operation by operation.", len(_LEVELS), draw, write
)
