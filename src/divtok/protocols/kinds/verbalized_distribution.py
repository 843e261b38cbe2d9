"""Reasoning, then a JSON array of possible answers, "None of the above" among them.

"None of the above" is never the answer: the best other candidate is, with its own confidence.
"""

from __future__ import annotations

from functools import partial

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import NO_CANDIDATE, read_candidates, stating_protocol

_PROMPT = """Question: {question}

Reason step by step to your answer. You may propose several possible answers, at most four, each a \
value or a short exact expression in the form the question asks for, not a sentence. Weigh how \
likely each is to be right, and always include "None of the above". End with one JSON array whose \
confidences sum to 1:
[{"candidate": "first answer", "confidence": "0-1"}, \
{"candidate": "second answer", "confidence": "0-1"}, \
{"candidate": "None of the above", "confidence": "0-1"}]"""

PROTOCOLS.add(
    "verbalized_distribution",
    stating_protocol(
        "verbalized_distribution",
        "Reasoning, then up to four answers and none of them, with confidences in JSON.",
        prompt=_PROMPT,
        read=partial(read_candidates, skip_none=True),
        no_answer=NO_CANDIDATE,
    ),
)
