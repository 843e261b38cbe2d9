"""Graders whose comparisons may take long: worker processes, started when the first is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from divtok.grade.grader import Case, Compare, Judging
from divtok.grade.judgement import Judgement

if TYPE_CHECKING:  # what starts processes is slow to import, and most answers do not need it
    from divtok.grade.maths.workers import WorkerPool


class Pooled(AbstractContextManager[Compare]):
    """What `decide` settles is settled at once; the rest is compared by `module` in a worker."""

    # Not a generator: one that is collected after a fork would end the parent's workers.

    def __init__(
        self, workers: int, module: str, decide: Callable[[Case], Judgement | None]
    ) -> None:
        self._workers, self._module, self._decide = workers, module, decide
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
        judgement = self._decide(case)
        return self._started().submit(case) if judgement is None else judgement

    def _started(self) -> WorkerPool:
        from divtok.grade.maths.workers import WorkerPool

        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(workers=self._workers, module=self._module)
            return self._pool
