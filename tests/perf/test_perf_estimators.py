"""divtok's estimators beside lm-polygraph's and TruthTorchLM's, and how the comparison is made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from divtok.errors import DataError
from divtok.models.load import LoadedModel
from divtok.records import Trace, Trajectory
from perf import agreement, estimator_peers, estimators, peers
from perf.__main__ import main
from perf.agreement import Agreement, Comparison, Model
from perf.estimator_peers import Number, Replay
from perf.results import RESULTS

need_peers = pytest.mark.skipif(not peers.PEERS.exists(), reason="peers are not installed: .peers")


def row(peer: str, model: str, estimator: str, number: str, precise: float, plain: float, **more):
    given = {"version": "1.0", "responses": 3, "conversion": "1 - x", "remark": "", "own": True}
    return Comparison(
        peer=peer,
        model=model,
        estimator=estimator,
        number=number,
        largest_difference=precise,
        largest_difference_float32=plain,
        **(given | more),
    )


def sample_agreement(difference: float = 2e-7) -> Agreement:
    """Two models; the second peer read one of them and has its own estimator for nsl only."""
    models = tuple(Model(name, "small", 3, 2, 40, 1e-6) for name in ("one", "two"))
    rows = [
        row("first", model.name, name, f"its {name}", scale * 1e-8, scale * 1e-6)
        for scale, model in enumerate(models, start=1)
        for name in agreement.ESTIMATORS
    ]
    rows += [
        row("second", "one", "nsl", "likelihood", difference, 4e-5),
        row("second", "one", "nsl", "log-probs", 9e-6, 9e-6, own=False),
        row("second", "one", "entropy", "logits", 3e-6, 5e-6, own=False, remark="a|b"),
    ]
    return Agreement("python -m perf", "2026-01-02", {"CPU": "a CPU"}, models, tuple(rows))


def cells(text: str, *starts: str) -> list[str]:
    line = next(x for x in text.splitlines() if x.startswith(f"| {' | '.join(starts)} |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_brackets_mark_what_the_peer_does_not_have():
    text = agreement.summary_table(sample_agreement())
    assert cells(text, "first 1.0", "two")[3:] == ["2.0e-08"] * 3 + ["2.0e-06"] * 3
    assert cells(text, "second 1.0", "one")[3:] == [
        *("2.0e-07", "none", "(3.0e-06)"),
        *("4.0e-05", "none", "(5.0e-06)"),
    ]


def test_every_number_has_one_row_with_its_largest_difference():
    text = agreement.numbers_table(sample_agreement())
    assert len(text.splitlines()) == 2 + 3 + 3
    assert cells(text, "first", "its nsl")[-2:] == ["2.0e-08", "2.0e-06"]
    assert cells(text, "second", "logits")[4:] == ["a\\|b", "3.0e-06", "5.0e-06"]


@pytest.mark.parametrize(("difference", "holds"), [(1e-5, True), (1.1e-5, False)])
def test_it_holds_up_to_the_limit(difference: float, holds: bool):
    assert sample_agreement(difference).holds is holds


def test_a_run_that_does_not_hold_ends_with_the_code_for_partial_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for difference, code in ((1e-6, 0), (1e-4, 3)):
        found = sample_agreement(difference)
        monkeypatch.setattr("perf.estimators.run", lambda f=found, **_: f)
        assert main(["run", "--section", "estimators", "--quick"]) == code
    assert "above 1e-05" in capsys.readouterr().err


def test_a_comparison_comes_back_from_its_file_as_it_was(tmp_path: Path):
    assert agreement.read_agreement(tmp_path) is None
    agreement.write_agreement(sample_agreement(), tmp_path)
    assert agreement.read_agreement(tmp_path) == sample_agreement()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"models": [], "comparisons": [], "x": 1}'])
def test_a_file_that_is_no_comparison_is_refused(tmp_path: Path, text: str):
    (tmp_path / "estimators.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"estimators\.json is not .* --section estimators"):
        agreement.read_agreement(tmp_path)


def test_the_stored_comparison_is_on_the_page_and_holds():
    stored = agreement.read_agreement(RESULTS)
    assert stored is not None
    assert stored.holds
    text = agreement.PAGE.read_text(encoding="utf-8")
    assert agreement.fill(text, stored) == text, "run: python -m perf render"


def make_trace(logprob: list[float], entropy: list[float]) -> Trace:
    zeros = np.zeros(len(logprob), np.float32)
    p, e = np.array(logprob, np.float32), np.array(entropy, np.float32)
    return Trace("", "p", "q", p, zeros, e, zeros, zeros, zeros, zeros, None, None, 0, 0.0, 0.0)


def test_ours_leaves_out_what_the_peer_leaves_out():
    traces = [make_trace(np.log([0.5, 0.25, 0.75]).tolist(), [0.5, 0.25, 9.0])]
    whole = Number("x", "mean_prob", "")
    assert estimators.ours(whole, traces) == pytest.approx([0.5])
    cut = replace(whole, tokens="all but the last")
    assert estimators.ours(cut, traces) == pytest.approx([0.375])
    assert estimators.ours(replace(cut, estimator="entropy"), traces) == pytest.approx([0.625])


def test_ours_over_a_problem_is_the_geometric_mean_of_its_samples():
    traces = [make_trace([np.log(p)] * 2, [0, 0]) for p in (0.25, 1.0)]
    number = Number("x", "nsl", "", over=estimator_peers.PROBLEM)
    assert estimators.ours(number, traces) == pytest.approx([0.5])


@pytest.fixture(scope="module")
def family() -> estimators.Family:
    peers.add_peers_path()
    return estimators.tiny_family(problems=1, samples=4)


@pytest.fixture(scope="module")
def written(family: estimators.Family) -> list[list[Trajectory]]:
    return estimators.write_responses(family)


@pytest.fixture(scope="module")
def loaded(family: estimators.Family) -> LoadedModel:
    return family.writer[2]


def generated(
    loaded: LoadedModel, prompt: torch.Tensor, steps: int
) -> tuple[list[int], torch.Tensor]:
    """What transformers writes greedily, and its raw logits [T, V]."""
    out = loaded.model.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=steps,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return out.sequences[0, prompt.shape[1] :].tolist(), torch.cat(out.logits)


def test_a_replay_hands_out_what_generating_would_have(
    loaded: LoadedModel, written: list[list[Trajectory]]
):
    prompt = torch.tensor([written[0][0].prompt_ids])
    greedy, expected = generated(loaded, prompt, 12)
    rows = [greedy, greedy[:7]]
    seen: list[tuple[list[int], torch.Tensor]] = []

    def processor(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        seen.append((input_ids[0].tolist(), scores))
        return scores * 0

    out = Replay(loaded.model, rows, precise=True).generate(
        input_ids=prompt, logits_processor=[processor]
    )
    assert out.sequences[0].tolist() == [*written[0][0].prompt_ids, *greedy]
    assert out.sequences[1, : len(prompt[0]) + 7].tolist() == out.sequences[0, :-5].tolist()
    assert [ids for ids, _ in seen] == [
        [*written[0][0].prompt_ids, *greedy[:step]] for step in range(12)
    ]
    logits = torch.stack(out.logits, 1)
    assert logits.dtype == torch.float64
    torch.testing.assert_close(logits[0].float(), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(logits[1, :7].float(), expected[:7], atol=1e-4, rtol=0)
    assert not torch.stack(out.scores).any()


def test_a_cut_vocabulary_only_takes_the_padding_away(
    loaded: LoadedModel, written: list[list[Trajectory]]
):
    ids = torch.tensor([written[0][0].prompt_ids])
    cut = estimators.cut_vocabulary(loaded, loaded.tokenizer_width)
    assert loaded.model.config.vocab_size > loaded.tokenizer_width
    with torch.inference_mode():
        whole, short = loaded.model(ids).logits, cut.model(ids).logits
    torch.testing.assert_close(short, whole[..., : loaded.tokenizer_width], atol=1e-5, rtol=0)
    assert estimators.cut_vocabulary(cut, loaded.tokenizer_width) is cut


@need_peers
@pytest.mark.parametrize("peer", estimator_peers.ALL, ids=lambda peer: peer.package)
def test_a_peer_gives_the_numbers_that_it_names(
    peer: estimator_peers.Peer, loaded: LoadedModel, written: list[list[Trajectory]]
):
    found = peer.run(loaded, written[0], True)
    assert {name: len(values) for name, values in found.items()} == {
        number.name: 1 if number.over == estimator_peers.PROBLEM else len(written[0])
        for number in peer.numbers
    }


@need_peers
def test_both_peers_agree_with_divtok_on_both_tiny_models(
    family: estimators.Family, written: list[list[Trajectory]]
):
    readings = estimators.read_responses(family, written)
    rows = [found for r in readings for found in estimators.compare(r, written)]
    assert {(found.peer, found.model) for found in rows} == {
        (peer, model)
        for peer in ("lm-polygraph", "TruthTorchLM")
        for model in ("tiny-0.5m", "tiny-0.3m")
    }
    assert {found.estimator for found in rows} == set(agreement.ESTIMATORS)
    assert max(found.largest_difference for found in rows) < 1e-6
    assert max(found.largest_difference_float32 for found in rows) < agreement.LIMIT
    # The two models differ by far more, so their agreement with the peers says something.
    means = [np.mean([t.logprob_p.mean() for t in r.traces[0]]) for r in readings]
    assert abs(means[0] - means[1]) > 1e-2


@need_peers
def test_other_tokens_than_those_given_are_refused(
    loaded: LoadedModel, written: list[list[Trajectory]]
):
    sample = written[0][0]
    end = loaded.tokenizer.eos_token_id
    # An end token in the middle, at which a peer stops reading.
    broken = replace(sample, token_ids=(*sample.token_ids[:4], end, *sample.token_ids[4:8]))
    for peer in estimator_peers.ALL:
        with pytest.raises(DataError, match="did not read the tokens"):
            peer.run(loaded, [broken], False)


@need_peers
def test_the_command_stores_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small = estimators.tiny_family
    monkeypatch.setattr(estimators, "tiny_family", lambda **_: small(problems=1, samples=2))
    assert main(["run", "--section", "estimators", "--quick", "--out", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "estimators.json").read_text(encoding="utf-8"))
    assert stored["command"] == "python -m perf run --section estimators --quick"
    assert {found["peer"]: found["version"] for found in stored["comparisons"]} == {
        "lm-polygraph": "0.7.0",
        "TruthTorchLM": "0.1.19",
    }
    assert [model["responses"] for model in stored["models"]] == [2, 2]
    assert "SmolLM2-135M-Instruct" in stored["left_out"]
