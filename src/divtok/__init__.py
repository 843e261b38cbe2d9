"""divtok: how far to trust a language model's reasoning, from the tokens two models disagree on.

    import divtok

    pair = divtok.load_pair("tiny")
    result = divtok.confidence("Tom has ...", "First, ...", pair=pair)
    result.value, result.count, result.tokens

    found = divtok.confidences(table, pair=pair)  # pairs, dicts, a polars or pandas DataFrame
    divtok.evaluate(found, table["correct"])

    run = divtok.run(family="tiny", limit=20)  # what `divtok run` does

Names are imported when they are first used, so `import divtok` costs nothing and loads no torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divtok.api import confidence, load_pair
    from divtok.api.batch import Confidences, aconfidences, confidences
    from divtok.api.cascade import Cascade, cascade
    from divtok.api.deciding import decide, load_policy, save_policy
    from divtok.api.distilled import distil
    from divtok.api.drawing import Draw, Drawn, ask_until
    from divtok.api.figures import auroc, ece, evaluate, natural_auroc, natural_ece, sweep
    from divtok.api.fitting import fit
    from divtok.api.following import follow
    from divtok.api.grading import grade
    from divtok.api.listing import estimators, ls
    from divtok.api.result import Result, Token, Tokens
    from divtok.api.run import Run
    from divtok.api.running import RunningResults
    from divtok.api.runs import fit_family, import_files, run
    from divtok.api.selective import aurc, coverage_at, risk_coverage
    from divtok.api.streaming import StreamEvent, stream
    from divtok.api.suspects import suspect_steps
    from divtok.api.tables import Records
    from divtok.api.votes import vote
    from divtok.decide.accepted import Acceptance, acceptance, acceptance_of
    from divtok.decide.chosen import Vote
    from divtok.decide.offer import Offer
    from divtok.decide.policy import Decision, Policy
    from divtok.distilling.facts import Distilled
    from divtok.divergences.arithmetic import jsd_bits
    from divtok.errors import DivtokError
    from divtok.evaluate.selective import RiskCoverage
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
    from divtok.score.suspicion import SuspectStep
    from divtok.trace.pair import Pair
    from divtok.trace.topk.server_pair import ServerPair, load_server_pair

    __version__: str

_HOME = {
    "Cascade": "divtok.api.cascade",
    "Acceptance": "divtok.decide.accepted",
    "Confidence": "divtok.records",
    "Confidences": "divtok.api.batch",
    "Decision": "divtok.decide.policy",
    "Distilled": "divtok.distilling.facts",
    "DivtokError": "divtok.errors",
    "Draw": "divtok.api.drawing",
    "Drawn": "divtok.api.drawing",
    "Evaluation": "divtok.records",
    "Grade": "divtok.records",
    "Offer": "divtok.decide.offer",
    "Pair": "divtok.trace.pair",
    "Policy": "divtok.decide.policy",
    "Problem": "divtok.records",
    "Records": "divtok.api.tables",
    "Result": "divtok.api.result",
    "RiskCoverage": "divtok.evaluate.selective",
    "Run": "divtok.api.run",
    "RunningResults": "divtok.api.running",
    "Sampling": "divtok.records",
    "ServerPair": "divtok.trace.topk.server_pair",
    "StreamEvent": "divtok.api.streaming",
    "SuspectStep": "divtok.score.suspicion",
    "Token": "divtok.api.result",
    "Tokens": "divtok.api.result",
    "Trace": "divtok.records",
    "Trajectory": "divtok.records",
    "Verdict": "divtok.records",
    "Vote": "divtok.decide.chosen",
    "acceptance": "divtok.decide.accepted",
    "acceptance_of": "divtok.decide.accepted",
    "aconfidences": "divtok.api.batch",
    "ask_until": "divtok.api.drawing",
    "aurc": "divtok.api.selective",
    "auroc": "divtok.api.figures",
    "cascade": "divtok.api.cascade",
    "confidence": "divtok.api",
    "confidences": "divtok.api.batch",
    "decide": "divtok.api.deciding",
    "coverage_at": "divtok.api.selective",
    "distil": "divtok.api.distilled",
    "ece": "divtok.api.figures",
    "estimator": "divtok.score.registry",
    "estimators": "divtok.api.listing",
    "evaluate": "divtok.api.figures",
    "extract_answer": "divtok.protocols.extract",
    "fit": "divtok.api.fitting",
    "fit_family": "divtok.api.runs",
    "follow": "divtok.api.following",
    "grade": "divtok.api.grading",
    "grade_answer": "divtok.grade",
    "import_files": "divtok.api.runs",
    "jsd_bits": "divtok.divergences.arithmetic",
    "load_pair": "divtok.api",
    "load_policy": "divtok.api.deciding",
    "load_server_pair": "divtok.trace.topk.server_pair",
    "ls": "divtok.api.listing",
    "natural_auroc": "divtok.api.figures",
    "natural_ece": "divtok.api.figures",
    "risk_coverage": "divtok.api.selective",
    "run": "divtok.api.runs",
    "save_policy": "divtok.api.deciding",
    "stream": "divtok.api.streaming",
    "suspect_steps": "divtok.api.suspects",
    "sweep": "divtok.api.figures",
    "vote": "divtok.api.votes",
}

__all__ = [
    "Acceptance",
    "Cascade",
    "Confidence",
    "Confidences",
    "Decision",
    "Distilled",
    "DivtokError",
    "Draw",
    "Drawn",
    "Evaluation",
    "Grade",
    "Offer",
    "Pair",
    "Policy",
    "Problem",
    "Records",
    "Result",
    "RiskCoverage",
    "Run",
    "RunningResults",
    "Sampling",
    "ServerPair",
    "StreamEvent",
    "SuspectStep",
    "Token",
    "Tokens",
    "Trace",
    "Trajectory",
    "Verdict",
    "Vote",
    "acceptance",
    "acceptance_of",
    "aconfidences",
    "ask_until",
    "aurc",
    "auroc",
    "cascade",
    "confidence",
    "confidences",
    "coverage_at",
    "decide",
    "distil",
    "ece",
    "estimator",
    "estimators",
    "evaluate",
    "extract_answer",
    "fit",
    "fit_family",
    "follow",
    "grade",
    "grade_answer",
    "import_files",
    "jsd_bits",
    "load_pair",
    "load_policy",
    "load_server_pair",
    "ls",
    "natural_auroc",
    "natural_ece",
    "risk_coverage",
    "run",
    "save_policy",
    "stream",
    "suspect_steps",
    "sweep",
    "vote",
]

# Functions that share their name with the folder of their code.
_ALSO_FOLDERS = ("decide", "evaluate", "grade")


class _Package(ModuleType):
    """Importing a folder binds its name here; where that is a function's, the function stays."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ALSO_FOLDERS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("divtok")
        if name not in _HOME:
            raise AttributeError(f"module 'divtok' has no attribute '{name}'")
        thing = getattr(import_module(_HOME[name]), name)
        if name in _ALSO_FOLDERS:
            # So that divtok.grade.maths is still the module.
            thing.__dict__ = import_module(f"divtok.{name}").__dict__
        return thing


def __dir__() -> list[str]:
    return __all__
