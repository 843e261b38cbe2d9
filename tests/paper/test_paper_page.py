"""The page of all exhibits: whole, self-contained, escaped, and the same bytes each time."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from paper_samples import (
    Response,
    named,
    tiny_folder,
    trace_of,
    write_run,
)

from divtok.paper.build import make_exhibits
from divtok.paper.claims.listed import LISTED
from divtok.paper.claims.said import SECTIONS
from divtok.paper.exhibit import Exhibit, Finding
from divtok.paper.page import Page, write_page
from divtok.paper.recipe import TINY, chosen_recipes, recipes
from divtok.paper.run_tables import Material
from divtok.records import Verdict
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.tables import ReportColumn, ReportRow, ReportTable

# The first recipe of every kind: drawing takes most of the time.
SHOWN = list({recipe.exhibit: name for name, recipe in reversed(recipes().items())}.values())
VOID = {"meta", "img", "br", "link", "hr", "input"}
HOSTILE = '<script>alert("1")</script>'
BIDI = "arith\u202egnp.exe"


class Document(HTMLParser):
    """What a page holds, and whether its elements are closed in the order they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if found.get("aria-labelledby"):
            self.links.append("#" + str(found["aria-labelledby"]))
        if tag == "a":
            self.links.append(str(found["href"]))
        if tag == "img":
            self.images.append(found)
        assert not any(name.startswith("on") for name in found)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("style", "script"):
            self.text += data + " "


def read(page: Page) -> Document:
    return Document(page.path.read_text("utf-8"))


def exhibit(**changes: object) -> Exhibit:
    table = ReportTable(
        "A table",
        (ReportColumn("name", "Name"), ReportColumn("value", "Value", "percent", "lower"),
         ReportColumn("other", "Other", "percent", "lower")),
        (ReportRow(("model", 0.123, 0.456), section="bench"),
         ReportRow(("model: paper", 0.5, None), section="bench", ranked=False),
         ReportRow(("Mean", 0.25, 0.75), is_mean=True)),
        "How it was made.",
    )  # fmt: skip
    parts = {
        "tables": (table,),
        "caption": "A caption.",
        "findings": (
            Finding("One claim.", "the rule", True, "12.0 against 13.0"),
            Finding("Another.", "a rule", False, "none"),
            Finding("A third.", "rule", None, "not measured"),
        ),
    }
    return Exhibit(recipes()["figure-count"], **(parts | changes))  # type: ignore[arg-type]


def display() -> PanelsDisplay:
    panel = Panel("panel", "x (bits)", "y (%)", (LineSeries("line", (0.0, 1.0), (1.0, 2.0), 0),))
    return PanelsDisplay("figure", "title", ((panel,),))


def write(folder: Path, *exhibits: Exhibit, family: str | None = TINY) -> Page:
    return write_page(folder, "page", exhibits, [], title="A title", family=family)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A recipe of every kind from the handmade runs of the tiny side."""
    material = Material(tiny_folder(tmp_path_factory), TINY)
    made = make_exhibits([recipes()[name] for name in SHOWN], material)
    folder = tmp_path_factory.mktemp("page")
    return write_page(folder, "index", made, material.opened(), title="All", family=TINY)


def test_the_whole_page_is_well_formed(whole: Page) -> None:
    document = read(whole)
    assert len(set(document.ids)) == len(document.ids)
    assert set(SHOWN) <= set(document.ids)
    assert {"html", "head", "title", "style", "body", "h1"} <= set(document.tags)
    assert "script" not in document.tags


def test_every_link_leads_somewhere(whole: Page) -> None:
    document = read(whole)
    inside = [link for link in document.links if link.startswith("#")]
    files = [link for link in document.links if not link.startswith("#")]
    assert {link[1:] for link in inside} <= set(document.ids)
    assert {f"#{name}" for name in SHOWN} <= set(inside)
    assert files
    for link in files:
        assert "://" not in link
        assert (whole.folder / link).is_file()
        assert (whole.folder / link).stat().st_size > 0


def test_every_exhibit_has_its_files(whole: Page) -> None:
    written = {str(p.relative_to(whole.folder)) for p in whole.folder.rglob("*") if p.is_file()}
    linked = {link for link in read(whole).links if not link.startswith("#")}
    assert written == linked | {"index.html"}
    for name in SHOWN:
        kind, suffixes = (
            ("tables", ("md", "csv", "tex"))
            if name.startswith("table-")
            else ("figures", ("png", "svg", "json"))
        )
        several = name.startswith(("table-whitebox", "table-blackbox"))
        stem = f"{name}-1" if several else name
        assert {f"{kind}/{stem}.{suffix}" for suffix in suffixes} <= written


def test_figures_are_inside_the_page(whole: Page) -> None:
    document = read(whole)
    assert len(document.images) == sum(name.startswith("figure-") for name in SHOWN)
    for image in document.images:
        source = image["src"]
        assert source is not None
        head, data = source.split(",", 1)
        assert head == "data:image/svg+xml;base64"
        assert b"<svg" in base64.b64decode(data, validate=True)
        assert image["alt"]
        assert int(image["width"] or 0) > 100
    svg = (whole.folder / "figures" / "figure-count.svg").read_bytes()
    assert base64.b64encode(svg).decode() in whole.path.read_text("utf-8")


def test_each_finding_stands_above_and_beside_its_exhibit(tmp_path: Path) -> None:
    document = read(write(tmp_path, exhibit()))
    for words in ("One claim.", "the rule", "12.0 against 13.0", "A third.", "not measured"):
        assert document.text.count(words) == 2
    for verdict in ("holds", "does not hold", "undecided"):
        assert f" {verdict} " in document.text


def test_findings_of_the_whole_page_have_their_verdicts(
    whole: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = read(whole)
    material = Material(tiny_folder(tmp_path_factory), TINY)
    [made] = make_exhibits(chosen_recipes("figure-count-ratio"), material)
    assert len(made.findings) == 8
    for finding in made.findings:
        assert finding.claim in document.text
        assert finding.number in document.text
        assert finding.rule in document.text


def test_claims_stand_by_section_with_their_counts(tmp_path: Path) -> None:
    page = write_page(
        tmp_path, "page", [exhibit()], [], title="A title", family=TINY, everything=True
    )
    document = read(page)
    number = len(LISTED)
    assert (
        f"{number + 3} claims: 1 holds, 1 does not hold, {number + 1} undecided." in document.text
    )
    for key, title in SECTIONS.items():
        assert f"{key} {title}" in document.text
    assert all(said.text in document.text for said in LISTED)
    numbers = re.findall(r'<td class="number">([0-9]+)</td>', page.path.read_text("utf-8"))
    assert numbers == [str(i) for i in range(1, number + 1)]
    assert "to be told from figure-pilot, not made here" in document.text
    inside = [link[1:] for link in document.links if link.startswith("#")]
    assert set(inside) <= set(document.ids)


def test_cells_are_marked_and_written_as_in_the_tables(tmp_path: Path) -> None:
    text = write(tmp_path, exhibit()).path.read_text("utf-8")
    assert '<td class="number best">12.3</td>' in text
    assert '<td class="number second">45.6</td>' in text
    assert '<td class="number">50.0</td><td class="number">—</td>' in text  # no marks for theirs
    assert text.count('<th scope="colgroup" colspan="3">bench</th>') == 1
    assert 'class="mean"' in text


def test_the_family_is_said_and_part_of_the_command(tmp_path: Path) -> None:
    tiny = read(write(tmp_path / "a", exhibit()))
    assert "divtok paper figure-count --family tiny" in tiny.text
    assert "not evidence about large models" in tiny.text
    paper = read(write(tmp_path / "b", exhibit(), family=None))
    assert "divtok paper figure-count " in paper.text
    assert "--family" not in paper.text
    assert "not evidence about large models" not in paper.text


def test_one_exhibit_needs_no_contents(tmp_path: Path) -> None:
    one = read(write(tmp_path / "a", exhibit()))
    assert "contents" not in one.ids
    two = read(write(tmp_path / "b", exhibit(), Exhibit(recipes()["figure-pilot"])))
    assert "contents" in two.ids


def test_a_page_of_one_exhibit_does_not_promise_all(tmp_path: Path) -> None:
    assert "Every table and figure" not in read(write(tmp_path, exhibit())).text


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    figures = (display(),)
    first, second = (write(tmp_path / name, exhibit(figures=figures)) for name in "ab")
    names = sorted(p.relative_to(first.folder) for p in first.folder.rglob("*") if p.is_file())
    assert len(names) == 1 + 3 + 3
    for name in names:
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()
    before = first.path.read_bytes()
    assert write(tmp_path / "a", exhibit(figures=figures)).path.read_bytes() == before


def hostile_run(folder: Path) -> Material:
    """A benchmark and a generator whose names are markup, on the disk and in every table."""
    config = named("whitebox-tiny").config.model_copy(update={"benchmarks": [HOSTILE, BIDI]})
    names = (
        "nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized",
        "length", "count", "dtc_prod", "dtc_lin", "prm", "uqac_global",
    )  # fmt: skip
    generator = str(folder / "model\"'><img src=x onerror=alert(1)>")
    Path(generator).parent.mkdir(parents=True, exist_ok=True)
    Path(generator).mkdir()
    config = config.model_copy(update={"generators": [generator]})
    rows = []
    for benchmark in (HOSTILE, BIDI):
        for number, verdict in enumerate((Verdict.CORRECT, Verdict.INCORRECT) * 6):
            key = f"{benchmark}/{generator}/p{number}/0"
            trace = trace_of(key, generator, "divtok/tiny-0.3m", [0.02 + 0.3 * (number % 2)] * 9)
            values = dict.fromkeys(names, 0.9 - 0.05 * number)
            rows.append(
                Response(benchmark, generator, f"p{number}", 0, verdict, False, (trace,), values)
            )
    write_run(folder / "whitebox-tiny", config, rows)
    return Material(folder, TINY)


@pytest.mark.parametrize("name", ["table-whitebox", "figure-pilot", "figure-divergence"])
def test_hostile_names_are_text(name: str, tmp_path: Path) -> None:
    material = hostile_run(tmp_path / "runs")
    recipe = chosen_recipes(name)[0]
    open_recipe = recipe.model_copy(
        update={"tiny": recipe.tiny.model_copy(update={"benchmarks": None})}
    )
    made = make_exhibits([open_recipe], material)
    page = write_page(tmp_path / "out", "page", made, material.opened(), title=HOSTILE, family=TINY)
    document = read(page)
    assert "script" not in document.tags
    assert len(document.images) == len(made[0].figures)
    assert HOSTILE in document.text
    assert "<script" not in page.path.read_text("utf-8")
    assert "<img src=x" not in page.path.read_text("utf-8")
    for file in (tmp_path / "out").rglob("*.svg"):
        assert "<script" not in file.read_text("utf-8")


def test_a_name_cannot_turn_the_direction_of_reading(tmp_path: Path) -> None:
    material = hostile_run(tmp_path / "runs")
    made = make_exhibits(chosen_recipes("table-whitebox"), material)
    page = write_page(tmp_path / "out", "page", made, material.opened(), title="t", family=TINY)
    assert "\u202e" not in page.path.read_text("utf-8")


def test_runs_are_listed_with_what_read_them(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    material = Material(tiny_folder(tmp_path_factory), TINY)
    runs = material.runs(recipes()["figure-count"])
    text = read(write_page(tmp_path, "page", [], runs, title="t", family=TINY)).text
    for words in (
        "whitebox-tiny", "tiny-0.5m, tiny-0.9m, tiny-1.6m", "generator / tiny-0.3m", "288",
        "blackbox-tiny-0.5m", "tiny-0.9m / tiny-0.3m", "96", "cot", "0.05",
    ):  # fmt: skip
        assert f" {words} " in text
