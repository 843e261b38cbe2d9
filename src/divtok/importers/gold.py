r"""Gold answers as the grader needs them: the answer alone, also where a file has a whole solution.

A solution says where its answer is: after "####", as in GSM8K, or in a `\boxed{}`. One that
does neither is refused, because every response would be graded wrong against it. Knows no format.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from divtok.errors import DataError
from divtok.protocols.boxed import find_boxed

_MARK = "####"
_AFTER_MARK = f"what follows the last '{_MARK}'"
_IN_BOX = "the last \\boxed{}"
# An answer of several lines, not a solution. Aligned equations are one, so they are not here.
_ARRAY = re.compile(
    r"\$*\s*\\begin\{(?P<kind>[a-z]*matrix|array|cases)\}.*\\end\{(?P=kind)\}\s*\$*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """Takes the answer out of every gold text of a source, and counts where it had to look."""

    next_step: str  # for a solution that does not say where its answer is
    _taken: Counter[str] = field(default_factory=Counter[str])

    def alone(self, gold: str | None, where: str) -> str | None:
        """The answer of a gold text; None where there is none."""
        if gold is None:
            return None
        answer, taken = _answer_alone(gold)
        if answer is None:
            raise DataError(
                f"{where}: the gold answer reads like a worked solution, and nothing in it says "
                "which part is the answer.",
                next_step=self.next_step,
            )
        if taken is not None:
            self._taken[taken] += 1
        return answer

    def notes(self, source: str) -> list[str]:
        return [
            f"{source}: {count} gold answers are worked solutions, of which {taken} is taken"
            for taken, count in self._taken.items()
        ]


def _answer_alone(gold: str) -> tuple[str | None, str | None]:
    """The answer, None where it cannot be told; and which part of a solution it is."""
    text = gold.strip()
    _, mark, after = text.rpartition(_MARK)
    after = after.strip()
    if mark and after and "\n" not in after:
        return after, _AFTER_MARK
    if not mark and "\n" not in text:
        return gold, None
    if (box := find_boxed(text)) is not None:
        return box.content, _IN_BOX
    return (gold if _ARRAY.fullmatch(text) else None), None
