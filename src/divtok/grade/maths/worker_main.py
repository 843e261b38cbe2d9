"""The worker process of the grading pool: one JSON request per line in, one JSON reply out.

Started as `python -m divtok.grade.maths.worker_main PARENT_PID MEMORY_BYTES MODULE`, where MODULE
has `secure` and `compare`. It outlives neither its pipe nor its parent, and neither does a
computation that holds the interpreter: faulthandler's watch, which needs no interpreter, ends the
process shortly after the time limit, even if the parent is gone by then. Memory is limited on Linux
alone; elsewhere the time limit has to suffice.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import time
from importlib import import_module
from typing import IO

RECURSION_LIMIT = 10_000
STACK_BYTES = 256 * 1024 * 1024
GRACE_SECONDS = 2.0
PARENT_POLL_SECONDS = 1.0


def main() -> None:
    """Serve requests until standard input closes."""
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may write into the replies
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    if sys.platform != "win32":  # where the pipe does tell, and a dead parent keeps its number
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    threading.excepthook = lambda failure: _give_up(replies, failure)
    threading.stack_size(STACK_BYTES)
    sys.setrecursionlimit(RECURSION_LIMIT)
    work = (requests, replies, memory_bytes, sys.argv[3])
    threading.Thread(target=_serve, args=work, daemon=True).start()
    threading.stack_size(0)  # the watch needs no more than usual
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _serve(
    requests: queue.SimpleQueue[str], replies: IO[str], memory_bytes: int, module: str
) -> None:
    try:
        comparing = import_module(module)
    except ImportError as error:
        _send(replies, {"error": str(error)})
        os._exit(1)
    comparing.secure()
    _limit_memory(memory_bytes)
    _send(replies, {"ready": True})
    while True:
        request = json.loads(requests.get())
        faulthandler.dump_traceback_later(request["time_limit"] + GRACE_SECONDS, exit=True)
        judgement = comparing.compare(gold=request["gold"], answer=request["answer"])
        faulthandler.cancel_dump_traceback_later()
        reason = judgement.reason
        stated = None if reason is None else {"kind": reason.kind, "text": reason}
        _send(replies, {"verdict": judgement.verdict, "reason": stated})


def _give_up(replies: IO[str], failure: threading.ExceptHookArgs) -> None:
    """Report a comparison that failed unexpectedly; the state it leaves behind is not reused."""
    text = f"the comparison failed ({failure.exc_type.__name__})"
    reason = {"kind": "comparison_failed", "text": text}
    _send(replies, {"verdict": "undetermined", "reason": reason, "last": True})
    os._exit(1)


def _send(replies: IO[str], message: dict[str, object]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def _limit_memory(memory_bytes: int) -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _end_with(parent: int) -> None:
    # The pipe alone would not tell: another child of the parent may hold its other end open.
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    main()
