r"""grade/: trajectory -> grade. Finds the answer and compares it with the gold answer.

Exact rules settle most answers at once, in this process; only the others go to worker processes
with a time and a memory limit, where math-verify compares them as mathematics. What cannot be
decided is undetermined, with a reason, and never passed off as wrong. This stage knows no model
and no token: `find_answer` gives character offsets, and trace/ maps them to tokens. Where an
answer comes with a stated confidence, `read_stated` reads both, and `read_rating` the reply to the
further question.
"""

from divtok.grade.grader import grade_answer, grade_trajectories, judge_answer
from divtok.grade.judgement import Judgement
from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.extract import extract_answer, find_answer
from divtok.protocols.stated import Stated, read_rating, read_stated

__all__ = [
    "AnswerSpan",
    "Judgement",
    "Stated",
    "extract_answer",
    "find_answer",
    "grade_answer",
    "grade_trajectories",
    "judge_answer",
    "read_rating",
    "read_stated",
]
