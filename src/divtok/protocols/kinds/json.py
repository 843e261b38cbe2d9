"""Reasoning step by step, then the answer itself as JSON: an object or an array of any shape.

Unlike the verbalized protocols it asks for no confidence, and all of the JSON is the answer.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import own_wording

WORDING = own_wording("json")


_START = re.compile(r"""\{(?=\s*+["}])|\[(?=\s*+["{\[\]\-\dtfn])""")
_MAX_BROKEN = 2000  # values after which a response is taken for one that repeats itself for ever


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused)  # Python also reads NaN and Infinity


def find_json(text: str) -> AnswerSpan | None:
    """The last JSON object or array, as it is written; of values in each other the outermost."""
    found, stop, broken = None, 0, 0
    for opening in _START.finditer(text):
        if (start := opening.start()) >= stop:
            try:
                stop = _DECODER.raw_decode(text, start)[1]
                found = AnswerSpan(start, stop, text[start:stop])
            except (ValueError, RecursionError):
                broken += 1
                if broken > _MAX_BROKEN:
                    break
    return found


PROTOCOLS.add(
    "json",
    Protocol(
        "json",
        "Reasoning, then the answer as a JSON object or array.",
        messages=WORDING.messages,
        find_answer=find_json,
        no_answer="no JSON object or array found",
        grader="json",
        wording=WORDING,
    ),
)
