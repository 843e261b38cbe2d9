"""How much is certain, in words and on the report's page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import HOSTILE, evaluation

from divtok.evaluate.certified import Certified
from divtok.report.certified import certified_lines, certified_markdown, certified_sentence
from divtok.report.write import write_report

SOME = Certified(
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


def test_the_sentence_holds_every_figure() -> None:
    assert certified_sentence(SOME) == (
        "97.50 % of 48,000 reasoning tokens are certain at theta 0.05, 5,310 of them divergent; "
        "1,200 are open. All counts together lie between 5,310 and 6,510. 1,450 of 1,600 "
        "trajectories have a certain count; the count of one is open by 17 at most."
    )


def test_nothing_open_and_nothing_at_all() -> None:
    sure = replace(SOME, open=0, trajectories_certain=1600, largest_open=0)
    assert certified_sentence(sure).startswith("100.00 % of 48,000 reasoning tokens")
    assert certified_sentence(sure).endswith("5,310 of them divergent: every count is certain.")
    none = replace(SOME, tokens=0, divergent=0, open=0)
    assert certified_sentence(none) == "there are no reasoning tokens."


@pytest.mark.parametrize("unsure", [1, 2])
def test_hundred_percent_is_said_only_where_nothing_is_open(unsure: int) -> None:
    nearly = replace(SOME, tokens=1_000_000, open=unsure)
    assert "100.00 %" not in certified_sentence(nearly)


def test_the_models_are_named() -> None:
    lines = certified_lines([SOME, replace(SOME, p="gen")])
    assert lines[0].startswith("gen read by reader with aux: 97.50 % of")
    assert len(lines) == 2


@pytest.mark.parametrize("field", ["generator", "p", "q"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_do_nothing_on_the_page(field: str, text: str) -> None:
    page = certified_markdown([replace(SOME, **{field: text})])
    bullets = [line for line in page.splitlines() if line.startswith("- ")]
    assert len(bullets) == 1
    assert page.splitlines()[-1] == bullets[0]
    for raw in ("<", ">", "\x1b", "\x07", "\u202e", "\ud800"):
        assert raw not in page
    for mark in "|$*[]`#~":
        assert bullets[0].count(mark) == bullets[0].count("\\" + mark)
    page.encode()


def test_the_page_has_a_section_only_where_there_are_bounds(tmp_path) -> None:
    found = [evaluation()]
    write_report(tmp_path / "without", evaluations=found)
    assert "How much is certain" not in (tmp_path / "without" / "README.md").read_text()
    others = [replace(SOME, generator=text) for text in HOSTILE]
    write_report(tmp_path / "with", evaluations=found, certified=[SOME, *others])
    page = (tmp_path / "with" / "README.md").read_text(encoding="utf-8")
    assert "\n## How much is certain\n" in page
    assert "\n- gen read by reader with aux: 97.50 % of 48,000 reasoning tokens" in page
    assert page.count("97.50 % of 48,000 reasoning tokens") == 1 + len(HOSTILE)
    assert "<script" not in page
    assert page.index("## In short") < page.index("## How much is certain")
    assert page.index("## How much is certain") < page.index("## How the figures were made")
