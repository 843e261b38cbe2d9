"""Warnings about a run's pairs: said before anything is spent, kept, and shown with the figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    RIGHT_OR_WRONG,
    Row,
    handmade_run,
    no_models,
    small_config,
    trace_of,
    write_responses,
)

from divtok.models.packaged import resolve_model
from divtok.records import PairWarning
from divtok.stages.evaluate import results_of
from divtok.stages.pair_warnings import (
    keep_warnings,
    known_before,
    say_warnings,
    tallies_of,
)
from divtok.stages.rescore import rescore
from divtok.stages.run import run_stages
from divtok.stages.score import score
from divtok.store.pair_warnings import PAIR_WARNINGS, kept_pair_warnings
from divtok.trace.pair_warnings import FEWEST_AGREEING

STRONG = "divtok/tiny-0.9m"


def test_a_generator_that_reads_itself_may_be_the_smaller_one() -> None:
    assert known_before(small_config(f"trace.auxiliary={STRONG}")) == []
    read = small_config(f"trace.reader={AUXILIARY}", f"trace.auxiliary={STRONG}")
    (found,) = known_before(read)
    assert (found.p, found.q, found.kind) == (AUXILIARY, STRONG, "smaller_p")


def test_models_of_that_name_here_need_not_be_the_server_s() -> None:
    servers = [f"servers.{ref}=http://127.0.0.1:1/v1" for ref in (AUXILIARY, STRONG)]
    config = small_config(f"trace.reader={AUXILIARY}", f"trace.auxiliary={STRONG}", *servers)
    assert known_before(config) == []
    assert tallies_of(config)[AUXILIARY, STRONG].width is None


def test_the_width_is_the_one_that_both_share() -> None:
    assert {pair: tally.width for pair, tally in tallies_of(small_config()).items()} == {
        (GENERATOR, AUXILIARY): 784
    }


def test_the_same_weights_are_said_first_and_shown_with_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = str(shutil.copytree(resolve_model(GENERATOR), tmp_path / "copy"))
    config = small_config(f"trace.auxiliary={copy}", "score.theta=0.05")
    run = write_responses(tmp_path / "run", config, RIGHT_OR_WRONG)
    text = (
        f"'{GENERATOR}' and '{copy}' have the same weights. A model never diverges from itself: "
        "every count is 0 and every confidence the same."
    )
    config = run_stages(run, config, sampled=True)
    said = capsys.readouterr().err
    assert said.count(text) == 1
    assert said.index(text) < said.index("trace ")
    assert kept_pair_warnings(run) == [PairWarning(GENERATOR, copy, "same_weights", text)]
    found = results_of(run, config)
    (note,) = [note for note in found.notes if note.key == "pair_warnings"]
    assert (note.heading, note.lines) == ("Warning", (text,))
    assert note.markdown().startswith("## Pairs that may mean nothing\n")
    # Another pair takes the warning away, and coming back brings it back.
    rescore(run, pair=(GENERATOR, AUXILIARY))
    assert kept_pair_warnings(run) == []
    rescore(run, pair=(GENERATOR, copy), theta=0.05)
    assert [w.kind for w in kept_pair_warnings(run)] == ["same_weights"]


def agreeing(folder: Path) -> list[Row]:
    return [Row(name, tokens=FEWEST_AGREEING // 2) for name in "ab"]


def test_a_pair_that_never_diverges_is_told_when_it_is_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = agreeing(tmp_path)
    run, config = handmade_run(tmp_path, rows), small_config()
    zeros = np.zeros(rows[0].tokens, np.float32)
    with run.lock():
        run.traces.append([trace_of(row, jsd_bits=zeros) for row in rows])
        score(run, config)
        said = capsys.readouterr().err
        assert (
            f"warning: '{GENERATOR}' and '{AUXILIARY}' agree on every token: no divergence reaches "
            "0.001 bits, so every count is 0 and says nothing." in said
        )
        score(run, config)
        again = capsys.readouterr().err
        assert "nothing has changed" in again
        assert "agree on every token" in again
        run.traces.append([trace_of(row) for row in rows])
        score(run, config)
    assert kept_pair_warnings(run) == []
    assert "agree" not in capsys.readouterr().err


def test_an_ordinary_run_has_no_table_of_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = handmade_run(tmp_path, [Row("a"), Row("b")]), small_config()
    no_models(monkeypatch)
    with run.lock():
        score(run, config)
    assert not run.table(PAIR_WARNINGS).folder.exists()


def test_what_is_known_of_models_that_went_away_stays(tmp_path: Path) -> None:
    gone = ("nobody/has-this", "nobody/has-that")
    config = small_config(f"trace.reader={gone[0]}", f"trace.auxiliary={gone[1]}")
    run = handmade_run(tmp_path, [Row("a")], config=config)
    kinds = ("same_weights", "smaller_p", "near_uniform", "no_divergence")
    before = [PairWarning(*gone, kind, "text") for kind in kinds]
    others = [PairWarning(GENERATOR, AUXILIARY, "near_uniform", "of another pair")]
    with run.lock():
        run.table(PAIR_WARNINGS).replace([*before, *others])
        found = keep_warnings(run, config, tallies_of(config))
    assert found == before[:3]
    assert kept_pair_warnings(run) == found


def test_each_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say_warnings([PairWarning("p", "q", "kind", "One."), PairWarning("p", "r", "kind", "Two.")])
    assert capsys.readouterr().err == "warning: One.\nwarning: Two.\n"
