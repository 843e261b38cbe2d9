"""Equal in value, for answers that are mathematics: exact rules, then algebra in worker processes.

The rules settle most answers at once, in this process. Only the others go to workers with a time
and a memory limit, where math-verify compares them, and no worker is started before the first of
these. What cannot be decided is undetermined, and never passed off as wrong.
"""

from __future__ import annotations

from divtok.grade.grader import GRADERS, Case, Grader
from divtok.grade.judgement import Judgement
from divtok.grade.pooled import Pooled


def _decide(case: Case) -> Judgement | None:
    from divtok.grade.maths.equivalence import decide  # a command that grades nothing starts sooner

    return decide(gold=case.gold, answer=case.answer)


def _open(workers: int) -> Pooled:
    return Pooled(workers, "divtok.grade.maths.symbolic", _decide)


GRADERS.add("maths", Grader("maths", "Equal in value, as mathematics.", _open))
