"""The file of a policy: the same again, or an error that says what is wrong with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from decide_samples import SCORED, policy

from divtok.decide.policy_file import load_policy, save_policy
from divtok.errors import DataError


def written(path: Path, **changes: Any) -> Path:
    """A policy's file with these fields changed, and a checksum that belongs to them."""
    save_policy(policy(), path)
    tree = json.loads(path.read_text())
    del tree["checksum"]
    tree |= changes
    text = json.dumps(tree, sort_keys=True)
    checksum = hashlib.sha256(text.encode()).hexdigest()[:12]
    path.write_text(json.dumps({**tree, "checksum": checksum}))
    return path


@pytest.mark.parametrize(
    "made",
    [
        policy(),
        policy(below="escalate", to="big", generator="", made_of={}),
        policy(scored=replace(SCORED, prior=0.123456789, params={"map": "isotonic", "n": 1})),
        policy(threshold=-104.0),  # an estimator that only ranks
    ],
)
def test_a_policy_comes_back_as_it_was(tmp_path: Path, made: Any):
    path = tmp_path / "new folder" / "policy.json"
    saved = save_policy(made, path)
    assert saved.identity is not None
    assert replace(saved, identity=None) == made
    assert load_policy(path) == saved
    assert save_policy(saved, tmp_path / "again.json") == saved  # the name is that of the content
    assert save_policy(replace(made, risk=0.06), tmp_path / "other.json").identity != saved.identity


def test_a_changed_number_is_noticed(tmp_path: Path):
    path = tmp_path / "policy.json"
    save_policy(policy(), path)
    path.write_text(path.read_text().replace("0.86", "0.16"))
    with pytest.raises(DataError, match="does not match its checksum"):
        load_policy(path)


def test_another_version_of_the_format_is_named(tmp_path: Path):
    path = written(tmp_path / "policy.json", format=2, divtok="9.1")
    with pytest.raises(DataError, match=r"of format 2; this version of divtok reads 1") as refused:
        load_policy(path)
    assert "9.1" in str(refused.value.next_step)


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": None},
        {"threshold": "high"},
        {"scored": {}},
        {"scored": 3},
        {"quantiles": [0.1, 0.2]},
        {"below": "ask"},
        {"to": "big"},
        {"made_of": 5},
    ],
)
def test_fields_of_another_kind_are_refused(tmp_path: Path, changes: dict[str, Any]):
    path = written(tmp_path / "policy.json", **changes)
    with pytest.raises(DataError, match=r"policy\.json cannot be read: ") as refused:
        load_policy(path)
    assert "divtok decide" in str(refused.value.next_step)


def test_a_field_that_is_not_there_is_named(tmp_path: Path):
    path = written(tmp_path / "policy.json")
    tree = json.loads(path.read_text())
    del tree["delta"], tree["checksum"]
    text = json.dumps(tree, sort_keys=True)
    tree["checksum"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    path.write_text(json.dumps(tree))
    with pytest.raises(DataError, match="KeyError: 'delta'"):
        load_policy(path)


def test_a_number_that_is_not_finite_is_not_written(tmp_path: Path):
    with pytest.raises(DataError, match="not finite"):
        save_policy(policy(threshold=float("inf")), tmp_path / "policy.json")
    assert list(tmp_path.iterdir()) == []
