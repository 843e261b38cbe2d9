"""Sentences of the share of right answers that confidences are stated for, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])


def stated_for(names: Sequence[str], share: str) -> str:
    return f"{listed(names)} {_one_or_more(names, 'is', 'are')} stated for {share} right answers"


def mapped_at(names: Sequence[str], share: str) -> str:
    """Where the share is the one among the responses that a map was fitted on."""
    fitted = _one_or_more(names, "its map was", "their maps were")
    return f"{stated_for(names, share)}: {fitted} fitted at {share}"


def as_given(names: Sequence[str]) -> str:
    """What an estimator gives, without any share."""
    return f"{listed(names)} {_one_or_more(names, 'as it is', 'as they are')}"


def _one_or_more(names: Sequence[str], one: str, more: str) -> str:
    return one if len(names) == 1 else more
