"""docs/performance.md from stored sections: figures of measurement go between markers.

The prose of the page is written by hand. What stands between `<!-- begin NAME -->` and
`<!-- end NAME -->` is made here, from the stored results alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from divtok.errors import DataError
from divtok.report.text import markdown
from perf.results import Case, Measurement, Section, Way, read_section

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
WAYS_BLOCK = "ways"


def read_results(folder: Path, names: Sequence[str]) -> dict[str, Section]:
    """The stored sections of a folder by name; those not measured yet are not in it."""
    paths = {name: folder / f"{name}.json" for name in names}
    return {name: read_section(path) for name, path in paths.items() if path.exists()}


def fill(page: str, sections: Mapping[str, Section], names: Sequence[str]) -> str:
    """The page with every block between markers made anew."""
    for name in names:
        if name in sections:
            block = section_block(sections[name])
        else:
            block = f"Not measured yet: `python -m perf run --section {name}`, then `render`."
        page = replace_block(page, name, block)
    ways = _all_ways(sections)
    return replace_block(page, WAYS_BLOCK, ways_table(ways) if ways else "Nothing measured yet.")


def replace_block(page: str, name: str, block: str) -> str:
    """The page with other text between the markers of one block."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    filled, count = pattern.subn(lambda _: f"{begin}\n{block}\n{end}", page)
    if count != 1:
        raise DataError(
            f"The page has {count} blocks named '{name}', not one.",
            next_step=f"Put {begin} and {end} where its figures belong.",
        )
    return filled


def _all_ways(sections: Mapping[str, Section]) -> list[Way]:
    """The ways of every head section, each once."""
    found: dict[str, Way] = {}
    for name, section in sections.items():
        if name.endswith("heads"):
            found.update({way.name: way for way in section.ways if way.name not in found})
    return list(found.values())


def ways_table(ways: Sequence[Way]) -> str:
    rows = [[way.label, way.computes, way.remark] for way in ways]
    return table(["way", "gives", "remarks"], rows)


def section_block(section: Section) -> str:
    """All of one section: how it was made, a table for each group of cases, growth and plot."""
    heads = section.name.endswith("heads")
    parts = [made(section.command, section.date, section.machine)]
    for group, about in section.groups.items():
        cases = [case for case in section.cases if case.group == group]
        parts.append(f"**{group}**: {about}.")
        parts.extend(_heads(section, cases) if heads else [pair_table(section, cases)])
    if heads:
        parts.append(f"![Time and memory against positions](images/{image_name(section)})")
    return "\n\n".join(parts)


def image_name(section: Section) -> str:
    return f"perf-{section.name}.png"


def made(command: str, date: str, about: Mapping[str, str]) -> str:
    """With which command, when, on what hardware and with which versions."""
    machine = dict(about)
    hardware = [machine.pop(name) for name in ("GPU", "CPU", "memory") if name in machine]
    versions = ", ".join(f"{name} {version}" for name, version in machine.items())
    return f"`{command}` on {date}. {'; '.join(hardware)}. {versions}."


def _heads(section: Section, cases: Sequence[Case]) -> list[str]:
    # The case with errors is the one to show whole; the others only show the growth.
    main = next((case for case in cases if case.facts), cases[-1])
    facts = ", ".join(f"{name} {value:.3g}" for name, value in main.facts.items())
    lead = f"{main.work}" + (f" ({facts}):" if facts else ":")
    parts = [lead, heads_table(section, main)]
    if sum(any(m.best is not None for m in case.measurements) for case in cases) > 1:
        parts += ["Milliseconds per 1,000 positions:", growth_table(section, cases)]
    return parts


def heads_table(section: Section, case: Case) -> str:
    cpu = section.name.startswith("cpu")
    header = ["way", "ms, best (median, runs)"]
    header += ["CPU s"] if cpu else []
    header += ["x products", "x naive", "x naive, products taken off", "extra memory"]
    header += ["JSD error, bits: token", "of the mean"]
    floor, naive = (m.best if m else None for m in (case.of("floor"), case.of("naive")))
    rows: list[list[str]] = []
    for way, found in _present(section, case):
        if found.reason is not None:
            cells = [markdown(found.reason)] + [""] * (len(header) - 4)
        else:
            cells = [_milliseconds(found)]
            cells += [_plain(found.best_cpu)] if cpu else []
            cells += [
                _ratio(found.best, floor),
                _ratio(found.best, naive),
                _ratio(_minus(found.best, floor), _minus(naive, floor)),
                memory(found.extra_bytes),
            ]
        rows.append(
            [way.label, *cells, _error(found.error_max_bits), _error(found.error_mean_bits)]
        )
    return table(header, rows)


def growth_table(section: Section, cases: Sequence[Case]) -> str:
    header = ["way", *(f"{case.tokens:,}" for case in cases)]
    rows: list[list[str]] = []
    for way in section.ways:
        found = [(case.tokens, case.of(way.name)) for case in cases]
        if any(m is not None and m.best is not None for _, m in found):
            cells = [
                "" if m is None or m.best is None else _plain(m.best * 1e6 / tokens)
                for tokens, m in found
            ]
            rows.append([way.label, *cells])
    return table(header, rows)


def pair_table(section: Section, cases: Sequence[Case]) -> str:
    header = [
        "work",
        "way",
        "seconds, best (median, runs)",
        "tokens/s",
        "response tokens/s",
        "x naive",
    ]
    header += ["TFLOP/s", "peak above weights", "JSD gap, bits: largest", "mean"]
    rows: list[list[str]] = []
    for case in cases:
        naive = case.of("naive")
        for way, found in _present(section, case):
            if found.best is None or found.median is None:
                rows.append([case.work, way.label, markdown(str(found.reason))] + [""] * 7)
                continue
            rows.append(
                [
                    case.work,
                    way.label,
                    f"{_plain(found.best)} ({_plain(found.median)}, {len(found.seconds)})",
                    f"{case.tokens / found.best:,.0f}",
                    f"{case.facts['response tokens'] / found.best:,.0f}",
                    _ratio(found.best, naive.best if naive else None),
                    _plain(case.facts["TFLOP"] / found.best),
                    memory(found.extra_bytes),
                    _error(found.error_max_bits),
                    _error(found.error_mean_bits),
                ]
            )
    return table(header, rows)


def _present(section: Section, case: Case) -> list[tuple[Way, Measurement]]:
    pairs = [(way, case.of(way.name)) for way in section.ways]
    return [(way, found) for way, found in pairs if found is not None]


def _milliseconds(found: Measurement) -> str:
    if found.best is None or found.median is None:
        return "not timed"
    return f"{_plain(found.best * 1000)} ({_plain(found.median * 1000)}, {len(found.seconds)})"


def _minus(value: float | None, floor: float | None) -> float | None:
    return None if value is None or floor is None else value - floor


def _ratio(value: float | None, to: float | None) -> str:
    if value is None or to is None or to <= 0:
        return ""
    return f"{value / to:.2f}"


def _plain(value: float | None) -> str:
    """Three digits, without an exponent."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def memory(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
