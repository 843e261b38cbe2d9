"""grade/: trajectory -> grade. Finds the answer and compares it with the gold answer.

How they are compared is a grader's business. This stage knows no model and no token: where the
answer is, a grade gives in characters, and trace/ maps those to tokens.
"""

from divtok.grade.answers import grade_answer, judge_answer
from divtok.grade.grader import GRADERS, Case, Grader
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, unanswered, undetermined
from divtok.grade.trajectories import grade_trajectories

__all__ = [
    "CORRECT",
    "GRADERS",
    "INCORRECT",
    "Case",
    "Grader",
    "Judgement",
    "grade_answer",
    "grade_trajectories",
    "judge_answer",
    "unanswered",
    "undetermined",
]
