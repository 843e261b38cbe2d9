"""The words of a protocol: what a model is asked, as data.

Each protocol of divtok's own has them in a YAML file beside it in `kinds/`; a user may give others
in a file of the same form. A wording is known by the hash of its words: a protocol with words that
are not its own is called `KIND@HASH` wherever a protocol is named, as in the rows of a run. It
knows words only, and not how an answer to them is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from divtok.errors import DataError
from divtok.strict_yaml import read_file

Message = dict[str, str]

QUESTION = "{question}"
_NAME = re.compile(r"\w[\w.+-]{0,79}")
_MARK = "@"  # between a kind and a hash; no name has it
LONGEST = 200  # characters of a source, which stands below tables
SHORT = 8  # characters of a hash that people see

# The same words are the same whoever gives them, so nothing in here ever changes its meaning.
_by_hash: dict[str, Wording] = {}


@dataclass(frozen=True)
class Wording:
    """What a protocol of one kind says: before the question, around it, and after the answer.

    `source` says whose words they are, and is no part of them; neither is the name.
    """

    name: str
    kind: str
    user: str
    system: str | None = None
    follow_up: str | None = None  # asks how sure the model is, once it has answered
    source: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"The name {self.name!r} is not made of letters, digits and . + - _")
        if QUESTION not in self.user:
            raise ValueError(
                f"The place {QUESTION} is missing in 'user': it says where the question goes"
            )
        for part in ("system", "follow_up", "source"):
            text: str | None = getattr(self, part)
            if text is not None and not text.strip():
                raise ValueError(f"'{part}' is blank: leave it out")
            if text is not None and QUESTION in text:
                raise ValueError(f"'{part}' has the place {QUESTION}, which only 'user' can have")

        if self.source is not None and (len(self.source) > LONGEST or "\n" in self.source):
            raise ValueError(f"'source' is not one line of at most {LONGEST} characters")

    def __reduce__(self) -> tuple[object, ...]:
        """Known wherever it arrives, as in another process that works for this one."""
        parts = (self.name, self.kind, self.user, self.system, self.follow_up, self.source)
        return _made_known, parts

    @cached_property
    def hash(self) -> str:
        words = [self.kind, self.system, self.user, self.follow_up]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]

    @property
    def short_hash(self) -> str:
        return self.hash[:SHORT]

    def messages(self, question: str) -> list[Message]:
        """The chat messages that ask one question. Not str.format: JSON has braces."""
        asked = {"role": "user", "content": self.user.replace(QUESTION, question)}
        return (
            [asked] if self.system is None else [{"role": "system", "content": self.system}, asked]
        )


@cache
def own_wording(kind: str) -> Wording:
    """The words that come with divtok."""
    path = Path(__file__).parent / "kinds" / f"{kind}.yaml"
    return made_known(read_file(Wording, path, noun="wording file"))


def made_known(wording: Wording) -> Wording:
    """Found by its hash from now on."""
    _by_hash[wording.hash] = wording
    return wording


def _made_known(*parts: str) -> Wording:
    return made_known(Wording(*parts))


def reference(kind: str, digest: str) -> str:
    """What a protocol is called that asks in words other than its own."""
    return f"{kind}{_MARK}{digest}"


def is_reference(protocol: str) -> bool:
    return _MARK in protocol


def kind_of(protocol: str) -> str:
    """The kind, of a protocol that asks in its own words or in others."""
    return protocol.partition(_MARK)[0]


def words_of(protocol: str) -> Wording:
    """The words of a protocol that is called by its kind and their hash."""
    digest = protocol.partition(_MARK)[2]
    if digest not in _by_hash:
        raise DataError(
            f"The words of the protocol '{protocol}' are not known here.",
            next_step="Open the run they were used in, whose run.yaml has them, or read their file "
            "(protocol=FILE.yaml).",
        )
    return _by_hash[digest]
