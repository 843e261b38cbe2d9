"""Ask a model whether an answer is the gold answer, and read what it says."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.generate.chat_answer import read_answer
from divtok.grade.grader import Case, Compare
from divtok.grade.graders.judge import JudgeSection
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, undetermined

T = TypeVar("T")

_PROMPT = """Somebody answered a question. Compare the given answer with the correct one and say \
whether they are the same. Take the correct answer as it is, and do not solve the question. How an \
answer is written makes no difference, what it says does.

Question:
{question}

Correct answer:
{gold}

Given answer:
{answer}

End with a line that holds one word: yes where the answers are the same, no where they differ."""
_PLACES = re.compile(r"\{(question|gold|answer)\}")
_WORD = re.compile(r"\W*+(?:(?:answer|same)\W*+)?(yes|no)\W*+", re.IGNORECASE)


class ModelJudge(AbstractContextManager[Compare]):
    """Asks from a thread of its own, where several questions are under way at one time."""

    def __init__(self, settings: ServerSettings, options: JudgeSection) -> None:
        self._settings, self._options = settings, options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="divtok-judge", daemon=True
        )

    def __enter__(self) -> Compare:
        self._thread.start()
        try:
            self._run(self._begin()).result()
        except BaseException:
            self._end()
            raise
        return lambda case: self._run(self._ask(case))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._finish()).result()
        self._end()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _begin(self) -> None:
        self._client = ServerClient(self._settings)
        self._free = asyncio.Semaphore(self._settings.concurrency)

    async def _finish(self) -> None:
        asking = asyncio.all_tasks() - {asyncio.current_task()}
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._client.__aexit__()

    async def _ask(self, case: Case) -> Judgement:
        options = self._options
        body: dict[str, Any] = {
            "model": options.model,
            "messages": [{"role": "user", "content": prompt(case)}],
            options.token_limit_field: options.max_tokens,
        }
        if options.temperature is not None:
            body["temperature"] = options.temperature
        async with self._free:
            posted = await self._client.post("chat/completions", body, accept=read_answer)
        if posted.value is None:
            return undetermined("judge_failed", f"the judge gave no answer: {posted.reason}")
        return read_verdict(posted.value.text, posted.value.reason)


def prompt(case: Case) -> str:
    """What the judge is asked."""
    texts = {
        "question": case.question or "(not known)",
        "gold": case.gold,
        "answer": case.answer,
    }
    # All places at once: an answer may hold {gold} itself.
    return _PLACES.sub(lambda place: texts[place[1]], _PROMPT)


def read_verdict(reply: str, problem: str | None = None) -> Judgement:
    """What a reply says; `problem` is why it is not the usual one."""
    lines = reply.strip().splitlines()
    said = _WORD.fullmatch(lines[-1]) if lines else None
    if said is None or problem is not None:
        shown = problem or f"the judge ended with neither yes nor no: {reply[-80:].strip()!r}"
        return undetermined("judge_unclear", shown)
    return CORRECT if said[1].lower() == "yes" else INCORRECT
