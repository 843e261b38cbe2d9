"""A small pool of worker processes that compare answers and can be killed at any time.

The pool knows pipes, deadlines and processes; what is compared, and how, is the workers' business.
Workers are plain child interpreters spoken to in JSON lines, so the pool needs no main guard and
works from scripts, notebooks, threads and servers alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from divtok.errors import DivtokError
from divtok.grade.grader import DEFAULT_WORKERS, Case, check_time_limit, check_workers
from divtok.grade.judgement import Judgement, undetermined
from divtok.records import Reason, Verdict

START_LIMIT = 60.0
MEMORY_BYTES = 2 * 1024**3
SYMBOLIC = "divtok.grade.maths.symbolic"


class WorkerPool:
    """Up to `workers` worker processes, started on demand, killed on time-out and replaced.

    `module` names the one whose `compare` they call.
    """

    def __init__(self, *, workers: int = DEFAULT_WORKERS, module: str = SYMBOLIC) -> None:
        check_workers(workers)
        self._module = module
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="divtok-grade")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._running: set[_Worker] = set()
        self._closed = False

    def submit(self, case: Case) -> Future[Judgement]:
        """Queue one comparison. The future fails only where no worker can be started at all."""
        check_time_limit(case.time_limit)
        return self._threads.submit(self._compare, case)

    def close(self) -> None:
        """Kill every worker and cancel what was still queued."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for worker in running:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in running:
            worker.reap()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _compare(self, case: Case) -> Judgement:
        judgement = self._compare_once(case)
        if judgement is None and not self._closed:
            # It may have died of something else (memory taken by others, a signal): try once more.
            judgement = self._compare_once(case)
        return judgement or undetermined("worker_died", "the grading worker died")

    def _compare_once(self, case: Case) -> Judgement | None:
        worker = self._take()
        try:
            return worker.compare(case)
        finally:
            if worker.usable:
                self._idle.put(worker)
            else:
                self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        worker.reap()
        with self._lock:
            self._running.discard(worker)

    def _take(self) -> _Worker:
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        with self._lock:
            if self._closed:
                raise DivtokError("The grading pool is closed.")
            worker = _Worker(self._module)
            self._running.add(worker)
        return worker


class _Worker:
    """One worker process. `usable` turns False for good once it was killed or died."""

    def __init__(self, module: str) -> None:
        if not sys.executable:
            raise DivtokError(
                "Grading needs a Python interpreter to start its workers with, and this program "
                "does not name one.",
                next_step="Set sys.executable to the path of a Python interpreter.",
            )
        command = [sys.executable, "-P", "-m", "divtok.grade.maths.worker_main"]
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [*command, str(os.getpid()), str(MEMORY_BYTES), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            env=_environment(),
        )
        self._ready = False
        self.usable = True

    def compare(self, case: Case) -> Judgement | None:
        """One comparison, undetermined when the time runs out; None when the worker died of it."""
        if not self._ready:
            self._wait_until_ready()
        request = {"gold": case.gold, "answer": case.answer, "time_limit": case.time_limit}
        reply, late = self._exchange(json.dumps(request), case.time_limit)
        if reply is not None:
            self.usable = self.usable and "last" not in reply
            reason = reply["reason"]
            return Judgement(Verdict(reply["verdict"]), reason and Reason(**reason))
        return undetermined("time_limit", f"timeout after {case.time_limit:g} s") if late else None

    def kill(self) -> None:
        self.usable = False
        self._process.kill()

    def reap(self) -> None:
        """Wait for the killed process and close its pipes, so that nothing of it is left."""
        self._process.kill()
        # A request that was never read is still in the buffer, and closing tries to flush it.
        with contextlib.suppress(OSError), self._process:
            pass

    def _wait_until_ready(self) -> None:
        reply, late = self._exchange(None, START_LIMIT)
        if reply is not None and "ready" in reply:
            self._ready = True
            return
        status = "took too long" if late else f"ended with status {self._process.wait()}"
        why = "" if reply is None else f" ({reply['error']})"
        raise DivtokError(
            f"The grading worker did not start: it {status}{why}.",
            next_step="Check the installation with: python -c 'import math_verify'",
        )

    def _exchange(
        self, request: str | None, time_limit: float
    ) -> tuple[dict[str, Any] | None, bool]:
        """Send a request and read one reply: (reply or None, whether the time ran out)."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self.kill()

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(time_limit, end)
        timer.daemon = True
        timer.start()
        try:
            if request is not None:
                self._process.stdin.write(request + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:  # a broken pipe, which Windows calls an invalid argument
            line = ""
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            self.usable = False
            return None, late.is_set()
        return json.loads(line), False


def _environment() -> dict[str, str]:
    """The parent's environment, with its import path: the worker imports what the parent would."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    # Every extra thread of a numeric library reserves address space, which is limited.
    environment["OPENBLAS_NUM_THREADS"] = environment["OMP_NUM_THREADS"] = "1"
    return environment
