"""Tokens near theta, in words."""

from __future__ import annotations

from dataclasses import replace

from report_samples import HOSTILE, evaluation

from divtok.evaluate.near_theta import NearTheta
from divtok.report.near_theta import near_theta_lines, near_theta_sentence
from divtok.report.write import write_report

SOME = NearTheta(
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


def test_the_sentence_holds_every_figure() -> None:
    assert near_theta_sentence(SOME) == (
        "12 of 48,211 reasoning tokens (0.02 %) lie within 0.0001 bits of theta 0.05, in 11 of "
        "1,600 trajectories: whether they count as divergent may depend on rounding (float32). "
        "The count of a trajectory could change by at most 2; all counts together, now 5,310, "
        "could come out between 5,304 and 5,316."
    )


def test_half_precision_and_an_unknown_type_are_named() -> None:
    half = near_theta_sentence(replace(SOME, precision="half", band_bits=0.02))
    assert "within 0.02 bits" in half
    assert "rounding (half precision)." in half
    unknown = near_theta_sentence(replace(SOME, precision="unknown", band_bits=0.02))
    assert "half precision is assumed: the run does not say in which number type" in unknown


def test_one_none_and_nothing_at_all() -> None:
    one = near_theta_sentence(replace(SOME, near=1, trajectories_near=1))
    assert one.startswith("1 of 48,211 reasoning tokens (under 0.01 %) lies within")
    assert "whether it counts" in one
    assert near_theta_sentence(replace(SOME, near=0, trajectories_near=0)) == (
        "none of 48,211 reasoning tokens lies within 0.0001 bits of theta 0.05: no count depends "
        "on rounding."
    )
    assert near_theta_sentence(replace(SOME, tokens=0, near=0)) == "there are no reasoning tokens."


def test_the_models_are_named() -> None:
    white, black = near_theta_lines([SOME, replace(SOME, p="reader")])
    assert white.startswith("gen with aux: 12 of")
    assert black.startswith("gen read by reader with aux: 12 of")


def test_the_page_has_a_section_only_where_there_is_something_to_say(tmp_path) -> None:
    found = [evaluation()]
    write_report(tmp_path / "without", evaluations=found)
    assert "near theta" not in (tmp_path / "without" / "README.md").read_text()
    hostile = [replace(SOME, generator=text) for text in HOSTILE]
    write_report(tmp_path / "with", evaluations=found, near_theta=[SOME, *hostile])
    page = (tmp_path / "with" / "README.md").read_text()
    assert "\n## Tokens near theta\n" in page
    assert "\n- gen with aux: 12 of 48,211 reasoning tokens (0.02 %) lie within 0.0001" in page
    assert page.count("reasoning tokens (0.02 %)") == 1 + len(HOSTILE)
    assert "<script" not in page
    assert "\x1b" not in page
