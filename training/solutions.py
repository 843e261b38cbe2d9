"""How a training solution is worded: many ways to say each step, all equally right.

The wording is drawn independently of the numbers, so it carries entropy that says nothing about
correctness, as in the prose of large models. Every line is one equation; the last line boxes the
answer. Only training uses this: the package itself never writes a solution.
"""

from __future__ import annotations

import random

from divtok.problems.arithmetic import Equation, Story

_FIRST = ("First", "To begin", "To start", "At the start", "Initially", "As a first step", "Step one")
_NEXT = ("Next", "Then", "After that", "Now", "Moving on", "Following this", "Afterwards", "In turn")
_LAST = ("Finally", "Lastly", "At last", "To finish", "In the end", "As a last step", "To close")
_LEAD = (
    "we compute", "we work out", "I calculate", "let us find", "we need", "we can see that",
    "it follows that", "I get", "we obtain", "the story says", "one finds", "we note that",
)  # fmt: skip
_SPOKEN: dict[str, tuple[str, ...]] = {
    "+": (
        "{l} + {r} = {x}",
        "{l} plus {r} is {x}",
        "{l} and {r} more make {x}",
        "the sum {l} + {r} equals {x}",
        "adding {r} to {l} gives {x}",
    ),
    "-": (
        "{l} - {r} = {x}",
        "{l} minus {r} is {x}",
        "{l} less {r} leaves {x}",
        "the difference {l} - {r} equals {x}",
        "taking {r} from {l} gives {x}",
    ),
    "*": (
        "{l} * {r} = {x}",
        "{l} times {r} is {x}",
        "{l} lots of {r} make {x}",
        "the product {l} * {r} equals {x}",
        "multiplying {l} by {r} gives {x}",
    ),
}
_TAIL = (
    "", "", "", " for the {item}", " in total", " so far", ", as the story tells",
    ", which is what we want", ", and we keep that", " for {name}", ", a new amount of {item}",
    ", and so we go on", ", and that is one part done",
)  # fmt: skip
_END = (
    "The answer is", "So the answer is", "The final answer is", "Therefore the result is",
    "Hence {name} has", "This gives", "In short, the answer is", "All in all we have",
)  # fmt: skip


def write_solution(story: Story, rng: random.Random) -> str:
    """One worded solution of a story, ending in \\boxed{answer}."""
    equations = story.equations
    lines = [
        _line(equation, story, _openers(position, len(equations)), rng)
        for position, equation in enumerate(equations)
    ]
    ending = rng.choice(_END).format(name=story.name)
    return "\n".join([*lines, f"{ending} \\boxed{{{story.answer}}}."])


def _openers(position: int, total: int) -> tuple[str, ...]:
    if position == 0:
        return _FIRST
    return _LAST if position == total - 1 else _NEXT


def _line(equation: Equation, story: Story, openers: tuple[str, ...], rng: random.Random) -> str:
    spoken = rng.choice(_SPOKEN[equation.sign]).format(
        l=equation.left, r=equation.right, x=equation.result
    )
    body = spoken
    if rng.random() < 0.7:
        body = f"{rng.choice(_LEAD)} {spoken}"
    if rng.random() < 0.8:
        body = f"{rng.choice(openers)}, {body}"
    tail = rng.choice(_TAIL).format(name=story.name, item=story.item)
    return f"{body[0].upper()}{body[1:]}{tail}."
