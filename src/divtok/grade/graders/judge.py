"""A model behind a server that speaks the OpenAI protocol says whether two answers are the same.

It sees the question, the gold answer and the answer, and has to end with yes or no. Anything else,
a failed call among it, is undetermined: `--retry-failed` asks again. What it says is an opinion: a
response may talk it into a yes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated, Literal

from pydantic import Field

from divtok.endpoints.settings import CallsSection, ServerSettings
from divtok.errors import ConfigError
from divtok.grade.grader import GRADERS, Compare, Grader


class JudgeSection(CallsSection):
    """The section grade.judge of a config."""

    base_url: str | None = None
    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = 0.0  # null: the server's own

    def server(self) -> ServerSettings:
        """The server to ask; ConfigError where none is named, or no model."""
        for name, value in (("base_url", self.base_url), ("model", self.model)):
            if not value:
                raise ConfigError(
                    f"The grader 'judge' has no {name}.", next_step=f"Give grade.judge.{name}."
                )
        return self.settings(self.base_url or "")


def _open(workers: int, options: JudgeSection) -> AbstractContextManager[Compare]:
    from divtok.grade.model_judge import ModelJudge

    return ModelJudge(options.server(), options)


GRADERS.add("judge", Grader("judge", "A model behind a server decides.", _open, JudgeSection))
