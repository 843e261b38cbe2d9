"""Two sets of verdicts on the same responses, compared by hand."""

from __future__ import annotations

import pytest

from divtok.evaluate.agreement import Agreement, Judged, compare
from divtok.records import Verdict

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
EMPTY, OPEN = Verdict.UNANSWERED, Verdict.UNDETERMINED


def judged(
    ours: Verdict | None, theirs: Verdict | None, key: str = "k", group: str = "g"
) -> Judged:
    return Judged(key, "b", group, "p", "1", "1", ours, "s", "1", theirs)


@pytest.mark.parametrize(
    ("ours", "theirs", "how"),
    [
        (RIGHT, RIGHT, "agree"),
        (WRONG, WRONG, "agree"),
        (EMPTY, WRONG, "agree"),
        (EMPTY, EMPTY, "agree"),
        (RIGHT, WRONG, "disagree"),
        (WRONG, RIGHT, "disagree"),
        (EMPTY, RIGHT, "disagree"),
        (RIGHT, EMPTY, "disagree"),
        (RIGHT, None, "only_ours"),
        (EMPTY, OPEN, "only_ours"),
        (OPEN, WRONG, "only_theirs"),
        (None, RIGHT, "only_theirs"),
        (OPEN, None, "neither"),
        (None, OPEN, "neither"),
    ],
)
def test_how_two_verdicts_compare(ours: Verdict | None, theirs: Verdict | None, how: str) -> None:
    row = judged(ours, theirs)
    found = compare([row], theirs="s")
    assert found.groups == [Agreement("b", "g", **{how: 1})]
    assert found.disagreements == ([row] if how == "disagree" else [])


def test_groups_are_counted_apart() -> None:
    rows = [judged(RIGHT, RIGHT), judged(RIGHT, WRONG, "x", "h"), judged(RIGHT, RIGHT)]
    found = compare(rows, theirs="s")
    assert found.groups == [Agreement("b", "g", agree=2), Agreement("b", "h", disagree=1)]
    assert [row.key for row in found.disagreements] == ["x"]
    assert found.groups[1].sentence() == (
        "h on b: ours and theirs agree on 0 and disagree on 1; 0 are decided only by ours, 0 only "
        "by theirs."
    )
