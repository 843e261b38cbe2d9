"""Requests as they come, and answers as they go: every field with its limits.

A field that is not known is an error, and so is a number where a text belongs. What goes to the
server behind the proxy is not checked here beyond what is needed to score its answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from divtok.serve.limits import (
    LONGEST_NAME,
    MOST_CHARACTERS,
    MOST_CHOICES,
    MOST_MESSAGES,
    MOST_RESPONSES,
)

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Share = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]
Level = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
OnLow = Annotated[str, Field(pattern=r"^(flag|abstain|escalate:.+)$", max_length=LONGEST_NAME)]


def _one_of(**types: str) -> dict[str, Any]:
    """What a schema says where exactly one of these fields is given."""
    return {"oneOf": [{"properties": {n: {"type": t}}, "required": [n]} for n, t in types.items()]}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Message(Strict):
    """One turn of a conversation. Only its text is read."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text
    name: Name | None = None


class Options(Strict):
    """How a response is scored, where that is not as the service was started."""

    estimator: Name | None = None
    theta: Level | None = None
    prior: Share | None = None
    tokens: bool = False


class ConfidenceRequest(Options):
    """A question, or the messages up to the response; and one response or several."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _one_of(question="string", messages="array"),
                _one_of(response="string", responses="array"),
            ]
        }
    )

    question: Text | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)] | None = None
    response: Text | None = None
    responses: Annotated[list[Text], Field(min_length=1, max_length=MOST_RESPONSES)] | None = None
    generator: Name | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> ConfidenceRequest:
        if (self.question is None) == (self.messages is None):
            raise PydanticCustomError("one_of", "give either question or messages")
        if (self.response is None) == (self.responses is None):
            raise PydanticCustomError("one_of", "give either response or responses")
        return self


class ProxyOptions(Options):
    """What a chat completion may carry under `divtok`; it is not sent on."""

    min_confidence: Level | None = None
    on_low: OnLow = "flag"
    running: bool = False


class ChatRequest(BaseModel):
    """The part of a chat completion's request that matters here; all of it is sent on."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)

    model: Name
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    divtok: ProxyOptions | None = None


class VerifyRequest(BaseModel):
    """What a semantic router asks; later versions of it may send more."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, hide_input_in_errors=True)

    question: Text
    answer: Text
    threshold: Level
    context: Text | None = None


class Prior(BaseModel):
    value: float
    from_: Annotated[Literal["request", "fit"], Field(alias="from")]


class Decided(BaseModel):
    action: Literal["accept", "abstain", "escalate"]
    to: str | None
    reason: str


class TokenLists(BaseModel):
    """Lists of one length, and spans [from, to) of tokens."""

    text: list[str]
    text_offset: list[int]
    jsd_bits: list[float]
    divergent: list[bool]
    unexpected: list[bool | None]
    counted: list[int]
    answer: list[int] | None


class ConfidenceObject(BaseModel):
    """What is known of one response. `reason` says why there is no confidence."""

    version: int
    confidence: float | None
    low: float | None
    high: float | None
    source: Literal["measured"]
    estimator: str
    theta: float
    count: int | None
    reasoning_tokens: int | None
    pair: list[str]
    exact: bool
    prior: Prior | None
    status: str
    reason: str | None
    decision: Decided | None
    tokens: TokenLists | None = None


class ConfidenceObjects(BaseModel):
    results: list[ConfidenceObject]


class Verified(BaseModel):
    confidence: float | None
    should_escalate: bool
    verified_count: int
    total_samples: int
    samples: list[str]
    threshold: float
    divtok: ConfidenceObject


class Health(BaseModel):
    status: Literal["ok", "failed"]
    version: str
    pair: list[str]


class Fault(BaseModel):
    message: str
    type: str
    param: str | None
    code: int


class FaultAnswer(BaseModel):
    """Every error has this form, which is that of OpenAI's API."""

    error: Fault
