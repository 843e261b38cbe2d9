"""divtok: how far to trust a language model's reasoning, from the tokens two models disagree on.

    import divtok

    pair = divtok.load_pair("tiny")
    result = divtok.confidence("Tom has ...", "First, ...", pair=pair)
    result.value, result.count, result.tokens

Names are imported when they are first used, so `import divtok` costs nothing and loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divtok.api import Result, Token, confidence, load_pair
    from divtok.divergences.arithmetic import jsd_bits
    from divtok.errors import DivtokError
    from divtok.grade import grade_answer
    from divtok.protocols.extract import extract_answer
    from divtok.records import (
        Confidence,
        Evaluation,
        Grade,
        Problem,
        Sampling,
        Trace,
        Trajectory,
        Verdict,
    )
    from divtok.score.registry import estimator
    from divtok.trace.pair import Pair
    from divtok.trace.topk.server_pair import ServerPair, load_server_pair

_HOME = {
    "Confidence": "divtok.records",
    "DivtokError": "divtok.errors",
    "Evaluation": "divtok.records",
    "Grade": "divtok.records",
    "Pair": "divtok.trace.pair",
    "Problem": "divtok.records",
    "Result": "divtok.api",
    "Sampling": "divtok.records",
    "ServerPair": "divtok.trace.topk.server_pair",
    "Token": "divtok.api",
    "Trace": "divtok.records",
    "Trajectory": "divtok.records",
    "Verdict": "divtok.records",
    "confidence": "divtok.api",
    "estimator": "divtok.score.registry",
    "extract_answer": "divtok.protocols.extract",
    "grade_answer": "divtok.grade",
    "jsd_bits": "divtok.divergences.arithmetic",
    "load_pair": "divtok.api",
    "load_server_pair": "divtok.trace.topk.server_pair",
}

__all__ = [
    "Confidence",
    "DivtokError",
    "Evaluation",
    "Grade",
    "Pair",
    "Problem",
    "Result",
    "Sampling",
    "ServerPair",
    "Token",
    "Trace",
    "Trajectory",
    "Verdict",
    "confidence",
    "estimator",
    "extract_answer",
    "grade_answer",
    "jsd_bits",
    "load_pair",
    "load_server_pair",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'divtok' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
