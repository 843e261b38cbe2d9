"""The page: ratios, rows that say why, and blocks that can be made again and again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from perf_samples import sample_section

from divtok.errors import DataError
from perf import figures, page
from perf.__main__ import main
from perf.results import RESULTS, SECTIONS, Section


def cells(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_to_the_products_to_naive_and_to_naive_without_the_products():
    section = sample_section("gpu-heads")
    text = page.heads_table(section, section.cases[0])
    assert cells(text, "divtok")[1:6] == ["15 (15, 1)", "1.50", "0.25", "0.10", "1.0 MiB"]
    assert cells(text, "products")[1:6] == ["10 (11, 2)", "1.00", "0.17", "0.00", "5.0 MiB"]
    assert cells(text, "naive torch")[4:] == ["1.00", "3.00 GiB", "1.0e-05", "2.0e-07"]


def test_a_way_that_did_not_run_keeps_its_row_with_the_reason():
    for name in ("gpu-heads", "cpu-heads"):
        section = sample_section(name)
        text = page.heads_table(section, section.cases[0])
        assert cells(text, "some peer")[1] == "needs a GPU"
        assert len({line.count("|") for line in text.splitlines()}) == 1


def test_the_cpu_table_also_has_the_time_of_all_threads():
    section = sample_section("cpu-heads")
    text = page.heads_table(section, section.cases[0])
    assert cells(text, "way")[2] == "CPU s"
    assert cells(text, "divtok")[2] == "0.03"


def test_growth_is_time_per_thousand_positions():
    section = sample_section("gpu-heads")
    text = page.growth_table(section, section.cases)
    assert cells(text, "way") == ["way", "100", "200"]
    assert cells(text, "divtok") == ["divtok", "150", "150"]
    assert cells(text, "naive torch") == ["naive torch", "600", ""]


def test_the_pair_table_counts_all_tokens_and_response_tokens():
    section = sample_section("cpu-pair")
    text = page.pair_table(section, section.cases[:1])
    ours = next(line for line in text.splitlines() if "| divtok |" in line)
    values = [cell.strip() for cell in ours.strip("|").split("|")]
    # 100 tokens, 80 of them response, 0.3 TFLOP, in 15 ms; naive needs 60.
    assert values[3:8] == ["6,667", "5,333", "0.25", "20", "1.0 MiB"]
    assert "needs a GPU" in text


def test_a_run_in_which_ours_failed_ends_with_the_code_for_partial_results(
    monkeypatch: pytest.MonkeyPatch,
):
    whole = sample_section("cpu-heads")
    case = whole.cases[0]
    failed = replace(case.measurements[1], seconds=(), reason="failed: RuntimeError")
    broken = replace(case, measurements=(case.measurements[0], failed))
    for cases, code in ((whole.cases, 0), ((case, broken), 3)):
        section = replace(whole, cases=cases)
        monkeypatch.setattr("perf.sections.run_section", lambda *_, s=section, **__: s)
        assert main(["run", "--section", "cpu-heads", "--quick"]) == code


PAGE = (
    "\n".join(f"{n}\n<!-- begin {n} -->\n<!-- end {n} -->" for n in ("ways", *SECTIONS)) + "\nend"
)


def test_blocks_are_filled_and_filling_again_changes_nothing():
    sections = {"gpu-heads": sample_section("gpu-heads")}
    once = page.fill(PAGE, sections, SECTIONS)
    assert page.fill(once, sections, SECTIONS) == once
    assert "python -m perf run --section gpu-heads` on 2026-01-02" in once
    assert "Not measured yet: `python -m perf run --section cpu-pair`" in once
    assert "| some peer | a loss |" in once
    assert once.endswith("\nend")


def test_new_results_take_the_place_of_old_ones_and_the_others_stay():
    old: dict[str, Section] = {n: sample_section(n) for n in ("gpu-heads", "cpu-heads")}
    before = page.fill(PAGE, old, SECTIONS)
    after = page.fill(before, {"gpu-heads": old["gpu-heads"]}, SECTIONS)
    assert after.count("on 2026-01-02") == before.count("on 2026-01-02") - 1


def test_a_page_without_a_block_is_refused():
    with pytest.raises(DataError, match="0 blocks named 'cpu-heads'"):
        page.fill("no markers", {}, SECTIONS)


def test_the_stored_results_are_on_the_page():
    text = page.PAGE.read_text(encoding="utf-8")
    filled = page.fill(text, page.read_results(RESULTS, SECTIONS), SECTIONS)
    assert filled == text, "run: python -m perf render"


def test_the_figure_draws_every_measured_point(tmp_path: Path):
    section = sample_section("gpu-heads")
    figure = figures.draw(section)
    time, memory = figure.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in time.get_lines()}
    assert lines == {"products": [0.010, 0.020], "divtok": [0.015, 0.030], "naive torch": [0.060]}
    extra = {line.get_label(): list(line.get_ydata()) for line in memory.get_lines()}
    assert extra == {"divtok": [2**-10, 2**-10], "naive torch": [3.0]}
    figures.save(section, tmp_path / "one.png")
    figures.save(section, tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
