"""The documentation says what the program says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from divtok.registry import OWN
from divtok.score.facts import FACTS, Fact
from divtok.score.registry import ESTIMATORS, Estimator
from divtok.score.sets import ESTIMATOR_SETS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
HEADINGS = ["Formula", "What it needs", "Range", "Cost", "Source"]
OPTIONAL_HEADINGS = ["Details", "Read with care"]
# Not those that plug-ins or other tests have registered.
SHIPPED = [spec for spec in ESTIMATORS if spec.function.__module__.startswith("divtok.score.")]


def estimator_sections(name: str) -> dict[str, str]:
    """Heading -> text below it; the text before the first heading is under the title."""
    text = (REFERENCE / "estimators" / f"{name}.md").read_text(encoding="utf-8")
    parts = re.split(r"^##? (.+)\n", text, flags=re.MULTILINE)
    return {heading: body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def test_the_cli_reference_is_up_to_date():
    from docs.make_cli_reference import TARGET, reference

    assert TARGET.read_text(encoding="utf-8") == reference(), (
        "run: python docs/make_cli_reference.py"
    )


def test_the_page_on_reliability_is_up_to_date():
    from tools.reliability import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tools/reliability.py"


def anchors(page: Path) -> list[str]:
    """What links to the headings of a page end in, by GitHub's rule."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]:
        links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
        for target, anchor in links:
            if "://" in target:
                continue
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


def test_the_page_on_the_paper_names_every_recipe():
    from divtok.paper.recipe import recipes

    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    table = text[text.index("| recipe |") : text.index("Figures are made")]
    assert set(re.findall(r"`((?:table|figure)-[\w.-]+)`", table)) == set(recipes())


def test_the_configuration_page_names_every_key():
    from divtok.config.run import RunConfig, Section

    def leaves(section: type[Section], prefix: str = "") -> Iterator[str]:
        for name, field in section.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from leaves(kind, f"{prefix}{name}.")
            else:
                yield prefix + name

    text = (REFERENCE / "config.md").read_text(encoding="utf-8")
    named: set[str] = set()
    for cell in re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE):
        parent = ""
        for key in re.findall(r"`([\w.]+)`", cell):
            # A key that begins with a dot stands in the section of the one before it.
            full = parent + key if key.startswith(".") else key
            parent = full.rpartition(".")[0]
            named.add(full)
    assert named == set(leaves(RunConfig))


def test_the_run_folder_page_names_every_table(tmp_path: Path):
    from divtok.evidence.kind import EVIDENCE
    from divtok.store.run import Run

    text = (REFERENCE / "run-folder.md").read_text(encoding="utf-8")
    names = {table.folder.name for table in Run(tmp_path).tables}
    shipped = [kind for kind in EVIDENCE if EVIDENCE.origin(kind.name) == OWN]
    names |= {kind.layout.name for kind in shipped if kind.layout is not None}
    assert {"calls", "counts", "chains", "readings", "replies", "rewards", "relevance"} <= names
    for name in names:
        assert f"      {name}/ " in text


def test_the_estimator_page_links_to_a_page_for_every_estimator():
    text = (REFERENCE / "estimators.md").read_text(encoding="utf-8")
    estimators, facts = text.split("\n## Facts\n")
    for part, names in ((estimators, [spec.name for spec in SHIPPED]), (facts, [*FACTS])):
        linked = re.findall(r"^\| \[`(\w+)`\]\(estimators/(\w+)\.md\)", part, flags=re.MULTILINE)
        assert sorted(linked) == sorted((name, name) for name in names)
    pages = {page.stem for page in (REFERENCE / "estimators").iterdir()}
    assert pages == {*(spec.name for spec in SHIPPED), *FACTS}


def test_the_estimator_page_names_the_members_of_every_set():
    text = (REFERENCE / "estimators.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, flags=re.MULTILINE))
    for name, members in ESTIMATOR_SETS.items():
        assert name in rows
        if name not in ("trace", "verbalized_protocol"):  # told by what their members need
            assert re.findall(r"`(\w+)`", rows[name]) == members()


@pytest.mark.parametrize("spec", [*SHIPPED, *FACTS.values()], ids=lambda spec: spec.name)
def test_a_page_tells_formula_needs_range_cost_and_source(spec: Estimator | Fact):
    sections = estimator_sections(spec.name)
    title, *headings = sections
    assert title == spec.name
    assert headings[: len(HEADINGS)] == HEADINGS
    rest = headings[len(HEADINGS) :]
    assert rest == [heading for heading in OPTIONAL_HEADINGS if heading in rest]
    assert all(sections[heading] for heading in (title, *HEADINGS))
    assert "\n\n" not in sections[title], "one sentence"


@pytest.mark.parametrize("spec", SHIPPED, ids=lambda spec: spec.name)
def test_a_page_says_what_the_estimator_declares(spec: Estimator):
    sections = estimator_sections(spec.name)
    needs = sections["What it needs"]
    for need in spec.needs:
        assert f"`{need}`" in needs
    for name, default in spec.parameters.items():
        assert f"`{name}`" + ("" if default is None else f" = {default}") in needs
    assert bool(spec.parameters) != ("no parameters" in needs.lower())
    assert spec.needs_trace == ("The trace: " in needs)
    assert spec.ranking_only == ("Ranking only" in sections["Range"])


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_a_page_says_what_a_fact_is(fact: Fact):
    sections = estimator_sections(fact.name)
    needs = sections["What it needs"]
    assert "a fact of every trace" in " ".join(sections[fact.name].split())
    assert "The trace: `jsd_bits`" in needs
    assert fact.uses_theta == ("`theta`" in needs) != ("no parameters" in needs.lower())
    assert "Ranking only" in sections["Range"]


def test_the_readme_example_gives_what_it_says():
    import divtok

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(code, names)
    result = names["result"]
    assert isinstance(result, divtok.Result)
    assert f"result.value  # {result.value:g}" in code
    assert f"result.count  # {result.count} divergent" in code


def test_the_page_of_dtc_guarded_has_values_that_it_gives():
    import divtok

    details = estimator_sections("dtc_guarded")["Details"]
    question = re.findall(r'^\| to "(.*?)"', details, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `(.*?)` \| (.*) \|$", details, flags=re.MULTILINE)
    assert [("551" in response, "First" in response) for response, _ in rows] == [
        (True, False),
        (False, False),
        (True, True),
        (False, True),
    ]
    pair = divtok.load_pair("tiny")
    for text, cells in rows:
        *values, named = cells.split(" | ")
        response = text.replace(r"\n", "\n")
        for name, value in zip(("dtc_lin", "dtc_weighted", "dtc_guarded"), values, strict=True):
            found = divtok.confidence(question, response, pair=pair, estimator=name)
            # Next to nothing is a sum of many surprises in an exponent: here its size.
            size = {"rel": 0.2} if "e" in value else {"abs": 6e-4}
            assert found.value == pytest.approx(float(value), **size)
        marked = [token.text for token in found.tokens if token.unexpected]
        assert marked == re.findall("`(.*?)`", named)


def test_the_tutorials_wrong_sum_is_seen_by_dtc_guarded_alone():
    import divtok

    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    names: dict[str, str] = {}
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    exec("\n".join(re.findall(r"^(?:question|good) = .*$", code, flags=re.MULTILINE)), names)
    pair = divtok.load_pair("tiny")
    values: list[str] = []
    for response in (names["good"], names["good"].replace("1231", "1331")):
        found = divtok.confidence(names["question"], response, pair=pair, estimator="dtc_guarded")
        assert found.count == 1
        values.append(f"{found.value:.2f}")
    assert "goes from {} to {}.".format(*values) in text
    assert [token.text for token in found.tokens if token.unexpected] == ["3"]


def test_the_examples_of_families_and_benchmarks_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from plug_in_samples import announce, write_package

    from divtok.families.family import FAMILIES
    from divtok.problems.benchmark import BENCHMARKS

    text = (REFERENCE / "families-and-benchmarks.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```yaml\n# (\w+\.yaml)(.*?)```", text, flags=re.DOTALL))
    files = {name: f"# {rest}" for name, rest in files.items()}
    assert list(files) == ["mine.yaml", "school.yaml", "science.yaml", "animals.yaml"]
    write_package(tmp_path, "my_families", {"mine.yaml": files.pop("mine.yaml")})
    write_package(tmp_path, "my_benchmarks", files)
    mine = announce(monkeypatch, FAMILIES, tmp_path, mine="my_families").get("mine")
    benchmarks = announce(monkeypatch, BENCHMARKS, tmp_path, mine="my_benchmarks")
    assert benchmarks.get("school").source.describe() == (
        "hub: openai/gsm8k (main), revision not pinned"
    )
    assert benchmarks.get("science").grader == "choice"
    assert benchmarks.get("animals").source.describe().endswith("animals.jsonl")
    for name in (*mine.benchmarks, mine.fit_benchmark):
        assert name in benchmarks
        assert mine.generators[0].samples[name] > 0
    for group in re.findall(r'entry-points\."(.*?)"', text):
        assert group in (FAMILIES.group, BENCHMARKS.group)
