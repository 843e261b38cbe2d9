"""Notes: in words, on the report's page, and as JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import HOSTILE, evaluation

from divtok.evaluate.certified import Certified
from divtok.evaluate.near_theta import NearTheta
from divtok.evaluate.scored_group import LeftOut
from divtok.records import Interval, PairWarning
from divtok.report.count_notes import (
    certified_note,
    certified_sentence,
    near_theta_note,
    near_theta_sentence,
)
from divtok.report.fitted_notes import rate_note
from divtok.report.note import Note
from divtok.report.notes import happened_note, left_out_note, mixed_note, pair_note
from divtok.report.prevalence_notes import noise_floor_note
from divtok.report.read_on import read_on, read_on_note
from divtok.report.write import write_report

CERTIFIED = Certified(
    generator="gen",
    p="reader",
    q="aux",
    theta=0.05,
    tokens=48000,
    divergent=5310,
    open=1200,
    trajectories=1600,
    trajectories_certain=1450,
    largest_open=17,
)
NEAR = NearTheta(
    generator="gen",
    p="gen",
    q="aux",
    theta=0.05,
    precision="float32",
    band_bits=1e-4,
    tokens=48211,
    near=12,
    trajectories=1600,
    trajectories_near=11,
    count=5310,
    count_low=5304,
    count_high=5316,
    largest_change=2,
    largest_range=3,
)
WITHIN_NOISE = {
    "natural_ece": 0.04,
    "natural_ece_floor": 0.035,
    "natural_ece_interval": Interval(0.0, 0.081),
}
LEFT_OUT = LeftOut("bench", "gen", failed=1200, gold_missing=3)


def notes_about(name: str) -> list[Note]:
    """Each kind of note, about a generator of this name."""
    return [
        left_out_note([replace(LEFT_OUT, generator=name)]),
        certified_note([replace(CERTIFIED, generator=name)]),
        near_theta_note([replace(NEAR, generator=name)]),
        noise_floor_note([evaluation(generator=name, **WITHIN_NOISE)]),
        mixed_note({"traces": [{"models": name, "device": d, "dtype": "x"} for d in "ab"]}),
        happened_note([f"{name}: out of memory"]),
        pair_note([PairWarning(name, "aux", "near_uniform", f"'{name}' knows nothing.")]),
    ]


def test_the_sentence_on_what_is_certain_holds_every_figure() -> None:
    assert certified_sentence(CERTIFIED) == (
        "97.50 % of 48,000 reasoning tokens are certain at theta 0.05, 5,310 of them divergent; "
        "1,200 are open. All counts together lie between 5,310 and 6,510. 1,450 of 1,600 "
        "trajectories have a certain count; the count of one is open by 17 at most."
    )


def test_nothing_open_and_nothing_at_all() -> None:
    sure = replace(CERTIFIED, open=0, trajectories_certain=1600, largest_open=0)
    assert certified_sentence(sure).startswith("100.00 % of 48,000 reasoning tokens")
    assert certified_sentence(sure).endswith("5,310 of them divergent: every count is certain.")
    none = replace(CERTIFIED, tokens=0, divergent=0, open=0)
    assert certified_sentence(none) == "there are no reasoning tokens."


@pytest.mark.parametrize("unsure", [1, 2])
def test_hundred_percent_is_said_only_where_nothing_is_open(unsure: int) -> None:
    nearly = replace(CERTIFIED, tokens=1_000_000, open=unsure)
    assert "100.00 %" not in certified_sentence(nearly)


def test_the_sentence_on_tokens_near_theta_holds_every_figure() -> None:
    assert near_theta_sentence(NEAR) == (
        "12 of 48,211 reasoning tokens (0.02 %) lie within 0.0001 bits of theta 0.05, in 11 of "
        "1,600 trajectories: whether they count as divergent may depend on rounding (float32). "
        "The count of a trajectory could change by at most 2; all counts together, now 5,310, "
        "could come out between 5,304 and 5,316."
    )


def test_half_precision_and_an_unknown_dtype_are_named() -> None:
    half = near_theta_sentence(replace(NEAR, precision="half", band_bits=0.02))
    assert "within 0.02 bits" in half
    assert "rounding (half precision)." in half
    unknown = near_theta_sentence(replace(NEAR, precision="unknown", band_bits=0.02))
    assert "half precision is assumed: the run does not say in which dtype" in unknown


def test_only_errors_that_chance_explains_are_named_in_one_line_a_group() -> None:
    small = evaluation("small", **WITHIN_NOISE)
    other = evaluation("other", **WITHIN_NOISE)
    large = evaluation("large", natural_ece_floor=0.035)
    unknown = evaluation("unknown", natural_ece_interval=None)
    note = noise_floor_note([small, large, other, unknown])
    assert note.lines == (
        "gen on bench, natural ECE in %: small 4.0 (noise floor 3.5, the true one at most 8.1), "
        "other 4.0 (noise floor 3.5, the true one at most 8.1).",
    )
    assert [note.value(e) for e in (small, large, unknown)] == [True, False, None]


def test_one_none_and_nothing_near_theta() -> None:
    one = near_theta_sentence(replace(NEAR, near=1, trajectories_near=1))
    assert one.startswith("1 of 48,211 reasoning tokens (under 0.01 %) lies within")
    assert "whether it counts" in one
    assert near_theta_sentence(replace(NEAR, near=0, trajectories_near=0)) == (
        "none of 48,211 reasoning tokens lies within 0.0001 bits of theta 0.05: no count depends "
        "on rounding."
    )
    assert near_theta_sentence(replace(NEAR, tokens=0, near=0)) == "there are no reasoning tokens."


def test_the_models_are_named() -> None:
    white, black = near_theta_note([NEAR, replace(NEAR, p="reader")]).lines
    assert white.startswith("gen with aux: 12 of")
    assert black.startswith("gen read by reader with aux: 12 of")
    first, _ = certified_note([CERTIFIED, replace(CERTIFIED, p="gen")]).lines
    assert first.startswith("gen read by reader with aux: 97.50 % of")


def test_rows_left_out_are_named_by_their_reason() -> None:
    rows = [LEFT_OUT, replace(LEFT_OUT, gold_missing=0), replace(LEFT_OUT, failed=0)]
    assert left_out_note(rows).lines == (
        "gen on bench: 1,200 without a response and 3 without a gold answer, not counted in any "
        "figure.",
        "gen on bench: 1,200 without a response, not counted in any figure.",
        "gen on bench: 3 without a gold answer, not counted in any figure.",
    )


def test_a_rate_that_nobody_fitted_is_named() -> None:
    guarded = evaluation(estimator="dtc_guarded", params={"rate": 1.0, "guard": 4.0})
    (line,) = rate_note([guarded]).lines
    assert line.endswith("divtok fit --run RUN --what rate --estimator dtc_guarded.")
    weighted = evaluation(estimator="dtc_weighted", params={"rate": 1.0})
    (line,) = rate_note([weighted, guarded]).lines
    assert line.startswith("dtc_weighted and dtc_guarded: no rate")
    assert line.endswith("--estimator NAME.")
    others = [
        evaluation(estimator="dtc_weighted", params={"rate": 1.78}),
        evaluation(estimator="dtc_guarded", params={"rate": 1.0, "guard": 5.0, "map": "isotonic"}),
        evaluation(estimator="of_another_package", params={"rate": 1.0}),
    ]
    assert rate_note(others).lines == ()


def test_a_note_has_a_value_for_each_evaluation() -> None:
    found = {note.key: note.value for note in notes_about("gen")}
    assert list(found) == [
        "left_out", "certified", "near_theta", "ece_within_noise", "mixed", "happened",
        "pair_warnings",
    ]  # fmt: skip
    ours, other = evaluation(), evaluation(generator="other", benchmark="bench")
    assert found["left_out"](ours) == {"failed": 1200, "gold_missing": 3}
    assert found["left_out"](evaluation(benchmark="another")) is None
    [near] = found["near_theta"](ours)
    assert (near["near"], near["share"]) == (12, NEAR.share)
    [certain] = found["certified"](ours)
    assert (certain["open"], certain["share"]) == (1200, CERTIFIED.share)
    warning = {"p": "gen", "q": "aux", "kind": "near_uniform", "text": "'gen' knows nothing."}
    assert found["pair_warnings"](ours) == [warning]
    assert found["left_out"](other) is None
    assert found["near_theta"](other) == found["certified"](other) == []


@pytest.mark.parametrize("field", ["generator", "p", "q"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_do_nothing_on_the_page(field: str, text: str) -> None:
    page = certified_note([replace(CERTIFIED, **{field: text})]).markdown()
    bullets = [line for line in page.splitlines() if line.startswith("- ")]
    assert len(bullets) == 1
    assert page.splitlines()[-1] == bullets[0]
    for raw in ("<", ">", "\x1b", "\x07", "\u202e", "\ud800"):
        assert raw not in page
    for mark in "|$*[]`#~":
        assert bullets[0].count(mark) == bullets[0].count("\\" + mark)
    page.encode()


def test_the_page_has_a_section_for_each_note_that_has_lines(tmp_path) -> None:
    found = [evaluation()]
    silent = [left_out_note([]), certified_note([]), near_theta_note([])]
    for folder, notes in (("without", ()), ("silent", silent)):
        write_report(tmp_path / folder, evaluations=found, notes=notes)
    without = (tmp_path / "without" / "README.md").read_text()
    assert (tmp_path / "silent" / "README.md").read_text() == without
    names = ["gen", *HOSTILE]
    notes = [note for name in names for note in notes_about(name)]
    write_report(tmp_path / "with", evaluations=found, notes=notes)
    page = (tmp_path / "with" / "README.md").read_text(encoding="utf-8")
    assert "\n- gen read by reader with aux: 97.50 % of 48,000 reasoning tokens" in page
    assert "\n- gen with aux: 12 of 48,211 reasoning tokens (0.02 %) lie within 0.0001" in page
    assert "\n- gen on bench: 1,200 without a response and" in page
    assert page.count("97.50 % of 48,000 reasoning tokens") == len(names)
    assert "<script" not in page
    assert "\x1b" not in page
    sections = [
        "In short",
        "Rows that are not counted",
        "How much is certain",
        "Tokens near theta",
        "How the figures were made",
    ]
    assert all(f"## {title}\n" not in without for title in sections[1:4])
    places = [page.index(f"\n## {title}\n") for title in sections]
    assert places == sorted(places)


def test_the_sentence_on_rows_beyond_the_trained_context_sums_over_groups() -> None:
    found = [
        evaluation("prm", generator="x", n_scored=300, beyond=12, trained_length=4096),
        evaluation("prm", generator="y", n_scored=100, beyond=0, trained_length=4096),
        evaluation("nsl", generator="x"),
    ]
    said = (
        "12 of {} scored responses are longer than the 4,096 tokens it was trained on; it read on."
    )
    assert read_on(found) == [f"PRM: {said.format(400)}"]
    note = read_on_note(found)
    assert note.lines == (f"x on bench, PRM: {said.format(300)}",)
    assert [note.value(e) for e in found] == [
        {"beyond": 12, "of": 300, "trained_length": 4096},
        {"beyond": 0, "of": 100, "trained_length": 4096},
        None,
    ]
    one = read_on([evaluation("prm", n_scored=5, beyond=1, trained_length=64)])
    assert one == [
        "PRM: 1 of 5 scored responses is longer than the 64 tokens it was trained on; it read on."
    ]
    assert read_on(found[1:]) == []
