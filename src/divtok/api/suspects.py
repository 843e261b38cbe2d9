"""The steps of one response by how suspect they are."""

from __future__ import annotations

from divtok.api.result import Result
from divtok.api.tables import Records
from divtok.score.suspicion import SHOWN, SuspectStep, suspect_steps_of
from divtok.trace.steps import step_bounds, steps_of


def suspect_steps(result: Result) -> Records[SuspectStep]:
    """The steps of a response, the most suspect first: its lines, or the sentences of its one line.

    Where a response is wrong, the first one is where to look first. `Run.suspect_steps` is the same
    for a response of a run.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> result = divtok.confidence(question, "Let us add. We get 541.", pair=pair)
        >>> sorted((step.step, step.text) for step in divtok.suspect_steps(result))
        [(1, 'Let us add.'), (2, 'We get 541.')]
    """
    tokens = [token.text for token in result.tokens]
    text = "".join(tokens)
    steps = steps_of(text)
    bounds = step_bounds(text, steps, tokens)
    assert bounds is not None  # the text is theirs
    guard = result.tokens.guard
    found = suspect_steps_of(result.trace, text, steps, bounds, theta=result.theta, guard=guard)
    return Records(SuspectStep, found, shown=SHOWN)
