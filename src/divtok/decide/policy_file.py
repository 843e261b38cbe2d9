"""The file of a policy: JSON with its promise, its provenance and a checksum.

Knows one file. Where it lies in a run, and how a run is named instead of it, is in
`stages/policies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from divtok.decide.policy import HowScored, Policy
from divtok.errors import DivtokError
from divtok.store.checked_json import CheckedJson

FILE = CheckedJson(
    "policy", 1, marked_by="threshold", next_step="Give a file that 'divtok decide' wrote."
)


def save_policy(policy: Policy, path: Path) -> Policy:
    """Write the file, whole or not at all."""
    return replace(policy, identity=FILE.write(_content(policy), path))


def load_policy(path: Path) -> Policy:
    """What `save_policy` wrote; an error where the file is missing, changed or something else."""
    told, identity = FILE.read(path)
    try:
        return replace(_policy(told), identity=identity)
    except (KeyError, TypeError, ValueError) as error:
        raise FILE.damaged(path, f"{type(error).__name__}: {error}") from error
    except DivtokError as error:
        raise FILE.damaged(path, error.what) from error


def _content(policy: Policy) -> dict[str, Any]:
    return {name: value for name, value in asdict(policy).items() if name != "identity"}


def _policy(told: Mapping[str, Any]) -> Policy:
    scored = told["scored"]
    (p, q), prior = scored["pair"], scored["prior"]
    return Policy(
        threshold=float(told["threshold"]),
        risk=float(told["risk"]),
        delta=float(told["delta"]),
        scored=HowScored(
            estimator=str(scored["estimator"]),
            params=dict(scored["params"]),
            tokens=scored["tokens"],
            pair=(str(p), str(q)),
            prior=None if prior is None else float(prior),
        ),
        generator=str(told["generator"]),
        responses=int(told["responses"]),
        problems=int(told["problems"]),
        base_risk=float(told["base_risk"]),
        coverage=float(told["coverage"]),
        accepted_risk=float(told["accepted_risk"]),
        quantiles=tuple(map(float, told["quantiles"])),
        below=told["below"],
        to=None if told["to"] is None else str(told["to"]),
        made_of=dict(told["made_of"]),
        divtok=str(told["divtok"]),
    )
