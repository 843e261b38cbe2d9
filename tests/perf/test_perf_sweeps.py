"""The measuring of sweeps, on a store that is too small to measure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from divtok.stages.sweep import counted
from perf import sweeps


def test_the_store_has_the_groups_and_lengths_it_says(tmp_path: Path) -> None:
    run = sweeps.write_run(tmp_path / "run", 100)
    groups = counted(run, grids={"jsd": [0.5]})
    assert [len(group) for group in groups] == [5] * 20
    lengths = [length for group in groups for length in group.length]
    assert min(lengths) >= sweeps.SHORTEST
    assert max(lengths) <= sweeps.LONGEST


def test_every_sweep_is_timed_and_they_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    sweeps.main(["--traces", "80"])
    lines = capsys.readouterr().out.splitlines()
    points = {line[:22].strip(): int(line[22:34].replace(",", "")) for line in lines[2:]}
    per_theta = {"dtc_lin": 20, "dtc_prod": 11}
    for name, values in per_theta.items():
        for divergence, thetas in (("jsd", 99), ("kl_pq", 300), ("kl_qp", 300)):
            assert points[f"{name} {divergence}"] == 20 * thetas * values
    assert points["all"] == 20 * 699 * 31
    assert re.match(r"80 traces, [\d,]+ tokens", lines[0])
