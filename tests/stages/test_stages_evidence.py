"""What estimators need beside the trace: gathered when named, once, and read back for scoring."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import EVIDENCE_TABLES, GENERATOR, rows_of, small_config, write_responses

from divtok.config.run import RunConfig
from divtok.errors import ConfigError, DataError, DivtokError, ModelError, StoreError
from divtok.evidence.kind import EVIDENCE, Gathering
from divtok.evidence.kinds import base, rewards
from divtok.evidence.kinds.chain import CHAINS
from divtok.evidence.kinds.relevance import read_relevance
from divtok.evidence.kinds.rewards import REWARDS
from divtok.evidence.kinds.statement import REPLIES
from divtok.evidence.readings import READINGS
from divtok.records import Reading, Reason, Reply
from divtok.stages import trace as tracing
from divtok.stages.choices import check_choices, needed_evidence
from divtok.stages.evaluate import results_of
from divtok.stages.failures import failed_rows
from divtok.stages.fit_projection import fit_projections
from divtok.stages.gather import gather
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.stages.score import score
from divtok.store.responses import stored_responses
from divtok.store.run import Run

RIGHT_OR_WRONG = ("12 + 5 = 17.\nThe answer is \\boxed{17}.", "So it is \\boxed{3}.")


def gathered(folder: Path, config: RunConfig, texts: tuple[str, ...] = RIGHT_OR_WRONG) -> Run:
    run = write_responses(folder, config, texts)
    with run.lock():
        grade(run, config)
        tracing.trace(run, config)
        gather(run, config)
        score(run, config)
    return run


def values(run: Run, estimator: str) -> list[float | None]:
    """In the order of the trajectories."""
    found = {c.key: c.value for c in run.confidences.read() if c.estimator == estimator}
    return [found[t.key] for t in run.trajectories.read()]


def sizes(run: Run) -> dict[str, int]:
    return {layout.name: len(run.table(layout).read()) for layout in EVIDENCE_TABLES}


def test_only_what_is_named_is_gathered(tmp_path: Path) -> None:
    assert needed_evidence(small_config()) == []
    whitebox = needed_evidence(small_config("score.estimators=whitebox"))
    assert sorted(whitebox) == ["base", "chain", "rewards", "statement"]
    run = gathered(tmp_path / "chains", small_config("score.estimators=['uqac_mean']"))
    assert sizes(run) == {"replies": 0, "chains": 8, "readings": 0, "rewards": 0, "relevance": 0}
    assert {c.estimator for c in run.confidences.read()} == {"uqac_mean"}


def test_estimators_added_later_leave_the_traces_as_they_are(tmp_path: Path) -> None:
    run = gathered(tmp_path, small_config())
    before = rows_of(run.traces)
    with run.lock():
        config = small_config("score.estimators=['uqac_attn','basecal','prm']")
        tracing.trace(run, config)
        gather(run, config)
        score(run, config)
    assert rows_of(run.traces) == before
    assert sizes(run) == {"replies": 0, "chains": 8, "readings": 8, "rewards": 8, "relevance": 0}
    for name in ("uqac_attn", "basecal", "prm"):
        assert all(value is not None and 0 < value < 1 for value in values(run, name))


def test_all_estimators_share_one_pass_of_each_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many passes as there are batches, for each model, however many estimators are asked."""
    passes: Counter[str] = Counter()

    def counting(reader: Any) -> Any:
        def trunk(*arguments: Any) -> Any:
            passes[reader.name] += 1
            return reader.trunk(*arguments)

        return replace(reader, trunk=trunk)

    real_pair, real_reader, real_prm = tracing.load_pair, base.load_reader, rewards.load_prm

    def pair(*names: Any, **options: Any) -> Any:
        found = real_pair(*names, **options)
        return replace(found, p=counting(found.p), q=counting(found.q))

    def prm(*names: Any, **options: Any) -> Any:
        found = real_prm(*names, **options)
        return replace(found, reader=counting(found.reader))

    monkeypatch.setattr(tracing, "load_pair", pair)
    monkeypatch.setattr(base, "load_reader", lambda *n, **o: counting(real_reader(*n, **o)))
    monkeypatch.setattr(rewards, "load_prm", prm)
    options = ("trace.max_batch_rows=4", "evidence.reply_tokens=2")
    many = small_config("score.estimators=['trace','whitebox','pilot']", *options)
    run = gathered(tmp_path, many)
    # Those of the paper's tables and its pilot, two of ours, and five of other papers.
    assert len({c.estimator for c in run.confidences.read()}) == 12 + 2 + 5
    batches = 2
    assert passes == {
        GENERATOR: batches,
        "divtok/tiny-0.3m": batches,
        f"{GENERATOR}-base": batches,
        "divtok/tiny-prm": batches,
    }


def test_the_base_may_read_the_bare_question(tmp_path: Path) -> None:
    chat = gathered(tmp_path / "chat", small_config("score.estimators=['basecal']"))
    plain = gathered(
        tmp_path / "plain",
        small_config("score.estimators=['basecal']", "evidence.base_prompt=plain"),
    )
    assert {r.kind for r in chat.table(READINGS).read()} == {"base_chat"}
    assert {r.kind for r in plain.table(READINGS).read()} == {"base_plain"}
    assert values(chat, "basecal") != values(plain, "basecal")


def test_a_generator_without_a_base_says_so(tmp_path: Path) -> None:
    config = small_config("score.estimators=['basecal','nsl']")
    other = config.generator_presets()[0]
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    find = base.BASE.find(Gathering(run, _without_base(config)))
    reasons = [find(response).reason for response in stored_responses(run).values()]
    assert reasons == [f"no base model is known for {other.model}"] * 8
    assert {reason.kind for reason in reasons} == {"no_base_model"}


def _without_base(config: RunConfig) -> RunConfig:
    class Baseless(RunConfig):
        def base_for(self, generator: Any) -> None:
            return None

    return Baseless.model_validate(config.model_dump())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["score.estimators=['basecal_proj']"], "no projection of 'divtok/tiny-0.5m'"),
        (["score.estimators=['relevance']"], "no weights are given"),
        (
            ["score.estimators=['relevance']", "evidence.relevance=/nowhere"],
            "there is no file '/nowhere'",
        ),
        (["bases.divtok/tiny-9m=x"], "bases names 'divtok/tiny-9m'"),
        (["score.estimators=['uqac_meen']"], "Did you mean 'uqac_mean'"),
    ],
)
def test_what_cannot_be_gathered_is_refused_before_any_work(
    overrides: list[str], said: str
) -> None:
    with pytest.raises(DivtokError, match=said):
        check_choices(small_config(*overrides))


def test_a_family_without_bases_or_reward_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'basecal' cannot be scored: no generator has a base"):
        check_choices(_without_base(small_config("score.estimators=['basecal']")))
    missing = small_config("score.estimators=['prm']", "evidence.prm=/nowhere")
    with pytest.raises(ModelError, match="/nowhere"):
        check_choices(missing)


def test_replies_are_read_when_scored_and_keep_their_reasons(tmp_path: Path) -> None:
    config = small_config("score.estimators=['verbalized','verbalized_dtc']", "score.theta=1.0")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    said = ["\\boxed{9}", "\\boxed{12}", "quite sure", "\\boxed{7}"]
    with run.lock():
        tracing.trace(run, config)
        run.table(REPLIES).append(
            [
                Reply(t.key, GENERATOR, (1,), said[i % 4], "stop", None if i != 7 else "no room")
                for i, t in enumerate(run.trajectories.read())
            ]
        )
        score(run, config)
    assert values(run, "verbalized") == [0.9, None, None, 0.7, 0.9, None, None, None]
    tempered = [v for v in values(run, "verbalized_dtc") if v is not None]
    assert tempered == pytest.approx([0.9**4, 0.7**4, 0.9**4])
    reasons = [c.reason for c in run.confidences.read() if c.estimator == "verbalized"]
    assert all("12" in (reasons[i] or "") for i in (1, 5))
    assert reasons[7] == "statement: no room"


def test_a_verbalized_protocol_states_its_confidence_in_the_response(tmp_path: Path) -> None:
    texts = (
        'It is 5.\n{"final_answer": "5", "confidence": 0.8}',
        'It is 6.\n{"final_answer": "6", "confidence": "high"}',
    )
    config = small_config("protocol=verbalized", "samples=2")
    assert "statement" in needed_evidence(config)
    run = gathered(tmp_path, config, texts)
    assert sizes(run)["replies"] == 0
    assert values(run, "verbalized") == [0.8, None] * 4
    assert {g.extracted for g in run.grades.read()} == {"5", "6"}
    tokens = run.trajectories.read()[0].token_ids
    trace = run.traces.read()[0]
    assert trace.answer_start is not None
    assert trace.answer_start > len(tokens) // 3


def test_the_global_constant_is_learned_for_each_benchmark(tmp_path: Path) -> None:
    run = gathered(tmp_path, small_config("score.estimators=['uqac_global','mean_prob']"))
    benchmark = {t.key: t.benchmark for t in run.trajectories.read()}
    by_benchmark: dict[str, set[float]] = {}
    means: dict[str, list[float]] = {}
    for c in run.confidences.read():
        if c.estimator == "uqac_global":
            by_benchmark.setdefault(benchmark[c.key], set()).add(float(c.params["c_global"]))
        elif c.estimator == "mean_prob" and c.value is not None:
            means.setdefault(benchmark[c.key], []).append(c.value)
    for name, constants in by_benchmark.items():
        assert list(constants) == [pytest.approx(np.mean(means[name]))]
    evaluated = {
        (e.benchmark, e.params.get("c_global"))
        for e in results_of(run, small_config()).evaluations
        if e.estimator == "uqac_global"
    }
    assert evaluated == {(name, constants.pop()) for name, constants in by_benchmark.items()}


def test_weights_from_a_file_are_scored(tmp_path: Path) -> None:
    config = small_config()
    run = gathered(tmp_path / "run", config)
    traces = {t.key: t for t in run.traces.read()}
    file = tmp_path / "weights.jsonl"
    rows = [{"key": k, "weights": [1 / len(t)] * len(t)} for k, t in traces.items()]
    file.write_text("\n".join(json.dumps(row) for row in rows[:-1]) + "\n\n")
    config = small_config("score.estimators=['relevance','nsl']", f"evidence.relevance={file}")
    check_choices(config)
    with run.lock():
        gather(run, config)
        score(run, config)
    found, expected = values(run, "relevance"), values(run, "nsl")
    assert found[:-1] == pytest.approx(expected[:-1], rel=1e-5)
    assert found[-1] is None  # the file has no line for it


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"key": "k"}', "line 2: not a row of weights"),
        ('{"key": "k", "weights": [[1]]}', "line 2: not a row of weights"),
        ('{"key": "x", "weights": [1]}', "line 2: the run has no trajectory 'x'"),
        ('{"key": ["x"], "weights": [1]}', "line 2: the run has no trajectory"),
        ('{"key": "k", "weights": [1]}', "line 2: trajectory 'k' has 2 tokens, not 1"),
        ('{"key": "k", "weights": [1, -1]}', "line 2: .*negative or not a number"),
        ('{"key": "k", "weights": [1, 1e999]}', "line 2: .*negative or not a number"),
        ("nonsense", "line 2: not a row of weights"),
    ],
)
def test_a_bad_line_of_weights_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "weights.jsonl"
    file.write_text('{"key": "k", "weights": [1, 2]}\n' + line)
    with pytest.raises(DataError, match=said):
        read_relevance(file, {"k": 2})
    file.write_bytes(b'{"key": "\xff"}')
    with pytest.raises(DataError, match="line 1: not a row of weights"):
        read_relevance(file, {"k": 2})


def test_projections_are_learned_from_a_run_and_scored_with(tmp_path: Path) -> None:
    config = small_config("sampling.max_length=160")
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, config)
    [fitted] = fit_projections(run, config, max_tokens=2000)
    assert fitted.path == run.path / "projections" / "divtok--tiny-0.5m.safetensors"
    again = small_config(
        "sampling.max_length=160",
        "score.estimators=['basecal_proj']",
        f"projections.{GENERATOR}={fitted.path}",
    )
    check_choices(again)
    with run.lock():
        tracing.trace(run, again)
        score(run, again)
    with pytest.raises(ConfigError, match=r"from divtok/tiny-0.5m to divtok/tiny-0.5m-base, not"):
        check_choices(again.model_copy(update={"bases": {GENERATOR: "divtok/tiny-0.9m-base"}}))
    reader = again.trace.model_copy(update={"reader": "divtok/tiny-0.9m"})
    with pytest.raises(ConfigError, match=r"'divtok/tiny-0.9m' reads its trajectories"):
        check_choices(again.model_copy(update={"trace": reader}))
    stale = replace(fitted.projection, base_digest="another")
    stale.save(fitted.path)
    with pytest.raises(ConfigError, match=r"learned with other weights of 'divtok/tiny-0.5m-base'"):
        check_choices(again)
    assert {r.kind for r in run.table(READINGS).read()} == {"projected"}
    assert all(value is not None and 0 < value <= 1 for value in values(run, "basecal_proj"))


def test_failed_evidence_is_made_again_only_when_asked(tmp_path: Path) -> None:
    config = small_config("score.estimators=['prm']")
    run = gathered(tmp_path, config)
    good = rows_of(run.table(REWARDS))
    with run.lock():
        first = run.table(REWARDS).read()[0]
        nothing = np.empty(0, dtype=np.float32)
        run.table(REWARDS).append([replace(first, rewards=nothing, reason="too long")])
        gather(run, config)
        assert sum(r.reason is not None for r in run.table(REWARDS).read()) == 1
        gather(run, config, retry_failed=True)
    assert sorted(rows_of(run.table(REWARDS))) == sorted(good)


def test_chains_bind_like_the_traces_they_came_with(tmp_path: Path) -> None:
    """Stopped between the two, a run must not go on with other models or number types."""
    run = gathered(tmp_path, small_config("score.estimators=['uqac_mean']"))
    for shard in list(run.traces.folder.iterdir()):
        shard.unlink()
    other = small_config("score.estimators=['uqac_mean']", "trace.dtype=bfloat16")
    with run.lock(), pytest.raises(StoreError, match="another configuration"):
        tracing.trace(run, other)


def test_readings_of_one_kind_do_not_bind_the_other(tmp_path: Path) -> None:
    run = gathered(tmp_path, small_config("score.estimators=['basecal']"))
    with run.lock():
        stored = run.manifest() or {}
        run.write_manifest({**stored, "projected": {"files": {}}})  # an attempt that left no row
    [fitted] = fit_projections(run, small_config(), max_tokens=500)
    config = small_config(
        "score.estimators=['basecal','basecal_proj']", f"projections.{GENERATOR}={fitted.path}"
    )
    with run.lock():
        tracing.trace(run, config)
        score(run, config)
    assert all(value is not None for value in values(run, "basecal_proj"))


def test_what_was_not_gathered_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = gathered(tmp_path, small_config())
    with run.lock():
        score(run, small_config("score.estimators=['nsl','prm','uqac_mean']"))
    said = capsys.readouterr().err
    assert "no value at all for prm, uqac_mean (rewards: not gathered)" in said
    assert f"divtok gather {run.path}" in said


def test_gathered_rows_that_failed_are_told(tmp_path: Path) -> None:
    run = gathered(tmp_path, small_config("score.estimators=['prm']"))
    assert failed_rows(run).reasons == ()
    with run.lock():
        first = run.table(REWARDS).read()[0]
        nothing = np.empty(0, dtype=np.float32)
        run.table(REWARDS).append([replace(first, rewards=nothing, reason="too long")])
    assert failed_rows(run).reasons == ("rewards: too long",)


@pytest.mark.parametrize("first", ["base", "projected", "sampled"])
def test_failed_readings_are_told_whichever_kind_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Three kinds share a table; what a server did not report cannot be had any more."""
    things = dict(EVIDENCE._things)
    monkeypatch.setattr(EVIDENCE, "_things", {first: things[first], **things})
    run = write_responses(tmp_path, small_config(), RIGHT_OR_WRONG)
    nothing = np.empty(0, dtype=np.float32)
    with run.lock():
        run.table(READINGS).append(
            [
                Reading("a", "m", "sampled", nothing, Reason("other", "not reported")),
                Reading("b", "m", "base_chat", nothing, Reason("too_long", "too long")),
                Reading("c", "m", "projected", nothing, Reason("other", "stopped")),
            ]
        )
    found = failed_rows(run)
    assert sorted(found.reasons) == ["readings: stopped", "readings: too long"]
    assert found.again == 1  # what is too long stays too long


def test_a_response_without_an_answer_has_no_chain_and_is_no_failure(tmp_path: Path) -> None:
    config = small_config("score.estimators=['uqac_mean']")
    run = gathered(tmp_path, config, (RIGHT_OR_WRONG[0], "I do not know."))
    assert sum(chain.reason is not None for chain in run.table(CHAINS).read()) == 4
    assert failed_rows(run).reasons == ()


def test_a_verbalized_protocol_shows_all_facts_of_a_trace(tmp_path: Path) -> None:
    config = small_config("protocol=verbalized", "samples=1")
    run = gathered(tmp_path, config, ('{"final_answer": "5", "confidence": 0.8}',))
    estimators = {e.estimator for e in results_of(run, config).evaluations}
    assert {"length", "ratio", "count", "verbalized", "dtc_lin"} <= estimators
