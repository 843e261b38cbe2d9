"""Equal in value, for answers that are mathematics: exact rules, then algebra in worker processes.

The rules settle most answers at once, in this process. Only the others go to workers with a time
and a memory limit, where math-verify compares them, and no worker is started before the first of
these. What cannot be decided is undetermined, and never passed off as wrong.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from divtok.grade.grader import GRADERS, Case, Compare, Grader, Judging
from divtok.grade.maths.equivalence import decide

if TYPE_CHECKING:  # what starts processes is slow to import, and most answers do not need it
    from divtok.grade.maths.workers import WorkerPool


class _Maths(AbstractContextManager[Compare]):
    # Not a generator: one that is collected after a fork would end the parent's workers.

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None

    def __enter__(self) -> Compare:
        return self._compare

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.close()

    def _compare(self, case: Case) -> Judging:
        judgement = decide(gold=case.gold, answer=case.answer)
        return self._started().submit(case) if judgement is None else judgement

    def _started(self) -> WorkerPool:
        from divtok.grade.maths.workers import WorkerPool

        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(workers=self._workers)
            return self._pool


GRADERS.add("maths", Grader("maths", "Equal in value, as mathematics.", _Maths))
