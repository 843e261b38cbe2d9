"""A section with round numbers, for tables and files."""

from __future__ import annotations

from perf.results import Case, Measurement, Section, Way


def sample_section(name: str) -> Section:
    """Products 10 ms, ours 15 ms, naive 60 ms at 100 positions, twice that at 200."""
    ways = (
        Way("floor", "products", "logits"),
        Way("ours", "divtok", "everything"),
        Way("naive", "naive torch", "everything", "full logits"),
        Way("peer", "some peer", "a loss"),
    )
    small = (
        Measurement("floor", (0.010, 0.012), (0.02, 0.02), 5 << 20),
        Measurement("ours", (0.015,), (0.03,), 1 << 20),
        Measurement("naive", (0.060,), (0.09,), 3 << 30, 1e-5, 2e-7),
        Measurement("peer", reason="needs a GPU"),
    )
    large = (
        Measurement("floor", (0.020,), (0.04,), 5 << 20),
        Measurement("ours", (0.030,), (0.06,), 1 << 20),
        Measurement("naive", reason="left out"),
        Measurement("peer", reason="needs a GPU"),
    )
    facts = {"response tokens": 80.0, "TFLOP": 0.3}
    return Section(
        name=name,
        command=f"python -m perf run --section {name}",
        date="2026-01-02",
        machine={"CPU": "a CPU", "torch": "9.9"},
        ways=ways,
        cases=(
            Case("heads", "100 positions", 100, small, facts),
            Case("heads", "200 positions", 200, large),
        ),
        groups={"heads": "two heads"},
    )
