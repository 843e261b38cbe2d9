"""How much a client may ask for, and how long anything may take. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.errors import UsageError

MOST_CHARACTERS = 400_000  # of one question or one response
MOST_RESPONSES = 64  # of one request
MOST_MESSAGES = 512
MOST_CHOICES = 16  # that a chat completion may have
LONGEST_NAME = 300  # of an estimator or a model
DEEPEST_JSON = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """What one service allows. `read_s` and `send_s` are for a body on its way in or out."""

    body_bytes: int = 4 * 2**20
    connections: int = 512
    head_s: float = 10.0  # until all headers of a request are there
    read_s: float = 20.0
    send_s: float = 30.0  # for one part of an answer, where the client does not take it
    deadline_s: float = 30.0  # until a response is scored
    waiting_rows: int = 512  # responses that wait for the models
    batch_rows: int = 64  # that are read together
    batch_characters: int = 32_768  # likewise, so that nobody waits for a batch of novels
    refusal_s: float = 0.25  # until a client is told that there is no room
    gather_s: float = 0.003  # how long the first of a batch waits for others
    health_s: float = 5.0  # how long a forward pass tells that the models are well
    upstream_bytes: int = 64 * 2**20  # of one answer of the server behind the proxy

    def __post_init__(self) -> None:
        wrong = [name for name in self.__slots__ if not getattr(self, name) > 0]
        if wrong:
            raise UsageError(f"A limit must be above 0: {', '.join(wrong)}.")
