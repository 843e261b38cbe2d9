"""Reasoning, then a JSON array of possible answers, "None of the above" among them.

"None of the above" is never the answer: the best other candidate is, with its own confidence.
"""

from __future__ import annotations

from functools import partial

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import NO_CANDIDATE, read_candidates, stating_protocol
from divtok.protocols.wording import own_wording

PROTOCOLS.add(
    "verbalized_distribution",
    stating_protocol(
        "verbalized_distribution",
        "Reasoning, then up to four answers and none of them, with confidences in JSON.",
        wording=own_wording("verbalized_distribution"),
        read=partial(read_candidates, skip_none=True),
        no_answer=NO_CANDIDATE,
    ),
)
