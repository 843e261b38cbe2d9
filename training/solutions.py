"""How a training solution is worded: many ways to say each step, all equally right.

The wording is drawn independently of the numbers, so its entropy says nothing about correctness, as
in the prose of large models. A solution keeps one manner, from bare equations to chatty sentences;
that moves its length and its mean token probability about, and neither tells whether it is right.
Every line is one equation; the last line gives the answer. Only training uses this: the package
itself never writes a solution.
"""

from __future__ import annotations

import random

from divtok.problems.arithmetic import Equation, Story
from training.mistakes import Attempt, right_attempt
from training.wording import pick

# Chance of an opener, a lead and a tail in each line, for each manner of writing.
_MANNERS = ((0.0, 0.05, 0.05), (0.9, 0.2, 0.1), (0.3, 0.9, 0.3), (0.9, 0.9, 0.9))

_FIRST = ("First", "To begin", "To start", "Initially", "As a first step", "Step one")
_NEXT = ("Next", "Then", "After that", "Now", "Moving on", "Following this", "Afterwards")
_LAST = ("Finally", "Lastly", "At last", "To finish", "In the end", "As a last step")
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
    ", so this is the number of {item} that we carry into the next part of the story",
    ", and we keep that in mind",
    ", which is what we want to know about the {item} at this point",
    " for {name}",
    ", as the story tells us in its own words",
    ", and with that one more part of the work is done and we can go on",
    " in total",
    ", a new amount of {item} for {name} to look after",
)  # fmt: skip
_END = (
    "The answer is", "So the answer is", "The final answer is", "Therefore the result is",
    "Hence {name} has", "This gives", "In short, the answer is", "All in all we have",
)  # fmt: skip


def write_solution(
    story: Story, rng: random.Random, *, attempt: Attempt | None = None, boxed: bool = True
) -> str:
    """One worded solution of a story: its own, or an attempt at it that may go wrong.

    The last line gives the answer, in \\boxed{} unless another form of it is to follow.
    """
    attempt = attempt or right_attempt(story)
    manner = rng.choice(_MANNERS)
    equations = attempt.equations
    lines = [
        _line(equation, story, _openers(position, len(equations)), manner, rng)
        for position, equation in enumerate(equations)
    ]
    ending = pick(_END, rng).format(name=story.name)
    answer = f"\\boxed{{{attempt.answer}}}" if boxed else str(attempt.answer)
    return "\n".join([*lines, f"{ending} {answer}."])


def _openers(position: int, total: int) -> tuple[str, ...]:
    if position == 0:
        return _FIRST
    return _LAST if position == total - 1 else _NEXT


def _line(
    equation: Equation,
    story: Story,
    openers: tuple[str, ...],
    manner: tuple[float, float, float],
    rng: random.Random,
) -> str:
    opener, lead, tail = (rng.random() < chance for chance in manner)
    body = pick(_SPOKEN[equation.sign], rng).format(
        l=equation.left, r=equation.right, x=equation.result
    )
    if lead:
        body = f"{pick(_LEAD, rng)} {body}"
    if opener:
        body = f"{pick(openers, rng)}, {body}"
    if tail:
        body += pick(_TAIL, rng).format(name=story.name, item=story.item)
    return f"{body[0].upper()}{body[1:]}."
