"""Reasoning, then a JSON array with the two best answers and a confidence in each."""

from __future__ import annotations

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import NO_CANDIDATE, read_candidates, stating_protocol
from divtok.protocols.wording import own_wording

PROTOCOLS.add(
    "verbalized_top2",
    stating_protocol(
        "verbalized_top2",
        "Reasoning, then the two best answers with confidences in JSON.",
        wording=own_wording("verbalized_top2"),
        read=read_candidates,
        no_answer=NO_CANDIDATE,
    ),
)
