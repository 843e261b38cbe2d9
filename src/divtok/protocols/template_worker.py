"""The process that renders chat templates: one JSON request a line in, one JSON reply a line out.

Started as `python -m divtok.protocols.template_worker MEMORY_BYTES TIME_LIMIT`. A template is code
that comes with a model. The sandbox that transformers runs it in keeps it from everything but time
and memory; those are limited here. Memory is so on Linux alone; elsewhere the time has to suffice.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

MAX_CHARACTERS = 10_000_000
MAX_MESSAGE = 500
GRACE_SECONDS = 2.0


def main() -> None:
    """Serve requests until standard input closes, or memory runs out."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    memory_bytes, time_limit = int(sys.argv[1]), float(sys.argv[2])
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may write into the replies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    _limit_memory(memory_bytes)

    def send(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    send({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        # Needs no interpreter, which a product of large numbers may hold, and no parent.
        faulthandler.dump_traceback_later(time_limit + GRACE_SECONDS, exit=True)
        try:
            (text,), _ = render_jinja_template(
                conversations=[request["messages"]],
                chat_template=request["template"],
                **request["options"],
            )
            if len(text) > MAX_CHARACTERS:
                text = f"it gives {len(text):,} characters, where {MAX_CHARACTERS:,} are allowed"
                send({"error": text})
            else:
                send({"text": text})
        except MemoryError:
            send({"limit": f"more than {memory_bytes / 1e6:,.0f} MB of memory"})
            return
        except TemplateError as error:
            send({"error": str(error)[:MAX_MESSAGE] or type(error).__name__})
        except Exception as error:  # noqa: BLE001 (a template may do anything with what it is given)
            send({"error": f"{type(error).__name__}: {error}"[:MAX_MESSAGE]})
        faulthandler.cancel_dump_traceback_later()


def _limit_memory(memory_bytes: int) -> None:
    """So much beyond what the interpreter takes by now."""
    if sys.platform == "linux":
        import resource

        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
        limit = int(pages) * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
