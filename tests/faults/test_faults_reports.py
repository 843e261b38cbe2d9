"""What is written for others to open: pages, figures, tables and JSON, from hostile runs."""

from __future__ import annotations

import csv
import io
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browsers import Browser, browser, chromium
from hostile_samples import ACTS, hostile_run, hostile_strings
from scorecard import measure, tries

from divtok.evaluate.curves import CountPoint
from divtok.evaluate.fit import ThetaFit, ThetaPoint
from divtok.json_text import json_text
from divtok.paper.exhibit import Exhibit, Finding
from divtok.paper.page import write_page
from divtok.paper.recipe import recipes
from divtok.report.figures import CountDisplay, save_figure
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.render import to_csv
from divtok.report.tables import ReportColumn, ReportRow, ReportTable
from divtok.report.trajectory import html_tokens
from divtok.report.write import write_report
from divtok.stages.evaluate import protocol_of, results_of

__all__ = ["browser", "chromium"]

BATCH = 30  # names in one report
# Fonts lack the symbols for control characters, and no panel is wide enough for these names.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Glyph"),
    pytest.mark.filterwarnings("ignore:constrained_layout"),
]


def hostile_pages(folder: Path, strings: list[str]) -> list[Path]:
    """Every kind of file that divtok writes and a browser opens, from a run of these strings."""
    run, config = hostile_run(folder / "run", strings)
    found = results_of(run, config)
    fit = ThetaFit(0.5, "dtc_lin", (ThetaPoint(0.5, 0.1, 0.7, 3.0),), 10, 4, 0, 5, 4, None)
    written = write_report(
        run.report,
        evaluations=found.evaluations,
        groups=found.groups,
        notes=found.notes,
        theta_fits=dict.fromkeys(strings, fit),
        protocol=protocol_of(config),
        title=strings[0],
        formats=("svg",),
    )
    pages = [path for path in map(run.report.joinpath, written.files) if path.suffix == ".svg"]
    pages += [
        _rendered(path) for path in map(run.report.joinpath, written.files) if path.suffix == ".md"
    ]
    for number, text in enumerate(strings):
        page = write_page(
            folder / "paper", f"page-{number}", [_exhibit(text, strings)], [],
            title=text, family=None, overrides=(text,), left_out=(text,),
        )  # fmt: skip
        pages.append(page.path)
    tokens = folder / "tokens.html"
    tokens.write_text(
        "<!doctype html><meta charset=utf-8>" + html_tokens(strings, [0.9] * len(strings), 0.5),
        encoding="utf-8",
    )
    return [*pages, tokens]


def _exhibit(text: str, strings: list[str]) -> Exhibit:
    columns = (ReportColumn(text, text), ReportColumn("b", text, "percent", "lower"))
    rows = tuple(ReportRow((name, 0.5), section=name) for name in strings)
    panel = Panel(text, text, text, (LineSeries(text, (0.0, 1.0), (1.0, 2.0), 0),))
    return Exhibit(
        recipes()["figure-count"],
        tables=(ReportTable(text, columns, rows, text),),
        figures=(PanelsDisplay("figure", text, ((panel,),)),),
        caption=text,
        findings=(Finding(text, text, True, text),),
    )


def _rendered(path: Path) -> Path:
    """Markdown as the most trusting renderer shows it: HTML in it is let through."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    page = path.with_suffix(".md.html")
    page.write_text(
        f"<!doctype html><meta charset=utf-8>{made.render(path.read_text(encoding='utf-8'))}",
        encoding="utf-8",
    )
    return page


def test_fault_44_script_in_any_field_is_text(tmp_path: Path, browser: Browser) -> None:
    with measure(
        "hostile_strings",
        "hostile strings in every field of a run, all its pages in a browser",
        "0 scripts, 0 requests",
    ) as figures:
        strings = hostile_strings(tries(short=6, full=300))
        for begin in range(0, len(strings), BATCH):
            for path in hostile_pages(tmp_path / str(begin), strings[begin : begin + BATCH]):
                browser.open(path)
        seen = browser.seen
        figures |= {"strings": len(strings), "pages": seen.pages}
        figures |= {"scripts": seen.scripts, "requests": len(seen.requests)}
        assert (seen.scripts, seen.requests) == (0, [])


def test_fault_44_no_page_holds_an_element_of_a_field(tmp_path: Path) -> None:
    page = write_page(
        tmp_path, "page", [_exhibit("".join(ACTS), list(ACTS))], [], title="t", family=None
    )
    found = Elements()
    found.feed(page.path.read_text(encoding="utf-8"))
    assert found.outside == []
    assert "default-src 'none'" in found.policy


class Elements(HTMLParser):
    """What a page has that a page of tables and pictures has not."""

    EXPECTED = (
        "html head meta title style body h1 h2 p div nav ul li section table caption thead tbody "
        "tr th td code figure figcaption img a"
    )

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        sources = [given.get("href", "#"), given.get("src", "data:image/")]
        if (
            tag not in self.EXPECTED.split()
            or any(name.startswith("on") or name == "style" for name in given)
            or not sources[0].startswith(("#", "tables/", "figures/"))
            or not sources[1].startswith("data:image/")
        ):
            self.outside.append(f"{tag} {given}")


def test_fault_44_the_browser_of_these_tests_sees_what_acts(
    tmp_path: Path, browser: Browser
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>" + "".join(ACTS), encoding="utf-8")
    browser.open(page)
    assert browser.seen.scripts > 0
    assert any("hostile.invalid" in url for url in browser.seen.requests)


def test_fault_44_the_policy_holds_where_text_slips_through(
    tmp_path: Path, browser: Browser
) -> None:
    figure = PanelsDisplay("figure", "f", ((Panel("p", "x", "y", ()),),))
    exhibit = Exhibit(recipes()["figure-count"], figures=(figure,))
    page = write_page(tmp_path, "page", [exhibit], [], title="t", family=None).path
    browser.open(page)
    assert browser.styled()
    assert browser.widths()[0] > 0
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("<h1>t</h1>", "<h1>t</h1>" + "".join(ACTS)), encoding="utf-8")
    browser.open(page)
    assert (browser.seen.scripts, browser.seen.requests) == (0, [])


def test_fault_45_a_spreadsheet_computes_no_cell(tmp_path: Path) -> None:
    strings = ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\x1b]52;c;ZXZpbA==\x07", "plain"]
    run, config = hostile_run(tmp_path / "run", strings)
    found = results_of(run, config)
    written = write_report(run.report, evaluations=found.evaluations, notes=found.notes)
    tables = [run.report / path for path in written.files if path.suffix == ".csv"]
    assert tables
    for path in tables:
        text = path.read_bytes().decode("utf-8")
        assert not any(sign in text for sign in "\x1b\x07\r"), path.name
        for row in csv.reader(io.StringIO(text)):
            for cell in row:
                assert not cell.startswith(("=", "+", "@", "\t")) or _number(cell), cell
                assert not cell.startswith("-") or _number(cell), cell
    [everything] = [path for path in tables if path.name == "all.csv"]
    rows = list(csv.DictReader(io.StringIO(everything.read_text(encoding="utf-8"))))
    assert {row["generator"] for row in rows} >= {"'=1+1", "'+1", "'-1", "'@SUM(1)", "plain"}
    # A number stays one, also below zero.
    table = ReportTable("t", (ReportColumn("a", "a", "percent"),), (ReportRow((-0.5,)),), "c")
    assert to_csv(table).splitlines()[1] == "-0.5"


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_fault_46_json_has_null_and_a_flag(tmp_path: Path) -> None:
    points = (
        CountPoint(0, False, 4, 2, 0.5, low=math.nan, high=math.inf),
        CountPoint(1, True, 4, 2, 0.5, low=0.1, high=0.9),
    )
    stem = tmp_path / "figure"
    written = save_figure(CountDisplay("t", points), stem, formats=())
    [data] = [strictly(path.read_text(encoding="utf-8")) for path in written]
    point = data["series"][0]["points"][0]
    assert (point["accuracy"], point["low"], point["high"]) == (0.5, None, None)
    assert data["nonfinite"] == ["series[0].points[0].low", "series[0].points[0].high"]
    rows = [{"a": math.nan, "b": 1.0, "c": [np.float64("inf")]}, {"a": 2.0}]
    assert strictly(json_text(rows)) == [
        {"a": None, "b": 1.0, "c": [None], "nonfinite": ["a", "c[0]"]},
        {"a": 2.0},
    ]


def test_fault_46_a_stream_has_null_and_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from divtok.api import batch
    from divtok.api.scoring import Scored
    from divtok.cli import confidence
    from divtok.records import Confidence, Counts

    def found(rows: Any, **_: Any) -> Any:
        value = Confidence("", "e", {}, math.nan, low=0.1, high=math.inf)
        counts = Counts("", "p", "q", 0.5, 1, 1, 2, 1, 1, 0.0, 0, 0)
        nothing = SimpleNamespace(decision=lambda _: None)  # there is no policy
        return SimpleNamespace(rows=[Scored("r", (value,), counts) for _ in rows], scoring=nothing)

    monkeypatch.setattr(batch, "confidences", found)
    row = b'{"question": "q", "response": "r", "score": NaN, "nonfinite": 1, "x": "\\u009b\x7f"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(row)))
    confidence._stream({"policy": None}, 1)
    printed = capsys.readouterr().out
    data = strictly(printed)
    assert (data["score"], data["divtok"]["confidence"]) == (None, None)
    assert data["divtok"]["nonfinite"] == [
        "score", "divtok.confidence", "divtok.confidence_bounds[1]"
    ]  # fmt: skip
    assert (data["nonfinite"], data["x"]) == (1, "\x9b\x7f")
    assert printed.strip("\n").isascii()
    assert printed.strip("\n").isprintable()


def strictly(text: str) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)
