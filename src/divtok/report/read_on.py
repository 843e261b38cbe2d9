"""How many responses a model read past the context it was trained with, in words.

Said below every table with a column of such an estimator, on the report's page and in the JSON.
"""

from __future__ import annotations

from collections.abc import Sequence

from divtok.records import Evaluation
from divtok.report.note import Note
from divtok.report.tables import label


def read_on(evaluations: Sequence[Evaluation]) -> list[str]:
    """A sentence for each estimator, over all groups; none where no response was longer."""
    sums: dict[tuple[str, int], list[int]] = {}
    for e in evaluations:
        if e.beyond is not None and e.trained_length is not None:
            found = sums.setdefault((e.estimator, e.trained_length), [0, 0])
            found[0], found[1] = found[0] + e.beyond, found[1] + e.n_scored
    return [
        f"{label(name)}: {_longer(beyond, of, trained)}"
        for (name, trained), (beyond, of) in sums.items()
        if beyond
    ]


def read_on_note(evaluations: Sequence[Evaluation]) -> Note:
    """A line for each group; in the terminal the sentence below the tables is enough."""

    def value(evaluation: Evaluation) -> dict[str, int | None] | None:
        if evaluation.beyond is None:
            return None
        return {
            "beyond": evaluation.beyond,
            "of": evaluation.n_scored,
            "trained_length": evaluation.trained_length,
        }

    return Note(
        key="read_on",
        heading="Read on",
        title="Longer than what a model was trained to read",
        about="The reward model read these on past its trained context, where its numbers are less "
        "sure. `prm.max_length=trained` leaves such responses out.",
        lines=tuple(
            f"{e.generator} on {e.benchmark}, {label(e.estimator)}: "
            f"{_longer(e.beyond, e.n_scored, e.trained_length)}"
            for e in evaluations
            if e.beyond and e.trained_length is not None
        ),
        value=value,
        short=(),
    )


def _longer(beyond: int, of: int, trained: int) -> str:
    are = "is longer" if beyond == 1 else "are longer"
    return (
        f"{beyond:,} of {of:,} scored responses {are} than the {trained:,} tokens it was trained "
        "on; it read on."
    )
