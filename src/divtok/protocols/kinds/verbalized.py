"""Reasoning, then one JSON object with the answer and the model's confidence in it."""

from __future__ import annotations

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import read_object, stating_protocol
from divtok.protocols.wording import own_wording

PROTOCOLS.add(
    "verbalized",
    stating_protocol(
        "verbalized",
        "Reasoning, then the answer and a confidence in JSON.",
        wording=own_wording("verbalized"),
        read=read_object,
        no_answer=r"no JSON final_answer and no \boxed{} found",
    ),
)
