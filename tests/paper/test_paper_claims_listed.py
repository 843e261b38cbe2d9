"""The list of claims: whole, the same as on its page, and one verdict each."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_samples import tiny_material

from divtok.paper.build import make_exhibits
from divtok.paper.claims import listed
from divtok.paper.claims.listed import LISTED, Judged, counted, judge
from divtok.paper.claims.said import SECTIONS, Said
from divtok.paper.exhibit import Compared, Exhibit, Finding
from divtok.paper.recipe import chosen_recipes, recipes

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"


def row(number: int, said: Said) -> str:
    names = ", ".join(f"`{name}`" for name in said.recipes)
    return f"| {number} | {said.text} | {said.section} | {names} |"


def test_the_page_on_the_paper_lists_every_claim() -> None:
    text = PAGE.read_text("utf-8")
    _, table = text.split("| no. | claim, in our words | section | checked by |\n", 1)
    rows = table.split("\n\n", 1)[0].splitlines()[1:]
    assert rows == [row(number, said) for number, said in enumerate(LISTED, start=1)]
    assert f"{len(LISTED)} claims" in text


def test_every_claim_has_a_section_and_recipes_that_are_there() -> None:
    assert len({said.text for said in LISTED}) == len(LISTED)
    for said in LISTED:
        assert said.section in SECTIONS
        assert said.recipes
        assert set(said.recipes) <= set(recipes())
    assert {said.section for said in LISTED} == set(SECTIONS)
    order = list(SECTIONS)
    assert [said.section for said in LISTED] == sorted(
        (said.section for said in LISTED), key=order.index
    )


def test_every_recipe_checks_what_the_list_says_of_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    made = make_exhibits(chosen_recipes("all"), tiny_material(tmp_path_factory))
    for exhibit in made:
        texts = [finding.claim for finding in exhibit.findings]
        assert len(set(texts)) == len(texts)
        assert set(texts) == {
            said.text for said in LISTED if exhibit.recipe.name in said.recipes
        }, exhibit.recipe.name
        for finding in exhibit.findings:
            assert finding.number
            assert finding.rule
    judged = judge(made, everything=True)
    assert [one.said for one in judged] == list(LISTED)
    assert [one.number for one in judged] == list(range(1, len(LISTED) + 1))
    assert all(one.measured for one in judged)


FIRST = LISTED[0]
SEVERAL = next(said for said in LISTED if len(said.recipes) == 3 and said.share == "every")


def exhibit(recipe: str, claim: str, *holds: bool | None) -> Exhibit:
    compared = tuple(Compared("x", 0.1, 0.0, 0.2, one) for one in holds)
    finding = Finding(claim, "the rule", holds[0] if holds else None, f"of {recipe}", compared)
    return Exhibit(recipes()[recipe], findings=(finding,))


def verdicts(judged: list[Judged]) -> dict[str, str]:
    return {one.said.text: one.verdict for one in judged}


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ((True, True, True), "holds"),
        ((True, False, True), "does not hold"),
        ((True, None, True), "undecided"),
        ((True, True), "undecided"),  # a recipe that was not made
        ((False, True), "does not hold"),
        ((), "undecided"),
    ],
)
def test_a_claim_of_several_recipes_has_one_verdict(
    holds: tuple[bool | None, ...], verdict: str
) -> None:
    made = [
        exhibit(recipe, SEVERAL.text, one)
        for recipe, one in zip(SEVERAL.recipes, holds, strict=False)
    ]
    judged = judge(made, everything=True)
    assert len(judged) == len(LISTED)
    assert verdicts(judged)[SEVERAL.text] == verdict
    [one] = [one for one in judged if one.said == SEVERAL]
    missing = SEVERAL.recipes[len(holds) :]
    assert all(name in one.why for name in missing)
    assert bool(one.why) == bool(missing)


def test_a_page_of_one_recipe_has_its_claims_alone() -> None:
    made = [exhibit(SEVERAL.recipes[0], SEVERAL.text, True)]
    [one] = judge(made, everything=False)
    assert (one.said, one.verdict, one.why) == (SEVERAL, "holds", "")
    assert one.number == LISTED.index(SEVERAL) + 1
    assert one.measured == f"of {SEVERAL.recipes[0]}"


def test_most_is_of_all_comparisons_together() -> None:
    often = next(said for said in LISTED if said.share == "often")
    first, second, third = often.recipes
    # Three of nine hold, none of them in two of the tables.
    held = exhibit(first, often.text, True, True, True)
    others = [exhibit(name, often.text, False, False, False) for name in (second, third)]
    [one] = judge([held, *others], everything=False)
    assert one.verdict == "holds"
    [fewer] = judge([exhibit(first, often.text, True, True, False), *others], everything=False)
    assert fewer.verdict == "does not hold"


def test_a_finding_that_is_not_listed_has_a_row_too() -> None:
    [one] = judge([exhibit(FIRST.recipes[0], "Of a recipe of one's own.", True)], everything=False)
    assert (one.number, one.section, one.verdict) == (None, "other", "holds")


def test_counts_of_verdicts() -> None:
    recipe = FIRST.recipes[0]
    judged = [
        one
        for text, holds in (("a", True), ("b", True), ("c", False), ("d", None))
        for one in judge([exhibit(recipe, text, holds)], everything=False)
    ]
    assert counted(judged) == "4 claims: 2 hold, 1 does not hold, 1 undecided"
    assert counted(judged[:1]) == "1 claim: 1 holds, 0 do not hold, 0 undecided"
    nothing = judge([], everything=True)
    assert (
        counted(nothing) == f"{len(LISTED)} claims: 0 hold, 0 do not hold, {len(LISTED)} undecided"
    )


def test_what_nothing_can_measure_says_what_would_decide_it() -> None:
    for said, reason in listed.OPEN.items():
        for recipe in said.recipes:
            [finding] = [f for f in listed.open_findings(recipe) if f.claim == said.text]
            assert (finding.holds, finding.number) == (None, reason)
            assert "to be told from" in reason
    assert listed.open_findings("figure-pilot") == ()


def test_a_recipe_that_was_not_made_leaves_its_claims_open() -> None:
    found = listed.unmade_findings("figure-pilot")
    assert {finding.claim for finding in found} == {
        said.text for said in LISTED if "figure-pilot" in said.recipes
    }
    assert all(finding.holds is None and "figure-pilot" in finding.number for finding in found)
