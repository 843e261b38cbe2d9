"""Chat templates, rendered in a process of their own that can be ended: see `template_worker`.

One such process serves all templates of a program; it is started when it is first needed, and anew
after one that ran out of time or memory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
from typing import Any

from divtok.errors import DivtokError, ModelError

TIME_LIMIT = 10.0
MEMORY_BYTES = 512_000_000
START_LIMIT = 120.0


class TemplateFailed(Exception):
    """A template that refuses its messages or breaks on them."""


def render(tokenizer: Any, messages: list[Any], **options: Any) -> str:
    """What the tokenizer's own template makes of the messages, as `apply_chat_template` does.

    TemplateFailed where it refuses them; ModelError where it takes too long or too much memory.
    """
    from transformers import PreTrainedTokenizerBase

    kind = type(tokenizer)
    if kind.apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        return tokenizer.apply_chat_template(messages, tokenize=False, **options)  # no template's
    request = {
        "template": tokenizer.get_chat_template(),
        "messages": messages,
        "options": tokenizer.special_tokens_map | options,
    }
    try:
        return _rendered(json.dumps(request))
    except _TooMuch as error:
        raise ModelError(
            f"The chat template of '{tokenizer.name_or_path}' takes {error}.",
            next_step="Repair the template in the tokenizer's folder, or use another model.",
        ) from error


class _TooMuch(Exception):
    """What a template takes too much of."""


@functools.lru_cache(maxsize=1024)  # the samples of a problem share their prompt
def _rendered(request: str) -> str:
    with _lock:
        reply = _running_worker().exchange(request, TIME_LIMIT)
    if "limit" in reply:
        raise _TooMuch(reply["limit"])
    if "error" in reply:
        raise TemplateFailed(reply["error"])
    return reply["text"]


class _Worker:
    def __init__(self) -> None:
        if not sys.executable:
            raise DivtokError(
                "Chat templates need a Python interpreter to run in, and this program does not "
                "name one.",
                next_step="Set sys.executable to the path of a Python interpreter.",
            )
        module = "divtok.protocols.template_worker"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(MEMORY_BYTES), str(TIME_LIMIT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.parent = os.getpid()
        if "ready" not in self.exchange(None, START_LIMIT):
            raise DivtokError(
                "The process that renders chat templates did not start.",
                next_step=f"See what it says: {sys.executable} -m {module} {MEMORY_BYTES} 10",
            )

    @property
    def usable(self) -> bool:
        """Not where it ended, or where this process is a fork of the one it belongs to."""
        return self.parent == os.getpid() and self._process.poll() is None

    def exchange(self, request: str | None, time_limit: float) -> dict[str, Any]:
        """Send a request and read one reply; `limit` in it says what there was too much of."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(time_limit, end)
        timer.daemon = True
        timer.start()
        line = ""
        try:
            if request is not None:
                self._process.stdin.write(request + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            pass  # a broken pipe: it ended
        except BaseException:
            self.close()  # its reply would be taken for that to the next request
            raise
        finally:
            timer.cancel()
        if line.endswith("\n"):
            reply: dict[str, Any] = json.loads(line)
            if "limit" in reply:
                self.close()
            return reply
        self.close()
        took = f"more than {time_limit:g} s" if late.is_set() else "more than its process can bear"
        return {"limit": took}

    def close(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError), self._process:
            pass


_lock = threading.Lock()
_worker: _Worker | None = None


def _running_worker() -> _Worker:
    global _worker
    if _worker is None or not _worker.usable:
        _worker = _Worker()
    return _worker


@atexit.register
def _end() -> None:
    if _worker is not None and _worker.parent == os.getpid():
        _worker.close()
